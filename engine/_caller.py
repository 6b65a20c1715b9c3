"""Where the user is: the file and line outside this package that called us."""

from __future__ import annotations

import sys
from contextvars import ContextVar
from pathlib import Path
from types import CodeType, FrameType
from typing import Final

from ..user_code import is_drivetrains, is_users

_HERE: Final = f"{Path(__file__).parent}/"
ENTRY: Final[ContextVar[tuple[CodeType, str | None]]] = ContextVar("entry")
"""The code of ours that calls a function of the user's to trace it, and the line where that function is defined."""


def caller() -> str | None:
    """Give "file:line" of the nearest caller outside drivetrain and the libraries; None where there is none.

    Who called the engine for the user, a component or a traced function's `ENTRY`, ends the search: what called that
    is another line in another process, and a traced line is saved.
    """
    frame: FrameType | None = sys._getframe(1)
    entry, defined = ENTRY.get((None, None))
    while frame is not None:
        file = frame.f_code.co_filename
        if is_users(file):
            return f"{file}:{frame.f_lineno}"
        if frame.f_code is entry:
            return defined
        if is_drivetrains(file) and not file.startswith(_HERE):
            return None
        frame = frame.f_back
    return None
