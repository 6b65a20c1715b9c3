"""Bounds on drift and skew in a schema: written, read, refused, and turned into anomalies."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from drivetrain.data import schema_from_pbtxt, schema_to_pbtxt
from drivetrain.data.drift_skew.compare import MEASURES
from drivetrain.data.drift_skew.report import drift
from drivetrain.data.expectations.from_schema import schema_to_expectations
from drivetrain.data.schemas.comparators import COMPARATORS
from drivetrain.data.schemas.schema import ANOMALIES, Feature, Presence, Schema
from drivetrain.data.schemas.yaml_read import schema_from_yaml
from drivetrain.data.schemas.yaml_write import schema_to_yaml
from drivetrain.data.stats.accumulator import StatisticsAccumulator
from drivetrain.data.stats.document import Statistics, from_states
from drivetrain.data.validation.validate import validate
from drivetrain.errors import InputError

NAN = float("nan")


def state(**columns: Any) -> StatisticsAccumulator:
    made = StatisticsAccumulator()
    arrays = [pa.array(column, from_pandas=False) for column in columns.values()]
    made.add_batch(pa.RecordBatch.from_arrays(arrays, list(columns)))
    return made


def of(**columns: Any) -> Statistics:
    return from_states({"data": state(**columns)})


def schema(kind: str = "any", /, **bounds: float) -> Schema:
    return Schema((Feature("x", kind, drift=bounds),))


def found(
    current: Statistics, wanted: Schema, *, previous: Statistics | None = None, serving: Statistics | None = None
) -> list[tuple[str, str]]:
    anomalies = validate(current, wanted, previous=previous, serving=serving).anomalies
    return [(anomaly.type, anomaly.feature or "") for anomaly in anomalies]


def test_a_schema_with_bounds_is_written_and_read() -> None:
    made = Schema(
        (
            Feature("a b", "string", drift={"l_infinity": 0.01, "psi": 0.2}, skew={"missing_rate": 0.05}),
            Feature("x", "float", drift={"jensen_shannon": 1e-05, "wasserstein_sigma": 2}),
        )
    )
    text = schema_to_yaml(made)
    assert "    drift: {l_infinity: 0.01, psi: 0.2}\n    skew: {missing_rate: 0.05}\n" in text
    assert schema_from_yaml(text) == made
    not_expressed = schema_to_expectations(made)["meta"]["drivetrain"]["not_expressed"]
    assert {"drift of a b", "skew of a b", "drift of x"} <= set(not_expressed)
    assert "drift: psi ≤ 0.2" in made.to_html()


def test_tfx_comparators_are_read_and_written() -> None:
    made = Schema(
        (
            Feature("s", "string", drift={"l_infinity": 0.01, "jensen_shannon_quantiles": 0.2}),
            Feature("x", "float", skew={"jensen_shannon": 0.03, "normalized_abs_difference": 0.5}),
        )
    )
    text, notes = schema_to_pbtxt(made)
    assert notes == ()
    again = schema_from_pbtxt(text)
    assert again.notes == ()
    for name in ("s", "x"):
        mine, read = made.feature(name), again.schema.feature(name)
        assert mine is not None
        assert read is not None
        assert (read.drift, read.skew) == (mine.drift, mine.skew)
    assert "type: QUANTILES" in text
    notes = schema_to_pbtxt(schema(psi=0.2)).notes
    assert "TFDV has no psi: the drift of x goes without it" in notes
    odd = schema_from_pbtxt('feature { name: "x" type: INT drift_comparator { infinity_norm {} } }')
    assert "infinity_norm of feature 'x' has no threshold and is not taken over" in odd.notes[0]


@pytest.mark.parametrize(
    ("kind", "bounds", "message"),
    [
        ("int", {"linf": 0.1}, "no comparator 'linf'"),
        ("int", {"psi": -1.0}, "psi -1.0 is not a bound"),
        ("int", {"psi": float("inf")}, "psi inf is not a bound"),
        ("int", {"psi": 10**400}, "psi 10+ is not a bound"),
        ("string", {"wasserstein": 1.0}, "wasserstein means nothing for string"),
        ("float", {"cramers_v": 1.0}, "cramers_v means nothing for float"),
        ("bool", {"kolmogorov_smirnov": 1.0}, "kolmogorov_smirnov means nothing for bool"),
    ],
)
def test_bounds_that_mean_nothing_are_refused(kind: str, bounds: dict[str, float], message: str) -> None:
    with pytest.raises(InputError, match=message):
        schema(kind, **bounds)


def test_the_line_of_a_bad_bound() -> None:
    text = "format: drivetrain.schema/1\nfeatures:\n  x:\n    type: int\n    drift: {psi: much}\n"
    with pytest.raises(InputError, match="a number is wanted") as caught:
        schema_from_yaml(text, "s.yaml")
    assert caught.value.where == "s.yaml:5"


def test_every_comparator_has_a_measure_and_an_anomaly() -> None:
    for comparator in COMPARATORS.values():
        assert comparator.measure in MEASURES
        assert ANOMALIES[comparator.anomaly] == "ERROR"


A, B = ["a"] * 6 + ["b"] * 4, ["a"] * 3 + ["b"] * 4 + ["c"] * 3


def test_above_the_bound_is_an_anomaly_and_equal_is_not() -> None:
    (one,) = validate(of(x=A), schema(l_infinity=0.29), previous=of(x=B)).anomalies
    assert one.type == "COMPARATOR_L_INFTY_HIGH"
    assert one.message == (
        "the L-infinity distance of x between current and previous data is 0.3, more than 0.29; 'c': 30 % → 0 %"
    )
    assert one.expected == "at most 0.29"
    assert one.values[0] == {"value": "a", "current": 0.6, "previous": 0.3, "count": 6}
    assert found(of(x=["a"] * 3 + ["b"]), schema(l_infinity=0.25), previous=of(x=["a", "b"])) == []
    assert found(of(x=A), schema(l_infinity=0.29), serving=of(x=B)) == []  # the schema bounds drift, not skew
    skew = Schema((Feature("x", skew={"l_infinity": 0.29}),))
    assert found(of(x=A), skew, serving=of(x=B)) == [("COMPARATOR_L_INFTY_HIGH", "x")]


def test_skew_is_told_from_training_to_serving() -> None:
    """The training data is what is checked, yet it came first."""
    both = Schema((Feature("x", skew={"l_infinity": 0.1, "missing_rate": 0.1}),))
    (moved, missing) = validate(of(x=["a", "b", "a", "b"]), both, serving=of(x=["a", None, "a", "a"])).anomalies
    assert "between training and serving data is 0.5, more than 0.1; 'b': 50 % → 0 %" in moved.message
    assert "between training and serving data is 0.25, more than 0.1; 0 % → 25 %" in missing.message


@pytest.mark.parametrize("comparator", COMPARATORS)
def test_every_comparator(comparator: str) -> None:
    if comparator == "missing_rate":
        current, control = of(x=[1, None, None, 4] * 100), of(x=[1, 2, None, 4] * 100)
    else:
        current, control = of(x=[1, 2, 3, 9] * 100), of(x=[1, 1, 3, 4] * 100)
    name = COMPARATORS[comparator].anomaly
    (one,) = validate(current, schema(**{comparator: 0.05}), previous=control).anomalies
    assert one.type == name
    assert "more than 0.05" in one.message
    assert one.fix
    assert found(current, schema(**{comparator: 0.05}), previous=current) == []
    assert found(current, schema(**{comparator: 50.0}), previous=control) == []


def test_missing_control_data() -> None:
    missing = [("COMPARATOR_CONTROL_DATA_MISSING", "x")]
    wanted = schema(psi=0.1)
    assert found(of(x=[1]), wanted, previous=of(y=[1])) == missing
    assert found(of(x=[1]), wanted, previous=of(x=pa.nulls(2, pa.int64()))) == missing
    assert found(of(x=[1]), wanted, previous=of(x=["1"])) == missing
    assert found(of(x=[1]), wanted, previous=from_states({"a": state(x=[1]), "b": state(x=[1])})) == missing
    assert found(of(x=[1]), wanted) == []
    assert found(of(x=[1]), schema(), previous=of(y=[1])) == []
    # Without values there is nothing to compare, but how many are missing can still be compared.
    assert found(of(x=[1]), schema(missing_rate=0.1), previous=of(x=pa.nulls(2, pa.int64()))) == [
        ("COMPARATOR_MISSING_RATE_HIGH", "x")
    ]
    assert found(of(x=pa.nulls(2, pa.int64())), wanted, previous=of(x=[1])) == []


EMPTY = {
    "null": pa.nulls(2), "int": pa.nulls(2, pa.int64()), "text": pa.nulls(2, pa.string()), "NaN": pa.array([NAN, NAN]),
    "lists": pa.array([[], None], pa.list_(pa.int64())), "of null": pa.array([[None], None], pa.list_(pa.string())),
}  # fmt: skip


@pytest.mark.parametrize("change", ["previous", "serving"])
@pytest.mark.parametrize("now", EMPTY)
@pytest.mark.parametrize("then", EMPTY)
def test_a_column_that_is_empty_on_both_sides_has_not_changed(now: str, then: str, change: str) -> None:
    """Whatever type its source gives it: a CSV file that has no value of it says nothing of its type."""
    bounds = {comparator: 0.0 for comparator in COMPARATORS if comparator != "missing_rate"}
    wanted = Schema((Feature("x", drift=bounds, skew=bounds),))
    assert found(of(x=EMPTY[now]), wanted, **{change: of(x=EMPTY[then])}) == []
    missing = Schema((Feature("x", drift={"missing_rate": 0.4}, skew={"missing_rate": 0.4}),))
    assert found(of(x=EMPTY[now]), missing, **{change: of(x=EMPTY[now])}) == []


def test_a_column_that_is_empty_on_one_side_is_told() -> None:
    both = schema(psi=0.1, missing_rate=0.1)
    (anomaly,) = validate(of(x=[1, 2]), both, previous=of(x=EMPTY["int"])).anomalies
    assert anomaly.type == "COMPARATOR_CONTROL_DATA_MISSING"
    assert anomaly.message == "x has no values in the previous data: nothing to compare the current data with"
    # Its presence says whether it may lose all values; how many it lost can be bounded. So in TFDV, without the latter.
    assert found(of(x=EMPTY["int"]), schema(psi=0.1), previous=of(x=[1, 2])) == []
    assert found(of(x=EMPTY["int"]), both, previous=of(x=[1, 2])) == [("COMPARATOR_MISSING_RATE_HIGH", "x")]
    assert found(of(x=EMPTY["int"]), schema(psi=0.1), previous=of(y=[1, 2])) == []
    assert found(of(x=EMPTY["int"]), both, previous=of(y=[1, 2])) == [("COMPARATOR_CONTROL_DATA_MISSING", "x")]
    assert found(of(x=EMPTY["NaN"]), schema(l_infinity=0.1), previous=of(x=[1.5, 2.5])) == [
        ("COMPARATOR_L_INFTY_HIGH", "x")
    ]


def test_texts_that_are_all_new_do_not_pass_a_bound() -> None:
    now, then = of(x=[f"now {row // 2}" for row in range(40)]), of(x=[f"then {row // 2}" for row in range(40)])
    assert found(now, schema(cramers_v=0.1), previous=then) == [("COMPARATOR_CRAMERS_V_HIGH", "x")]  # not known
    (one,) = validate(now, schema(new_values=0.25), previous=then).anomalies
    assert one.type == "COMPARATOR_NEW_VALUES_HIGH"
    assert (
        "the share of rows with new values of x between current and previous data is 1, more than 0.25" in one.message
    )


def test_what_cannot_be_computed_does_not_pass() -> None:
    (one,) = validate(of(x=[3, 4]), schema(wasserstein_sigma=1.0), previous=of(x=[5, 5])).anomalies
    assert "unknown (the control does not vary" in one.observed
    assert found(of(x=[NAN]), schema(kolmogorov_smirnov=0.5), previous=of(x=[1.0])) == [
        ("COMPARATOR_KOLMOGOROV_SMIRNOV_HIGH", "x")
    ]
    assert found(of(x=[5, 5]), schema(cramers_v=0.1), previous=of(x=[5, 5])) == []


def test_data_sets_are_compared_with_their_namesakes_or_the_only_control() -> None:
    both = from_states({"train": state(x=A), "eval": state(x=B)})
    assert found(both, schema(l_infinity=0.1), previous=both) == []
    anomalies = validate(both, schema(l_infinity=0.1), previous=of(x=A)).anomalies
    assert [(anomaly.split, anomaly.type) for anomaly in anomalies] == [("eval", "COMPARATOR_L_INFTY_HIGH")]


def test_features_that_are_not_looked_at() -> None:
    off = Schema((Feature("x", drift={"psi": 0.1}, stage="DEPRECATED"),))
    assert found(of(x=[1]), off, previous=of(y=[1])) == []
    serving = Schema((Feature("x", skew={"psi": 0.1}, not_in_environments=("SERVING",)),), environments=("SERVING",))
    assert [
        anomaly.type for anomaly in validate(of(y=[1]), serving, environment="SERVING", serving=of(y=[1])).anomalies
    ] == ["SCHEMA_NEW_COLUMN"]
    gone = Schema((Feature("x", presence=Presence(1.0), drift={"psi": 0.1}),))
    assert found(of(y=[1]), gone, previous=of(x=[1])) == [
        ("SCHEMA_MISSING_COLUMN", "x"),
        ("SCHEMA_NEW_COLUMN", "y"),
    ]


def test_severity_of_a_comparator() -> None:
    wanted = Schema((Feature("x", drift={"l_infinity": 0.1}, severity={"COMPARATOR_L_INFTY_HIGH": "WARNING"}),))
    result = validate(of(x=A), wanted, previous=of(x=B))
    assert result.passed
    assert result.anomalies[0].severity == "WARNING"


def test_a_report_follows_the_schema_where_it_says_something() -> None:
    wanted = Schema((Feature("x", drift={"l_infinity": 0.3, "psi": 0.1}), Feature("y", drift={"l_infinity": 1.0})))
    report = drift(of(x=A * 50, y=[1] * 500), of(x=B * 50, y=[2] * 500), schema=wanted)
    assert report.drifted == ("x",)
    assert report["x"].high == ("psi",)
    assert report["x"].reason.startswith("population stability index 2.")
    assert drift(of(x=A), of(x=B), schema=wanted, comparator="skew")["x"].thresholds == {}
