"""Whether the history is as it was written: the journal's chain, and each row beside its last entry."""
# ruff: noqa: S608 (only this package's own constants are put into SQL)

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

from ..errors import InputError
from ..progress import Progress, no_progress
from .database import Transaction
from .dialect import Row
from .journal import KEYS, LABELS, change_of, column_checksums, entry_hash, pages, row_key, row_values
from .operations import operation
from .rows import when
from .store import MetadataStore

HEAD_FORMAT: Final = "drivetrain-audit-head-v1"
_MOST = 1000  # findings that are kept: who changed everything is not listed row by row
_PAGE = 100  # entries, each of at most 1,000 changes

Kind = Literal["changed", "deleted", "inserted", "entry", "head"]


@dataclass(frozen=True)
class AuditHead:
    """Where the journal stood at a moment; kept elsewhere, it shows when what came before is cut off or written anew.

    Attributes:
        store: The hash of the first entry: which store it is of; "" where there was none.
        entries: How many entries there were.
        hash: The hash of the last one; "" where there was none.
        at: When it was taken, ISO 8601 in UTC, by the store's clock.
    """

    store: str
    entries: int
    hash: str
    at: str

    def to_json(self) -> bytes:
        """The head as a file holds it."""
        return json.dumps({"format": HEAD_FORMAT, **asdict(self)}, indent=2).encode() + b"\n"

    @classmethod
    def from_json(cls, data: bytes, path: Path) -> AuditHead:
        """The head that a file holds.

        Raises:
            InputError: It holds none.
        """
        try:
            body = json.loads(data)
            if body["format"] != HEAD_FORMAT:
                raise ValueError(f"its format is {body['format']!r:.40}")
            return cls(str(body["store"]), int(body["entries"]), str(body["hash"]), str(body["at"]))
        except (ValueError, LookupError, TypeError, RecursionError) as error:
            raise InputError(
                f"{path} is not the head of a journal ({error!s:.80})", fix="name a file of `drivetrain audit export`"
            ) from error


@dataclass(frozen=True)
class AuditFinding:
    """Something that was not written by way of the journal.

    Attributes:
        kind: "changed", "deleted" or "inserted", of a row; "entry", of the journal; "head", of its end.
        text: What it is, in a sentence.
        table: The row's table; "" where it is no row.
        key: Its primary key, with slashes between the columns.
        name: What a person knows it by, its uid or name, where it has one.
        columns: Those that were changed, where that can be told.
        entry: The number of the entry: the row's last one, or the one that is wrong.
        at: When that entry was written, ISO 8601 in UTC.
    """

    kind: Kind
    text: str
    table: str = ""
    key: str = ""
    name: str = ""
    columns: tuple[str, ...] = ()
    entry: int | None = None
    at: str = ""


@dataclass
class AuditReport:
    """What `verify` read and found.

    Attributes:
        entries: How many entries the journal has.
        hash: The hash of the last one.
        rows: How many rows were compared.
        findings: The first 1,000.
        count: How many there are.
    """

    entries: int = 0
    hash: str = ""
    rows: int = 0
    findings: list[AuditFinding] = field(default_factory=list)
    count: int = 0

    @property
    def sound(self) -> bool:
        """Whether nothing was found."""
        return not self.count

    def to_dict(self) -> dict[str, Any]:
        """The report as JSON."""
        return {"sound": self.sound, **asdict(self)}


@operation("reader")
def head(store: MetadataStore) -> AuditHead:
    """Where a store's journal stands."""
    ends = "SELECT number, hash FROM journal WHERE number = (SELECT {}(number) FROM journal)"
    with store._db.read() as tx:
        first, last = (tx.first(ends.format(end)) for end in ("min", "max"))
        at = when(tx.now).isoformat()
    if first is None or last is None:
        return AuditHead("", 0, "", at)
    return AuditHead(first["hash"], last["number"], last["hash"], at)


@operation("reader")
def verify(store: MetadataStore, known: AuditHead | None = None, *, progress: Progress = no_progress) -> AuditReport:
    """Compute the journal's chain anew, and compare each row with what its last entry says.

    It reads one moment of the store in pages, and keeps the last entry of each row in a file of its own that goes with
    it: so it takes as little memory for millions of rows.

    Args:
        store: The store; it may be opened readonly.
        known: A head that was kept elsewhere.
        progress: Called with the entries, then the rows that were read.
    """
    with store._db.read() as tx, tx.any_text(), closing(sqlite3.connect("")) as scratch:
        audit = _Audit(tx, scratch, progress)
        audit.read_journal(known)
        for table in KEYS:
            audit.compare(table)
        return audit.report


