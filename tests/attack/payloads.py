"""Payloads changed on disk: what was changed is never read, `fsck` names it, and a repair leaves what is right."""

from __future__ import annotations

import json
import os
import shutil
from contextlib import suppress
from pathlib import Path
from random import Random

from drivetrain.tests.attack import shop
from drivetrain.tests.attack.attack import Attack, Case, Finding
from drivetrain.tests.attack.mutations import Step, at, change_tree, damage_bytes, draw_bytes, draw_tree, place, to_text
from drivetrain.tests.attack.verbs import verb

NAMES = ("new.txt", ".hidden", "a\nb", "ü\u202e", "x" * 250, "manifest.json", "\udcff", "-rf", "content")


MARKER = "artifacts/.store.json"  # says whose payloads these are; a repair refuses where it is not as it was


def _draw(dice: Random) -> Case:
    return [_step(dice) for _ in range(dice.choice((1, 1, 1, 2, 4)))]


def _step(dice: Random) -> Step:
    where = place(dice)
    return dice.choice([
        *[["bytes", where, dice.choice((True, False)), *draw_bytes(dice)]] * 6,
        *[["manifest", where, *draw_tree(dice)]] * 3,
        ["missing", where],
        ["missing payload", where],
        ["link", where, dice.choice(("/etc/hostname", "rows", "../../../..", "/nowhere", "/dev/zero", "."))],
        ["out", where],
        ["folder", where],
        ["pipe", where],
        ["beside", where, dice.choice(NAMES)],
        ["swap", where, place(dice)],
        ["mode", where, dice.choice((0, 0o777))],
        ["all out"],
        ["all missing"],
        ["notes", where, *draw_bytes(dice)],
    ])  # fmt: skip


def _files(root: Path) -> list[Path]:
    return sorted(path for path in (root / "artifacts").rglob("*") if path.is_file() and not path.is_symlink())


def _carry_out(root: Path, step: Step) -> None:
    """Do one harm; what others have taken away already is left alone."""
    artifacts = root / "artifacts"
    if step[0] == "all out":
        artifacts.rename(root.parent / "elsewhere")
        artifacts.symlink_to(root.parent / "elsewhere")
        return
    if step[0] == "all missing":
        artifacts.unlink() if artifacts.is_symlink() else shutil.rmtree(artifacts)
        return
    if step[0] == "notes":  # what is remembered of checks
        files = sorted(path for path in (root / "work").rglob("*") if path.is_file())
        if files:
            file = files[at(step[1], len(files))]
            file.write_bytes(damage_bytes(file.read_bytes(), step[2:]))
        return
    files = _files(root)
    if step[0] == "manifest":
        files = [file for file in files if file.name == "manifest.json"]
    if not files:
        return
    file = files[at(step[1], len(files))]
    file.parent.chmod(0o755)
    file.chmod(0o644)
    before = file.stat()
    match step:
        case ["bytes", _, keep_times, *damage]:
            file.write_bytes(damage_bytes(file.read_bytes(), damage))
            if keep_times:
                os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
        case ["manifest", _, *change]:
            with suppress(ValueError):  # what the step before left is no JSON any more
                file.write_text(to_text(change_tree(json.loads(file.read_text()), change)))
        case ["missing", _]:
            file.unlink()
        case ["missing payload", _]:
            shutil.rmtree(root / Path(*file.relative_to(root).parts[:4]))
        case ["link", _, to]:
            file.unlink()
            file.symlink_to(str(to))
        case ["out", _]:  # the folder of a payload, or of its content, becomes a link to itself elsewhere
            outside = root.parent / "outside"
            shutil.rmtree(outside, ignore_errors=True)
            folder = file.parent
            folder.rename(outside)
            folder.symlink_to(outside)
        case ["folder", _]:
            file.unlink()
            file.mkdir()
        case ["pipe", _]:
            file.unlink()
            os.mkfifo(file)
        case ["beside", _, name] if file != root / MARKER:  # what lies there is no payload, and nobody's business
            (file.parent / str(name)).write_text("new")
        case ["swap", _, other]:
            second = files[at(other, len(files))]
            first_bytes, second_bytes = file.read_bytes(), second.read_bytes()
            second.chmod(0o644)
            file.write_bytes(second_bytes)
            second.write_bytes(first_bytes)
        case ["mode", _, mode]:
            file.chmod(mode)


def _seen(root: Path) -> dict[str, object]:
    """What lies there, by path: bytes, where a link leads, or that it is something else; of manifests what they say."""
    seen: dict[str, object] = {}
    for path in [root / "artifacts", *sorted((root / "artifacts").rglob("*"))]:
        name = path.relative_to(root).as_posix()
        if path.is_symlink():
            seen[name] = f"link to {path.readlink()}"
        elif path.is_file():
            seen[name] = path.read_bytes()
            if path.name == "manifest.json" and len(path.relative_to(root).parts) == 5:
                with suppress(ValueError):
                    seen[name] = _said(json.loads(path.read_bytes()))
        elif not path.is_dir():
            seen[name] = "something else"
    return seen


def _said(manifest: object) -> object:
    """What matters of a manifest: not its format, nor what nobody reads."""
    try:
        return [
            sorted((file["path"], file["size"], file["sha256"]) for file in manifest[part]["files"])  # type: ignore[index]
            for part in ("content", "extra")
        ]
    except (KeyError, TypeError, IndexError):
        return manifest


def _check(folder: Path, case: Case) -> None:
    for name in ("elsewhere", "outside"):
        shutil.rmtree(folder / name, ignore_errors=True)
    root = shop.fresh(folder)
    shop.run(root, 5)  # so that what was whole is remembered
    before = _seen(root)
    for step in case:
        with suppress(FileNotFoundError, FileExistsError, IsADirectoryError, NotADirectoryError, RecursionError):
            _carry_out(root, step)
    after = _seen(root)
    changed = {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)} - {MARKER}
    verb("show", "--root", str(root))
    first = verb("fsck", "--json", "--root", str(root))
    if changed and first.code == 0:
        raise Finding(f"fsck finds nothing\n{sorted(changed)}")
    shop.run(root, 6)
    verb("fsck", "--repair", "--dry-run", "--root", str(root))
    repaired = verb("fsck", "--repair", "--root", str(root))
    if repaired.code != 0:  # refused: the payloads may be elsewhere
        return
    again = verb("fsck", "--json", "--root", str(root))
    if again.code != 0:
        raise Finding(f"fsck finds something after its repair\n{repaired.stdout}\n{again.stdout}")
    for factor in (5, 6, 7):
        if shop.run(root, factor).code != 0:
            raise Finding(f"a run fails after a repair\n{repaired.stdout}")
    if verb("fsck", "--json", "--root", str(root)).code != 0:
        raise Finding("fsck finds something after a repair and runs")


ATTACKS = {"payload": Attack(shop.prepare, _draw, _check, fast=2, slow=43)}
