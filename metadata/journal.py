"""The journal: each transaction that changes rows adds an entry, chained to the one before, in the same transaction.

An entry says when, who, what for, and of each row that changed what its digest is from then on. Its hash is over the
hash of the entry before and all that it says: no entry can be changed, moved or taken out without a trace, and a row
that was changed past the journal has another digest than its last entry says. `audit.py` looks for both.
"""
# ruff: noqa: S608 (only this package's own constants are put into SQL)

from __future__ import annotations

import json
import os
import re
from binascii import crc32
from collections.abc import Iterable, Iterator, Mapping
from functools import cache, lru_cache
from hashlib import sha256
from typing import Any, Final, NamedTuple

from ..digest import json_encoder
from ..owner import Owner, asking

Row = Mapping[str, Any]  # a database row: Any is the driver's boundary

KEYS: Final = {
    "type": ("id",),
    "artifact": ("id",),
    "execution": ("id",),
    "context": ("id",),
    "context_parent": ("parent_id", "child_id"),
    "event": ("execution_id", "direction", "key", "idx"),
    "association": ("context_id", "execution_id"),
    "attribution": ("context_id", "artifact_id"),
    "cache_preimage": ("cache_key",),
}
"""The tables whose rows are journalled, and their primary keys. Claims are not history: they come and go."""

LABELS: Final = {
    "type": "name",
    "artifact": "uid",
    "execution": "uid",
    "context": "name",
    "cache_preimage": "cache_key",
}
"""The column by which a person knows a row; the other tables link rows of these."""

_CHANGE = re.compile(rf"\b(INSERT\s+INTO|UPDATE|DELETE\s+FROM)\s+({'|'.join(KEYS)})\b")
_RETURNING = re.compile(r"\s+RETURNING\s.*\Z", re.DOTALL)
_VERBS = {"INSERT": "insert", "UPDATE": "update", "DELETE": "delete"}
_MOST = 1000  # changes of an entry: it is held in memory
_PAGE = 1000  # rows
_PRIME = 65_521
_encode = json_encoder(json.JSONEncoder(separators=(",", ":"), default=repr))


class JournalledStatement(NamedTuple):
    """A statement that changes rows of a journalled table.

    Attributes:
        verb: "insert", "update" or "delete".
        table: The table.
        sql: The statement, made to return the rows as it leaves them.
    """

    verb: str
    table: str
    sql: str


@lru_cache(512)
def journalled(sql: str) -> JournalledStatement | None:
    """What a statement changes in a journalled table; None where it changes nothing there."""
    match = _CHANGE.search(sql)
    if match is None:
        return None
    return JournalledStatement(_VERBS[match[1].split()[0]], match[2], f"{_RETURNING.sub('', sql)} RETURNING *")


def row_key(table: str, row: Row) -> str:
    """A row's primary key as one text: its columns with slashes between."""
    columns = KEYS[table]
    return str(row[columns[0]]) if len(columns) == 1 else "/".join([str(row[column]) for column in columns])


def change_of(verb: str, table: str, row: Row) -> list[object]:
    """What an entry says of a row: the verb, its table, its key, and how it is from then on.

    Of a row of a table that links others, whose columns are few and never change, that is every value. Of another it is
    the SHA-256 (hex) of the JSON list of its values, in the order of the columns and without NULLs at the end (so that
    a column that a later schema adds changes no digest), then what a person knows it by, and a checksum of each column.
    A deleted row is nothing from then on.
    """
    values, count = row_values(row), len(KEYS[table])  # a key's columns are a table's first
    key = str(values[0]) if count == 1 else "/".join(map(str, values[:count]))
    if table not in LABELS:
        return [verb, table, key, None if verb == "delete" else values]
    digest = None if verb == "delete" else values_digest(values)
    return [verb, table, key, digest, row[LABELS[table]], column_checksums(values)]


def row_values(row: Row) -> list[object]:
    """A row's values in the order of the columns, without NULLs at the end."""
    values = list(row.values() if isinstance(row, dict) else row)
    while values and values[-1] is None:
        values.pop()
    return values


def values_digest(values: list[object]) -> str:
    """SHA-256 (hex) of values as JSON."""
    return sha256(_encode(values).encode()).hexdigest()


