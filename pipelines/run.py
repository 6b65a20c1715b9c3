"""From a built pipeline to a finished run: start or resume it, walk it with a runner, record how it ended."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

from ..errors import DrivetrainError, InputError
from .dsl.pipeline import PipelineFunction
from .launcher.heartbeat import heartbeat
from .launcher.home import Home
from .launcher.launcher import LEASE, Launcher
from .launcher.node_secrets import require_secrets
from .launcher.observers import Observer
from .launcher.partial import Selection, base_run
from .launcher.results import NodeResult
from .launcher.run_records import keep_end
from .launcher.runs import Run, RunOptions, close_run, new_run, open_run, record_status, reopen_run, run_lease
from .launcher.states import EndState, RunState, run_state
from .runners.capabilities import check_capabilities, check_reach
from .runners.signals import stoppable

Runner: TypeAlias = Callable[[Launcher, Iterable[str]], dict[str, NodeResult]]
RUNNERS = ("inline", "process", "beam")
_HERE = ("inline", "process")
"""Runners whose nodes all run on this machine, with its secrets."""
_PART = "say which part runs (first, last, only or skip), or leave base out"


@dataclass(frozen=True)
class RunResult:
    """How a run ended: STOPPED where a gate vetoed and nothing failed.

    Attributes:
        nodes: Every task: the nodes of the pipeline in topological order, those in loops for each item.
    """

    run: str
    state: RunState
    nodes: Mapping[str, NodeResult]

    def __repr__(self) -> str:
        return f"RunResult({self.run}, {self.state}, {len(self.nodes)} nodes)"

    def to_json(self) -> dict[str, object]:
        """As `run --json` prints it."""
        return {
            "run": self.run,
            "state": self.state,
            "nodes": {name: result.to_json() for name, result in self.nodes.items()},
        }


def run_pipeline(
    home: Home,
    pipeline: PipelineFunction[..., Any],  # Any: what it returns to another pipeline is of no interest
    parameters: Mapping[str, object] | None = None,
    options: RunOptions | None = None,
    observer: Callable[[Run], Observer] | None = None,
    selection: Selection | None = None,
    directories: Mapping[str, str] | None = None,
    *,
    tags: Mapping[str, str] | None = None,
    note: str = "",
    run_id: str = "",
) -> RunResult:
    """Build a pipeline and run it, or the part of it that is selected.

    Args:
        home: The root.
        pipeline: The pipeline as its author wrote it.
        parameters: Values of its parameters; the others have their defaults.
        options: How it is carried out.
        observer: Makes what hears of tasks as they start and end.
        selection: Which part of it runs; all of it where None.
        directories: Where a relative path of an input in a parameter's value is looked up first, by the parameter's
            name; where None, for all that are given, the working directory.
        tags: What the run is tagged with: name → value, "" for none.
        note: What is noted of it.
        run_id: The run's id, where it was chosen before; a new one where empty.

    Raises:
        BuildError: The pipeline is wrong. Nothing was recorded.
        InputError: A parameter, an option or a tag is, a secret is missing, or a budget that stops runs is used up.
            Nothing was recorded.
        AlreadyExists: A run of the id `run_id` has begun already. Nothing was recorded.
    """
    options = options or RunOptions()
    runner = _runner(options, home)
    built = pipeline.build()
    check_capabilities(built, options.runner, options.parallel)
    if options.require_blessed and not any(kind == "Evaluation" for node in built.nodes for _, kind in node.outputs):
        raise InputError(
            f"{built.name} judges no model, so that none can be blessed",
            fix="add an Evaluator, or leave out --require-blessed",
        )
    if selection:
        only = selection.nodes(built)
        options = replace(options, only=only, base=base_run(home, built, only, selection.base))
    elif selection is not None and selection.base:
        raise InputError(f"all of {built.name} is to run, which takes nothing from run {selection.base}", fix=_PART)
    if directories is None:
        directories = dict.fromkeys(parameters or {}, str(Path.cwd()))
    values = pipeline.values(parameters or {})
    if options.runner in _HERE:
        require_secrets(built, options.only or built.ids)
    passed = budgets_passed(home, built.name, over=options.over_budget)
    run = new_run(home, built, pipeline.project, values, options, directories, tags, note, run_id)
    return _carry_out(home, note_passed(home, run, passed), runner, observer)


def resume(home: Home, name: str | None = None, observer: Callable[[Run], Observer] | None = None) -> RunResult:
    """Finish a failed, stopped or interrupted run: what ended well stays, the rest is launched again.

    Raises:
        InputError: There is no such run, or its process is still alive; or a secret is missing, or a budget used up.
    """
    run = open_run(home, name)
    runner = _runner(run.options, home)
    if run.options.runner in _HERE:
        earlier, scope = Launcher(home, run).recovery.earlier, run.pipeline.scope
        left = [node for node in run.options.only or run.pipeline.ids if scope(node) or earlier(node) is None]
        require_secrets(run.pipeline, left)
    passed = budgets_passed(home, run.pipeline.name, over=run.options.over_budget)
    return _carry_out(home, note_passed(home, reopen_run(home, run), passed), runner, observer, resuming=True)


def budgets_passed(home: Home, pipeline: str, *, over: bool = False) -> list[str]:
    """The used-up budgets that a run of a pipeline is told to go over.

    Raises:
        InputError: It is not told to.
    """
    if not (home.base / "costs.yaml").is_file():
        return []
    from .launcher.budgets import check_budgets  # late: few projects have any

    return check_budgets(home, pipeline, over=over)


def note_passed(home: Home, run: Run, passed: list[str]) -> Run:
    """The run, which records the budgets that it goes over, where there are any."""
    return replace(run, context=home.store.update_context(run.context, {"over_budget": passed})) if passed else run


def _carry_out(
    home: Home, run: Run, runner: Runner, observer: Callable[[Run], Observer] | None, *, resuming: bool = False
) -> RunResult:
    home.sweep()
    launcher = Launcher(home, run, observer(run) if observer else None, resuming=resuming)
    on_exit = [node.id for node in run.pipeline.nodes if node.on_exit]
    results: dict[str, NodeResult] = {}
    with ExitStack() as lease:  # until the end is recorded: a run without one is taken for interrupted
        try:
            with stoppable(launcher.cancel):
                lease.enter_context(_leased(home, run))
                results = _walk(launcher, runner, [name for name in run.pipeline.ids if name not in on_exit])
                if on_exit:
                    results |= _leave(launcher, runner, on_exit, results)
        except BaseException as error:
            close_run(home, run, RunState.CANCELED if isinstance(error, KeyboardInterrupt) else RunState.FAILED)
            raise
        state = state_of(results.values())
        close_run(home, run, state)
    if any(result.state is EndState.COMPLETE for result in results.values()):  # one that reused all costs no more
        with suppress(OSError, DrivetrainError):  # the store has it: only a store that is made anew would miss it
            keep_end(home, open_run(home, run.id), [name for name in results if results[name].state is EndState.CACHED])
    return RunResult(run.id, state, results)


def _walk(launcher: Launcher, runner: Runner, nodes: list[str]) -> dict[str, NodeResult]:
    """Launch the nodes. Returns the result of every task, in topological order, also of those that never began."""
    results: dict[str, NodeResult] = {}
    with suppress(KeyboardInterrupt):  # a second one, or one between two nodes: what was done by then counts
        results = runner(launcher, nodes)
    try:
        return _gathered(launcher, nodes, results)
    except KeyboardInterrupt:  # while results were gathered: nothing runs any more that could be stopped
        return _gathered(launcher, nodes, results)


def _gathered(launcher: Launcher, nodes: list[str], ended: Mapping[str, NodeResult]) -> dict[str, NodeResult]:
    complete: dict[str, NodeResult] = {}
    for node in nodes:
        for name in launcher.flow.task_names(node):
            complete[name] = (
                ended.get(name)
                or launcher.recovery.earlier(name)
                or NodeResult(name, EndState.CANCELED, reason="stopped before it began")
            )
    return complete


def _leave(
    launcher: Launcher, runner: Runner, nodes: list[str], results: Mapping[str, NodeResult]
) -> dict[str, NodeResult]:
    """Launch the nodes that run on exit, with how the others ended as their `run`.

    A run may end more than once, when it is resumed. A node on exit runs for each end, but once only: where it had run
    for this very end before the run was interrupted, its result stays.
    """
    run, unchanged = record_status(launcher.home, launcher.run, end_status(launcher.run, results.values()))
    # With the same logs: a run warns only once that they are incomplete.
    leaving = Launcher(launcher.home, run, launcher.observer, resuming=unchanged, logs=launcher.logs)
    with stoppable(leaving.cancel):  # what stopped the run does not stop these
        return _walk(leaving, runner, nodes)


def end_status(run: Run, results: Iterable[NodeResult]) -> dict[str, object]:
    """How a run's work ended, as its nodes on exit get it: the same on every runner, wherever the project lies."""
    results = list(results)
    failed = [result for result in results if result.state is EndState.FAILED]
    reason = failed[0].reason.replace(f"{run.project}/", "") if failed else ""
    return {"run": run.id, "state": state_of(results), "failed": [each.node for each in failed], "reason": reason}


