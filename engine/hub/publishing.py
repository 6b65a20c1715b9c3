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
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from ...digest import canonical_json, digest
from ...errors import InputError
from .._caller import caller
from ..bundles.bundle import Bundle
from .card import ModelCard
from .modules import HubModule
from .stores import Store, inside, store_of

FORMAT: Final = "drivetrain-hub"
FORMAT_VERSION: Final = 1
BUNDLE: Final = "bundle"
OBJECTS: Final = "objects"
VERSIONS: Final = "versions"
STAMP: Final = "%Y%m%dT%H%M%SZ"
"""How a folder's name tells when it was begun, in UTC."""

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
    if version is not None and (type(version) is not int or not 0 < version < 10**9):
        raise InputError(f"version is {version!r:.40}", fix="use 1, 2, 3 …, or leave it out")
    bundle: object = module.bundle if isinstance(module, HubModule) else module
    if isinstance(bundle, (str, Path)):
        bundle = Bundle.load(bundle)
    if not isinstance(bundle, Bundle):
        raise InputError(
            f"{bundle!r:.80} is no program to publish",
            fix="hub.save(hub.module(fn, params, inputs), …)",
            where=caller(),
        )
    card = card or ModelCard()
    store = store_of(destination)
    files = {f"{BUNDLE}/{name}": data for name, data in bundle.to_files().items()}
    files["card.json"] = canonical_json(card.to_json()) + b"\n"
    files["README.md"] = card.to_markdown("\n".join(map(_signature, bundle.signatures.items()))).encode()
    entries = [[name, len(data), sha256(data).hexdigest()] for name, data in sorted(files.items())]
    mark = _digest(card.to_json(), entries)
    folder = ""
    for _ in range(_TRIES):
        taken = numbers(store)
        for number in reversed(taken) if version is None else {version} & set(taken):
            found = record(store, number)
            if found.digest == mark:
                if folder:  # another published the same meanwhile
                    store.remove(folder)
                return found
            if version is not None:
                raise InputError(
                    f"{store.address} has a version {version} already, of another program ({found.digest[:12]})",
                    fix="publish it as the next version: leave version out",
                )
        if not folder:
            folder = f"{OBJECTS}/{mark}-{datetime.now(UTC):{STAMP}}-{secrets.token_hex(8)}"
            store.write(folder, files)
        number = version if version is not None else max(taken, default=0) + 1
        body = {
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            "version": number,
            "card": card.to_json(),
            "folder": folder,
            "files": entries,
            "digest": mark,
        }
        if store.create(_place(number), (json.dumps(body, indent=1, sort_keys=True) + "\n").encode()):
            return record(store, number)
    raise InputError(
        f"{store.address} refused {_TRIES} numbers in turn: what was published there is not listed",
        fix="see that you may list it, and try again",
    )


def versions(address: str | Path) -> tuple[Version, ...]:
    """Every version published there, oldest first; none where nothing is.

    Raises:
        InputError: A record is damaged or of a newer format, or the address cannot be listed (HTTP).
    """
    store = store_of(address)
    return tuple(record(store, number) for number in numbers(store))


def chosen(store: Store, version: int | None) -> Version:
    """The version of that number, by default the highest.

    Raises:
        InputError: There is none, or its record is damaged or of a newer format.
    """
    if version is not None and (type(version) is not int or not 0 < version < 10**9):
        raise InputError(f"version is {version!r:.40}", fix="use 1, 2, 3 …, or leave it out")
    if version is None:
        found = numbers(store)
        if not found:
            raise InputError(f"{store.address} holds no published version", fix="check the address, or hub.save first")
        version = found[-1]
    return record(store, version)


def numbers(store: Store) -> list[int]:
    """The numbers that have a record, ascending."""
    return sorted(int(match[1]) for name in store.names(VERSIONS) if (match := _RECORD.fullmatch(name)))


def record(store: Store, number: int) -> Version:
    """A version as its record tells it; raises as `chosen`."""
    try:
        data = store.read(_place(number))
    except FileNotFoundError as error:
        raise InputError(
            f"{store.address} has no version {number}", fix=f"see `drivetrain hub list {store.address}`"
        ) from error
    where = f"{store.address}/{_place(number)}"
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


def _place(number: int) -> str:
    return f"{VERSIONS}/{number}.json"


def _digest(card: Mapping[str, Any], entries: Any) -> str:  # Any: JSON
    return digest(FORMAT, {"card": card, "files": entries})


def _signature(named: tuple[str, Any]) -> str:
    return f"{named[0]}{named[1]}"


def _count(size: object) -> int:
    if type(size) is not int or size < 0:
        raise ValueError(f"a size is {size!r:.40}")
    return size


def _hex(value: object) -> str:
    if not isinstance(value, str) or not _SHA256.fullmatch(value):
        raise ValueError(f"a digest is {value!r:.80}")
    return value
