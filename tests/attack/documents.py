"""Documents that people write, or that others hand in: YAML, JSON and text protobuf, edited until they lie."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

from drivetrain.tests.attack.attack import Attack, Case, Finding
from drivetrain.tests.attack.mutations import TREES, as_bytes, change_tree, draw_text, draw_tree, edit_text, to_text


def _draw_text(dice: Random) -> Case:
    return [draw_text(dice) for _ in range(dice.choice((1, 1, 2, 4)))]


def _draw_either(dice: Random) -> Case:
    """Steps on the value, or steps on its text."""
    return [draw_tree(dice) for _ in range(dice.choice((1, 1, 2, 4)))] if dice.random() < 0.7 else _draw_text(dice)


def _edited(text: str, case: Case) -> str:
    for step in case:
        text = edit_text(text, step)
    return text


def _json(text: str, case: Case) -> str:
    """The JSON after steps of either kind: those on its text come last."""
    value = json.loads(text)
    for step in case:
        if step[0] in TREES:
            value = change_tree(value, step)
    return _edited(to_text(value), [step for step in case if step[0] not in TREES])


def _as_it_is(folder: Path) -> Path:
    return folder


def _without_pandas(folder: Path) -> Path:
    """For what makes arrays: pandas has no part in it, and takes a third of the time to import."""
    from drivetrain.data.arrays import spare_pandas

    spare_pandas()
    return folder


def _document(
    name: str,
    honest: str,
    use: Callable[[Path], object],
    *,
    trees: bool = False,
    prepare: Callable[[Path], Path] = _as_it_is,
) -> Attack:
    """A document that is edited, written to a file of that name, and used."""

    def check(folder: Path, case: Case) -> None:
        (folder / name).write_bytes(as_bytes(_json(honest, case) if trees else _edited(honest, case)))
        use(folder / name)

    return Attack(prepare, _draw_either if trees else _draw_text, check, fast=60, slow=250)


# --- schema.yaml, schema.pbtxt, suites

SCHEMA = """# Edit freely.
format: drivetrain.schema/1
rows: {min: 1, drift: {min: 0.5, max: 2}}
environments: [TRAINING, SERVING]
severity: {SCHEMA_NEW_COLUMN: WARNING}
features:
  carrier: &carrier
    type: string  # string, 3 distinct
    presence: {min_fraction: 1.0, min_count: 1}
    domain:
      min_mass: 0.99
      values: [AA, UA, DL]
    drift: {l_infinity: 0.05}
  dep_delay:
    type: float
    domain: {range: {min: -120, max: 2000, disallow_nan: true}}
  booked:
    type: string
    domain: {time: {format: "%Y-%m-%dT%H:%M:%S%z", years: {min: 1990, max: 2029}}}
  stamp: {type: int, domain: {time: {format: UNIX_SECONDS}}}
  code: {type: string, domain: {range: {parse: int, max: 9}}, unique: {min: 2, max: 5}}
  label: {type: int, domain: bool, not_in_environments: [SERVING]}
  seats: {type: int, shape: [2], drift: {jensen_shannon: 0.1}}
  words: {type: string, value_count: [{min: 1, max: 9}, {}], stage: ALPHA}
  picture: {type: bytes, domain: {image: {min_supported_fraction: 0.5, max_bytes: 1000}}}
  address:
    type: struct
    fields:
      zip: {type: string, presence: {min_fraction: 0.5}}
weighted_features:
  delays: {value: dep_delay, weight: seats}
checks:
- {feature: carrier, sql: "num_non_missing > 1", severity: WARNING, environments: [TRAINING]}
expectations:
- type: expect_column_values_to_match_regex
  kwargs: {column: carrier, regex: "^(a|é)+$", mostly: 0.5}