def state_of(results: Iterable[NodeResult]) -> RunState:
    """How a run ended, from how its tasks did: the worst of them counts."""
    results = list(results)
    return run_state((result.state for result in results), vetoed=any(result.vetoed for result in results))


def check_runner(name: str) -> None:
    """Check that a run can be carried out here by the runner of that name.

    Raises:
        InputError: There is no such runner, or it is a cluster.
    """
    if name == "kubeflow":
        raise InputError(
            "a run on a cluster is not carried out by this process",
            fix="`drivetrain kubeflow submit PROJECT` starts one, `drivetrain resume RUN` goes on with one",
        )
    if name not in RUNNERS:
        raise InputError(f"there is no runner {name!r}", fix=f"choose one of {', '.join(RUNNERS)}")


def _runner(options: RunOptions, home: Home) -> Runner:
    name = options.runner
    check_runner(name)
    check_reach(home.payloads.url, name)
    if name == "inline":
        from .runners.inline import run_inline

        return run_inline
    if name == "process":
        from .runners.process import run_process

        return run_process
    from .runners.beam import refuse_options, run_beam

    refuse_options(options.runner_options, home)
    return run_beam


@contextmanager
def _leased(home: Home, run: Run) -> Iterator[None]:
    """Hold a lease on the run within the block: hosts that cannot see this process learn from it that it is alive."""
    claim = None
    with suppress(DrivetrainError):  # a store on a full disk: the run will say so itself
        claim = home.store.claim(run_lease(run.id), lease=LEASE)
    if claim is None:
        yield
        return
    try:
        with heartbeat.of(home.store, claim):
            yield
    finally:
        with suppress(DrivetrainError):
            home.store.release(claim)
