"""The executions that are recorded of tasks without an attempt, and a task's result as it is read from the store."""

from __future__ import annotations

from threading import Event

from ...metadata import ContextRecord, ExecutionRecord
from ..ir.ir import Node
from ..ir.tasks import Task
from .flow import Flow, Outputs
from .home import Home
from .resolve import ResolvedTask
from .results import NodeResult, failure_properties, format_traceback
from .runs import Run
from .states import EndState


class TaskRecords:
    """The executions of one run's tasks.

    Args:
        home: Where the run lies.
        run: The run.
        flow: Of the run; it keeps what ended well, so that the store is not asked again.
        cancel: Set when the run is to stop.
    """

    def __init__(self, home: Home, run: Run, flow: Flow, cancel: Event) -> None:
        self._home = home
        self._run = run
        self._flow = flow
        self._cancel = cancel
        self._contexts: dict[tuple[str, str], ContextRecord] = {}  # those that every task of a node shares

    def contexts(self, task: Task) -> list[ContextRecord]:
        """What an execution of a task belongs to: the pipeline, the run, the node, and in a loop the task."""
        contexts = [self._context("pipeline", self._run.pipeline.name), self._run.context, self.node_context(task.node)]
        if task.node.loop:
            contexts.append(self._home.store.context("task", f"{self._run.id}/{task.name}", durable=False))
        return contexts

    def node_context(self, node: Node) -> ContextRecord:
        """A node's, over all runs of the pipeline."""
        return self._context("node", f"{self._run.pipeline.name}.{node.id}")

    def _context(self, kind: str, name: str) -> ContextRecord:
        if (kind, name) not in self._contexts:
            self._contexts[kind, name] = self._home.store.context(kind, name, durable=False)
        return self._contexts[kind, name]

    def skipped_or_blocked(
        self, task: Task, end: EndState, reason: str, seconds: float, *, left_out: bool = False
    ) -> NodeResult:
        """Record that a task did not run, and how long it took to see; `left_out`: no later partial run may take it."""
        seconds = round(seconds, 6)
        flag = {"left_out": True} if left_out else {}
        self._home.store.record(
            task.node.component,
            end.value,
            contexts=self.contexts(task),
            properties={"run": self._run.id, "node": task.name, "reason": reason, "seconds": seconds, **flag},
        )
        return NodeResult(task.name, end, seconds, reason)

    def cached(
        self,
        task: Task,
        reason: str,
        seconds: float,
        source: ExecutionRecord,
        resolved: ResolvedTask | None = None,
        undone: str = "",
    ) -> NodeResult:
        """Record that an earlier execution stands in for a task, which has its outputs and metrics from now on.

        Where somebody has undone one of its effects since, `undone` says so, after the reason.
        """
        metrics = source.properties.get("metrics")
        about = {"reason": reason, "seconds": round(seconds, 6), **({"metrics": metrics} if metrics else {})}
        if undone:
            reason = f"{reason}; {undone}"
            about |= {"reason": reason, "undone": undone}
        execution = self._home.store.record(
            task.node.component,
            EndState.CACHED.value,
            contexts=self.contexts(task),
            inputs=resolved.inputs if resolved else None,
            cache_key=resolved.key if resolved else None,
            preimage=resolved.preimage if resolved else None,
            cached_from=source,
            properties={"run": self._run.id, "node": task.name, **about},
        )
        return self.succeeded(task, execution, reason, self._home.store.outputs(execution))

    def succeeded(self, task: Task, execution: ExecutionRecord, reason: str, outputs: Outputs) -> NodeResult:
        """The result of a task that is COMPLETE or CACHED."""
        self._flow.ended(task.node.id, task.index, execution, outputs)
        return self._result(task, execution, reason, outputs)

    def failed(self, task: Task, error: BaseException, seconds: float) -> None:
        """Record a failure that came before the task had a key."""
        about = {**failure_properties(error), "seconds": round(seconds, 6)}
        self._home.store.record(
            task.node.component,
            EndState.FAILED.value,
            contexts=self.contexts(task),
            properties={"run": self._run.id, "node": task.name, **about},
            error=format_traceback(error),
        )

    def read(self, name: str) -> NodeResult | None:
        """How a task ended by what the store says, whichever process launched it; None if none did."""
        task = self._flow.task(name)
        execution = self._flow.execution(task.node.id, task.index)
        if execution is None:
            return None
        reason = str(execution.properties.get("reason", ""))
        end = EndState.of(execution)
        if end is not None and end.succeeded:
            result = self._result(task, execution, reason, self._home.store.outputs(execution))
        elif end is not None:
            user_error = bool(execution.properties.get("user_error"))
            refused_by = str(execution.properties.get("refused_by", ""))
            seconds = execution.seconds or 0.0
            result = NodeResult(name, end, seconds, reason, user_error=user_error, refused_by=refused_by)
        else:
            end = EndState.CANCELED if self._cancel.is_set() else EndState.FAILED
            result = NodeResult(name, end, reason="its process ended without a record: killed, or out of memory")
        return result

    def _result(self, task: Task, execution: ExecutionRecord, reason: str, outputs: Outputs) -> NodeResult:
        artifacts = {key: tuple(records) for key, records in outputs.items()}
        vetoed = task.node.gates is not None and any(
            record.properties.get("passed") is False for records in artifacts.values() for record in records
        )
        end = EndState.CACHED if execution.state == "CACHED" else EndState.COMPLETE
        return NodeResult(task.name, end, execution.seconds or 0.0, reason, artifacts, vetoed)
