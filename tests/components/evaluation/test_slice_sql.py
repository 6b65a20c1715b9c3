"""Slices by an expression: what they are, which columns they need, and what an expression may not be."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from drivetrain import InputError
from drivetrain.components.evaluation import EvaluationConfig, Slice, Threshold
from drivetrain.components.evaluation.run import evaluate
from drivetrain.components.evaluation.slice_sql import check_expressions, columns_of, values_of
from drivetrain.data import LocalExecutor, open_parquet
from sklearn.metrics import roc_auc_score


def rows(**columns: Any) -> pa.RecordBatch:
    return pa.record_batch({name: pa.array(values) for name, values in columns.items()})


@pytest.mark.parametrize(
    ("sql", "names"),
    [
        ("hour >= 20", ["hour"]),
        ("hour >= 20 -- the evening", ["hour"]),
        ('"A b" || c || "A b"', ["A b", "c"]),
        ("address.city = 'x'", ["address"]),
        ("list_filter(tags, lambda tag: tag > least)", ["tags", "least"]),
        ("CASE WHEN hour < 12 THEN 'am' ELSE 'pm' END", ["hour"]),
        ("nullif(a, 0) IS NULL", ["a"]),  # a macro
        ("strftime(moment, '%A') IN ('Saturday', 'Sunday') AND abs(x) < 2", ["moment", "x"]),
    ],
)
def test_the_columns_of_an_expression(sql: str, names: list[str]) -> None:
    assert list(columns_of(Slice("s", sql=sql))) == names


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        ("hour > (SELECT avg(hour) FROM rows)", "a query inside"),
        ("hour IN (SELECT content FROM read_text('/etc/passwd'))", "a query inside"),
        ("hour > avg(hour)", r"avg\(\)"),
        ("weighted_avg(hour, hour) > 1", r"sum\(\)"),
        ("row_number() OVER () > hour", "a window"),
        ("random() < hour", r"random\(\)"),
        ("moment < now()", r"now\(\)"),
        ("moment < ago(INTERVAL 1 DAY)", "ago"),
        ("unnest(tags)", r"unnest\(\)"),
        ("hour > current_setting('threads')", r"current_setting\(\)"),
        ("columns('a.*')", "a star"),
        ("#1", "a column by position"),
        ("hour > $1", "a parameter"),
        ("1 = 1", "names no column"),
        ("hour >", r"syntax error(.|\n)*brackets: \(hour >\)"),
        ("hour) FROM rows; SELECT (1", "."),
        ("1) , (hour", "not one expression"),
        ("hour) FROM rows UNION ALL SELECT (hour", "not one expression"),
        ("hours(hour)", "no function 'hours'"),
        ("read_text('/etc/passwd') = hour", r"read_text\(\)"),
    ],
)
def test_what_is_no_expression_over_a_row(sql: str, words: str) -> None:
    bad = Slice("s", sql=sql)
    with pytest.raises(InputError, match=words) as caught:
        columns_of(bad)
    assert "the slice 's'" in str(caught.value)
    assert "test_slice_sql.py" in (caught.value.where or "")


def test_a_condition_is_true_or_nothing() -> None:
    batch = rows(hour=[19, 20, None], carrier=["a", None, "c"])
    assert values_of(Slice("s", sql="hour >= 20"), batch).to_pylist() == [None, True, None]
    assert values_of(Slice("s", sql="upper(carrier)"), batch).to_pylist() == ["A", None, "C"]
    coded = pa.record_batch({"carrier": batch.column("carrier").dictionary_encode()})
    assert values_of(Slice("s", sql="carrier = 'a'"), coded).to_pylist() == [True, None, None]
    assert len(values_of(Slice("s", sql="hour >= 20"), batch.slice(0, 0))) == 0


def test_what_cannot_be_evaluated_is_said_before_any_row() -> None:
    schema = pa.schema({"hour": pa.int64(), "carrier": pa.string()})
    check_expressions([Slice("s", sql="hour >= 20")], schema)
    with pytest.raises(InputError, match="'hour' has the name of a column"):
        check_expressions([Slice("hour", sql="hour >= 20")], schema)
    with pytest.raises(InputError, match=r"'pair' of type struct.*makes no slices"):
        check_expressions([Slice("pair", sql="hour, carrier")], schema)
    with pytest.raises(InputError, match="the slice 's': Binder Error"):
        check_expressions([Slice("s", sql="date_trunc('day', hour) = carrier")], schema)


def test_each_thread_has_a_session() -> None:
    batch = rows(hour=list(range(24)))
    with ThreadPoolExecutor(4) as threads:
        answers = list(threads.map(lambda hour: values_of(Slice("s", sql=f"hour = {hour}"), batch), range(24)))
    assert [answer.to_pylist().index(True) for answer in answers] == list(range(24))


class Same:
    """A model that is a column."""

    def setup(self) -> None:
        pass

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch.select(["late", "score"])


def test_metrics_of_slices_by_expressions(tmp_path: Path) -> None:
    """Against scikit-learn; the same from any way of reading the rows."""
    rng = np.random.default_rng(5)
    count = 3_000
    table = pa.table({
        "late": rng.integers(0, 2, count), "score": rng.random(count), "unused": rng.random(count),
        "hour": pa.array(rng.integers(0, 24, count), mask=rng.random(count) < 0.1),
        "carrier": pa.array(["AA", "UA", None]).take(pa.array(rng.integers(0, 3, count))),
    })  # fmt: skip
    pq.write_table(table, tmp_path / "rows.parquet", row_group_size=500)
    source = open_parquet([tmp_path / "rows.parquet"])
    evening = Slice("evening", sql="hour >= 20")
    config = EvaluationConfig(
        "late", "score", metrics=["auc", "example_count"],
        slices=[evening, ["carrier", "evening"], Slice("part", sql="CASE WHEN hour < 6 THEN 'night' END"),
                Slice("never", sql="hour > 99")],
        thresholds=[Threshold("auc", lower=0, slice={"evening": True}), Threshold("auc", lower=0, slice=["never"])],
    )  # fmt: skip
    inputs = {"late": "the model", "score": "the model"}
    results = [evaluate(source, config, LocalExecutor(threads=threads), Same(), inputs=inputs) for threads in (1, 3)]
    assert results[0] == results[1]
    slices = {item["slice"]: item for item in results[0]["metrics"]["slices"]}
    frame = table.to_pandas()
    expected = {"evening=True": frame.hour >= 20, "part=night": frame.hour < 6}
    expected |= {f"carrier={name}, evening=True": (frame.hour >= 20) & (frame.carrier == name) for name in ("AA", "UA")}
    expected |= {"carrier=(missing), evening=True": (frame.hour >= 20) & frame.carrier.isna()}
    assert slices.keys() == {"overall", *expected}
    for name, mine in expected.items():
        values = slices[name]["metrics"]["candidate"]
        assert values["example_count"] == mine.sum()
        assert values["auc"] == pytest.approx(roc_auc_score(frame.late[mine], frame.score[mine]), rel=1e-12)
    assert results[0]["validation"]["missing_slices"] == ["never=*"]
    with pytest.raises(InputError, match=re.escape("the slice 'typo' needs the column 'ours'")) as caught:
        evaluate(source, EvaluationConfig("late", "score", slices=[Slice("typo", sql="ours > 1")]),
                 LocalExecutor(), Same(), inputs=inputs)  # fmt: skip
    assert "test_slice_sql.py" in (caught.value.where or "")
