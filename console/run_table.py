"""Runs beside each other, with their metrics, blessing, parameters and tags: for people, as JSON, as a DataFrame."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ..errors import InputError, missing_extra, suggest
from ..metadata import ContextRecord, Evaluation, ExecutionRecord
from ..metadata.records import Metrics
from ..pipelines import Home, Run, UnreadableRun, find_root, recorded_runs
from .live import STYLES, number
from .options import parse_tag, tags_text

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import Console

_LONGEST: Final = 24
"""Characters of a parameter's value that a line has room for."""
_NOTE: Final = 20
"""Columns of the terminal that notes get at least."""


@dataclass(frozen=True)
class RunFacts:
    """What is shown of a run among others.

    Attributes:
        run: The run.
        metrics: Of each task that recorded any, or reused what another recorded.
        blessed: Whether every `Evaluation` of the run is; None where it has none.
    """

    run: Run | UnreadableRun
    metrics: Mapping[str, Metrics] = field(default_factory=dict)
    blessed: bool | None = None

    @property
    def parameters(self) -> Mapping[str, object]:
        """The parameters of the pipeline; none where they cannot be read."""
        return self.run.parameters if isinstance(self.run, Run) else {}

    @property
    def pipeline(self) -> str:
        """The pipeline's name; "" where the record does not say it."""
        return str(self.recorded("pipeline") or "")

    def recorded(self, name: str) -> Any:  # Any: JSON
        """What the run's record says, None where it does not."""
        return self.run.context.properties.get(name)

    def to_json(self) -> dict[str, Any]:
        """What `--json` prints; of a run that cannot be read, what its record says, and why, as `unreadable`."""
        return {
            "run": self.run.id,
            "pipeline": self.recorded("pipeline"),
            "state": self.run.state,
            "started": self.recorded("started"),
            "finished": self.recorded("finished"),
            "parameters": dict(self.run.parameters) if isinstance(self.run, Run) else None,
            "blessed": self.blessed,
            "metrics": {task: dict(metrics) for task, metrics in self.metrics.items()},
            "tags": self.recorded("tags") or {},
            "note": self.recorded("note") or "",
            **({} if isinstance(self.run, Run) else {"unreadable": self.run.error.message}),
        }


@dataclass(frozen=True)
class _Column:
    """One that may be printed: of a "name" or a "state", of a "number", or of a "text", which may be folded."""

    title: str
    kind: str
    cells: tuple[str, ...]

    @property
    def width(self) -> int:
        """Characters that the widest cell or the title takes, and two of a gap."""
        return max(map(len, (self.title, *self.cells))) + 2


