"""KFP's component.yaml as components: read as KFP itself reads it, and run as containers."""

from __future__ import annotations

import inspect
import json
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import drivetrain as dt
import pytest
from drivetrain.errors import BuildError
from drivetrain.metadata import Artifact, Examples
from drivetrain.pipelines import Home, load_pipeline, run_pipeline
from drivetrain.pipelines.external import kfp_yaml
from drivetrain.pipelines.external.placeholders import Concatenation, IfPresent, Reference, Word
from drivetrain.tests.pipelines.external.test_container import busybox  # noqa: F401 - a fixture

pytestmark = pytest.mark.filterwarnings("ignore:.*has no digest:UserWarning")

TRAIN = """
name: Train a model
description: Trains something.
metadata: {annotations: {author: someone}}
inputs:
- {name: Training data, type: Dataset, description: rows}
- {name: Label column, type: String, default: y}
- {name: epochs, type: Integer, default: '3'}
- {name: rate, type: Float, default: 0.5}
- {name: shuffle, type: Boolean, default: 'True'}
- {name: layers, type: List, default: '[8, 4]'}
- {name: options, type: JsonObject, default: '{"a": 1}'}
- {name: seed, type: Integer, optional: true}
- {name: max_depth, type: Integer, default: "6", optional: true}
- {name: booster_params, type: JsonObject, optional: true}
- {name: warm start, type: Model, optional: true}
- {name: anything}
outputs:
- {name: Model, type: Model}
- {name: loss, type: Float}
- {name: Report}
implementation:
  container:
    image: registry/train:1
    command: [python3, -m, train]
    args:
    - --data
    - {inputPath: Training data}
    - --data-uri
    - {inputUri: Training data}
    - {concat: [--label=, {inputValue: Label column}]}
    - --epochs
    - {inputValue: epochs}
    - if:
        cond: {isPresent: seed}
        then: [--seed, {inputValue: seed}]
        else: [--no-seed]
    - if:
        cond: {isPresent: warm start}
        then: [--from, {inputPath: warm start}]
    - {outputPath: Model}
    - {outputUri: Model}
    - {outputPath: loss}
    - {outputPath: Report}
    env: {MODE: fast}
"""
SMALL = """
name: Echo
inputs: [{name: text, type: str}]
implementation:
  container: {image: 'busybox', command: [echo, {inputValue: text}]}
"""
V2 = """
name: v2
inputs:
- {name: data, type: system.Dataset@0.0.1}
- {name: n, type: int, default: 1}
outputs: [{name: out, type: system.Model@0.0.1}]
implementation:
  container:
    image: img
    command: [run]
    args: [{inputUri: data}, {concat: ['--n=', {inputValue: n}, {concat: ['a', 'b']}]}, {outputUri: out}]
"""

_TYPES = {str: "String", int: "Integer", float: "Float", bool: "Boolean", list: "List", dict: "Dict"}


def spelled(word: Word, outputs: dict[str, Any]) -> Any:
    """A word of ours as KFP spells its own."""
    if isinstance(word, str):
        return word
    if isinstance(word, Concatenation):
        if word.parts[1:] == ("/data",):
            return f"{{{{$.outputs.artifacts['{word.parts[0].name}'].path}}}}"  # type: ignore[union-attr]
        return {"Concat": [spelled(part, outputs) for part in word.parts]}
    if isinstance(word, IfPresent):
        body: dict[str, Any] = {"InputName": word.name, "Then": [spelled(each, outputs) for each in word.then]}
        if word.otherwise:
            body["Else"] = [spelled(each, outputs) for each in word.otherwise]
        return {"IfPresent": body}
    assert isinstance(word, Reference)
    if word.kind == "output" and outputs[word.name] is not None:
        return f"{{{{$.outputs.parameters['{word.name}'].output_file}}}}"
    return {
        "parameter": f"{{{{$.inputs.parameters['{word.name}']}}}}",
        "data": f"{{{{$.inputs.artifacts['{word.name}'].path}}}}",
        "input": f"{{{{$.inputs.artifacts['{word.name}'].uri}}}}",
        "output": f"{{{{$.outputs.artifacts['{word.name}'].uri}}}}",
    }[word.kind]


