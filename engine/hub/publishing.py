"""Publish a program: files below a prefix of its own, then one record that claims the number and makes it a version.

    NAME/objects/DIGEST-TIME-RANDOM/bundle/…  the bundle's files, card.json, README.md; written first
    NAME/versions/3.json                      the record: which files, with digests; created last, whole or not at all

A version is there if its record is. What a killed publisher leaves is a folder that no record names, and perhaps a
record that never got its name, which `clean` removes.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from ...digest import canonical_json, digest, digest_file
from ...errors import InputError
from ...progress import no_progress
from ...stores import CountBytes, Store, Transfer, local_path
from .._caller import caller
from ..bundles.bundle import Bundle
from ..bundles.manifest import Signature, signatures_of, verified_folder
from .card import ModelCard
from .modules import HubModule

FORMAT: Final = "drivetrain-hub"
FORMAT_VERSION: Final = 1
BUNDLE: Final = "bundle"

_OBJECTS: Final = "objects"
_VERSIONS: Final = "versions"
_STAMP: Final = "%Y%m%dT%H%M%SZ"  # when a folder was begun, in UTC, as its name says it
_FOLDER: Final = re.compile(r"[0-9a-f]{64}-([0-9]{8}T[0-9]{6}Z)-[0-9a-f]{16}")
_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._ +=@-]{0,199}")
_HALF_RECORD: Final = re.compile(r"\.[0-9]{1,9}\.json\.[0-9a-f]{16}")  # what a folder's `create` writes to first

_RECORD: Final = re.compile(r"([1-9][0-9]{0,8})\.json")
_SHA256: Final = re.compile(r"[0-9a-f]{64}")
_RECORD_BYTES: Final = 64 << 20
_TRIES: Final = 1000  # other publishers that were quicker


@dataclass(frozen=True)
class Version:
    """One published version.

    Attributes:
        address: What it was published to.
        number: 1, 2, 3 ….
        digest: SHA-256 over the card and every file: what `load(digest=…)` pins. The number is no part of it.
        card: As published.
        folder: The files' prefix below the address.
        files: (path, bytes, SHA-256) of each.
    """

    address: str
    number: int
    digest: str
    card: ModelCard
    folder: str = field(repr=False)
    files: tuple[tuple[str, int, str], ...] = field(repr=False)

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(size for _, size, _ in self.files)


def save(
    module: HubModule | Bundle | Path | str,
    destination: str | Path,
    *,
    version: int | None = None,
    card: ModelCard | None = None,
) -> Version:
    """Publish a program.

    What was published there with the same digest (program, weights and card) is adopted: nothing new is written. Two
    publishers at once get two numbers. A publisher that is killed leaves no version.

    Args:
        module: What `module` or `load` gave, a bundle, or the folder of one (a Transform's or a Trainer's).
        destination: A folder or URL prefix, one per model; stores other than folders by fsspec (extra `cloud`).
        version: The number it must get; by default the next.
        card: What it is for.

    Raises:
        InputError: The number is taken by another program, or the destination cannot be written.
    """
    _check_number(version)
    card = card or ModelCard()
    store = hub_store(destination)
    contents, signatures = _contents(module)
    contents["card.json"] = canonical_json(card.to_json()) + b"\n"
    contents["README.md"] = card.to_markdown("\n".join(map(_signature_line, signatures.items()))).encode()
    entries = [list(_measured(name, contents[name])) for name in sorted(contents)]
    version_digest = _digest(card.to_json(), entries)
    folder = ""
    for _ in range(_TRIES):
        taken = numbers(store)
        for number in reversed(taken) if version is None else {version} & set(taken):
            published = record(store, number)
            if published.digest == version_digest:
                if folder:  # another published the same meanwhile
                    store.remove(folder)
                return published
            if version is not None:
                raise InputError(
                    f"{store.address} has a version {version} already, of another program ({published.digest[:12]})",
                    fix="publish it as the next version: leave version out",
                )
        if not folder:
            store.require_exclusive_creation()  # before anything is written
            folder = f"{_OBJECTS}/{version_digest}-{datetime.now(UTC):{_STAMP}}-{secrets.token_hex(8)}"
            _send(store, folder, contents, entries)
        number = version if version is not None else max(taken, default=0) + 1
        body = {
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            "version": number,
            "card": card.to_json(),
            "folder": folder,
            "files": entries,
            "digest": version_digest,
        }
        # Last, and only where there is none: before it nothing of the publication counts, and of two publishers that
        # saw the same newest number one gets this one and the other tries the next.
        if store.create(_record_name(number), (json.dumps(body, indent=1, sort_keys=True) + "\n").encode()):
            return record(store, number)
    raise InputError(
        f"{store.address} refused {_TRIES} numbers in turn: what was published there is not listed",
        fix="see that you may list it, and try again",
    )


def hub_store(address: str | Path) -> Store:
    """The store of a hub's address: a path, `file://`, `http(s)://` (to read), or what fsspec knows.

    Raises:
        InputError: There is no such scheme, or the address holds a secret.
        DrivetrainError: A package for it is not installed.
    """
    folder = local_path(address)
    return Store(str(address) if folder is None else folder)


def _contents(module: object) -> tuple[dict[str, bytes | Path], Mapping[str, Signature]]:
    """The files of a program by name, as bytes or where they lie, and its signatures.

    What lies in a folder stays there and is sent from there: weights may be larger than memory.
    """
    bundle = module.bundle if isinstance(module, HubModule) else module
    if isinstance(bundle, (str, Path)):
        body, paths = verified_folder(Path(bundle))
        return {f"{BUNDLE}/{name}": path for name, path in paths.items()}, signatures_of(body, str(bundle))
    if not isinstance(bundle, Bundle):
        raise InputError(
            f"{bundle!r:.80} is no program to publish",
            fix="hub.save(hub.module(fn, params, inputs), …)",
            where=caller(),
        )
    return {f"{BUNDLE}/{name}": data for name, data in bundle.to_files().items()}, bundle.signatures


def _measured(name: str, content: bytes | Path) -> tuple[str, int, str]:
    inside(name)
    if isinstance(content, Path):
        return name, content.stat().st_size, digest_file(content)
    return name, len(content), sha256(content).hexdigest()


def _send(store: Store, folder: str, contents: Mapping[str, bytes | Path], entries: list[list[Any]]) -> None:
    transfer = Transfer(sum(entry[1] for entry in entries), "bytes uploaded", no_progress)

    def send(entry: list[Any], count: CountBytes) -> None:
        name, _, checksum = entry
        content = contents[name]
        if isinstance(content, bytes):
            store.write(f"{folder}/{name}", content)
            return
        store.send(content, f"{folder}/{name}", count, transfer.pause, transfer.parts)
        if digest_file(content) != checksum:
            raise InputError(f"{content} changed while it was published", fix="publish it again")

    try:
        transfer.each(entries, send)
    except OSError as error:  # the disk of a local folder is full
        raise InputError(f"{store.address}/{folder}: {error.strerror or error}", fix="make room there") from error


def clean(
    address: str | Path,
    *,
    older_than: timedelta = timedelta(days=1),
    now: datetime | None = None,
    dry_run: bool = False,
) -> tuple[str, ...]:
    """Remove the files of publications that never became a version.

    A publication that is going on has no record either: what was begun within `older_than` stays, by the time in the
    folder's name, of a record that never got its name by the file's. Anything that is not named like that stays.

    Args:
        address: The folder or URL prefix, as in `save`.
        older_than: How long a publication may take at most.
        now: The time, with its zone; by default the clock's.
        dry_run: Whether nothing is removed.

    Returns:
        The folders and files that were removed, or would be, below the address.

    Raises:
        InputError: A record is damaged (then nothing is removed), or the address cannot be listed or written.
    """
    store = hub_store(address)
    names = store.names(_OBJECTS)  # before the records: a publication that ends meanwhile is named by one
    named_by_records = {record(store, number).folder for number in numbers(store)}
    before = (now or datetime.now(UTC)) - older_than
    removed = []
    for name in names:
        begun = _FOLDER.fullmatch(name)
        folder = f"{_OBJECTS}/{name}"
        if begun is None or folder in named_by_records:
            continue
        if datetime.strptime(begun[1], _STAMP).replace(tzinfo=UTC) < before:
            if not dry_run:
                store.remove(folder)
            removed.append(folder)
    for name in filter(_HALF_RECORD.fullmatch, store.names(_VERSIONS)):
        changed = store.stat(f"{_VERSIONS}/{name}").changed
        if changed is not None and changed < before.timestamp():
            if not dry_run:
                store.delete(f"{_VERSIONS}/{name}")
            removed.append(f"{_VERSIONS}/{name}")
    return tuple(removed)


def versions(address: str | Path) -> tuple[Version, ...]:
    """Every version published there, oldest first; none where nothing is.

    Raises:
        InputError: A record is damaged or of a newer format, the address cannot be listed (HTTP), or Pusher pushed
            models to it.
    """
    store = hub_store(address)
    if known := numbers(store):
        return tuple(record(store, number) for number in known)
    if pushed := [int(match[1]) for name in store.names("") if (match := _RECORD.fullmatch(name))]:
        raise InputError(
            f"{store.address} holds no modules, but models that Pusher pushed",
            fix=f"see the newest: `drivetrain bundle show {store.address}/{max(pushed)}`",
        )
    return ()


def chosen(store: Store, version: int | None) -> Version:
    """The version of that number, by default the highest.

    Raises:
        InputError: There is none, or its record is damaged or of a newer format.
    """
    _check_number(version)
    if version is None:
        known = numbers(store)
        if not known:
            raise InputError(f"{store.address} holds no published version", fix="check the address, or hub.save first")
        version = known[-1]
    return record(store, version)


def numbers(store: Store) -> list[int]:
    """The numbers that have a record, ascending."""
    return sorted(int(match[1]) for name in store.names(_VERSIONS) if (match := _RECORD.fullmatch(name)))


def record(store: Store, number: int) -> Version:
    """The version that a number's record describes; raises as `chosen`."""
    try:
        data = store.read(_record_name(number))
    except FileNotFoundError as error:
        raise InputError(
            f"{store.address} has no version {number}", fix=f"see `drivetrain hub list {store.address}`"
        ) from error
    where = f"{store.address}/{_record_name(number)}"
    try:
        if len(data) > _RECORD_BYTES:
            raise ValueError("it is too large")
        body = json.loads(data)
        if body["format"] != FORMAT:
            raise ValueError("it is of another kind")
        if type(body["format_version"]) is int and body["format_version"] > FORMAT_VERSION:
            raise InputError(
                f"{where} has hub format {body['format_version']}, this release reads up to {FORMAT_VERSION}",
                fix="upgrade drivetrain",
            )
        files = tuple((inside(name), _count(size), _hex(checksum)) for name, size, checksum in body["files"])
        if len({name for name, _, _ in files}) != len(files):
            raise ValueError("it lists a file twice")
        if body["version"] != number or body["format_version"] != FORMAT_VERSION:
            raise ValueError("it is of another version")
        if _hex(body["digest"]) != _digest(body["card"], [list(entry) for entry in files]):
            raise ValueError("it does not match its own digest")
        card = ModelCard.from_json(body["card"])
        return Version(store.address, number, body["digest"], card, inside(body["folder"]), files)
    except (LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise InputError(f"{where} is damaged: {error!s:.120}", fix="ask who published it to do so again") from error


def inside(name: object) -> str:
    """A relative name that leads nowhere else: a record may come from a stranger.

    Raises:
        InputError: It is absolute, has `..`, or holds what no name of ours holds.
    """
    parts = name.split("/") if isinstance(name, str) else [""]
    if not isinstance(name, str) or len(parts) > 8 or not all(_NAME.fullmatch(part) for part in parts):
        raise InputError(f"the name {name!r:.80} leads elsewhere, or is empty", fix="fetch it from who published it")
    return name


def _check_number(version: object) -> None:
    if version is not None and (type(version) is not int or not 0 < version < 10**9):
        raise InputError(f"version is {version!r:.40}", fix="use 1, 2, 3 …, or leave it out")


def _record_name(number: int) -> str:
    return f"{_VERSIONS}/{number}.json"


def _digest(card: Mapping[str, Any], entries: Any) -> str:  # Any: JSON
    return digest(FORMAT, {"card": card, "files": entries})


def _signature_line(named: tuple[str, Signature]) -> str:
    return f"{named[0]}{named[1]}"


def _count(size: object) -> int:
    if type(size) is not int or size < 0:
        raise ValueError(f"a size is {size!r:.40}")
    return size


def _hex(value: object) -> str:
    if not isinstance(value, str) or not _SHA256.fullmatch(value):
        raise ValueError(f"a digest is {value!r:.80}")
    return value
