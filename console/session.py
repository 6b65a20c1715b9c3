"""A past run as a value: what a notebook opens and shows, and what `drivetrain show` prints."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import DrivetrainError, InputError, suggest
from ..metadata import (
    Anomalies,
    Artifact,
    ArtifactRecord,
    Evaluation,
    ExecutionRecord,
    Explanation,
    InfraValidation,
    Predictions,
    PushedModel,
    Registration,
    Summary,
    TuningResults,
    artifact_type,
    summary_of,
)
from ..metadata.uri import resolve
from ..pipelines import Home, Run, find_root, open_run
from ..pipelines.ir.dag import dag
from ..pipelines.ir.tasks import parse_task
from ..pipelines.launcher.flow import Flow
from ..pipelines.launcher.retries import postponed
from ..pipelines.launcher.states import EndState, RunState, TaskState, UnfinishedState, task_state
from .model_outcome import ModelOutcome, model_outcome
from .outline import expanded, outline

if TYPE_CHECKING:
    from ..report.run import Points

SUMMARIZED_BY: Mapping[type[Artifact], str] = {
    Anomalies: "example_validator",
    Evaluation: "evaluator",
    Explanation: "explainer",
    InfraValidation: "infra_validator",
    Predictions: "bulk_inferrer",
    PushedModel: "pusher",
    Registration: "register",
    TuningResults: "tuner",
}
"""The component beside which stands what a standard type says of itself; it is imported for artifacts of that type."""


@dataclass(frozen=True)
class NodeView:
    """A node of a run.

    Attributes:
        id: Node id.
        state: How it ended; or RUNNING, WAITING (to begin, or for its next attempt) in a run that is at work, or
            INTERRUPTED where its process died.
        seconds: Wall time, of one that is at work until now; of a cached node, of finding that out.
        reason: One line: why it ran, was reused, skipped or blocked, or what went wrong.
        refused_by: The later node that refused what this one was about to make; "" where none did.
        undone: Of a cached node, which of its effects somebody has undone since, and how to do it again; "" for none.
        outputs: What it made or reused, by output name.
        records: The same as the store's rows.
        summaries: What outputs said of themselves when they were published, by output name: see `summary`.
        metrics: What was measured, by name, of a cached node in the work that it reuses; None where undefined.
        steps: What metrics were at which step, by name: (step, value), where a step was said.
        resources: What it used of the machine, of a cached node what the work used that it reuses; see docs/costs.md.
        error: The traceback where it failed.
        execution: Id of its execution in the store; None where it has none.
    """

    id: str
    state: TaskState
    seconds: float = 0.0
    reason: str = ""
    refused_by: str = ""
    undone: str = ""
    outputs: Mapping[str, Artifact] = field(default_factory=dict)
    records: Mapping[str, ArtifactRecord] = field(default_factory=dict)
    summaries: Mapping[str, Summary] = field(default_factory=dict)
    metrics: Mapping[str, float | None] = field(default_factory=dict)
    steps: Mapping[str, Points] = field(default_factory=dict, repr=False)
    resources: Mapping[str, Any] = field(default_factory=dict, repr=False)
    error: str | None = None
    execution: int | None = None

    def __repr__(self) -> str:
        outputs = "".join(f", {output}" for output in self.outputs)
        return f"NodeView({self.id}, {self.state} in {self.seconds:.2f} s{outputs})"

    def __getitem__(self, output: str) -> Artifact:
        """The output of that name.

        Raises:
            InputError: There is none.
        """
        if output in self.outputs:
            return self.outputs[output]
        raise InputError(
            f"{self.id} ({self.state.lower()}) has no output {output!r}",
            fix=f"it has {', '.join(self.outputs) or 'none'}",
        )

    @property
    def vetoes(self) -> tuple[str, ...]:
        """The outputs that keep others from being used: whose `passed` is false."""
        return tuple(key for key, record in self.records.items() if record.properties.get("passed") is False)

    def summary(self, output: str) -> Summary:
        """What an output says of itself: as recorded when it was published, else as its type says now.

        Without a record it may read the payload; nothing is said of what another system made, or what was collected.
        """
        if output in self.summaries:
            return self.summaries[output]
        if self.records[output].external is not None or self.records[output].collected is not None:
            return Summary()
        # A project that makes a standard type by itself, or an earlier release, recorded no summary: the standard
        # types' functions are registered where their components are.
        artifact = self.outputs[output]
        for kind, component in SUMMARIZED_BY.items():
            if isinstance(artifact, kind):
                import_module(f"..components.{component}", __package__)
        return summary_of(artifact)

    def to_json(self) -> dict[str, object]:
        """State, seconds, reason and outputs, as `run --json` and `show --json` print them."""
        return {
            "state": self.state,
            "seconds": round(self.seconds, 3),
            "reason": self.reason,
            "outputs": {
                key: [{"uri": record.external or record.uri, "type": record.type, "fingerprint": record.fingerprint}]
                for key, record in self.records.items()
            },
            **({"refused_by": self.refused_by} if self.refused_by else {}),
        }

    def _repr_html_(self) -> str:
        from ..report import framed  # late: the shell shows runs as text
        from ..report.run import render_node

        reports = "".join(artifact._repr_html_() for artifact in self.outputs.values())
        headlines = {key: summary.headline for key, summary in self.summaries.items()}
        page = render_node(self.id, self.to_json(), self.error, headlines)
        facts = framed(page, height=260 if self.error is None else 480)
        return facts + reports


@dataclass(frozen=True)
class RunView:
    """A run as it was when it was opened.

    Attributes:
        id: Run id.
        pipeline: The pipeline's name.
        state: How it ended; RUNNING; or INTERRUPTED where its process died.
        parameters: The values of the pipeline's parameters.
        started: When it began, UTC.
        finished: When it last ended, UTC; None before.
        seconds: How long it was worked on: of a resumed run without the time between; None before its end.
        nodes: Every task, in topological order: the nodes, those in loops for each item.
        outline: (guide, node id), depth first: the DAG as indented lines.
        dag: The pipeline as `report.dag` draws it.
        root: Where it lies.
        tags: What people tagged it with: name → value, "" where it has none.
        note: What people noted of it.
        outcome: What it says of its models at its end.
    """

    id: str
    pipeline: str
    state: RunState
    parameters: Mapping[str, object]
    started: datetime
    finished: datetime | None
    seconds: float | None
    nodes: Mapping[str, NodeView]
    outline: tuple[tuple[str, str], ...]
    dag: Mapping[str, Any] = field(repr=False)  # any JSON
    root: Path
    tags: Mapping[str, str] = field(default_factory=dict)
    note: str = ""
    outcome: ModelOutcome = field(default=ModelOutcome(RunState.RUNNING), repr=False)

    def __repr__(self) -> str:
        took = "" if self.seconds is None else f" in {self.seconds:.2f} s"
        return f"RunView({self.id}, {self.pipeline}, {self.state}{took}, {len(self.nodes)} nodes)"

    def __getitem__(self, node: str) -> NodeView:
        """The node of that id.

        Raises:
            InputError: There is none.
        """
        if node in self.nodes:
            return self.nodes[node]
        raise InputError(f"run {self.id} of {self.pipeline} has no node {node!r}", fix=suggest(node, list(self.nodes)))

    def __iter__(self) -> Iterator[NodeView]:
        """The nodes, in topological order."""
        return iter(self.nodes.values())

    def artifact(self, node: str, output: str | None = None) -> Artifact:
        """What a node made or reused.

        Args:
            node: Node id.
            output: Which output; the only one where None.

        Raises:
            InputError: There is no such node or output, or more than one to choose from.
        """
        node_view = self[node]
        if output is not None:
            return node_view[output]
        if len(node_view.outputs) != 1:
            raise InputError(
                f"{node} ({node_view.state.lower()}) has {len(node_view.outputs) or 'no'} outputs",
                fix=f"name one of {', '.join(node_view.outputs)}"
                if node_view.outputs
                else f"its reason: {node_view.reason}",
            )
        return next(iter(node_view.outputs.values()))

    def to_json(self) -> dict[str, object]:
        """What `show --json` prints: what `run --json` prints, and of the run parameters, times, metrics, tags."""
        return {
            "run": self.id,
            "state": self.state,
            "pipeline": self.pipeline,
            "parameters": dict(self.parameters),
            "started": self.started.isoformat(),
            "finished": self.finished.isoformat() if self.finished else None,
            "metrics": {name: dict(node.metrics) for name, node in self.nodes.items() if node.metrics},
            "tags": dict(self.tags),
            "note": self.note,
            **self.outcome.to_json(),
            "nodes": {name: node.to_json() for name, node in self.nodes.items()},
        }

    def to_html(self, pages: Mapping[tuple[str, str], str] | None = None, beside: Sequence[RunView] = ()) -> str:
        """A page: the pipeline drawn, its nodes coloured by their states, a table of them, and their metrics.

        Args:
            pages: Where the pages of artifacts lie that it leads to, by node and output.
            beside: Other runs, whose metrics are drawn beside this one's.
        """
        return self._page(pages, beside)[0]

    def _repr_html_(self) -> str:
        from ..report import framed

        page, height = self._page()
        return framed(page, height=height)

    def _page(
        self, pages: Mapping[tuple[str, str], str] | None = None, beside: Sequence[RunView] = ()
    ) -> tuple[str, int]:
        """The page, and its approximate height in pixels, for the frame in a notebook."""
        from ..report.run import draw, render
        from .show import blamed  # late: it imports this module

        facts, lines = self.to_json(), blamed(self.nodes)
        facts["nodes"] = {
            name: node.to_json() | {"state": lines[name].state, "reason": lines[name].reason}
            for name, node in self.nodes.items()
        }
        drawn = draw(self.dag, {name: {"state": node.state, "seconds": node.seconds} for name, node in lines.items()})
        headlines = {node.id: "; ".join(summary.headline for summary in node.summaries.values()) for node in self}
        steps: dict[str, dict[str, dict[str, Points]]] = {}
        for run in (self, *beside):
            for node in run:
                for name, points in node.steps.items():
                    label = f"{name}, {run.id}" if beside else name
                    steps.setdefault(node.id, {}).setdefault(name, {})[label] = points
        page = render(facts, tuple(expanded(self.outline, self.nodes)), drawn, headlines, steps=steps, pages=pages)
        return page, min(1400, round(300 + drawn.height + 42 * len(self.nodes)))


def open(run_id: str | None = None, root: str | Path | None = None, store: str | None = None) -> RunView:  # noqa: A001
    """A past run: `dt.open()` in a notebook shows the newest one of the project that the notebook lies in.

    Args:
        run_id: Which run, or a unique beginning of its id; the newest where None.
        root: Where the runs lie; where None, the root that `drivetrain show` looks at in the working directory.
        store: Where the metadata lies, if not in the root.

    Raises:
        InputError: There is no such root or run.
    """
    location = find_root(root=root, store=store)
    home = Home(location.root, store=location.store, readonly=True)
    try:
        return view(home, open_run(home, run_id))
    finally:
        home.close()


def view(home: Home, run: Run) -> RunView:
    """A run as the store knows it now."""
    flow = Flow(home.store, run)
    names = [name for node in run.pipeline.ids for name in flow.task_names(node)]
    facts = run.context.properties
    finished = facts.get("finished")
    nodes = {name: view_task(home, run, name, flow) for name in names}
    return RunView(
        id=run.id,
        pipeline=run.pipeline.name,
        state=run.state,
        parameters=run.parameters,
        started=datetime.fromisoformat(facts["started"]),
        finished=datetime.fromisoformat(finished) if finished and run.state is not RunState.RUNNING else None,
        seconds=run.seconds,
        nodes=nodes,
        outline=tuple(outline(run.pipeline)),
        dag=dag(run.pipeline),
        root=home.root,
        tags=run.tags,
        note=run.note,
        outcome=model_outcome(run, run.state, {name: node.records.values() for name, node in nodes.items()}),
    )


def payload_file(home: Home, artifact: ArtifactRecord, name: str) -> bytes | None:
    """A small file of an artifact's payload, without fetching the others; None where it cannot be read."""
    from ..stores import Store

    with suppress(OSError, DrivetrainError):
        if home.payloads.url is not None:
            return Store(home.payloads.url).read(f"{artifact.uri}/{name}")
        folder = resolve(home.root, artifact.uri).resolve()
        file = (folder / name).resolve()
        return file.read_bytes() if file.is_relative_to(folder) else None  # not through a link
    return None


