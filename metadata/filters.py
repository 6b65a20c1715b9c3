"""Filters: `state = 'FAILED' and metric.auc > 0.9 and started > -7d`, read here and carried out by the database.

A filter is an expression of comparisons with `and`, `or`, `not` and parentheses. Values are bound, never put into SQL;
names must be those of the fields, or follow `property.`, `metric.`, `parameter.` or `tag.`. What a record does not have
equals nothing and differs from nothing, as in SQL: `is null` asks for it.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Literal, TypeAlias

from ..errors import InputError, suggest
from .dialect import Dialect, JsonKind
from .rows import microseconds

Kind = Literal["text", "number", "time", "json"]
FilterValue: TypeAlias = "str | int | float | bool | timedelta"

_TOKEN: Final = re.compile(
    r"\s*(?:(?P<text>'(?:[^']|'')*')|(?P<length>-\d{1,9}[smhdw]\b)|(?P<number>-?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)"
    r"|(?P<name>[^\W\d]\w*(?:\.(?:\w[\w-]*|\"(?:[^\"]|\"\")+\"))*)|(?P<operator><=|>=|!=|<>|==|[=<>(),]))"
)
_PARTS: Final = re.compile(r'"(?:[^"]|"")+"|[^."]+')
_PLAIN: Final = re.compile(r"\w{1,100}", re.ASCII)
_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_COMPARISONS: Final = ("=", "!=", "<", "<=", ">", ">=")
_DEEPEST: Final = 100
"""Parentheses and `not` within each other: the stack has an end."""
_LONGEST_PATTERN: Final = 10_000
"""Characters: SQLite takes 50,000 bytes."""


@dataclass(frozen=True)
class Field:
    """What a name stands for.

    Attributes:
        kind: What it is compared with; "json" with whatever type its value has.
        sql: The expression; of a "json" field the column, in which its path leads.
        path: Of a "json" field, where in the column what follows the name's first part begins.
        within: SQL around the condition, with `{}` where it stands: `EXISTS (… AND {})`.
    """

    kind: Kind
    sql: str
    path: tuple[str, ...] = ()
    within: str = "{}"


@dataclass(frozen=True)
class Condition:
    """A filter as SQL.

    Attributes:
        sql: A boolean expression.
        params: What it binds.
    """

    sql: str
    params: Mapping[str, Any]


Fields: TypeAlias = Mapping[str, Sequence[Field]]
"""By name, or by the beginning of dotted names ("property"): any of several fields may fulfil a comparison."""


class Compiler:
    """Turns the filters of one kind of record into SQL.

    Args:
        fields: What may be named.
        dialect: How the database reads JSON.
        now: The time that lengths such as `-7d` count from.
        resolve: The fields that are compared with an artifact (`made_from`, `led_to`): what gives SQL for its URI or
            uid, and the id that this binds as `artifact`.
    """

    def __init__(
        self,
        fields: Fields,
        dialect: Dialect,
        now: datetime,
        resolve: Mapping[str, Callable[[str], tuple[str, int]]] | None = None,
    ) -> None:
        self._fields = fields
        self._dialect = dialect
        self._now = now
        self._resolve = dict(resolve or {})
        self._params: dict[str, Any] = {}
        self._text = ""
        self._tokens: list[tuple[str, str, int]] = []
        self._index = 0
        self._negates = False

    def compile(self, text: str) -> Condition:
        """A filter as SQL.

        Raises:
            InputError: It is no filter; the message names the character.
        """
        self._text, self._index, self._params = text, 0, {}
        self._tokens = _tokens(text)
        self._negates = any(kind == "name" and word.lower() == "not" for kind, word, _ in self._tokens)
        sql = self._either(0)
        if self._index < len(self._tokens):
            raise self._error("`and` or `or` is wanted", self._index)
        return Condition(sql, self._params)

    def order(self, name: str) -> tuple[str, dict[str, Any]]:
        """The SQL that a field is sorted by, and what it binds.

        Raises:
            InputError: Nothing is sorted by it.
        """
        self._text, self._params = name, {}
        [(kind, field_name, _), *more] = _tokens(name) or [("", "", 0)]
        if kind != "name" or more:
            raise InputError(f"{name!r:.80} is not a field to sort by", fix="name one, such as created or metric.auc")
        field, path = self._field(field_name, 0)[0]
        if field.within != "{}":
            raise InputError(f"nothing is sorted by {field_name}", fix="sort by a field of the record itself")
        if field.kind != "json":
            return field.sql, {}
        return self._json(field, path, "number"), self._params

    def index(self, name: str) -> dict[str, str]:
        """What an index of a JSON field is made of: SQL by the kind of value that it finds.

        Raises:
            InputError: No index is made of it.
        """
        self._text, self._params = name, {}
        [(kind, field_name, _), *more] = _tokens(name)
        field, path = self._field(field_name, 0)[0] if kind == "name" and not more else (Field("text", ""), ())
        plain = all(map(_PLAIN.fullmatch, (*field.path, *path)))
        if field.kind != "json" or field.within != "{}" or not plain:
            raise InputError(f"no index is made of {name!r:.80}", fix="name a property or a metric, as property.span")
        column = replace(field, sql=field.sql.partition(".")[2])
        kinds: tuple[JsonKind, ...] = ("number", "text")
        return {each: self._json(column, path, each) for each in kinds}

    def _either(self, depth: int) -> str:
        parts = [self._all(depth)]
        while self._keyword("or"):
            parts.append(self._all(depth))
        return parts[0] if len(parts) == 1 else f"({' OR '.join(parts)})"

    def _all(self, depth: int) -> str:
        parts = [self._not(depth)]
        while self._keyword("and"):
            parts.append(self._not(depth))
        return parts[0] if len(parts) == 1 else f"({' AND '.join(parts)})"

    def _not(self, depth: int) -> str:
        if depth > _DEEPEST:
            raise self._error("it is nested too deeply", self._index)
        if self._keyword("not"):
            # What is unknown stays unknown: of two comparisons that a record cannot answer, neither holds.
            return f"(NOT {self._not(depth + 1)})"
        if self._operator("("):
            sql = self._either(depth + 1)
            if not self._operator(")"):
                raise self._error("`)` is wanted", self._index)
            return sql
        return self._comparison()

    def _comparison(self) -> str:
        start = self._index
        kind, name, _ = self._next("a field is wanted")
        if kind != "name":
            raise self._error("a field is wanted", start)
        if self._keyword("is"):
            negated = self._keyword("not")
            if not self._keyword("null"):
                raise self._error("`null` is wanted", self._index)
            present = self._any(name, start, lambda field, path: self._present(field, path))
            return present if negated else f"(NOT {present})"
        negated = self._keyword("not")
        if self._keyword("in"):
            values = self._values()
            parts = [self._compared(name, "=", value, start) for value in values]
            return f"({'NOT ' if negated else ''}({' OR '.join(parts)}))"
        if self._keyword("like"):
            value = self._value()
            if not isinstance(value, str):
                raise self._error("a text in quotes is wanted", self._index - 1)
            if len(value) > _LONGEST_PATTERN:
                raise self._error(f"a pattern has {_LONGEST_PATTERN:,} characters at most", self._index - 1)
            like = self._compared(name, "LIKE", value, start)
            return f"(NOT {like})" if negated else like
        if negated:
            raise self._error("`in` or `like` is wanted", self._index)
        kind, operator, _ = self._next("=, !=, <, <=, > or >= is wanted")
        operator = {"<>": "!=", "==": "="}.get(operator, operator)
        if kind != "operator" or operator not in _COMPARISONS:
            raise self._error("=, !=, <, <=, > or >= is wanted", self._index - 1)
        value = self._value()
        if name in self._resolve:
            return self._lineage(name, operator, value, start)
        return self._compared(name, operator, value, start)

    def _compared(self, name: str, operator: str, value: FilterValue, start: int) -> str:
        """A comparison: true, false, or unknown (NULL) where the record has nothing to compare.

        `EXISTS` is never unknown, and of several fields one may be though another is false. That makes a difference
        below a `not` alone.
        """
        holds = self._any(name, start, self._compare(operator, value, start))
        fields = self._field(name, start)
        if not self._negates or (len(fields) == 1 and fields[0][0].within == "{}"):
            return holds
        kind = _json_kind(value)
        known = self._any(name, start, lambda field, path: self._present(field, path, kind))
        return f"CASE WHEN {holds} THEN TRUE WHEN {known} THEN FALSE END"

    def _any(self, name: str, start: int, condition: Callable[[Field, tuple[str, ...]], str]) -> str:
        """A condition on whichever of a name's fields fulfils it."""
        parts = [field.within.replace("{}", condition(field, path)) for field, path in self._field(name, start)]
        return parts[0] if len(parts) == 1 else f"({' OR '.join(parts)})"

    def _field(self, name: str, start: int) -> list[tuple[Field, tuple[str, ...]]]:
        head, *rest = _parts(name)
        fields = self._fields.get(head)
        takes_path = fields is not None and fields[0].kind == "json"
        if fields is None or takes_path != bool(rest):
            known = [f"{each}.NAME" if fields[0].kind == "json" else each for each, fields in self._fields.items()]
            wanted = f"{head} wants a name after a dot" if takes_path else f"there is no field {name!r:.80}"
            raise self._error(wanted, start, suggest(name, [*known, *self._resolve], "name"))
        return [(field, tuple(rest)) for field in fields]

    def _compare(self, operator: str, value: FilterValue, start: int) -> Callable[[Field, tuple[str, ...]], str]:
        def compared(field: Field, path: tuple[str, ...]) -> str:
            if field.kind == "time":
                return f"{field.sql} {operator} :{self._bind(self._moment(value, start))}"
            if isinstance(value, timedelta):
                raise self._error("a length of time is compared with a time", start)
            if field.kind == "text":
                if not isinstance(value, str):
                    raise self._error("a text in quotes is wanted", start, "write e.g. state = 'FAILED'")
                return self._text_compared(field.sql, operator, value)
            if field.kind == "number":
                if isinstance(value, str | bool):
                    raise self._error("a number is wanted", start)
                return f"{field.sql} {operator} :{self._bind(float(value))}"
            kind = _json_kind(value)
            bound = ("true" if value else "false") if isinstance(value, bool) else value
            reads = self._json(field, path, kind)
            if isinstance(bound, str):
                return self._text_compared(reads, operator, bound)
            return f"{reads} {operator} :{self._bind(float(bound))}"

        return compared

    def _text_compared(self, sql: str, operator: str, value: str) -> str:
        bound = self._bind(value)
        return self._dialect.like(sql, bound) if operator == "LIKE" else f"{sql} {operator} :{bound}"

    def _present(self, field: Field, path: tuple[str, ...], kind: JsonKind = "any") -> str:
        if field.kind == "json":
            return f"{self._json(field, path, kind)} IS NOT NULL"
        return f"{field.sql} IS NOT NULL"

    def _json(self, field: Field, path: tuple[str, ...], kind: JsonKind) -> str:
        """SQL for a value in a JSON field; its path is quoted where its names are plain, for indexes, else bound."""
        names = tuple(unicodedata.normalize("NFC", name) for name in (*field.path, *path))
        column, spelled = field.sql, self._dialect.json_path(names)
        if spelled is None:
            column, path_sql = f"json_within({column}, :{self._bind(json.dumps(names))})", "'$'"
        else:
            path_sql = f"'{spelled}'" if all(map(_PLAIN.fullmatch, names)) else f":{self._bind(spelled)}"
        return self._dialect.json_value(column, path_sql, kind)

    def _lineage(self, name: str, operator: str, value: FilterValue, start: int) -> str:
        if operator != "=" or not isinstance(value, str):
            raise self._error(f"{name} takes = and a text in quotes: an artifact's URI or uid", start)
        sql, bound = self._resolve[name](value)
        return sql.replace(":artifact", f":{self._bind(bound)}")

    def _moment(self, value: FilterValue, start: int) -> int:
        if isinstance(value, timedelta):
            return microseconds(self._now + value)
        if isinstance(value, str):
            try:
                moment = datetime.fromisoformat(value)
            except ValueError:
                raise self._error(f"{value!r} is not a time", start, "write e.g. '2026-11-01', or -7d") from None
            return microseconds(moment if moment.tzinfo else moment.replace(tzinfo=UTC))
        raise self._error("a time is wanted", start, "write e.g. '2026-11-01', or -7d for the last week")

    def _values(self) -> list[FilterValue]:
        if not self._operator("("):
            raise self._error("`(` is wanted", self._index)
        values = [self._value()]
        while self._operator(","):
            values.append(self._value())
        if not self._operator(")"):
            raise self._error("`,` or `)` is wanted", self._index)
        return values

    def _value(self) -> FilterValue:
        kind, text, _ = self._next("a value is wanted")
        if kind == "text":
            value = text[1:-1].replace("''", "'")
            if "\0" in value:
                raise self._error("a text holds no NUL", self._index - 1)
            return unicodedata.normalize("NFC", value)  # as names and properties are stored
        if kind == "length":
            try:
                length = timedelta(seconds=int(text[1:-1]) * _UNITS[text[-1]])
                self._now - length  # whether there is such a time
            except OverflowError:
                raise self._error("it goes back beyond the year 1", self._index - 1) from None
            return -length
        if kind == "number":
            return float(text)
        if kind == "name" and text.lower() in ("true", "false"):
            return text.lower() == "true"
        raise self._error("a value is wanted", self._index - 1, "put a text into single quotes: 'FAILED'")

    def _bind(self, value: Any) -> str:
        name = f"filter{len(self._params)}"
        self._params[name] = value
        return name

    def _next(self, wanted: str) -> tuple[str, str, int]:
        if self._index >= len(self._tokens):
            raise self._error(wanted, self._index)
        self._index += 1
        return self._tokens[self._index - 1]

    def _keyword(self, word: str) -> bool:
        return self._take("name", word)

    def _operator(self, sign: str) -> bool:
        return self._take("operator", sign)

    def _take(self, kind: str, text: str) -> bool:
        if self._index < len(self._tokens):
            token, spelled, _ = self._tokens[self._index]
            if token == kind and spelled.lower() == text:
                self._index += 1
                return True
        return False

    def _error(self, message: str, index: int, fix: str | None = None) -> InputError:
        at = self._tokens[index][2] if index < len(self._tokens) else len(self._text)
        return _error(self._text, at, message, fix)


