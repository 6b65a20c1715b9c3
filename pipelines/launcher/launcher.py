"""`launch`, the only way a task runs.

`_TaskLaunch` is that way from top to bottom, and calls forward only: may the task run, and with what? Is it done
already? Whose turn is it? Then the work is done and published. Any step may end the task.

What becomes of a task beside that way, after an interruption, an error, a death or a failure that is worth another
attempt, stands in `recovery`; what is recorded of tasks without an attempt, in `records`; an attempt, in `attempt`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial

from ...digest import digest
from ...errors import Canceled, DrivetrainError, InputError
from ...metadata import Claim, ExecutionRecord, LeaseLost, Owner
from ..ir.tasks import Task
from ..project.context import current
from ..resolvers.windows import Absent
from .flow import LEFT_OUT, Flow
from .heartbeat import heartbeat
from .home import Home
from .logs import Logs
from .observers import FailsafeObserver, LoggingObserver, NullObserver, Observer
from .partial import needed, stand_in
from .records import TaskRecords
from .recovery import Recovery
from .resolve import ResolvedTask, Resolver
from .results import NodeResult, brief, format_traceback
from .retries import Retries
from .reuse import done_before, what_changed
from .run_records import keep_record
from .runs import Run, open_run
from .states import EndState

LEASE = 60.0
"""Seconds after which the claim of a silent process is taken over; a dead process on the same host loses it at once."""
_LOST_LEASES = 3
"""How often a task may lose its claim, and begin anew once it is free, besides its retries."""


class Launcher:
    """Launches the tasks of one run; any thread may call it.

    Args:
        home: Where everything lies.
        run: The run.
        observer: Called with every event of the task.
        resuming: Whether what ended well in this run before stays as it is.
        working: Called with a task and whether it does its own work now, or waits for another process that does the
            same.
        cancel: Set when the run is to stop; one of its own where None.
        logs: Of the run, where another launcher of it has them open.

    Attributes:
        flow: What the store says of the run's tasks so far.
        records: What is recorded of its tasks, and how they ended.
        recovery: What becomes of tasks after a death, a stop or an error.
        nested: Whether a component started this run, whose node has its share of the machine already.
    """

    def __init__(
        self,
        home: Home,
        run: Run,
        observer: Observer | None = None,
        *,
        resuming: bool = False,
        working: Callable[[str, bool], None] = lambda task, works: None,
        cancel: threading.Event | None = None,
        logs: Logs | None = None,
    ) -> None:
        self.home = home
        self.run = run
        self.observer = FailsafeObserver(observer or NullObserver())
        self.resuming = resuming
        self.working = working
        self.cancel = cancel or threading.Event()
        self.logs = logs or Logs(home.root, run.id)
        self.logging_observer = LoggingObserver(self.observer, self.logs)
        self.resolver = Resolver(home, run)
        self.flow: Flow = self.resolver.flow
        self.records = TaskRecords(home, run, self.flow, self.cancel)
        self.nested = bool(current().run)
        self.recovery = Recovery(home, run, self.flow, self.records, self.logs)
        heartbeat.start()

    def launch(self, name: str, retried: int | None = None) -> NodeResult:
        """Run a task, or find out why it need not or must not run. Never raises; what happened is in the store.

        Args:
            name: The task.
            retried: How often it was tried before; then this is one attempt, and the result says when the next is due.
                None to make all attempts here.
        """
        begin = time.monotonic()
        begun: list[ExecutionRecord] = []
        try:
            self.observer.started(name)
            task = self.flow.task(name)
            earlier = self.recovery.earlier(name) if self.resuming else None
            result = earlier or _TaskLaunch(self, task, begin, retried, begun).launch()
        except (KeyboardInterrupt, Canceled) as error:
            self.cancel.set()
            result = self.recovery.after_stop(name, error)
        except BaseException as error:  # SystemExit too; an error of the component's is a result already
            result = self.recovery.after_error(name, begun, error, time.monotonic() - begin)
        self.logs.end(result)
        if (lost := self.logs.lost()) is not None:
            self.observer.note(name, lost)
        self.observer.ended(result)
        return result

    def end_without_running(self, name: str) -> NodeResult | None:
        """How a task whose upstream has ended would end without running: skipped, blocked, cached. Then recorded.

        Returns:
            None where it has to run, or what decides cannot be found out here; nothing is recorded then.
        """
        try:
            if (earlier := self.recovery.earlier(name) if self.resuming else None) is not None:
                return earlier
            launch = _TaskLaunch(self, self.flow.task(name), time.monotonic())
            resolved = launch.resolve()
            return resolved if isinstance(resolved, NodeResult) else launch.reuse(resolved)[0]
        except DrivetrainError:
            return None  # a file that is elsewhere, a secret that is not set here


@dataclass
class _TaskLaunch:
    """One task on its way.

    Attributes:
        launcher: Of the run.
        task: The task.
        begin: When the launch began, by the monotonic clock.
        retried: See `Launcher.launch`.
        begun: Is given the execution of each attempt as soon as there is one.
        holder: Who was last seen to do the same work.
    """

    launcher: Launcher
    task: Task
    begin: float
    retried: int | None = None
    begun: list[ExecutionRecord] = field(default_factory=list)
    holder: Owner | None = None

    def launch(self) -> NodeResult:
        """The way; gives how the task ended."""
        resolved = self.resolve()
        if isinstance(resolved, NodeResult):
            return resolved
        run = self.launcher.run
        retries = Retries(self.task.node.options, run.project, self.retried or 0, seed=(run.id, self.task.name))
        while True:
            # Also after a wait, a lost lease or a failed attempt: meanwhile another process may have published this.
            cached, reason = self.reuse(resolved)
            if cached is not None:
                return cached
            claim = self._claim(resolved)
            if isinstance(claim, NodeResult):
                return claim
            if claim is None:
                continue
            result = self._execute(resolved, claim, reason, retries)
            if result is not None:
                return result

    # 1. May it run, and with what?

    def resolve(self) -> NodeResult | ResolvedTask:
        """How a task ends that is not to run, recorded; else what its component is called with."""
        records, task = self.launcher.records, self.task
        ready = self.launcher.flow.readiness(task)
        if ready.left_out:
            return self._stand_in()
        if ready.verdict.end is not None:
            return records.skipped_or_blocked(task, ready.verdict.end, ready.reason, self._seconds)
        try:
            note = partial(self.launcher.logging_observer.note, task.name)
            resolved = self.launcher.resolver.resolve(task, self._progress, note)
        except Absent as absent:
            return records.skipped_or_blocked(task, EndState.SKIPPED, absent.message, self._seconds)
        if self.launcher.resuming:
            self.launcher.recovery.refuse_other_files(task, resolved)
        return resolved

    def _stand_in(self) -> NodeResult:
        """The end of a task that a partial run leaves out: an earlier run stands in for it where its outputs are used.

        Raises:
            InputError: They are, and that run has none.
        """
        records, run, task = self.launcher.records, self.launcher.run, self.task
        if task.node.id not in needed(run.pipeline, run.options.only):
            return records.skipped_or_blocked(task, EndState.SKIPPED, LEFT_OUT, self._seconds, left_out=True)
        base = open_run(self.launcher.home, run.options.base)
        source = stand_in(self.launcher.home, base, task, self.launcher.flow)
        if source is None:
            raise InputError(
                f"run {base.id} has no outputs of {task.name}",
                fix=f"give another --base, or let {task.node.id} run",
            )
        if EndState.of(source) is EndState.SKIPPED:
            reason = f"it was skipped in run {base.id}"
            return records.skipped_or_blocked(task, EndState.SKIPPED, reason, self._seconds)
        return records.cached(task, f"taken from run {base.id}", self._seconds, source)

    @property
    def _seconds(self) -> float:
        """How long the launch takes by now."""
        return time.monotonic() - self.begin

    def _progress(self, done: int, total: int | None, unit: str) -> None:
        if self.launcher.cancel.is_set():
            raise Canceled("the run was stopped")
        self.launcher.observer.progress(self.task.name, done, total, unit)

    # 2. Is it done already?

    @property
    def _cache_is_on(self) -> bool:
        return self.task.node.cache and self.launcher.run.options.cache

    def reuse(self, resolved: ResolvedTask) -> tuple[NodeResult | None, str]:
        """The result of a task that an earlier execution stands in for, recorded; else None, and why none does."""
        if not self._cache_is_on:
            return None, "the cache is off for it"
        home, run, records = self.launcher.home, self.launcher.run, self.launcher.records
        source, change = done_before(home, run, resolved)
        if source is None:
            context = records.node_context(self.task.node)
            return None, change or what_changed(home, run, self.task.node, context, resolved)
        reason = f"same work as run {source.properties['run']}"
        undone = f"{change}: to do it again, `drivetrain rerun --from {self.task.node.id}`" if change else ""
        return records.cached(self.task, reason, self._seconds, source, resolved, undone), reason

    # 3. Whose turn is it?

    def _claim(self, resolved: ResolvedTask) -> Claim | NodeResult | None:
        """The right to do this work and publish it. Only one process at a time has it, on whatever host.

        It is a lease under the cache key, with a number (`token`) that grows with each holder. Publishing compares the
        number: a process that stood still while its lease ran out, and another took over, cannot publish any more.

        Returns:
            None after a moment's wait where the cache is to be looked at again; a result where the task has ended.
        """
        launcher = self.launcher
        key = self._claim_key(resolved)
        claim = launcher.home.store.claim(key, owner=Owner.current(), lease=LEASE)
        if claim is None:
            self._wait_for_holder(key)
            return None
        if launcher.resuming and (earlier := launcher.recovery.earlier(self.task.name)) is not None:
            launcher.home.store.release(claim)  # a process of the interrupted run outlived it, and has done it
            return earlier
        if claim.displaced is not None:
            launcher.home.sweep()
        # Somebody may have published between the look into the cache and the claim. Under a key that nobody held
        # before, which is the first token, nobody has: then a look is spared.
        if self._cache_is_on and claim.token > 1 and done_before(launcher.home, launcher.run, resolved)[0] is not None:
            launcher.home.store.release(claim)
            return None
        return claim

    def _claim_key(self, resolved: ResolvedTask) -> str:
        """What is claimed: the work; where the cache is off, this task's, since nobody else's can stand in for it."""
        if self._cache_is_on:
            return resolved.key
        return f"{resolved.key}.{digest('drivetrain-own-claim-v1', [self.launcher.run.id, self.task.name])[:16]}"

    def _wait_for_holder(self, key: str) -> None:
        """Wait a moment for whoever does the same work, and name them to the observer once."""
        holder = self.launcher.home.store.claim_holder(key)
        if holder is not None and holder != self.holder:
            self.launcher.working(self.task.name, False)
            self.launcher.logging_observer.note(self.task.name, f"waiting for {holder}, which does the same work")
        self.holder = holder
        self._pause(0.2)

    # 4. Do it and publish.

    def _execute(self, resolved: ResolvedTask, claim: Claim, reason: str, retries: Retries) -> NodeResult | None:
        """One attempt, after which the claim is given up; None where it is this process's turn to try once more."""
        with self._slot(resolved, claim):
            return self._attempt(resolved, claim, reason, retries)

    @contextmanager
    def _slot(self, resolved: ResolvedTask, claim: Claim) -> Iterator[None]:
        """Within the block the task has what it asks for of the machine, and waits for it before.

        Last of all that it waits for, so that no two wait for each other. Its claim lives meanwhile.
        """
        launcher, run, begin = self.launcher, self.launcher.run, time.monotonic()
        if launcher.nested or run.options.runner == "kubeflow" or resolved.component.asks:  # who waits needs no core
            yield
            return
        from .slots import slot  # late: a run that reuses everything takes none

        with ExitStack() as held:
            try:
                with heartbeat.of(launcher.home.store, claim):
                    held.enter_context(slot(self.task.node, f"{launcher.home.root} {run.id}", self._pause, self._wait))
            except BaseException:
                with suppress(DrivetrainError):
                    launcher.home.store.release(claim)
                raise
            self.begin += time.monotonic() - begin  # the wait is no part of the work
            yield

    def _wait(self, reason: str) -> None:
        """Say what the task waits for; the time is not counted against its limit."""
        self.launcher.working(self.task.name, False)
        self.launcher.logging_observer.note(self.task.name, reason)

    def _attempt(self, resolved: ResolvedTask, claim: Claim, reason: str, retries: Retries) -> NodeResult | None:
        from .attempt import Attempt  # late: a run that reuses everything attempts nothing

        launcher, name = self.launcher, self.task.name
        reason += retries.as_reason
        attempt = Attempt(
            launcher.home,
            launcher.run,
            self.task,
            resolved,
            claim,
            launcher.records.contexts(self.task),
            reason,
            launcher.logging_observer,
            launcher.cancel,
            retries,
            self.begin if retries.done == 0 else time.monotonic(),
        )
        launcher.logs.begin(name, retries.done)
        launcher.working(name, True)
        try:
            execution, outcome = attempt.execute(self.begun)
        except LeaseLost as lost:
            if len(self.begun) > retries.most + _LOST_LEASES:
                raise DrivetrainError(
                    f"{name} was begun {len(self.begun)} times, more than its retries allow: {lost.message}",
                    fix="`drivetrain fsck` checks the database; see that this machine does not sleep for minutes",
                ) from lost
            launcher.logging_observer.note(name, lost.message)  # who took over will publish, and is waited for
            retries.take_back()
            return None
        if not isinstance(outcome, BaseException):
            self._keep_record(execution)
            return launcher.records.succeeded(self.task, execution, reason, outcome)
        launcher.logs.write(name, format_traceback(outcome, whole=True))
        result = NodeResult.failed(name, outcome, execution.seconds or 0.0)
        if (pause := retries.planned) is None:
            return result
        launcher.logging_observer.note(name, retries.announced(brief(outcome)))
        if self.retried is not None:
            return replace(result, again=pause)
        self._pause(pause)
        return None

    def _keep_record(self, execution: ExecutionRecord) -> None:
        """Record beside the payloads what the store has now, to make it anew if it is lost; pods do so themselves."""
        home, run = self.launcher.home, self.launcher.run
        if run.options.runner == "kubeflow":
            return
        try:
            keep_record(home, run, self.task.name, execution)
        except (OSError, DrivetrainError) as error:  # the work is done and known all the same
            self.launcher.logging_observer.note(self.task.name, f"no record was kept beside the payloads: {error}")

    def _pause(self, seconds: float) -> None:
        if self.launcher.cancel.wait(seconds):
            raise Canceled("the run was stopped")
