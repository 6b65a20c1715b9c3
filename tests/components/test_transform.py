"""Transform as a plain call: examples in, transformed examples and a graph out."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from drivetrain import data
from drivetrain.components import ExampleGen, ExampleValidator, StatisticsGen
from drivetrain.components.transform import Transform
from drivetrain.data.schemas.schema import Feature
from drivetrain.data.schemas.schema import Schema as DataSchema
from drivetrain.data.schemas.yaml_write import schema_to_yaml
from drivetrain.digest import digest_tree
from drivetrain.engine import Bundle, ops
from drivetrain.errors import InputError
from drivetrain.metadata import Examples, Schema
from drivetrain.pipelines import Home, RunOptions, load_pipeline, run_pipeline

pytestmark = pytest.mark.engine


def preprocess(columns: ops.Columns) -> ops.Columns:
    return {"x": ops.z_score(columns["x"]), "word": ops.vocabulary(columns["word"])}


def examples(tmp_path: Path, span: int = 7, first: int = 0) -> Examples:
    made = Examples.new(span=span)
    manifests = []
    for split, count in (("train", 90), ("eval", 30), ("empty", 0)):
        words = pa.array([f"w{i % 4}" for i in range(count)], pa.string())
        table = pa.table({"x": np.arange(first, first + count), "word": words})
        pq.write_table(table, tmp_path / f"{split}.parquet", row_group_size=40)
        source = data.open_parquet([tmp_path / f"{split}.parquet"])
        manifests.append(data.LocalExecutor().map(source, None, data.sinks(made.content, [split])))
    made.rows = data.Manifest.joined(manifests).write(made.content, span=span).rows
    return made


def rows_of(made: Examples, split: str) -> pa.Table:
    source = data.open_examples(made.content, split)
    return pa.Table.from_batches([batch for shard in source.shards for batch in source.read(shard)])


def schema(**types: str) -> Schema:
    made = Schema.new()
    features = tuple(Feature(name, kind) for name, kind in types.items())
    (made.content / "schema.yaml").write_text(schema_to_yaml(DataSchema(features)))
    return made


def test_all_splits_are_transformed_by_what_the_training_split_taught(tmp_path: Path) -> None:
    raw = examples(tmp_path)
    out, graph, *_ = Transform(raw, schema(x="int", word="string"), fn=preprocess)
    assert out.rows == {"train": 90, "eval": 30, "empty": 0}
    assert out.span == 7
    rows = rows_of(out, "eval")
    x = np.arange(90)
    np.testing.assert_allclose(rows["x"].to_numpy(), (np.arange(30) - x.mean()) / x.std(), rtol=1e-6)
    assert Bundle.load(graph.content).signatures["transform"].outputs["word"].size == 6
    again, other, *_ = Transform(raw, schema(x="int", word="string"), fn=preprocess)
    assert digest_tree(again.content) == digest_tree(out.content)
    assert digest_tree(other.content) == digest_tree(graph.content)


def test_the_schema_decides_between_whole_and_float(tmp_path: Path) -> None:
    raw = examples(tmp_path)
    _, graph, *_ = Transform(raw, schema(x="float"), fn=preprocess)
    assert Bundle.load(graph.content).signatures["transform"].inputs["x"].dtype == "float64"
    with pytest.raises(InputError, match=r"^column 'word' is string, the schema says int"):
        Transform(raw, schema(word="int"), fn=preprocess)


def day(tmp_path: Path, span: int, delay: pa.Array) -> Examples:
    made = Examples.new(span=span)
    pq.write_table(pa.table({"delay": delay, "word": ["a", "b", "a"]}), tmp_path / f"{span}.parquet")
    source = data.open_parquet([tmp_path / f"{span}.parquet"])
    written = data.LocalExecutor().map(source, None, data.sinks(made.content, ["train"]))
    made.rows = written.write(made.content, span=span).rows
    return made


@pytest.mark.parametrize("kind", ["float", "int"])
def test_a_column_without_a_value_is_what_the_schema_says(tmp_path: Path, kind: str) -> None:
    """On a day without any, the column lies in Parquet as text; no other day's numbers are lost for it."""

    def fn(columns: ops.Columns) -> ops.Columns:
        return {"delay": ops.z_score(columns["delay"]), "word": ops.vocabulary(columns["word"])}

    some = day(tmp_path, 1, pa.array([1, None, 5], pa.float64() if kind == "float" else pa.int64()))
    none, text = day(tmp_path, 2, pa.nulls(3)), day(tmp_path, 3, pa.array(["1", None, "x"]))
    accepted = schema(delay=kind, word="string")
    out, graph, *_ = Transform(none, accepted, fn=fn)
    assert rows_of(out, "train")["delay"].null_count + np.isnan(rows_of(out, "train")["delay"].to_numpy()).sum() == 3
    assert Bundle.load(graph.content).run_row("transform", {"delay": 3, "word": "a"})["delay"] == 3.0
    for examples, history in ((none, [some]), (some, [none])):
        found = rows_of(Transform(examples, accepted, fn=fn, history=history)[0], "train")["delay"].to_numpy()
        np.testing.assert_array_equal(found, [-1.0, np.nan, 1.0, *[np.nan] * 3])
    with pytest.raises(InputError, match="column 'delay' is string, the schema says"):
        Transform(text, accepted, fn=fn)
    with pytest.raises(InputError, match="column 'delay' is string, but"):
        Transform(text, accepted, fn=fn, history=[some])