@dataclass(frozen=True)
class RunTable:
    """Runs in the order in which they are shown."""

    rows: tuple[RunFacts, ...]

    @cached_property
    def metrics(self) -> dict[str, Callable[[RunFacts], float | None]]:
        """The columns of metrics: how each is read from a row.

        A metric that no run has of two tasks is a column of its own name; else each task's is one, "Evaluator.auc".
        """
        tasks: dict[str, dict[str, None]] = {}  # by metric; in order, unlike a set
        shared: set[str] = set()
        for row in self.rows:
            here: set[str] = set()
            for task, metrics in row.metrics.items():
                shared |= here & metrics.keys()
                here |= metrics.keys()
                for name in metrics:
                    tasks.setdefault(name, {})[task] = None
        columns: dict[str, Callable[[RunFacts], float | None]] = {}
        for name in sorted(tasks):
            if name in shared:
                columns |= {f"{task}.{name}": _of_task(task, name) for task in sorted(tasks[name])}
            else:
                columns[name] = _of_any_task(name)
        return columns

    @cached_property
    def parameters(self) -> tuple[str, ...]:
        """The parameters of all runs, in the order of the pipelines' signatures."""
        return tuple(dict.fromkeys(name for row in self.rows for name in row.parameters))

    @cached_property
    def changed(self) -> tuple[str, ...]:
        """The parameters that do not have one value in all runs of the pipelines that have them."""
        return tuple(name for name in self.parameters if len(self._values(name)) > 1)

    def _values(self, name: str) -> set[str | None]:
        """What a parameter is in the runs; None where it was not there yet, or is not any more."""
        pipelines = {row.pipeline for row in self.rows if name in row.parameters}
        rows = [row for row in self.rows if row.pipeline in pipelines and isinstance(row.run, Run)]
        return {spelled(row.parameters[name]) if name in row.parameters else None for row in rows}

    def _unchanged(self) -> Iterator[str]:
        """The other parameters with the value that they have, a line for each pipeline."""
        pipelines = {row.pipeline: row.parameters for row in self.rows if isinstance(row.run, Run)}
        for pipeline, parameters in pipelines.items():
            values = [f"{name}={spelled(value)}" for name, value in parameters.items() if name not in self.changed]
            if values:
                yield f"{pipeline if len(pipelines) > 1 else 'all'} with {', '.join(values)}"

    def sorted(self, by: str) -> RunTable:
        """The rows by a metric or a parameter; with a - before its name the largest first. Those without it are last.

        Raises:
            InputError: No run has it.
        """
        name, down = by.removeprefix("-"), by.startswith("-")
        if name in self.metrics:
            key: Callable[[RunFacts], Any] = self.metrics[name]
        elif name in self.parameters:
            numeric = all(isinstance(row.parameters.get(name), (int, float, type(None))) for row in self.rows)

            def key(row: RunFacts) -> Any:
                value = row.parameters.get(name)
                return value if numeric or value is None else spelled(value)
        else:
            raise InputError(
                f"no run has a metric or a parameter {name!r:.60}", fix=suggest(name, [*self.metrics, *self.parameters])
            )
        with_it = sorted((row for row in self.rows if key(row) is not None), key=key, reverse=down)
        return RunTable((*with_it, *(row for row in self.rows if key(row) is None)))

    def show(self, console: Console, first: Iterable[str] = ()) -> None:
        """Print it: as many of the metrics and changed parameters as there is room for, and which ones are not shown.

        Args:
            console: Where to.
            first: Metrics that come first.
        """
        from rich.markup import escape
        from rich.table import Table
        from rich.text import Text

        columns, hidden = self._fitting(console.width, first)
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
        for column in columns:
            folds = column.kind == "text"
            table.add_column(
                escape(column.title),
                justify="right" if column.kind == "number" else "left",
                no_wrap=not folds,
                overflow="fold" if folds else "ellipsis",
            )
        for cells in zip(*(column.cells for column in columns), strict=True):
            # A newer release may have states of its own.
            styles = (
                STYLES.get(cell, "dim") if c.kind == "state" else "" for c, cell in zip(columns, cells, strict=True)
            )
            table.add_row(*map(Text, cells, styles))
        console.print(table)
        hint = [f"no room for {', '.join(hidden)}: --json and dt.runs() have all"] if hidden else []
        for line in (*self._unchanged(), *hint):
            console.print(line, markup=False, soft_wrap=True, style="dim")

    def _fitting(self, width: int, first: Iterable[str]) -> tuple[list[_Column], list[str]]:
        """The columns that fit, and the titles of those that do not.

        A metric gives way before a parameter: the rest of a run's metrics is its evaluation's.
        """

        def column(title: str, kind: str, cell: Callable[[RunFacts], str]) -> _Column:
            return _Column(title, kind, tuple(map(cell, self.rows)))

        blessed = {True: "yes", False: "no", None: ""}
        front = [
            column("run", "name", lambda row: row.run.id),
            column("pipeline", "name", lambda row: row.pipeline),
            column("state", "state", lambda row: row.run.state),
            column("started (UTC)", "name", lambda row: str(row.recorded("started") or "")[:16].replace("T", " ")),
            column("blessed", "name", lambda row: blessed[row.blessed]),
        ]
        if len(set(front[1].cells)) == 1:
            del front[1]
        back = [
            column("tags", "text", lambda row: tags_text(row.recorded("tags") or {})),
            column("note", "text", _note),
        ]
        front, back = ([column for column in columns if any(column.cells)] for columns in (front, back))
        names = dict.fromkeys((*(name for name in first if name in self.metrics), *self.metrics))
        metrics = [column(name, "number", partial(_cell, self.metrics[name])) for name in names]
        parameters = [column(name, "number", partial(_parameter, name)) for name in self.changed]
        room = width - sum(each.width for each in front) - sum(min(each.width, _NOTE) for each in back)
        hidden: list[str] = []
        # All metrics but the first go before a parameter does, and the first goes last of all: a table of runs without
        # any figure would say nothing.
        for several, least in ((metrics, 1), (parameters, 0), (metrics, 0)):
            while len(several) > least and sum(each.width for each in metrics + parameters) - 2 > room:
                hidden.insert(0, several.pop().title)
        return [*front, *metrics, *parameters, *back], hidden

    def to_pandas(self) -> pd.DataFrame:
        """A row for each run. See `runs`."""
        try:
            import pandas as pd
        except ImportError:
            raise missing_extra("pandas", "pandas") from None

        def time(name: str) -> Any:
            times = [value and datetime.fromisoformat(value) for value in (row.recorded(name) for row in self.rows)]
            return pd.Series(times, dtype="datetime64[us, UTC]")

        columns: dict[str, Any] = {
            "run": [row.run.id for row in self.rows],
            "pipeline": [row.pipeline for row in self.rows],
            "state": [row.run.state for row in self.rows],
            "started": time("started"),
            "finished": time("finished"),
            "blessed": pd.Series([row.blessed for row in self.rows], dtype="boolean"),
            "note": [row.recorded("note") or "" for row in self.rows],
        }
        for name in self.parameters:
            columns[f"params.{name}"] = [row.parameters.get(name) for row in self.rows]
        for name, of in self.metrics.items():
            columns[f"metrics.{name}"] = pd.Series([of(row) for row in self.rows], dtype="float64")
        for name in dict.fromkeys(name for row in self.rows for name in row.recorded("tags") or {}):
            columns[f"tags.{name}"] = [(row.recorded("tags") or {}).get(name) for row in self.rows]
        return pd.DataFrame(columns)


