"""Where the runs of a project lie: one rule, by which every verb, `dt.open` and the pods choose the root folder.

What is named counts: `--root`, then the variable DRIVETRAIN_ROOT, then `[tool.drivetrain] root` of the nearest
pyproject.toml. Else the nearest `.drivetrain` that holds runs, from the project's folder upward, then from the working
directory upward. Else a new one beside the nearest pyproject.toml or `.git`, else in the project's folder.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

from ...addresses import scheme_in_path
from ...errors import InputError, suggest

NAME: Final = ".drivetrain"
"""What a root folder is called where nobody names another."""
VARIABLE: Final = "DRIVETRAIN_ROOT"
"""The variable that names the root: pods get it, and so do the processes that a run starts."""
_STORE: Final = "DRIVETRAIN_STORE"
_TABLE: Final = "[tool.drivetrain]"
_SETTINGS: Final = ("root", "store", "artifacts")


class RootLocation(NamedTuple):
    """A root folder, and why it is this one.

    Attributes:
        root: The folder, absolute; it may not exist yet.
        store: Where the metadata lies, if not in the root.
        artifacts: Where the artifacts lie, where that is said.
        named_by: What names the root: "--root", "DRIVETRAIN_ROOT" or a pyproject.toml; "" where it was searched for.
        others: Other folders with runs that the search came by, the nearest first.
    """

    root: Path
    store: str | None = None
    artifacts: str | None = None
    named_by: str = ""
    others: tuple[Path, ...] = ()


def find_root(
    project: Path | None = None,
    *,
    root: str | Path | None = None,
    store: str | None = None,
    artifacts: str | None = None,
    environment: Mapping[str, str] = os.environ,
) -> RootLocation:
    """Choose the root folder. Nothing is created.

    Args:
        project: The pipeline's folder, where there is one.
        root: What a person names, relative to the working directory.
        store: The same of the store, else DRIVETRAIN_STORE.
        artifacts: The same of the artifacts.
        environment: Where the variables are looked up. An empty one counts as none.

    Returns:
        Its location. A store and artifacts of a pyproject.toml belong to the root that it means: `--root` and
        DRIVETRAIN_ROOT set all three aside.

    Raises:
        InputError: A pyproject.toml cannot be read or has a wrong setting; a new root would have to lie in a folder
            that belongs to another user; a URL is named.
    """
    try:
        here = Path.cwd()
    except FileNotFoundError:
        raise InputError("the working directory does not exist any more", fix="go to a folder that does") from None
    store = store or environment.get(_STORE) or None
    if root is not None and not str(root):
        raise InputError("--root names no folder", fix="name one, or leave --root away")
    for named_by, folder in (("--root", root), (VARIABLE, environment.get(VARIABLE))):
        if folder:
            return RootLocation(_absolute(here, folder, named_by), store, artifacts, named_by)
    starts = dict.fromkeys(_folder(start) for start in (project, here) if start is not None)
    searches = [_Search.upward(start) for start in starts]
    decisive = next((search for search in searches if search.decides), searches[0])
    settings = decisive.settings
    store, artifacts = store or settings.get("store"), artifacts or settings.get("artifacts")
    if "root" in settings:
        return RootLocation(Path(settings["root"]), store, artifacts, str(decisive.pyproject))
    known = list(dict.fromkeys(root for search in searches for root in search.roots))
    if decisive.roots:
        return RootLocation(known[0], store, artifacts, others=tuple(known[1:]))
    new = decisive.end / NAME
    if (owner := _foreign(new)) is not None:
        raise InputError(
            f"{new} belongs to {owner}", fix=f"give --root DIR for runs of your own, or --root {new} to work on these"
        )
    return RootLocation(new, store, artifacts, others=tuple(known))


@dataclass
class _Search:
    """What lies between a folder and where the search upward from it ends.

    Attributes:
        end: Where a new root would lie: the folder of a pyproject.toml or `.git`, else the one where it began.
        pyproject: The nearest pyproject.toml.
        settings: What that says of the root, the store and the artifacts, absolute.
        roots: Folders that hold runs, the nearest first.
    """

    end: Path
    pyproject: Path | None = None
    settings: dict[str, str] = field(default_factory=dict)
    roots: list[Path] = field(default_factory=list)

    @property
    def decides(self) -> bool:
        """Whether it says where the runs lie, so that no other place is looked at."""
        return bool(self.roots or self.settings)

    @classmethod
    def upward(cls, start: Path) -> _Search:
        """Look from a folder upward, to the first with a pyproject.toml or `.git`, the home folder or a mount."""
        search = cls(start)
        home = _home()
        for folder in (start, *start.parents):
            root, pyproject = folder / NAME, folder / "pyproject.toml"
            if holds_runs(root) and _foreign(root) is None:
                search.roots.append(root)
            if _status(pyproject) is not None:
                search.end, search.pyproject, search.settings = folder, pyproject, _read_settings(pyproject)
                break
            if _status(folder / ".git") is not None:  # a folder, or in a worktree a file
                search.end = folder
                break
            if folder == home or os.path.ismount(folder):
                break
        return search


def holds_runs(root: Path) -> bool:
    """Whether a folder has a store; or artifacts, whose store lies elsewhere or was lost, which opening it tells."""
    return _status(root / "metadata.db") is not None or _status(root / "artifacts") is not None


def _foreign(path: Path) -> str | None:
    """The name of the user to whom a path, or the link that it is, belongs; None where that is this process's user."""
    for follow_symlinks in (False, True):
        status = _status(path, follow_symlinks=follow_symlinks)
        if status is not None and status.st_uid != os.geteuid():
            with suppress(ImportError, KeyError):
                import pwd

                return pwd.getpwuid(status.st_uid).pw_name
            return f"user {status.st_uid}"
    return None


