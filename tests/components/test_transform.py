"""Transform as a plain call: examples in, transformed examples and a graph out."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from drivetrain import data
from drivetrain.components.transform import Transform
from drivetrain.data.schemas.schema import Feature
from drivetrain.data.schemas.schema import Schema as DataSchema
from drivetrain.data.schemas.yaml_read import schema_to_yaml
from drivetrain.digest import digest_tree
from drivetrain.engine import Bundle, ops
from drivetrain.errors import InputError
from drivetrain.metadata import Examples, Schema

pytestmark = pytest.mark.engine


def preprocess(columns: ops.Columns) -> ops.Columns:
    return {"x": ops.z_score(columns["x"]), "word": ops.vocabulary(columns["word"])}


def examples(tmp_path: Path) -> Examples:
    made = Examples.new(span=7)
    manifests = []
    for split, count in (("train", 90), ("eval", 30), ("empty", 0)):
        table = pa.table({"x": np.arange(count), "word": pa.array([f"w{i % 4}" for i in range(count)], pa.string())})
        pq.write_table(table, tmp_path / f"{split}.parquet", row_group_size=40)
        source = data.open_parquet([tmp_path / f"{split}.parquet"])
        manifests.append(data.LocalExecutor().map(source, None, data.sinks(made.content, [split])))
    made.rows = data.Manifest.joined(manifests).write(made.content, span=7).rows
    return made


def schema(**types: str) -> Schema:
    made = Schema.new()
    features = tuple(Feature(name, kind) for name, kind in types.items())
    (made.content / "schema.yaml").write_text(schema_to_yaml(DataSchema(features)))
    return made


def test_all_splits_are_transformed_by_what_the_training_split_taught(tmp_path: Path) -> None:
    raw = examples(tmp_path)
    out, graph = Transform(raw, schema(x="int", word="string"), fn=preprocess)
    assert out.rows == {"train": 90, "eval": 30, "empty": 0}
    assert out.span == 7
    source = data.open_examples(out.content, "eval")
    found = pa.Table.from_batches([batch for shard in source.shards for batch in source.read(shard)])
    x = np.arange(90)
    np.testing.assert_allclose(found["x"].to_numpy(), (np.arange(30) - x.mean()) / x.std(), rtol=1e-6)
    assert Bundle.load(graph.content).signatures["transform"].outputs["word"].size == 6
    again, other = Transform(raw, schema(x="int", word="string"), fn=preprocess)
    assert digest_tree(again.content) == digest_tree(out.content)
    assert digest_tree(other.content) == digest_tree(graph.content)


def test_the_schema_decides_between_whole_and_float(tmp_path: Path) -> None:
    raw = examples(tmp_path)
    _, graph = Transform(raw, schema(x="float"), fn=preprocess)
    assert Bundle.load(graph.content).signatures["transform"].inputs["x"].dtype == "float64"
    with pytest.raises(InputError, match="column 'word' is string, the schema says int"):
        Transform(raw, schema(word="int"), fn=preprocess)


def test_splits_to_analyze_must_exist_and_have_rows(tmp_path: Path) -> None:
    raw = examples(tmp_path)
    both, _ = Transform(raw, schema(), fn=preprocess, analyze=["train", "eval"])
    assert both.rows["train"] == 90
    with pytest.raises(InputError, match="names 'trian', which is no split"):
        Transform(raw, schema(), fn=preprocess, analyze=["trian"])
    with pytest.raises(InputError, match="there are no rows in empty"):
        Transform(raw, schema(), fn=preprocess, analyze=["empty"])
