"""Payloads behind a URL: uploaded file by file under their unique prefix, the manifest last; fetched to be read.

A store of objects has no rename. What makes a payload whole is its manifest, written once every other file lies there
with the right size and, where the store lists one, checksum. A journal beside what is staged says which files were
sent, so that the next attempt sends only the others.
"""

from __future__ import annotations

import hashlib
import shutil
import time
from collections.abc import Iterable
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ..digest import FileEntry, TreeDigest, digest_file
from ..errors import InputError
from ..file_systems import CountBytes, TooLong
from ..progress import Progress, no_progress
from ..stores import Entry, StorageUnavailable, Store, Transfer
from .errors import AlreadyExists
from .fetched import Fetched
from .payload import (
    MANIFEST,
    PARTS,
    SIGNATURE,
    PayloadEntry,
    Payloads,
    differences,
    digests_of,
    explain_full_disk,
    manifest_of,
    read_manifest,
    tree_of,
)
from .uri import BELOW, check, check_root, is_plain

_ROUNDS: Final = 3  # how often what is not there as it was sent is sent
_FETCHES: Final = 2
_SETTLING: Final = (0.05, 0.2, 0.8, 3.0)  # seconds between looks at a manifest that is not whole
_PLACES: Final = [[each] for each in (*PARTS, MANIFEST)]


@dataclass(frozen=True)
class _File:
    """A file of a payload: its part, what its manifest says of it, and its name behind the URL."""

    part: str
    entry: FileEntry
    key: str


def store_at(url: str) -> Store:
    """The store behind a root's URL, which takes the names of payloads alone.

    Raises:
        InputError: The URL cannot be a root, see `uri.check_root`.
        DrivetrainError: The package for its scheme is not installed.
    """
    return Store(check_root(url), check)


