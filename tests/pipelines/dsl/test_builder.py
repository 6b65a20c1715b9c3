"""Everything wrong with a pipeline is found when it is built, in one error at the user's own line."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from drivetrain.errors import BuildError, InputError
from drivetrain.pipelines import Home, Pipeline, load_pipeline, run_pipeline

PARTS = """
    from typing import NamedTuple
    import drivetrain as dt
    from drivetrain.pipelines import Fn, load

    class Numbers(dt.Artifact):
        total: int = 0
        good: bool = True

    class Words(dt.Artifact):
        passed: bool = True

    class Both(NamedTuple):
        numbers: Numbers
        words: Words

    @dt.component
    def Make(*, count: int = 3, weights: dict[str, int] | None = None) -> Numbers:
        return Numbers.new()

    @dt.component
    def Double(numbers: Numbers, *, fn: Fn = "parts:twice") -> Numbers:
        return Numbers.new()

    @dt.component
    def Maybe(numbers: Numbers | None) -> Numbers:
        return Numbers.new()

    @dt.component
    def Split(numbers: Numbers) -> Both:
        return Both(Numbers.new(), Words.new())

    @dt.component(gates="numbers")
    def Check(numbers: Numbers, *, limit: float = 1.0) -> Words:
        return Words.new()

    def twice(x):
        return 2 * x
"""
HEAD = """import drivetrain as dt
from .parts import *

@dt.pipeline
def shop(count: int = 3, label: str = 'x') -> None:
"""


def build(project: Callable[..., Path], body: str) -> Pipeline:
    lines = "\n".join(f"    {line}" for line in body.splitlines())
    folder = project("shop", parts=PARTS)
    (folder / "pipeline.py").write_text(HEAD + lines + "\n")
    return load_pipeline(folder).build()


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("Double(Split(Make()).words)", "takes Numbers, not Words"),
        ("Double()", "missing a required argument: 'numbers'"),
        ("Make(cuont=3)", "did you mean 'count'"),
        ("Make(count='three')", "takes int, not 'three'"),
        ("Make(count=True)", "takes int, not True"),
        ("Make.options(id='B')(count=Split(Make()))", "name one of the outputs: numbers, words"),
        ("Make()\nMake()", "there already is a node 'Make'"),
        ("Double(3)", "takes Numbers, not 3"),
        ("if count > 2: Make()", "count > 2 has no value"),
        ("Make(count=count + 1)", "cannot be used in arithmetic"),
        ("Make(count=f'{count}')", "cannot be used in an f-string"),
        ("Make(count=label)", "takes int, and the parameter 'label' is str"),
        ("if Make().good: Make.options(id='B')()", "cannot be used in `if`"),
        ("Make().godo", "did you mean 'good'"),
        ("with dt.when(Make().total): pass", "is int, not bool"),
        ("with dt.when(True): pass", "takes an output's property"),
        ("Double(Make(), fn='parts:thrice')", "does not define 'thrice'"),
        ("Double(Make(), fn='prats:twice')", "no module 'prats'"),
        ("Double(Make(), fn='twice')", "does not name a function"),
        ("Double(Make(), fn=lambda x: x)", "cannot be named from another process"),
        ("Double(Make(), fn=Make.options(id='B')())", "takes a value, not the output"),
        ("Double(dt.latest(Words))", "takes Numbers, not Words"),
        ("Double(dt.latest(Numbers))", "may find nothing"),
        ("Make()\nMaybe(dt.latest(Numbers, node='Mak'))", "there is no node 'Mak' whose Numbers could be taken"),
        ("Check(Make())\nMaybe(dt.latest(Numbers, node='Check'))", "Check makes no Numbers"),
        ("Make(weights={'a': 'b'})", "takes dict[str, int] | None"),
        ("pass", "has no nodes"),
        ("Make(weights={'a': 0.8, 'b': 0.2})", "write whole numbers: weights={'a': 8, 'b': 2}"),
        ("Double(__import__('pandas').DataFrame())", "write the table to a file, which ExampleGen reads"),
        ("Double(__import__('pandas').read_csv(label))", "has no 'read' while the pipeline is built"),
        ("Model()", "from drivetrain.metadata import Model"),
    ],
)
def test_wrong_pipelines_name_the_users_line(project: Callable[..., Path], body: str, says: str) -> None:
    with pytest.raises(BuildError) as caught:
        build(project, body)
    assert says in str(caught.value)
    if says not in ("has no nodes",):
        line = HEAD.count("\n") + len(body.splitlines())
        assert f"pipeline.py:{line}" in str(caught.value), str(caught.value)


NAMED = """import drivetrain as dt
from typing import NamedTuple

