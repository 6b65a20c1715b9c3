"""Slices by bins of a number and by groups: the rows that NumPy and pandas put there."""

from __future__ import annotations

from typing import Any

import drivetrain as dt
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from drivetrain.components.evaluation import EvaluationConfig, Slice, Threshold, quantile_bins
from drivetrain.components.evaluation.quantile_bins import _BinEdges, with_bins
from drivetrain.data import LocalExecutor, source_of
from drivetrain.errors import InputError
from hypothesis import given, settings
from hypothesis import strategies as st

EDGES: Any = np.array([100, 200, 300])


def rows(values: Any) -> pd.DataFrame:
    dice = np.random.default_rng(1)
    return pd.DataFrame({"x": values, "y": dice.integers(0, 2, len(values)), "p": dice.random(len(values))})


def counts(frame: pd.DataFrame, *slices: Slice, **options: Any) -> dict[str, int]:
    """Slice → its rows."""
    result = dt.evaluate(frame, label="y", predictions="p", slices=[[each] for each in slices], **options).frame()
    return dict(result[result["slice"] != "overall"].groupby("slice", sort=False)["n"].first())


@pytest.mark.slow
@settings(max_examples=25)
@given(st.lists(st.floats(-50, 50).map(lambda x: round(x, 1)), min_size=1, max_size=60), st.integers(2, 7))
def test_bins_of_equal_counts_are_numpys(values: list[float], bins: int) -> None:
    ordered = np.sort(np.asarray(values) + 0.0)
    edges = sorted({float(ordered[part * len(ordered) // bins]) for part in range(1, bins)} - {float(ordered[0])})
    config = EvaluationConfig("y", "p", slices=[Slice("bin", sql="x", bins=bins)])
    resolved = with_bins(config, source_of(rows(values)), LocalExecutor())
    assert resolved.expressions["bin"].bins == tuple(edges)
    expected = pd.Series(np.searchsorted(edges, ordered, side="right")).value_counts().sort_index()
    assert list(counts(rows(values), Slice("bin", sql="x", bins=bins)).values()) == expected.tolist()


def test_quartiles_have_a_quarter_each_and_missing_numbers_are_in_none() -> None:
    values = [*np.arange(1000) / 4, np.nan, None, np.inf]
    assert counts(rows(values), Slice("x_bin", sql="x", bins=4)) == {
        "x_bin=1: < 62.5": 250,
        "x_bin=2: [62.5, 125)": 250,
        "x_bin=3: [125, 187.5)": 250,
        "x_bin=4: >= 187.5": 250,
    }


def test_bins_by_edges() -> None:
    frame = rows([-5.0, 0.0, 1.0, 2.0, 2.0, 99.0])
    assert counts(frame, Slice("b", sql="x", bins=[0, 2])) == {"b=1: < 0": 1, "b=2: [0, 2)": 2, "b=3: >= 2": 3}
    assert counts(frame, Slice("b", sql="x * 0", bins=3)) == {"b=1: all": 6}
    names = Slice("b", sql="x", bins=list(range(11))).bin_names
    assert sorted(names) == list(names)  # twelve of them, as people and reports order them


@pytest.mark.parametrize(
    ("edges", "names"),
    [
        ([0.1 + 0.2, 0.6], ["1: < 0.3", "2: [0.3, 0.6)", "3: >= 0.6"]),
        ([1 / 3, 20 / 3], ["1: < 0.333333", "2: [0.333333, 6.66667)", "3: >= 6.66667"]),
        ([0.3, 0.1 + 0.2], ["1: < 0.3", "2: [0.3, 0.30000000000000004)", "3: >= 0.30000000000000004"]),
        ([1356998400, 1356998400.25], ["1: < 1356998400", "2: [1356998400, 1356998400.2)", "3: >= 1356998400.2"]),
        ([-1e-7 / 3, 0, 2e300], ["1: < -3.33333e-08", "2: [-3.33333e-08, 0)", "3: [0, 2e+300)", "4: >= 2e+300"]),
    ],
)
def test_the_names_of_bins_are_as_short_as_tells_them_apart(edges: list[float], names: list[str]) -> None:
    assert list(Slice("b", sql="x", bins=edges).bin_names) == names


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=6, unique_by=lambda x: x + 0.0))
def test_the_edges_of_bins_have_names_of_their_own(edges: list[float]) -> None:
    bins = Slice("b", sql="x", bins=sorted(edges)).bin_names
    begins = [name.partition(": ")[2].removeprefix(">= ").removeprefix("[").partition(",")[0] for name in bins[1:]]
    assert len(set(begins)) == len(edges)
    assert [float(begin) for begin in begins] == pytest.approx(sorted(edges), rel=1e-5, abs=5e-324)


@pytest.mark.beam
def test_the_edges_are_the_same_for_any_shards(tmp_path: Any) -> None:
    values = np.random.default_rng(3).normal(size=5000).round(3)
    paths = []
    for part, some in enumerate(np.array_split(values, 7)):
        paths.append(str(tmp_path / f"{part}.parquet"))
        rows(some).to_parquet(paths[-1])
    config = EvaluationConfig("y", "p", slices=[Slice("bin", sql="x", bins=10)])
    together = with_bins(config, source_of(rows(values)), LocalExecutor(threads=1))
    assert with_bins(config, source_of(paths), LocalExecutor(threads=3)) == together
    beam = pytest.importorskip("drivetrain.data.beam")
    assert with_bins(config, source_of(paths), beam.BeamExecutor()) == together


@pytest.mark.parametrize("most", [100, 10**6])
def test_many_values_are_summed_up_and_states_travel(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    monkeypatch.setattr(quantile_bins, "_EXACT", most)
    values = np.random.default_rng(5).normal(size=40_000)
    merged = _BinEdges(("bin",))
    for some in np.array_split(values, 5):
        part = _BinEdges(("bin",))
        part.add_batch(pa.record_batch({"bin": some}))
        merged.merge(_BinEdges.from_bytes(part.to_bytes()))
    again = _BinEdges.from_bytes(merged.to_bytes())
    assert again.to_bytes() == merged.to_bytes()
    edges = again.edges(Slice("bin", sql="x", bins=8))
    shares = np.searchsorted(np.sort(values), edges) / len(values)
    np.testing.assert_allclose(shares, np.arange(1, 8) / 8, atol=0.005 if most == 100 else 1e-4)


def test_groups_are_the_same_everywhere_and_bound_a_column_of_many_values() -> None:
    frame = rows(np.arange(20_000.0)).assign(customer=[f"c{number}" for number in range(20_000)])
    group = Slice("customer_group", sql="customer", groups=8)
    sizes = counts(frame, group)
    assert list(sizes) == [f"customer_group={number}" for number in range(8)]
    assert max(sizes.values()) - min(sizes.values()) < 300  # 2,500 ± 47 each
    names = ["ann", "bob", "a longer name", "", None, "ann"]
    expected = pd.Series([hashed(name) % 8 for name in names if name is not None]).value_counts()
    assert counts(frame[:6].assign(customer=names), group) == {
        f"customer_group={number}": size for number, size in expected.items()
    }


def test_whole_numbers_are_in_the_same_group_where_one_is_missing() -> None:
    """pandas makes floats of them then."""
    numbers, group = [3, 7, 2**40, -5, 11, 12], Slice("g", sql="x", groups=50)
    whole, gaps = rows(np.array(numbers)), rows(np.array([*map(float, numbers[:5]), np.nan]))
    assert str(whole["x"].dtype) == "int64"
    assert counts(gaps, group) == counts(whole[:5], group)
    halves = counts(rows(np.array(numbers) + 0.5), group)
    assert halves != counts(whole, group)


def hashed(text: str) -> int:
    """The hash of a text as data/rowhash.py defines it, by Python's integers."""

    def mix(value: int) -> int:
        value = (value + 0x9E3779B97F4A7C15) % 2**64
        value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9 % 2**64
        value = (value ^ value >> 27) * 0x94D049BB133111EB % 2**64
        return value ^ value >> 31

    data = text.encode()
    value = (mix(4) + len(data)) % 2**64
    for start in range(0, len(data), 8):
        value = mix(value ^ int.from_bytes(data[start : start + 8], "little"))
    return value


def test_thresholds_name_a_bin_by_its_position() -> None:
    frame = rows(np.arange(400.0))
    frame.loc[frame["x"] >= 300, "p"] = frame["y"]
    for bins in (4, [100, 200, 300]):
        each = Slice("bin", sql="x", bins=bins)
        result = dt.evaluate(
            frame, label="y", predictions="p", slices=[each, [each, "y"]], metrics=["auc", "accuracy"],
            thresholds=[Threshold("auc", lower=0.99, slice={"bin": 4}), Threshold("auc", lower=0.99, slice={"bin": 1}),
                        Threshold("accuracy", lower=0.0, slice=["bin", "y"])],
        )  # fmt: skip
        verdict = result.models["p"]["validation"]
        assert [check["passed"] for check in verdict["thresholds"][:2]] == [True, False]
        assert "bin=1: < 100" in verdict["failures"][0]
        assert verdict["bins"] == {"bin": [100.0, 200.0, 300.0]}
    with pytest.raises(InputError, match=r"the bin 5 of 'bin', which has 4.*\n.*1 to 4"):
        EvaluationConfig("y", "p", slices=[each], thresholds=[Threshold("auc", lower=0.5, slice={"bin": 5})])
    with pytest.raises(
        InputError, match=r"the bin '\[100, 200\)' of 'bin', which has 4: '1: < 100', '2: \[100, 200\)'"
    ):
        EvaluationConfig("y", "p", slices=[each], thresholds=[Threshold("auc", lower=0.5, slice={"bin": "[100, 200)"})])
    EvaluationConfig("y", "p", slices=[each], thresholds=[Threshold("auc", lower=0.5, slice={"bin": "2: [100, 200)"})])
    assert Slice("bin", sql="x", bins=EDGES) == each
    with pytest.raises(InputError, match=r"the bin 3 of 'bin', which has 1"):  # of one value there is one bin
        dt.evaluate(
            frame.assign(x=1.0), label="y", predictions="p", slices=[Slice("bin", sql="x", bins=3)],
            thresholds=[Threshold("auc", lower=0.5, slice={"bin": 3})],
        )  # fmt: skip


def test_they_are_written_as_json_and_read_again() -> None:
    config = EvaluationConfig(
        "y", "p", slices=[Slice("a", sql="x", bins=[1, 2.5]), Slice("b", sql="x", bins=3), Slice("c", "x", groups=4)]
    )
    assert EvaluationConfig.from_json(config.to_json()) == config


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"bins": 1}, "bins must be a number from 2 to 10,000 or ascending numbers, not 1"),
        ({"bins": [2, 1]}, "ascending numbers"),
        ({"bins": ["a"]}, "ascending numbers"),
        ({"bins": [float("nan")]}, "ascending numbers"),
        ({"groups": True}, "groups must be a number from 2"),
        ({"bins": 2, "groups": 2}, "has bins and groups"),
    ],
)
def test_what_cannot_be_is_refused_when_written(options: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        Slice("s", sql="x", **options)


def test_bins_are_of_numbers() -> None:
    with pytest.raises(InputError, match=r"the slice 'b' has bins, and its values are .*string"):
        counts(rows([1.0]).assign(t="a"), Slice("b", sql="t", bins=3))
    with pytest.raises(InputError, match="the slice 'b' has no number in any row"):
        counts(rows([np.nan, np.nan]), Slice("b", sql="x", bins=3))
