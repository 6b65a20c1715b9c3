"""Lift against pandas' cross tables, TFDV's figures, and the law that parts merge to the whole."""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from drivetrain.data import executor, statistics
from drivetrain.data.reading.source_of import source_of
from drivetrain.data.stats.document import Statistics, merge_statistics
from drivetrain.data.stats.lift import MOST_INTEGERS, MOST_TEXTS, Lift, LiftCounts
from drivetrain.errors import InputError
from hypothesis import given, settings
from hypothesis import strategies as st

ALL = {"top": 10**6, "bottom": 0}


def lift_in(data: Any, label: str, lift: Any = True, **more: Any) -> dict[str, Any]:
    return dict(statistics(data, label=label, lift=lift, **more).document["datasets"][0]["lift"])


def by_pair(lift: dict[str, Any], name: str) -> dict[Any, tuple[int, int, int, float]]:
    [feature] = [feature for feature in lift["features"] if feature["name"] == name]
    return {
        (item["x"], of["y"]): (item["x_count"], of["y_count"], item["count"], item["lift"])
        for of in feature["values"]
        for item in of["lift"]
    }


def expected(x: pd.Series, y: pd.Series) -> dict[Any, tuple[Any, ...]]:
    both = pd.crosstab(x, y)
    xs, ys = x.value_counts(), y.value_counts()
    return {
        (a, b): (xs[a], ys[b], both.loc[a, b], pytest.approx(both.loc[a, b] / xs[a] / (ys[b] / len(x)), rel=1e-14))
        for a in both.index
        for b in both.columns
    }


def frame_of(rows: int) -> pd.DataFrame:
    random = np.random.default_rng(2)
    frame = pd.DataFrame(
        {
            "text": random.choice(["a", "b", "ü", ""], rows),
            "whole": random.integers(-3, 3, rows),
            "truth": random.random(rows) < 0.2,
            "real": random.normal(size=rows),
            "label": random.choice(["no", "yes", "perhaps"], rows, p=[0.6, 0.3, 0.1]),
        }
    )
    frame.loc[random.random(rows) < 0.2, "text"] = None
    frame.loc[random.random(rows) < 0.1, "label"] = None
    return frame


def test_lift_is_the_cross_tables() -> None:
    frame = frame_of(3_000)
    lift = lift_in(frame, "label", ALL)
    assert [feature["name"] for feature in lift["features"]] == ["text", "whole", "truth"]
    assert (lift["label"], lift["rows"], lift["left_out"]) == ("label", 3_000, [])
    for name in ("text", "whole", "truth"):
        assert by_pair(lift, name) == expected(frame[name], frame.label)


def test_numbers_are_cut_as_pandas_cuts_them() -> None:
    frame = frame_of(2_000)
    frame.loc[:4, "real"] = [-0.5, 0.25, math.inf, -math.inf, math.nan]
    lift = lift_in(frame, "real", {"boundaries": [-0.5, 0.25], **ALL})
    names = ["[-inf, -0.5)", "[-0.5, 0.25)", "[0.25, inf]"]
    cut = pd.Series(pd.cut(frame.real, [-math.inf, -0.5, 0.25, math.inf], right=False, labels=names).astype(object))
    cut[2] = names[2]  # its last bucket is open
    assert by_pair(lift, "text") == expected(frame.text, cut)
    assert [of["y"] for of in lift["features"][0]["values"]] == names


def test_tfdvs_figures() -> None:
    """Those of TFDV 1.16.1's `LiftStatsGenerator`: P is over rows that miss one of the two as well."""
    rows = pa.table(
        {
            "x": ["a", "a", "a", "b", "b", None, "c", "c", "a", "b"],
            "y": ["n", "y", "y", "n", None, "y", "y", "y", "n", "n"],
            "z": [0.0, 1.5, 2.0, -1.0, None, 1.0, 5.0, 0.5, 1.0, 0.99],
        }
    )
    near = pytest.approx
    assert by_pair(lift_in(rows, "y"), "x") == {
        ("b", "n"): (3, 4, 2, near(1.6666666666666665)), ("a", "n"): (4, 4, 2, 1.25), ("c", "n"): (2, 4, 0, 0.0),
        ("c", "y"): (2, 5, 2, 2.0), ("a", "y"): (4, 5, 2, 1.0), ("b", "y"): (3, 5, 0, 0.0),
    }  # fmt: skip
    low, middle, high = "[-inf, 0)", "[0, 1)", "[1, inf]"
    assert by_pair(lift_in(rows, "z", {"boundaries": [0, 1]}), "x") == {
        ("b", low): (3, 1, 1, near(3.333333333333333)), ("a", low): (4, 1, 0, 0.0), ("c", low): (2, 1, 0, 0.0),
        ("c", middle): (2, 3, 1, near(1.6666666666666667)), ("b", middle): (3, 3, 1, near(1.1111111111111112)),
        ("a", middle): (4, 3, 1, near(0.83333333333333337)),
        ("a", high): (4, 5, 3, 1.5), ("c", high): (2, 5, 1, 1.0), ("b", high): (3, 5, 0, 0.0),
    }  # fmt: skip


