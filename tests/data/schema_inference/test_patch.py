"""A schema's update: the law that the data then passes, each change by itself, files and comments."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from drivetrain.data import (
    Bool,
    Count,
    Feature,
    Presence,
    Range,
    Ratio,
    Schema,
    Values,
    infer_schema,
    load_schema,
    schema_from_yaml,
    schema_to_yaml,
    statistics,
    validate,
)
from drivetrain.data.schema_inference.patch import SchemaPatch
from drivetrain.data.schema_inference.update import update_schema
from drivetrain.data.schemas.schema import Domain, Time
from drivetrain.data.schemas.yaml_edit import edit_yaml
from drivetrain.errors import InputError
from hypothesis import given, settings
from hypothesis import strategies as st

HEAD = "format: drivetrain.schema/1\nfeatures:\n"


def one(feature: Feature, values: Any, **more: Any) -> SchemaPatch:
    return update_schema(Schema((feature,)), pa.table({"x": pa.array(values)}), **more)


def updated(feature: Feature, values: Any, **more: Any) -> Feature | None:
    return one(feature, values, **more).accept().feature("x")


# --- what each anomaly is relaxed to: the golden rules of TFDV's update_schema


@pytest.mark.parametrize(
    ("values", "before", "after"),
    [
        (
            ["a", "q", "r", "q"],
            Feature("x", "string", domain=Values(("a", "b"))),
            {"domain": Values(("a", "b", "q", "r"))},
        ),
        ([-5, 3, 900], Feature("x", "int", domain=Range(0, 100)), {"domain": Range(-5, 900)}),
        (
            [-1.0, math.nan, math.inf],
            Feature("x", "float", domain=Range(0, 10, True, True)),
            {"domain": Range(-1.0, None)},
        ),
        (["-3", "7"], Feature("x", "string", domain=Range(0, 5, parse="int")), {"domain": Range(-3, 7, parse="int")}),
        ([1, None, None], Feature("x", "int", Presence(1.0, 2)), {"presence": Presence(0.333333, 1)}),
        (pa.nulls(3, pa.int64()), Feature("x", "int", Presence(1.0, 2)), {"presence": Presence(0.0, 0)}),
        ([0, 5], Feature("x", "int", domain=Bool()), {"domain": Range(0, 5)}),
        ([7, 9], Feature("x", "int", domain=Bool()), {"domain": Range(0, 9)}),
        ([0.0, -0.5], Feature("x", "float", domain=Bool()), {"domain": Range(-0.5, 1)}),
        ([0.0, math.inf], Feature("x", "float", domain=Bool()), {"domain": None}),
        (["yes", "no"], Feature("x", "string", domain=Bool("yes", "nope")), {"domain": None}),
        ([1.5, 2.0], Feature("x", "int", domain=Range(1, 3)), {"type": "float"}),
        ([1.5, 9.0], Feature("x", "int", domain=Range(1, 3)), {"type": "float", "domain": Range(1, 9.0)}),
        (["a"], Feature("x", "int", domain=Range(1, 3), drift={"wasserstein": 1.0}),
         {"type": "string", "domain": None, "drift": {}}),
        ([1, 2, 3], Feature("x", "int", unique=Count(5, 9)), {"unique": Count(3, 9)}),
        ([1, 2, 3], Feature("x", "int", unique=Count(max=2)), {"unique": Count(max=3)}),
        ([[1], [1, 2, 3]], Feature("x", "int", value_counts=(Count(2, 2),)), {"value_counts": (Count(1, 3),)}),
        ([[1], [1, 2]], Feature("x", "int", shape=(2,)), {"shape": None, "value_counts": (Count(),)}),
        ([[1], [1, 2]], Feature("x", "int"), {"type": "list"}),
        (["2018-01-01", "x", "y", "z"], Feature("x", "string", domain=Time("%Y-%m-%d")),
         {"domain": Time("%Y-%m-%d", 0.25)}),
        (["x"], Feature("x", "string", domain=Time("%Y-%m-%d")), {"domain": None}),
        (["1970-01-01"], Feature("x", "string", domain=Time("%Y-%m-%d", years=Count(1990, 2029))),
         {"domain": Time("%Y-%m-%d")}),
    ],
)  # fmt: skip
def test_it_is_relaxed_to_what_was_observed(values: Any, before: Feature, after: dict[str, Any]) -> None:
    patch = one(before, values)
    assert patch.changes
    assert patch.accept().features == (replace(before, **after),)
    assert not validate(statistics(pa.table({"x": pa.array(values)})), patch.accept()).anomalies


def test_too_many_values_end_the_domain() -> None:
    assert updated(Feature("x", "string", domain=Values(("a",))), ["b", "c"], max_values=3) == Feature(
        "x", "string", domain=Values(("a", "b", "c"))
    )
    assert updated(Feature("x", "string", domain=Values(("a",))), ["b", "c"], max_values=2) == Feature("x", "string")


def test_columns_come_and_go() -> None:
    schema = Schema((Feature("gone", presence=Presence(1.0)),))
    accepted = update_schema(schema, pa.table({"new": [1, 2]})).accept()
    assert accepted.feature("gone") == Feature("gone", presence=Presence(1.0), stage="DEPRECATED")  # as TFDV
    assert accepted.feature("new") == infer_schema(pa.table({"new": [1, 2]})).feature("new")


def test_rows_and_earlier_spans() -> None:
    current, previous = pa.table({"x": ["a"] * 3 + ["b"]}), pa.table({"x": ["a", "b"]})
    schema = Schema(
        (Feature("x", "string", drift={"l_infinity": 0.1, "psi": 9.0}),),
        min_rows=9,
        max_rows=20,
        rows_drift=Ratio(0.5, 1),
    )
    patch = update_schema(schema, current, previous=previous)
    assert {change.anomalies for change in patch.changes} == {
        ("COMPARATOR_L_INFTY_HIGH",),
        ("DATASET_LOW_NUM_EXAMPLES",),
        ("COMPARATOR_HIGH_NUM_EXAMPLES",),
    }
    accepted = patch.accept()
    assert (accepted.min_rows, accepted.max_rows, accepted.rows_drift) == (4, 20, Ratio(0.5, 2.0))
    assert accepted.features[0].drift == {"l_infinity": 0.25, "psi": 9.0}  # 3/4 − 1/2
    assert validate(statistics(current), accepted, previous=statistics(previous)).passed
    # Nothing to compare with: the bound is of no use
    lost = update_schema(schema, current, previous=pa.table({"y": [1]})).accept()
    assert lost.features[0].drift == {}


@pytest.mark.parametrize("version", [["data"], ["one", "two"]])
def test_a_bound_with_nothing_to_compare_with_stays(version: list[str]) -> None:
    schema = Schema((Feature("x", "string"),), rows_drift=Ratio(0.5, 1), rows_version=Ratio(0.5, 4))
    current, previous = pa.table({"x": ["a"] * 4}), pa.table({"x": ["a", "b"]})
    patch = update_schema(
        schema, current, previous=previous, previous_version=statistics(dict.fromkeys(version, previous))
    )
    assert [change.anomalies for change in patch.changes] == [("COMPARATOR_HIGH_NUM_EXAMPLES",)]
    assert patch.accept() == replace(schema, rows_drift=Ratio(0.5, 2.0))


def test_environments() -> None:
    schema = Schema((Feature("x", "int", not_in_environments=("SERVING",)),), environments=("TRAINING", "SERVING"))
    accepted = update_schema(schema, pa.table({"x": [1]}), environment="SERVING").accept()
    assert accepted.in_environment(accepted.features[0], "SERVING")


def test_what_no_schema_can_meet_is_left() -> None:
    schema = Schema((Feature("x", "int", domain=Range(0, 1)),))
    document = statistics({"train": pa.table({"x": [5]})})
    assert not update_schema(schema, document).unresolved
    empty = pa.table({"x": pa.array([], pa.int64())}).to_batches()
    from drivetrain.data import StatisticsAccumulator
    from drivetrain.data.stats.document import from_states

    states = {"train": document.state("train"), "eval": StatisticsAccumulator()}
    for batch in empty:
        states["eval"].add_batch(batch)
    patch = update_schema(schema, from_states(states))
    assert [one.type for one in patch.unresolved] == ["DATA_MISSING"]
    assert patch.accept().features[0].domain == Range(0, 5)


def test_what_one_change_uncovers_goes_with_it() -> None:
    """Without its bool, the feature is an int; one data set has bools; and nothing is left to compare."""
    feature = Feature("x", "int", domain=Bool(), drift={"psi": 0.0})
    current = {"train": pa.table({"x": [None, -1]}), "eval": pa.table({"x": [None, False]})}
    patch = update_schema(Schema((feature,)), current, previous=pa.table({"y": [1]}))
    assert patch.accept().features == (Feature("x", "any"),)
    assert not patch.unresolved


# --- the law

texts = st.sampled_from(["a", "b", "c", "1", "22", "-7", "1.5", "nan", "true", "2018-11-01", ""])
columns = st.one_of(
    st.lists(st.none() | st.integers(-(2**40), 2**40), min_size=4, max_size=4).map(lambda v: pa.array(v, pa.int64())),
    st.lists(st.none() | st.integers(0, 1), min_size=4, max_size=4).map(lambda v: pa.array(v, pa.int8())),
    st.lists(st.none() | st.floats(), min_size=4, max_size=4).map(lambda v: pa.array(v, pa.float64())),
    st.lists(st.none() | texts, min_size=4, max_size=4).map(lambda v: pa.array(v, pa.string())),
    st.lists(st.none() | st.binary(max_size=2), min_size=4, max_size=4).map(lambda v: pa.array(v, pa.binary())),
    st.lists(st.none() | st.booleans(), min_size=4, max_size=4).map(lambda v: pa.array(v, pa.bool_())),
    st.lists(st.none() | st.lists(st.integers(0, 3), max_size=3), min_size=4, max_size=4).map(
        lambda v: pa.array(v, pa.list_(pa.int64()))
    ),
    st.lists(st.none() | st.lists(st.none() | st.lists(texts, max_size=2), max_size=2), min_size=4, max_size=4).map(
        lambda v: pa.array(v, pa.list_(pa.list_(pa.string())))
    ),
    st.lists(st.none() | st.integers(0, 10**9), min_size=4, max_size=4).map(lambda v: pa.array(v, pa.timestamp("s"))),
)
small = st.integers(0, 4)
counts = st.builds(lambda low, more: Count(low, None if more is None else low + more), small, st.none() | small)
DOMAINS: dict[str, st.SearchStrategy[Domain | None]] = {
    "int": st.sampled_from([None, Bool(), Range(0, 10), Range(max=-1), Time("UNIX_SECONDS")]),
    "float": st.sampled_from([None, Bool(), Range(0.5, 2.5, True, True), Range(min=3)]),
    "string": st.sampled_from(
        [None, Bool("a", "b"), Values(("a", "1")), Values(("c",), 0.5), Values(()), Range(0, 5, parse="int"),
         Range(0, 5, True, parse="float"), Time("%Y-%m-%d"), Time("%Y", 1.0, Count(2000)), Time("%H:%M", 0.5)]
    ),
    "bytes": st.sampled_from([None, Values(("a",))]),
}  # fmt: skip


@st.composite
def features(draw: st.DrawFn, name: str) -> Feature:
    kind = draw(st.sampled_from(["any", "int", "float", "string", "bytes", "bool", "list", "timestamp"]))
    shape = draw(st.sampled_from([None, None, (1,), (2,)]))
    psi = {"psi": draw(st.sampled_from([0.0, 0.1]))}
    return Feature(
        name,
        kind,
        Presence(draw(st.sampled_from([None, 0.5, 1.0])), draw(st.sampled_from([None, 1, 4]))),
        draw(DOMAINS[kind]) if kind in DOMAINS else None,
        shape=shape,
        value_counts=() if shape else draw(st.sampled_from([(), (Count(1, 1),), (Count(2, 2),), (Count(), Count(1))])),
        unique=draw(st.none() | counts),
        drift=draw(st.sampled_from([{}, psi, {"missing_rate": 0.0}])),
        stage=draw(st.sampled_from(["", "", "BETA", "DEPRECATED"])),
    )


Case = tuple[Schema, dict[str, pa.Table], pa.Table]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    names = ["p", "q", "r"]
    schema = Schema(
        tuple(draw(features(name)) for name in draw(st.lists(st.sampled_from(names), unique=True))),
        min_rows=draw(st.sampled_from([None, 2, 9])),
        max_rows=draw(st.sampled_from([None, 9])),
        rows_drift=draw(st.sampled_from([None, Ratio(0.9, 0.95), Ratio(2, 3)])),
        rows_version=draw(st.sampled_from([None, Ratio(0.9, 0.95), Ratio(2, 3)])),
        severity=draw(st.sampled_from([{}, {"STATS_NOT_AVAILABLE": "ERROR"}])),
    )

    def table() -> pa.Table:
        return pa.table(
            {name: draw(columns) for name in draw(st.lists(st.sampled_from(names), min_size=1, unique=True))}
        )

    return schema, {split: table() for split in draw(st.sampled_from([["data"], ["train", "eval"]]))}, table()


@pytest.mark.slow
@settings(deadline=None, max_examples=80)
@given(cases(), st.sampled_from([["data"], ["train", "eval"], ["one", "two"]]))
def test_after_all_is_accepted_the_data_passes(case: Case, version_splits: list[str]) -> None:
    schema, tables, before = case
    current, previous = statistics(tables), statistics(dict.fromkeys(tables, before))
    controls: dict[str, Any] = {
        "previous": previous,
        "previous_version": statistics(dict.fromkeys(version_splits, before)),
    }
    patch = update_schema(schema, current, **controls)
    accepted = patch.accept()
    anomalies = validate(current, accepted, **controls)
    assert anomalies.passed, (anomalies.to_json(), schema_to_yaml(schema), schema_to_yaml(accepted))
    assert not patch.unresolved
    # Nothing that was not violated changes, and a schema that fits is left alone.
    first = validate(current, schema, **controls)
    assert {change.feature for change in patch.changes} <= {anomaly.feature for anomaly in first.anomalies}
    assert update_schema(accepted, current, **controls).accept() == accepted
    # The text of the first schema can be edited into that of the second.
    text, kept = edit_yaml(schema_to_yaml(schema), accepted)
    assert schema_from_yaml(text) == accepted
    assert kept or not schema.features


@settings(deadline=None, max_examples=50)
@given(cases(), st.data())
def test_each_change_can_be_taken_alone(
    case: tuple[Schema, dict[str, pa.Table], pa.Table], data: st.DataObject
) -> None:
    schema, tables, _ = case
    patch = update_schema(schema, statistics(tables))
    ids = [change.id for change in patch.changes]
    assert ids == list(range(1, len(ids) + 1))
    assert patch.accept([]) == schema
    some = data.draw(st.lists(st.sampled_from(ids), unique=True)) if ids else []
    accepted = patch.accept(some)
    assert patch.reject(set(ids) - set(some)).accept() == accepted
    touched = {change.feature for change in patch.changes if change.id in some}
    for feature in schema.features:
        if feature.name not in touched:
            assert accepted.feature(feature.name) == feature


# --- files


def test_a_patch_is_a_file_to_be_cut_down(tmp_path: Path) -> None:
    schema = Schema((Feature("x", "int", domain=Range(0, 100)), Feature("c", "string", domain=Values(("a\n", "é")))))
    patch = update_schema(schema, pa.table({"x": [-5, 900], "c": ["a\n", "#: [\x85"]}))
    assert [(change.id, change.anomalies) for change in patch.changes] == [
        (1, ("INT_TYPE_SMALL_INT",)),
        (2, ("INT_TYPE_BIG_INT",)),
        (3, ("ENUM_TYPE_UNEXPECTED_STRING_VALUES",)),
    ]
    patch.save(tmp_path / "p.yaml")
    again = SchemaPatch.load(tmp_path / "p.yaml")
    assert again == patch
    assert again.accept([2]).feature("x") == Feature("x", "int", domain=Range(0, 900))
    assert json.loads(patch.to_json())["changes"][1]["diff"] == (
        "   x:\n     type: int\n-    domain: {range: {min: 0, max: 100}}\n+    domain: {range: {min: 0, max: 900}}\n"
    )
    assert "2. x: INT_TYPE_BIG_INT (ERROR)\n   x has values above 100\n" in patch.diff
    assert list(patch.to_pandas()["feature"]) == ["x", "x", "c"]
    with pytest.raises(InputError, match="no change 4"):
        patch.accept([4])
    for text in ("[" * 5000, "at: 2020-13-45", f"n: {'9' * 5000}"):
        (tmp_path / "p.yaml").write_text(text)
        with pytest.raises(InputError, match=r"cannot be read|nested too deeply"):
            SchemaPatch.load(tmp_path / "p.yaml")
    saved = patch.to_dict()
    for part in ({"schema": None}, {"changes": 5}, {"changes": [{**saved["changes"][0], "after": None}]}):
        (tmp_path / "p.yaml").write_text(json.dumps(saved | part))
        with pytest.raises(InputError, match="lacks a part"):
            SchemaPatch.load(tmp_path / "p.yaml")
    (tmp_path / "p.yaml").write_text("format: other")
    with pytest.raises(InputError, match="not a patch of the format"):
        SchemaPatch.load(tmp_path / "p.yaml")
    with pytest.raises(InputError, match="cannot be read"):
        SchemaPatch.load(tmp_path / "none.yaml")


def test_a_patch_goes_onto_a_schema_edited_meanwhile() -> None:
    patch = one(Feature("x", "int", domain=Range(0, 100)), [900])
    edited = Schema((Feature("y"), Feature("x", "int", Presence(0.5), Range(-1, 100))))
    assert patch.apply(edited).feature("x") == Feature("x", "int", Presence(0.5), Range(-1, 900))
    with pytest.raises(
        InputError, match=r"change 1, x, domain, max: the schema now says 50, where the patch expects 100"
    ):
        patch.apply(Schema((Feature("x", "int", domain=Range(0, 50)),)))
    with pytest.raises(InputError, match="has no feature 'x'"):
        patch.apply(Schema())
    assert patch.apply(patch.accept()) == patch.accept()


MINE = """\
# ours since 2019
format: drivetrain.schema/1   # keep

