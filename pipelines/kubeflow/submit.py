"""A run on a cluster: recorded in the store, reduced to what is not cached, compiled and started on KFP; or resumed.

The order keeps a run from being lost. The run is recorded before KFP gets it, with where its pods will keep their
records; KFP gets the run's id as a parameter; and KFP's id is recorded last. A process that dies in between leaves a
run that `with_kfp_run` finds in KFP by that parameter.
"""

from __future__ import annotations

import contextlib
import json
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from ...errors import DrivetrainError, InputError
from ...metadata import Owner
from ..dsl.pipeline import PipelineFunction
from ..ir.ir import Pipeline
from ..launcher import run_records as records
from ..launcher.home import Home
from ..launcher.launcher import Launcher
from ..launcher.results import NodeResult
from ..launcher.runs import Run, RunOptions, close_run, new_run, open_run, reopen_run
from ..launcher.states import RunState
from ..run import budgets_passed, note_passed, state_of
from ..runners.capabilities import check_capabilities
from .api_errors import ApiError
from .client import KfpClient, KfpRun
from .compiler import CompiledPipeline, compile_pipeline
from .findings import refuse
from .lint import lint_documents
from .manifests import RUN
from .ownership import Submission, hand_over, on_cluster, simulated, submission, within_reach
from .refusals import parameter_type
from .reuse import TasksWithoutPod, end_tasks_without_pod, remaining
from .settings import ClusterSettings

SLACK = timedelta(hours=1)
"""How far the clocks of this machine and of the cluster may differ."""


@dataclass(frozen=True)
class SubmitResult:
    """What a submission started.

    Attributes:
        run: Id of the run.
        kfp: KFP's run; None where nothing was left to do for it.
        state: RUNNING, or how the run ended where nothing was left to do.
        ended: The tasks that have no pod.
        pods: How many nodes have one.
    """

    run: str
    state: RunState
    kfp: KfpRun | None = None
    ended: Mapping[str, NodeResult] = field(default_factory=dict)
    pods: int = 0

    def to_json(self) -> dict[str, object]:
        """As `submit --json` prints it."""
        return {
            "run": self.run,
            "state": self.state,
            "kfp": None if self.kfp is None else {"run": self.kfp.id, "link": self.kfp.link},
            "nodes": {name: result.to_json() for name, result in self.ended.items()},
            "pods": self.pods,
        }


def submit(
    home: Home,
    pipeline: PipelineFunction[..., Any],  # Any: what it returns to another pipeline is of no interest
    settings: ClusterSettings,
    parameters: Mapping[str, object] | None = None,
    *,
    name: str = "",
    experiment: str = "",
    cache: bool = True,
    tags: Mapping[str, str] | None = None,
    note: str = "",
    connect: Callable[[ClusterSettings], KfpClient] = lambda settings: KfpClient(settings.api),
) -> SubmitResult:
    """Hand a run of a pipeline to the cluster; nodes whose work was done before get no pod.

    Args:
        home: Where the run is recorded; the pods' own store, where they are to share one.
        pipeline: What is run.
        settings: Of its cluster.
        parameters: The values of its parameters.
        name: What KFP calls the run; the pipeline's name and the run's id where empty.
        experiment: The KFP experiment; that of the settings, or the pipeline's name where empty.
        cache: Whether earlier executions may stand in.
        tags: Tags of the run: name → value, "" where it has none.
        note: A note of the run.
        connect: How the API is reached.

    Raises:
        BuildError: The pipeline is wrong. Nothing was recorded.
        InputError: A parameter is, KFP cannot keep something of it, or a budget that stops runs is used up. Nothing was
            recorded.
        ApiError: KFP cannot be asked (nothing was recorded), or did not take it (the run is recorded as FAILED).
    """
    built = pipeline.build()
    check_capabilities(built, "kubeflow")
    checked(compile_pipeline(built, settings, project=pipeline.project, lines=pipeline.lines))
    values = pipeline.values(parameters or {})
    passed = budgets_passed(home, built.name)
    client = connect(settings)
    client.greet()
    run = new_run(home, built, pipeline.project, values, RunOptions("kubeflow", cache=cache), tags=tags, note=note)
    return _send(home, note_passed(home, run, passed), settings, client, name, experiment)


def resubmit(
    home: Home,
    run: Run,
    settings: ClusterSettings,
    *,
    connect: Callable[[ClusterSettings], KfpClient] = lambda settings: KfpClient(settings.api),
) -> SubmitResult:
    """Submit those tasks of a run again that did not end well; the others keep their results.

    Raises:
        InputError: The run is not a cluster's, the cluster still works on it, or a budget is used up.
        ApiError: KFP cannot be asked, or did not take it.
    """
    if run.options.runner != "kubeflow":
        raise InputError(f"run {run.id} is not a cluster's", fix=f"drivetrain resume {run.id}")
    if simulated(run):
        raise InputError(
            f"run {run.id} was simulated on this machine, and no cluster has it",
            fix="simulate it again: what ended well is cached",
        )
    passed = budgets_passed(home, run.pipeline.name)
    client = connect(settings)
    run = with_kfp_run(home, run, client)
    kfp_run = _still_there(client, submission(run).run)
    if kfp_run is not None and not kfp_run.ended:
        raise InputError(
            f"the run {run.id} is being worked on by the KFP run {kfp_run.id}, which is {kfp_run.state}",
            fix=f"wait for it, or end it: drivetrain kubeflow terminate {run.id}",
        )
    client.greet()
    with contextlib.suppress(InputError):  # where all its pods reached the store there are no records
        records.sync(home, run.id)
    run = note_passed(home, _reopened(home, open_run(home, run.id)), passed)
    return _send(home, run, settings, client, "", "", resuming=True)


