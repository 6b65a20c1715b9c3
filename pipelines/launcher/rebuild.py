"""A store made anew, where its database was lost or damaged, from the records beside the payloads."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from ...errors import InputError
from ...metadata import MetadataStore, NoStore, SchemaMismatch, StoreDamaged, keep_payloads_at
from ...metadata.backup import check_store, database_file, replace_store
from ...metadata.payload_marker import adopt, read_marker
from .home import Home
from .root import RootLocation
from .run_records import sync_all

UNRECORDED: Final = (
    "runs that found everything in the cache, tasks that failed, the lines of code that `why` compares, and what was "
    "tagged, noted, approved, registered, pinned, blessed or unblessed by hand, or retired by a repair"
)
"""What a store holds and no record beside the payloads."""


@dataclass(frozen=True)
class RebuildReport:
    """What a store that was made anew holds.

    Attributes:
        runs: How many runs.
        executions: How many executions were taken in.
        ignored: (file, reason) for each record that could not be read.
        replaced: Where the database lies that was there before; None if there was none.
        lost: Runs of which logs are there, but no record.
        unnamed: URIs of payloads of which there is no record.
    """

    runs: int
    executions: int
    ignored: tuple[tuple[str, str], ...]
    replaced: str | None
    lost: tuple[str, ...]
    unnamed: tuple[str, ...]

    def to_dict(self) -> dict[str, object]:
        """The report as a JSON object."""
        return asdict(self)


def rebuild(location: RootLocation) -> RebuildReport:
    """Make a root's database anew from the records beside its payloads, and put it in the place of the damaged one.

    Known again are: runs that executed something, with parameters and how they ended; their executions with inputs,
    outputs, cache keys and metrics; artifacts with type, properties and fingerprint. Lost is what no record has
    (`UNRECORDED`).

    Raises:
        InputError: The store is a PostgreSQL server's; there are no records; the database is sound.
        DiskFull: No space is left.
    """
    path = database_file(location.store or location.root / "metadata.db")
    _refuse_sound(path)
    new = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with _new_home(location, new) as home:
            reports = sync_all(home)
            if not reports:
                raise InputError(
                    f"there are no records of runs beside the payloads of {location.root}",
                    fix="restore a copy that `drivetrain backup` made; name --artifacts where they are behind a URL",
                )
            known = {context.name for context in home.store.contexts("run", limit=None)}
            lost = sorted({path.name for path in home.root.glob("logs/*") if path.is_dir()} - known)
            named = {artifact.uri for artifact in home.store.artifacts(state=None)}
            unnamed = [payload.uri for payload in home.payloads.published() if payload.uri not in named]
        replaced = replace_store(new, path)
    finally:
        for left in path.parent.glob(f"{new.name}*"):
            left.unlink()
    return RebuildReport(
        runs=len(reports),
        executions=sum(len(report.brought) for report in reports),
        ignored=tuple((f"{report.run}/{name}", why) for report in reports for name, why in report.ignored),
        replaced=str(replaced) if replaced else None,
        lost=tuple(lost),
        unnamed=tuple(unnamed),
    )


def _refuse_sound(path: Path) -> None:
    if not path.exists():
        return
    with suppress(StoreDamaged, SchemaMismatch, NoStore):
        check_store(path)
        with MetadataStore.open(path, readonly=True) as store:
            if store.contexts("run", limit=1):
                raise InputError(f"{path} is not damaged", fix="move it away if you want to rebuild it all the same")


@contextmanager
def _new_home(location: RootLocation, path: Path) -> Iterator[Home]:
    """The root with a new store, which takes the payloads there for its own."""
    with MetadataStore.open(path) as store:
        with suppress(OSError, ValueError, TypeError, KeyError):  # no marker: fsck finds payloads of this store
            adopt(store, read_marker(location.root), location.root)
        if location.artifacts is not None:
            keep_payloads_at(store, location.artifacts)
    home = Home(location.root, store=str(path), artifacts=location.artifacts, is_rebuilt=True)
    try:
        yield home
    finally:
        home.close()