class _Audit:
    """One reading of a store: what its journal says of each row, in a file that goes with it, and what was found."""

    def __init__(self, tx: Transaction, scratch: sqlite3.Connection, progress: Progress) -> None:
        self.report = AuditReport()
        self._tx = tx
        self._progress = progress
        self._scratch = scratch
        scratch.execute(
            "CREATE TABLE last (entity TEXT, key TEXT, number INTEGER, state TEXT, name TEXT, checksums TEXT, "
            "PRIMARY KEY (entity, key)) WITHOUT ROWID"
        )

    def read_journal(self, known: AuditHead | None) -> None:
        """Follow the chain, and keep the last that is said of each row."""
        total = int(self._tx.all("SELECT count(*) AS n FROM journal")[0]["n"])
        report, first, at_head = self.report, "", ""
        for row in self._entries():
            number, expected = int(row["number"]), report.entries + 1
            if number > expected:
                self._gap(expected, number - 1)
            elif number < expected:
                self._wrong_entry(row, "no entry has this number")
                continue
            elif row["hash"] != entry_hash(report.hash, row["at"], row["actor"], row["verb"], row["changes"]):
                self._wrong_entry(row, "its hash does not follow from what it says and the entry before")
            self._keep(row)
            report.hash, report.entries = str(row["hash"]), number
            first = first or report.hash
            if known is not None and number == known.entries:
                at_head = report.hash
            self._progress(number, total, "entries")
        if known is not None:
            self._compare_head(known, first, at_head)

    def compare(self, table: str) -> None:
        """Compare the rows of a table with their last entries, and see that none of those is without a row."""
        matched = 0
        for page in pages(self._tx.all, table):
            for row in page:
                key = _key(table, row)
                last = self._last(table, key)
                if last is None or last.state is None:
                    self._row("inserted", table, key, last, row)
                    continue
                matched += 1
                if last.state != _state(change_of("update", table, row)):
                    self._row("changed", table, key, last, row)
            self.report.rows += len(page)
            self._progress(self.report.rows, None, "rows")
        there = "SELECT count(*) FROM last WHERE entity = ? AND state IS NOT NULL"
        if self._scratch.execute(there, (table,)).fetchone()[0] != matched:
            self._name_deleted(table)

    def _entries(self) -> Iterator[Row]:
        first = True
        after = 0
        while page := self._tx.all(
            f"SELECT * FROM journal {'' if first else 'WHERE number > :after'} ORDER BY number LIMIT {_PAGE}",
            **({} if first else {"after": after}),
        ):
            yield from page
            first, after = False, page[-1]["number"]

    def _keep(self, row: Row) -> None:
        try:
            changes = json.loads(row["changes"])
            self._scratch.executemany(
                "INSERT OR REPLACE INTO last VALUES (?, ?, ?, ?, ?, ?)",
                [(change[1], change[2], row["number"], _state(change), *_known_by(change)) for change in changes],
            )
        except (ValueError, TypeError, LookupError, sqlite3.Error, RecursionError):
            self._wrong_entry(row, "its changes cannot be read")

    def _last(self, table: str, key: str) -> _Last | None:
        columns = "SELECT number, state, name, checksums FROM last WHERE entity = ? AND key = ?"
        last = self._scratch.execute(columns, (table, key)).fetchone()
        return None if last is None else _Last(*last)

    def _name_deleted(self, table: str) -> None:
        """Name the rows of a table that are gone: those that remain when each row that is there is taken out."""
        for page in pages(self._tx.all, table):
            self._scratch.executemany(
                "UPDATE last SET state = NULL WHERE entity = ? AND key = ?",
                [(table, _key(table, row)) for row in page],
            )
        remaining = "SELECT key, number, state, name, checksums FROM last WHERE entity = ? AND state IS NOT NULL"
        for key, *last in self._scratch.execute(remaining, (table,)):
            self._row("deleted", table, key, _Last(*last), None)

    def _row(self, kind: Kind, table: str, key: str, last: _Last | None, row: Row | None) -> None:
        columns: tuple[str, ...] = ()
        if kind == "changed" and row is not None and last is not None:
            columns = _changed_columns(table, row, last)
        name = self._name(table, key, last, row)
        entry = None if last is None else self._tx.first("SELECT * FROM journal WHERE number = :n", n=last.number)
        what = {
            "changed": f"{', '.join(columns)} changed past the journal" if columns else "changed past the journal",
            "deleted": "deleted past the journal",
            "inserted": "inserted past the journal" if last is None else "inserted again past the journal",
        }[kind]
        said = f"; its last entry is {_said(entry)}" if entry else "; no entry tells of it"
        named = f"{table} {key} ({name})" if name not in {"", key} else f"{table} {key}"
        number, at = (None, "") if entry is None else (entry["number"], _time(entry["at"]))
        self._note(AuditFinding(kind, f"{named}: {what}{said}", table, key, name, columns, number, at))

    def _name(self, table: str, key: str, last: _Last | None, row: Row | None) -> str:
        if table in LABELS:
            return _text(row[LABELS[table]] if last is None and row is not None else last.name if last else "")
        of = "execution" if table == "event" else "context"
        linked = self._last(of, key.partition("/")[0])
        return f"{of} {linked.name}" if linked is not None else ""

    def _gap(self, first: int, last: int) -> None:
        which = f"entry {first} is" if first == last else f"entries {first} to {last} are"
        self._note(AuditFinding("entry", f"{which} missing: taken out of the journal", entry=first))

    def _wrong_entry(self, row: Row, why: str) -> None:
        text = f"entry {_said(row)}: {why}; it was changed, moved or put in"
        self._note(AuditFinding("entry", text, entry=row["number"], at=_time(row["at"])))

    def _compare_head(self, known: AuditHead, first: str, at_head: str) -> None:
        report = self.report
        if report.entries < known.entries:
            text = (
                f"entries {report.entries + 1} to {known.entries}, which were there at {known.at}, are missing: "
                "the end of the journal was cut off, or an older copy was put back"
            )
        elif at_head == known.hash:
            return
        elif first != known.store:
            text = f"the head of {known.at} is of another store, or the journal was written anew since"
        else:
            text = f"entry {known.entries} is not the one that was there at {known.at}: the journal was written anew"
        self._note(AuditFinding("head", text, entry=known.entries, at=known.at))

    def _note(self, finding: AuditFinding) -> None:
        self.report.count += 1
        if len(self.report.findings) < _MOST:
            self.report.findings.append(finding)