features:
    carrier:   # two letters
        # the list comes from the IATA
        domain: {values: [AA, UA]}   # ask Kim
        type: string
    # about delays
    delay: {type: int, domain: {range: {min: 0, max: 100}}}  # minutes

    dist:
        type: float
        shape: [1]
        presence:
            min_fraction: 1.0   # always
            # not less
            min_count: 1

# the end
"""


def test_comments_and_order_stay(tmp_path: Path) -> None:
    table = pa.table({"carrier": ["AA", "ZZ"], "delay": [3, 900], "dist": [1.5, None], "new": ["x", "y"]})
    (tmp_path / "schema.yaml").write_text(MINE)
    schema = load_schema(tmp_path / "schema.yaml")
    accepted = update_schema(schema, table).accept()
    text, kept = edit_yaml(MINE, replace(accepted, min_rows=2))
    assert kept
    assert schema_from_yaml(text) == replace(accepted, min_rows=2)
    assert (
        text
        == """\
# ours since 2019
format: drivetrain.schema/1   # keep
rows: {min: 2}

features:
    carrier:   # two letters
        # the list comes from the IATA
        domain:
          values: [AA, UA, ZZ]   # ask Kim
        type: string
    # about delays
    delay:
      type: int
      domain: {range: {min: 0, max: 900}}  # minutes

    dist:
        type: float
        value_count: {}
        presence: {min_fraction: 0.5, min_count: 1}
    new:
      type: string  # string, 2 distinct
      presence: {min_fraction: 1.0, min_count: 1}  # all 2 rows
      domain:  # all that were seen
        values: [x, y]

