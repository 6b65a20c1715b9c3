"""Publish a program as the next version at an address, by `versions.py`, as Pusher does.

NAME/3/…      the bundle's files, card.json, README.md
NAME/3.json   the record, with the card
NAME/3.sig    the signature of a signed bundle
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

from ...digest import canonical_json
from ...errors import InputError
from ...versions import ABANDONED, VersionRecord, Versions, versions_at
from .._caller import caller
from ..bundles.bundle import Bundle
from ..bundles.manifest import Signature, signatures_of, verified_folder
from ..bundles.signing import signature_of
from .card import ModelCard

if TYPE_CHECKING:
    from .modules import HubModule

_CARD: Final = "card.json"


@dataclass(frozen=True)
class Version:
    """One published version.

    Attributes:
        address: What it was published to.
        number: 1, 2, 3 ….
        digest: SHA-256 over every file, the card's too: what `load(digest=…)` pins. The number is not a part of it.
        card: As published; an empty one where Pusher pushed the version.
        files: (path, bytes, SHA-256) of each.
    """

    address: str
    number: int
    digest: str
    card: ModelCard
    files: tuple[tuple[str, int, str], ...] = field(repr=False)

    @property
    def size(self) -> int:
        """Bytes of all its files together."""
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
        module: What `module` or `load` gave, a bundle, or the folder of one (a Transform's or a Trainer's), whose
            signature (`engine.sign_bundle`) goes with it.
        destination: A folder or URL prefix, one per model; stores other than folders by fsspec (extra `cloud`).
        version: The number it must get; by default the next.
        card: What it is for.

    Raises:
        InputError: The number is taken by another program, or the destination cannot be written.
    """
    _check_number(version)
    card = card or ModelCard()
    there = versions_at(destination)
    with TemporaryDirectory(prefix="drivetrain-hub-") as scratch:
        files, signatures, signature = _files(module, Path(scratch, "bundle"))
        page = card.to_markdown("\n".join(f"{name}{signature}" for name, signature in signatures.items()))
        for name, data in {_CARD: _card_bytes(card), "README.md": page.encode()}.items():
            path = Path(scratch, name)
            path.write_bytes(data)
            files[name] = str(path)
        facts = {"card": card.to_json()}
        record = there.publish(files, facts=facts, signature=signature, number=version, any_equal=True)
    return _version(there, record)


def _files(module: object, scratch: Path) -> tuple[dict[str, str], Mapping[str, Signature], bytes | None]:
    """Where the files of a program lie, by name; what it takes and gives; and by what it is signed, if it is.

    What lies in a folder stays there and is sent from there: weights may be larger than memory.
    """
    bundle = module
    if not isinstance(bundle, (Bundle, str, Path)):
        from .modules import HubModule  # late, with JAX: who lists versions has no use for it

        bundle = bundle.bundle if isinstance(bundle, HubModule) else bundle
    if isinstance(bundle, Bundle):
        bundle.save(scratch)
        bundle = scratch
    if not isinstance(bundle, (str, Path)):
        raise InputError(
            f"{bundle!r:.80} is not a program to publish",
            fix="hub.save(hub.module(fn, params, inputs), …)",
            where=caller(),
        )
    body, paths = verified_folder(Path(bundle))
    files = {name: str(path) for name, path in paths.items()}
    return files, signatures_of(body, str(bundle)), signature_of(Path(bundle))


def _card_bytes(card: ModelCard) -> bytes:
    return canonical_json(card.to_json()) + b"\n"


def clean(address: str | Path, *, older_than: timedelta = ABANDONED, dry_run: bool = False) -> tuple[str, ...]:
    """Remove the files of publications that never became a version; `save` does so, too.

    What a publisher of this machine left is removed at once when its process has ended.

    Args:
        address: The folder or URL prefix, as in `save`.
        older_than: How long a publisher of another machine, of whom nobody knows whether it lives, may write nothing.
        dry_run: Whether nothing is removed.

    Returns:
        The folders and files that were removed, or would be, below the address.

    Raises:
        InputError: The address cannot be listed or written.
    """
    return tuple(versions_at(address).sweep(older_than, dry_run))


def versions(address: str | Path) -> tuple[Version, ...]:
    """Every version published there, oldest first, also those of Pusher; none where nothing is.

    Raises:
        InputError: A record is damaged or of a newer format, or the address cannot be listed (HTTP).
    """
    there = versions_at(address)
    return tuple(_version(there, there.record(number)) for number in there.recorded())


def chosen(there: Versions, version: int | None) -> Version:
    """The version of that number, by default the highest.

    Raises:
        InputError: There is none, or its record is damaged or of a newer format.
    """
    _check_number(version)
    address = there.store.address
    if version is None:
        recorded = there.recorded()
        if not recorded:
            raise InputError(f"{address} holds no published version", fix="check the address, or hub.save first")
        version = recorded[-1]
    try:
        return _version(there, there.record(version))
    except FileNotFoundError as error:
        raise InputError(f"{address} has no version {version}", fix=f"see `drivetrain hub list {address}`") from error


def _version(there: Versions, record: VersionRecord) -> Version:
    """A record as the hub shows it; raises InputError where its card is not the one that was published."""
    card = ModelCard()
    if "card" in record.facts:
        card = ModelCard.from_json(record.facts["card"])
        if _CARD not in record.files or record.files[_CARD].sha256 != sha256(_card_bytes(card)).hexdigest():
            raise InputError(
                f"{there.store.address}/{record.number}.json is damaged: its card is not {_CARD}",
                fix="ask who published it to do so again",
            )
    files = tuple((path, file.size, file.sha256) for path, file in sorted(record.files.items()))
    return Version(there.store.address, record.number, record.digest, card, files)


def _check_number(version: object) -> None:
    if version is not None and (type(version) is not int or not 0 < version < 10**18):  # as addresses list them
        raise InputError(f"version is {version!r:.40}", fix="use 1, 2, 3 …, or leave it out")