def test_what_the_schema_says_of_the_request_log_is_in_the_graph(tmp_path: Path) -> None:
    accepted = Schema.new()
    features = tuple(Feature(name, "any", request_log=rule) for name, rule in (("word", "hash"), ("unread", "deny")))
    (accepted.content / "schema.yaml").write_text(schema_to_yaml(DataSchema(features)))
    _, graph, *_ = Transform(examples(tmp_path), accepted, fn=preprocess)
    assert Bundle.load(graph.content).signatures["transform"].request_log == {"word": "hash"}


def test_splits_to_analyze_must_exist_and_have_rows(tmp_path: Path) -> None:
    raw = examples(tmp_path)
    both, *_ = Transform(raw, schema(), fn=preprocess, analyze=["train", "eval"])
    assert both.rows["train"] == 90
    with pytest.raises(InputError, match="names 'trian', which is not a split"):
        Transform(raw, schema(), fn=preprocess, analyze=["trian"])
    with pytest.raises(InputError, match=r"^there are no rows in empty"):
        Transform(raw, schema(), fn=preprocess, analyze=["empty"])


def test_only_the_splits_asked_for_are_written(tmp_path: Path) -> None:
    raw = examples(tmp_path)
    out = Transform(raw, schema(), fn=preprocess, transform=["eval"]).examples
    assert out.rows == {"eval": 30}
    assert rows_of(out, "eval") == rows_of(Transform(raw, schema(), fn=preprocess).examples, "eval")
    with pytest.raises(InputError, match="transform names 'evla', 'rest', which is not a split"):
        Transform(raw, schema(), fn=preprocess, transform=["evla", "train", "rest"])
    with pytest.raises(InputError, match=r"^transform is empty"):
        Transform(raw, schema(), fn=preprocess, transform=[])


def test_earlier_spans_are_learnt_from_and_written_first(tmp_path: Path) -> None:
    late, early = examples(tmp_path, 7, 1000), examples(tmp_path, 5)
    out = Transform(late, schema(), history=[early], fn=preprocess, transform=["train", "eval"])
    assert out.examples.rows == {"train": 180, "eval": 60}
    assert out.examples.span == 7
    x = np.concatenate([np.arange(90), np.arange(1000, 1090)])
    np.testing.assert_allclose(rows_of(out.examples, "train")["x"].to_numpy(), (x - x.mean()) / x.std(), rtol=1e-6)
    turned = Transform(early, schema(), history=[late], fn=preprocess, transform=["train", "eval"])
    assert digest_tree(turned.graph.content) == digest_tree(out.graph.content)  # by span number, however given


