"""The schema as a Great Expectations 1.24 suite, written as JSON: importing GX costs seconds and is not needed.

What GX cannot say about a pandas data frame is listed in the suite's meta under `drivetrain.not_expressed`, so that
nobody takes a passed suite for a passed schema.
"""

from __future__ import annotations

from typing import Any, Final

from .schema import CHANGES, UNCHECKED, Bool, Feature, Range, Schema, Severity, Values

GX_VERSION: Final = "1.24.1"
_SEVERITY: Final[dict[Severity, str]] = {"ERROR": "critical", "WARNING": "warning", "INFO": "info"}
_INTEGERS: Final = [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]
_FLOATS: Final = ["float16", "float32", "float64"]
# pandas 3 reads text as its own `str` dtype, which GX 1.24 cannot name in a type list; times depend on unit and zone.
_TYPES: Final = {
    "int": _INTEGERS,
    "float": [*_FLOATS, *_INTEGERS],
    "bool": ["bool"],
    "bytes": ["bytes"],
    "date": ["date"],
}


def schema_to_expectations(schema: Schema, name: str = "schema") -> dict[str, Any]:
    """A suite as JSON-able values: `{"name", "id", "expectations", "meta", "notes"}`, as GX itself writes it."""
    expectations: list[dict[str, Any]] = []
    left_out: list[str] = []

    def expect(kind: str, anomaly: str, feature: str | None, **kwargs: Any) -> None:
        severity = _SEVERITY[schema.severity_of(anomaly, feature)]
        expectations.append({"type": kind, "kwargs": kwargs, "meta": {"anomaly": anomaly}, "severity": severity})

    rows: dict[str, int] = {"min_value": max(schema.min_rows or 0, 1)}
    if schema.max_rows is not None:
        rows["max_value"] = schema.max_rows
    expect("expect_table_row_count_to_be_between", "DATASET_LOW_NUM_EXAMPLES", None, **rows)
    names = [feature.name for feature in schema.features]
    required = [
        feature.name for feature in schema.features if feature.presence.required and feature.stage not in UNCHECKED
    ]
    for column in required:
        expect("expect_column_to_exist", "SCHEMA_MISSING_COLUMN", column, column=column)
    if names == required:
        expect("expect_table_columns_to_match_set", "SCHEMA_NEW_COLUMN", None, column_set=names, exact_match=True)
    else:
        left_out.append("no new columns, as some columns may be absent")
    for feature in schema.features:
        left_out += _expect_feature(feature, expect)
    meta = {"great_expectations_version": GX_VERSION, "drivetrain": {"not_expressed": left_out}}
    return {"name": name, "id": None, "expectations": expectations, "meta": meta, "notes": None}


def _expect_feature(feature: Feature, expect: Any) -> list[str]:  # expect: the closure above
    name, presence, domain = feature.name, feature.presence, feature.domain
    left_out = [f"{change} of {name}" for change in CHANGES if getattr(feature, change)]
    if feature.stage in UNCHECKED:
        return [f"{name}, which is {feature.stage}"]
    if feature.many:
        left_out.append(f"number of values of {name}")
    if feature.in_environments or feature.not_in_environments:
        left_out.append(f"environments of {name}")
    if feature.unique is not None:
        ends = {"min_value": feature.unique.min, "max_value": feature.unique.max}
        ends = {key: value for key, value in ends.items() if value is not None}
        expect("expect_column_unique_value_count_to_be_between", "FEATURE_TYPE_HIGH_UNIQUE", name, column=name, **ends)
    if feature.type in _TYPES and (not feature.many or feature.shape in ((), (1,))):
        types = _TYPES[feature.type]
        if feature.type == "int" and presence.min_fraction != 1:
            types = [*types, *_FLOATS]  # pandas turns integers with a missing value into floats
        expect("expect_column_values_to_be_in_type_list", "UNEXPECTED_DATA_TYPE", name, column=name, type_list=types)
    elif feature.type != "any":
        left_out.append(f"type {feature.type} of {name}")
    if presence.min_fraction:
        kwargs: dict[str, Any] = {"column": name}
        if presence.min_fraction < 1:
            kwargs["mostly"] = presence.min_fraction
        expect("expect_column_values_to_not_be_null", "FEATURE_TYPE_LOW_FRACTION_PRESENT", name, **kwargs)
    if presence.min_count and not presence.min_fraction:
        left_out.append(f"min_count {presence.min_count} of {name}")
    if isinstance(domain, Values):
        kwargs = {"column": name, "value_set": list(domain.values)}
        if domain.min_mass < 1:
            kwargs["mostly"] = domain.min_mass
        expect("expect_column_values_to_be_in_set", "ENUM_TYPE_UNEXPECTED_STRING_VALUES", name, **kwargs)
    elif isinstance(domain, Bool):
        pair: list[Any] = list(domain.texts) or [0, 1]
        anomaly = "BOOL_TYPE_UNEXPECTED_STRING" if domain.texts else "BOOL_TYPE_BIG_INT"
        expect("expect_column_values_to_be_in_set", anomaly, name, column=name, value_set=pair)
    elif isinstance(domain, Range) and domain.parse:
        left_out.append(f"text of {name} that reads as {domain.parse}")
    elif isinstance(domain, Range):
        limits = {"min_value": domain.min, "max_value": domain.max}
        limits = {key: value for key, value in limits.items() if value is not None}
        if limits:
            anomaly = "INT_TYPE_BIG_INT" if feature.type == "int" else "FLOAT_TYPE_BIG_FLOAT"
            expect("expect_column_values_to_be_between", anomaly, name, column=name, **limits)
        left_out += [f"{flag} of {name}" for flag in ("disallow_nan", "disallow_inf") if getattr(domain, flag)]
    return left_out