# the end
"""
    )


def test_a_layout_that_cannot_be_edited_is_written_anew() -> None:
    text, kept = edit_yaml(
        "{format: drivetrain.schema/1, features: {x: {type: int}}}", Schema((Feature("x", "float"),))
    )
    assert not kept
    assert schema_from_yaml(text) == Schema((Feature("x", "float"),))
    assert edit_yaml(HEAD + "  x: {type: int}  # same", Schema((Feature("x", "int"),))).text.endswith("# same")


def test_evidence_goes_with_the_line_it_was_for() -> None:
    january = pa.table({"v": [1, 2, 3], "w": ["a", "b", "a"]})
    schema = infer_schema(january)
    patch = update_schema(schema, pa.table({"v": ["x", "y", None], "w": ["c", "d", None]}))
    texts = {change.anomalies[0]: change.diff for change in patch.changes}
    assert "+    type: string\n" in texts["UNEXPECTED_DATA_TYPE"]  # not: string, for it was int64, 1 to 3
    assert "# all that were seen" not in texts["ENUM_TYPE_UNEXPECTED_STRING_VALUES"].partition("\n+")[2]
    then = patch.accept()
    lines = [then.feature(name).evidence for name in ("v", "w")]
    assert lines == ["", "type: string, 2 distinct"]
    some = patch.accept([change.id for change in patch.changes if change.feature == "w"])
    assert some.feature("v") == schema.feature("v")
    assert some.feature("v").evidence == schema.feature("v").evidence != ""