def test_a_cache_changes_no_byte(tmp_path: Path) -> None:
    first, second = examples(tmp_path, 1), examples(tmp_path, 2, 500)
    day1 = Transform(first, schema(), fn=preprocess)
    assert day1.cache.states == 2
    cold = Transform(second, schema(), history=[first], fn=preprocess)
    warm = Transform(second, schema(), history=[first], fn=preprocess, cache=day1.cache)
    for name in ("examples", "graph", "schema", "cache"):
        assert digest_tree(getattr(warm, name).content) == digest_tree(getattr(cold, name).content)
    assert digest_tree(warm.cache.extra) == digest_tree(cold.cache.extra)
    assert warm.cache.states == 4


def test_the_schema_of_the_transformed_rows(tmp_path: Path) -> None:
    out = Transform(examples(tmp_path), schema(), fn=preprocess, transform=["train", "eval"])
    assert (out.schema.content / "schema.yaml").read_bytes() == (out.graph.content / "schema.yaml").read_bytes()
    assert "domain: {range: {min: 0, max: 5}}  # categorical, 6 ids of the vocabulary" in (
        out.schema.content / "schema.yaml"
    ).read_text("utf-8")
    checked = ExampleValidator(out.examples, StatisticsGen(out.examples), out.schema)
    assert checked.passed, checked.summary

    def wider(c: ops.Columns) -> ops.Columns:
        return {"x": c["x"] * 1.0, "word": ops.hash_buckets(c["word"], 900)}

    narrow = Transform(examples(tmp_path), schema(), fn=wider, transform=["train"])
    anomalies = ExampleValidator(narrow.examples, StatisticsGen(narrow.examples), out.schema)
    assert "word: INT_TYPE_BIG_INT" in anomalies.summary


PIPELINE = """
import drivetrain as dt
from drivetrain.components import *
from drivetrain.metadata import AnalyzerCache

@dt.pipeline
def days(day: str, before: str) -> None:
    earlier = ExampleGen.options(id="Earlier")(before, splits={"train": 1}, span=1)
    examples = ExampleGen(day, splits={"train": 1}, span=2)
    schema = ImportSchema("schema.yaml")
    Transform(examples, schema, history=[earlier], cache=dt.latest(AnalyzerCache), fn="features:preprocess")
"""
FEATURES = """
from drivetrain.engine import ops

def preprocess(columns):
    return {"x": ops.z_score(columns["x"])}
"""


def test_lists_of_a_known_shape_are_arrays(tmp_path: Path) -> None:
    raw = Examples.new(span=1)
    table = pa.table({
        "v": [[1.0, 2.0], [3.0, 5.0]], "n": [[1], [2]],
        "t": pa.array([0, 3_600_000], pa.timestamp("ms")), "free": [[1.0, 2.0], [3.0, 4.0]],
    })  # fmt: skip
    pq.write_table(table, tmp_path / "rows.parquet")
    source = data.open_parquet([tmp_path / "rows.parquet"])
    data.LocalExecutor().map(source, None, data.sinks(raw.content, ["train"])).write(raw.content, span=1)
    known = Schema.new()
    shapes = {"v": ("float", (2,)), "n": ("int", (1,))}
    features = (
        *(Feature(name, kind, shape=shape) for name, (kind, shape) in shapes.items()),
        Feature("t", "timestamp"),
    )
    (known.content / "schema.yaml").write_text(schema_to_yaml(DataSchema(features)))

    def fn(c: ops.Columns) -> ops.Columns:
        hour = ops.timestamp_part(c["t"], "hour") * 1.0
        same = ops.to_dense(c["v"], 2)  # as before the schema knew the shape
        return {
            "sum": c["v"].sum(axis=1) + c["n"][:, 0],
            "same": same,
            "hour": hour,
            "free": ops.to_dense(c["free"], 2),
        }

    rows = rows_of(Transform(raw, known, fn=fn).examples, "train")
    assert rows["sum"].to_pylist() == [4.0, 10.0]
    assert rows["same"].to_pylist() == [[1.0, 2.0], [3.0, 5.0]]
    assert rows["hour"].to_pylist() == [0.0, 1.0]


