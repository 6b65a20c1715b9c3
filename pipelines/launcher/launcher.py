"""`launch`, the only way a node runs: inputs, conditions, key, claim, execute in staging, publish at once."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from ...digest import digest
from ...errors import Canceled, DrivetrainError, InputError
from ...metadata import (
    ContextRecord,
    ExecutionRecord,
    LeaseLost,
    Owner,
    StateError,
)
from ..ir.ir import Node
from ..ir.tasks import Task, parse_task
from ..resolvers.windows import Absent
from .attempt import Attempt
from .flow import LEFT_OUT, Outputs
from .heartbeat import heartbeat
from .home import Home, Run, open_run
from .logs import Logged, Logs
from .partial import needed, stand_in
from .resolve import Resolver, Work
from .results import (
    Guarded,
    NodeResult,
    Observer,
    Silent,
    brief,
    facts,
    told,
    traced,
)
from .retries import Retries, postpone
from .reuse import done_before, news
from .states import EndState

LEASE = 60.0
"""Seconds after which the claim of a silent process is taken over; a dead process on the same host loses it at once."""


class Launcher:
    """Launches the nodes of one run.

    Args:
        home: Where everything lies.
        run: The run.
        observer: Who is told.
        resuming: Whether what ended well in this run before stays as it is.
        working: Told whether a task does its own work now, or waits for another process that does the same.
    """

    def __init__(
        self,
        home: Home,
        run: Run,
        observer: Observer | None = None,
        *,
        resuming: bool = False,
        working: Callable[[str, bool], None] = lambda task, works: None,
    ) -> None:
        self.home = home
        self.run = run
        self.observer = Guarded(observer or Silent())
        self.cancel = threading.Event()
        self.resuming = resuming
        self.working = working
        self.logs = Logs(home.root, run.id)
        self._told = Logged(self.observer, self.logs)
        self.resolver = Resolver(home.store, run, home.base, home.root / "work")
        self.flow = self.resolver.flow
        self._known: dict[tuple[str, str], ContextRecord] = {}  # contexts that do not change
        heartbeat.start()

    def launch(self, name: str, retried: int | None = None) -> NodeResult:
        """Run a task, or find out why it need not or must not run. Never raises; what happened is in the store.

        Args:
            name: The task.
            retried: How often it was tried before; then this is one attempt, and the result says when the next is due.
        """
        begin = time.monotonic()
        begun: list[ExecutionRecord] = []
        try:
            self.observer.started(name)
            task = self._task(name)
            result = (self.earlier(name) if self.resuming else None) or self._launch(task, retried, begun)
        except (KeyboardInterrupt, Canceled) as error:
            self.cancel.set()
            result = NodeResult(name, EndState.CANCELED, reason=told(error))
            with contextlib.suppress(DrivetrainError):
                result = self.earlier(name) or result  # it may have been published by then
        except BaseException as error:
            # Not the component's failure, which is recorded already: what it needs, the store or the disk.
            result = self._published(name, begun, error) or self.fail(name, error)
        result = replace(result, seconds=time.monotonic() - begin)
        self.logs.end(result)
        if (lost := self.logs.lost()) is not None:
            self.observer.note(name, lost)
        self.observer.ended(result)
        return result

    def foresee(self, name: str) -> NodeResult | None:
        """How a task whose upstream has ended would end without running: held back, skipped, cached. Then recorded.

        Returns:
            None where it has to run, or what decides cannot be found out here; nothing is recorded then.
        """
        try:
            if (earlier := self.earlier(name) if self.resuming else None) is not None:
                return earlier
            task = self._task(name)
            work = self._settled(task)
            return work if isinstance(work, NodeResult) else self._reused(task, work)[0]
        except DrivetrainError:
            return None  # a file that is elsewhere, a secret that is not told here

    def fail(self, name: str, error: BaseException) -> NodeResult:
        """Record that a task could not begin."""
        with contextlib.suppress(DrivetrainError):  # the store itself may be what fails
            self._record_failure(self._task(name), error)
        self.logs.write(name, traced(error))
        return NodeResult.failed(name, error)

    def _published(self, name: str, begun: Sequence[ExecutionRecord], error: BaseException) -> NodeResult | None:
        """How a task ended whose last attempt an error cut off, if that had published by then."""
        with contextlib.suppress(DrivetrainError):
            if begun and self.home.store.execution(begun[-1].uid).state == "COMPLETE":
                self.logs.write(name, traced(error))
                return self.recorded(name)
        return None

    def bury(self, name: str, pid: int, end: EndState, reason: str) -> NodeResult | None:
        """Record how a task ended whose process on this host died, and remove what it left.

        Returns:
            What that process had recorded itself, if it got so far.
        """
        task = self._task(name)
        facts: dict[str, object] = {"reason": reason, "user_error": False}
        execution = self.flow.execution(task.node.id, task.index)
        if execution is None or execution.owner is None or execution.owner.pid != pid:
            execution = None  # it died before it began, or this is how another attempt ended
        elif execution.state != "RUNNING" and execution.state != "ABANDONED":
            self._sweep()
            return self.recorded(name)
        with contextlib.suppress(DrivetrainError):
            try:
                if execution is None:
                    raise StateError("nothing was begun")
                self.home.store.finish(execution, end.without_outputs, error=reason, properties=facts)
            except StateError:  # or another run has swept it up
                about = {"run": self.run.id, "node": task.name, **facts}
                contexts = self._contexts(task)
                self.home.store.record(
                    task.node.component, end.value, contexts=contexts, properties=about, error=reason
                )
        if execution is not None:
            with contextlib.suppress(DrivetrainError, OSError):
                self.home.take_back(execution)
        self._sweep()
        return None

    def _sweep(self) -> None:
        with contextlib.suppress(DrivetrainError, OSError):
            self.home.sweep()

    def earlier(self, name: str) -> NodeResult | None:
        """How a task ended in this run before it was interrupted, if it ended well and all of it is still there.

        Not where something that it waits for was launched again since.
        """
        result = self.recorded(name)
        if result is None or not result.state.final:
            return None  # skipped again it would be newer than what follows, which would then run again
        if not all(self.home.payloads.present(r.uri) for records in result.outputs.values() for r in records):
            return None
        task = self._task(name)
        own = self.flow.execution(task.node.id, task.index)
        if task.node.on_exit and own is not None and own.id <= self.run.context.properties.get("exits_after", 0):
            return None  # it was told of another end
        scope = self.run.pipeline.scope(task.node.id)
        for up in self.run.pipeline.upstream(task.node.id):
            for at in self.flow.tasks_seen_from(up, task.index, scope):
                before = self.flow.execution(up, at)
                if before is None or own is None or before.id > own.id:
                    return None
        return result

    def recorded(self, name: str) -> NodeResult | None:
        """What the store says of a task in this run, whichever process launched it; None if none did."""
        task = self._task(name)
        execution = self.flow.execution(task.node.id, task.index)
        if execution is None:
            return None
        facts = execution.properties
        reason, users = str(facts.get("reason", "")), bool(facts.get("user_error"))
        end = EndState.of(execution)
        if end is not None and end.succeeded:
            result = self._result(task, execution, reason, self.home.store.outputs(execution))
        elif end is not None:
            result = NodeResult(name, end, reason=reason, user_error=users)
        else:
            end = EndState.CANCELED if self.cancel.is_set() else EndState.FAILED
            result = NodeResult(name, end, reason="its process ended without a word: killed, or out of memory")
        return replace(result, seconds=execution.seconds or 0.0)

    def _task(self, name: str) -> Task:
        node, index = parse_task(name)
        return Task(self.run.pipeline[node], index)

    def _left_out(self, task: Task) -> NodeResult:
        """A task that a partial run does not run: an earlier run stands in for it where something else needs it."""
        options = self.run.options
        reason = LEFT_OUT
        if task.node.id in needed(self.run.pipeline, options.only):
            base = open_run(self.home, options.base)
            found = stand_in(self.home, base, task, self.flow)
            if found is None:
                raise InputError(
                    f"run {base.id} has no outputs of {task.name}",
                    fix=f"give another --base, or let {task.node.id} run",
                )
            if EndState.of(found) is not EndState.SKIPPED:
                reason = f"taken from run {base.id}"
                record = self._record(task, EndState.CACHED, reason, cached_from=found)
                return self._ended(task, record, reason, self.home.store.outputs(record))
            reason = f"it was skipped in run {base.id}"
        self._record(task, EndState.SKIPPED, reason, left_out=reason == LEFT_OUT)
        return NodeResult(task.name, EndState.SKIPPED, reason=reason)

    def _settled(self, task: Task) -> NodeResult | Work:
        """How a task ends that is not to run, recorded; else what it does."""
        ready = self.flow.readiness(task)
        if ready.left_out:
            return self._left_out(task)
        if ready.verdict.end is not None:
            self._record(task, ready.verdict.end, ready.reason)
            return NodeResult(task.name, ready.verdict.end, reason=ready.reason)
        try:
            return self.resolver.work(task.node, task.index, partial(self._progress, task.name))
        except Absent as absent:
            self._record(task, EndState.SKIPPED, absent.message)
            return NodeResult(task.name, EndState.SKIPPED, reason=absent.message)

    def _reused(self, task: Task, work: Work) -> tuple[NodeResult | None, str]:
        """What an earlier execution gives a task, recorded; else None, and why there is none."""
        if not self._cached(task.node):
            return None, "the cache is off for it"
        hit, gone = done_before(self.home, work)
        if hit is None:
            return None, gone or news(self.home, self.run, task.node, self._node_context(task.node), work)
        reason = f"same work as run {hit.properties['run']}"
        record = self._record(task, EndState.CACHED, reason, work=work, cached_from=hit)
        return self._ended(task, record, reason, self.home.store.outputs(record)), reason

    def _launch(self, task: Task, retried: int | None, begun: list[ExecutionRecord]) -> NodeResult:
        work = self._settled(task)
        if isinstance(work, NodeResult):
            return work
        told: Owner | None = None
        retries = Retries(task.node.options, self.run.project, retried or 0, seed=(self.run.id, task.name))
        while True:
            reused, reason = self._reused(task, work)
            if reused is not None:
                return reused
            key = self._claim_key(task, work)
            claim = self.home.store.claim(key, owner=Owner.current(), lease=LEASE)
            if claim is None:
                told = self._wait(task, key, told)
                continue
            if self.resuming and (before := self.earlier(task.name)) is not None:
                self.home.store.release(claim)  # a process of the interrupted run outlived it, and has done it
                return before
            if claim.displaced is not None:
                self.home.sweep()
            # Under a key that nobody held before, nobody has published.
            if self._cached(task.node) and claim.token > 1 and done_before(self.home, work)[0] is not None:
                self.home.store.release(claim)  # published between the look and the claim
                continue
            reason += retries.told
            attempt = Attempt(
                self.home, self.run, task, work, claim, self._contexts(task), reason, self._told, self.cancel
            )
            self.logs.begin(task.name, retries.done)
            self.working(task.name, True)
            try:
                execution, outcome = attempt.carry_out(begun)
            except LeaseLost as lost:
                self._told.note(task.name, lost.message)  # who took over will publish, and is waited for
                continue
            if not isinstance(outcome, BaseException):
                return self._ended(task, execution, reason, outcome)
            self.logs.write(task.name, traced(outcome))
            pause = retries.pause(outcome)
            if pause is None:
                return NodeResult.failed(task.name, outcome)
            postpone(self.home.store, execution, retries, pause)
            self._told.note(task.name, f"{brief(outcome)}; retry {retries.done} of {retries.most} in {pause:.3g} s")
            if retried is not None:
                return replace(NodeResult.failed(task.name, outcome), again=pause)
            if self.cancel.wait(pause):
                raise Canceled("the run was stopped")

    def _progress(self, task: str, done: int, total: int | None, unit: str) -> None:
        if self.cancel.is_set():
            raise Canceled("the run was stopped")
        self.observer.progress(task, done, total, unit)

    def _claim_key(self, task: Task, work: Work) -> str:
        """What is claimed: the work; where the cache is off, this task's, since nobody else's can stand in for it."""
        if self._cached(task.node):
            return work.key
        return f"{work.key}.{digest('drivetrain-own-claim-v1', [self.run.id, task.name])[:16]}"

    def _wait(self, task: Task, key: str, told: Owner | None) -> Owner | None:
        """Wait a moment for whoever does the same work; gives who that is, named to the observer once."""
        holder = self.home.store.claim_holder(key)
        if holder is not None and holder != told:
            self.working(task.name, False)
            self._told.note(task.name, f"waiting for {holder}, which does the same work")
        if self.cancel.wait(0.2):
            raise Canceled("the run was stopped")
        return holder

    def _contexts(self, task: Task) -> list[ContextRecord]:
        pipeline = self._context("pipeline", self.run.pipeline.name)
        found = [pipeline, self.run.context, self._node_context(task.node)]
        if task.node.loop:
            found.append(self.home.store.context("task", f"{self.run.id}/{task.name}", durable=False))
        return found

    def _node_context(self, node: Node) -> ContextRecord:
        return self._context("node", f"{self.run.pipeline.name}.{node.id}")

    def _context(self, kind: str, name: str) -> ContextRecord:
        if (kind, name) not in self._known:
            self._known[kind, name] = self.home.store.context(kind, name, durable=False)
        return self._known[kind, name]

    def _record(
        self,
        task: Task,
        state: EndState,
        reason: str,
        *,
        work: Work | None = None,
        cached_from: ExecutionRecord | None = None,
        left_out: bool = False,
    ) -> ExecutionRecord:
        return self.home.store.record(
            task.node.component,
            state.value,
            contexts=self._contexts(task),
            inputs=work.inputs if work else None,
            cache_key=work.key if work else None,
            preimage=work.preimage if work else None,
            cached_from=cached_from,
            properties={"run": self.run.id, "node": task.name, "reason": reason}
            | ({"left_out": True} if left_out else {}),
        )

    def _record_failure(self, task: Task, error: BaseException) -> None:
        """A task that failed before it had a key."""
        self.home.store.record(
            task.node.component,
            EndState.FAILED.value,
            contexts=self._contexts(task),
            properties={"run": self.run.id, "node": task.name, **facts(error)},
            error=traced(error),
        )

    def _ended(self, task: Task, execution: ExecutionRecord, reason: str, outputs: Outputs) -> NodeResult:
        self.flow.ended(task.node.id, task.index, execution, outputs)
        return self._result(task, execution, reason, outputs)

    def _result(self, task: Task, execution: ExecutionRecord, reason: str, outputs: Outputs) -> NodeResult:
        made = {key: tuple(records) for key, records in outputs.items()}
        vetoed = task.node.gates is not None and any(
            record.properties.get("passed") is False for records in made.values() for record in records
        )
        state = EndState.CACHED if execution.state == "CACHED" else EndState.COMPLETE
        return NodeResult(task.name, state, reason=reason, outputs=made, vetoed=vetoed)

    def _cached(self, node: Node) -> bool:
        return node.cache and self.run.options.cache
