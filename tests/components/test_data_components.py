"""The data components called as plain functions: artifacts in, artifacts out."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from drivetrain.components.example_gen import ExampleGen
from drivetrain.components.example_validator import ExampleValidator
from drivetrain.components.import_schema import ImportSchema
from drivetrain.components.schema_gen import SchemaGen
from drivetrain.components.statistics_gen import StatisticsGen
from drivetrain.console.schema.infer import infer as schema_infer
from drivetrain.data import Anomalies, Statistics, infer_schema, schema_to_yaml
from drivetrain.digest import digest_tree
from drivetrain.errors import BuildError, InputError
from drivetrain.metadata.summary import summary_of
from drivetrain.pipelines import Home, load_pipeline, run_pipeline


def write(path: Path, rows: int, odd: str = "a") -> str:
    lines = [f"{'ab'[i % 2]},{i}" for i in range(rows - 1)] + [f"{odd},7"]
    path.write_text("word,size\n" + "\n".join(lines) + "\n")
    return str(path)


def test_from_files_to_a_verdict(tmp_path: Path) -> None:
    examples = ExampleGen(write(tmp_path / "good.csv", 300), splits={"train": 2, "eval": 1}, span=4)
    statistics = StatisticsGen(examples)
    assert statistics.span == 4
    assert [
        dataset["name"] for dataset in json.loads((statistics.content / "statistics.json").read_text())["datasets"]
    ] == [
        "train",
        "eval",
    ]
    assert (statistics.content / "states" / "split=eval.bin").is_file()
    proposed = SchemaGen(statistics)
    accepted = ImportSchema(str(proposed.content / "schema.yaml"))
    assert (accepted.content / "expectations.json").read_bytes() == (
        proposed.content / "expectations.json"
    ).read_bytes()
    verdict = ExampleValidator(examples, statistics, accepted)
    assert (verdict.passed, verdict.errors) == (True, 0)
    assert verdict.summary == "no anomalies in 300 rows"
    for artifact in (statistics, proposed, accepted, verdict):
        assert (artifact.extra / "report.html").read_text().startswith("<!doctype html>")

    bad = ExampleGen(write(tmp_path / "bad.csv", 300, odd="zzz"))
    found = StatisticsGen(bad)
    stopped = ExampleValidator(bad, found, accepted)
    assert (stopped.passed, stopped.errors) == (False, 1)
    (anomaly,) = json.loads((stopped.content / "anomalies.json").read_text())["anomalies"]
    assert anomaly["type"] == "ENUM_TYPE_UNEXPECTED_STRING_VALUES"
    assert anomaly["rows"][0]["values"] == {"word": "zzz", "size": 7}


def test_statistics_of_other_examples_are_refused(tmp_path: Path) -> None:
    good, bad = (ExampleGen(write(tmp_path / f"{odd}.csv", 30, odd=odd)) for odd in ("a", "zzz"))
    statistics = StatisticsGen(good)
    schema = SchemaGen(statistics)
    with pytest.raises(InputError, match="the statistics are of other examples"):
        ExampleValidator(bad, statistics, schema)
    unknown = Statistics.load(statistics.content)  # as a component of a user's own, or an older release, made them
    unknown.document = {name: value for name, value in unknown.document.items() if name != "examples"}
    unknown.save(statistics.content)
    assert ExampleValidator(bad, statistics, schema).passed


def test_a_sample_is_called_one(tmp_path: Path) -> None:
    examples = ExampleGen(write(tmp_path / "good.csv", 3000))
    statistics = StatisticsGen(examples, sample_rate=0.05)
    looked_at = Statistics.load(statistics.content).splits
    verdict = ExampleValidator(examples, statistics, SchemaGen(statistics))
    assert verdict.summary == f"no anomalies in {sum(looked_at.values())} of 3,000 rows"
    anomalies = Anomalies.load(verdict.content / "anomalies.json")
    assert anomalies.notes == tuple(
        f"{split}: only a sample was checked, {rows} of {examples.rows[split]:,} rows"
        for split, rows in looked_at.items()
    )
    (tmp_path / "schema.yaml").write_text("format: drivetrain.schema/1\nfeatures:\n  word: {type: string}\n")
    stopped = ExampleValidator(examples, statistics, ImportSchema(str(tmp_path / "schema.yaml")))
    assert stopped.summary.endswith(f" in {sum(looked_at.values())} of 3,000 rows")


def test_a_stop_shows_a_problem_of_several_splits_once(tmp_path: Path) -> None:
    rows = [f"{name},{number}" for number in range(40) for name in ("a", "b" if number % 4 else "odd")]
    (tmp_path / "data.csv").write_text("name,number\n" + "\n".join(rows) + "\n")
    (tmp_path / "schema.yaml").write_text(
        "format: drivetrain.schema/1\nfeatures:\n  name: {type: string, domain: {values: [a, b]}}\n"
        "  number: {type: int}\n  gone: {type: int, presence: {min_fraction: 1.0}}\n"
    )
    examples = ExampleGen(str(tmp_path / "data.csv"))
    anomalies = ExampleValidator(examples, StatisticsGen(examples), ImportSchema(str(tmp_path / "schema.yaml")))
    assert re.fullmatch(r"2 errors \((name|gone): [A-Z_]+; (name|gone): [A-Z_]+\)", anomalies.summary)
    document = json.loads((anomalies.content / "anomalies.json").read_text())
    assert (document["summary"], document["errors"]) == (anomalies.summary, 4)
    figures = re.sub("<[^>]+>", " ", (anomalies.extra / "report.html").read_text())
    assert re.search(r"\b2\s+errors\s+0\s+warnings and notes\s+4\s+by data set", figures)
    text = summary_of(anomalies).text
    assert text.startswith(f"{anomalies.summary}\n")
    assert re.search(r"^  error  gone  train, eval  column gone is not in the data$", text, re.M)
    assert re.search(r"^  error  name  train +\d+ rows? .* 'odd'", text, re.M), "its numbers differ between the splits"
    assert re.search(r"^               eval +\d+ rows? .* 'odd'", text, re.M)
    quoted = re.findall(r"^    row \d+ of (train|eval): name=odd", text, re.M)
    assert quoted == ["train", "eval", "train"]
    assert text.count("fix: ") == 2


def test_a_text_among_numbers_is_quoted_and_the_numbers_of_other_splits_are_not(tmp_path: Path) -> None:
    for name, odd in (("train", "3.5"), ("eval", "n/a")):
        (tmp_path / f"{name}.csv").write_text("k,price\n" + "".join(f"{n},{n}.5\n" for n in range(20)) + f"20,{odd}\n")
    (tmp_path / "schema.yaml").write_text(
        "format: drivetrain.schema/1\nfeatures:\n  k: {type: int}\n  price: {type: float}\n"
    )
    examples = ExampleGen({name: str(tmp_path / f"{name}.csv") for name in ("train", "eval")})
    anomalies = ExampleValidator(examples, StatisticsGen(examples), ImportSchema(str(tmp_path / "schema.yaml")))
    text = summary_of(anomalies).text
    assert "all that train has of it can be read as float" in text
    assert "'n/a' (1) cannot be read as float" in text
    assert re.findall(r"^    row (.*): price=(.*), k=", text, re.M) == [("20 of eval", "n/a")]
    assert re.search(r'^    fix: .*null_values=\["", "NA", "nan", "NaN", "n/a"\]', text, re.M)
    again = ExampleGen(str(tmp_path / "eval.csv"), null_values=["", "NA", "nan", "NaN", "n/a"])
    assert ExampleValidator(again, StatisticsGen(again), ImportSchema(str(tmp_path / "schema.yaml"))).passed


def test_a_schema_of_tfx_is_read(tmp_path: Path) -> None:
    (tmp_path / "schema.pbtxt").write_text('feature { name: "size" type: INT int_domain { min: 0 } }')
    schema = ImportSchema(str(tmp_path / "schema.pbtxt"))
    assert "range: {min: 0}" in (schema.content / "schema.yaml").read_text()
    verdict = StatisticsGen(ExampleGen(write(tmp_path / "x.csv", 9)))
    anomalies = ExampleValidator(ExampleGen(write(tmp_path / "x.csv", 9)), verdict, schema)
    assert (anomalies.passed, anomalies.summary.count("SCHEMA_NEW_COLUMN")) == (False, 1)


def _options_of_inference() -> dict[str, Any]:
    parameters = inspect.signature(infer_schema).parameters
    return {name: spec.default for name, spec in parameters.items() if spec.kind is spec.KEYWORD_ONLY}


def test_a_schema_is_proposed_by_the_options_of_the_library(tmp_path: Path) -> None:
    """The component, and `schema infer`, have every option of `infer_schema`, and its defaults."""
    options = _options_of_inference()
    assert {name: spec.default for name, spec in SchemaGen.parameters.items()} == options
    asked = schema_infer.make_context("infer", []).params
    assert {name: asked[name] for name in options} == options
    days = "\n".join(f"{15_000 + i % 90},0{1 + i % 9}/11/2018" for i in range(600))
    (tmp_path / "x.csv").write_text(f"day,date\n{days}\n")
    statistics = StatisticsGen(ExampleGen(str(tmp_path / "x.csv"), splits={"train": 1, "eval": 1}))
    named: list[dict[str, Any]] = [
        {}, {"split": "eval"}, {"max_values": 8, "semantics": False}, {"semantics": False}, {"semantics": True},
        {"shapes": False}, {"slack": 0.1},
    ]  # fmt: skip
    texts = [(SchemaGen(statistics, **each).content / "schema.yaml").read_text() for each in named]
    assert len(set(texts)) == len(texts)
    loaded = Statistics.load(statistics.content)
    assert texts == [schema_to_yaml(infer_schema(loaded, **each)) for each in named]
    with pytest.raises(InputError, match="did you mean 'train'"):
        SchemaGen(statistics, split="trian")


@pytest.mark.parametrize(
    ("options", "message", "fix"),
    [
        ("slack=-0.1", "slack is -0.1", "use 0 or more"),
        ("max_values=-1", "max_values is -1", "use 0 or more"),
        ("max_value=9", "max_value", "did you mean 'max_values'?"),
        ("semantics='all'", "semantics", None),
    ],
)
def test_a_wrong_option_is_refused_when_the_pipeline_is_built(
    project: Callable[..., Path], options: str, message: str, fix: str | None
) -> None:
    folder = project(
        "look",
        pipeline="import drivetrain as dt\nfrom drivetrain.components import *\n\n@dt.pipeline\ndef look() -> None:\n"
        f"    SchemaGen(StatisticsGen(ExampleGen('x.csv')), {options})\n",
    )
    with pytest.raises(BuildError, match=re.escape(message)) as caught:
        load_pipeline(folder).build()
    assert caught.value.where is not None
    assert caught.value.where.endswith("pipeline.py:6")
    assert fix is None or caught.value.fix == fix


def test_examples_of_an_environment(tmp_path: Path) -> None:
    (tmp_path / "schema.yaml").write_text(
        "format: drivetrain.schema/1\nenvironments: [TRAINING, SERVING]\nfeatures:\n  word: {type: string}\n"
        "  size: {type: int}\n  label: {type: int, presence: {min_count: 1}, not_in_environments: [SERVING]}\n"
    )
    schema = ImportSchema(str(tmp_path / "schema.yaml"))
    examples = ExampleGen(write(tmp_path / "x.csv", 9))
    statistics = StatisticsGen(examples)
    assert ExampleValidator(examples, statistics, schema, environment="SERVING").passed
    assert not ExampleValidator(examples, statistics, schema, environment="TRAINING").passed
    assert not ExampleValidator(examples, statistics, schema).passed


def test_equal_inputs_give_equal_content(tmp_path: Path) -> None:
    digests = []
    for _ in range(2):
        examples = ExampleGen(write(tmp_path / "x.csv", 100))
        statistics = StatisticsGen(examples)
        schema = SchemaGen(statistics)
        verdict = ExampleValidator(examples, statistics, schema)
        digests.append([digest_tree(artifact.content).fingerprint for artifact in (statistics, schema, verdict)])
    assert digests[0] == digests[1]


def test_a_schema_is_one_readable_file(tmp_path: Path) -> None:
    (tmp_path / "schema.yaml").write_text("format: drivetrain.schema/1\nfeatures:\n  x: {type: integer}\n")
    with pytest.raises(InputError, match="there is no type 'integer'") as caught:
        ImportSchema(str(tmp_path / "schema.yaml"))
    assert caught.value.where is not None
    assert caught.value.where.endswith("schema.yaml:3")


def test_statistics_beyond_columns(tmp_path: Path) -> None:
    examples = ExampleGen(write(tmp_path / "x.csv", 300), splits={"train": 2, "eval": 1})
    statistics = StatisticsGen(
        examples, weight="size", slices=["word", {"size": [7], "word": None}], label="word", correlations=True,
        custom="drivetrain.tests.data.customs:CUSTOM", lift={"min_x_count": 1, "top": 1},
    )  # fmt: skip
    train, evaluation = json.loads((statistics.content / "statistics.json").read_text())["datasets"]
    assert train["weighted_rows"] + evaluation["weighted_rows"] == sum(range(299)) + 7
    assert [part["name"] for part in train["slices"]][:2] == ["word=a", "word=b"]
    assert train["mutual_information"]["rows"] == train["lift"]["rows"] == train["rows"]
    assert train["correlations"]["features"] == ["size"]
    assert train["custom"]["longest"]["rows"] == train["rows"]
    with pytest.raises(InputError, match="no column 'weight'"):
        StatisticsGen(examples, weight="weight")
    with pytest.raises(InputError, match="not a mapping of names to factories"):
        StatisticsGen(examples, custom="drivetrain.tests.data.customs:Longest")


def test_values_without_their_weights_stop_the_examples(tmp_path: Path) -> None:
    (tmp_path / "schema.yaml").write_text(
        "format: drivetrain.schema/1\nfeatures:\n  fare: {type: float}\n  weight: {type: float}\n"
        "weighted_features:\n  fares: {value: fare, weight: weight}\n"
    )
    (tmp_path / "x.csv").write_text("fare,weight\n" + "1.5,2\n" * 20 + "2.5,\n")
    examples = ExampleGen(str(tmp_path / "x.csv"), splits={"all": 1})
    schema = ImportSchema(str(tmp_path / "schema.yaml"))
    verdict = ExampleValidator(examples, StatisticsGen(examples, schema=schema), schema)
    assert not verdict.passed
    found = json.loads((verdict.content / "anomalies.json").read_text())["anomalies"]
    assert {(one["feature"], one["type"]) for one in found} == {
        ("fares", "WEIGHTED_FEATURE_MISSING_WEIGHT"),
        ("fares", "WEIGHTED_FEATURE_LENGTH_MISMATCH"),
    }
    assert all([row["values"] for row in one["rows"]] == [{"fare": 2.5, "weight": None}] for one in found)
    unmeasured = ExampleValidator(examples, StatisticsGen(examples), schema)
    assert (unmeasured.passed, unmeasured.summary) == (True, "1 warning (fares: STATS_NOT_AVAILABLE)")


def test_derived_columns_are_described_and_quoted(tmp_path: Path) -> None:
    derive = "drivetrain.tests.data.customs:parity"
    examples = ExampleGen(write(tmp_path / "x.csv", 300))
    statistics = StatisticsGen(examples, derive=derive)
    (train, *_) = json.loads((statistics.content / "statistics.json").read_text())["datasets"]
    (parity,) = [feature for feature in train["features"] if feature["name"] == "parity"]
    assert parity["unique"] == {"value": 2, "exact": True}
    schema = tmp_path / "schema.yaml"
    text = (SchemaGen(statistics).content / "schema.yaml").read_text()
    schema.write_text(text.replace("[even, odd]", "[even]"))
    verdict = ExampleValidator(examples, statistics, ImportSchema(str(schema)), derive=derive)
    every = json.loads((verdict.content / "anomalies.json").read_text())["anomalies"]
    found = [one for one in every if one["type"] == "ENUM_TYPE_UNEXPECTED_STRING_VALUES"]
    assert [(one["split"], one["feature"]) for one in found] == [("train", "parity"), ("eval", "parity")]
    assert all(one["rows"] and all(row["values"]["size"] % 2 for row in one["rows"]) for one in found)


def test_a_schema_of_nearly_that_name_is_told(tmp_path: Path) -> None:
    folder = tmp_path / "near"
    folder.mkdir()
    (folder / "schema.yaml").write_text("format: drivetrain.schema/1\nfeatures: {}\n")
    (folder / "pipeline.py").write_text(
        "import drivetrain as dt\nfrom drivetrain.components import ImportSchema\n\n"
        "@dt.pipeline\ndef near() -> None:\n    ImportSchema('schema.yml')\n"
    )
    home = Home(tmp_path / "root")
    result = run_pipeline(home, load_pipeline(folder))
    home.close()
    assert "no file matches 'schema.yml'" in result.nodes["ImportSchema"].reason
    assert "did you mean 'schema.yaml'?" in result.nodes["ImportSchema"].reason