class Notes:
    """An observer that keeps what a node notes."""

    def __init__(self, into: list[str]) -> None:
        self.into = into

    def note(self, node: str, text: str) -> None:
        self.into.append(f"{node}: {text}")

    def __getattr__(self, name: str) -> Any:
        return lambda *_: None


def test_a_pipeline_over_days_finds_what_it_learnt(tmp_path: Path, project: Any) -> None:
    for day in range(4):
        pq.write_table(pa.table({"x": np.arange(50.0) * (day + 1)}), tmp_path / f"day{day}.parquet")
    folder = project("days", pipeline=PIPELINE, features=FEATURES)
    (folder / "schema.yaml").write_text("format: drivetrain.schema/1\nfeatures:\n  x: {type: float}\n")
    home = Home(tmp_path / "home" / ".drivetrain")

    def run(day: int) -> tuple[str, list[str]]:
        files = {"day": str(tmp_path / f"day{day}.parquet"), "before": str(tmp_path / f"day{day - 1}.parquet")}
        notes: list[str] = []
        result = run_pipeline(home, load_pipeline(folder), files, RunOptions(), lambda _: Notes(notes))
        assert result.state == "COMPLETE", result
        return result.nodes["Transform"].state, notes

    assert run(1) == ("COMPLETE", [])
    # There is a cache now, where there was none: once, that is another key. It spares reading all the same.
    assert run(1) == ("COMPLETE", ["Transform: analyzers: 2 states of earlier runs used, 0 made"])
    assert run(1)[0] == "CACHED"
    assert run(2) == ("COMPLETE", ["Transform: analyzers: 1 states of earlier runs used, 1 made"])
    assert run(2)[0] == "CACHED"
    assert run(3) == ("COMPLETE", ["Transform: analyzers: 1 states of earlier runs used, 1 made"])
    home.close()


def test_floats_are_checked_where_that_is_asked_for(tmp_path: Path) -> None:
    raw, types = examples(tmp_path), schema(x="float", word="string")

    def inverse(columns: ops.Columns) -> ops.Columns:
        return {"inverse": 1.0 / (columns["x"] - 100.0)}

    _, graph, *_ = Transform(raw, types, fn=inverse, check_floats=True)
    with pytest.raises(InputError, match="output 'inverse' is missing or not finite"):
        Bundle.load(graph.content).run_row("transform", {"x": 100.0})
    with pytest.raises(InputError, match=r"output 'inverse' is missing or not finite"):
        Transform(examples(tmp_path, first=50), types, fn=inverse, check_floats=True)
    Transform(examples(tmp_path, first=50), types, fn=inverse)


def test_integers_that_pandas_wrote_as_floats_are_what_the_schema_says(tmp_path: Path) -> None:
    def fn(columns: ops.Columns) -> ops.Columns:
        return {"n": ops.cast(ops.fill_missing(columns["n"], -1), "int32")}

    accepted = schema(n="int")
    for values, passes in (([3, None, 5], True), ([3, None, 5.5], False)):
        pd.DataFrame({"n": values}).to_csv(tmp_path / "n.csv")
        raw = ExampleGen(str(tmp_path / "n.csv"), splits={"train": 1})
        assert ExampleValidator(raw, StatisticsGen(raw), accepted).passed == passes
        if not passes:
            with pytest.raises(InputError, match=r"column 'n' has 5\.5, which does not fit int64"):
                Transform(raw, accepted, fn=fn)
            continue
        out, graph, *_ = Transform(raw, accepted, fn=fn)
        assert rows_of(out, "train")["n"].to_pylist() == [3, -1, 5]
        assert Bundle.load(graph.content).signatures["transform"].inputs["n"].dtype == "int64"
