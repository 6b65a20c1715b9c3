"""The schema as a Great Expectations 1.24 suite, written as JSON: importing GX costs seconds and is not needed.

What GX cannot say about a pandas data frame is listed in the suite's meta under `drivetrain.not_expressed`, so that
nobody takes a passed suite for a passed schema.
"""

from __future__ import annotations

from typing import Any, Final

from ..schemas.checks import GX_SEVERITY
from ..schemas.schema import CHANGES, UNCHECKED, Bool, Feature, Range, Schema, Values

GX_VERSION: Final = "1.24.1"
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
        severity = GX_SEVERITY[schema.severity_of(anomaly, feature)]
        expectations.append({"type": kind, "kwargs": kwargs, "meta": {"anomaly": anomaly}, "severity": severity})

    def between(kind: str, anomalies: tuple[str, str], feature: str | None, low: Any, high: Any, **kwargs: Any) -> None:
        """One expectation of both ends, or two where they are not of one severity."""
        ends = {"min_value": low, "max_value": high}
        ends = {key: end for key, end in ends.items() if end is not None}
        if len({schema.severity_of(anomaly, feature) for anomaly in anomalies}) == 1 or len(ends) == 1:
            expect(kind, anomalies[low is None], feature, **kwargs, **ends)
            return
        for anomaly, (key, end) in zip(anomalies, ends.items(), strict=True):
            expect(kind, anomaly, feature, **kwargs, **{key: end})

    rows = ("DATASET_LOW_NUM_EXAMPLES", "DATASET_HIGH_NUM_EXAMPLES")
    between("expect_table_row_count_to_be_between", rows, None, max(schema.min_rows or 0, 1), schema.max_rows)
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
        left_out += _expect_feature(feature, expect, between)
    for expectation in schema.expectations:
        kwargs, noted = dict(expectation.kwargs), dict(expectation.meta)
        expectations.append(
            {"type": expectation.type, "kwargs": kwargs, "meta": noted, "severity": expectation.severity}
        )
    left_out += [f"the weighted feature {pair.name}" for pair in schema.weighted]
    left_out += [f"the check {check.sql} of {check.feature}" for check in schema.checks]
    drivetrain = {
        "not_expressed": left_out,
        "columns": {feature.name: feature.type for feature in schema.features},  # for the way back
    }
    meta = {"great_expectations_version": GX_VERSION, "drivetrain": drivetrain}
    return {"name": name, "id": None, "expectations": expectations, "meta": meta, "notes": None}


def _expect_feature(feature: Feature, expect: Any, between: Any) -> list[str]:  # the closures above
    name, presence, domain = feature.name, feature.presence, feature.domain
    left_out = [f"{change} of {name}" for change in CHANGES if getattr(feature, change)]
    if feature.stage in UNCHECKED:
        return [f"{name}, which is {feature.stage}"]
    if feature.fields:
        left_out.append(f"fields of {name}")
    if feature.many:
        left_out.append(f"number of values of {name}")
    if feature.in_environments or feature.not_in_environments:
        left_out.append(f"environments of {name}")
    if feature.unique is not None:
        anomalies = ("FEATURE_TYPE_LOW_UNIQUE", "FEATURE_TYPE_HIGH_UNIQUE")
        kind, ends = "expect_column_unique_value_count_to_be_between", feature.unique
        if (ends.min, ends.max) != (None, None):
            between(kind, anomalies, name, ends.min, ends.max, column=name)
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
    if presence.min_count and presence.min_count > 1:
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
        if (domain.min, domain.max) != (None, None):
            family, size = ("INT_TYPE", "INT") if feature.type == "int" else ("FLOAT_TYPE", "FLOAT")
            anomalies = (f"{family}_SMALL_{size}", f"{family}_BIG_{size}")
            between("expect_column_values_to_be_between", anomalies, name, domain.min, domain.max, column=name)
        left_out += [f"{flag} of {name}" for flag in ("disallow_nan", "disallow_inf") if getattr(domain, flag)]
    elif domain is not None:
        left_out.append(f"the domain of {name}")
    return left_out