def runs(
    root: str | Path | None = None,
    store: str | None = None,
    *,
    tags: Sequence[str] = (),
    sort: str | None = None,
    limit: int | None = None,
) -> pd.DataFrame:
    """The runs of a root as a DataFrame, the newest first: what `drivetrain runs` shows.

    Columns: `run` (its id), `pipeline`, `state`, `started` and `finished` (UTC), `blessed` (whether every Evaluation of
    the run is; NA without one), `note`; `params.NAME` as the run was given them, None where its pipeline has none;
    `metrics.NAME` (float64, NaN where there is none), of a node that was reused what it reused; `tags.NAME` (text, ""
    for a tag without a value, None where the run does not have it). A metric that two tasks of one run record is
    `metrics.TASK.NAME`.

    Args:
        root: Where the runs lie; where None, the root that `drivetrain runs` looks at in the working directory.
        store: Where the metadata lies, if not in the root.
        tags: Only runs with all these tags: "NAME", or "NAME=VALUE".
        sort: By this metric or parameter; with a - before its name the largest first.
        limit: So many at most; all where None.

    Raises:
        InputError: There is no such root, or nothing to sort by of that name.
        DrivetrainError: pandas is not installed.
    """
    with opened_root(root, store) as home:
        return run_table(home, limit=limit, tags=tags, sort=sort).to_pandas()


@contextmanager
def opened_root(root: str | Path | None, store: str | None) -> Iterator[Home]:
    """A root to read, within the block: for the functions that answer as a verb does.

    Raises:
        InputError: There is no such root.
    """
    location = find_root(root=root, store=store)
    home = Home(location.root, store=location.store, readonly=True)
    try:
        yield home
    finally:
        home.close()


def run_table(home: Home, *, limit: int | None, tags: Sequence[str] = (), sort: str | None = None) -> RunTable:
    """The runs of a root, the newest first, or sorted: see `runs`."""
    wanted = [parse_tag(tag) for tag in tags]
    chosen = recorded_runs(home, None if tags or sort else limit, lambda context: _is_tagged(context, wanted))
    table = RunTable(tuple(facts(home, run) for run in (chosen if sort else chosen[:limit])))
    return RunTable(table.sorted(sort).rows[:limit]) if sort else table


def facts(home: Home, run: Run | UnreadableRun) -> RunFacts:
    """What the store says of a run."""
    tasks: dict[str, ExecutionRecord] = {}
    for execution in home.store.executions(context=run.context):  # the newest first
        tasks.setdefault(str(execution.properties.get("node", "")), execution)
    metrics = {name: dict(execution.metrics) for name, execution in tasks.items()}
    # A cached task has an execution of its own, but its artifacts name the one that made them: so artifacts are matched
    # by that one, for which several tasks of the run may stand.
    makers: dict[int, list[str]] = {}
    for name, execution in tasks.items():
        makers.setdefault(execution.cached_from or execution.id, []).append(name)
    verdicts = []
    for record in home.store.artifacts(context=run.context, state=None):
        for name in makers.get(record.producer or 0, ()):
            metrics[name] |= record.metrics
            if record.type == Evaluation.__name__ and "blessed" in record.properties:
                verdicts.append(record.properties["blessed"] is True)
    metrics = {name: metrics[name] for name in sorted(metrics) if metrics[name]}
    return RunFacts(run, metrics, all(verdicts) if verdicts else None)


def spelled(value: object) -> str:
    """A parameter's value as a person would type it."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _is_tagged(context: ContextRecord, wanted: Iterable[tuple[str, str | None]]) -> bool:
    tags = context.properties.get("tags", {})
    return all(name in tags and value in (None, tags[name]) for name, value in wanted)


def _of_task(task: str, name: str) -> Callable[[RunFacts], float | None]:
    return lambda row: row.metrics.get(task, {}).get(name)


def _of_any_task(name: str) -> Callable[[RunFacts], float | None]:
    return lambda row: next((metrics[name] for metrics in row.metrics.values() if name in metrics), None)


def _note(row: RunFacts) -> str:
    if isinstance(row.run, Run):
        return str(row.recorded("note") or "")
    return f"unreadable: {row.run.error.message}; {row.run.error.fix or ''}"


def _cell(of: Callable[[RunFacts], float | None], row: RunFacts) -> str:
    value = of(row)
    return "" if value is None else number(value)


def _parameter(name: str, row: RunFacts) -> str:
    text = spelled(row.parameters[name]) if name in row.parameters else ""
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
