"""The schema of transformed rows, next to what TensorFlow Transform says of the same (its transformed_metadata)."""

import json
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from drivetrain import data
from drivetrain.data import schema_from_yaml, schema_to_yaml
from drivetrain.data.schemas.feature import Count, Presence, Range
from drivetrain.engine import Bundle, analyze, ops
from drivetrain.errors import InputError

pytestmark = pytest.mark.engine

CASES = json.loads((Path(__file__).parents[2] / "golden" / "tft_cases.json").read_text())["cases"]
GOLDEN = {case["name"]: case for case in CASES if "output_schema" in case.get("expected", {})}


def numeric(c: Any) -> Any:
    x = c["x"]
    return {
        "z": ops.z_score(x), "mm": ops.min_max(x, -1, 1), "b3": ops.bucketize(x, 3), "q4": ops.quantiles(x, 4),
        "mean": ops.mean(x), "gauss": ops.scale_to_gaussian(x),
    }  # fmt: skip


def text(c: Any) -> Any:
    ids = ops.vocabulary(ops.split(c["t"]), oov_buckets=0)
    _, w = ops.tfidf(ids, 3)
    words = ops.split(c["t"])
    return {
        "ids": ids, "w": w, "bow": ops.bag_of_words(words, (1, 2)), "ngr": ops.ngrams(words, (1, 2)),
        "wc": ops.fill_missing(ops.word_count(c["t"]), 0),
    }  # fmt: skip


FUNCTIONS: dict[str, Any] = {
    "numeric_full_pass": numeric,
    "vocab_basic": lambda c: {"id": ops.vocabulary(c["s"], oov_buckets=0)},
    "vocab_topk_oov": lambda c: {"id": ops.vocabulary(c["s"], top_k=2, oov_buckets=3)},
    "vocab_int_input": lambda c: {"id": ops.vocabulary(c["n"], oov_buckets=0)},
    "apply_buckets_edges": lambda c: {"b": ops.apply_buckets(c["x"], [2.0, 5.0, 10.0])},
    "text_tfidf_ngrams": text,
    "elementwise": lambda c: {
        "all": ops.z_score(c["x"]),
        "cov": jnp.broadcast_to(ops.covariance(c["x"]), (c["x"].shape[0], 2, 2)),
        "pca": c["x"] @ ops.pca(c["x"], 1),
    },
}
OURS = 1  # one id more than TFT: of a missing value, of which TFT knows none


def columns_of(case: Any) -> pa.Table:
    rows = case["input"]
    found = {}
    for name in rows[0]:
        values: list[Any] = [float(row[name]) if row[name] in ("nan", "inf") else row[name] for row in rows]
        dense = isinstance(values[0], list) and "FixedLen" in case["config"]["feature_spec"][name]
        found[name] = pa.array(values, pa.list_(pa.float64(), len(values[0])) if dense else None)
    return pa.table(found)


def learnt(tmp_path: Path, fn: Any, table: pa.Table) -> Bundle:
    pq.write_table(table, tmp_path / "data.parquet")
    types = table.schema
    return analyze(fn, data.open_parquet([tmp_path / "data.parquet"]), data.LocalExecutor(), schema=types)


@pytest.mark.parametrize("name", list(FUNCTIONS))
def test_it_says_what_tft_says(tmp_path: Path, name: str) -> None:
    bundle = learnt(tmp_path, FUNCTIONS[name], columns_of(GOLDEN[name]))
    ours = {feature.name: feature for feature in bundle.output_schema().features}
    theirs = {feature["name"]: feature for feature in GOLDEN[name]["expected"]["output_schema"]["feature"]}
    compared = ours.keys() & theirs.keys()
    assert compared == ours.keys() - {"mean"} | ({"mean"} & theirs.keys())
    for key in compared:
        mine, feature = ours[key], theirs[key]
        assert {"int": "INT", "float": "FLOAT", "string": "BYTES"}[mine.type] == feature["type"]
        assert mine.presence == Presence(feature.get("presence", {}).get("min_fraction"))
        sizes = tuple(int(dim["size"]) for dim in feature.get("shape", {}).get("dim", []))
        assert mine.shape == (sizes or None)
        assert mine.value_counts == (() if "shape" in feature else (Count(min=0),))
        if "int_domain" in feature:
            assert isinstance(mine.domain, Range)
            assert mine.domain.min == int(feature["int_domain"]["min"])
            listed = "shape" not in feature
            assert mine.domain.max == int(feature["int_domain"]["max"]) + (0 if listed else OURS)
            assert mine.evidence.startswith("domain: categorical, ")
        elif key != "idx":
            assert mine.domain is None


def test_of_every_kind_and_back_from_its_file(tmp_path: Path) -> None:
    def fn(c: Any) -> Any:
        return {
            "text": ops.lower(c["s"]), "words": ops.split(c["s"]), "float": c["x"], "flag": c["x"] > 0,
            "half": ops.cast(c["x"], "bfloat16"), "small": ops.cast(ops.fill_missing(c["n"], 0), "uint8"),
            "id": ops.vocabulary(c["s"], name="areas"), "ids": ops.vocabulary(ops.split(c["s"]), oov_buckets=2),
            "code": ops.lookup(c["s"], {"a b": 3, "c": 4}, default=-1), "day": ops.hash_buckets(c["n"], 7),
            "unknown": ops.apply_vocabulary(c["s"], ["x", "y"], oov_buckets=0, default=50),
        }  # fmt: skip

    table = pa.table({"s": ["a b", "c", None], "x": [0.5, None, 2.0], "n": [1, 2, 3]})
    bundle = learnt(tmp_path, fn, table)
    schema = bundle.output_schema()
    assert schema_from_yaml(schema_to_yaml(schema)) == schema
    types = {feature.name: feature.type for feature in schema.features}
    assert types == {
        "text": "string", "words": "string", "float": "float", "flag": "bool", "half": "float", "small": "int",
        "id": "int", "ids": "int", "code": "int", "day": "int", "unknown": "int",
    }  # fmt: skip
    domains = {feature.name: feature.domain for feature in schema.features if feature.domain is not None}
    assert domains == {"id": Range(0, 3), "ids": Range(0, 4), "day": Range(0, 7), "unknown": Range(0, 50)}
    by_name = {feature.name: feature for feature in schema.features}
    assert by_name["id"].evidence == "domain: categorical, 4 ids of the vocabulary areas"
    assert by_name["text"].presence == Presence()
    assert by_name["float"].presence == Presence(1.0)
    outputs = bundle.run("transform", pa.record_batch({"s": ["?", ""], "x": [0.0, None], "n": [1, None]}))
    for name, domain in domains.items():
        assert isinstance(domain, Range)
        ids = np.concatenate(outputs[name]) if name == "ids" else outputs[name]
        assert all((domain.min or 0) <= value <= (domain.max or 0) for value in ids if value is not None)
    with pytest.raises(InputError, match="no signature 'predict'"):
        bundle.output_schema("predict")


def test_a_saved_bundle_says_the_same(tmp_path: Path) -> None:
    bundle = learnt(tmp_path, numeric, columns_of(GOLDEN["numeric_full_pass"]))
    bundle.save(tmp_path / "bundle")
    assert Bundle.load(tmp_path / "bundle").output_schema() == bundle.output_schema()