def test_top_bottom_and_small_ones() -> None:
    rows = pa.table({"x": list("aaaabbbccd"), "y": [1, 1, 1, 1, 1, 1, 0, 1, 0, 0]})
    [feature] = lift_in(rows, "y", {"min_x_count": 2, "top": 1, "bottom": 1})["features"]
    assert [[item["x"] for item in of["lift"]] for of in feature["values"]] == [["c", "a"], ["a", "c"]]
    [feature] = lift_in(rows, "y", {"top": 3, "bottom": 3})["features"]
    assert [[item["x"] for item in of["lift"]] for of in feature["values"]] == [list("dcba"), list("abcd")]


def test_columns_of_too_many_values_are_left_out_and_said_so() -> None:
    def column(count: int) -> list[int]:
        return [row % count for row in range(MOST_TEXTS + 1)]

    lift = lift_in(
        pa.table(
            {
                "most": [str(value) for value in column(MOST_TEXTS)],
                "more": [str(value) for value in column(MOST_TEXTS + 1)],
                "integers": column(MOST_INTEGERS),
                "quantity": column(MOST_INTEGERS + 1),
                "long": ["x" * 1001] + ["x"] * MOST_TEXTS,
                "bytes": pa.array([b"\xff"] + [b"x"] * MOST_TEXTS),
                "y": column(2),
            }
        ),
        "y",
    )
    assert [feature["name"] for feature in lift["features"]] == ["most", "integers"]
    assert lift["left_out"] == ["more", "quantity", "long", "bytes"]


@pytest.mark.parametrize(
    ("label", "lift", "said"),
    [
        (None, True, "lift needs a label"),
        ("real", True, "lift is of categories"),
        ("many", True, "more than 100 values"),
        ("text", {"boundaries": [1]}, "boundaries do not cut"),
        ("real", {"boundaries": [1, 1]}, "ascending"),
        ("real", {"boundaries": [math.nan]}, "finite"),
        ("real", {"boundaries": [10**400]}, "finite"),
        ("text", {"top": -1}, "top must be"),
        ("text", {"tops": 1}, "mapping of boundaries"),
        ("text", 3, "mapping of boundaries"),
    ],
)
def test_what_has_no_lift_is_refused(label: str | None, lift: Any, said: str) -> None:
    table = pa.table({"real": [0.5] * 101, "many": range(101), "text": ["a"] * 101})
    with pytest.raises(InputError, match=said):
        statistics(table, label=label, lift=lift)


ROW = st.tuples(
    st.none() | st.sampled_from("ab"), st.none() | st.integers(0, 200), st.none() | st.booleans() | st.just(True)
)


@settings(max_examples=50, deadline=None)
@given(st.lists(ROW, max_size=150), st.lists(st.integers(0, 150), max_size=3))
def test_parts_merge_to_the_whole(rows: list[Any], cuts: list[int]) -> None:
    def state(part: list[Any]) -> LiftCounts:
        counts = LiftCounts("y", Lift())
        kinds = {"s": pa.string(), "n": pa.int64(), "y": pa.bool_()}
        columns = {name: pa.array([row[i] for row in part], kind) for i, (name, kind) in enumerate(kinds.items())}
        counts.add(pa.record_batch(columns), columns)
        return counts

    edges = [0, *sorted(min(cut, len(rows)) for cut in cuts), len(rows)]
    parts = [state(rows[a:b]) for a, b in itertools.pairwise(edges)]
    merged = parts[0]
    for part in parts[1:]:
        stored = LiftCounts("y", Lift())
        stored.load_parts(*json.loads(json.dumps(part.to_parts())))
        merged.merge(stored)
    assert json.dumps(merged.to_parts()) == json.dumps(state(rows).to_parts())


def test_slices_samples_and_spans(tmp_path: Path) -> None:
    frame = frame_of(1_000)
    halves = []
    for number, part in enumerate((frame[:300], frame[300:])):
        (tmp_path / str(number)).mkdir()
        statistics(part, label="label", lift=True, slices=["truth"]).save(tmp_path / str(number))
        halves.append(Statistics.load(tmp_path / str(number)))
    whole = statistics(frame, label="label", lift=True, slices=["truth"])
    assert merge_statistics(halves).document == whole.document
    late = whole.document["datasets"][0]["slices"][1]
    assert late["key"] == [["truth", True]]
    assert late["lift"] == lift_in(frame[frame.truth], "label")
    with pytest.raises(InputError, match="lift="):
        merge_statistics([whole, statistics(frame, label="label", slices=["truth"])])


@pytest.mark.beam
def test_beam_gives_the_same_bytes(tmp_path: Path) -> None:
    pytest.importorskip("apache_beam")
    pq.write_table(pa.Table.from_pandas(frame_of(2_000)), tmp_path / "rows.parquet", row_group_size=300)
    source = {"all": source_of(tmp_path / "rows.parquet")}
    local, beam = (statistics(source, executor(name), label="label", lift=True) for name in ("local", "beam"))
    assert beam.state("all").to_bytes() == local.state("all").to_bytes()
    assert beam.to_json() == local.to_json()


def test_the_page_shows_lift_escaped() -> None:
    page = statistics(pa.table({"<x>": ["<i>", "b"] * 5, "y": ["<u>", "n"] * 5}), label="y", lift=True).to_html()
    body = page.partition("<h2>Lift for y")[2]
    assert "&lt;i&gt;" in body
    assert "&lt;u&gt;" in body
    assert "<i>" not in page
    assert "<u>" not in page
