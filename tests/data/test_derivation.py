"""Derived columns: equal to pandas', and measured, validated and quoted like the data's own."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from drivetrain.data import anomalous_rows, derived, infer_schema, source_of, statistics, validate
from drivetrain.data.beam import BeamExecutor
from drivetrain.errors import InputError
from drivetrain.tests.data.flights import month


def gained(batch: pa.RecordBatch) -> dict[str, Any]:
    """Minutes that a flight makes up; and whether it left in the rush hour."""
    return {
        "gained": pc.subtract(batch.column("dep_delay"), batch.column("arr_delay")),
        "rush": pc.is_in(batch.column("hour"), pa.array([7, 8, 17, 18])),
    }


def test_as_pandas_computes_them() -> None:
    frame = source_of(month(1))
    features = statistics(derived(frame, gained)).features("data")
    rows = pd.concat([batch.to_pandas() for shard in range(len(frame.shards)) for batch in frame.read(shard)])
    expected = rows["dep_delay"] - rows["arr_delay"]
    assert features["gained"]["missing"] == expected.isna().sum()
    assert features["gained"]["mean"]["value"] == pytest.approx(expected.mean(), rel=1e-12)
    assert features["gained"]["max"]["value"] == expected.max()
    assert features["rush"]["type"] == "bool"
    rush = {item["value"]: item["count"] for item in features["rush"]["top_values"]["value"]}
    assert rush[True] == rows["hour"].isin([7, 8, 17, 18]).sum()
    without_derived = statistics(frame).features("data")
    assert {name: features[name] for name in without_derived} == without_derived


def test_validated_with_rows_that_show_it() -> None:
    table = pa.table({"low": [1, 2, 9, None], "high": [5, 6, 7, 8]})
    schema = infer_schema(statistics(derived(source_of(table.slice(0, 2)), ordered)))
    wide = derived(source_of(table), ordered)
    anomalies = anomalous_rows(wide, validate(statistics(wide), schema), schema)
    (odd,) = [
        anomaly for anomaly in anomalies.anomalies if anomaly.feature == "order" and anomaly.type.startswith("ENUM")
    ]
    assert odd.values == ({"value": "wrong", "count": 1},)
    assert [row["row"] for row in odd.rows] == [2]


def ordered(batch: pa.RecordBatch) -> dict[str, Any]:
    return {"order": pc.if_else(pc.less_equal(batch.column("low"), batch.column("high")), "right", "wrong")}


def test_the_same_on_beam() -> None:
    source = derived(source_of(month(1)), gained)
    local, beam = statistics(source), statistics(source, BeamExecutor())
    assert local.state("data").to_bytes() == beam.state("data").to_bytes()


def test_only_the_columns_it_looks_at() -> None:
    seen: set[tuple[str, ...]] = set()

    def upper(batch: pa.RecordBatch) -> dict[str, Any]:
        seen.add(tuple(batch.schema.names))
        assert batch.schema.field("b").type == pa.string()
        return {"upper": pc.utf8_upper(batch.column("b"))}

    table = pa.table({"a": [1, 2, 3], "b": ["x", "y", "x"], "c": ["p", "p", "q"]})
    source = derived(source_of(table), upper, columns=["b", "b"])
    assert statistics(source).document == statistics(derived(source_of(table), upper)).document
    (batch,) = source.select(["upper", "c"]).with_dictionaries().read(0)
    assert [batch.column(name).to_pylist() for name in batch.schema.names] == [["X", "Y", "X"], ["p", "p", "q"]]
    assert seen == {("b",), ("a", "b", "c")}
    with pytest.raises(InputError, match="there is no column 'z'"):
        derived(source_of(table), upper, columns=["z"])
    with pytest.raises(InputError, match="looks at no column"):
        derived(source_of(table), upper, columns=[])


def test_nothing_is_computed_that_nobody_reads() -> None:
    def never(batch: pa.RecordBatch) -> dict[str, Any]:
        assert not batch.num_rows
        return {"new": pa.array([], pa.int64())}

    source = derived(source_of(pa.table({"x": [1, 2]})), never)
    assert statistics(source.select(["x"])).features("data")["x"]["mean"]["value"] == 1.5


def test_numpy_arrays_and_lists_will_do() -> None:
    source = derived(source_of(pa.table({"x": [1, 2]})), lambda b: {"y": np.arange(b.num_rows, dtype=np.float64)})
    assert statistics(source).features("data")["y"]["max"]["value"] == 1


@pytest.mark.parametrize(
    ("derive", "said"),
    [
        (lambda batch: {"x": batch.column("x")}, "makes a column 'x', which the data has"),
        (lambda batch: {}, "makes no column"),
        (lambda batch: [1], "gave a list, not columns by name"),
        (lambda batch: {"y": batch.column("z")}, r"failed on a batch of no rows \(KeyError"),
        (lambda batch: {"y": pa.array([1])}, "gave 1 values of 'y' for 0 rows"),
        (lambda batch: {"y": [object()]}, "the column 'y' of .* is not of one type"),
    ],
)
def test_what_it_may_not_do(derive: Any, said: str) -> None:
    with pytest.raises(InputError, match=said):
        derived(source_of(pa.table({"x": [1, 2]})), derive)


def test_what_it_may_not_do_later() -> None:
    def changing(batch: pa.RecordBatch) -> Mapping[str, Any]:
        return {"y": pa.array(["a"] * batch.num_rows)} if batch.num_rows else {"y": pa.array([], pa.int64())}

    def vanishing(batch: pa.RecordBatch) -> Mapping[str, Any]:
        return {"z": batch.column("x")} if batch.num_rows else {"y": batch.column("x")}

    for derive, said in ((changing, "'y' of .*changing is not of one type"), (vanishing, "makes no column 'y' here")):
        with pytest.raises(InputError, match=said):
            statistics(derived(source_of(pa.table({"x": [1, 2]})), derive))
