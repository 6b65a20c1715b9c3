"""The runs that a filter fits: `state = 'FAILED' and metric.auc > 0.9 and parameter.epochs > 2`."""

from __future__ import annotations

from ...metadata.finding import Page, RecordQuery
from .home import Home
from .runs import Run, UnreadableRun, read_run, recorded_runs
from .states import RunState


def find_runs(home: Home, query: RecordQuery) -> Page[Run | UnreadableRun]:
    """A page of runs.

    A filter names `run` (the id), `pipeline`, `state`, `started`, `changed`, `note`, `project`, `tag.NAME`,
    `parameter.NAME`, and `metric.NAME` of any node or of what a node made.

    Raises:
        InputError: The filter, the order or `after` is not valid.
    """
    at_work = recorded_runs(home, None, lambda context: context.properties.get("state") == RunState.RUNNING)
    interrupted = [run.context.id for run in at_work if run.state == RunState.INTERRUPTED]
    page = home.store.find_runs(query, interrupted)
    return Page([read_run(home, context) for context in page.records], page.next)
