"""What `metadata/` can refuse, each by its own name."""
# ruff: noqa: N818 (named for what happened, as the caller reads them: `except LeaseLost`)

from __future__ import annotations

from typing import Final

from ..errors import DrivetrainError, InputError

RESTORE: Final = (
    "put a copy back by `drivetrain backup --restore FILE`; or rebuild it from the records beside the payloads: "
    "`drivetrain fsck --rebuild`"
)
"""The ways out of a damaged database."""


class NotFound(InputError):
    """No row has that id, uid or name."""


class NoStore(InputError):
    """There is no store where one was to be opened, or nothing is in it; none was made."""


class AlreadyExists(InputError):
    """A name, uid or URI is taken; nothing was stored."""


class ConflictError(DrivetrainError):
    """Somebody else changed the row since it was read; nothing was stored."""


class StateError(DrivetrainError):
    """An artifact or an execution cannot go from the state it is in to the one asked for."""


class LeaseLost(DrivetrainError):
    """The claim is no longer ours: the lease ran out and another process took over; nothing was stored."""


class SchemaMismatch(DrivetrainError):
    """The database was made by another version of drivetrain, or is not a drivetrain store at all."""


class StoreUnavailable(DrivetrainError):
    """The database cannot be used now: busy, read-only, full, damaged, or on a filesystem that cannot lock."""


class ConnectionLost(StoreUnavailable):
    """The connection to the database was lost amid a transaction, which was not stored: it may be done again."""


class AccessDenied(StoreUnavailable):
    """The role of whoever asks, in the namespace, does not allow what was asked for; nothing was changed."""


class StoreDamaged(StoreUnavailable):
    """What the database holds is not what was written to it: a fault of the disk, or of who copied or wrote the file.

    Args:
        what: Which database.
        how: How that shows.
    """

    def __init__(self, what: object, how: object, *, fix: str | None = None, where: str | None = None) -> None:
        super().__init__(f"{what} is damaged: {how}", fix=fix or RESTORE, where=where)

    def __reduce__(self) -> tuple[object, ...]:
        what, _, how = self.message.partition(" is damaged: ")
        return _rebuild, (what, how, self.fix, self.where)


def _rebuild(what: str, how: str, fix: str | None, where: str | None) -> StoreDamaged:
    return StoreDamaged(what, how, fix=fix, where=where)


class DiskFull(InputError):
    """No space is left where a payload was to be written; nothing was published."""