"""
ROW = {
    "carrier": "é" + "a" * 40, "dep_delay": 1e300, "booked": "2013-13-32T25:61:61Z", "stamp": 2**62, "code": "9" * 400,
    "label": -1, "seats": [1, 2, 3], "words": [["a"], []], "picture": b"\x89PNG", "address": {"zip": None}, "new": True,
}  # fmt: skip


def _schema(file: Path) -> None:
    from drivetrain.data import load_schema, schema_from_yaml, schema_to_pbtxt, schema_to_yaml, validate_instance

    schema = load_schema(file)
    text = schema_to_yaml(schema)
    if schema_to_yaml(schema_from_yaml(text)) != text:
        raise Finding("a schema is not what it is written as")
    schema_to_pbtxt(schema)
    validate_instance(ROW, schema)


PBTXT = """
feature { name: "label" type: INT bool_domain {} not_in_environment: "SERVING" presence { min_fraction: 1 } shape {} }
feature { name: "age" type: INT int_domain { min: 0 max: 120 } value_counts { value_count { min: 1 } value_count {} } }
feature { name: "fare" type: FLOAT float_domain { min: -inf max: 99.5 disallow_nan: true } value_count { max: 3 } }
feature { name: "code" type: BYTES int_domain { max: 9 } unique_constraints { min: 2 max: 5 } lifecycle_stage: BETA }
feature { name: "city" type: BYTES domain: "d" distribution_constraints { min_domain_mass: 0.9 } in_environment: "X" }
feature { name: "when" type: BYTES time_domain { string_format: "%Y-%m-%d" } }
feature { name: "deep" type: STRUCT struct_domain { feature { name: "zip" type: BYTES } } }
string_domain { name: "d" value: "Oslo" value: "Ber\\x67en\\305\\221" }
default_environment: "TRAINING" default_environment: "SERVING"
dataset_constraints {
  min_examples_count: 10 max_examples_count: 20 num_examples_drift_comparator { min_fraction_threshold: 0.5 }
}
"""


def _pbtxt(file: Path) -> None:
    from drivetrain.data import load_pbtxt, schema_from_yaml, schema_to_yaml

    schema_from_yaml(schema_to_yaml(load_pbtxt(file).schema))


ROWS = [{"carrier": "é" + "a" * 40, "hour": 3, "delay": 1.5}, {"carrier": None, "hour": -1, "delay": 1e300}]
SUITE = json.dumps({
    "name": "flights",
    "meta": {"great_expectations_version": "1.5.0"},
    "expectations": [
        {"type": kind, "kwargs": kwargs, "meta": {"notes": ["n"]}}
        for kind, kwargs in (
            ("expect_column_values_to_not_be_null", {"column": "carrier", "mostly": 0.9}),
            ("expect_column_values_to_be_in_set", {"column": "carrier", "value_set": ["UA", "AA"]}),
            ("expect_column_values_to_be_between", {"column": "hour", "min_value": 0, "max_value": 23}),
            ("expect_column_values_to_match_regex", {"column": "carrier", "regex": "^N[0-9]+[A-Z]*$"}),
            ("expect_column_value_lengths_to_be_between", {"column": "carrier", "min_value": 2, "max_value": 6}),
            ("expect_column_mean_to_be_between", {"column": "delay", "min_value": -5.5, "max_value": 1e9}),
            ("expect_table_row_count_to_be_between", {"min_value": 1, "max_value": 10**9}),
            ("expect_column_values_to_be_unique", {"column": "hour"}),
            ("expect_column_to_exist", {"column": "carrier"}),
        )
    ],
})  # fmt: skip


def _suite(file: Path) -> None:
    from drivetrain.data import check_expectations, read_suite, schema_from_suite, statistics

    suite = read_suite(file)
    schema_from_suite(suite)
    check_expectations(statistics({"train": ROWS}), suite)


# --- kubeflow.yaml, component.yaml

CLUSTER = """
image: registry.example/flights:1.4
artifacts: s3://bucket/flights
store: {secret: drivetrain-store, key: url}
namespace: ml
ttl: 7d
deadline: 12h
api: {host: "https://kfp.example"}
defaults: &defaults
  env: {A: "1"}
  secrets: {API_TOKEN: {secret: flights, key: token}}
  configmaps: {B: {configmap: m, key: k}}
  secret_volumes: {/run/secrets: keys}
  pvcs: {/data: claim}
  volumes: {/big: {size: 100Gi, storage_class: fast, access_mode: ReadWriteOnce}}
  image_pull_secrets: [registry]
  run_as_user: 1000
  run_as_non_root: true
nodes:
  Trainer:
    node_selector: {pool: h100}
    tolerations: [{key: gpu, operator: Exists, effect: NoExecute, seconds: 30}]
    affinity: [{labels: [{key: zone, operator: In, values: [a, b]}], weight: 1}]
    shm: 8Gi
    gpu: nvidia.com/gpu
