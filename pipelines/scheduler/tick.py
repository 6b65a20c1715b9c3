"""One look at a schedule: whether a run is due, and if so, its start written down before anything starts."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from ...redaction import redact
from ..launcher.home import Home
from ..launcher.runs import new_run_id, open_run
from ..launcher.states import RunState
from ..triggers.trigger import Signal, TriggerView
from .records import PendingRun, ScheduleRecord, Tick, change, record_tick


@dataclass(frozen=True)
class TickDecision:
    """What a look decided.

    Attributes:
        record: The schedule afterwards.
        signal: What its trigger said.
        run: The id of the run that is to begin now, "" for none.
    """

    record: ScheduleRecord
    signal: Signal
    run: str


def decide_tick(home: Home, record: ScheduleRecord, view: TriggerView) -> TickDecision:
    """Look at a schedule that has no pending run; a run that is due becomes its pending one.

    Nothing is written where it says what it said before and remembers what it did.

    Raises:
        ConflictError: Another process changed the schedule meanwhile; look again.
    """
    signal = record.schedule.trigger.check(view, record.marks)
    active = [run for run in record.active if _is_active(home, run)]
    waits = signal.due and len(active) >= record.schedule.max_active
    starts = signal.due and not waits
    reason = redact(f"{signal.reason}; waits for run {active[0]}" if waits else signal.reason)
    keys = record.schedule.trigger.keys
    merged = {**record.marks, **(signal.started if starts else signal.marks)}
    marks = {key: mark for key, mark in merged.items() if key in keys and mark is not None}
    run = new_run_id(view.now) if starts else ""
    changes: dict[str, object] = {"marks": marks, "said": reason}
    if starts:
        changes |= {
            "pending": {"run": run, "at": view.now.isoformat(), "reason": reason},
            "active": [*active, run],
        }
    elif (reason, marks) == (record.said, record.marks):
        return TickDecision(record, signal, "")
    said_before = record.said
    context = home.store.update_context(record.context, changes, expected_version=record.context.version)
    record = ScheduleRecord.of(context)
    if starts or reason != said_before:
        record_tick(home, record.name, Tick(view.now, run, reason))
    return TickDecision(record, signal, run)


def settle(home: Home, record: ScheduleRecord) -> ScheduleRecord:
    """A schedule whose pending run has begun, without it; as it is where the run has not begun.

    The log is told again: whoever decided may have died before.
    """
    pending = record.pending
    if pending is None or home.store.find_context("run", pending.run) is None:
        return record
    record_tick(home, record.name, Tick(pending.at, pending.run, pending.reason))
    return change(home, record, lambda now: {"pending": None} if now.pending == pending else {})


def give_up(home: Home, record: ScheduleRecord, pending: PendingRun, reason: str, now: datetime) -> ScheduleRecord:
    """A schedule whose pending run could not begin, without it; the log says why."""
    record_tick(home, record.name, Tick(now, "", f"run {pending.run} could not begin: {reason}", failed=True))

    def without(current: ScheduleRecord) -> dict[str, object]:
        if current.pending != pending:
            return {}
        return {"pending": None, "active": [run for run in current.active if run != pending.run]}

    return change(home, record, without)


def is_interrupted(home: Home, run: str) -> bool:
    """Whether the process of a run died."""
    return home.store.find_context("run", run) is not None and open_run(home, run).state is RunState.INTERRUPTED


def _is_active(home: Home, run: str) -> bool:
    """Whether a run that was started is at work, or has yet to begin."""
    context = home.store.find_context("run", run)
    return context is None or open_run(home, run).state is RunState.RUNNING