def column_checksums(values: list[object]) -> list[int]:
    """A number below 65,536 of each value: they say which column of a row was changed, and prove nothing.

    Of a number it is the remainder by a prime, of a text 16 bits of its CRC-32, of NULL 0.
    """
    return [
        value % _PRIME
        if type(value) is int
        else 0
        if value is None
        else crc32(value.encode("utf-8", "surrogateescape") if isinstance(value, str) else repr(value).encode())
        & 0xFFFF
        for value in values
    ]


def entry_hash(before: str, at: int, actor: str, verb: str, changes: str) -> str:
    """The hash of an entry: SHA-256 (hex) of the hash of the one before ("" for the first) and all that it says."""
    return sha256(f"{before}{_said(at, actor, verb, changes)}".encode("utf-8", "surrogateescape")).hexdigest()


def append(digest_of: str) -> str:
    """SQL that adds an entry, of which `:said` is all that it says.

    Args:
        digest_of: The dialect's SQL for SHA-256 (hex) of a text, with {} for the text.
    """
    last = "coalesce((SELECT hash FROM journal ORDER BY number DESC LIMIT 1), '')"
    return (
        "INSERT INTO journal (number, at, actor, verb, changes, hash) SELECT coalesce(max(number), 0) + 1, "
        "CAST(:at AS BIGINT), CAST(:actor AS TEXT), CAST(:verb AS TEXT), CAST(:changes AS TEXT), "
        f"{digest_of.format(f'{last} || CAST(:said AS TEXT)')} FROM journal"
    )


class JournalEntry:
    """What one transaction changes, until it is sealed.

    Args:
        at: The transaction's time, in microseconds since 1970, UTC.
        verb: What it is for.
    """

    def __init__(self, at: int, verb: str) -> None:
        self._at = at
        self._verb = verb
        self._changes: dict[tuple[str, object], list[object]] = {}

    @property
    def is_full(self) -> bool:
        """Whether it is to be sealed before more is noted."""
        return len(self._changes) >= _MOST

    def note(self, verb: str, table: str, rows: Iterable[Row]) -> None:
        """Note rows as they are after a statement; of a row that the transaction changes twice the last counts."""
        changes = self._changes
        for row in rows:
            change = change_of(verb, table, row)
            key = table, change[2]
            before = changes.get(key)
            if before is not None and before[0] == "insert" and verb == "update":
                change[0] = "insert"
            changes[key] = change

    def take(self) -> dict[str, object] | None:
        """What `append` binds for what was noted since the last call; None where nothing was."""
        if not self._changes:
            return None
        changes, actor = _encode(list(self._changes.values())), _actor()
        self._changes.clear()
        said = _said(self._at, actor, self._verb, changes)
        return {"at": self._at, "actor": actor, "verb": self._verb, "changes": changes, "said": said}


def pages(read: Any, table: str) -> Iterator[list[Row]]:
    """The rows of a journalled table in pages, in the order of their keys.

    Args:
        read: What takes SQL and bound values and gives rows, such as `Transaction.all`. Any: it takes any keywords.
        table: The table.
    """
    order = ", ".join(KEYS[table])
    after, bound = "", dict[str, Any]()
    while page := read(f"SELECT * FROM {table} {after} ORDER BY {order} LIMIT {_PAGE}", **bound):
        yield page
        bound = {column: _bindable(page[-1][column]) for column in KEYS[table]}
        names = [f":{name}" if isinstance(value, int) else f"CAST(:{name} AS TEXT)" for name, value in bound.items()]
        after = f"WHERE ({order}) > ({', '.join(names)})"


def _bindable(value: int | str) -> int | str | bytes:
    """A value of a key, to be bound once more: text as bytes where it was no UTF-8."""
    if isinstance(value, str) and not value.isascii():
        data = value.encode("utf-8", "surrogateescape")
        return value if data.decode("utf-8", "replace") == value else data
    return value


def _said(at: int, actor: str, verb: str, changes: str) -> str:
    return f"\n{at}\n{actor}\n{verb}\n{changes}"


def _actor() -> str:
    """Who writes: the user by the name that this machine has for it, or a server has proved, and the process."""
    asker = asking()
    return _user(os.getpid()) if asker is None else f"{asker.name}, {asker.owner}"


@cache
def _user(pid: int) -> str:
    import pwd  # late: not where there is none to write

    try:
        user = pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:  # a container may know its user by number alone
        user = f"user {os.geteuid()}"
    return f"{user}, {Owner.current()}"
