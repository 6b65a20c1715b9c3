"""Damage to bytes, texts, JSON values and SQLite files, as steps of a case. Places are fractions of any size."""

from __future__ import annotations

import copy
import json
import re
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from random import Random
from typing import Any

Step = list[Any]
Way = tuple[Any, ...]

ODD: tuple[Any, ...] = (
    None, True, False, -1, 0, 1, 2, 7, 2**31, 2**63, -(2**63), 10**30, 1.5, 1e300, -0.0, float("nan"), float("inf"), "",
    " ", "x", "b", "..", "../x", "/etc/passwd", "string", "float32", "int64", "(a+)+$", "^(é|a+)+$", "\x00", "\ud800",
    "ﬀ", "\x1b]0;owned\x07", "\u202egnp", "true", "null", "1e999", "9999-12-31T23:59:59Z", "-292277022-01-01", "%s{0}",
    "https://ann:T0KEN@host/x", [], {}, [[]], ["b"], [10**6, 10**6], {"a": None}, [None] * 50, "y" * 100_000,
    "9" * 5000,
)  # fmt: skip
"""Values that somebody forgot."""

TOKENS = (
    "", " ", "\n", "\t", "\r", ":", ": ", "- ", "[", "]", "{", "}", "&a ", "*a", "<<: *a", "!x ",
    "!!python/object:os.system ",
    "!!binary ", "| ", "> ", "'", '"', "#", "%", "@", "`", "?", ",", "---\n", "...\n", "\x00", "\ufeff", "\u2028",
    "\x85", "\ud800", "é", "0x1f", "0o17", "1_000", "1e999", "-.inf", ".nan", "2013-01-01", "9999-12-31", "12:30:45",
    "null", "~", "yes", "(a+)+$", "9" * 400, "-" * 400, "x" * 70_000,
)  # fmt: skip
"""What means something to a reader of YAML, JSON, CSV or text protobuf."""


def place(dice: Random) -> float:
    """A place as a fraction of whatever there is."""
    return round(dice.random(), 9)


def at(fraction: float, size: int) -> int:
    """The index that a fraction means, where there are so many."""
    return min(int(fraction * size), size - 1)


# --- bytes


def draw_bytes(dice: Random) -> Step:
    """A step that damages bytes."""
    where = place(dice)
    return dice.choice([
        ["flip", where, dice.randrange(8)],
        ["flip", where, dice.randrange(8)],
        ["cut", where],
        ["drop", where, dice.choice((1, 2, 8, 100, 4096))],
        ["double", where, dice.choice((1, 8, 100, 4096))],
        ["fill", where, dice.choice((1, 4, 8, 64, 4096)), dice.choice((0, 0xFF, 0x7F, 0x20))],
        ["lie", where, dice.choice((1, 2, 4, 8)), dice.choice((0, 1)), dice.choice((0, 1))],
        ["append", dice.choice((1, 8, 4096))],
        ["swap", where, place(dice), dice.choice((1, 8, 512, 4096))],
    ])  # fmt: skip


def damage_bytes(data: bytes, step: Step) -> bytes:
    """The bytes after a step."""
    if not data:
        return data
    match step:
        case ["flip", where, bit]:
            i = at(where, len(data))
            return data[:i] + bytes([data[i] ^ 1 << bit]) + data[i + 1 :]
        case ["cut", where]:
            return data[: at(where, len(data))]
        case ["drop", where, count]:
            i = at(where, len(data))
            return data[:i] + data[i + count :]
        case ["double", where, count]:
            i = at(where, len(data))
            return data[: i + count] + data[i:]
        case ["fill", where, count, value]:
            i = at(where, len(data))
            return data[:i] + bytes([value]) * min(int(count), len(data) - i) + data[i + count :]
        case ["lie", where, width, negative, big_endian]:  # the largest number of its width, or the smallest
            i = at(where, len(data))
            lie = b"\xff" * (int(width) - 1) + (b"\x80" if negative else b"\x7f")
            return data[:i] + (lie[::-1] if big_endian else lie) + data[i + width :]
        case ["append", count]:
            return data + bytes(count)
        case ["swap", start, other, count]:
            i, j = sorted((at(start, len(data)), at(other, len(data))))
            count = min(count, j - i, len(data) - j)
            middle, rest = data[i + count : j], data[j + count :]
            return data[:i] + data[j : j + count] + middle + data[i : i + count] + rest
    return data


# --- texts