def dotted_names(text: str) -> dict[str, list[str]]:
    """The names with a dot in a filter or an order, as they are spelled: `{"metric.auc": ["metric", "auc"]}`."""
    names = (word for kind, word, _ in (_tokens(text) if text.strip() else ()) if kind == "name")
    return {name: parts for name in names if len(parts := _parts(name)) > 1}


def _parts(name: str) -> list[str]:
    return [part[1:-1].replace('""', '"') if part.startswith('"') else part for part in _PARTS.findall(name)]


def _json_kind(value: FilterValue) -> JsonKind:
    """The kind of JSON values that a value is compared with."""
    return "boolean" if isinstance(value, bool) else "text" if isinstance(value, str) else "number"


def _error(text: str, at: int, message: str, fix: str | None = None) -> InputError:
    where = f"at character {at + 1}, {text[at : at + 20]!r}" if at < len(text) else "at its end"
    return InputError(f"the filter {text!r:.200}: {message}, {where}", fix=fix or "see docs/finding.md")


def _tokens(text: str) -> list[tuple[str, str, int]]:
    """The tokens of a filter: kind, spelling and where it begins."""
    tokens: list[tuple[str, str, int]] = []
    at = 0
    while text[at:].strip():
        match = _TOKEN.match(text, at)
        if match is None or match.lastgroup is None:
            start = at + len(text[at:]) - len(text[at:].lstrip())
            if text[start] == '"':
                raise _error(text, start, "this is not understood", "put texts in single quotes: 'FAILED'")
            unclosed = text[start] == "'"
            raise _error(text, start, "a text has no closing '" if unclosed else "this is not understood")
        tokens.append((match.lastgroup, match[match.lastgroup], match.start(match.lastgroup)))
        at = match.end()
    if not tokens:
        raise InputError("the filter is empty", fix="write e.g. state = 'FAILED'")
    return tokens
