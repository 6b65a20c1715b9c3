"""Copies of a SQLite database: made while runs go on, checked before they count, put back where one was damaged."""

from __future__ import annotations

import errno
import os
import secrets
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from ..digest import sync_folder
from ..errors import InputError
from .database import Database
from .dialect import Sqlite, parse
from .errors import AlreadyExists, DiskFull, StoreDamaged
from .payload import DISK_FULL
from .store import MetadataStore

_BESIDE = ("-wal", "-shm")
_NOT_WRITTEN = ("SQLITE_FULL", "SQLITE_IOERR_WRITE", "SQLITE_IOERR_FSYNC", "SQLITE_IOERR_SHM", "SQLITE_IOERR_TRUNCATE")
"""What SQLite says where a copy cannot be written; what is copied is only read."""
_HEAD = b"SQLite format 3\0"  # https://www.sqlite.org/fileformat2.html#magic_header_string


def database_file(url: str | Path) -> Path:
    """The file of a SQLite store.

    Raises:
        InputError: It is a server's.
    """
    dialect = parse(url, readonly=True)
    if isinstance(dialect, Sqlite):
        return dialect.path
    raise InputError(
        f"{dialect.location} is a database of a PostgreSQL server",
        fix="copy it by `pg_dump --format=custom --file=FILE DATABASE`, and restore that by pg_restore",
    )


def back_up(store: Path, target: Path) -> int:
    """Copy a database as it is at one moment, while others write to it; gives the copy's size in bytes.

    The copy is checked as by `check_store` and on disk before it has its name.

    Raises:
        AlreadyExists: There is a file of that name.
        NoStore: There is no database.
        StoreDamaged: The database is damaged; nothing was written.
        DiskFull: No space is left.
    """
    MetadataStore.open(store, readonly=True).close()  # its errors say what cannot be opened, and why
    unfinished = target.parent / f".{target.name}.{secrets.token_hex(4)}"
    with _writing(target, "name a file where there is room and you may write: `drivetrain backup FILE`"):
        if target.exists():
            raise AlreadyExists(f"{target} exists", fix="name another file")
        try:
            _make_folder(target.parent)
            _copy(store, unfinished)
            try:
                check_store(unfinished)
            except StoreDamaged as error:  # what was copied is
                _, _, how = error.message.partition(" is damaged: ")
                raise StoreDamaged(store, how) from error
            _sync(unfinished)
            try:
                _name(unfinished, target)
            except FileExistsError:
                raise AlreadyExists(f"{target} exists", fix="name another file") from None
            sync_folder(target.parent)
        finally:
            _remove(unfinished, *_beside(unfinished))
    return target.stat().st_size


def restore(copy: Path, store: Path) -> Path | None:
    """Put a checked copy in the place of a database; gives where that is now, None if there was none.

    Nothing may be at work on the store.

    Raises:
        InputError: The copy does not exist, cannot be read, or is no database.
        StoreDamaged: The copy is damaged itself.
        DiskFull: No space is left.
    """
    if not copy.is_file():
        raise InputError(f"there is no file {copy}", fix="name a copy that `drivetrain backup` made")
    _check_copy(copy)
    unfinished = store.parent / f".{store.name}.{secrets.token_hex(4)}"
    new = [path for path in _beside(copy) if not path.exists()]  # what SQLite makes to read it
    with _writing(store, "make room, or do this as a user who may write there; or name another --root"):
        try:
            _make_folder(store.parent)
            # By SQLite, since what a process that was killed wrote last is in the log beside the copy.
            _copy(copy, unfinished)
            return replace_store(unfinished, store)
        finally:
            _remove(unfinished, *_beside(unfinished), *new)


class Upgrade(NamedTuple):
    """What `upgrade` did.

    Attributes:
        location: The store, without a password.
        before: The version of its schema before.
        now: The version that it has now.
        kept: The copy of it as it was; None where nothing was to be done, or it is a server's.
    """

    location: str
    before: int
    now: int
    kept: Path | None


def upgrade(url: str | Path) -> Upgrade:
    """Bring a store of an earlier release to this one's schema, in one transaction; of a file a copy is made before.

    Raises:
        NoStore: There is none.
        SchemaMismatch: It is of a later release, or not a store.
        DiskFull: No space is left.
    """
    dialect = parse(url, readonly=True)
    dialect.prepare(create=False)
    database = Database(dialect)
    try:
        before, now = database.versions()
    finally:
        database.close()
    kept = None
    if isinstance(dialect, Sqlite) and 0 < before < now:
        kept = dialect.path.with_name(f"{dialect.path.name}.version-{before}-{datetime.now(UTC):%Y%m%d-%H%M%S-%f}")
        with _writing(kept, "make room, or do this as a user who may write there"):
            _copy(dialect.path, kept)
            _sync(kept)
            sync_folder(kept.parent)
    MetadataStore.open(url, create=False, upgrade=True).close()
    return Upgrade(dialect.location, before, now, kept)


