"""Where the user is: the file and line outside this package that called us."""

from __future__ import annotations

import sys
import traceback
from pathlib import Path
from types import FrameType, TracebackType

_HERE = str(Path(__file__).parent) + "/"
_TYPED = ("<ipython-input", "<python-input", "<stdin>")  # what a person types has no file


def caller() -> str | None:
    """Give "file:line" of the nearest caller outside the engine and the libraries; None where there is none."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if is_users(frame.f_code.co_filename):
            return f"{frame.f_code.co_filename}:{frame.f_lineno}"
        frame = frame.f_back
    return None


def raised_at(trace: TracebackType | None) -> str | None:
    """Give "file:line" of the innermost of the user's frames in a traceback; None where there is none."""
    for summary in reversed(traceback.extract_tb(trace)):
        if is_users(summary.filename):
            return f"{summary.filename}:{summary.lineno}"
    return None


def is_users(file: str) -> bool:
    """Whether a file holds neither the engine nor a library."""
    ours = file.startswith((_HERE, "<")) and not file.startswith(_TYPED)
    return not (ours or "/site-packages/" in file or "/lib/python3" in file)


def without_folder(where: str | None) -> str | None:
    """Give "file:line" without the folder, for what is saved: equal code gives equal bytes in any folder."""
    return None if where is None else where.rsplit("/", 1)[-1]