class {kind}(dt.Artifact):
    total: int = 0

class Out(NamedTuple):
    {key}: {kind}
    other: int

@dt.component
def {component}(*, count: int = 3) -> Out:
    return Out({kind}.new(), count)

@dt.pipeline
def {pipeline}() -> None:
    {component}.options(id="{node}")()
"""
SHORT = {"pipeline": "shop", "node": "Make", "component": "Make", "key": "made", "kind": "Made"}


@pytest.mark.parametrize(
    ("what", "longest", "line"),
    [
        ({"pipeline": "p"}, 250, 15),  # "p….Make" is a record of 255 characters
        ({"pipeline": "é"}, 250, 15),  # characters, not bytes
        ({"pipeline": "p", "node": "n" * 100}, 154, 15),
        ({"node": "n"}, 100, 17),
        ({"component": "C"}, 246, 17),  # "pipeline:C…"
        ({"key": "k"}, 249, 17),  # ".k….sent" is a file where it is sent elsewhere
        ({"kind": "K"}, 248, 17),  # "Make.K…-2" is another
        ({"kind": "K", "node": "n" * 100}, 152, 17),
    ],
)
def test_what_is_too_long_to_be_recorded_or_written_is_refused_at_the_users_line(
    project: Callable[..., Path], tmp_path: Path, what: dict[str, str], longest: int, line: int
) -> None:
    letter = next(iter(what))
    fitting = {**SHORT, **what, letter: what[letter] * longest}
    function = load_pipeline(project("shop", pipeline=NAMED.format(**fitting)))
    for name, artifacts in (("here", None), ("there", f"file://{tmp_path / 'elsewhere'}")):
        with closing(Home(tmp_path / name / ".drivetrain", artifacts=artifacts)) as home:
            result = run_pipeline(home, function)
            assert result.state == "COMPLETE", [node.reason for node in result.nodes.values()]
    longer = {**fitting, letter: what[letter] * (longest + 1)}
    with pytest.raises(BuildError) as caught:
        load_pipeline(project("shop", pipeline=NAMED.format(**longer))).build()
    assert f"pipeline.py:{line}" in str(caught.value)
    assert str(longest) in str(caught.value).partition("fix: ")[2]


@pytest.mark.parametrize("letter", ["node", "key", "kind"])
def test_a_name_that_no_folder_can_have_is_refused(project: Callable[..., Path], letter: str) -> None:
    with pytest.raises(BuildError, match="digits") as caught:
        load_pipeline(project("shop", pipeline=NAMED.format(**SHORT | {letter: "Größe"}))).build()
    assert "pipeline.py:17" in str(caught.value)


def test_an_output_tuple_means_its_only_output_of_the_type(project: Callable[..., Path]) -> None:
    pipeline = build(project, "Double(Split(Make()))")
    assert [edge.output for edge in pipeline["Double"].edges] == ["numbers"]


def test_a_gate_holds_back_the_other_consumers_but_not_its_own_ancestors(project: Callable[..., Path]) -> None:
    pipeline = build(project, "n = Make()\nDouble(n)\nCheck(n)\nDouble.options(id='Other')(Double.options(id='D2')(n))")
    assert pipeline["Double"].after == ("Check",)
    assert pipeline["D2"].after == ("Check",)
    assert pipeline["Other"].after == ()
    assert pipeline.ids.index("Check") < pipeline.ids.index("Double")


def test_two_gates_of_one_artifact_do_not_wait_for_each_other(project: Callable[..., Path]) -> None:
    pipeline = build(project, "one = Make()\nCheck(one)\nCheck.options(id='Again')(one)\nDouble(one)")
    assert pipeline["Check"].after == pipeline["Again"].after == ()
    assert pipeline["Double"].after == ("Check", "Again")


def test_the_compiled_form_keeps_order_and_round_trips(project: Callable[..., Path]) -> None:
    pipeline = build(project, "Make(weights={'train': 2, 'eval': 1}, count=count)")
    text = pipeline.to_json()
    assert Pipeline.from_json(text) == pipeline
    assert Pipeline.from_json(text).to_json() == text
    assert dict(pipeline["Make"].parameters)["weights"] == {"$map": [["train", 2], ["eval", 1]]}
    assert dict(pipeline["Make"].parameters)["count"] == {"$param": "count"}
    other = build(project, "Make(weights={'eval': 1, 'train': 2}, count=count)")
    assert other.digest != pipeline.digest


def test_the_compiled_form_is_the_same_in_another_folder_and_hash_seed(
    project: Callable[..., Path], tmp_path: Path
) -> None:
    here = build(project, "Double(Make(count=count), fn='parts:twice')").to_json()
    there = tmp_path / "elsewhere"
    there.mkdir()
    (tmp_path / "shop").rename(there / "shop")
    script = (
        "import sys; from pathlib import Path; from drivetrain.pipelines import load_pipeline;"
        "sys.stdout.write(load_pipeline(Path(sys.argv[1])).build().to_json())"
    )
    for seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", script, str(there / "shop")],
            env={"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
        assert done.stdout == here


def test_an_optional_input_that_is_not_given_leaves_no_trace(project: Callable[..., Path]) -> None:
    # So that a component may get another one, and whoever does not use it keeps the pipeline's version and the keys.
    forms = []
    optional = ", *, right: Numbers | None = None"
    for declared, given in (("", ""), (optional, ""), (optional, ", right=None"), (optional, ", right=Make()")):
        parts = f"{PARTS}\n    @dt.component\n    def Sum(left: Numbers{declared}) -> Numbers: ...\n"
        body = f"    Sum(Make.options(id='One')(){given})\n"
        pipeline = load_pipeline(project("shop", parts=parts, pipeline=HEAD + body)).build()
        forms.append(replace(pipeline["Sum"], code=None).to_json())
    assert forms[0] == forms[1] == forms[2]
    assert [name for name, _ in forms[0]["inputs"]] == ["left"]
    assert [name for name, _ in forms[3]["inputs"]] == ["left", "right"]


def test_a_pipeline_of_a_folder_below_is_part_of_the_one_above(project: Callable[..., Path]) -> None:
    folder = project(
        "shop",
        parts=PARTS,
        pipeline="""
        import drivetrain as dt
        from .steps.prepare import prepare

        @dt.pipeline
        def shop() -> None:
            prepare(count=2)
    """,
    )
    project(
        "shop/steps",
        prepare="""
        import drivetrain as dt
        from ..parts import Double, Make

        @dt.pipeline
        def prepare(count: int) -> None:
            Double(Make(count=count), fn="parts:twice")
    """,
    )
    assert load_pipeline(folder).build().ids == ("prepare.Make", "prepare.Double")


def test_damaged_compiled_forms_are_refused() -> None:
    for text in ("", "{}", "[]", '{"format": "drivetrain-pipeline/9"}', '{"format": "drivetrain-pipeline/1"}'):
        with pytest.raises(BuildError):
            Pipeline.from_json(text)
    cyclic = {
        "format": "drivetrain-pipeline/1", "name": "p", "parameters": [],
        "nodes": [{"id": "A", "component": "m:A", "code": None, "inputs": [["x", [{"node": "A", "output": "o"}]]],
                   "parameters": [], "outputs": [["o", "O"]], "conditions": [], "gates": None, "after": [],
                   "cache": True}],
    }  # fmt: skip
    with pytest.raises(BuildError, match="comes before"):
        Pipeline.from_json(json.dumps(cyclic))


def test_a_component_called_plainly_runs(project: Callable[..., Path]) -> None:
    folder = project("shop", parts=PARTS)
    from drivetrain.pipelines import FunctionRef

    make = FunctionRef(folder, "parts:Make").load()
    assert make(count=2).total == 0


def test_the_types_of_parameters_are_read_once(project: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    import typing

    function = load_pipeline(project("shop", parts=PARTS, pipeline=HEAD + "    Make(count=count)\n"))
    reads: list[object] = []
    get_type_hints = typing.get_type_hints

    def counted(of: Any, **more: Any) -> dict[str, Any]:
        reads.append(of)
        return get_type_hints(of, **more)

    monkeypatch.setattr(typing, "get_type_hints", counted)
    assert function.parameters["count"].annotation is int
    assert function.values({"count": "4"})["count"] == 4
    function.build()
    assert reads.count(function.fn) == 1


@pytest.mark.parametrize(
    ("brackets", "message"), [(199, None), (300, "nested too deeply"), (20_000, "takes list, not ")]
)
def test_a_parameter_is_not_nested_without_end(
    project: Callable[..., Path], brackets: int, message: str | None
) -> None:
    header = HEAD.replace("label: str", "deep: list = [], label: str")
    function = load_pipeline(project("shop", parts=PARTS, pipeline=f"{header}    Make(count=count)\n"))
    text = "[" * brackets + "]" * brackets
    if message is None:
        assert function.values({"deep": text})["deep"] == json.loads(text)
        return
    with pytest.raises(InputError, match=message) as refused:
        function.values({"deep": text})
    assert len(str(refused.value)) < 400


@pytest.mark.parametrize("decorator", ["@dt.pipeline", "@dt.pipeline()"])
def test_a_path_is_a_file_and_parentheses_do_no_harm(project: Callable[..., Path], decorator: str) -> None:
    folder = project("files", parts=PARTS)
    text = "from pathlib import Path\nimport drivetrain as dt\nfrom drivetrain.components import ExampleGen\n\n"
    text += f"{decorator}\ndef files() -> None:\n    ExampleGen({{}})\n"
    built = []
    for data in ("'x.csv'", "Path('x.csv')", "{'a': 'x.csv'}", "{'a': Path('x.csv')}"):
        (folder / "pipeline.py").write_text(text.format(data))
        built.append(load_pipeline(folder).build().digest)
    assert built[0] == built[1] != built[2] == built[3]


def test_a_parameter_of_files_without_a_type_is_told_which(project: Callable[..., Path]) -> None:
    folder = project("files", parts=PARTS)
    head = "import drivetrain as dt\nfrom drivetrain.components import ExampleGen\n\n@dt.pipeline\n"
    (folder / "pipeline.py").write_text(head + "def files(data) -> None:\n    ExampleGen(data)\n")
    with pytest.raises(BuildError) as caught:
        load_pipeline(folder).build()
    assert caught.value.fix == "say its type where the pipeline takes it: `data: str`"


def test_a_type_of_ours_that_is_not_imported_is_told_from_where(project: Callable[..., Path]) -> None:
    folder = project("files", parts=PARTS)
    head = "from __future__ import annotations\nimport drivetrain as dt\n\n@dt.component\n"
    (folder / "use.py").write_text(head + "def Use(model: Model) -> float:\n    return 1.0\n")
    (folder / "pipeline.py").write_text(
        "import drivetrain as dt\nfrom .use import Use\n\n"
        "@dt.pipeline\ndef files() -> None:\n    Use(dt.latest(dt.Artifact))\n"
    )
    with pytest.raises(BuildError) as caught:
        load_pipeline(folder).build()
    assert caught.value.fix == "write `from drivetrain.metadata import Model` at the top of the module"
