"""Random pipelines: what KFP never starts is what the launcher, asked by another runner, skips."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path

import pytest
from drivetrain.pipelines import Home, PipelineFunction, load_pipeline, run_pipeline
from drivetrain.pipelines.ir.ir import Pipeline
from drivetrain.pipelines.kubeflow.plan import PlannedTask, plan
from drivetrain.tests.pipelines.kubeflow.cluster import PARTS
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

pytestmark = [pytest.mark.kubeflow, pytest.mark.slow]

FLAGS = ("p", "q")


@st.composite
def programs(draw: st.DrawFn) -> str:
    """The body of a pipeline: nodes under conditions, with inputs of every kind from those before, some in loops."""
    lines: list[str] = []
    made: list[str] = []  # handles of one artifact
    loops: list[str] = []  # of a list
    for number in range(draw(st.integers(3, 8))):
        name, depth = f"n{number}", "    "
        flag = draw(st.sampled_from(["", "", *FLAGS, "dt.not_(p)", "p & q"]))
        if flag:
            lines.append(f"    with dt.when({flag}):")
            depth = "        "
        kinds = ["make"]
        kinds += ["add", "optional", "after", "loop", "loop over"] * bool(made)
        kinds += ["one_of"] * (len(made) > 1) + ["sum"] * bool(loops)
        kind = draw(st.sampled_from(kinds))
        one = draw(st.sampled_from(made)) if made else ""
        other = draw(st.sampled_from([each for each in made if each != one])) if len(made) > 1 else one
        many = draw(st.sampled_from(loops)) if loops else ""
        many = draw(st.sampled_from([many, f"dt.optional({many})"]))
        use = f"options(id='{name}')"
        beside = f"Make.options(id='{name}m')"
        calls = {
            "make": f"Make.{use}(count=2)",
            "add": f"Add.{use}({one}, {other})",
            "optional": f"Add.{use}({beside}(), dt.optional({one}))",
            "after": f"Make.options(id='{name}', after=[{one}])()",
            "one_of": f"Double.{use}(dt.one_of({one}, {other}))",
            "loop": f"dt.map_(lambda n: Add.{use}({one}, {beside}(count=n)), over=[1, 2], id='{name}l')",
            "loop over": f"dt.map_(lambda n: Make.{use}(count=n), over={one}.parts, id='{name}l')",
            "sum": f"Sum.{use}({many})",
        }
        lines.append(f"{depth}{name} = {calls[kind]}")
        (loops if kind.startswith("loop") else made).append(name)
    return "\n".join(lines)


def never_started(pipeline: Pipeline, flags: Mapping[str, bool]) -> set[str]:
    """The nodes of which KFP starts no pod: each task where all that it waits for succeeded and its condition holds."""
    started: set[str] = set()

    def walk(tasks: tuple[PlannedTask, ...]) -> None:
        succeeded: set[str] = set()
        for task in tasks:
            if not set(task.after) <= succeeded:
                continue  # omitted
            holds = all(_truth(each, flags) for each in task.conditions)
            if task.kind == "loop":
                succeeded.add(task.name)  # an iterator succeeds, whatever its condition says
                if holds:
                    walk(task.inside)
            elif holds:
                succeeded.add(task.name)
                started.add(task.id if task.kind == "node" else "")

    walk(plan(pipeline, dict.fromkeys(FLAGS, "bool")).work)
    return set(pipeline.ids) - started


def _truth(expression: object, flags: Mapping[str, bool]) -> bool:
    assert isinstance(expression, dict)
    ((kind, body),) = expression.items()
    if kind == "$param":
        return flags[body]
    name, *operands = body
    truths = [_truth(each, flags) for each in operands]
    return not truths[0] if name == "not" else all(truths) if name == "and" else any(truths)


def loaded(folder: Path, body: str) -> PipelineFunction[..., object]:
    project = folder / "shop"
    project.mkdir()
    (project / "parts.py").write_text(PARTS)
    head = "import drivetrain as dt\nfrom .parts import *\n\n@dt.pipeline\n"
    (project / "pipeline.py").write_text(f"{head}def shop(p: bool = True, q: bool = True) -> None:\n{body}\n")
    return load_pipeline(project)


@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow])
@given(programs(), st.booleans(), st.booleans())
def test_what_kfp_never_starts_is_skipped(body: str, p: bool, q: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        function = loaded(Path(folder), body)
        left = never_started(function.build(), {"p": p, "q": q})
        home = Home(Path(folder) / ".drivetrain")
        result = run_pipeline(home, function, {"p": p, "q": q})
        home.close()
    event(f"{'some' if left else 'all'} started")
    states = {(name.partition("[")[0], node.state) for name, node in result.nodes.items()}
    assert {(name, state) for name, state in states if name in left} <= {(name, "SKIPPED") for name in left}
    assert result.state == "COMPLETE"