def with_kfp_run(home: Home, run: Run, client: KfpClient) -> Run:
    """The run with its KFP run, looked up in KFP where the submitter died before it could record that.

    Raises:
        ApiError: KFP cannot be asked.
    """
    if submission(run).run or simulated(run):
        return run
    kfp_run = client.find(RUN, run.id, _started(run) - SLACK)
    return run if kfp_run is None else hand_over(home, run, Submission(kfp_run.id, client.host))


def _still_there(client: KfpClient, kfp_run: str) -> KfpRun | None:
    """A KFP run; None where there never was one, or KFP has deleted it."""
    try:
        return client.run(kfp_run) if kfp_run else None
    except ApiError as error:
        if error.status != 404:
            raise
        return None


def _started(run: Run) -> datetime:
    return datetime.fromisoformat(run.context.properties["started"])


def _reopened(home: Home, run: Run) -> Run:
    """A run that no cluster works on any more, reopened with this process as its owner.

    The update expects the version that was read: of two processes that resume the run, the second one fails.
    """
    if not on_cluster(run):
        return reopen_run(home, run)
    properties: dict[str, object] = {"state": RunState.RUNNING, "owner": Owner.current().to_dict()}
    if run.context.properties["state"] != RunState.COMPLETE:
        properties["status"] = None  # the work ends again, and exit nodes must see that end, not the old one
    context = home.store.update_context(run.context, properties, expected_version=run.context.version)
    return replace(run, context=context)


def _send(
    home: Home,
    run: Run,
    settings: ClusterSettings,
    client: KfpClient,
    name: str,
    experiment: str,
    *,
    resuming: bool = False,
) -> SubmitResult:
    """Start a recorded run on KFP. Where that fails, the run is closed: it never stays RUNNING without a cluster.

    After a lost answer, or Ctrl-C, KFP may have the run all the same: it is looked up by its parameter, and kept or
    terminated.
    """
    before = submission(run).run
    ended, compiled = TasksWithoutPod(), None
    try:
        launcher = Launcher(home, run, resuming=resuming)
        if within_reach(home, settings.artifacts):
            ended = end_tasks_without_pod(launcher)
        left = remaining(launcher, ended)
        if not left.nodes:
            state = state_of(ended.results.values())
            close_run(home, run, state)
            return SubmitResult(run.id, state, None, ended.results)
        records.write_run(home, run)
        for task in ended.results:
            records.write_record(home, run, task)
        settings = replace(settings, nodes={name: pod for name, pod in settings.nodes.items() if name in left.ids})
        compiled = checked(compile_pipeline(left, settings, project=run.project, digest=run.pipeline.digest))
        run = _with_artifacts(home, run, settings)
        kfp = _start(client, run, settings, compiled, name, experiment)
    except BaseException as error:
        stopped = isinstance(error, KeyboardInterrupt)
        if compiled is not None and (stopped or (isinstance(error, ApiError) and error.sent)):
            with contextlib.suppress(DrivetrainError):
                started = client.find(RUN, run.id, since=_started(run) - SLACK)
                if started is not None and started.id != before:  # not the one that is resumed
                    if not stopped:
                        return _handed_over(home, run, client, started, ended, compiled)
                    client.terminate(started.id)
        close_run(home, run, RunState.CANCELED if stopped else RunState.FAILED)
        raise
    return _handed_over(home, run, client, kfp, ended, compiled)


def _with_artifacts(home: Home, run: Run, settings: ClusterSettings) -> Run:
    """Record where the run's pods will keep their records, before KFP gets it: `sync` needs it if we die."""
    facts = run.context.properties.get("kubeflow") or {}
    context = home.store.update_context(run.context, {"kubeflow": facts | {"artifacts": settings.artifacts}})
    return replace(run, context=context)


def _handed_over(
    home: Home, run: Run, client: KfpClient, kfp: KfpRun, ended: TasksWithoutPod, compiled: CompiledPipeline
) -> SubmitResult:
    handed = Submission(kfp.id, client.host, tuple(ended.results), compiled.nodes)
    hand_over(home, open_run(home, run.id), handed)
    return SubmitResult(run.id, RunState.RUNNING, kfp, ended.results, len(compiled.nodes))


def _start(
    client: KfpClient, run: Run, settings: ClusterSettings, compiled: CompiledPipeline, name: str, experiment: str
) -> KfpRun:
    arguments = arguments_of(run.pipeline, run.parameters)
    with tempfile.TemporaryDirectory(prefix="drivetrain-") as folder:
        package = Path(folder) / "pipeline.yaml"
        package.write_text(compiled.yaml, encoding="utf-8")
        return client.submit(
            package,
            name=name or f"{run.pipeline.name} {run.id}",
            experiment=experiment or settings.api.experiment or run.pipeline.name,
            arguments=arguments | {RUN: run.id},
            service_account=settings.service_account,
        )


def checked(compiled: CompiledPipeline) -> CompiledPipeline:
    """The compiled pipeline, once the linter finds nothing in it.

    Raises:
        InputError: The linter finds something; names the first finding.
    """
    refuse(lint_documents(compiled.spec, compiled.platform))
    return compiled


def arguments_of(pipeline: Pipeline, values: Mapping[str, object]) -> dict[str, object]:
    """The values of a pipeline's parameters as KFP takes them."""
    return {name: _argument(hint, values[name]) for name, hint, _ in pipeline.parameters}


def _argument(hint: str, value: object) -> object:
    """A parameter's value as KFP takes it: one that may be None is text there, because KFP loses nulls."""
    if not parameter_type(hint)[1]:
        return value
    return value if isinstance(value, str) else json.dumps(value)