@pytest.mark.parametrize("text", [TRAIN, SMALL, V2])
def test_it_is_read_as_kfp_reads_it(text: str) -> None:
    components = pytest.importorskip("kfp.components")
    from kfp.dsl.placeholders import convert_command_line_element_to_string_or_struct as spell

    theirs = components.load_component_from_text(text).component_spec
    ours = kfp_yaml.parse(text, "component.yaml")
    assert [port.key for port in ours.inputs] == list(theirs.inputs or {})
    assert [port.key for port in ours.outputs] == list(theirs.outputs or {})
    for port in ours.inputs:
        their = theirs.inputs[port.key]
        if port.hint is not None:
            assert their.type == _TYPES[port.hint]
            assert their.default == (None if port.default is inspect.Parameter.empty else port.default)
            assert type(their.default) in (port.hint, type(None))
        else:
            assert their.type.startswith("system.")
        assert their.optional == (port.optional or port.default is not inspect.Parameter.empty)
    for port in ours.outputs:
        their = theirs.outputs[port.key].type
        assert their == _TYPES[port.hint] if port.hint is not None else their.startswith("system.")
    outputs = {port.key: port.hint for port in ours.outputs}
    container = theirs.implementation.container
    assert ours.image == container.image
    assert [spelled(word, outputs) for word in ours.command] == [spell(each) for each in container.command or []]
    assert [spelled(word, outputs) for word in ours.args] == [spell(each) for each in container.args or []]
    assert dict(ours.env) == (container.env or {})


def test_the_interface() -> None:
    train = dt.kfp_component(TRAIN, types={"Dataset": Examples})
    assert train.name == "TrainAModel"
    assert {name: spec.type.__name__ for name, spec in train.inputs.items()} == {
        "training_data": "Examples", "anything": "Artifact", "warm_start": "KfpModel",
    }  # fmt: skip
    assert train.inputs["warm_start"].optional
    defaults = {name: spec.default for name, spec in train.parameters.items() if name != "container"}
    assert defaults == {
        "label_column": "y", "epochs": 3, "rate": 0.5, "shuffle": True, "layers": [8, 4], "options": {"a": 1},
        "seed": None, "max_depth": 6, "booster_params": None,
    }  # fmt: skip
    assert {key: kind.__name__ for key, kind in train.outputs.items()} == {
        "model": "KfpModel", "loss": "Value", "report": "Artifact",
    }  # fmt: skip
    assert dt.kfp_component(TRAIN).inputs["training_data"].type is not train.inputs["warm_start"].type


def test_types_are_checked_when_the_pipeline_is_built(project: Callable[..., Path]) -> None:
    make = SMALL.replace("implementation", "outputs: [{name: data, type: Dataset}]\nimplementation")
    take = SMALL.replace("type: str", "type: Model").replace("inputValue", "inputPath")
    text = f"""
    import drivetrain as dt
    make = dt.kfp_component({make!r}, name="Make")
    take = dt.kfp_component({take!r}, name="Take")

    @dt.pipeline
    def shop() -> None:
        take(make(text="x").data)
    """
    with pytest.raises(BuildError, match="Take: the input 'text' takes KfpModel, not KfpDataset"):
        load_pipeline(project("shop", pipeline=text)).build()


CONTAINER = "name: X\ninputs:\n- {name: a, type: String}\n- {name: b, type: Model}\nimplementation:\n  container:\n"


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("name: X\ninputs: {\n", 3, "not YAML"),
        ("name: X\n", 1, "no implementation"),
        ("- 1\n", 1, "a component must be `key: value`"),
        ("name: X\nimplementation:\n  graph: {}\n", 3, "implementation: unsupported field 'graph'"),
        (CONTAINER + "    command: [x]\n", 7, "has no image"),
        (CONTAINER + "    image: x\n    resources: {}\n", 8, "container: unsupported field 'resources'"),
        (CONTAINER + "    image: x\n    args:\n    - {inputValue: c}\n", 9, "no input 'c'"),
        (CONTAINER + "    image: x\n    args:\n    - {inputValue: b}\n", 9, "'b' is an artifact, and inputValue"),
        (CONTAINER + "    image: x\n    args:\n    - {inputUri: a}\n", 9, "'a' is a value, which has no URI"),
        (CONTAINER + "    image: x\n    args:\n    - {outputPath: c}\n", 9, "no output 'c'"),
        (CONTAINER + "    image: x\n    args:\n    - {executorInput: null}\n", 9, "'executorInput' is not supported"),
        (CONTAINER + "    image: x\n    args:\n    - if: {cond: {}, then: x}\n", 9, "only isPresent"),
        (CONTAINER + "    image: x\n    args: x\n", 8, "args must be a list"),
        ("name: X\ninputs:\n- {name: a, type: Integer, default: x}\nimplementation: 1\n", 3, "'x' is not of type int"),
        (
            f"name: X\ninputs:\n- {{name: a, type: JsonArray, default: '{'[' * 20_000}'}}\nimplementation: 1\n",
            3,
            "is not of type list",
        ),
        ("name: X\ninputs:\n- {name: a, typ: Integer}\nimplementation: 1\n", 3, "unsupported field 'typ'"),
        ("name: X\ninputs:\n- {name: a}\n- {name: A}\nimplementation: 1\n", 4, "two inputs are called 'A'"),
    ],
)
def test_what_is_not_understood_is_named_with_its_line(tmp_path: Path, text: str, line: int, message: str) -> None:
    path = tmp_path / "component.yaml"
    path.write_text(text)
    with pytest.raises(BuildError, match=message) as error:
        dt.kfp_component(path)
    assert error.value.where == f"{path}:{line}"


