"""What a drawing of a pipeline is told: what flows, what only waits, and what holds a node back."""

from __future__ import annotations

from pathlib import Path

from drivetrain.pipelines import load_pipeline
from drivetrain.pipelines.ir.dag import dag

PIPELINE = """
import drivetrain as dt
from drivetrain.metadata import Examples, Model


@dt.component
def Make() -> Examples:
    return Examples.new(rows={"train": 1})


@dt.component(gates="examples")
def Guard(examples: Examples) -> Examples:
    return Examples.new(rows={"train": 1})


@dt.component
def Train(examples: Examples, *, rate: float) -> Model:
    return Model.new()


@dt.component
def Rates(examples: Examples) -> list[float]:
    return [0.1]


@dt.component
def Best(models: list[Model], old: Model | None = None) -> int:
    return 0


@dt.component
def Say(*, text: str) -> str:
    return text


@dt.pipeline
def drawn(limit: int = 3) -> None:
    examples = Make()
    Guard(examples)
    best = Best(
        dt.map_(lambda rate: Train.options(retries=2)(examples, rate=rate), over=Rates(examples), max_parallel=2),
        dt.latest(Model, passed=True),
    )
    with dt.when(best > limit):
        Say(text="good")
        dt.map_(lambda word: Say.options(id="Each")(text=word), over=["a", "b"], id="words")
    with dt.on_exit() as run:
        Say.options(id="Last")(text=run.state)
"""


def test_a_pipeline_tells_its_drawing(tmp_path: Path) -> None:
    folder = tmp_path / "drawn"
    folder.mkdir()
    (folder / "pipeline.py").write_text(PIPELINE)
    pipeline = load_pipeline(str(folder))
    found = dag(pipeline.build())
    assert {(source, target): flows for source, target, flows in found["edges"]} == {
        ("Make", "Guard"): True,
        ("Make", "Rates"): True,
        ("Guard", "Rates"): False,
        ("Make", "Train"): True,
        ("Guard", "Train"): False,
        ("Rates", "loop:map"): True,
        ("Train", "Best"): True,
        ("Best", "Say"): False,
        ("Best", "Each"): False,
        ("Best", "loop:words"): False,
    }
    nodes = {node["id"]: node for node in found["nodes"]}
    assert [name for name, node in nodes.items() if node["gate"]] == ["Guard"]
    assert [name for name, node in nodes.items() if node["exit"]] == ["Last"]
    assert {name: node["loop"] for name, node in nodes.items() if node["loop"]} == {"Train": "map", "Each": "words"}
    assert nodes["Say"]["conditions"] == ["Best > limit"]
    assert nodes["Each"]["conditions"] == []  # its loop's, told there
    assert nodes["Best"]["history"] == ["latest_passed Model"]
    assert nodes["Train"]["details"] == ["retries = 2"]
    loops = {loop["id"]: (loop["title"], loop["conditions"]) for loop in found["loops"]}
    assert loops == {
        "map": ("map: for each of Rates, 2 at once", []),
        "words": ("words: for each of ['a', 'b']", ["Best > limit"]),
    }
    shown = pipeline._repr_html_()
    assert all(f">{name}</text>" in shown for name in nodes)
