"""The runs that a filter fits: `state = 'FAILED' and metric.auc > 0.9 and parameter.epochs > 2`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ...metadata.filters import Field, Fields
from ...metadata.finding import Page, RecordQuery
from .home import Home
from .runs import Run, UnreadableRun, read_run, recorded_runs
from .states import RunState

_OF_EXECUTIONS: Final = (
    "EXISTS (SELECT 1 FROM association s JOIN execution x ON x.id = s.execution_id WHERE s.context_id = c.id AND {})"
)
_OF_ARTIFACTS: Final = (
    "EXISTS (SELECT 1 FROM attribution s JOIN artifact z ON z.id = s.artifact_id WHERE s.context_id = c.id AND {})"
)


def find_runs(home: Home, query: RecordQuery) -> Page[Run | UnreadableRun]:
    """A page of runs.

    A filter names `run` (the id), `pipeline`, `state`, `started`, `changed`, `note`, `project`, `tag.NAME`,
    `parameter.NAME`, and `metric.NAME` of any node or of what a node made.

    Raises:
        InputError: The filter, the order or `after` is none.
    """
    at_work = recorded_runs(home, None, lambda context: context.properties.get("state") == RunState.RUNNING)
    interrupted = [run.context.id for run in at_work if run.state == RunState.INTERRUPTED]
    page = home.store.find_contexts("run", _fields(home, interrupted), query)
    return Page([read_run(home, context) for context in page.records], page.next)


def _fields(home: Home, interrupted: Iterable[int]) -> Fields:
    state = "c.properties ->> 'state'"
    if numbers := ", ".join(map(str, interrupted)):  # the record does not say that a process died
        state = f"CASE WHEN c.id IN ({numbers}) THEN '{RunState.INTERRUPTED}' ELSE {state} END"
    return {
        "id": [Field("number", "c.id")],
        "run": [Field("text", "c.name")],
        "state": [Field("text", f"({state})")],
        **{name: [Field("text", f"(c.properties ->> '{name}')")] for name in ("pipeline", "note", "project")},
        "started": [Field("time", "c.created_at")],
        "changed": [Field("time", "c.updated_at")],
        "tag": [Field("json", "c.properties", ("tags",))],
        "parameter": [Field("json", home.store.as_json("(c.properties ->> 'parameters')"))],
        "metric": [
            Field("json", "x.properties", ("metrics",), _OF_EXECUTIONS),
            Field("json", "z.properties", ("metrics",), _OF_ARTIFACTS),
        ],
    }
