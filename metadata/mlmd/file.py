"""A SQLite file of ML Metadata, read page by page: never written to, never locked for longer than a page takes."""
# ruff: noqa: S608 (table and column names of the format itself are put into SQL; every value is bound)

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Literal

from ...digest import digest
from ...errors import InputError
from ..rows import free_text
from .values import Row, decoded

OLDEST, NEWEST = 6, 10
"""Schema versions that are read: of ml-metadata 1.0 to 1.17, the last there is."""
Kind = Literal["Artifact", "Execution", "Context"]
_PAGE: Final = 1000
_TABLES: Final = {
    "Type", "Artifact", "ArtifactProperty", "Execution", "ExecutionProperty", "Context", "ContextProperty",
    "ParentContext", "ParentType", "Event", "EventPath", "Association", "Attribution",
}  # fmt: skip
_KINDS: Final = {0: "execution", 1: "artifact", 2: "context"}  # type_kind
_IDS: Final = "(SELECT value FROM json_each(?))"


@dataclass(frozen=True)
class MlmdEvent:
    """An event: an artifact that an execution took or gave, and where in the mapping of those it stands."""

    id: int
    execution: int
    artifact: int
    kind: int
    at: int
    path: tuple[str | int, ...]


class MlmdFile:
    """An MLMD file as it was when it was opened: what is added meanwhile is left for the next time.

    Raises:
        InputError: There is no such file, or it is damaged, or holds no MLMD of a version that is read.
    """

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        if not path.is_file():
            raise InputError(f"there is no file {path}", fix="give the path of TFX's metadata.sqlite")
        self._connection = sqlite3.connect(f"{self.path.as_uri()}?mode=ro", uri=True, timeout=10.0)
        # What is not UTF-8, or cannot be stored by us, must not be lost for it.
        self._connection.text_factory = lambda text: free_text(text.decode("utf-8", "backslashreplace"))
        self._connection.row_factory = sqlite3.Row
        try:
            self.version = self._checked()
            # Whose node an execution is of can only be asked from the side of the contexts.
            self._all(
                "CREATE TEMP TABLE membership AS SELECT a.execution_id AS execution, t.name AS type, c.name AS name "
                "FROM Association a JOIN Context c ON c.id = a.context_id JOIN Type t ON t.id = c.type_id "
                "WHERE t.name IN ('pipeline', 'node')"
            )
            self._all("CREATE INDEX temp.membership_by_execution ON membership (execution)")
            top = self._all(
                "SELECT " + ", ".join(f"(SELECT max(id) FROM {table}) AS {table}" for table in self._limited)
            )
            self._newest: dict[str, int] = {name: top[0][name] or 0 for name in self._limited}
        except BaseException:
            self._connection.close()
            raise

    _limited: Final = ("Artifact", "Execution", "Context", "Event", "Association", "Attribution")

    def close(self) -> None:
        """Close the file, and drop the temporary table of this connection."""
        self._connection.close()

    @cached_property
    def key(self) -> str:
        """An identity of this store that stays when the file is moved or grows: the digest of its oldest row."""
        oldest: list[tuple[int, int, int, str]] = []
        for order, (kind, name) in enumerate((("Context", "name"), ("Execution", "name"), ("Artifact", "uri"))):
            for row in self._all(
                f"SELECT n.id, n.create_time_since_epoch AS at, t.name AS type, n.{name} AS name FROM {kind} n "
                "LEFT JOIN Type t ON t.id = n.type_id ORDER BY n.create_time_since_epoch, n.id LIMIT 1"
            ):
                oldest.append((int(row["at"]), order, int(row["id"]), f"{row['type']}\n{row['name']}"))
        return digest("drivetrain-mlmd-v1", list(min(oldest, default=())))[:16]

    @cached_property
    def types(self) -> dict[int, dict[str, Any]]:
        """The types by id, as JSON: name, kind, version, description, properties, what they are kinds of."""
        types: dict[int, dict[str, Any]] = {}
        for row in self._all("SELECT * FROM Type ORDER BY id"):
            facts = {name: row[name] for name in row.keys() if name not in ("id", "type_kind") and row[name]}  # noqa: SIM118
            types[row["id"]] = {**facts, "id": row["id"], "kind": _KINDS.get(row["type_kind"], str(row["type_kind"]))}
        for row in self._all("SELECT * FROM TypeProperty ORDER BY type_id, name"):
            if row["type_id"] in types:
                types[row["type_id"]].setdefault("properties", {})[row["name"]] = row["data_type"]
        for row in self._all("SELECT * FROM ParentType ORDER BY type_id, parent_type_id"):
            if row["type_id"] in types and row["parent_type_id"] in types:
                types[row["type_id"]].setdefault("is_a", []).append(types[row["parent_type_id"]]["name"])
        return types

    def pages(self, kind: Kind) -> Iterator[list[Row]]:
        """The rows of a kind by id, with their properties as `properties` and `custom_properties`."""
        for page in self._pages(kind):
            yield self._with_properties(kind, page)

    def executions(self, order: Sequence[int]) -> Iterator[list[Row]]:
        """The executions of these ids, in this order, page by page; as `pages` has them.

        The names of the pipeline and the node that one is of are there as `pipeline` and `node`, where it has them.
        """
        for start in range(0, len(order), _PAGE):
            ids = order[start : start + _PAGE]
            by_id = {row["id"]: dict(row) for row in self._all(f"SELECT * FROM Execution WHERE id IN {_IDS}", ids)}
            yield self._with_properties("Execution", [by_id[number] for number in ids if number in by_id])

    def events(self, executions: Sequence[int]) -> Iterator[MlmdEvent]:
        """The events of these executions, in the order in which they were recorded."""
        newest = self._newest["Event"]
        rows = self._all(
            f"SELECT * FROM Event WHERE execution_id IN {_IDS} AND id <= ? ORDER BY id", executions, newest
        )
        paths: dict[int, list[str | int]] = {}
        sql = f"SELECT * FROM EventPath WHERE event_id IN {_IDS} ORDER BY rowid"
        for row in self._all(sql, [row["id"] for row in rows]):
            step = row["step_index"] if row["is_index_step"] else row["step_key"]
            paths.setdefault(row["event_id"], []).append(step if isinstance(step, int) else str(step))
        for row in rows:
            yield MlmdEvent(
                row["id"],
                row["execution_id"],
                row["artifact_id"],
                row["type"],
                row["milliseconds_since_epoch"] or 0,
                tuple(paths.get(row["id"], ())),
            )

    def links(self, table: Literal["Association", "Attribution"]) -> Iterator[list[tuple[int, int]]]:
        """Contexts and the executions, or artifacts, that are in them."""
        member = "execution_id" if table == "Association" else "artifact_id"
        for page in self._pages(table):
            yield [(row["context_id"], row[member]) for row in page]

    def parents(self) -> list[tuple[int, int]]:
        """Contexts and what is directly above them."""
        rows = self._all(
            "SELECT context_id, parent_context_id FROM ParentContext ORDER BY context_id, parent_context_id"
        )
        return [(row["context_id"], row["parent_context_id"]) for row in rows]

    def all_events(self) -> Iterator[tuple[int, int, int]]:
        """Execution, artifact and kind of every event."""
        for page in self._pages("Event"):
            yield from ((row["execution_id"], row["artifact_id"], row["type"]) for row in page)

    def ids(self) -> list[int]:
        """The ids of all executions that were there when the file was opened, ascending."""
        rows = self._all("SELECT id FROM Execution WHERE id <= ? ORDER BY id", self._newest["Execution"])
        return [row["id"] for row in rows]

    def recorded_in_order(self, inputs: Sequence[int], outputs: Sequence[int]) -> bool:
        """Whether what took an artifact always has a later id than the first that made it."""
        out_of_order = self._all(
            "SELECT 1 FROM Event i JOIN (SELECT artifact_id, min(execution_id) AS maker FROM Event WHERE type IN "
            "(SELECT value FROM json_each(?)) GROUP BY artifact_id) o ON o.artifact_id = i.artifact_id "
            "WHERE i.type IN (SELECT value FROM json_each(?)) AND i.execution_id < o.maker LIMIT 1",
            list(outputs),
            list(inputs),
        )
        return not out_of_order

    def _with_properties(self, kind: Kind, page: list[Row]) -> list[Row]:
        by_id = {row["id"]: {**row, "properties": {}, "custom_properties": {}} for row in page}
        column = f"{kind.lower()}_id"
        for row in self._all(f"SELECT * FROM {kind}Property WHERE {column} IN {_IDS}", list(by_id)):
            where = f"{kind} {row[column]}, property {row['name']!r}"
            column_kind = "custom_properties" if row["is_custom_property"] else "properties"
            by_id[row[column]][column_kind][row["name"]] = decoded(dict(row), f"{self.path}: {where}")
        if kind == "Execution":
            for row in self._all(f"SELECT * FROM temp.membership WHERE execution IN {_IDS}", list(by_id)):
                by_id[row["execution"]][row["type"]] = row["name"]
        return list(by_id.values())

    def _pages(self, table: str) -> Iterator[list[Row]]:
        last = -(2**63)
        while page := self._all(
            f"SELECT * FROM {table} WHERE id > ? AND id <= ? ORDER BY id LIMIT {_PAGE}", last, self._newest[table]
        ):
            last = page[-1]["id"]
            yield [dict(row) for row in page]

    def _all(self, sql: str, *values: object) -> list[Row]:
        bound = [json.dumps(value) if isinstance(value, list) else value for value in values]
        with _explained(self.path):
            rows: list[Row] = self._connection.execute(sql, bound).fetchall()
        return rows

    def _checked(self) -> int:
        names = {row["name"] for row in self._all("SELECT name FROM sqlite_master WHERE type = 'table'")}
        if "schema_version" in names and "claim" in names:
            raise InputError(f"{self.path} is a store of drivetrain's own", fix="give TFX's metadata.sqlite")
        if "MLMDEnv" not in names:
            raise InputError(f"{self.path} is not a store of ML Metadata", fix="give the path of TFX's metadata.sqlite")
        rows = self._all("SELECT schema_version FROM MLMDEnv")
        version = rows[0]["schema_version"] if len(rows) == 1 else None
        if not isinstance(version, int):
            raise InputError(f"{self.path} does not say which MLMD schema it has", fix="restore it from a backup")
        if version > NEWEST:
            raise InputError(
                f"{self.path} has MLMD schema {version}; {NEWEST} is the last known", fix="upgrade drivetrain"
            )
        if version < OLDEST:
            raise InputError(
                f"{self.path} has MLMD schema {version}, from before ml-metadata 1.0; {OLDEST} to {NEWEST} are read",
                fix="open a copy once with ml-metadata 1.x and enable_upgrade_migration=True",
            )
        if missing := sorted(_TABLES - names):
            raise InputError(f"{self.path} has no table {missing[0]}", fix="restore it from a backup")
        verdict = self._all("SELECT quick_check AS found FROM pragma_quick_check(1)")[0]["found"]
        if verdict != "ok":
            raise InputError(f"{self.path} is damaged: {verdict}", fix="restore it from a backup")
        return version


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        name = getattr(error, "sqlite_errorname", "")
        if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
            raise InputError(f"{path} is being written to all the time", fix="wait for that run to end") from error
        if name.startswith("SQLITE_NOTADB"):
            raise InputError(
                f"{path} is not a SQLite database", fix="give the path of TFX's metadata.sqlite"
            ) from error
        raise InputError(
            f"{path} cannot be read: {error}", fix="restore it from a backup, or check its rights"
        ) from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is damaged: {error}", fix="restore it from a backup") from error
