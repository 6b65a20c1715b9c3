"""Runs, executions and artifacts that a filter fits: as JSON, and as a DataFrame."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ..errors import InputError, missing_extra
from ..metadata import ArtifactRecord, ExecutionRecord
from ..pipelines import Home
from .lineage import node_of
from .run_table import facts, opened_root

if TYPE_CHECKING:
    import pandas as pd

    from ..metadata.finding import RecordQuery

KINDS: Final = ("runs", "executions", "artifacts")
"""What can be found."""
_COLUMNS: Final = {
    "runs": ("run", "pipeline", "state", "started", "finished", "blessed", "note"),
    "executions": (
        "id", "uid", "component", "node", "run", "state", "created", "started", "finished", "seconds", "error",
    ),
    "artifacts": ("id", "uid", "type", "name", "state", "uri", "fingerprint", "size", "created", "updated"),
}  # fmt: skip
"""The columns that a DataFrame of each has, also where nothing was found."""


def find(
    kind: str,
    where: str = "",
    root: str | Path | None = None,
    store: str | None = None,
    *,
    order: str = "-id",
    limit: int | None = None,
) -> pd.DataFrame:
    """The runs, executions or artifacts that a filter fits, as a DataFrame: what `drivetrain find` shows.

    Columns are the fields; `metrics.NAME` for each metric, `properties.NAME` for what else an artifact or an execution
    records, `parameters.NAME` and `tags.NAME` of runs.

    Args:
        kind: "runs", "executions" or "artifacts".
        where: The filter, such as "state = 'FAILED' and metric.auc > 0.9"; all where empty. See docs/finding.md.
        root: Where the runs lie; where None, the root that `drivetrain find` looks at in the working directory.
        store: Where the metadata lies, if not in the root.
        order: The field to sort by, the smallest first; with a - before it the largest.
        limit: So many at most; all where None.

    Raises:
        InputError: There is no such root, or the filter or the order is not valid.
        DrivetrainError: pandas is not installed.
    """
    try:
        import pandas as pd
    except ImportError:
        raise missing_extra("pandas", "pandas") from None
    from ..metadata.finding import RecordQuery

    if kind not in KINDS:
        raise InputError(f"{kind!r:.40} is nothing to find", fix=f"name {', '.join(KINDS[:-1])} or {KINDS[-1]}")
    records: list[dict[str, Any]] = []
    with opened_root(root, store) as home:
        after: str | None = None
        while limit is None or len(records) < limit:
            size = 500 if limit is None else min(500, limit - len(records))
            some, after = page_of(home, kind, RecordQuery(where, order, size, after))
            records += some
            if after is None:
                break
    frame = pd.json_normalize(records) if records else pd.DataFrame(columns=list(_COLUMNS[kind]))
    for name in ("created", "updated", "started", "finished"):
        if name in frame:
            frame[name] = pd.to_datetime(frame[name], utc=True, format="ISO8601")
    return frame


def page_of(home: Home, kind: str, query: RecordQuery) -> tuple[list[dict[str, Any]], str | None]:
    """The records of a page as JSON, and where the next begins."""
    from ..pipelines.launcher.finding import find_runs

    if kind == "runs":
        runs = find_runs(home, query)
        return [facts(home, run).to_json() for run in runs.records], runs.next
    if kind == "executions":
        dead = {each.id for each in home.store.executions(state="RUNNING") if home.store.is_dead(each)}
        executions = home.store.find_executions(query, sorted(dead))
        states = {each.id: "ABANDONED" if each.id in dead else each.state for each in executions.records}
        return [{**_execution(each), "state": states[each.id]} for each in executions.records], executions.next
    artifacts = home.store.find_artifacts(query)
    return [_artifact(each) for each in artifacts.records], artifacts.next


def _execution(record: ExecutionRecord) -> dict[str, Any]:
    others = {name: value for name, value in record.properties.items() if name not in ("metrics", "node", "run")}
    return {
        "id": record.id,
        "uid": record.uid,
        "component": record.component,
        "node": node_of(record),
        "run": record.properties.get("run"),
        "state": record.state,
        "created": record.created_at.isoformat(),
        "started": record.started_at.isoformat() if record.started_at else None,
        "finished": record.finished_at.isoformat() if record.finished_at else None,
        "seconds": record.seconds,
        "error": record.error,
        "metrics": dict(record.metrics),
        "properties": others,
    }


def _artifact(record: ArtifactRecord) -> dict[str, Any]:
    return {
        "id": record.id,
        "uid": record.uid,
        "type": record.type,
        "name": record.name,
        "state": record.state,
        "uri": record.external or record.uri,
        "fingerprint": record.fingerprint,
        "size": record.size,
        "created": record.created_at.isoformat(),
        "updated": record.updated_at.isoformat(),
        "metrics": dict(record.metrics),
        "properties": {name: value for name, value in record.properties.items() if name != "metrics"},
    }
