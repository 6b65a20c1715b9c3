"""Beside the way that `launcher` describes: after an interruption, a stop, an error, a death, a failure to try again.

Each function says how the task ended then, and records it where nothing is recorded yet. None of them raises because
the store cannot be written: it may be what failed, and the run has to go on to say so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from ...digest import canonical_json
from ...errors import DrivetrainError, InputError
from ...metadata import ExecutionRecord, StateError, explain
from ..ir.ir import Node
from ..ir.tasks import Task
from ..project.files import FileSet, SqlQuery
from .flow import Flow
from .home import Home
from .logs import Logs
from .records import TaskRecords
from .resolve import ResolvedTask
from .results import NodeResult, format_traceback, reason_of
from .runs import Run
from .states import EndState


class Recovery:
    """What becomes of the tasks of one run that left the usual way.

    Args:
        home: Where the run lies.
        run: The run.
        flow: Of the run.
        records: Of the run.
        logs: Of the run.
    """

    def __init__(self, home: Home, run: Run, flow: Flow, records: TaskRecords, logs: Logs) -> None:
        self._home = home
        self._run = run
        self._flow = flow
        self._records = records
        self._logs = logs

    def earlier(self, name: str) -> NodeResult | None:
        """After an interruption: how a task ended in this run before, if a resumed run may keep that.

        It may where the task ended well, its outputs are still there, also for a collection (one that is marked no
        execution may take), and nothing that it waits for ran again since.
        """
        result = self._records.read(name)
        if result is None or not result.state.final:
            return None
        if not all(self._home.is_usable(record) for records in result.outputs.values() for record in records):
            return None
        task = self._flow.task(name)
        execution = self._flow.execution(task.node.id, task.index)
        assert execution is not None  # it has a result
        if task.node.on_exit and execution.id <= self._run.context.properties.get("exits_after", 0):
            return None  # it ran at another end of this run, before it was resumed
        scope = self._run.pipeline.scope(task.node.id)
        for upstream in self._run.pipeline.upstream(task.node.id):
            for index in self._flow.tasks_seen_from(upstream, task.index, scope):
                before = self._flow.execution(upstream, index)
                # Ids grow with time. A skip that is recorded again would be newer than its consumers, which would
                # then run again: so SKIPPED is among the ends that are kept.
                if before is None or before.id > execution.id:
                    return None
        return result

    def refuse_other_files(self, task: Task, resolved: ResolvedTask) -> None:
        """After an interruption: see that a task gets the files that those got which ended well in this run.

        Raises:
            InputError: What both name as `dt.files` or `dt.query` holds something else by now.
        """
        ours = {
            canonical_json(value): name
            for name, value in task.node.parameters
            if _names_files(resolved.parameters[name]) and "$item" not in str(value)
        }
        if not ours:
            return
        now: Mapping[str, Any] = resolved.preimage["parameters"]  # type: ignore[assignment]  # JSON
        for node in self._run.pipeline.nodes:
            shared = [(name, ours[text]) for name, value in node.parameters if (text := canonical_json(value)) in ours]
            before = self._parameters_before(node, task) if shared else {}
            for name, same in shared:
                changes = explain(
                    {"parameters": {same: before.get(name, now[same])}}, {"parameters": {same: now[same]}}
                )
                if changes:
                    raise InputError(
                        f"what {node.id} read in this run was edited since: {changes[0]}",
                        fix="`drivetrain run` it: a new run reads it everywhere, and what is unchanged comes from the "
                        "cache",
                    )

    def _parameters_before(self, node: Node, task: Task) -> Mapping[str, Any]:
        """The parameters of a task of a node, other than this, that ended well in this run, as they entered its key."""
        for index in self._flow.tasks(node.id):
            execution = self._flow.execution(node.id, index)
            end = EndState.of(execution)
            if (node.id, index) == (task.node.id, task.index) or end is None or not end.succeeded:
                continue
            if execution is not None and execution.cache_key is not None:
                preimage: Mapping[str, Any] = self._home.store.preimage(execution.cache_key) or {}
                return dict(preimage.get("parameters", {}))
        return {}

    def after_stop(self, name: str, error: BaseException) -> NodeResult:
        """After the run was stopped while a task was launched; it may have published by then."""
        seconds = 0.0
        with suppress(DrivetrainError):
            if (result := self.earlier(name)) is not None:
                return result
            if (recorded := self._records.read(name)) is not None:
                seconds = recorded.seconds
        return NodeResult(name, EndState.CANCELED, seconds, reason_of(error))

    def after_error(
        self, name: str, begun: Sequence[ExecutionRecord], error: BaseException, seconds: float
    ) -> NodeResult:
        """After an error of ours, not the component's: inputs that are gone, the store, the disk.

        Args:
            name: The task.
            begun: The executions that were begun for it; the last may have published before the error came.
            error: What went wrong.
            seconds: How long the launch took.
        """
        with suppress(DrivetrainError):
            if begun and self._home.store.execution(begun[-1].uid).state == "COMPLETE":
                self._logs.write(name, format_traceback(error, whole=True))
                if (result := self._records.read(name)) is not None:
                    return result
        return self.refuse(name, error, seconds)

    def refuse(self, name: str, error: BaseException, seconds: float = 0.0) -> NodeResult:
        """Record that a task failed before its work began."""
        with suppress(DrivetrainError):
            self._records.failed(self._flow.task(name), error, seconds)
        self._logs.write(name, format_traceback(error, whole=True))
        return NodeResult.failed(name, error, seconds)

    def after_death(
        self, name: str, pid: int, end: EndState, reason: str, about: Mapping[str, object] | None = None
    ) -> NodeResult | None:
        """Record how a task ended whose process on this host died, and remove what that process left.

        Args:
            name: The task.
            pid: The process; any that never was where no process was started for the task.
            end: FAILED or CANCELED.
            reason: Why it died.
            about: What its execution records besides.

        Returns:
            What that process had recorded itself, if it got so far.
        """
        task = self._flow.task(name)
        execution = self._flow.execution(task.node.id, task.index)
        if execution is None or execution.owner is None or execution.owner.pid != pid:
            execution = None  # it died before it began, or this is how another attempt ended
        elif execution.state != "RUNNING" and execution.state != "ABANDONED":
            self._sweep()
            return self._records.read(name)
        properties: dict[str, object] = {"reason": reason, "user_error": False, **(about or {})}
        with suppress(DrivetrainError):
            try:
                if execution is None:
                    raise StateError("nothing was begun")
                self._home.store.finish(execution, end.without_outputs, error=reason, properties=properties)
            except StateError:  # or another run has swept it up
                self._home.store.record(
                    task.node.component,
                    end.value,
                    contexts=self._records.contexts(task),
                    properties={"run": self._run.id, "node": task.name, **properties},
                    error=reason,
                )
        # Only after the end is recorded: payloads of an execution that might still publish are not ours to remove.
        if execution is not None:
            with suppress(DrivetrainError, OSError):
                self._home.remove_unpublished(execution)
        self._sweep()
        return None

    def _sweep(self) -> None:
        with suppress(DrivetrainError, OSError):
            self._home.sweep()


def _names_files(value: object) -> bool:
    """Whether a parameter's value is files or a query, or a map of them."""
    values = value.values() if isinstance(value, Mapping) else (value,)
    return any(isinstance(each, FileSet | SqlQuery) for each in values)
