"""Fields of structs in a schema: inferred, written, read, validated by path, and relaxed; TFDV 1.16.1 is the oracle."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from drivetrain.data import (
    Schema,
    anomalous_rows,
    drift,
    infer_schema,
    schema_from_pbtxt,
    schema_to_pbtxt,
    statistics,
    update_schema,
    validate,
)
from drivetrain.data.schema_inference.patch import SchemaPatch
from drivetrain.data.schemas.problems import SchemaError
from drivetrain.data.schemas.schema import Count, Feature, Presence, Range, Values
from drivetrain.data.schemas.yaml_edit import edit_yaml
from drivetrain.data.schemas.yaml_read import schema_from_yaml
from drivetrain.data.schemas.yaml_write import schema_to_yaml
from drivetrain.data.validation.anomalies import Anomalies
from hypothesis import example, given, settings
from hypothesis import strategies as st

INNER = pa.list_(pa.struct([("c", pa.list_(pa.float32()))]))
ITEM = [("a", pa.list_(pa.int64())), ("b", pa.list_(pa.string())), ("in", INNER)]
ROWS = [
    [{"a": [1], "b": ["x"], "in": [{"c": [1.5]}]}],
    [{"a": [2], "b": ["y", "z"], "in": None}],
    None,
    [{"a": [3], "b": ["x"], "in": [{"c": [2.5]}]}, {"a": None, "b": ["x"], "in": [{"c": [2.5]}]}],
]
# What TFDV infers from ROWS.
TFDV = """
feature { name: "s" value_count { min: 1 } type: STRUCT presence { min_count: 1 } struct_domain {
  feature { name: "a" value_count { min: 1 max: 1 } type: INT presence { min_count: 1 } }
  feature { name: "b" value_count { min: 1 } type: BYTES domain: "s.b" presence { min_fraction: 1.0 min_count: 1 } }
  feature { name: "in" value_count { min: 1 max: 1 } type: STRUCT presence { min_count: 1 } struct_domain {
    feature { name: "c" type: FLOAT presence { min_fraction: 1.0 min_count: 1 } shape { dim { size: 1 } } } } }
} }
string_domain { name: "s.b" value: "x" value: "y" value: "z" }
"""


def table(rows: list[Any], *more: tuple[str, Any]) -> pa.Table:
    return pa.table({"s": pa.array(rows, pa.list_(pa.struct([*ITEM, *more])))})


def pairs(found: Anomalies) -> list[tuple[str | None, str]]:
    return [(anomaly.feature, anomaly.type) for anomaly in found.anomalies]


def test_fields_are_inferred_as_tfdv_infers_them() -> None:
    read = schema_from_pbtxt(TFDV)
    assert read.notes == ()
    assert infer_schema(table(ROWS)) == read.schema


def test_schemas_with_fields_are_written_and_read() -> None:
    made = infer_schema(table(ROWS))
    text = schema_to_yaml(made)
    assert "\n    fields:\n      a:\n        type: int  # list<item: int64>, 3 distinct" in text
    assert schema_from_yaml(text) == made
    exported = schema_to_pbtxt(made)
    assert exported.notes == ()
    assert schema_from_pbtxt(exported.text) == (made, ())
    assert made.to_dict()["features"][0]["fields"][1]["domain"]["kind"] == "values"
    assert [*made.to_pandas()["name"]] == ["s", "s.a", "s.b", "s.in", "s.in.c"]


def test_lists_of_texts_of_a_column_that_is_named_like_a_path_stay_apart() -> None:
    inner = Feature("b", "string", domain=Values(("x",)), value_counts=(Count(1, 1),))
    other = Feature("s.b", "string", domain=Values(("y",)), value_counts=(Count(1, 1),))
    made = Schema((Feature("s", "struct", fields=(inner,), value_counts=(Count(),)), other))
    assert schema_from_pbtxt(schema_to_pbtxt(made).text) == (made, ())


def test_fields_are_validated_by_their_paths_as_in_tfdv() -> None:
    schema = infer_schema(table(ROWS))
    assert validate(table(ROWS), schema).anomalies == ()
    bad = [[{"a": [1], "b": ["NEW"], "in": [{"c": [1.5]}], "a.b": [1]}], [{"a": None, "b": None, "in": None}]]
    data = table(bad, ("a.b", pa.list_(pa.int64())))
    found = anomalous_rows(data, validate(data, schema), schema)
    # TFDV's keys and reasons of the same data.
    assert sorted(pairs(found)) == [
        ("s.'a.b'", "SCHEMA_NEW_COLUMN"),
        ("s.b", "ENUM_TYPE_UNEXPECTED_STRING_VALUES"),
        ("s.b", "FEATURE_TYPE_LOW_FRACTION_PRESENT"),
    ]
    by_type = {anomaly.type: anomaly for anomaly in found.anomalies}
    assert by_type["SCHEMA_NEW_COLUMN"].path == ("s", "a.b")
    assert by_type["FEATURE_TYPE_LOW_FRACTION_PRESENT"].observed.startswith("present in 50")
    rows = {kind: [row["row"] for row in anomaly.rows] for kind, anomaly in by_type.items()}
    assert rows == {
        "SCHEMA_NEW_COLUMN": [0],
        "ENUM_TYPE_UNEXPECTED_STRING_VALUES": [0],
        "FEATURE_TYPE_LOW_FRACTION_PRESENT": [1],
    }
    assert found.document["anomalies"][0]["path"]


def test_a_field_is_no_column_that_is_named_like_its_path() -> None:
    data = pa.table({"s": [{"a": 1}, None, {"a": 5}], "s.a": [1, 2, 9]})
    text = """
