"""`kill -9` at any moment of a verb, and disks that fill up in it: what was complete is there, and all goes on."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

from drivetrain.tests.attack import shop
from drivetrain.tests.attack.attack import Attack, Case, Finding
from drivetrain.tests.attack.verbs import check_printed, verb

LONGEST = 0.7  # seconds after which a verb is killed at the latest: most take less, a run with processes more
VERBS = {
    "run": ("run", "shop", "-p", "factor=5"),
    "run in processes": ("run", "shop", "-p", "factor=5", "--runner", "process"),
    "run again": ("run", "shop", "-p", "factor=4"),
    "resume": ("resume",),
    "repair": ("fsck", "--repair"),
    "undo": ("fsck", "--undo"),
    "rebuild": ("fsck", "--rebuild"),
    "backup": ("backup", "root/copy.db"),
    "restore": ("backup", "root/copy.db", "--restore"),
}
BEFORE = {
    # what is done to the root beforehand, so that the verb has something to do
    "repair": "damage",
    "undo": "repaired",
    "rebuild": "lost",
    "backup": "no copy",
    "restore": "copied",
}
DISK = "12m"  # of which the log of the store alone takes four before it is taken in


def _command(root: Path, name: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "drivetrain", *VERBS[name], "--root", str(root)], cwd=root.parent,
        env={**os.environ, "DRIVETRAIN_DEBUG": "1", "PYTHONWARNINGS": "ignore"}, start_new_session=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def _make_ready(root: Path, name: str) -> None:
    """Bring the root into the state that a verb is for."""
    match BEFORE.get(name):
        case "damage" | "repaired":
            file = sorted(root.glob("artifacts/Multiply/*/*/content/rows"))[0]
            file.chmod(0o644)
            file.write_text("99")
            if name == "undo":
                verb("fsck", "--repair", "--root", str(root))
        case "lost":
            for file in root.glob("metadata.db*"):
                file.unlink()
        case "no copy":
            (root / "copy.db").unlink(missing_ok=True)
        case "copied":
            (root / "copy.db").unlink(missing_ok=True)
            verb("backup", str(root / "copy.db"), "--root", str(root))


def _runs(root: Path) -> dict[str, Any]:
    """The runs that are complete, by id."""
    printed = verb("runs", "--json", "--root", str(root))
    if printed.code:
        return {}
    return {each["run"]: each["state"] for each in json.loads(printed.stdout)["runs"] if each["state"] == "COMPLETE"}


def _check_whole(root: Path, case: Case, before: dict[str, Any]) -> None:
    """Look at a root after all: it can be put in order, holds what was complete, and runs go on rightly."""
    if not (root / "metadata.db").exists() or verb("runs", "--root", str(root)).code:
        verb("fsck", "--rebuild", "--root", str(root))
    verb("resume", "--root", str(root))
    verb("fsck", "--repair", "--root", str(root))
    clean = verb("fsck", "--json", "--root", str(root))
    if clean.code != 0:
        raise Finding(f"fsck finds something after its repair\n{case}\n{clean.stdout}\n{clean.stderr}")
    for run in sorted(before.keys() - _runs(root).keys()):
        # Resuming a complete run begins it anew: where that is interrupted, resuming that run by its id completes it.
        verb("resume", run, "--root", str(root))
    if missing := before.keys() - _runs(root).keys():
        raise Finding(f"a run that was complete is gone\n{case}\n{sorted(missing)}")
    for factor in (4, 5, 6):
        printed = shop.run(root, factor)
        if printed.code != 0:
            raise Finding(f"an honest run fails\n{case}\n{printed.stderr}")
    clean = verb("fsck", "--json", "--root", str(root))
    if clean.code != 0 or json.loads(clean.stdout)["checked"] == 0:
        raise Finding(f"fsck finds something in the end\n{case}\n{clean.stdout}")


def _draw_kills(dice: Random) -> Case:
    moments = [round(dice.uniform(0.02, LONGEST), 3) for _ in range(dice.choice((1, 1, 2, 3)))]
    return [["kill", dice.choice(list(VERBS)), moment, dice.random() < 0.3] for moment in moments]


def _check_kills(folder: Path, case: Case) -> None:
    root = shop.fresh(folder)
    before = _runs(root)
    for _, name, moment, whole_group in case:
        _make_ready(root, name)
        with _command(root, name) as process:
            try:
                process.communicate(timeout=moment)
            except subprocess.TimeoutExpired:
                if whole_group:
                    os.killpg(process.pid, signal.SIGKILL)
                else:
                    process.kill()  # its children end by themselves
            process.communicate(timeout=60)
    _check_whole(root, case, before)


def can_mount() -> bool:
    """Whether this user may mount a disk."""
    with tempfile.TemporaryDirectory() as folder:
        if subprocess.run(["mount", "-t", "tmpfs", "tmpfs", folder], capture_output=True, check=False).returncode != 0:
            return False
        subprocess.run(["umount", folder], check=True)
    return True


@contextmanager
def _disk(folder: Path) -> Iterator[None]:
    """A small disk at a folder, with what was in it.

    Raises:
        RuntimeError: None can be mounted here.
    """
    honest = folder.with_name(f"{folder.name}-honest")
    folder.rename(honest)
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK}", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        raise RuntimeError("no tmpfs can be mounted here: it needs root; name the other attacks in ATTACKS")
    try:
        shutil.copytree(honest, folder, symlinks=True, dirs_exist_ok=True)
        yield
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)
        folder.rmdir()
        shutil.rmtree(honest)


def _draw_disks(dice: Random) -> Case:
    return [
        ["fill", dice.choice(list(VERBS)), dice.choice((0, 4096, 65536, dice.randrange(1 << 20)))]
        for _ in range(dice.choice((1, 1, 2)))
    ]


def _check_disks(folder: Path, case: Case) -> None:
    root = shop.fresh(folder)
    before = _runs(root)
    with _disk(root):
        for _, name, left in case:
            _make_ready(root, name)
            filler = root / "filler"
            with filler.open("wb") as file:
                file.write(bytes(max(0, shutil.disk_usage(root).free - left)))
            with _command(root, name) as process:
                _, stderr = process.communicate(timeout=60)
            filler.unlink()
            check_printed("", stderr.decode(errors="replace"), (name, f"with {left} bytes"))
        _check_whole(root, case, before)


ATTACKS = {
    "kill": Attack(shop.prepare, _draw_kills, _check_kills, slow=12, seconds=240, gibibytes=None),
    "disk": Attack(shop.prepare, _draw_disks, _check_disks, slow=12, seconds=240, gibibytes=None),
}