def replace_store(new: Path, store: Path) -> Path | None:
    """Put a new database in the place of one, which is kept beside it; gives where, None if there was none."""
    _sync(new)
    kept = store.with_name(f"{store.name}.replaced-{datetime.now(UTC):%Y%m%d-%H%M%S-%f}")
    had_one = store.exists()
    # A log belongs to its database: beside another it would be read into that, or hide that something is lost.
    for path in (store, *_beside(store)):
        with suppress(FileNotFoundError):
            path.rename(f"{kept}{path.name.removeprefix(store.name)}")
    new.rename(store)
    sync_folder(store.parent)
    return kept if had_one else None


def _check_copy(copy: Path) -> None:
    """Check a copy, and leave beside it only what was there."""
    another = "name another copy that `drivetrain backup` made"
    try:
        with copy.open("rb") as file:
            head = file.read(len(_HEAD))
    except OSError as error:
        raise InputError(f"{copy} cannot be read: {error.strerror}", fix=another) from None
    if head != _HEAD:
        raise InputError(f"{copy} is not a copy of the metadata: it is not a SQLite database", fix=another)
    # To read it SQLite makes a log and an index of it, which a reader that may not write does not take away.
    new = [path for path in _beside(copy) if not path.exists()]
    try:
        check_store(copy)
    except StoreDamaged as error:
        _, _, how = error.message.partition(" is damaged: ")
        raise StoreDamaged(copy, how, fix=another) from error
    finally:
        for path in new:
            path.unlink(missing_ok=True)


def check_store(path: Path) -> None:
    """Read all of a database that nobody writes to: its pages, its indexes, every row.

    Raises:
        StoreDamaged: Something in it is not what was written.
        SchemaMismatch: It is of a later release, or not a store of ours.
    """
    database = Database(Sqlite(path, readonly=True))
    try:
        version, known = database.versions()
        if not 0 < version <= known:  # one of an earlier release is read as it is: `upgrade` comes after a restore
            database.migrate(upgrade=False, create=False)
        store = MetadataStore(database)
        if problems := store.integrity():
            raise StoreDamaged(path, problems[0])
        for kind in database.all("SELECT name FROM type WHERE kind = 'context'"):
            store.contexts(kind["name"], limit=None)
        store.executions()
        store.artifacts(state=None)
        store.claims()
    finally:
        database.close()


@contextmanager
def _writing(target: Path, fix: str) -> Iterator[None]:
    """One clear error where a file, or what becomes it, cannot be written within the block."""
    try:
        yield
    except OSError as error:
        if error.errno in DISK_FULL:
            raise DiskFull(f"disk full while writing {target} ({error.strerror})", fix=fix) from None
        raise InputError(f"{target} cannot be written: {error.strerror}", fix=fix) from None


def _copy(path: Path, to: Path) -> None:
    """Copy a database as it is at one moment, by SQLite.

    Raises:
        DrivetrainError: It cannot be read.
        OSError: The copy cannot be written.
    """
    to.touch(path.stat().st_mode & 0o777, exist_ok=False)  # says better than SQLite what hinders
    dialect = Sqlite(path, readonly=True)
    try:
        with closing(dialect.connect()) as source, closing(sqlite3.connect(to)) as copy:
            source.backup(copy)  # in one step: that is one state, and writers do not wait for readers
            copy.execute("PRAGMA journal_mode = WAL")  # as the store's, also where it was read from memory
    except sqlite3.Error as error:
        if (getattr(error, "sqlite_errorname", None) or "").startswith(_NOT_WRITTEN):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)) from error
        raise dialect.translate(error) from error
    with suppress(PermissionError):  # a file system without modes
        shutil.copymode(path, to)


def _name(unfinished: Path, target: Path) -> None:
    """Give a file its name, unless another has it: a rename would replace what a process put there meanwhile."""
    try:
        os.link(unfinished, target)
    except FileExistsError:
        raise
    except OSError:  # a file system without links, as on many a disk to carry away
        target.touch(exist_ok=False)
        unfinished.replace(target)


def _make_folder(folder: Path) -> None:
    """Make a folder that a power loss leaves there: a copy in one that is gone would be gone too."""
    new = [each for each in (folder, *folder.parents) if not each.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for each in new:
        sync_folder(each.parent)


def _remove(*paths: Path) -> None:
    for path in paths:
        with suppress(FileNotFoundError, NotADirectoryError):
            path.unlink()


def _beside(path: Path) -> list[Path]:
    return [path.with_name(path.name + suffix) for suffix in _BESIDE]


def _sync(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())
