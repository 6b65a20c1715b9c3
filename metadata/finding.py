"""Pages of records that a filter fits, in the order of one of their fields."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final, Generic, Literal, TypeVar

from ..errors import InputError
from .database import Database
from .dialect import Dialect, Row
from .filters import Compiler, Field, Fields
from .lineage import closure_sql
from .records import SEARCH
from .rows import when

_Record = TypeVar("_Record", covariant=True)

_IN_CONTEXT: Final = (
    "EXISTS (SELECT 1 FROM {table} s JOIN context k ON k.id = s.context_id JOIN type q ON q.id = k.type_id "
    "WHERE s.{column} = {alias}.id AND q.kind = 'context' AND q.name = '{kind}' AND {{}})"
)


@dataclass(frozen=True)
class Page(Generic[_Record]):
    """Some of the records that fit.

    Attributes:
        records: In the order that was asked for.
        next: What `after` takes to go on behind the last of them; None where there are no more.
    """

    records: list[_Record]
    next: str | None


@dataclass(frozen=True)
class RecordQuery:
    """What is asked for.

    Attributes:
        where: A filter, see `filters`; all where empty.
        order: The field to sort by, the smallest first; with a - before it the largest. Records without it come last.
        limit: The records of a page.
        after: `next` of the page before.
    """

    where: str = ""
    order: str = "-id"
    limit: int = 50
    after: str | None = None


def _context_fields(table: str, column: str, alias: str, *more: str) -> dict[str, list[Field]]:
    return {
        kind: [Field("text", "k.name", within=_IN_CONTEXT.format(table=table, column=column, alias=alias, kind=kind))]
        for kind in ("pipeline", "run", "node", *more)
    }


ARTIFACT_FIELDS: Final[Fields] = {
    **{name: [Field("text", f"a.{name}")] for name in ("uid", "name", "uri", "fingerprint", "state")},
    **{name: [Field("number", f"a.{name}")] for name in ("id", "size")},
    "type": [Field("text", "t.name")],
    "created": [Field("time", "a.created_at")],
    "updated": [Field("time", "a.updated_at")],
    "property": [Field("json", "a.properties")],
    "metric": [Field("json", "a.properties", ("metrics",))],
    **_context_fields("attribution", "artifact_id", "a"),
}
EXECUTION_FIELDS: Final[Fields] = {
    **{name: [Field("text", f"e.{name}")] for name in ("uid", "name", "state", "error", "cache_key")},
    "id": [Field("number", "e.id")],
    "component": [Field("text", "t.name")],
    "created": [Field("time", "e.created_at")],
    "started": [Field("time", "e.started_at")],
    "finished": [Field("time", "e.finished_at")],
    "property": [Field("json", "e.properties")],
    "metric": [Field("json", "e.properties", ("metrics",))],
    **_context_fields("association", "execution_id", "e", SEARCH),
}


_OF_EXECUTIONS: Final = (
    "EXISTS (SELECT 1 FROM association s JOIN execution x ON x.id = s.execution_id WHERE s.context_id = c.id AND {})"
)
_OF_ARTIFACTS: Final = (
    "EXISTS (SELECT 1 FROM attribution s JOIN artifact z ON z.id = s.artifact_id WHERE s.context_id = c.id AND {})"
)


def execution_fields(abandoned: Iterable[int]) -> Fields:
    """What a filter of executions may name.

    Args:
        abandoned: The ids of those whose state is ABANDONED, whatever their record says.
    """
    if not (numbers := ", ".join(str(int(number)) for number in abandoned)):
        return EXECUTION_FIELDS
    state = f"CASE WHEN e.id IN ({numbers}) THEN 'ABANDONED' ELSE e.state END"
    return {**EXECUTION_FIELDS, "state": [Field("text", f"({state})")]}


def run_fields(dialect: Dialect, interrupted: Iterable[int]) -> Fields:
    """What a filter of runs may name.

    Args:
        dialect: How the database reads JSON.
        interrupted: The ids of those whose state is INTERRUPTED, whatever their record says.
    """
    by_bytes = dialect.by_bytes
    state = "c.properties ->> 'state'"
    if numbers := ", ".join(str(int(number)) for number in interrupted):
        state = f"CASE WHEN c.id IN ({numbers}) THEN 'INTERRUPTED' ELSE {state} END"
    return {
        "id": [Field("number", "c.id")],
        "run": [Field("text", "c.name")],
        "state": [Field("text", f"({state}){by_bytes}")],
        **{name: [Field("text", f"(c.properties ->> '{name}'){by_bytes}")] for name in ("pipeline", "note", "project")},
        "started": [Field("time", "c.created_at")],
        "changed": [Field("time", "c.updated_at")],
        "tag": [Field("json", "c.properties", ("tags",))],
        "parameter": [Field("json", dialect.as_json("(c.properties ->> 'parameters')"))],
        "metric": [
            Field("json", "x.properties", ("metrics",), _OF_EXECUTIONS),
            Field("json", "z.properties", ("metrics",), _OF_ARTIFACTS),
        ],
    }


def find(
    db: Database,
    select: str,
    alias: str,
    fields: Fields,
    read: Callable[[Row], _Record],
    query: RecordQuery,
    *,
    also: str = "",
    params: dict[str, Any] | None = None,
    lineage_of: Callable[[str], int] | None = None,
) -> Page[_Record]:
    """A page of records.

    Args:
        db: Where they are.
        select: The statement that gives them all, without its end.
        alias: The name of their table in it.
        fields: What a filter may name.
        read: Makes a record of a row.
        query: What is asked for.
        also: A condition besides the filter.
        params: What `select` and `also` bind.
        lineage_of: Gives the id of the artifact that `made_from` and `led_to` name.

    Raises:
        InputError: The filter, the order or `after` is not valid.
    """
    if query.limit < 1:
        raise InputError(f"a page holds 1 record or more, not {query.limit}", fix="give a larger limit")
    compiler = Compiler(fields, db.dialect, when(db.now()), _lineage_fields(alias, lineage_of))
    name, down = query.order.removeprefix("-"), query.order.startswith("-")
    key, bound = compiler.order(name)
    bound = {"limit": query.limit + 1, **{f"order_{name}": value for name, value in bound.items()}, **(params or {})}
    key = key.replace(":filter", ":order_filter")
    tests = [also] if also else []
    if query.where.strip():
        condition = compiler.compile(query.where)
        tests.append(condition.sql)
        bound |= condition.params
    sign, direction = ("<", "DESC") if down else (">", "ASC")
    if query.after is not None:
        value, number = _read_token(query.after, query.order)
        bound |= {"after_id": number}
        behind = f"{alias}.id {sign} :after_id"
        if value is None:
            tests.append(f"({key} IS NULL AND {behind})")
        else:
            bound |= {"after_value": value}
            tests.append(f"({key} IS NULL OR {key} {sign} :after_value OR ({key} = :after_value AND {behind}))")
    where = f" WHERE {' AND '.join(tests)}" if tests else ""
    sql = select.replace(" FROM", f", {key} AS order_key FROM", 1) + where
    # Whether there is a key comes first, so that what has none is last in both directions.
    rows = db.all(f"{sql} ORDER BY ({key} IS NULL), {key} {direction}, {alias}.id {direction} LIMIT :limit", **bound)
    if query.after is None and rows and rows[0]["order_key"] is None:  # what has a key comes first
        raise InputError(
            f"nothing that fits can be sorted by {name}: no record has a number there, and a text is not sorted by",
            fix="sort by another field, or ask for those that have it: `is not null`",
        )
    some, last = rows[: query.limit], rows[query.limit - 1 : query.limit]
    more = _token(query.order, last[0]["order_key"], last[0]["id"]) if len(rows) > query.limit else None
    return Page([read(row) for row in some], more)


def _lineage_fields(alias: str, lineage_of: Callable[[str], int] | None) -> dict[str, Callable[[str], tuple[str, int]]]:
    """What `made_from` and `led_to` become: SQL, and the id of the artifact that it binds as `artifact`."""
    if lineage_of is None:
        return {}
    start = lineage_of
    kind: Literal["artifact", "execution"] = "artifact" if alias == "a" else "execution"
    down = f"{alias}.id IN ({closure_sql('downstream', kind)})"
    up = f"{alias}.id IN ({closure_sql('upstream', kind)})"
    return {
        "made_from": lambda reference: (down, start(reference)),
        "led_to": lambda reference: (up, start(reference)),
    }


def _token(order: str, value: Any, number: int) -> str:
    return base64.urlsafe_b64encode(json.dumps([order, value, number]).encode()).decode()


def _read_token(token: str, order: str) -> tuple[Any, int]:
    try:
        of, value, number = json.loads(base64.urlsafe_b64decode(token.encode()))
        if of != order or not isinstance(number, int) or not isinstance(value, str | int | float | None):
            raise ValueError("it is of another order")
    except ValueError:
        raise InputError(
            f"{token!r:.80} is not where a page in the order of {order} ends", fix="give `next` of the page before"
        ) from None
    return value, number