def origin(home: Home, execution: ExecutionRecord) -> str | None:
    """The run in which the work of a cached execution was done."""
    if execution.cached_from is None:
        return None
    return run_of(home, home.store.execution(execution.cached_from))


def run_of(home: Home, execution: ExecutionRecord) -> str | None:
    """The run that an execution belongs to."""
    return next((c.name for c in home.store.contexts_of(execution) if c.type == "run"), None)


def _measured_until_now(home: Home, execution: ExecutionRecord) -> tuple[dict[str, float | None], dict[str, Points]]:
    """Metrics and curves of a task that is at work, in another process too, if it works on this machine."""
    from ..pipelines.project.metrics import Metrics

    key = execution.properties.get("claim") or execution.cache_key
    properties: dict[str, Any] = {} if key is None else Metrics.read(home.metrics_file(key)).properties
    return properties.get("metrics", {}), properties.get("metric_steps", {})


def _seconds(execution: ExecutionRecord, state: TaskState) -> float:
    """How long it took, or has taken until now."""
    if state is UnfinishedState.RUNNING and execution.started_at is not None:
        return max(0.0, (datetime.now(UTC) - execution.started_at).total_seconds())
    return execution.seconds or 0.0


def view_task(home: Home, run: Run, name: str, flow: Flow | None = None) -> NodeView:
    """A task of a run as the store knows it now."""
    execution = (flow or Flow(home.store, run)).execution(*parse_task(name))
    if execution is None:
        if run.state is RunState.RUNNING:
            return NodeView(name, UnfinishedState.WAITING)
        return NodeView(name, EndState.CANCELED, reason="never began")
    state = task_state(execution)
    reason = str(execution.properties.get("reason") or "")
    worked = execution if execution.cached_from is None else home.store.execution(execution.cached_from)
    if state is EndState.CACHED and not reason:  # as of a run that was taken in from elsewhere
        reason = f"same work as run {run_of(home, worked)}"
    elif state is UnfinishedState.RUNNING and home.store.is_dead(execution):
        state = UnfinishedState.INTERRUPTED
    if state is UnfinishedState.INTERRUPTED:
        reason = f"{execution.owner} died" if execution.owner else reason
    elif (waits := postponed(run, execution)) is not None:
        state, reason = UnfinishedState.WAITING, f"{waits}: {reason}"
    # A component declares each output as one artifact, so a key never holds more.
    records = {key: artifacts[0] for key, artifacts in home.store.outputs(execution).items() if artifacts}
    metrics = dict(execution.metrics)
    steps = worked.properties.get("metric_steps") or {}
    if state is UnfinishedState.RUNNING:
        metrics, steps = _measured_until_now(home, execution)
    for record in records.values():
        metrics |= record.metrics
    return NodeView(
        id=name,
        state=state,
        seconds=_seconds(execution, state),
        reason=reason,
        refused_by=str(execution.properties.get("refused_by", "")),
        undone=str(execution.properties.get("undone", "")),
        outputs={key: home.artifact(artifact_type(record.type), record) for key, record in records.items()},
        records=records,
        summaries={key: Summary.from_json(body) for key, body in worked.properties.get("summaries", {}).items()},
        metrics=metrics,
        steps=steps,
        resources=worked.resources,
        error=execution.error if state is EndState.FAILED else None,
        execution=execution.id,
    )