"""
COMPONENT = """
name: Train a model
description: Trains.
inputs:
- {name: Data, type: Dataset}
- {name: steps, type: Integer, default: '10'}
- {name: rate, type: Float, optional: true}
- {name: config, type: JsonObject, default: '{"a": [1, 2]}'}
outputs:
- {name: Model, type: Model}
- {name: loss, type: Float}
implementation:
  container:
    image: python:3.11
    command: [python, -c, 'print(1)']
    args:
    - --data
    - {inputPath: Data}
    - if:
        cond: {isPresent: rate}
        then: [--rate, {inputValue: rate}]
        else: [--none]
    - {concat: ['--config=', {inputValue: config}]}
    - {outputPath: Model}
    - {outputPath: loss}
    env:
      A: {inputValue: steps}
"""


def _cluster(file: Path) -> None:
    from drivetrain.pipelines.kubeflow.settings import ClusterSettings

    ClusterSettings.load(file.parent)


def _component(file: Path) -> None:
    from drivetrain.pipelines.external import kfp_component

    kfp_component(file)


# --- the compiled pipeline, and the parameters of a run

PIPELINE = '''
import drivetrain as dt
from drivetrain.metadata import Examples, Model


@dt.component
def Make(rows: int, share: float, name: str, on: bool, table: dict[str, list[float]], maybe: int | None) -> Examples:
    return Examples.new(rows={"train": rows})


@dt.component
def Train(examples: Examples, *, steps: int) -> Model:
    return Model.new()


@dt.component
def Pick(models: list[Model]) -> Model:
    return Model.new()


@dt.component
def Tell(model: Model, *, word: str) -> None:
    pass


@dt.pipeline
def flow(rows: int = 3, share: float = 0.5, name: str = "", on: bool = False, items: list[int] = [1, 2],
         table: dict[str, list[float]] = {}, maybe: int | None = None) -> None:
    """Flow."""
    examples = Make(rows, share, name, on, table, maybe)
    models = dt.map_(lambda steps: Train(examples, steps=steps), over=items, max_parallel=2)
    best = Pick(models)
    with dt.when(rows > 2):
        Tell(best, word=name)
    with dt.otherwise():
        Tell.options(id="Other", retries=2)(best, word="few")
'''
PARAMETERS = {
    "rows": 3,
    "share": 0.25,
    "name": "shop",
    "on": True,
    "items": [1, 2],
    "table": {"a": [1.5]},
    "maybe": None,
}


def _prepare_pipeline(folder: Path) -> tuple[Path, Any]:
    (folder / "attacked_flow.py").write_text(PIPELINE)
    sys.path.insert(0, str(folder))
    return folder, importlib.import_module("attacked_flow").flow


def _check_parameters(target: tuple[Path, Any], case: Case) -> None:
    from drivetrain.console.options import gather_parameters

    folder, flow = target
    file = folder / ("params.json" if len(case) % 2 else "params.yaml")
    file.write_bytes(as_bytes(_json(json.dumps(PARAMETERS), case)))
    values = flow.values(gather_parameters(flow.parameters, (), file))
    json.dumps(values).encode()
    for key, value in PARAMETERS.items():
        text = _edited(json.dumps(value), [step for step in case if step[0] not in TREES])
        flow.values(gather_parameters(flow.parameters, (f"{key}={text}",), None))


def _check_pipeline(target: tuple[Path, Any], case: Case) -> None:
    from drivetrain.pipelines.ir.ir import Pipeline

    text = _json(target[1].build().to_json(), case)
    pipeline = Pipeline.from_json(text)
    repr(pipeline.digest)
    for node in pipeline.ids:
        pipeline.upstream(node)
        pipeline.consumers(node)
    if Pipeline.from_json(pipeline.to_json()).digest != pipeline.digest:
        raise Finding("a pipeline is not what it is written as")


ATTACKS = {
    "schema": _document("schema.yaml", SCHEMA, _schema, prepare=_without_pandas),
    "pbtxt": _document("schema.pbtxt", PBTXT, _pbtxt),
    "suite": _document("suite.json", SUITE, _suite, trees=True, prepare=_without_pandas),
    "cluster": _document("kubeflow.yaml", CLUSTER, _cluster),
    "component": _document("component.yaml", COMPONENT, _component),
    "parameters": Attack(_prepare_pipeline, _draw_either, _check_parameters, fast=60, slow=500),
    "pipeline": Attack(_prepare_pipeline, _draw_either, _check_pipeline, fast=60, slow=500),
}
