"""A project that makes spans, models and windows over them, for tests of what is chosen from history."""

from __future__ import annotations

from collections.abc import Callable

from drivetrain.pipelines import (
    Home,
    PipelineFunction,
    RunResult,
    run_pipeline,
)

Pipe = Callable[..., PipelineFunction[..., object]]

PARTS = """
    from __future__ import annotations
    import time
    from pathlib import Path
    import drivetrain as dt
    from drivetrain.metadata import Evaluation, Examples, Model, PushedModel, Statistics
    from drivetrain.pipelines import current

    class Verdict(dt.Artifact):
        passed: bool = True

    class Score(dt.Artifact):
        auc: float = 0.0
        name: str = ""
        stage: str | None = None

    def write(artifact, text):
        (artifact.content / "text.txt").write_text(str(text))
        return artifact

    @dt.component
    def Load(*, span: int, version: int | None = None, text: str = "") -> Examples:
        return write(Examples.new(span=span, version=version), f"{span} {text}")

    @dt.component
    def Count(examples: Examples) -> Statistics:
        return write(Statistics.new(span=examples.span), examples.span)

    @dt.component
    def Counts(statistics: list[Statistics]) -> list[int]:
        return [one.span for one in statistics]

    @dt.component(gates="examples")
    def Check(examples: Examples, statistics: Statistics | None = None, *, bad: int) -> Verdict:
        return write(Verdict.new(passed=examples.span != bad), examples.span)

    @dt.component
    def Train(examples: list[Examples], *, rate: int = 1) -> Model:
        return write(Model.new(), [(one.span, one.version, rate) for one in examples])

    @dt.component
    def Judge(model: Model, baseline: Model | None = None, *, blessed: bool = True) -> Evaluation:
        text = "none" if baseline is None else (baseline.content / "text.txt").read_text()
        return write(Evaluation.new(blessed=blessed, summary=text), text)

    @dt.component
    def Push(model: Model) -> PushedModel:
        return write(PushedModel.new(destination="there"), "pushed")

    @dt.component
    def Show(examples: list[Examples]) -> list[str]:
        return [f"{one.span}" + ("" if one.version is None else f"v{one.version}") for one in examples]

    @dt.component
    def Texts(examples: list[Examples]) -> list[str]:
        return [(one.content / "text.txt").read_text() for one in examples]

    @dt.component
    def Model_(model: Model | None = None) -> str:
        return "none" if model is None else (model.content / "text.txt").read_text()

    @dt.component
    def One(examples: Examples | None = None) -> int:
        return -1 if examples is None else examples.span

    @dt.component
    def Both(examples: Examples, statistics: Statistics) -> list[int]:
        return [examples.span, statistics.span]

    @dt.component
    def Rate(*, auc: float, name: str, stage: str | None = None) -> Score:
        return write(Score.new(auc=auc, name=name, stage=stage), (auc, name, stage))

    class Graded(dt.Artifact):
        metrics: dict[str, float] = {}
        name: str = ""

    @dt.component
    def Grade(*, metrics: dict[str, float], name: str) -> Graded:
        return write(Graded.new(metrics=metrics, name=name), name)

    @dt.component
    def Measure(*, loss: str, name: str) -> Score:
        current().metric("loss", float(loss))
        return write(Score.new(name=name), (loss, name))

    @dt.component
    def Grades(graded: list[Graded]) -> list[str]:
        return [artifact.name for artifact in graded]

    @dt.component
    def Best(score: Score | None = None) -> str:
        return "none" if score is None else score.name

    @dt.component
    def Names(scores: list[Score]) -> list[str]:
        return [one.name for one in scores]

    @dt.component
    def Wait(*, until: str) -> int:
        Path(until + ".waits").touch()
        while not Path(until).exists():
            time.sleep(0.02)
        return 1

    @dt.component
    def Stop(examples: list[Examples], *, until: str) -> list[str]:
        if not Path(until).exists():
            raise ValueError("not yet")
        return Show.fn(examples)
"""


def value(result: RunResult, node: str) -> object:
    return result.nodes[node].outputs["value"][0].properties["value"]


def load(home: Home, shop: Pipe, *spans: int, version: int | None = None, text: str = "") -> None:
    for span in spans:
        run_pipeline(home, shop(f"Load(span=count, version={version}, text={text!r})"), {"count": span})


def states(result: RunResult) -> dict[str, str]:
    return {name: node.state for name, node in result.nodes.items()}


ROLL = "Show(dt.resolvers.rolling(Load(span=count), 3))"


def history(pipe: Pipe) -> Pipe:
    """`history(pipe)(body)` is the pipeline with that body."""
    return lambda body, **more: pipe(body, **{"parts": PARTS, **more})
