"""Numbered versions of a program below one address: what Pusher and the hub write, and servers and the hub read.

    ADDRESS/3/…      the files, manifest.json last
    ADDRESS/3.json   the record: every file with its size and SHA-256, their digest, what the publisher says of them
    ADDRESS/3.sig    the signature of a signed bundle, where verifiers look for it: beside its folder
    ADDRESS/3.intoto.jsonl  where the program comes from, as `engine/bundles/provenance.py` says it
    ADDRESS/3.warmup.jsonl  requests that a server tries the version with before it asks it for others
    ADDRESS/3.claim  behind a URL, while 3 is written or removed: by whom, since when

Behind a URL the record is written last of all and makes 3 a version. In a folder of this machine a version appears and
vanishes by one rename, its record lies there just before; so no claim is needed. A store of objects has no rename: a
publisher first claims a number that nobody has, which a store can grant in one step.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import re
import secrets
import shutil
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from .addresses import local_path, relative_name
from .digest import FileEntry, TreeDigest, digest_files, digest_tree, sync_folder, sync_tree, tree_of, write_durably
from .errors import DrivetrainError, InputError
from .file_systems import CountBytes
from .owner import Owner
from .progress import Progress, no_progress
from .stores import Store, Transfer

ABANDONED: Final = timedelta(days=1)
"""How long after its last write a publisher of another machine counts as dead."""

WARMUP: Final = ".warmup.jsonl"
"""What the name of a version's warm-up file ends in, behind the number: see `serving/warmup.py`."""

_FORMAT: Final = "drivetrain-version"
_FORMAT_VERSION: Final = 1
_MANIFEST: Final = "manifest.json"
_INCOMING: Final = ".incoming-"
_OUTGOING: Final = ".outgoing-"
_NUMBER: Final = re.compile(r"[1-9][0-9]{0,17}")
_SIGNATURE: Final = ".sig"
_PROVENANCE: Final = ".intoto.jsonl"
_BESIDE: Final = (
    _SIGNATURE,
    _PROVENANCE,
    WARMUP,
)  # ends of the names of what lies beside a version and is not a part of it
_HALF_RECORD: Final = re.compile(  # as `write_durably` names them
    r"\.[1-9][0-9]{0,17}\.(json|sig|intoto\.jsonl|warmup\.jsonl)\.[0-9a-f]+\.tmp"
)
_SHA256: Final = re.compile(r"[0-9a-f]{64}")
_TRIES: Final = 1000  # other publishers that were quicker


@dataclass(frozen=True)
class VersionFile:
    """A file of a version: bytes, SHA-256, and the store's own checksum, if any, which changes with its bytes."""

    size: int
    sha256: str
    checksum: str | None = None


