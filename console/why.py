"""`why`: for what reason a node ran, or did not."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import click

from ..metadata import ArtifactRecord, ExecutionRecord, explain
from ..pipelines import Home, Run, open_run
from .exit_codes import OK
from .live import STYLES
from .options import ConsoleSettings, shared
from .session import origin, run_of, view

if TYPE_CHECKING:
    from rich.console import Console


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
    if execution.state == "CACHED":
        return answer | {"cached_from": origin(home, execution)}
    now = home.store.preimage(execution.cache_key) if execution.cache_key else None
    before = _before(home, run, node, execution)
    if now is None or before is None or before.cache_key is None:
        return answer | {"compared_with": None, "changes": []}
    old = home.store.preimage(before.cache_key) or {}
    inputs = home.store.inputs(execution)
    changed = [name for name, uids in now["inputs"].items() if old.get("inputs", {}).get(name, uids) != uids]
    return answer | {
        "compared_with": {"run": run_of(home, before), "state": before.state},
        "changes": explain(old, now),
        "causes": {name: cause for name in changed if (cause := _cause(home, inputs.get(name, [])))},
    }


def _cause(home: Home, records: list[ArtifactRecord]) -> str:
    """Why an input is another: the way up past all that ran only because its own inputs were others."""
    cause = ""
    while records and records[-1].producer is not None:
        execution = home.store.execution(records[-1].producer)
        reasons = str(execution.properties.get("reason", "")).split("; ")
        cause = f"{execution.properties.get('node', execution.component)} ran: {'; '.join(reasons)}"
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


def _show_why(console: Console, answer: Mapping[str, object]) -> None:
    from rich.text import Text

    state = str(answer["state"])
    console.print(Text.assemble(f"{answer['node']} in run {answer['run']}: ", (state, STYLES[state])))
    changes, compared = answer.get("changes"), answer.get("compared_with")
    if not isinstance(compared, dict):
        console.print(f"  {answer['reason']}", markup=False)
        return
    if not changes:
        console.print(f"  {answer['reason']}", markup=False)
        console.print(f"  its key is that of run {compared['run']} ({compared['state']})", markup=False)
        return
    assert isinstance(changes, list)
    console.print(f"  since run {compared['run']}:", markup=False)
    for line in changes:
        console.print(f"  - {line}", markup=False, soft_wrap=True)
        match, causes = _INPUT.match(line), answer["causes"]
        if match and isinstance(causes, dict) and match[1] in causes:
            console.print(f"    {causes[match[1]]}", markup=False, soft_wrap=True)