format: drivetrain.schema/1
features:
  s: {type: struct, fields: {a: {type: int, domain: {range: {max: 2}}, severity: {INT_TYPE_BIG_INT: WARNING}}}}
  s.a: {type: int, domain: {range: {max: 4}}}
"""
    schema = schema_from_yaml(text)
    found = anomalous_rows(data, validate(data, schema), schema).anomalies
    assert [(one.feature, one.path, one.severity, [row["row"] for row in one.rows]) for one in found] == [
        ("s.a", (), "ERROR", [2]),
        ("s.a", ("s", "a"), "WARNING", [2]),
    ]
    patch = update_schema(schema, data)
    relaxed = patch.accept()
    assert relaxed.features[0].fields[0].domain == Range(max=5)
    assert relaxed.features[1].domain == Range(max=9)


def test_anomalies_with_paths_are_saved(tmp_path: Any) -> None:
    schema = Schema((Feature("s", "struct", fields=(Feature("a", "int"), Feature("b", presence=Presence(1.0)))),))
    found = validate(pa.table({"s": [{"a": "x"}]}), schema)
    assert pairs(found) == [("s.a", "UNEXPECTED_DATA_TYPE"), ("s.b", "SCHEMA_MISSING_COLUMN")]
    found.save(tmp_path / "anomalies.json")
    assert Anomalies.load(tmp_path / "anomalies.json").anomalies == found.anomalies


def test_patches_relax_fields_one_by_one(tmp_path: Any) -> None:
    schema = infer_schema(table(ROWS))
    data = table(
        [[{"a": [1, 2], "b": ["NEW"], "in": [{"c": []}], "n": {"m": 1}}], [{"a": None, "b": None, "in": []}]],
        ("n", pa.struct([("m", pa.int64())])),
    )
    patch = update_schema(schema, data)
    assert patch.unresolved == ()
    assert validate(data, patch.accept(), environment=None).passed
    patch.save(tmp_path / "patch.yaml")
    assert SchemaPatch.load(tmp_path / "patch.yaml").accept() == patch.accept()
    (one,) = [change for change in patch.changes if change.anomalies == ("ENUM_TYPE_UNEXPECTED_STRING_VALUES",)]
    assert one.feature == "s.b"
    only = patch.accept([one.id])
    assert only.features[0].fields[1].domain == Values(("x", "y", "z", "NEW"))
    assert only.features[0].fields[0] == schema.features[0].fields[0]
    text = schema_to_yaml(schema).replace("  s:", "  # mine\n  s:")
    edited = edit_yaml(text, patch.accept())
    assert edited.kept
    assert "# mine" in edited.text
    assert schema_from_yaml(edited.text) == patch.accept()


def test_a_struct_that_became_something_else_has_no_fields() -> None:
    schema = infer_schema(pa.table({"s": [{"a": 1, "b": {"c": 2}}]}))
    for data in (pa.table({"s": [1, 2]}), pa.table({"s": [{"a": 1, "b": 3}]}), pa.table({"s": [[{"a": 1}]]})):
        patch = update_schema(schema, data)
        assert patch.unresolved == ()
        assert validate(data, patch.accept()).passed


def test_fields_have_bounds_on_drift() -> None:
    field = Feature("a", "int", drift={"l_infinity": 0.2})
    schema = Schema((Feature("s", "struct", fields=(field,)),))
    now, before = (statistics(pa.table({"s": [{"a": one} for one in side]})) for side in ([1, 1, 2], [1, 2, 2]))
    (found,) = validate(now, schema, previous=before).anomalies
    assert (found.feature, found.path, found.type) == ("s.a", ("s", "a"), "COMPARATOR_L_INFTY_HIGH")
    patch = update_schema(schema, now, previous=before)
    assert patch.accept().features[0].fields[0].drift["l_infinity"] == pytest.approx(1 / 3, abs=1e-6)
    assert validate(now, patch.accept(), previous=before).passed


def test_what_contradicts_itself_in_fields_is_refused() -> None:
    with pytest.raises(SchemaError, match="fields are of a struct, not of int"):
        Schema((Feature("s", "int", fields=(Feature("a"),)),))
    with pytest.raises(SchemaError, match="feature 's': field 'a' appears twice"):
        Schema((Feature("s", "struct", fields=(Feature("a"), Feature("a"))),))
    with pytest.raises(SchemaError, match="feature 's': feature 'a': min_fraction 2 is not a share"):
        Schema((Feature("s", "struct", fields=(Feature("a", presence=Presence(2)),)),))
    bad = 'feature { name: "s" type: STRUCT struct_domain { feature { name: "a" type: INT domain: "gone" } } }'
    with pytest.raises(SchemaError, match="'a': a domain is not for INT"):
        schema_from_pbtxt(bad)


FIELDS = ("a", "b", "a.b", "'x'", "")
leaves = st.sampled_from([pa.int64(), pa.float32(), pa.string(), pa.bool_(), pa.decimal128(17, 3)])
kinds = st.recursive(
    leaves,
    lambda inner: st.one_of(
        inner.map(pa.list_),
        inner.map(lambda kind: pa.map_(pa.string(), kind)),
        st.dictionaries(st.sampled_from(FIELDS), inner, min_size=1, max_size=3).map(
            lambda fields: pa.struct(list(fields.items()))
        ),
    ),
    max_leaves=5,
)


def values(kind: Any) -> st.SearchStrategy[Any]:
    there: st.SearchStrategy[Any]
    if pa.types.is_map(kind):
        there = st.dictionaries(st.sampled_from("uvw"), values(kind.item_type), max_size=2).map(lambda x: [*x.items()])
    elif pa.types.is_list(kind):
        there = st.lists(values(kind.value_type), max_size=3)
    elif pa.types.is_struct(kind):
        there = st.fixed_dictionaries({field.name: values(field.type) for field in kind})
    elif pa.types.is_decimal(kind):
        there = st.integers(-(10**17) + 1, 10**17 - 1).map(lambda units: Decimal(units).scaleb(-3))
    elif pa.types.is_string(kind):
        there = st.sampled_from(["x", "y", "0", "1", "true"])
    else:
        there = st.booleans() if pa.types.is_boolean(kind) else st.integers(-1, 3)
    return st.one_of(st.none(), there)


@st.composite
def two_tables(draw: st.DrawFn) -> tuple[pa.Table, pa.Table]:
    """Two tables whose columns, of the same names, are mostly of the same types."""
    names = {name: draw(kinds) for name in ("s", "s.a")}
    others = {name: draw(st.sampled_from([kind, draw(kinds)])) for name, kind in names.items()}
    made = [
        pa.table(
            {name: pa.array(draw(st.lists(values(kind), min_size=4, max_size=4)), kind) for name, kind in one.items()}
        )
        for one in (names, others)
    ]
    return made[0], made[1]


def of_values(value: int | str, kind: Any) -> pa.Table:
    """A table with a map's single value, of a type."""
    kind = pa.map_(pa.string(), kind)
    return pa.table({"s": pa.array([None, None], pa.int64()), "s.a": pa.array([None, [("u", value)]], kind)})


@given(two_tables())
@example((of_values(0, pa.int64()), of_values("0", pa.string())))
@settings(max_examples=12, deadline=None)
def test_laws_of_nested_schemas(tables: tuple[pa.Table, pa.Table]) -> None:
    first, second = tables
    schema = infer_schema(first)
    assert validate(first, schema).anomalies == ()
    text = schema_to_yaml(schema)
    assert schema_from_yaml(text) == schema
    assert schema_from_pbtxt(schema_to_pbtxt(schema).text).schema.feature("s") is not None
    found = anomalous_rows(second, validate(second, schema), schema)
    rowless = ("SCHEMA_MISSING_COLUMN", "SCHEMA_NEW_COLUMN", "VALUE_NESTEDNESS_MISMATCH")  # a new one may be all null
    readable = "; all that data has of it can be read as "  # text in place of numbers: no row is to blame
    assert all(each.rows or readable in each.message for each in found.anomalies if each.type not in rowless)
    relaxed = update_schema(schema, second).accept()
    assert validate(second, relaxed).passed
    edited = edit_yaml(text, relaxed)
    assert edited.kept
    assert schema_from_yaml(edited.text) == relaxed
    assert drift(first, first).drifted == ()
