"""`why`: for what reason a node ran, or did not."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import click

from ..metadata import ArtifactRecord, Change, ExecutionRecord, cache_key, changes
from ..metadata.errors import StoreDamaged
from ..pipelines import Home, Run, open_run
from ..pipelines.launcher.states import EndState
from .differences import can_be_compared, difference, lines, output_difference
from .exit_codes import OK
from .live import STYLES
from .options import ConsoleSettings, print_text, shared
from .session import origin, run_of, view

if TYPE_CHECKING:
    from rich.console import Console


_FINGERPRINTS: Final = re.compile(r": fingerprint \w+… -> \w+…")  # of inputs: nothing for people
_INPUT: Final = re.compile(r"input (\w+)")  # how a line begins that `explain` has of an input


@click.command(epilog="\b\nExample:\n  drivetrain why Transform\n  drivetrain why Trainer --run 20261121-093000-1a2b\n")
@click.argument("node")
@click.option("--run", "run_id", metavar="RUN", help="In which run; the newest unless given.")
@shared
def why(settings: ConsoleSettings, node: str, run_id: str | None) -> int:
    """Say why NODE ran, or why not: which part of its cache key changed since its last execution before that run."""
    with settings.home() as home:
        answer = _why(home, open_run(home, run_id), node)
        settings.answer(answer, lambda console: _show_why(console, answer))
    return OK


def _why(home: Home, run: Run, node: str) -> dict[str, object]:
    node_view = view(home, run)[node]
    answer: dict[str, object] = {"run": run.id, "node": node, "state": node_view.state, "reason": node_view.reason}
    if node_view.execution is None:
        return answer
    execution = home.store.execution(node_view.execution)
    answer["cache_key"] = execution.cache_key
    if node_view.state is EndState.CACHED:
        return answer | {"cached_from": origin(home, execution)}
    now = _preimage(home, execution.cache_key) if execution.cache_key else None
    before = _before(home, run, node, execution)
    if now is None or before is None or before.cache_key is None:
        return answer | {"compared_with": None, "changes": []}
    old = _preimage(home, before.cache_key) or {}
    differing = changes(old, now)
    inputs, inputs_before = home.store.inputs(execution), home.store.inputs(before)
    changed = [name for name, uids in now["inputs"].items() if old.get("inputs", {}).get(name, uids) != uids]
    return answer | {
        "compared_with": {"run": run_of(home, before), "state": before.state},
        "changes": [change.line for change in differing],
        "differences": [difference(home, change, inputs_before, inputs) for change in _once_each(differing)],
        "outputs": _outputs(home, before, execution) if any(_is_of_data(change) for change in differing) else [],
        "causes": {
            name: cause
            for name in changed
            if (cause := _causes(home, run, inputs.get(name, []), inputs_before.get(name, [])))
        },
    }


def _preimage(home: Home, key: str) -> dict[str, Any] | None:
    """What a cache key digests, if it was kept; raises StoreDamaged where what was kept is something else."""
    preimage = home.store.preimage(key)
    if preimage is not None and cache_key(preimage) != key:
        raise StoreDamaged(home.store.location, f"what is kept for the cache key {key[:12]}… has another digest")
    return preimage


def _is_of_data(change: Change) -> bool:
    """Whether files or the rows of a query are others."""
    return change.path[:1] == ("parameters",) and not {"$files", "$query"}.isdisjoint(change.path)


def _outputs(home: Home, old: ExecutionRecord, new: ExecutionRecord) -> list[dict[str, object]]:
    """How outputs that were read from other files differ from those before."""
    before, now = home.store.outputs(old), home.store.outputs(new)
    return [
        output_difference(home, name, before[name], records)
        for name, records in now.items()
        if name in before and can_be_compared(records[0])
    ]


def _once_each(differing: Iterable[Change]) -> Iterator[Change]:
    """The changes, of several artifacts of an input the first one alone: what is said of it is of all of them."""
    inputs: set[str] = set()
    for change in differing:
        if change.path[:1] == ("inputs",) and len(change.path) > 1:
            if change.path[1] in inputs:
                continue
            inputs.add(change.path[1])
        yield change


def _causes(home: Home, run: Run, records: list[ArtifactRecord], before: list[ArtifactRecord]) -> str:
    """Why an input is another, of each artifact that it did not have before, each reason once."""
    known = {record.fingerprint for record in before}
    new = [record for record in records if record.fingerprint not in known] or records
    return "; ".join(dict.fromkeys(cause for record in new if (cause := _cause(home, run, [record]))))


def _cause(home: Home, run: Run, records: list[ArtifactRecord]) -> str:
    """Why an input is another: the way up past all that ran only because its own inputs were others."""
    cause = ""
    while records and records[-1].producer is not None:
        execution = home.store.execution(records[-1].producer)
        producer = execution.properties.get("node", execution.component)
        if (maker := run_of(home, execution)) not in (None, run.id):
            # Why it ran in that run says nothing of this one, in which it may have made something else.
            return f"{producer} made it in run {maker}"
        reasons = str(execution.properties.get("reason", "")).split("; ")
        cause = f"{producer} ran: {'; '.join(reasons)}"
        cause = _FINGERPRINTS.sub("", cause)
        names = [match[1] for reason in reasons if (match := _INPUT.match(reason))]
        records = home.store.inputs(execution).get(names[0], []) if len(names) == len(reasons) else []
    return cause


def _before(home: Home, run: Run, node: str, execution: ExecutionRecord) -> ExecutionRecord | None:
    """The last execution of a node, in an earlier run, that got as far as a cache key."""
    context = home.store.find_context("node", f"{run.pipeline.name}.{node.partition('[')[0]}")
    if context is None:
        return None
    for earlier in home.store.executions(contexts=[context]):
        same = earlier.properties.get("node", node) == node
        if same and earlier.id < execution.id and earlier.cache_key and run_of(home, earlier) != run.id:
            return earlier
    return None


def _show_why(console: Console, answer: Mapping[str, Any]) -> None:
    from rich.text import Text

    state = str(answer["state"])
    console.print(Text.assemble(f"{answer['node']} in run {answer['run']}: ", (state, STYLES[state])))
    compared = answer.get("compared_with")
    if not isinstance(compared, dict):
        console.print(f"  {answer['reason']}", markup=False)
        return
    if not answer["changes"]:
        console.print(f"  {answer['reason']}", markup=False)
        console.print(f"  its key is that of run {compared['run']} ({compared['state']})", markup=False)
        return
    reason = str(answer["reason"])
    if reason and not any(line in reason for line in answer["changes"]):
        # What it did before was looked for and stands no more: the last execution before may have done something else.
        console.print(f"  {reason}", markup=False)
    console.print(f"  since run {compared['run']}:", markup=False)
    for each in [*answer["differences"], *answer["outputs"]]:
        (headline, _), *rest = lines(each)
        print_text(console, f"  - {headline}")
        for line, style in rest:
            console.print(Text(f"      {line}", style=style), soft_wrap=True)
        if cause := answer["causes"].get(each.get("input")):
            print_text(console, f"    {cause}")