class RemotePayloads(Payloads):
    """The payloads of a root that are published behind a URL.

    Args:
        root: Where they are staged, and copied to be read: `work/fetched-payloads`.
        url: Where they are published, see `uri.check_root`.

    Raises:
        InputError: The URL cannot be used.
        DrivetrainError: The package for its scheme is not installed.
    """

    def __init__(self, root: Path, url: str) -> None:
        self.root = root
        self.objects = store_at(url)
        self.url: str = self.objects.address
        self.fetched = Fetched(root / "work" / "fetched-payloads")
        self._known: dict[str, tuple[str, str]] = {}  # by URI: the copy's key, and the content's fingerprint
        self._tags_tell = True  # whether what looks like an MD5 is one: not where S3 encrypts by a key of the user's

    def publish(self, staged: Path, uri: str, progress: Progress = no_progress) -> TreeDigest:
        """Upload a staged folder, its manifest last; what was sent before and lies there whole is not sent again.

        What was staged stays as the copy to read. See `Payloads.publish`.
        """
        check(uri)
        with explain_full_disk(f"publishing {uri}"):
            digests = digests_of(staged)
            manifest = manifest_of(digests)
            entries = self.objects.entries(uri)
            there = self._manifest(uri) if MANIFEST in entries else None
            # The manifest only after every file was seen in the store's own listing: who finds a manifest need not ask
            # for the files. Before a store row names the payload the manifest is there, so a crash leaves an orphan and
            # never a row without its payload.
            if not _readable(there):  # or half-written: not every store writes files whole
                self._upload(staged, uri, list(_files(digests)), entries, progress)
                self.objects.write(f"{uri}/{MANIFEST}", manifest)
                there = self._settled_manifest(uri)
            self._same(uri, there, digests["content"])
            # Content alone must be the same. Where `extra` differs, what lies there is another attempt's, and what is
            # staged here is not a copy of it.
            if there == manifest:
                for path in (staged / part / file.path for part in PARTS for file in digests[part].files):
                    path.chmod(0o444)
                _keep_manifest(staged, manifest)
                self.fetched.put(_key(manifest), staged)
                self._known[uri] = _key(manifest), digests["content"].fingerprint
            shutil.rmtree(staged, ignore_errors=True)
            _journal(staged).unlink(missing_ok=True)
        return digests["content"]

    def local(self, uri: str, fingerprint: str | None = None, progress: Progress = no_progress) -> Path:
        """A copy whose every byte was compared with the manifest, see `Payloads.local`."""
        check(uri)
        if (known := self._known.get(uri)) is not None and fingerprint in (None, known[1]):
            copy = self.fetched.find(known[0])
            if copy is not None:
                return copy
        data = self._manifest(uri)
        if data is None:
            raise InputError(f"{self.url}/{uri} is gone, or was never whole", fix="run `drivetrain fsck --repair`")
        try:
            digests = read_manifest(data)
            files = [file for file in _files(digests) if _inside(file.entry.path)]
        except (ValueError, KeyError, TypeError):
            raise _changed(self.url, f"{uri}/{MANIFEST}") from None
        honest = all(tree_of(digests[part].files).fingerprint == digests[part].fingerprint for part in PARTS)
        if not honest or fingerprint not in (None, digests["content"].fingerprint):
            raise _changed(self.url, f"{uri}/{MANIFEST}")

        def fill(folder: Path) -> None:
            with explain_full_disk(f"fetching {uri}"):
                self._fetch(folder, uri, files, progress)
                _keep_manifest(folder, data)

        size = sum(tree.size for tree in digests.values())
        path = self.fetched.get(_key(data), size, fill, lambda: progress(0, size, "bytes fetched"))
        self._known[uri] = _key(data), digests["content"].fingerprint
        return path

    def reading(self) -> AbstractContextManager[None]:
        """Copies that are read in the block stay until its end."""
        return self.fetched.reading()

    def close(self) -> None:
        """Let go of the copies that were read outside any `reading`."""
        self.fetched.close()

    def present(self, uri: str) -> bool:
        """Whether a whole payload lies there: its manifest came last."""
        return self.objects.exists(f"{check(uri)}/{MANIFEST}")

    def remove(self, *uris: str) -> None:
        """Delete payloads, or what there is of them; of each its manifest first."""
        for uri in uris:
            self._known.pop(check(uri), None)
            self.objects.delete(f"{uri}/{MANIFEST}")
            self.objects.remove(uri)

    def sizes(self, uris: Iterable[str]) -> dict[str, int]:
        """Bytes of payloads, whole or not, by listing alone; see `Payloads.sizes`."""
        wanted, sizes = set(uris), dict[str, int]()
        for name, entry in self.objects.entries("artifacts").items():
            uri = "/".join(["artifacts", *name.split("/")[:BELOW]])
            if uri in wanted:
                sizes[uri] = sizes.get(uri, 0) + entry.size
        return sizes

    def problems(self, uri: str, fingerprint: str | None = None) -> list[str]:
        """What is wrong with a payload: every byte is read, and none kept. See `Payloads.problems`."""
        try:
            there = self.objects.entries(check(uri))
            before = read_manifest(self.objects.read(f"{uri}/{MANIFEST}"))
            files = {file.key: file for file in _files(before)}
        except (OSError, ValueError, KeyError, TypeError) as error:
            return [f"cannot be read: {error}"]
        digested: dict[str, str] = {}
        transfer = Transfer(sum(there[key].size for key in files if key in there), "bytes read", no_progress)

        def read(key: str, _: CountBytes) -> None:
            digested[key] = self._digest(f"{uri}/{key}", there[key].size) or ""

        transfer.each([key for key in files if key in there], read)
        files_by_part: dict[str, list[FileEntry]] = {part: [] for part in PARTS}
        for key, digest in digested.items():
            if digest:
                files_by_part[files[key].part].append(FileEntry(files[key].entry.path, there[key].size, digest))
        for key in there.keys() - files.keys() - {MANIFEST, SIGNATURE}:
            part, _, path = key.partition("/")
            if part not in PARTS:
                return [f"{key} is beside content and extra"]
            files_by_part[part].append(FileEntry(path, there[key].size, ""))
        return differences(before, {part: tree_of(tuple(files_by_part[part])) for part in PARTS}, fingerprint)

    def published(self) -> list[PayloadEntry]:
        """What lies below `artifacts/`, whole or not, by listing alone; when the last of its files came."""
        by_uri: dict[str, tuple[bool, float | None]] = {}
        for name, entry in self.objects.entries("artifacts").items():
            segments = name.split("/")
            uri = "/".join(["artifacts", *segments[:BELOW]])
            if segments[BELOW : BELOW + 1] not in _PLACES or not is_plain(uri):
                continue  # nothing that we have put there
            whole, changed = by_uri.get(uri, (False, None))
            times = [time for time in (changed, entry.changed) if time is not None]
            by_uri[uri] = whole or f"artifacts/{name}" == f"{uri}/{MANIFEST}", max(times, default=None)
        return [PayloadEntry(uri, *by_uri[uri]) for uri in sorted(by_uri)]

    def _upload(self, staged: Path, uri: str, files: list[_File], there: dict[str, Entry], progress: Progress) -> None:
        """See that all files lie there as they are here, given what lies there now."""
        transfer = Transfer(sum(file.entry.size for file in files), "bytes uploaded", progress)
        journal = _Journal(_journal(staged), f"{self.url}/{uri}")
        sent = journal.sent

        def send(file: _File, count: CountBytes) -> None:
            path = staged / file.part / file.entry.path
            self.objects.send(path, f"{uri}/{file.key}", count, transfer.pause, transfer.parts)
            journal.note(file)

        for _ in range(_ROUNDS):
            missing = [file for file in files if not self._lies(staged, uri, file, there.get(file.key), sent)]
            if not missing:
                return
            transfer.each(sorted(missing, key=lambda file: -file.entry.size), send)
            sent, there = journal.sent, self.objects.entries(uri)
        for file in files:
            if not self._lies(staged, uri, file, there.get(file.key), sent):
                raise StorageUnavailable(
                    f"{self.url}/{uri}/{file.key} is not there as it was sent, {_ROUNDS} times",
                    fix="check the store: something changes what is written to it",
                )

    def _lies(self, staged: Path, uri: str, file: _File, there: Entry | None, sent: Iterable[tuple[str, str]]) -> bool:
        """Whether a file lies there whole: by size and checksum, or where there is none, by size and the journal."""
        if there is None or there.size != file.entry.size:
            return False
        if there.md5 is None or not self._tags_tell:
            return (file.key, file.entry.sha256) in sent
        with (staged / file.part / file.entry.path).open("rb") as data:
            if hashlib.file_digest(data, lambda: hashlib.md5(usedforsecurity=False)).hexdigest() == there.md5:
                return True
        if self._digest(f"{uri}/{file.key}", there.size) == file.entry.sha256:
            self._tags_tell = False
            return True
        return False

    def _fetch(self, folder: Path, uri: str, files: list[_File], progress: Progress) -> None:
        """Copy files to a folder, each compared with what the manifest says; those there whole stay."""
        transfer = Transfer(sum(file.entry.size for file in files), "bytes fetched", progress)
        half = folder / ".half"
        shutil.rmtree(half, ignore_errors=True)
        half.mkdir()
        for part in PARTS:
            (folder / part).mkdir(exist_ok=True)

        def fetch(job: tuple[int, _File], count: CountBytes) -> None:
            number, file = job
            target, temporary = folder / file.part / file.entry.path, half / str(number)
            if target.is_file() and digest_file(target) == file.entry.sha256:
                count(file.entry.size)
                return
            target.parent.mkdir(parents=True, exist_ok=True)
            for _ in range(_FETCHES):
                try:
                    where, size = f"{uri}/{file.key}", file.entry.size
                    self.objects.fetch(where, temporary, size, count, transfer.pause, transfer.parts)
                except TooLong:
                    break
                except FileNotFoundError:
                    raise InputError(
                        f"{self.url}/{uri}/{file.key} is gone", fix="run `drivetrain fsck --repair`, then run again"
                    ) from None
                if digest_file(temporary) == file.entry.sha256:
                    temporary.chmod(0o444)
                    temporary.rename(target)
                    return
            raise _changed(self.url, f"{uri}/{file.key}")

        transfer.each(list(enumerate(files)), fetch)
        shutil.rmtree(half)

    def _manifest(self, uri: str) -> bytes | None:
        with suppress(FileNotFoundError):
            return self.objects.read(f"{uri}/{MANIFEST}")
        return None

    def _settled_manifest(self, uri: str) -> bytes | None:
        """The manifest after it was written: read again where another publisher may be writing the same one."""
        for pause in (*_SETTLING, None):
            manifest = self._manifest(uri)
            if pause is None or _readable(manifest):
                break
            time.sleep(pause)
        return manifest

    def _same(self, uri: str, manifest: bytes | None, content: TreeDigest) -> None:
        fingerprint = None
        with suppress(ValueError, KeyError, TypeError):
            fingerprint = None if manifest is None else read_manifest(manifest)["content"].fingerprint
        if fingerprint != content.fingerprint:
            raise AlreadyExists(f"another payload is at {self.url}/{uri}", fix="run `drivetrain fsck`")

    def _digest(self, name: str, size: int) -> str | None:
        """SHA-256 (hex) of a file of that size behind the URL, None where it is gone."""
        with suppress(FileNotFoundError):
            return self.objects.digest(name, size)
        return None