def _status(path: Path, *, follow_symlinks: bool = True) -> os.stat_result | None:
    """What the system says of a path; None where there is nothing, or nothing that this user may see."""
    with suppress(OSError):
        return path.stat(follow_symlinks=follow_symlinks)
    return None


def _home() -> Path | None:
    with suppress(RuntimeError, OSError):  # a container's user may have none
        return Path.home().resolve()
    return None


def _folder(start: Path) -> Path:
    """The folder of a start, by its real path: a link to a project means the same history as the project."""
    start = start.resolve()
    status = _status(start)
    return start if status is None or stat.S_ISDIR(status.st_mode) else start.parent


def _absolute(base: Path, folder: str | Path, named_by: str) -> Path:
    """A folder as it is named, absolute. A link to a root stays: what is pushed lies beside the link."""
    refuse_url(str(folder), named_by)
    path = base / Path(folder).expanduser()
    return path.resolve() if path.name in ("", "..") else path.parent.resolve() / path.name


def refuse_url(root: str, named_by: str) -> None:
    """Refuse a URL where a root folder is named.

    Raises:
        InputError: It is one.
    """
    if (scheme := scheme_in_path(root)) is not None:
        raise InputError(
            f"{named_by} {scheme}://… is not a folder of this machine, which a root is",
            fix=f"give --root DIR --artifacts {scheme}://…: the artifacts are there, and what is worked on here",
        )


def _read_settings(pyproject: Path) -> dict[str, str]:
    """The settings of a pyproject.toml that say where runs lie; paths are relative to it."""
    import tomllib

    try:
        tool: Any = tomllib.loads(pyproject.read_text(encoding="utf-8")).get("tool", {})  # Any: TOML
    except (OSError, ValueError) as error:
        text = error.strerror if isinstance(error, OSError) else error
        raise InputError(f"{pyproject} cannot be read: {text}", fix="correct it, or give --root DIR") from None
    table = tool.get("drivetrain", {}) if isinstance(tool, dict) else {}
    if not isinstance(table, dict):
        raise InputError(
            f"{pyproject}: tool.drivetrain is not a table", fix=f'write {_TABLE} and below it root = "DIR"'
        )
    for name, value in table.items():
        if name not in (*_SETTINGS, "package"):
            raise InputError(f"{pyproject}: {_TABLE} has no setting {name!r}", fix=suggest(name, [*_SETTINGS]))
        if name in _SETTINGS and (not isinstance(value, str) or not value):
            raise InputError(f"{pyproject}: {_TABLE} has {name} = {value!r}", fix="give text that is not empty")
    settings = {name: table[name] for name in _SETTINGS if name in table}
    if "root" in settings:
        settings["root"] = str(_absolute(pyproject.parent, settings["root"], f"{pyproject}: root ="))
    if "store" in settings:
        settings["store"] = _relative_store(pyproject.parent, settings["store"])
    if "artifacts" in settings and "://" not in settings["artifacts"]:
        settings["artifacts"] = _absolute(pyproject.parent, settings["artifacts"], str(pyproject)).as_uri()
    return settings


def _relative_store(base: Path, store: str) -> str:
    """A store as it is named in a file of that folder: a path, `sqlite:///path`, or a URL of a server's."""
    scheme = "sqlite:///"
    if "://" in store and not store.startswith(scheme):
        return store
    prefix = scheme if store.startswith(scheme) else ""
    return prefix + str(base / Path(store.removeprefix(scheme)).expanduser())
