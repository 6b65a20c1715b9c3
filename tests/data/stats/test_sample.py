"""Sampling by row hash, selected columns, how much is listed: and all options together on Beam and across spans."""

from __future__ import annotations

import datetime
import decimal
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from drivetrain.data import LocalExecutor, executor, merge_statistics, open_parquet, statistics
from drivetrain.data.stats.accumulator import StatisticsAccumulator
from drivetrain.data.stats.document import Statistics
from drivetrain.errors import InputError
from drivetrain.tests.data.customs import Longest
from drivetrain.tests.data.flights import month


def table(rows: int, seed: int = 0) -> pa.Table:
    random = np.random.default_rng(seed)
    return pa.table(
        {
            "real": random.normal(size=rows),
            "whole": pa.array([None if i % 7 == 0 else i % 50 for i in random.integers(0, 10**6, rows)], pa.int64()),
            "word": [None if i % 11 == 0 else f"w{i % 500}" for i in random.integers(0, 10**6, rows)],
            "tags": [["a", "b", "c"][: i % 4] for i in random.integers(0, 10**6, rows)],
            "kind": random.choice(["x", "y", "z"], rows),
            "w": random.exponential(size=rows),
        }
    )


ALL: dict[str, Any] = {
    "weight": "w", "slices": ["kind", {"kind": ["x"], "tags": None}], "label": "kind", "correlations": True,
    "custom": {"longest": Longest},
}  # fmt: skip


def test_a_sample_is_the_same_rows_however_they_are_cut(tmp_path: Path) -> None:
    rows = table(20_000)
    pq.write_table(rows, tmp_path / "a.parquet", row_group_size=1_234)
    pq.write_table(rows.take(pa.array(np.random.default_rng(1).permutation(20_000))), tmp_path / "b.parquet")
    first, second = (
        statistics(open_parquet([tmp_path / name]), sample_rate=0.25, seed=3) for name in ("a.parquet", "b.parquet")
    )
    assert first.to_json() == second.to_json()
    kept = first.splits["data"]
    assert abs(kept - 5_000) < 4 * np.sqrt(20_000 * 0.25 * 0.75)
    assert first.document["datasets"][0]["sample"] == {"rate": 0.25, "seed": 3, "of": 20_000}
    assert statistics(rows, sample_rate=0.25, seed=4).to_json() != first.to_json()
    mean = first.features("data")["real"]["mean"]["value"]
    assert abs(mean - pc.mean(rows["real"]).as_py()) < 4 / np.sqrt(kept)


def test_chosen_columns_do_not_change_the_sample() -> None:
    rows = table(5_000)
    whole = statistics(rows, sample_rate=0.5)
    chosen = statistics(rows, sample_rate=0.5, columns=["kind", "real"])
    assert list(chosen.features("data")) == ["real", "kind"]  # in the data's order
    assert chosen.features("data")["kind"] == whole.features("data")["kind"]


def test_how_much_is_listed() -> None:
    measured = statistics(
        month(1), columns=["dep_delay", "carrier"], top_values=3, buckets=4, quantiles=[0.05, 0.5, 0.95]
    )
    delay, carrier = (measured.features("data")[name] for name in ("dep_delay", "carrier"))
    values = month(1)["dep_delay"].drop_null().to_numpy()
    assert delay["quantiles"]["value"] == np.quantile(values, [0.05, 0.5, 0.95]).tolist()
    assert [bucket["count"] for bucket in delay["histogram"]["value"]] == np.histogram(values, 4)[0].tolist()
    assert len(carrier["top_values"]["value"]) == 3
    assert measured.document["datasets"][0]["quantile_levels"] == [0.05, 0.5, 0.95]


@pytest.mark.parametrize(
    "wrong",
    [
        {"sample_rate": 0}, {"sample_rate": 1.5}, {"quantiles": [0.5, 0.1]}, {"buckets": 0}, {"top_values": -1},
        {"columns": []}, {"columns": "real"}, {"columns": ["reel"]}, {"label": "lable"}, {"slices": [[]]},
        {"sample_rate": "0.5"}, {"seed": "x"}, {"quantiles": 0.5}, {"quantiles": "ab"}, {"quantiles": [None]},
        {"slices": 5}, {"columns": "ab"}, {"custom": [1]},
    ],
)  # fmt: skip
def test_wrong_options_are_named(wrong: dict[str, Any]) -> None:
    (name,) = wrong
    with pytest.raises(InputError, match=name.removesuffix("s")):
        statistics(table(10), **wrong)


@pytest.mark.parametrize("label", [[[1], [2]], [{"a": 1}, None]])
def test_a_label_is_a_plain_value(label: list[Any]) -> None:
    with pytest.raises(InputError, match=r"the label 'late' is (list|struct)<"):
        statistics(pa.table({"late": label, "x": [1, 2]}), label="late")


