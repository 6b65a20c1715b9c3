"""Files of settings that are looked at again and again while a server runs, and may be anything by then."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Final

from ..errors import InputError

_MOST_BYTES: Final = 16 << 20  # of settings: a hundred thousand models


def stamp_of(path: Path) -> tuple[int, ...]:
    """What changes with the content of a file; empty where there is none, but nothing, a pipe or a device."""
    try:
        status = path.stat()
    except OSError:
        return ()
    if not stat.S_ISREG(status.st_mode):
        return ()
    return status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino


def text_of(path: Path, fix: str) -> str:
    """The text of settings.

    Args:
        path: Where it is.
        fix: What the error advises.

    Raises:
        InputError: It cannot be read, is no text, or is larger than settings are.
    """
    try:
        with path.open("rb") as file:
            data = file.read(_MOST_BYTES + 1)
        if len(data) > _MOST_BYTES:
            raise InputError(f"{path} cannot be read: it has more than {_MOST_BYTES >> 20} MiB", fix=fix)
        return data.decode()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} cannot be read: {error}", fix=fix) from error
