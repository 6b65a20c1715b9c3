"""What a row of MLMD becomes in our store: its identity, type and times, and what of it is kept as it was."""
# ruff: noqa: S608 (only this package's own constants are put into SQL; every value is bound)

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from hashlib import sha256
from typing import Any, Final

from ...errors import InputError
from .. import rows, writes
from ..database import Database, Transaction
from ..dialect import UIDS
from .file import MlmdFile
from .values import Row

_LATEST: Final = 253_402_300_799_999  # milliseconds: the end of the year 9999


class RowMapper:
    """Maps the rows of one import to rows of ours, and counts them.

    Attributes:
        db: The store's database.
        source: The file.
        counts: By the names of `MlmdImport`.
        shared: Our ids of pipelines and nodes, by theirs: few.
        runs: Our ids of runs, and whether they are to be described again.
    """

    def __init__(self, db: Database, source: MlmdFile) -> None:
        self.db = db
        self.source = source
        self.counts: Counter[str] = Counter()
        self.shared: dict[int, int] = {}
        self.runs: dict[int, bool] = {}
        self._types: dict[tuple[str, str], int] = {}

    def contexts(self, tx: Transaction, wanted: Sequence[int]) -> dict[int, int]:
        """Our ids of contexts, by theirs; without those that were not imported."""
        apart = [number for number in dict.fromkeys(wanted) if number not in self.shared]
        return {
            **{number: self.shared[number] for number in wanted if number in self.shared},
            **self.resolved(tx, "context", apart),
        }

    def resolved(self, tx: Transaction, table: str, wanted: Iterable[int]) -> dict[int, int]:
        """Our ids of rows, by theirs; without those that were not imported."""
        uids = {self.uid(table, number): number for number in wanted}
        known_rows = tx.all(f"SELECT uid, id FROM {table} WHERE uid IN {UIDS}", uids=json.dumps(list(uids)))
        return {uids[row["uid"]]: row["id"] for row in known_rows}

    def known(self, tx: Transaction, table: str, wanted: Iterable[int]) -> dict[str, Row]:
        """Those of our rows that an earlier import made, by uid."""
        uids = json.dumps([self.uid(table, number) for number in wanted])
        return {
            row["uid"]: row for row in tx.all(f"SELECT uid, id, updated_at FROM {table} WHERE uid IN {UIDS}", uids=uids)
        }

    def update(self, tx: Transaction, table: str, number: int, changes: Mapping[str, Any], updated: int) -> None:
        """Merge changes into the properties of one of our rows, with the time of its change there."""
        stored = tx.all(f"SELECT properties FROM {table} WHERE id = :id", id=number)[0]["properties"]
        tx.run(
            f"UPDATE {table} SET properties = :properties, updated_at = :updated, version = version + 1 WHERE id = :id",
            id=number,
            properties=rows.merged(stored, changes),
            updated=updated,
        )
        self.count(updated=1)

    def origin(self, row: Row) -> dict[str, Any]:
        """What is kept of a row as it was in MLMD: its store, id, type, names and properties, as JSON values."""
        origin: dict[str, Any] = {"store": self.source.key, "id": row["id"], "type": self.type(row, "")}
        if version := self.source.types[row["type_id"]].get("version"):
            origin["type_version"] = version
        for name in ("name", "external_id", "properties", "custom_properties"):
            if row.get(name):
                origin[name] = row[name]
        return origin

    def type(self, row: Row, kind: str) -> str:
        """The name of a row's type in MLMD; InputError where its type is missing."""
        type_ = self.source.types.get(row["type_id"])
        if type_ is None:
            raise self.damaged(kind, row, f"its type {row['type_id']!r} is not there")
        return str(type_["name"])

    def type_id(self, tx: Transaction, kind: str, name: str) -> int:
        """The id of a type in our store, made at its first use."""
        if (kind, name) not in self._types:
            self._types[kind, name] = writes.type_id(tx, kind, name)
        return self._types[kind, name]

    def times(self, row: Row, kind: str) -> tuple[int, int]:
        """When it was made and last changed, in microseconds."""
        created, changed = row["create_time_since_epoch"], row["last_update_time_since_epoch"]
        for value in (created, changed):
            if not isinstance(value, int) or not 0 <= value <= _LATEST:
                raise self.damaged(kind, row, f"{value!r:.40} is not a time")
        return created * 1000, changed * 1000

    def number(self, row: Row, column: str, kind: str) -> int | None:
        """A number that may be missing (None); InputError where there is something else."""
        value = row[column]
        if value is not None and not isinstance(value, int):
            raise self.damaged(kind, row, f"its state is {value!r:.40}")
        return value

    def damaged(self, kind: str, row: Row, what: str) -> InputError:
        """What is said of a row that makes no sense."""
        return InputError(f"{self.source.path}: {kind} {row['id']}: {what}", fix="restore the file from a backup")

    def uid(self, kind: str, number: int) -> str:
        """A UUID of our own kind (version 8 of RFC 9562): the same for the same row, however often it is imported."""
        digest = sha256(f"{self.source.key}/{kind}/{number}".encode()).hexdigest()
        return f"{digest[:8]}-{digest[8:12]}-8{digest[13:16]}-8{digest[17:20]}-{digest[20:32]}"

    def count(self, **more: int) -> None:
        """Add to the counts, by the names of `MlmdImport`."""
        self.counts.update(more)


@lru_cache(4096)
def short(name: str) -> str:
    """A name of at most 255 characters, a digest in place of what is cut off."""
    cut = name if len(name) <= 255 else f"{name[:238]}-{sha256(name.encode()).hexdigest()[:16]}"
    return rows.name_text(cut or "unnamed", "name")
