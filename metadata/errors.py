"""What the metadata room can refuse, each by its own name."""
# ruff: noqa: N818 (named for what happened, as the caller reads them: `except LeaseLost`)

from __future__ import annotations

from ..errors import DrivetrainError, InputError


class NotFound(InputError):
    """No row has that id, uid or name."""


class AlreadyExists(InputError):
    """A name, uid or URI is taken; nothing was stored."""


class ConflictError(DrivetrainError):
    """Somebody else changed the row since it was read; nothing was stored."""


class StateError(DrivetrainError):
    """An artifact or an execution cannot go from the state it is in to the one asked for."""


class LeaseLost(DrivetrainError):
    """The claim is no longer ours: the lease ran out and another process took over; nothing was stored."""


class SchemaMismatch(DrivetrainError):
    """The database was made by another version of drivetrain, or is no drivetrain store at all."""


class StoreUnavailable(DrivetrainError):
    """The database cannot be used now: busy, read-only, full, damaged, or on a filesystem that cannot lock."""


class DiskFull(InputError):
    """No space is left where a payload was to be written; nothing was published."""
