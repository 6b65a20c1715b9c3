"""Statistics of data sets: one JSON document, and the mergeable states that it was read from."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, Protocol
from urllib.parse import quote

from ...digest import write_durably
from ...errors import InputError, missing_extra, suggest
from ...progress import Progress, no_progress, part_of
from ...redaction import printable
from ..base import Executor
from ..reading.source_of import source_of
from ..sources import Source
from ..tree import merge_states
from .accumulator import StatisticsAccumulator
from .column import EXACT_LIMIT, ColumnState
from .lift import Lift, lift_of
from .options import Factory, Slicing, StatisticsOptions, slicings

FORMAT: Final = "drivetrain.statistics/1"
_DEFAULTS: Final = StatisticsOptions()


class MeasuringSchema(Protocol):
    """What statistics need of a schema (see `schemas.weighted`), which is in a layer above."""

    def measured(self, source: Source) -> tuple[Source, Mapping[str, str]]:
        """The source with the columns that the schema is checked by, and the column each of these is computed from."""
        ...


class Statistics:
    """Statistics of one or more data sets (splits), in order.

    Attributes:
        document: `{"format": …, "datasets": [{"name", "rows", "features": [{"name", "type", …}]}]}`; the `describe`
            module says what a feature holds. Of a sample, a data set has `"sample": {"rate", "seed", "of"}`, the last
            being the rows that there are. `examples`, where StatisticsGen made them, is the digest of what they are of.
    """

    def __init__(self, document: Mapping[str, Any], states: Mapping[str, bytes | Path | StatisticsAccumulator]) -> None:
        self.document = document
        self._states = dict(states)

    def __repr__(self) -> str:
        parts = (f"{dataset['name']}: {dataset['rows']:,} rows, {len(dataset['features'])} features" for dataset in
                 self.document["datasets"])  # fmt: skip
        return printable(f"Statistics({'; '.join(parts)})")

    @property
    def splits(self) -> dict[str, int]:
        """Rows per data set, in order."""
        return {dataset["name"]: dataset["rows"] for dataset in self.document["datasets"]}

    @property
    def sampled(self) -> dict[str, int]:
        """Rows that each data set has altogether, of those that only a sample was looked at of."""
        samples = {dataset["name"]: dataset.get("sample", {}).get("of") for dataset in self.document["datasets"]}
        return {name: rows for name, rows in samples.items() if rows is not None}

    def features(self, split: str) -> dict[str, dict[str, Any]]:
        """The description of each feature of a data set, by name, in the data's order.

        Raises:
            InputError: There is no such data set.
        """
        return {feature["name"]: feature for feature in self._dataset(split)["features"]}

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
        """The state of one column of a data set. Raises as `state`."""
        return self.state(split).columns[feature]

    def slices(self, split: str) -> dict[str, int]:
        """Rows per slice of a data set, by the slice's name; {} where none were asked for.

        Raises:
            InputError: There is no such data set.
        """
        return {part["name"]: part["rows"] for part in self._dataset(split).get("slices", ())}

    def of_slice(self, split: str, name: str) -> Statistics:
        """The statistics of one slice as a data set of its own, "split [slice]", to be validated or compared.

        Raises:
            InputError: There is no such data set or slice.
        """
        for part in self._dataset(split).get("slices", ()):
            if part["name"] == name:
                state = self.state(split).slices[tuple((column, value) for column, value in part["key"])]
                slice_document = {key: value for key, value in part.items() if key not in ("name", "key")}
                shown = f"{split} [{name}]"
                return Statistics({"format": FORMAT, "datasets": [{"name": shown, **slice_document}]}, {shown: state})
        known = list(self.slices(split))
        raise InputError(
            f"{split!r} has no slice {name!r}",
            fix=f"choose one of {'; '.join(known[:20])}" if known else "compute statistics with slices=[…]",
        )

    def _dataset(self, split: str) -> Mapping[str, Any]:
        for dataset in self.document["datasets"]:
            if dataset["name"] == split:
                matching: Mapping[str, Any] = dataset
                return matching
        raise InputError(
            f"there are no statistics of {split!r}", fix=suggest(split, list(self.splits), "the data sets are named")
        )

    def merge(self, other: Statistics, *, custom: Mapping[str, Factory] | None = None) -> Statistics:
        """The statistics of the rows of both, data sets of one name merged; see `merge_statistics`."""
        return merge_statistics([self, other], custom=custom)

    def to_json(self) -> str:
        """The document as indented JSON; equal statistics give equal text."""
        return json.dumps(self.document, indent=1, ensure_ascii=False, allow_nan=False) + "\n"

    def save(self, content: Path | str) -> None:
        """Write `statistics.json` and `states/split=<name>.bin` into a folder, which is made where there is none.

        Raises:
            InputError: There is a file in the folder's place, or it cannot be written to.
        """
        content = Path(content)
        try:
            (content / "states").mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(
                f"statistics cannot be saved in {content}: {error.strerror}", fix="name a folder that can be written to"
            ) from error
        for name in self.splits:
            write_durably(_state_path(content, name), self.state(name).to_bytes())
        write_durably(content / "statistics.json", self.to_json().encode())

    @classmethod
    def load(cls, content: Path | str) -> Statistics:
        """The statistics that `save` wrote; states are read when they are first needed.

        Raises:
            InputError: The folder holds no statistics, or of a format this release does not read.
        """
        content = Path(content)
        path = content / "statistics.json"
        try:
            document = json.loads(path.read_text("utf-8"))
        except (OSError, ValueError, RecursionError) as error:
            raise InputError(f"{path} cannot be read: {error}", fix="compute the statistics again") from error
        written = document.get("format") if isinstance(document, dict) else None
        if written != FORMAT:
            raise InputError(
                f"{path} has the format {written!r}, this release reads {FORMAT}",
                fix="compute the statistics again",
            )
        names = [dataset["name"] for dataset in document["datasets"]]
        return cls(document, {name: _state_path(content, name) for name in names})

    def to_pandas(self) -> Any:  # a pandas.DataFrame: pandas ships no types
        """One row per data set and feature: counts, then every number of its own as a column; see `statistics_frame`.

        Raises:
            DrivetrainError: pandas is not installed.
        """
        from ..frames import statistics_frame

        return statistics_frame(self.document)

    def to_html(self) -> str:
        """A self-contained page."""
        from ...report.statistics import statistics_page

        return statistics_page(self.document)

    def _repr_html_(self) -> str:
        from ...report.html import framed

        return framed(self.to_html())


def _state_path(content: Path, name: str) -> Path:
    return content / "states" / f"split={quote(name, safe=' ,=[]()')}.bin"


def statistics(
    data: object,
    executor: Executor | None = None,
    *,
    limit: int = EXACT_LIMIT,
    columns: Sequence[str] | None = None,
    weight: str | None = None,
    slices: Sequence[Slicing] = (),
    label: str | None = None,
    lift: bool | Mapping[str, Any] | Lift = False,
    correlations: bool = False,
    sample_rate: float = 1.0,
    seed: int = 0,
    top_values: int = _DEFAULTS.top_values,
    buckets: int = _DEFAULTS.buckets,
    quantiles: Sequence[float] = _DEFAULTS.quantiles,
    custom: Mapping[str, Factory] | None = None,
    schema: MeasuringSchema | None = None,
    progress: Progress = no_progress,
) -> Statistics:
    """Statistics of every column, each source read once.

    Args:
        data: What `source_of` takes: a Source, path, pattern, DataFrame, Arrow table, … (its data set is then called
            "data"); or a mapping of such by data set name, in order.
        executor: Who walks the shards; threads of this process where None.
        limit: Distinct values of a column up to which everything about it is exact.
        columns: The features; None: every column.
        weight: The column with each row's weight, numbers ≥ 0, a missing one counting 0: each feature then has a
            `weighted` twin as well.
        slices: Rows to describe apart: "carrier" (each of its values), ["carrier", "month"] (each pair that occurs) or
            {"carrier": ["AA"], "month": None} (of some values only). A row that misses one of the columns is in none of
            the slices, a list in one for each of its values.
        label: The column that every feature's mutual information is with (needs the extra `analysis`).
        lift: Whether to compute the lift of every category's values for each of the label's; or how, a mapping such as
            {"boundaries": [0, 15], "min_x_count": 10, "top": 5, "bottom": 5}.
        correlations: Whether to correlate every two numeric features.
        sample_rate: The share of rows to look at, chosen by a hash of their values: copies of a row are in together.
        seed: Another seed, another sample.
        top_values: Most frequent values listed.
        buckets: Buckets of histograms.
        quantiles: Levels of quantiles, ascending.
        custom: A user's accumulators by name, each made by a factory (that pickles by reference, for Beam). They get
            every column of the rows; their `result`, which must be JSON-able, is stored under "custom".
        schema: A `Schema` whose weighted features are measured too: three columns of each (see `WeightedFeature`) are
            described, but are not columns of the data to samples, correlations, `label`, `lift` and `custom`, nor to
            `infer_schema`, `drift` and expectations.
        progress: Called with the rows read so far, of all data sets together.

    Raises:
        InputError: Something cannot be read (see `source_of`), a column's type or the columns differ between files,
            two columns have one name, an option names no column, a weight is not a number of at least 0, or there are
            more slices than a thousand.
        DrivetrainError: A label is given, and scikit-learn is not installed.
    """
    inputs = data if isinstance(data, Mapping) else {"data": data}
    sources = {str(name): source_of(part) for name, part in inputs.items()}
    computed: dict[str, str] = {}
    if schema is not None:
        for name, source in sources.items():
            sources[name], measured_columns = schema.measured(source)
            computed |= measured_columns
        columns = None if columns is None else [*columns, *computed]
    options = StatisticsOptions(
        limit=limit, columns=columns, weight=weight, slices=slicings(slices), label=label, lift=lift_of(lift),
        correlations=correlations, sample_rate=sample_rate, seed=seed, top_values=top_values, buckets=buckets,
        quantiles=quantiles, custom=custom or {}, computed=tuple(computed.items()),
    )  # fmt: skip
    if label is not None and find_spec("sklearn") is None:
        raise missing_extra("sklearn", "analysis")  # now, not after the pass
    if executor is None:
        from ..local import LocalExecutor

        executor = LocalExecutor()
    total = sum(source.rows for source in sources.values())
    states = {}
    before = 0
    for name, source in sources.items():
        # Dictionaries decode faster, and what is counted does not depend on them.
        states[name] = executor.combine(
            _read(source, options).with_dictionaries(),
            partial(StatisticsAccumulator, options=options),
            progress=part_of(progress, before, total),
        )
        before += source.rows
    described = from_states(states)
    if options.sampled:
        for dataset in described.document["datasets"]:
            dataset["sample"]["of"] = sources[dataset["name"]].rows
    return described


def statistics_of(data: object, schema: MeasuringSchema | None = None) -> Statistics:
    """The data itself where it is `Statistics`, else what `statistics` computes of it.

    Raises:
        InputError: Rows cannot be read from it; see `source_of`.
    """
    return data if isinstance(data, Statistics) else statistics(data, schema=schema)


def _read(source: Source, options: StatisticsOptions) -> Source:
    """The source with the columns that the options ask for."""
    options.check(source.columns)
    if options.columns is None or options.whole_rows:
        return source
    wanted = {*options.columns, *options.needed}
    return source.select(name for name in source.columns if name in wanted)


def from_states(states: Mapping[str, StatisticsAccumulator]) -> Statistics:
    """Statistics from accumulators by data set name, in order."""
    together = list(states.values())
    datasets = [{"name": name, **state.result(together)} for name, state in states.items()]
    return Statistics({"format": FORMAT, "datasets": datasets}, states)


def merge_statistics(parts: Sequence[Statistics], *, custom: Mapping[str, Factory] | None = None) -> Statistics:
    """The statistics of all the parts' rows, without the rows: of two spans, say.

    Data sets of one name are merged, in the order of the parts. While everything is exact, the document is that of
    statistics over the rows together.

    Args:
        parts: At least one; computed with the same options.
        custom: The factories of the users' accumulators, where parts were loaded.

    Raises:
        InputError: There are no parts, or their columns, types or options differ.
    """
    if not parts:
        raise InputError("there are no statistics to merge", fix="give at least one")
    merged: dict[str, StatisticsAccumulator] = {}
    for part in parts:
        for name in part.splits:
            state = part.state(name)
            # A copy: merging changes both sides, and users keep the parts.
            known = {**state.options.custom, **(custom or {})}
            state = StatisticsAccumulator.from_bytes(state.to_bytes(), known)
            merged[name] = merge_states(merged[name], state) if name in merged else state
    together = from_states(merged)
    for dataset in together.document["datasets"]:
        rows = [part.sampled.get(dataset["name"], 0) for part in parts if dataset["name"] in part.splits]
        if all(rows):
            dataset["sample"]["of"] = sum(rows)
    return together