@pytest.mark.slow
def test_two_spans_merge_without_the_data(tmp_path: Path) -> None:
    parts = [table(3_000, seed) for seed in (0, 1, 2)]
    saved = []
    for index, part in enumerate(parts):
        folder = tmp_path / str(index)
        folder.mkdir()
        statistics(part, **ALL).save(folder)
        saved.append(Statistics.load(folder))
    merged = merge_statistics(saved, custom={"longest": Longest})
    whole = statistics(pa.concat_tables(parts), **ALL)
    assert merged.to_json() == whole.to_json()
    assert merged.document["datasets"][0]["custom"] == {"longest": {"rows": 9_000, "word": "w499"}}
    folder = tmp_path / "merged"
    folder.mkdir()
    merged.save(folder)
    assert json.loads((folder / "statistics.json").read_text()) == whole.document
    # Merging left the parts as they were.
    assert saved[0].merge(saved[1], custom={"longest": Longest}).splits == {"data": 6_000}
    with pytest.raises(InputError, match="'longest' is stored as bytes"):
        merge_statistics(saved)
    # And what is not understood is kept as it is.
    assert saved[0].state("data").to_bytes() == (tmp_path / "0" / "states" / "split=data.bin").read_bytes()


def test_a_merged_sample_is_one_of_all_rows() -> None:
    parts = [statistics(table(rows, rows), sample_rate=0.1) for rows in (3_000, 2_000)]
    merged = merge_statistics(parts)
    assert merged.sampled == {"data": 5_000}
    assert (
        merged.document
        == statistics(pa.concat_tables([table(3_000, 3_000), table(2_000, 2_000)]), sample_rate=0.1).document
    )


def test_a_data_set_of_one_span_only_is_kept() -> None:
    first = statistics({"train": table(10), "eval": table(5)})
    assert first.merge(statistics({"train": table(7)})).splits == {"train": 17, "eval": 5}


def test_other_options_do_not_merge() -> None:
    rows = table(10)
    with pytest.raises(InputError, match="weight=None and weight='w'"):
        statistics(rows).merge(statistics(rows, weight="w"))
    with pytest.raises(InputError, match="custom accumulators"):
        statistics(rows).merge(statistics(rows, custom={"longest": Longest}))


def test_a_state_of_an_older_release_is_refused() -> None:
    data = bytearray(StatisticsAccumulator().to_bytes())
    data[4] = 1
    with pytest.raises(InputError, match="version 1, not 5"):
        StatisticsAccumulator.from_bytes(bytes(data))


@pytest.mark.slow
@pytest.mark.beam
@pytest.mark.parametrize("limit", [100_000, 300])
def test_beam_gives_the_same_bytes_with_everything_on(tmp_path: Path, limit: int) -> None:
    pytest.importorskip("apache_beam")
    pq.write_table(table(20_000), tmp_path / "in.parquet", row_group_size=3_100)
    source = open_parquet([tmp_path / "in.parquet"])
    local, beam = (
        statistics(source, walk, limit=limit, sample_rate=0.9, seed=1, **ALL)
        for walk in (LocalExecutor(2), executor("beam"))
    )
    assert beam.state("data").to_bytes() == local.state("data").to_bytes()
    assert beam.to_json() == local.to_json()


def test_columns_of_every_type_with_everything_on() -> None:
    moment = datetime.datetime(2020, 1, 1)
    rows = pa.table(
        {
            'a "b"\nc.d🙂': pa.array([1, 2, None]),
            "decimal": pa.array([decimal.Decimal("1.5"), None, decimal.Decimal("2")]),
            "unsigned": pa.array([2**64 - 1, 0, 5], pa.uint64()),
            "half": pa.array(np.array([0.5, 1, 2], np.float16)),
            "time": pa.array([moment, None, moment], pa.timestamp("us", "Europe/Oslo")),
            "struct": [{"a": 1}, None, {"a": 2}],
            "pair": pa.array([[1.0, 2.0], None, [3.0, 4.0]], pa.list_(pa.float64(), 2)),
            "nested": pa.array([[["a"]], [], None]),
            "nothing": pa.nulls(3),
            "bytes": pa.array([b"\xff", b"", None]),
            "flag": [True, None, False],
            "w": pa.array([1, None, 2]),
        }
    )
    slices = ["flag", "time", "decimal", "half"]
    options: dict[str, Any] = {"weight": "w", "slices": slices, "label": "flag", "correlations": True, "seed": -1}
    measured = statistics(rows, **options)
    state = measured.state("data")
    again = StatisticsAccumulator.from_bytes(state.to_bytes())
    assert again.to_bytes() == state.to_bytes()
    assert again.result() == state.result() == json.loads(json.dumps(state.result()))
    twins = {name: feature["weighted"] for name, feature in measured.features("data").items()}
    assert twins["unsigned"]["mean"]["value"] == (2**64 - 1 + 10) / 3
    assert (twins["struct"]["count"], twins["nothing"]["missing"]) == (3.0, 3.0)
    assert twins["half"]["mean"]["value"] == 1.5
    assert list(measured.slices("data").values()) == [1, 1, 2, 1, 1, 1, 1, 1]
    assert measured.merge(measured).to_json() == statistics(pa.concat_tables([rows, rows]), **options).to_json()
