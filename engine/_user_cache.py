"""The user's own cache folder: what is made again where it is gone, and code that nobody else may have put there."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final

from ..errors import InputError

_ELSEWHERE: Final = "set XDG_CACHE_HOME to a folder that this user may write to"


def cache_home() -> Path:
    """Where drivetrain keeps what it can make again.

    Raises:
        InputError: The user has no home folder, and nothing says where else.
    """
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "drivetrain"
    except RuntimeError as error:
        raise InputError("this user has no home folder to keep a cache in", fix=_ELSEWHERE) from error


def make_folder(folder: Path) -> None:
    """Create a folder of a cache for this user alone, unless it is there; InputError where that cannot be."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{folder} cannot be made: {error.strerror}", fix=_ELSEWHERE) from error


def private_folder(folder: Path) -> Path:
    """The folder, created for this user alone, or checked to be.

    Raises:
        InputError: Others may write to it, it belongs to somebody else, or it cannot be made.
    """
    make_folder(folder)
    status = folder.lstat()  # not stat: a link that somebody planted would pass for the folder it leads to
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or stat.S_IMODE(status.st_mode) & 0o077:
        raise InputError(
            f"{folder} is open to others (or a link): executables that they put there would run here",
            fix=f"chmod 700 {folder}, or name a folder of your own",
        )
    return folder
