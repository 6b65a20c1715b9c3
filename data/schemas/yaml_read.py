"""`schema.yaml` read as a schema; errors name the file, the line and the feature."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, cast

from ...errors import InputError
from ...yaml_lines import YamlValue, read_yaml
from .checks import Check, Expectation
from .problems import SchemaError, feature_problems, raise_problems, weighted_problems
from .schema import (
    SEMANTICS,
    Bool,
    Count,
    Domain,
    Feature,
    Presence,
    Range,
    Ratio,
    Schema,
    Semantic,
    Severity,
    Time,
    Values,
)
from .weighted_feature import WeightedFeature
from .yaml_write import CHECK_KEYS, FEATURE_KEYS, FORMAT

_SCHEMA_KEYS = (
    "format", "rows", "environments", "severity", "features", "weighted_features", "checks", "expectations",
)  # fmt: skip
_Entries = Mapping[str, YamlValue]


def load_schema(path: Path | str) -> Schema:
    """The schema in a file.

    Raises:
        InputError: It cannot be read, or see `schema_from_yaml`.
    """
    try:
        text = Path(path).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"the schema {path} cannot be read: {error}", fix="name a schema.yaml in UTF-8") from error
    return schema_from_yaml(text, str(path))


def schema_from_yaml(text: str, where: str = "schema.yaml") -> Schema:
    """The schema that a text says.

    Args:
        text: YAML.
        where: The file's name, for messages.

    Raises:
        InputError: No YAML, an unknown key, a wrong value; its `where` is "file:line".
    """
    root = read_yaml(text, where, name="the schema")
    if root is None:
        raise InputError("the schema is empty", fix="infer one from statistics (SchemaGen)", where=where)
    entries = root.mapping(_SCHEMA_KEYS)
    if "format" not in entries or entries["format"].text() != FORMAT:
        raise entries.get("format", root).error(
            f"this is not a schema of the format {FORMAT}", f"begin with `format: {FORMAT}`"
        )
    if "features" not in entries:
        raise root.error("the schema has no features", "add `features:`")
    rows = entries["rows"].mapping(("min", "max", "drift", "version")) if "rows" in entries else {}
    features = tuple(_feature(name, feature) for name, feature in entries["features"].mapping().items())
    try:
        return Schema(
            features=features,
            min_rows=_whole(rows, "min"),
            max_rows=_whole(rows, "max"),
            severity=_severity(entries),
            environments=_texts(entries, "environments"),
            rows_drift=_ratio(rows, "drift"),
            rows_version=_ratio(rows, "version"),
            checks=tuple(_checks(entries)),
            expectations=tuple(_expectations(entries)),
            weighted=tuple(_weighted_features(entries, features)),
        )
    except SchemaError as error:
        raise (error if error.where else error.at(root.where)) from None


def _feature(name: str, value: YamlValue) -> Feature:
    value = value.called(f"feature {name!r}")
    entries = value.mapping(FEATURE_KEYS)
    presence = entries["presence"].mapping(("min_fraction", "min_count")) if "presence" in entries else {}
    fields = entries["fields"].mapping() if "fields" in entries else {}
    feature = Feature(
        name=name,
        type=_text_or(entries, "type", "any"),
        presence=Presence(_number(presence, "min_fraction"), _whole(presence, "min_count")),
        domain=_domain(value, entries["domain"]) if "domain" in entries else None,
        drift=_bounds(entries, "drift"),
        skew=_bounds(entries, "skew"),
        severity=_severity(entries),
        shape=tuple(size.whole() for size in entries["shape"].items()) if "shape" in entries else None,
        value_counts=_value_counts(entries),
        unique=_count(entries["unique"]) if "unique" in entries else None,
        in_environments=_texts(entries, "in_environments"),
        not_in_environments=_texts(entries, "not_in_environments"),
        stage=_text_or(entries, "stage", ""),
        request_log=_text_or(entries, "request_log", ""),
        fields=tuple(_feature(field_name, field) for field_name, field in fields.items()),
    )
    # `Schema` checks all features again, but knows no lines: what one has wrong by itself is reported here, at its own.
    raise_problems(feature_problems(feature), value.where)
    return feature


def _domain(feature: YamlValue, domain: YamlValue) -> Domain:
    if domain.is_scalar and domain.text() == "bool":
        return Bool()
    if domain.is_scalar and domain.text() in SEMANTICS:
        return Semantic(cast(Literal["natural_language", "image"], domain.text()))
    entries = domain.mapping(("values", "min_mass", "range", "bool", "time", "image"))
    kinds = [key for key in ("values", "range", "bool", "time", "image") if key in entries]
    if len(kinds) != 1 or ("min_mass" in entries and kinds != ["values"]):
        raise domain.error(
            f"{feature.name}: a domain is one of values (with min_mass), range, bool, time, {', '.join(SEMANTICS)}",
            "keep one",
        )
    (kind,) = kinds
    if kind == "values":
        return Values(entries[kind].texts(), _mass(entries))
    if kind == "range":
        limits = entries[kind].mapping(("parse", "min", "max", "disallow_nan", "disallow_inf"))
        parse = _text_or(limits, "parse", "")
        if parse not in ("", "int", "float"):
            raise domain.error(f"{feature.name}: text is parsed as int or float", "choose one")
        return Range(
            _number(limits, "min"),
            _number(limits, "max"),
            "disallow_nan" in limits and limits["disallow_nan"].boolean(),
            "disallow_inf" in limits and limits["disallow_inf"].boolean(),
            cast(Literal["", "int", "float"], parse),
        )
    if kind == "time":
        time = entries[kind].mapping(("format", "min_mass", "years"))
        if "format" not in time:
            raise domain.error(f"{feature.name}: a time has a format", 'e.g. "%Y-%m-%d"')
        return Time(time["format"].text(), _mass(time), _count(time["years"]) if "years" in time else None)
    if kind == "image":
        limits = entries[kind].mapping(("min_supported_fraction", "max_bytes"))
        return Semantic("image", _number(limits, "min_supported_fraction"), _whole(limits, "max_bytes"))
    texts = entries[kind].mapping(("true_value", "false_value"))
    return Bool(_text(texts, "true_value"), _text(texts, "false_value"))


def _value_counts(entries: _Entries) -> tuple[Count, ...]:
    if "value_count" not in entries:
        return ()
    levels = entries["value_count"]
    return tuple(map(_count, levels.items() if levels.is_list else [levels]))


def _count(value: YamlValue) -> Count:
    ends = value.mapping(("min", "max"))
    return Count(_whole(ends, "min"), _whole(ends, "max"))


def _ratio(entries: _Entries, key: str) -> Ratio | None:
    if key not in entries:
        return None
    ends = entries[key].mapping(("min", "max"))
    return Ratio(_number(ends, "min"), _number(ends, "max"))


def _bounds(entries: _Entries, key: str) -> dict[str, float]:
    bounds = entries[key].mapping() if key in entries else {}
    return {comparator: bound.number() for comparator, bound in bounds.items()}


def _severity(entries: _Entries) -> dict[str, Severity]:
    severities = entries["severity"].mapping() if "severity" in entries else {}
    return {anomaly: cast(Severity, severity.text()) for anomaly, severity in severities.items()}


def _weighted_features(entries: _Entries, features: Iterable[Feature]) -> Iterator[WeightedFeature]:
    weighted_features = entries["weighted_features"].mapping() if "weighted_features" in entries else {}
    for name, value in weighted_features.items():
        value = value.called(f"weighted feature {name!r}")
        columns = value.mapping(("value", "weight", "stage"))
        pair = WeightedFeature(name, *(_text_or(columns, key, "") for key in ("value", "weight", "stage")))
        raise_problems(weighted_problems(pair, features), value.where)
        yield pair


def _checks(entries: _Entries) -> Iterator[Check]:
    for item in entries["checks"].items() if "checks" in entries else ():
        keys = item.called("a check").mapping(CHECK_KEYS)
        for key in ("feature", "sql"):
            if key not in keys:
                raise item.error(f"a check without {key}", "write `feature:` and `sql:`")
        texts: Any = {key: value.text() for key, value in keys.items() if key != "environments"}
        yield Check(**texts, environments=_texts(keys, "environments"))


def _expectations(entries: _Entries) -> Iterator[Expectation]:
    for item in entries["expectations"].items() if "expectations" in entries else ():
        keys = item.called("an expectation").mapping(("type", "kwargs", "severity", "meta"))
        if "type" not in keys:
            raise item.error("an expectation without a type", "write GX's name of it: `type: expect_…`")
        for key in ("kwargs", "meta"):
            if key in keys and not keys[key].is_mapping:
                raise keys[key].error(f"{key} of an expectation must be `key: value`", "correct it")
        yield Expectation(
            keys["type"].text(),
            keys["kwargs"].json() if "kwargs" in keys else {},
            keys["meta"].json() if "meta" in keys else {},
            cast(Any, _text_or(keys, "severity", "critical")),
        )


def _text(entries: _Entries, key: str) -> str | None:
    return entries[key].text() if key in entries else None


def _text_or(entries: _Entries, key: str, default: str) -> str:
    return entries[key].text() if key in entries else default


def _texts(entries: _Entries, key: str) -> tuple[str, ...]:
    return entries[key].texts() if key in entries else ()


def _number(entries: _Entries, key: str) -> float | None:
    return entries[key].number() if key in entries else None


def _whole(entries: _Entries, key: str) -> int | None:
    return entries[key].whole() if key in entries else None


def _mass(entries: _Entries) -> float:
    return entries["min_mass"].number() if "min_mass" in entries else 1.0
