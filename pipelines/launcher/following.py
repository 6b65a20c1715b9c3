"""Runs followed from outside, as a catalog is told of them: those that changed since the last time, or are at work."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

from .home import Home
from .runs import Run, UnreadableRun, read_run
from .states import RunState


def follow_runs(
    home: Home,
    kind: str,
    name: str,
    handle: Callable[[Run | UnreadableRun, Any], Any],  # Any: JSON that it remembers
) -> int:
    """Hand on each run that has changed since the last call, and each that was at work then; gives how many.

    How far it came is kept in the store after each run, so a call that fails is gone on with by the next.

    Args:
        home: The root, open to write.
        kind: The type of the context that remembers.
        name: Its name: who is told.
        handle: Called with a run, and with what it returned for that run while it was at work (None at first).
    """
    store = home.store
    record = store.context(kind, name, {"at_work": {}, "until": None})
    at_work: dict[str, Any] = dict(record.properties["at_work"])
    until = record.properties["until"]
    after = None if until is None else datetime.fromisoformat(until)
    contexts = {each.name: each for each in store.contexts("run", limit=None, changed_after=after)}
    for run_id in at_work.keys() - contexts.keys():
        if (context := store.find_context("run", run_id)) is not None:
            contexts[run_id] = context
    # By when they changed: what is kept says of all runs up to a moment that they were handed on.
    for context in sorted(contexts.values(), key=lambda context: (context.updated_at, context.id)):
        run = read_run(home, context)
        remembered = handle(run, at_work.pop(run.id, None))
        if str(run.state) == RunState.RUNNING:
            at_work[run.id] = remembered
        after = max(each for each in (after, context.updated_at) if each is not None)
        record = store.update_context(record, {"at_work": at_work, "until": after.isoformat()})
    return len(contexts)
