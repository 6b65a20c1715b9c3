"""Statistics of data sets: computed from sources by an executor, kept as one JSON document and the mergeable states."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

from ..digest import write_durably
from ..errors import InputError
from .base import Executor, Progress, no_progress
from .source_of import source_of
from .statistics_column import EXACT_LIMIT, ColumnState
from .statistics_pass import StatisticsAccumulator

FORMAT: Final = "drivetrain.statistics/1"


class Statistics:
    """Statistics of one or more data sets (splits), in order.

    Attributes:
        document: `{"format": …, "datasets": [{"name", "rows", "features": [{"name", "type", …}]}]}`; what a feature
            holds is described in `statistics_describe`.
    """

    def __init__(self, document: Mapping[str, Any], states: Mapping[str, bytes | Path | StatisticsAccumulator]) -> None:
        self.document = document
        self._states = dict(states)

    @property
    def splits(self) -> dict[str, int]:
        """Rows per data set, in order."""
        return {dataset["name"]: dataset["rows"] for dataset in self.document["datasets"]}

    def features(self, split: str) -> dict[str, dict[str, Any]]:
        """What is known about each feature of a data set, by name, in the data's order.

        Raises:
            InputError: There is no such data set.
        """
        for dataset in self.document["datasets"]:
            if dataset["name"] == split:
                return {feature["name"]: feature for feature in dataset["features"]}
        raise InputError(f"there are no statistics of {split!r}", fix=f"choose one of {', '.join(self.splits)}")

    def state(self, split: str) -> StatisticsAccumulator:
        """The accumulator behind a data set's numbers: whole value tables, and what can be merged with other spans."""
        state = self._states[split]
        if isinstance(state, Path):
            state = state.read_bytes()
        if isinstance(state, bytes):
            state = StatisticsAccumulator.from_bytes(state)
        self._states[split] = state
        return state

    def column(self, split: str, feature: str) -> ColumnState:
        """One column of `state`."""
        return self.state(split).columns[feature]

    def to_json(self) -> str:
        """The document as indented JSON; equal statistics give equal text."""
        return json.dumps(self.document, indent=1, ensure_ascii=False, allow_nan=False) + "\n"

    def save(self, content: Path) -> None:
        """Write `statistics.json` and `states/split=<name>.bin` into a folder that exists."""
        (content / "states").mkdir(exist_ok=True)
        for name in self.splits:
            write_durably(content / "states" / f"split={name}.bin", self.state(name).to_bytes())
        write_durably(content / "statistics.json", self.to_json().encode())

    @classmethod
    def load(cls, content: Path) -> Statistics:
        """The statistics that `save` wrote; states are read when asked for.

        Raises:
            InputError: The folder holds no statistics, or of a format this release does not read.
        """
        path = content / "statistics.json"
        try:
            document = json.loads(path.read_text("utf-8"))
        except (OSError, ValueError) as error:
            raise InputError(f"{path} cannot be read: {error}", fix="compute the statistics again") from error
        if document.get("format") != FORMAT:
            raise InputError(
                f"{path} has the format {document.get('format')!r}, this release reads {FORMAT}",
                fix="compute the statistics again",
            )
        names = [dataset["name"] for dataset in document["datasets"]]
        return cls(document, {name: content / "states" / f"split={name}.bin" for name in names})

    def to_html(self) -> str:
        """A self-contained page."""
        from ..report.statistics import statistics_page

        return statistics_page(self.document)

    def _repr_html_(self) -> str:
        from ..report.html import framed

        return framed(self.to_html())


def statistics(
    data: object,
    executor: Executor | None = None,
    *,
    limit: int = EXACT_LIMIT,
    progress: Progress = no_progress,
) -> Statistics:
    """Statistics of every column, each source read once.

    Args:
        data: What `source_of` takes: a Source, path, pattern, DataFrame, Arrow table, … (its data set is then called
            "data"); or a mapping of such by data set name, in order.
        executor: Who walks the shards; threads of this process where None.
        limit: Distinct values of a column up to which everything about it is exact.
        progress: Told the rows done.

    Raises:
        InputError: Something cannot be read (see `source_of`), a column's type or the columns differ between files, or
            two columns have one name.
    """
    if executor is None:
        from .local import LocalExecutor

        executor = LocalExecutor()
    given = data if isinstance(data, Mapping) else {"data": data}
    sources = {str(name): source_of(one) for name, one in given.items()}
    total = sum(source.rows for source in sources.values())
    states = {}
    before = 0
    for name, source in sources.items():
        # Dictionaries decode faster, and what is counted does not depend on them.
        states[name] = executor.combine(
            source.with_dictionaries(),
            partial(StatisticsAccumulator, limit),
            progress=_shifted(progress, before, total),
        )
        before += source.rows
    return from_states(states)


def _shifted(progress: Progress, before: int, total: int) -> Progress:
    return lambda done, _, unit: progress(before + done, total, unit)


def from_states(states: Mapping[str, StatisticsAccumulator]) -> Statistics:
    """Statistics from accumulators by data set name, in order."""
    datasets = [{"name": name, **state.result()} for name, state in states.items()]
    return Statistics({"format": FORMAT, "datasets": datasets}, states)
