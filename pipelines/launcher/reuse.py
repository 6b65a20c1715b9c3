"""Whether an earlier execution can stand in for a task's work; if not, what changed since."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ...metadata import Change, ContextRecord, ExecutionRecord, changes, explain
from ..dsl.component import Withdrawn
from ..ir.ir import Node
from ..project.reads import first_changed
from .home import Home
from .resolve import ResolvedTask
from .runs import Run


def done_before(home: Home, run: Run, work: ResolvedTask) -> tuple[ExecutionRecord | None, str]:
    """The execution that did this work, if all that it made is still there, and all that it read is as it was.

    Returns:
        The execution, and which of its effects somebody has undone on purpose, "" for none. Else None and what is gone
        or changed, "" where none did.
    """
    hit = home.store.find_cached(work.key)
    if hit is None:
        return None, ""
    if changed := change_since(hit.properties, run, work):
        earlier = home.store.executions(cache_key=work.key, state="COMPLETE")
        hit = next((each for each in earlier if not change_since(each.properties, run, work)), None)
        if hit is None:
            return None, changed
    outputs = home.store.outputs(hit)
    for records in outputs.values():
        for record in records:
            if not home.payloads.present(record.uri):
                return None, f"{record.uri} is gone from the disk"
    if work.component.verify is not None:
        artifacts = {key: home.artifact(work.component.outputs[key], r[0]) for key, r in outputs.items()}
        undone = work.component.verify(artifacts, work.parameters, home.base)
        if isinstance(undone, Withdrawn):
            return hit, undone.reason
        if undone:
            return None, undone
    return hit, ""


def change_since(about: Mapping[str, Any], run: Run, work: ResolvedTask) -> str:  # Any: JSON from the store
    """What an execution of the same work read that is not as it was: a file, a property of an input; "" for none.

    Args:
        about: What the execution recorded of itself: `reads` (see `project.reads`) and `properties_read`.
        run: The run that is to use it.
        work: The work, as it would be done now.
    """
    if (changed := first_changed(about.get("reads", ()), run.project)) is not None:
        return f"{changed}, which its code reads, changed"
    before = about.get("properties_read", {})
    return next(iter(explain({"inputs": before}, {"inputs": properties_of(work, before)})), "")


def properties_of(work: ResolvedTask, names: Mapping[str, Sequence[Iterable[str]]]) -> dict[str, list[dict[str, Any]]]:
    """The named properties of a work's inputs, by input: of each artifact name -> value."""
    return {
        name: [
            {each: record.properties.get(each) for each in sorted(wanted)}
            for record, wanted in zip(work.inputs[name], of_each, strict=False)
        ]
        for name, of_each in names.items()
    }


def what_changed(home: Home, run: Run, node: Node, context: ContextRecord, work: ResolvedTask) -> str:
    """Why no earlier execution has this key: what changed since the node last ran, in any run.

    Args:
        home: Where the runs lie.
        run: The run.
        node: The node.
        context: The node's, over all runs.
        work: What its key is made of now.
    """
    # Beside an item, the others of the run say nothing: they differ in any run.
    last = home.store.last_preimage(node.component, context, outside=run.context if node.loop else None)
    if last is None:
        return "first run"
    differing = changes(last, work.preimage)
    differing.sort(key=_is_of_data)  # what somebody edited comes first, and is not counted among what is left out
    more = f" (and {len(differing) - 3} more)" if len(differing) > 3 else ""
    return "; ".join(change.line for change in differing[:3]) + more if differing else _end(home, work)


def _is_of_data(change: Change) -> bool:
    """Whether files, their span or the rows of a query are others."""
    return not {"$files", "$query", "$span"}.isdisjoint(change.path)


def _end(home: Home, work: ResolvedTask) -> str:
    """How the last execution of this work ended, which did not do it."""
    from ...metadata.fsck import retired_by_repair

    (last,) = home.store.executions(cache_key=work.key, limit=1)
    if last.state in ("COMPLETE", "CACHED") and retired_by_repair(home.store, last):
        return "what its last execution made was retired by `drivetrain fsck --repair`"
    reason = str(last.properties.get("reason", "")).partition("\n")[0]
    error = (last.error or "abandoned").partition("\n")[0]
    return {
        "FAILED": f"its last execution failed: {reason}",
        "CANCELED": "its last execution was stopped",
        "ABANDONED": f"its last execution was {error}",
        "RUNNING": f"{last.owner} did not finish it",
    }.get(last.state, "what its last execution made has been deleted")
