"""A Great Expectations suite as a schema: what a schema can express becomes its lines, the rest stays expectations.

Only what judges data alike is taken over; docs/expectations.md has the table. Where a line is already there, both must
hold: the stricter stays if the severities agree, else the expectation is left over.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, TypeVar

from ..schemas.checks import GX_SEVERITY, Expectation
from ..schemas.problems import feature_problems
from ..schemas.schema import ANOMALIES, SEVERITIES, Bool, Count, Feature, Range, Schema, Severity, Values
from .suite import Suite, read_suite

Kwargs = Mapping[str, Any]
_N = TypeVar("_N", bound=float)

_NOISE: Final = frozenset({"result_format", "catch_exceptions", "include_config", "auto", "profiler_config"})
_WORDS: Final[Mapping[str, Severity]] = {gx: word for word, gx in GX_SEVERITY.items()}
# Names that pandas, Spark and databases have for a type, in small letters and without a size.
_FAMILIES: Final = {
    name: family
    for family, names in {
        "int": "int int_ integer int8 int16 int32 int64 uint8 uint16 uint32 uint64 bigint smallint tinyint byteint "
        "long longtype integertype shorttype bytetype",
        "float": "float float_ float16 float32 float64 double doubletype floattype real",
        "string": "str string stringtype varchar nvarchar char text unicode",
        "bool": "bool bool_ boolean booleantype",
        "bytes": "bytes binary binarytype varbinary blob bytea",
        "timestamp": "timestamp timestamptype datetime datetime64 datetime64[ns] datetime64[us] datetime64[ms]",
        "date": "date datetype",
    }.items()
    for name in names.split()
}
_ANY_OBJECT: Final = frozenset({"object", "object_", "o", "dtype('o')"})  # text in older pandas, and all else


class _LeftOverError(Exception):
    """The schema cannot express the expectation."""


def schema_from_suite(
    suite: Suite | Mapping[str, Any] | Path | str, base: Schema | None = None
) -> tuple[Schema, tuple[Expectation, ...]]:
    """A schema of what a suite demands.

    Args:
        suite: From `read_suite`, or what that takes.
        base: A schema to add to, such as one inferred: the data must meet both; None: of a suite that does not close
            the set of columns, a new one is only an INFO.

    Returns:
        The schema, and those of the suite's expectations that it cannot express; they also stand in its
        `expectations`, and `check_expectations` decides them.

    Raises:
        InputError: It is not a suite.
    """
    plain_suite = suite if isinstance(suite, Suite) else read_suite(suite)
    draft = _SchemaDraft(plain_suite, base)
    left = dict(enumerate(plain_suite.expectations))
    for index, expectation in sorted(left.items(), key=lambda item: _turn(item[1])):
        if draft.take(expectation):
            del left[index]
    rest = tuple(left[index] for index in sorted(left))
    return draft.schema(rest), rest


def _turn(expectation: Expectation) -> int:
    """The order of rules: types first, as the meaning of a range depends on them; a closed set of columns last."""
    turns = {"expect_column_to_exist": 1, "expect_table_columns_to_match_set": 3}
    return 0 if "type" in expectation.type.split("_") else turns.get(expectation.type, 2)


class _SchemaDraft:
    """A schema to which expectations are added one by one.

    Attributes:
        low: Fewest rows.
        high: Most rows.
        ours: Whether a schema wrote the suite, so that its expectations mean what they meant there.
        closed: Whether a column that the schema does not have is an anomaly.
    """

    def __init__(self, suite: Suite, base: Schema | None) -> None:
        self.name, self.base = suite.name, base or Schema()
        self.low, self.high = self.base.min_rows, self.base.max_rows
        self.severity: dict[str, Severity] = dict(self.base.severity)
        self.features = {feature.name: feature for feature in self.base.features}
        written = suite.meta.get("drivetrain", {})
        columns = written.get("columns") if isinstance(written, Mapping) else None
        self.ours = isinstance(columns, Mapping)  # a schema wrote it, so its lines mean what they meant there
        self.closed = self.ours or base is not None
        for name, kind in columns.items() if isinstance(columns, Mapping) else ():
            self.features.setdefault(name, Feature(name, kind))
        named = [
            expectation.kwargs.get("column_set") or [expectation.kwargs.get("column")]
            for expectation in suite.expectations
        ]
        later = [name for names in named for name in names if isinstance(name, str)]
        self.order = list(dict.fromkeys([*self.features, *later]))

    def schema(self, rest: tuple[Expectation, ...]) -> Schema:
        """The schema so far; its columns are in the order of the base, then of the suite."""
        if not self.closed:
            self.severity.setdefault("SCHEMA_NEW_COLUMN", "INFO")
        features = tuple(self.features[name] for name in self.order if name in self.features)
        return replace(
            self.base, features=features, min_rows=self.low, max_rows=self.high, severity=self.severity,
            expectations=(*self.base.expectations, *rest),
        )  # fmt: skip

    def take(self, expectation: Expectation) -> bool:
        """Add an expectation to the schema; False, and nothing changed, where the schema cannot express it."""
        rule = _RULES.get(expectation.type)
        arguments = expectation.kwargs.items()
        kwargs = {key: value for key, value in arguments if not (key in _NOISE or value is None or value is False)}
        if kwargs.get("mostly") == 1:
            del kwargs["mostly"]
        if rule is None or set(kwargs) - rule[1]:
            return False
        # A rule may fail halfway, so what it has changed by then is taken back.
        before = dict(self.features), dict(self.severity), self.low, self.high, self.closed
        try:
            return not rule[0](self, kwargs, expectation)
        except _LeftOverError:
            self.features, self.severity, self.low, self.high, self.closed = before
            return False

    def feature(self, kwargs: Kwargs) -> Feature:
        name = kwargs.get("column")
        if not isinstance(name, str):
            raise _LeftOverError
        return self.features.get(name) or Feature(name)

    def put(
        self, feature: Feature, expectation: Expectation, line: str, *anomalies: str, filled: bool = False, **lines: Any
    ) -> None:
        """Set lines of a feature, all with the severity of the expectation.

        Args:
            feature: As it was.
            expectation: Where it comes from.
            line: The evidence.
            anomalies: The anomalies of data that does not meet the lines.
            filled: Whether the expectation fails where the column has no value in any row; every one fails where there
                is not such a column.
            lines: Fields of the feature.
        """
        severity = dict(feature.severity)
        for anomaly in anomalies:
            self.note(severity, anomaly, _WORDS[expectation.severity])
        changed = replace(feature, **lines)
        # To GX a column that is not there fails every expectation of it; one without values fails only some of them. A
        # schema demands both by min_count, so the severities keep the two apart.
        if not self.ours:
            presence_severity = {"SCHEMA_MISSING_COLUMN": _WORDS[expectation.severity]}
            presence_severity["FEATURE_TYPE_NOT_PRESENT"] = _WORDS[expectation.severity] if filled else "INFO"
            for anomaly, word in presence_severity.items():
                old = severity.get(anomaly, self.default(anomaly)) if feature.presence.required else word
                self.note(severity, anomaly, min(word, old, key=SEVERITIES.index))
            presence = replace(changed.presence, min_count=max(changed.presence.min_count or 0, 1))
            evidence = f"{feature.evidence}; {line}" if feature.evidence else f"from suite {self.name}: {line}"
            changed = replace(changed, presence=presence, evidence=evidence)
        changed = replace(changed, severity=severity)
        if any(feature_problems(changed)):
            raise _LeftOverError
        self.features[feature.name] = changed

    def default(self, anomaly: str) -> Severity:
        """The severity of an anomaly where the feature has none for it."""
        return self.severity.get(anomaly, ANOMALIES[anomaly])

    def note(self, severity: dict[str, Severity], anomaly: str, word: Severity) -> None:
        """Write a severity down where it is not the default."""
        default = ANOMALIES[anomaly] if severity is self.severity else self.default(anomaly)
        severity.pop(anomaly, None)
        if word != default:
            severity[anomaly] = word

    def agree(self, feature: Feature | None, expectation: Expectation, *anomalies: str) -> None:
        """Refuse another severity for a line that is there."""
        for anomaly in anomalies:
            known_severity = self.default(anomaly)
            if feature is not None:
                known_severity = feature.severity.get(anomaly, known_severity)
            if known_severity != _WORDS[expectation.severity]:
                raise _LeftOverError


def _tighter(old: _N | None, new: _N | None, choose: Callable[[_N, _N], _N]) -> _N | None:
    return new if old is None else old if new is None else choose(old, new)


def _whole_bounds(kwargs: Kwargs) -> tuple[int | None, int | None]:
    """The smallest and the largest count that the arguments allow."""
    low, high = _whole(kwargs.get("min_value")), _whole(kwargs.get("max_value"))
    low = low + 1 if low is not None and kwargs.get("strict_min") else low
    return low, high - 1 if high is not None and kwargs.get("strict_max") else high


def _whole(end: Any) -> int | None:
    """An argument as a count, which int64 holds; GX writes some as 10.0."""
    if end is None:
        return None
    if not (type(end) is int or (type(end) is float and end.is_integer())) or abs(end) >= 2**63:
        raise _LeftOverError
    return int(end)


def _rows(draft: _SchemaDraft, kwargs: Kwargs, expectation: Expectation) -> None:
    low, high = _whole_bounds(kwargs) if "value" not in kwargs else (_whole(kwargs["value"]), _whole(kwargs["value"]))
    if high is not None and high < 1:
        raise _LeftOverError
    low = low if low is not None and low > 1 else None  # no rows at all are an error in any case
    sides = {"DATASET_LOW_NUM_EXAMPLES": (low, draft.low), "DATASET_HIGH_NUM_EXAMPLES": (high, draft.high)}
    draft.agree(None, expectation, *_both(sides))
    draft.low, draft.high = _tighter(draft.low, low, max), _tighter(draft.high, high, min)
    if draft.low is not None and draft.high is not None and draft.low > draft.high:
        raise _LeftOverError
    for anomaly, (new, _) in sides.items():
        if new is not None:
            draft.note(draft.severity, anomaly, _WORDS[expectation.severity])


def _both(sides: Mapping[str, tuple[Any, Any]]) -> list[str]:
    """The anomalies of ends that both the expectation and the schema have."""
    return [anomaly for anomaly, (new, old) in sides.items() if new is not None and old is not None]


def _exists(draft: _SchemaDraft, kwargs: Kwargs, expectation: Expectation) -> None:
    feature = draft.feature(kwargs)
    presence = replace(feature.presence, min_count=max(feature.presence.min_count or 0, 1))
    draft.put(feature, expectation, "exists", *["SCHEMA_MISSING_COLUMN"] * draft.ours, presence=presence)


def _column_set(draft: _SchemaDraft, kwargs: Kwargs, expectation: Expectation) -> None:
    names = kwargs.get("column_set")
    if not isinstance(names, (list, tuple)) or not all(isinstance(name, str) for name in names):
        raise _LeftOverError
    closed = expectation.kwargs.get("exact_match", True)
    if closed and set(draft.features) - set(names):
        raise _LeftOverError  # others have lines of their own
    if draft.closed and closed and not draft.ours:
        draft.agree(None, expectation, "SCHEMA_NEW_COLUMN")
    for name in names:
        if not draft.ours:
            _exists(draft, {"column": name}, expectation)
    if closed:
        draft.note(draft.severity, "SCHEMA_NEW_COLUMN", _WORDS[expectation.severity])
        draft.closed = True


def _type(draft: _SchemaDraft, kwargs: Kwargs, expectation: Expectation) -> None:
    feature, names = draft.feature(kwargs), kwargs.get("type_list") or [kwargs.get("type_")]
    if feature.many or not all(isinstance(name, str) for name in names):
        raise _LeftOverError
    plain = [str(name).lower().partition("(")[0] for name in names if str(name).lower() not in _ANY_OBJECT]
    families = {_FAMILIES.get(name, "") for name in plain}
    if draft.ours and plain:
        families = {_FAMILIES[plain[0]]}  # integers with missing values are floats in pandas, so it lists both
    if families == {"int", "float"}:
        families = {"float"}
    if len(families) != 1 or "" in families:
        raise _LeftOverError
    family = families.pop()
    if feature.type != "any" and not draft.ours:
        if feature.type != family and (feature.type, family) != ("int", "float"):
            raise _LeftOverError
        draft.agree(feature, expectation, "UNEXPECTED_DATA_TYPE")
        return
    draft.put(feature, expectation, f"of type {family}", "UNEXPECTED_DATA_TYPE", type=family)


def _present(draft: _SchemaDraft, kwargs: Kwargs, expectation: Expectation) -> bool:
    feature = draft.feature(kwargs)
    share = kwargs.get("mostly", kwargs.get("min_value", 1))
    if type(share) not in (int, float) or not 0 < share <= 1:
        raise _LeftOverError
    lines: dict[str, Any] = {}
    # NaN is missing in pandas. A schema says it apart, and only that there is none; else the expectation stays as well.
    nan = not draft.ours and feature.type in ("any", "float")
    if nan and feature.type == "float" and share == 1 and (feature.domain is None or isinstance(feature.domain, Range)):
        lines["domain"] = replace(feature.domain or Range(), disallow_nan=True)
        nan = False
    old, low = feature.presence.min_fraction, "FEATURE_TYPE_LOW_FRACTION_PRESENT"
    if old is not None:
        draft.agree(feature, expectation, low)
        share = max(old, share)
    lines["presence"] = replace(feature.presence, min_fraction=float(share))
    nans = ("FLOAT_TYPE_HAS_NAN",) if "domain" in lines else ()
    draft.put(feature, expectation, "not null", low, *nans, filled=True, **lines)
    return nan


def _in_set(draft: _SchemaDraft, kwargs: Kwargs, expectation: Expectation) -> None:
    feature, values = draft.feature(kwargs), kwargs.get("value_set")
    if not isinstance(values, (list, tuple)) or not values:
        raise _LeftOverError
    marker, mostly = expectation.meta.get("anomaly", "") if draft.ours else "", kwargs.get("mostly", 1)
    if all(type(value) in (int, bool) for value in values):
        kinds = ("int", "float", "bool") if marker else ("int", "bool")  # GX skips NaN, a bool of floats does not
        if set(values) != {0, 1} or feature.type not in kinds or feature.domain or mostly != 1:
            raise _LeftOverError
        anomalies = (marker,) if marker else ("BOOL_TYPE_SMALL_INT", "BOOL_TYPE_BIG_INT")
        draft.put(feature, expectation, "in set", *anomalies, domain=Bool())
        return
    if not all(isinstance(value, str) for value in values):
        raise _LeftOverError
    text = feature if feature.type != "any" else replace(feature, type="string")
    unknown = ["UNEXPECTED_DATA_TYPE"] * (feature.type == "any")
    if marker == "BOOL_TYPE_UNEXPECTED_STRING":
        draft.put(text, expectation, "in set", marker, domain=Bool(*values))
        return
    off, texts = "ENUM_TYPE_UNEXPECTED_STRING_VALUES", tuple(dict.fromkeys(values))
    if isinstance(feature.domain, Values):
        draft.agree(feature, expectation, off)
        if feature.domain.min_mass != 1 or mostly != 1:
            raise _LeftOverError
        texts = tuple(value for value in feature.domain.values if value in texts)
    elif feature.domain is not None:
        raise _LeftOverError
    more = () if marker else ("ENUM_TYPE_INVALID_UTF8", *unknown)
    draft.put(text, expectation, "in set", off, *more, domain=Values(texts, float(mostly)))


def _between(draft: _SchemaDraft, kwargs: Kwargs, expectation: Expectation) -> None:
    feature, ends = draft.feature(kwargs), (kwargs.get("min_value"), kwargs.get("max_value"))
    old = feature.domain if isinstance(feature.domain, Range) else Range()
    if feature.domain is not None and (old is not feature.domain or old.parse):
        raise _LeftOverError
    if not any(end is not None for end in ends) or not all(end is None or type(end) in (int, float) for end in ends):
        raise _LeftOverError
    number = feature if feature.type != "any" else replace(feature, type="float")  # which takes integers
    whole = number.type == "int"
    low, high = (
        _inside(ends[0], kwargs.get("strict_min"), whole, math.inf),
        _inside(ends[1], kwargs.get("strict_max"), whole, -math.inf),
    )
    family, size = ("INT_TYPE", "INT") if whole else ("FLOAT_TYPE", "FLOAT")
    sides = {f"{family}_SMALL_{size}": (low, old.min), f"{family}_BIG_{size}": (high, old.max)}
    anomalies = [name for name, (new, _) in sides.items() if new is not None]
    draft.agree(feature, expectation, *_both(sides))
    domain = replace(old, min=_tighter(old.min, low, max), max=_tighter(old.max, high, min))
    unknown = ["UNEXPECTED_DATA_TYPE"] * (feature.type == "any")
    draft.put(number, expectation, _ends_text(ends, kwargs), *anomalies, *unknown, domain=domain)


def _inside(end: float | None, strict: Any, whole: bool, away: float) -> float | None:
    """The outermost number that a bound allows, which a strict bound itself is not."""
    if end is None or not strict:
        return end
    if whole:
        return math.floor(end) + 1 if away > 0 else math.ceil(end) - 1
    return math.nextafter(float(end), away)


def _ends_text(ends: tuple[Any, Any], kwargs: Kwargs) -> str:
    low = [] if ends[0] is None else [("above " if kwargs.get("strict_min") else "from ") + str(ends[0])]
    high = [] if ends[1] is None else [("below " if kwargs.get("strict_max") else "to ") + str(ends[1])]
    return " ".join(low + high)


def _unique(draft: _SchemaDraft, kwargs: Kwargs, expectation: Expectation) -> bool:
    feature, (low, high) = draft.feature(kwargs), _whole_bounds(kwargs)
    nan = not draft.ours and feature.type in ("any", "float")  # a value of a schema's, missing in pandas
    high = None if nan else high
    old = feature.unique or Count()
    sides = {"FEATURE_TYPE_LOW_UNIQUE": (low, old.min), "FEATURE_TYPE_HIGH_UNIQUE": (high, old.max)}
    if low is None and high is None:
        raise _LeftOverError
    draft.agree(feature, expectation, *_both(sides))
    names = [name for name, (new, _) in sides.items() if new is not None]
    counts = Count(_tighter(old.min, low, max), _tighter(old.max, high, min))
    draft.put(feature, expectation, "distinct values", *names, filled=(low or 0) > 0, unique=counts)
    return nan


# By GX's name: what takes it over (and says whether it must stay as well), and the arguments it knows.
_ENDS: Final = frozenset({"min_value", "max_value", "strict_min", "strict_max"})
_COLUMN: Final = frozenset({"column"})
_RULES: Final[Mapping[str, tuple[Callable[[_SchemaDraft, Kwargs, Expectation], bool | None], frozenset[str]]]] = {
    "expect_table_row_count_to_be_between": (_rows, _ENDS),
    "expect_table_row_count_to_equal": (_rows, frozenset({"value"})),
    "expect_column_to_exist": (_exists, _COLUMN),
    "expect_table_columns_to_match_set": (_column_set, frozenset({"column_set", "exact_match"})),
    "expect_column_values_to_be_of_type": (_type, _COLUMN | {"type_"}),
    "expect_column_values_to_be_in_type_list": (_type, _COLUMN | {"type_list"}),
    "expect_column_values_to_not_be_null": (_present, _COLUMN | {"mostly"}),
    "expect_column_proportion_of_non_null_values_to_be_between": (_present, _COLUMN | {"min_value"}),
    "expect_column_values_to_be_in_set": (_in_set, _COLUMN | {"value_set", "mostly"}),
    "expect_column_distinct_values_to_be_in_set": (_in_set, _COLUMN | {"value_set"}),
    "expect_column_values_to_be_between": (_between, _COLUMN | _ENDS),
    "expect_column_unique_value_count_to_be_between": (_unique, _COLUMN | _ENDS),
}