def draw_text(dice: Random) -> Step:
    """A step that edits a text by lines and tokens."""
    where = place(dice)
    return dice.choice([
        ["insert", where, dice.choice(TOKENS)],
        ["insert", where, dice.choice(TOKENS)],
        *[["value", where, dice.choice(TOKENS)]] * 4,
        *[["word", where, place(dice)]] * 3,
        ["drop line", where],
        ["double line", where],
        ["move line", where, place(dice)],
        ["indent", where, dice.choice((-4, -2, -1, 1, 2, 4))],
        ["drop", where, dice.choice((1, 2, 10))],
        ["nest", where, dice.choice("[{("), dice.choice((60, 300, 900, 20_000))],
        ["aliases", dice.choice((2, 9, 30)), dice.choice((2, 9))],
        ["repeat", where, dice.choice((100, 3000))],
    ])  # fmt: skip


LARGEST = 4_000_000  # characters: beyond, steps that repeat do nothing


def edit_text(text: str, step: Step) -> str:
    """The text after a step."""
    lines = text.splitlines(keepends=True) or [""]
    match step:
        case ["insert", where, token]:
            i = at(where, len(text) + 1)
            return f"{text[:i]}{token}{text[i:]}"
        case ["value", where, token]:  # what stands behind a colon
            i = at(where, len(lines))
            key, colon, _ = lines[i].partition(":")
            lines[i] = f"{key}{colon} {token}\n"
        case ["word", where, source]:  # one word in the place of another
            words = list(re.finditer(r"[\w.%^$]+", text))
            if not words:
                return text
            word, other = words[at(where, len(words))], words[at(source, len(words))]
            return text[: word.start()] + other.group() + text[word.end() :]
        case ["drop line", where]:
            del lines[at(where, len(lines))]
        case ["double line", where]:
            i = at(where, len(lines))
            lines.insert(i, lines[i])
        case ["move line", where, to]:
            line = lines.pop(at(where, len(lines)))
            lines.insert(at(to, len(lines) + 1), line)
        case ["indent", where, count]:
            i = at(where, len(lines))
            lines[i] = " " * count + lines[i] if count > 0 else lines[i][min(-count, len(lines[i]) - 1) :]
        case ["drop", where, count]:
            i = at(where, len(text) + 1)
            return text[:i] + text[i + count :]
        case ["nest", where, bracket, depth]:
            i = at(where, len(text) + 1)
            return f"{text[:i]}{bracket * depth}{text[i:]}"
        case ["aliases", levels, width]:
            bomb = "a0: &a0 [x]\n" + "".join(
                f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * width)}]\n" for n in range(1, levels)
            )
            return bomb + text + f"\nlast: *a{levels - 1}\n"
        case ["repeat", where, count]:
            i = at(where, len(lines))
            lines[i : i + 1] = [lines[i]] * min(count, max(LARGEST - len(text), 0) // (len(lines[i]) + 1) + 1)
    return "".join(lines)


def as_bytes(text: str) -> bytes:
    """A text as a file holds it, with what is no character as it would be spelled."""
    return text.encode("utf-8", "surrogatepass")


# --- JSON values

TREES = frozenset({"set", "delete", "twice", "rename", "copy", "scale", "wrap"})
DEEP = 20_000  # frames: what mutates values that are nested deeply must not trip over its own work


@contextmanager
def _deep() -> Iterator[None]:
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(DEEP)
    try:
        yield
    finally:
        sys.setrecursionlimit(before)


def to_text(value: Any) -> str:
    """A value as JSON, however deeply it is nested."""
    with _deep():
        return json.dumps(value)


def draw_tree(dice: Random) -> Step:
    """A step that changes a node of a JSON value."""
    where = place(dice)
    odd = dice.randrange(len(ODD))
    return dice.choice([
        ["set", where, odd],
        ["set", where, odd],
        ["delete", where],
        ["twice", where],
        ["rename", where, odd],
        ["copy", where, place(dice)],
        ["scale", where, dice.choice((-1, 0, 2, 10**9)), dice.choice((0, 1, -1))],
        ["wrap", where, dice.choice((1, 1, 50, 900))],
    ])  # fmt: skip


def ways(value: Any, before: Way = ()) -> Iterator[Way]:
    """The way to each node below a JSON value."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield (*before, key)
        yield from ways(item, (*before, key))


def change_tree(value: Any, step: Step) -> Any:
    """The JSON value after a step; changed in place."""
    with _deep():
        return _change_tree(value, step)


def _change_tree(value: Any, step: Step) -> Any:
    all_ways = list(ways(value))
    if not all_ways:
        return value
    *way, last = all_ways[at(step[1], len(all_ways))]
    holder = value
    for key in way:
        holder = holder[key]
    match step:
        case ["set", _, odd]:
            holder[last] = copy.deepcopy(ODD[odd])  # later steps change it in place
        case ["delete", _]:
            del holder[last]
        case ["twice", _] if isinstance(holder, list):
            holder.insert(last, holder[last])
        case ["rename", _, odd] if isinstance(holder, dict):
            holder[str(ODD[odd])] = holder.pop(last)
        case ["copy", _, source]:
            other = value
            for key in all_ways[at(source, len(all_ways))]:
                other = other[key]
            text = json.dumps(other)
            holder[last] = json.loads(text) if len(text) < 20_000 else None
        case ["scale", _, factor, more] if isinstance(holder[last], int | float):
            with suppress(OverflowError):
                holder[last] = holder[last] * factor + more
        case ["wrap", _, depth]:
            for _ in range(depth):
                holder[last] = [holder[last]]
    return value


# --- SQLite files

CELLS = frozenset({"cell", "text", "blob", "other", "row", "drop table", "drop index", "version", "column"})


def draw_cell(dice: Random) -> Step:
    """A step that changes a SQLite file by SQL: cells, rows, tables, indexes, its schema."""
    odd = dice.randrange(len(ODD))
    return dice.choice([
        ["cell", place(dice), place(dice), place(dice), odd],
        ["cell", place(dice), place(dice), place(dice), odd],
        ["text", place(dice), place(dice), place(dice), place(dice), dice.choice(TOKENS)],
        ["blob", place(dice), place(dice), place(dice), dice.choice(("ff00fe", "c3", "eda080", "00", ""))],
        ["other", place(dice), place(dice), place(dice), place(dice)],
        ["row", place(dice), place(dice)],
        ["drop table", place(dice)],
        ["drop index", place(dice)],
        ["version", dice.choice((-1, 0, 1, 2, 10**6, 2**31 - 1))],
        ["column", place(dice), place(dice)],
    ])  # fmt: skip


def change_cell(connection: sqlite3.Connection, step: Step) -> None:
    """Carry a step out; one that the schema refuses, or that is not SQL, does nothing."""
    if step[0] not in CELLS:
        return
    with suppress(sqlite3.Error, OverflowError, UnicodeEncodeError, IndexError):
        _change_cell(connection, step)
        connection.commit()
    connection.rollback()


def _change_cell(connection: sqlite3.Connection, step: Step) -> None:
    tables = _names(connection, "table")
    if step[0] == "version":
        connection.execute(f"PRAGMA user_version = {step[1]}")
        return
    if step[0] == "drop index":
        indexes = _names(connection, "index")
        connection.execute(f'DROP INDEX "{indexes[at(step[1], len(indexes))]}"')
        return
    table = tables[at(step[1], len(tables))]
    if step[0] == "drop table":
        connection.execute(f'DROP TABLE "{table}"')
        return
    columns = [row[1] for row in connection.execute(f'PRAGMA table_info("{table}")')]
    if step[0] == "column":
        connection.execute(f'ALTER TABLE "{table}" DROP COLUMN "{columns[at(step[2], len(columns))]}"')
        return
    rows = [row[0] for row in connection.execute(f'SELECT rowid FROM "{table}"')]
    row = rows[at(step[2], len(rows))]
    if step[0] == "row":
        connection.execute(f'DELETE FROM "{table}" WHERE rowid = ?', (row,))
        return
    column = columns[at(step[3], len(columns))]
    (before,) = connection.execute(f'SELECT "{column}" FROM "{table}" WHERE rowid = ?', (row,)).fetchone()
    value: Any = None
    match step:
        case ["cell", _, _, _, odd]:
            value = ODD[odd] if not isinstance(ODD[odd], list | dict) else json.dumps(ODD[odd])
        case ["text", _, _, _, where, token]:
            value = edit_text(str(before), ["insert", where, token])
        case ["blob", _, _, _, digits]:
            connection.execute(f'UPDATE "{table}" SET "{column}" = CAST(x\'{digits}\' AS TEXT) WHERE rowid = ?', (row,))
            return
        case ["other", _, _, _, source]:
            source_row = rows[at(source, len(rows))]
            (value,) = connection.execute(f'SELECT "{column}" FROM "{table}" WHERE rowid = ?', (source_row,)).fetchone()
    connection.execute(f'UPDATE "{table}" SET "{column}" = ? WHERE rowid = ?', (value, row))


def _names(connection: sqlite3.Connection, kind: str) -> list[str]:
    rows = connection.execute("SELECT name FROM sqlite_master WHERE type = ? AND name NOT LIKE 'sqlite_%'", (kind,))
    return sorted(row[0] for row in rows)