@dataclass(frozen=True)
class VersionRecord:
    """What is known of a version.

    Attributes:
        number: 1, 2, 3 ….
        digest: Of its files, as an artifact's fingerprint.
        files: By path.
        facts: What its publisher says of it: the run it comes from, the hub's card.
    """

    number: int
    digest: str
    files: Mapping[str, VersionFile]
    facts: Mapping[str, Any] = field(default_factory=dict)  # Any: JSON

    def to_bytes(self) -> bytes:
        """The record as it is stored."""
        files = {path: asdict(file) for path, file in self.files.items()}
        body = {"format": _FORMAT, "format_version": _FORMAT_VERSION, "version": self.number, "digest": self.digest}
        return (json.dumps({**self.facts, **body, "files": files}, indent=1, sort_keys=True) + "\n").encode()

    @classmethod
    def from_bytes(cls, data: bytes, number: int, where: str) -> VersionRecord:
        """The record that `to_bytes` gave; the bytes may be from an untrusted source.

        Raises:
            InputError: It is damaged, not such a record, of a newer format, or names files that lie elsewhere.
        """
        try:
            body = json.loads(data)
            if body["format"] != _FORMAT:
                raise ValueError("it is of another kind")
            if type(body["format_version"]) is int and body["format_version"] > _FORMAT_VERSION:
                raise InputError(
                    f"{where} has format {body['format_version']}, this release reads up to {_FORMAT_VERSION}",
                    fix="upgrade drivetrain",
                )
            if body["version"] != number or body["format_version"] != _FORMAT_VERSION:
                raise ValueError("it is of another version")
            files = {path: _file_of(path, file) for path, file in body["files"].items()}
            if any(folder in files for path in files for folder in map(str, Path(path).parents)):
                raise ValueError("it names a file that is a folder too")
            entries = [FileEntry(path, file.size, file.sha256) for path, file in files.items()]
            if body["digest"] != tree_of(entries).fingerprint:
                raise ValueError("it does not match its own digest")
        except (LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
            raise InputError(
                f"{where} is damaged: {error!s:.120}", fix="ask who published it to do so again"
            ) from error
        known = {"format", "format_version", "version", "digest", "files"}
        return cls(number, body["digest"], files, {name: fact for name, fact in body.items() if name not in known})


def _file_of(path: object, file: Mapping[str, Any]) -> VersionFile:
    """A file as a record has it; raises ValueError and the like where it cannot be one."""
    size, sha256, checksum = file["size"], file["sha256"], file["checksum"]
    if not isinstance(path, str) or not relative_name(path):
        raise ValueError(f"the name {path!r:.80} leads elsewhere, or is empty")
    if type(size) is not int or size < 0 or not _SHA256.fullmatch(sha256):
        raise ValueError(f"{path!r:.80} has {size!r:.40} bytes and the digest {sha256!r:.80}")
    return VersionFile(size, sha256, None if checksum is None else str(checksum))


@dataclass(frozen=True)
class _Publication:
    """What `Versions.publish` was asked for, with the digest of the files."""

    files: Mapping[str, str]
    tree: TreeDigest
    facts: Mapping[str, Any]
    number: int | None
    any_equal: bool
    beside: Mapping[str, bytes]  # the end of the name of what is to lie beside the version → its bytes
    used: Collection[tuple[int, str]]

    def next_number(self, *taken: int) -> int:
        """The number that was asked for; else the smallest above all that are taken that no other files ever had."""
        first = max((number + (digest != self.tree.fingerprint) for number, digest in self.used), default=1)
        return self.number or max(first, max(taken, default=0) + 1)

    def plain_files(self) -> dict[str, VersionFile]:
        """The files as a folder's record has them."""
        return {file.path: VersionFile(file.size, file.sha256) for file in self.tree.files}

    def unchanged(self) -> bool:
        """Whether the files are what they were."""
        try:
            return digest_files(self.files) == self.tree
        except FileNotFoundError:
            return False


def versions_at(address: Path | str) -> Versions:
    """The versions below a folder, `file://` or any URL that `stores.Store` takes.

    Raises:
        InputError: There is no such scheme, or the address holds a secret.
        DrivetrainError: A package for it is not installed.
    """
    folder = local_path(address)
    return StoredVersions(str(address)) if folder is None else FolderVersions(folder)


class Versions(ABC):
    """The versions below one address.

    Attributes:
        store: The address as a store: a version's files by `NUMBER/PATH`.
    """

    def __init__(self, store: Store) -> None:
        self.store = store

    @abstractmethod
    def numbers(self) -> list[int]:
        """The versions that a server finds there, ascending."""

    @abstractmethod
    def recorded(self) -> list[int]:
        """Those of them that have a record, ascending."""

    @abstractmethod
    def digest(self, number: int) -> str | None:
        """The digest of a version's files as they lie there now; None where that is not what was published."""

    def publish(
        self,
        files: Mapping[str, str],
        *,
        facts: Mapping[str, Any],
        signature: bytes | None = None,
        provenance: bytes | None = None,
        warmup: bytes | None = None,
        number: int | None = None,
        any_equal: bool = False,
        used: Collection[tuple[int, str]] = (),
        keep: int | None = None,
        progress: Progress = no_progress,
    ) -> VersionRecord:
        """Make files the next version, whole or not at all.

        If the newest version already holds equal files, it is adopted and nothing is copied. Several publishers at
        once get different versions, and what a killed one left behind is removed.

        Args:
            files: Where each lies, by its path in the version.
            facts: What the record says beside.
            signature: Of the bundle that the files are; it goes beside the version, also beside one that is adopted.
            provenance: Where the files come from; it goes beside the version likewise.
            warmup: Requests for a server to try the version with; they go beside it likewise.
            number: The version that it must become; by default the one after the newest, as `used` allows.
            used: The numbers, and the digests of the files, of versions that were here, and may have been removed: no
                other files get such a number, by which answers and logs name the program that they come from.
            any_equal: Whether an older version that holds equal files is adopted, too.
            keep: How many of the newest versions stay; None keeps all.
            progress: Called with bytes uploaded; may raise to stop.

        Raises:
            InputError: The address cannot be written, the number has other files, or a file changed meanwhile.
            StorageUnavailable: The store behind the URL does not answer.
        """
        ends = {_SIGNATURE: signature, _PROVENANCE: provenance, WARMUP: warmup}
        beside = {end: data for end, data in ends.items() if data is not None}
        new = _Publication(files, digest_files(files), facts, number, any_equal, beside, used)
        return self._publish(new, keep, progress)

    @abstractmethod
    def _publish(self, new: _Publication, keep: int | None, progress: Progress) -> VersionRecord: ...

    @abstractmethod
    def sweep(self, older_than: timedelta = ABANDONED, dry_run: bool = False) -> list[str]:
        """Remove what dead publishers left: names below the address of what was removed, or would be."""

    def record(self, number: int) -> VersionRecord:
        """A version's record.

        Raises:
            FileNotFoundError: It has none.
            InputError: As `VersionRecord.from_bytes`.
        """
        name = f"{number}.json"
        return VersionRecord.from_bytes(self.store.read(name), number, f"{self.store.address}/{name}")

    def _adopted(self, new: _Publication, listing: _Listing | None = None) -> VersionRecord | None:
        """The version that holds these files already, of those that a listing shows; of all now without one."""
        if new.any_equal:
            recorded = listing.recorded if listing else self.recorded()
            candidates = [each for each in reversed(recorded) if new.number in (None, each)]
        else:
            candidates = (listing.recorded if listing else self.numbers())[-1:]
        fingerprint = new.tree.fingerprint
        for candidate in candidates:
            record = self.known(candidate)
            if record is not None and record.digest != fingerprint:
                continue  # without reading its files
            if self.digest(candidate) == fingerprint:
                return record or VersionRecord(candidate, fingerprint, new.plain_files())
        return None

    def _put_beside(self, number: int, new: _Publication) -> None:
        """Put what belongs beside a version there; where nothing is to be put, what lies there stays."""
        for end, data in new.beside.items():
            name = f"{number}{end}"
            if not (self.store.exists(name) and self.store.read(name) == data):
                self._write(name, data)

    @abstractmethod
    def _write(self, name: str, data: bytes) -> None: ...

    def known(self, number: int) -> VersionRecord | None:
        """A version's record; None where there is none, or what lies there is no record of ours."""
        try:
            return self.record(number)
        except (FileNotFoundError, InputError):
            return None

    def _taken(self, number: int | None) -> InputError:
        return InputError(
            f"{self.store.address} has a version {number} already, of another program",
            fix="publish it as the next version: leave version out",
        )


def _changed_meanwhile(address: str | Path) -> InputError:
    return InputError(f"a file changed while it was pushed to {address}", fix="push it again")


# --- a folder of this machine ---


class FolderVersions(Versions):
    """Versions in a folder of this machine, which is made when something is published."""

    def __init__(self, folder: Path) -> None:
        super().__init__(Store(folder))
        self.folder = folder

    def numbers(self) -> list[int]:
        """The numbers that something in the folder has, whoever put it there."""
        if not self.folder.is_dir():
            return []
        return sorted(int(entry.name) for entry in self.folder.iterdir() if _NUMBER.fullmatch(entry.name))

    def recorded(self) -> list[int]:
        """Those for which a record lies there, too."""
        return [number for number in self.numbers() if (self.folder / f"{number}.json").is_file()]

    def digest(self, number: int) -> str | None:
        """The digest of a version's files, each of which is read; None for a file, a link, a folder with links."""
        version = self.folder / str(number)
        if version.is_symlink() or not version.is_dir():
            return None
        try:
            return digest_tree(version).fingerprint
        except InputError:
            return None

    def _publish(self, new: _Publication, keep: int | None, progress: Progress) -> VersionRecord:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            return self._rename_into(new, keep)
        except OSError as error:
            raise not_writable(error, self.folder) from error

    def _rename_into(self, new: _Publication, keep: int | None) -> VersionRecord:
        with _locked(self.folder):
            self._sweep(dry_run=False)
            if adopted := self._adopted(new):
                self._put_beside(adopted.number, new)
                self._prune(keep)
                return adopted
            if new.number in self.numbers():
                raise self._taken(new.number)
            incoming = self.folder / f"{_INCOMING}{secrets.token_hex(8)}"
            incoming.mkdir()
            # Held from here on without the folder's lock, so that others may publish meanwhile: the lock on what comes
            # in says that its publisher lives (see `_sweep`).
            incoming_lock = contextlib.ExitStack()
            incoming_lock.enter_context(_locked(incoming))
        with incoming_lock:
            try:
                for name, path in new.files.items():
                    target = incoming / name
                    target.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copyfile(path, target)
                if digest_tree(incoming) != new.tree:
                    raise _changed_meanwhile(self.folder)
                sync_tree(incoming)
                with _locked(self.folder):
                    # Another may have published since the first look: the number is only taken now.
                    if (record := self._adopted(new)) is None:
                        taken = self.numbers()
                        if new.number in taken:
                            raise self._taken(new.number)
                        number = new.next_number(*taken)
                        record = VersionRecord(number, new.tree.fingerprint, new.plain_files(), new.facts)
                        self._write(f"{number}.json", record.to_bytes())
                        for end in _BESIDE:  # of one that was removed by hand
                            (self.folder / f"{number}{end}").unlink(missing_ok=True)
                        self._put_beside(number, new)
                        incoming.rename(self.folder / str(number))
                        sync_folder(self.folder)
                    else:
                        self._put_beside(record.number, new)
                    self._prune(keep)
            finally:
                if incoming.exists():  # not renamed
                    with _locked(self.folder):  # so that no sweeper, which has listed it, opens what is gone
                        shutil.rmtree(incoming, ignore_errors=True)
        return record

    def _write(self, name: str, data: bytes) -> None:
        write_durably(self.folder / name, data)

    def sweep(self, older_than: timedelta = ABANDONED, dry_run: bool = False) -> list[str]:
        """As everywhere; the system says who lives, so `older_than` is not asked for."""
        if not self.folder.is_dir():
            return []
        try:
            with _locked(self.folder):
                return self._sweep(dry_run)
        except OSError as error:
            raise not_writable(error, self.folder) from error

    def _sweep(self, dry_run: bool) -> list[str]:
        """Remove folders whose lock nobody holds, and records that never got their name: they are written locked."""
        removed = []
        for entry in sorted(self.folder.iterdir()):
            if _HALF_RECORD.fullmatch(entry.name):
                removed.append(entry.name)
                if not dry_run:
                    entry.unlink()
            elif entry.name.startswith((_INCOMING, _OUTGOING)):
                handle = os.open(entry, os.O_RDONLY)
                try:
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    removed.append(entry.name)
                    if not dry_run:
                        shutil.rmtree(entry)
                except BlockingIOError:
                    continue
                finally:
                    os.close(handle)
        return removed

    def _prune(self, keep: int | None) -> None:
        if keep is None:
            return
        for number in self.numbers()[:-keep]:
            outgoing = self.folder / f"{_OUTGOING}{secrets.token_hex(8)}"
            (self.folder / str(number)).rename(outgoing)  # it vanishes at once, not file by file
            for end in (".json", *_BESIDE):
                (self.folder / f"{number}{end}").unlink(missing_ok=True)
            if outgoing.is_dir():
                shutil.rmtree(outgoing)
            else:
                outgoing.unlink()


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold the folder's lock; the system frees it when the process dies."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def not_writable(error: OSError, folder: Path) -> InputError:
    """The error that a person reads where no version can be written to a folder."""
    if isinstance(error, (FileExistsError, NotADirectoryError)):
        reason = "there is a file in its place"
    elif error.errno == errno.EROFS:
        reason = "the file system is read-only"
    else:
        where = f" ({error.filename})" if error.filename and str(error.filename) != str(folder) else ""
        reason = f"{error.strerror or error}{where}"
    return InputError(
        f"cannot push to {folder}: {reason}", fix="choose a folder that can be written to, with room for the bundle"
    )


# --- behind a URL ---


@dataclass(frozen=True)
class _Listing:
    """The numbers below an address by what there is of each: its record, its claim, anything at all."""

    recorded: list[int]
    claimed: list[int]
    taken: list[int]

    @classmethod
    def of(cls, store: Store) -> _Listing:
        """What lies there now; everything ascending."""
        names = store.names("")
        recorded, claimed, *others = (
            sorted(int(name.removesuffix(end)) for name in names if _is_numbered(name, end))
            for end in (".json", ".claim", *_BESIDE, "")
        )
        return cls(recorded, claimed, sorted({*recorded, *claimed}.union(*others)))


def _is_numbered(name: str, end: str) -> bool:
    return name.endswith(end) and _NUMBER.fullmatch(name.removesuffix(end)) is not None


class StoredVersions(Versions):
    """Versions behind a URL: the record of each makes it one, since an object store has no rename."""

    def __init__(self, url: str) -> None:
        super().__init__(Store(url))

    def numbers(self) -> list[int]:
        """The numbers that have a record."""
        return _Listing.of(self.store).recorded

    recorded = numbers

    def digest(self, number: int) -> str | None:
        """The digest that the record says, where the files are as the store then described them."""
        record = self.known(number)
        return record.digest if record is not None and self._stands(record) else None

    def _publish(self, new: _Publication, keep: int | None, progress: Progress) -> VersionRecord:
        self.store.require_exclusive_creation()
        listing = _Listing.of(self.store)
        if self._sweep(listing, ABANDONED, dry_run=False):
            listing = _Listing.of(self.store)
        if adopted := self._adopted(new, listing):
            self._put_beside(adopted.number, new)
            self._prune(keep)
            return adopted
        number, claim = self._claim(new, listing)
        recorded = False
        try:
            sent = self._upload(number, new, progress)
            # Another may have published the same meanwhile; then what was sent goes again.
            if (record := self._adopted(new)) is None:
                # Who slept for so long that another took him for dead must not make a version of what was removed.
                if not self._still_claimed(number, claim):
                    raise InputError(
                        f"version {number} at {self.store.address} was taken for abandoned, and removed",
                        fix="push it again",
                    )
                # The token makes the record this publisher's own, as `Store.create` asks for.
                facts = {**new.facts, "claim": json.loads(claim)["token"]}
                self._put_beside(number, new)
                record = VersionRecord(number, new.tree.fingerprint, sent, facts)
                recorded = self.store.create(f"{number}.json", record.to_bytes())
                if not recorded:
                    raise InputError(f"{self.store.address}/{number}.json was there already", fix="push it again")
            else:
                self._put_beside(record.number, new)
        finally:
            with contextlib.suppress(DrivetrainError, OSError):  # then the next publisher cleans up
                if not recorded:
                    self._remove_files(number)
                self.store.delete(f"{number}.claim")
        self._prune(keep)
        return record

    def _claim(self, new: _Publication, listing: _Listing) -> tuple[int, bytes]:
        """Claim a number that nobody used, by a listing of a moment ago: the number, and the claim's bytes."""
        number = 0
        for _ in range(_TRIES):
            if new.number in listing.taken:
                raise self._taken(new.number)
            # Upwards even where the listing does not show what was in the way the last time.
            number = new.next_number(number, *listing.taken)
            body = {"version": number, "begun": datetime.now(UTC).isoformat(), "owner": Owner.current().to_dict()}
            claim = json.dumps({**body, "token": secrets.token_hex(16)}).encode()
            if self.store.create(f"{number}.claim", claim):
                # A publisher that ended between our listing and our claim has left its files and taken its claim away.
                if str(number) not in self.store.names("") and not self.store.exists(f"{number}.json"):
                    return number, claim
                self.store.delete(f"{number}.claim")
            listing = _Listing.of(self.store)
        raise InputError(
            f"{self.store.address} refused {_TRIES} numbers in turn: what was pushed there is not listed",
            fix="see that you may list it, and try again",
        )

    def _still_claimed(self, number: int, claim: bytes) -> bool:
        """Whether a claim lies there as it was written."""
        try:
            return self.store.read(f"{number}.claim") == claim
        except FileNotFoundError:
            return False

    def _upload(self, number: int, new: _Publication, progress: Progress) -> dict[str, VersionFile]:
        """Send files, see that they lie there as they are here, and return what the store says of them."""
        transfer = Transfer(new.tree.size, "bytes uploaded", progress)

        def send(path: str, count: CountBytes) -> None:
            self.store.send(Path(new.files[path]), f"{number}/{path}", count, transfer.pause, transfer.parts)

        paths = [file.path for file in sorted(new.tree.files, key=lambda file: -file.size)]
        transfer.each([path for path in paths if path != _MANIFEST], send)
        # A server that asks for the manifest alone finds none before all that it names is there.
        transfer.each([path for path in paths if path == _MANIFEST], send)
        entries = self.store.entries(str(number))
        for file in new.tree.files:
            entry, name = entries.get(file.path), f"{number}/{file.path}"
            whole = entry is not None and entry.size == file.size
            if whole and entry is not None and entry.md5 is not None:
                whole = entry.md5 == _md5(new.files[file.path])
            if whole and entry is not None and entry.checksum is None:
                whole = self.store.digest(name, file.size) == file.sha256
            # What looks like an MD5 is none where S3 encrypts by a key of the user's: then the bytes are read back.
            if not whole and (
                entry is None or entry.size != file.size or self.store.digest(name, file.size) != file.sha256
            ):
                if not new.unchanged():
                    break
                raise InputError(
                    f"{self.store.address}/{name} is not there as it was sent",
                    fix="check the store: something changes what is written to it",
                )
        if not new.unchanged():
            raise _changed_meanwhile(self.store.address)
        return {file.path: VersionFile(file.size, file.sha256, entries[file.path].checksum) for file in new.tree.files}

    def _stands(self, record: VersionRecord) -> bool:
        """Whether a version's files lie there as they were pushed: by the store's checksums, else by reading them."""
        entries = self.store.entries(str(record.number))
        if entries.keys() != record.files.keys():
            return False
        for path, file in record.files.items():
            entry = entries[path]
            if entry.size != file.size:
                return False
            if entry.checksum is not None and file.checksum is not None:
                if entry.checksum != file.checksum:
                    return False
            elif self.store.digest(f"{record.number}/{path}", file.size) != file.sha256:
                return False
        return True

    def sweep(self, older_than: timedelta = ABANDONED, dry_run: bool = False) -> list[str]:
        """Finish what dead publishers began: pushes that made no version, and removals that did not end."""
        return self._sweep(_Listing.of(self.store), older_than, dry_run)

    def _sweep(self, listing: _Listing, older_than: timedelta, dry_run: bool) -> list[str]:
        removed = []
        for number in listing.claimed:
            claim = self._read_claim(number)
            if claim is None:
                continue
            if claim.get("removing"):
                removed.append(str(number))
                if not dry_run:
                    self._remove_version(number)
            elif number in listing.recorded:  # whole; only its claim was left
                removed.append(f"{number}.claim")
                if not dry_run:
                    self.store.delete(f"{number}.claim")
            elif self._is_dead(number, claim, older_than):
                # Only now that it can write no more: it may have made its version since the listing, and died then.
                if self.store.exists(f"{number}.json"):
                    if not dry_run:
                        self.store.delete(f"{number}.claim")
                    continue
                if self.store.entries(str(number)):
                    removed.append(str(number))
                if dry_run:
                    continue
                # One that was only asleep finds by this that it must not make a version of what is removed here.
                self.store.write(f"{number}.claim", json.dumps({"abandoned": True}).encode())
                self._remove_files(number)
                # The claim of the highest number stays, so that the number is not used again: another sweeper, slower
                # than this one, may still be removing its files.
                if listing.recorded and number < listing.recorded[-1]:
                    self.store.delete(f"{number}.claim")
        return removed

    def _read_claim(self, number: int) -> dict[str, Any] | None:
        """What a claim says, nothing where it is not a claim of ours or half-written; None where there is none now."""
        try:
            claim = json.loads(self.store.read(f"{number}.claim"))
        except FileNotFoundError:
            return None
        except (ValueError, RecursionError):
            return {}
        return claim if isinstance(claim, dict) else {}

    def _is_dead(self, number: int, claim: Mapping[str, Any], older_than: timedelta) -> bool:
        """Whether a claim's publisher died on this machine, or wrote nothing for that long."""
        with contextlib.suppress(KeyError, ValueError, TypeError):
            if Owner.from_dict(claim["owner"]).liveness() == "dead":
                return True
        times = [entry.changed for entry in self.store.entries(str(number)).values()]
        with contextlib.suppress(KeyError, ValueError, TypeError):
            times.append(datetime.fromisoformat(claim["begun"]).timestamp())
        if not claim:
            with contextlib.suppress(FileNotFoundError):
                times.append(self.store.stat(f"{number}.claim").changed)
        before = (datetime.now(UTC) - older_than).timestamp()
        return all(time is not None and time < before for time in times)

    def _prune(self, keep: int | None) -> None:
        if keep is None:
            return
        for number in self.recorded()[:-keep]:
            # So that the next publisher finishes the removal if this one is killed.
            self.store.write(f"{number}.claim", json.dumps({"removing": True}).encode())
            self._remove_version(number)

    def _remove_version(self, number: int) -> None:
        """Remove a version: first its record, by which it is one, last the claim, which says that it is not done."""
        self.store.delete(f"{number}.json")
        self._remove_files(number)
        self.store.delete(f"{number}.claim")

    def _write(self, name: str, data: bytes) -> None:
        self.store.write(name, data)

    def _remove_files(self, number: int) -> None:
        self.store.delete(f"{number}/{_MANIFEST}")  # first, for who looks for nothing else
        for end in _BESIDE:
            self.store.delete(f"{number}{end}")
        self.store.remove(str(number))


def _md5(path: str) -> str:
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