class _Last(NamedTuple):
    """What the last entry of a row says of it."""

    number: int
    state: str | None
    name: str | None
    checksums: str | None


def _state(change: Sequence[Any]) -> str | None:  # Any: JSON
    """How a row is from an entry on, as a text to compare; None where it is deleted."""
    state = change[3]
    return state if state is None or isinstance(state, str) else json.dumps(state)


def _known_by(change: Sequence[Any]) -> tuple[str | None, str | None]:  # Any: JSON
    return (_text(change[4]), json.dumps(change[5])) if len(change) > 5 else (None, None)


def _changed_columns(table: str, row: Row, last: _Last) -> tuple[str, ...]:
    before: list[object]
    now: Sequence[object]
    if table in LABELS:
        before, now = json.loads(last.checksums or "[]"), column_checksums(row_values(row))
        nothing = column_checksums([None])[0]
    else:
        before, now, nothing = json.loads(last.state or "[]"), row_values(row), None
    pairs = zip_longest(before, now, fillvalue=nothing)
    return tuple(name for name, (old, new) in zip(row.keys(), pairs, strict=False) if old != new)


def _key(table: str, row: Row) -> str:
    return _text(row_key(table, row))


def _text(value: object) -> str:
    """Text without the bytes that are no UTF-8, in a damaged or forged row."""
    return str(value).encode("utf-8", "backslashreplace").decode()


def _said(entry: Row) -> str:
    return _text(f"{entry['number']} ({entry['verb']} by {entry['actor']}, {_time(entry['at'])})")


def _time(microseconds: int) -> str:
    try:
        return when(microseconds).isoformat(timespec="seconds")
    except OverflowError:
        return f"{microseconds} µs"
