"""A case of the suite: a pipeline of a project, the runs that are made of it in one home, and how each must end."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from drivetrain.errors import BuildError, InputError
from drivetrain.pipelines import Home, PipelineFunction, RunOptions, RunResult, open_run, resume, run_pipeline
from drivetrain.pipelines.launcher.partial import Selection
from drivetrain.pipelines.project.functions import import_project_module

# As the product calls the projects: under another name of theirs each use would import them anew.
HERE = Path(__file__).resolve().parent
BEAM: dict[str, tuple[str, ...]] = {}
"""The options of runners that the beam runner hands the pipeline to, by the name they have in the suite."""
Seen = dict[str, tuple[str, str, bool, dict[str, list[str]]]]
"""By task: its state, its reason without what differs from run to run, its veto, its outputs' fingerprints."""


def nothing(base: Path) -> None:
    """What is done before a run that needs nothing done."""


def fine(result: RunResult, home: Home) -> None:
    """What is looked at after a run whose states and values tell enough."""


@dataclass(frozen=True)
class Step:
    """One run of a case's pipeline.

    Attributes:
        complete, cached, skipped, blocked, failed: Which tasks end so; `Make[*3]` are the first three items of `Make`.
        state: How the run ends.
        values: What tasks give: the scalar, or the total of the numbers.
        reasons: What the reasons of tasks hold.
        parameters: Those of the pipeline.
        env: Environment variables.
        before: What is done first, given the folder that relative paths mean.
        after: What is looked at afterwards.
        only: The nodes that are run, where not all.
        cache: Whether the run looks into the cache.
        parallel: How many tasks at once at most.
        resumes: Whether it is the run before, resumed.
    """

    complete: str = ""
    cached: str = ""
    skipped: str = ""
    blocked: str = ""
    failed: str = ""
    state: str = "COMPLETE"
    values: Mapping[str, object] = field(default_factory=dict)
    reasons: Mapping[str, str] = field(default_factory=dict)
    parameters: Mapping[str, object] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    before: Callable[[Path], None] = nothing
    after: Callable[[RunResult, Home], None] = fine
    only: tuple[str, ...] = ()
    cache: bool = True
    parallel: int | None = None
    resumes: bool = False

    @property
    def states(self) -> dict[str, str]:
        """How each task ends."""
        kinds = ("complete", "cached", "skipped", "blocked", "failed")
        return {name: kind.upper() for kind in kinds for name in _names(getattr(self, kind))}


@dataclass(frozen=True)
class Case:
    """A pipeline and its runs.

    Attributes:
        pipeline: `project/module:function`, the project a folder beside this file.
        steps: Its runs, one after another in one home.
        refused: By runner, what the error says before anything runs.
        slow: The runners on which it takes more than a few seconds; on the simulated cluster all do.
        engine: Whether it needs jax.
    """

    pipeline: str
    steps: tuple[Step, ...]
    refused: Mapping[str, str] = field(default_factory=dict)
    slow: tuple[str, ...] = ("beam",)
    engine: bool = False

    def load(self) -> PipelineFunction[..., object]:
        """The pipeline."""
        project, _, name = self.pipeline.partition("/")
        module, _, function = name.partition(":")
        found = getattr(import_project_module(HERE / project, f"{project}.{module}"), function)
        assert isinstance(found, PipelineFunction)
        return found


def carry_out(step: Step, case: Case, home: Home, runner: str) -> RunResult:
    """Make the run; what is done before it, and its environment, are the caller's."""
    if runner == "kubeflow":
        from .on_kubeflow import on_cluster  # late: with it comes what reads KFP's documents

        options = RunOptions(cache=step.cache, parallel=step.parallel)
        return on_cluster(home, case.load(), dict(step.parameters), options, step.only, step.resumes)
    if step.resumes:
        return resume(home)
    options = replace(_options(runner), cache=step.cache, parallel=step.parallel)
    return run_pipeline(home, case.load(), step.parameters, options, selection=Selection(only=step.only))


def _options(runner: str) -> RunOptions:
    return RunOptions(runner="beam" if runner in BEAM else runner, runner_options=BEAM.get(runner, ()))


def refusal(case: Case, home: Home, runner: str) -> str:
    """The error that a run is refused with."""
    try:
        if runner == "kubeflow":
            from .on_kubeflow import compiled

            compiled(case.load())
        else:
            run_pipeline(home, case.load(), options=_options(runner))
    except (BuildError, InputError) as error:
        return str(error)
    return ""


def seen(result: RunResult, home: Home) -> Seen:
    """What two runs of a case on two runners must agree in."""
    return {
        name: (
            node.state,
            _kind(node.state, node.reason, home.base),
            node.vetoed,
            {key: [record.fingerprint for record in records] for key, records in node.outputs.items()},
        )
        for name, node in result.nodes.items()
    }


def recorded(result: RunResult, home: Home) -> dict[str, str]:
    """The states that the store tells of a run, as `show` does."""
    from drivetrain.pipelines.launcher.launcher import Launcher

    launcher = Launcher(home, open_run(home, result.run))
    found = {name: launcher.records.read(name) for name in result.nodes}
    return {name: node.state if node else "never launched" for name, node in found.items()}


def value(result: RunResult, task: str) -> object:
    """What a task gives: its scalar, or the total of its numbers."""
    (records,) = result.nodes[task].outputs.values()
    properties = records[0].properties
    return properties["value"] if "value" in properties else properties["total"]


def _kind(state: str, reason: str, base: Path) -> str:
    """A reason without run ids, folders, and what of an earlier run it was compared with."""
    if state in ("COMPLETE", "CACHED"):
        retried = re.search(r"retry \d+ of \d+", reason)
        return retried[0] if retried else ""
    reason = re.sub(r"\b\d{8}-\d{6}-[0-9a-f]{4}\b", "RUN", reason)
    # The project lies beside this file, or in an image.
    return re.sub(r"[^ ]*/(control|tables)\b", "PROJECT", reason).replace(str(base), "BASE")


def _names(text: str) -> list[str]:
    found: list[str] = []
    for name in text.split():
        many = re.fullmatch(r"(.*)\[\*(\d+)\]", name)
        found += [f"{many[1]}[{i}]" for i in range(int(many[2]))] if many else [name]
    return found