@pytest.mark.containers
@pytest.mark.slow
def test_kfp_components_in_a_pipeline(busybox: str, home: Home, project: Callable[..., Path]) -> None:  # noqa: F811
    make = f"""
    name: Make
    inputs: [{{name: n, type: Integer}}, {{name: words, type: List, default: '["x"]'}}]
    outputs: [{{name: data, type: Dataset}}, {{name: size, type: Integer}}]
    implementation:
      container:
        image: {busybox}
        command: [sh, -c, 'echo "$0 $(cat "$1")" > "$2"; echo "$0" > "$3"']
        args: [{{inputValue: n}}, {{inputPath: words}}, {{outputPath: data}}, {{outputPath: size}}]
    """
    take = f"""
    name: Take
    inputs: [{{name: data, type: Dataset}}, {{name: size, type: Integer, optional: true}}]
    outputs: [{{name: said, type: String}}]
    implementation:
      container:
        image: {busybox}
        command: [sh, -c, 'echo "$(cat "$0") $*" > "$1"', {{inputPath: data}}, {{outputPath: said}}]
        args: [{{if: {{cond: {{isPresent: size}}, then: [{{concat: ['size=', {{inputValue: size}}]}}], else: [none]}}}}]
    """
    text = """
    import drivetrain as dt
    make = dt.kfp_component("make.yaml")
    take = dt.kfp_component("take.yaml")

    @dt.pipeline
    def shop(n: int = 4) -> None:
        made = make(n=n)
        take(made.data, size=made.size)
        take.options(id="Bare")(made.data)
    """
    folder = project("shop", pipeline=text)
    (folder / "make.yaml").write_text(textwrap.dedent(make))
    (folder / "take.yaml").write_text(textwrap.dedent(take))
    result = run_pipeline(home, load_pipeline(folder))
    assert result.state == "COMPLETE", {name: each.reason for name, each in result.nodes.items()}
    said = {name: result.nodes[name].outputs["said"][0].properties["value"] for name in ("Take", "Bare")}
    assert said["Take"].startswith(f"4 {json.dumps(['x'])} /drivetrain/")
    assert said["Take"].endswith(" size=4")
    assert said["Bare"].endswith(" none")
    assert {each.state for each in run_pipeline(home, load_pipeline(folder)).nodes.values()} == {"CACHED"}
    (folder / "take.yaml").write_text(textwrap.dedent(take).replace("none]", "nothing]"))
    states = {name: each.state for name, each in run_pipeline(home, load_pipeline(folder)).nodes.items()}
    assert states == {"Make": "CACHED", "Take": "COMPLETE", "Bare": "COMPLETE"}


def test_an_artifact_type_is_made_once() -> None:
    one, two = dt.kfp_component(TRAIN), dt.kfp_component(TRAIN, name="Second")
    assert one.outputs["model"] is two.outputs["model"]
    assert issubclass(one.outputs["model"], Artifact)


def test_a_file_that_holds_itself() -> None:
    with pytest.raises(BuildError, match="holds itself"):
        dt.kfp_component(CONTAINER + "    image: x\n    args:\n    - &a {concat: [*a]}\n")


def test_an_input_without_a_type() -> None:
    cut = dt.kfp_component("""
        name: Cut
        inputs: [{name: Text}, {name: Fields}, {name: Delimiter, default: ','}]
        outputs: [{name: Text}]
        implementation:
          container:
            image: busybox
            command: [cut, {inputPath: Text}, {outputPath: Text}, {inputValue: Fields}]
            args: [{concat: [-d, {inputValue: Delimiter}]}]
    """)
    assert list(cut.inputs) == ["text"]
    assert {name: spec.hint for name, spec in cut.parameters.items() if name != "container"} == {
        "fields": str, "delimiter": str,
    }  # fmt: skip
    assert cut.parameters["delimiter"].default == ","