class _Journal:
    """Which files were sent where: a line each, written once the store has taken it."""

    def __init__(self, path: Path, where: str) -> None:
        self._path, self._where = path, where
        lines = path.read_text().splitlines() if path.is_file() else []
        if lines[:1] != [where]:
            path.write_text(f"{where}\n")

    @property
    def sent(self) -> set[tuple[str, str]]:
        """The names behind the URL, with the SHA-256 of what was sent."""
        lines = self._path.read_text().splitlines()[1:]
        return {(name, digest) for digest, _, name in (line.partition(" ") for line in lines)}

    def note(self, file: _File) -> None:
        with self._path.open("a") as journal:  # one short write, which threads do not tear
            journal.write(f"{file.entry.sha256} {file.key}\n")


def _journal(staged: Path) -> Path:
    return staged.parent / f".{staged.name}.sent"


def _files(digests: dict[str, TreeDigest]) -> Iterable[_File]:
    for part in PARTS:
        for entry in digests[part].files:
            key = f"{part}/{entry.path}"
            # A name that some store would read as more than text lies under its digest; the manifest has it.
            if not is_plain(key):
                key = f"{part}/_named-{hashlib.sha256(entry.path.encode(errors='surrogateescape')).hexdigest()}"
            yield _File(part, entry, key)


def _keep_manifest(folder: Path, manifest: bytes) -> None:
    """Write a copy's manifest, read-only as its files are; also over one that a process left that was killed."""
    path = folder / MANIFEST
    path.unlink(missing_ok=True)
    path.write_bytes(manifest)
    path.chmod(0o444)


def _readable(manifest: bytes | None) -> bool:
    with suppress(ValueError, KeyError, TypeError):
        return manifest is not None and bool(read_manifest(manifest))
    return False


def _inside(path: str) -> bool:
    """Whether a path of a manifest leads nowhere else.

    Raises:
        ValueError: It does.
    """
    if "\0" in path or any(segment in ("", ".", "..") for segment in path.split("/")):
        raise ValueError(path)
    return True


def _key(manifest: bytes) -> str:
    """What a copy is kept by: all that its manifest says."""
    return hashlib.sha256(manifest).hexdigest()


def _changed(url: str, name: str) -> InputError:
    return InputError(
        f"{url}/{name} is not what was published",
        fix="run `drivetrain fsck --repair`, then run again: it is made again",
    )
