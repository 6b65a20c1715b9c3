"""Errors as part of the interface: each names the thing, the cause and the fix."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final


class DrivetrainError(Exception):
    """Something a person can act on.

    Args:
        message: One line that names the thing and the cause.
        fix: What to do about it, one line, or None where there is nothing to advise.
        where: The user's own "file:line", shown before everything else; "" where no line is to be named.
    """

    def __init__(self, message: str, *, fix: str | None = None, where: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.fix = fix
        self.where = where

    def __str__(self) -> str:
        from .redaction import printable  # late: importing drivetrain loads hardly more than this module

        head = f"{self.where}: {self.message}" if self.where else self.message
        return printable(f"{head}\n  fix: {self.fix}" if self.fix else head)

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self), self.message, self.fix, self.where)


def _rebuild(cls: type[DrivetrainError], message: str, fix: str | None, where: str | None) -> DrivetrainError:
    return cls(message, fix=fix, where=where)


class BuildError(DrivetrainError):
    """The pipeline is wrong; found while it is built, before anything runs."""


class InputError(DrivetrainError):
    """A file, a value or an option that the user gave cannot be used."""


class Canceled(DrivetrainError):  # noqa: N818 - an event, not a mistake
    """The run was asked to stop (Ctrl-C, SIGTERM); raised where a long task reports its progress."""


def missing_extra(module: str, extra: str) -> DrivetrainError:
    """The one error for an optional dependency that is not installed.

    Args:
        module: The module that could not be imported.
        extra: The extra of drivetrain that brings it.
    """
    return DrivetrainError(f"{module} is not installed", fix=f"pip install 'drivetrain[{extra}]'")


def missing_module(error: BaseException) -> DrivetrainError | None:
    """The error to tell a user in place of one that says that a module of `engine` or `serving` is not there."""
    name = str(error.name).partition(".")[0] if isinstance(error, ModuleNotFoundError) else ""
    if name in _ENGINE:
        return missing_extra(name, "engine")
    return missing_extra(name, "serving") if name in _SERVING else None


# The modules that the extras bring: they are imported in too many places to ask at each.
_ENGINE: Final = ("flatbuffers", "flax", "jax", "jaxlib", "optax", "orbax", "safetensors")
_SERVING: Final = ("hpack", "httptools", "msgspec", "prometheus_client", "uvloop")


_LISTED: Final = 50
"""Names that an error lists; nobody reads thousands of columns."""
_COMPARED: Final = 200
"""Characters of a name that are looked at: a client may send megabytes of them."""


def suggest(name: str, names: Sequence[str], there: str = "it has") -> str:
    """The fix for a name that does not exist: the close ones, or all there are."""
    import difflib

    name = name[:_COMPARED]
    folded = {each.casefold(): each for each in names}
    close = ([folded[name.casefold()]] if name.casefold() in folded else difflib.get_close_matches(name, names, 2)) or [
        each for each in names if len(name) > 2 and each.startswith(name)
    ]
    close = close or [folded[each] for each in difflib.get_close_matches(name.casefold(), list(folded), 2)]
    if close:
        return f"did you mean {' or '.join(map(repr, close))}?"
    more = f", … ({len(names):,} in all)" if len(names) > _LISTED else ""
    return f"{there} {', '.join(names[:_LISTED]) or 'none'}{more}"
