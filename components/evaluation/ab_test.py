"""An A/B test of the versions of a served model: its request log joined with labels, and the versions compared."""

from __future__ import annotations

import math
import operator
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ...data import source_of
from ...data.frames import frame
from ...data.sources import damaged_file
from ...data.types import is_list
from ...errors import InputError, suggest
from ...redaction import printable
from ..served_examples import logged_files, moment
from .confidence import Confidence
from .standalone import evaluate

if TYPE_CHECKING:
    from ...serving.log_files import LogFooter
    from .metrics import MetricLike
    from .rows import Task

_VERSION: Final = "model_version"
_LABEL: Final = "\0label"  # names that no column of a user has
ANSWERED_BY: Final = "\0version"
_PREDICTION: Final = "\0prediction"
_POSITION: Final = "\0position"
_BUCKETS: Final = 20
_MISMATCH: Final = 0.001


@dataclass(frozen=True)
class VersionOutcome:
    """What came of one version.

    Attributes:
        version: Its number.
        rows: Rows that it answered, each key once.
        labelled: Of how many the label is known.
        metrics: Name → its value over those; None where it has none.
        intervals: Name → the two ends of its interval, where there is one.
    """

    version: int
    rows: int
    labelled: int
    metrics: Mapping[str, float | None]
    intervals: Mapping[str, tuple[float, float]]

    @property
    def labelled_share(self) -> float:
        """The share of its rows whose label came, 0 to 1."""
        return self.labelled / self.rows


@dataclass(frozen=True)
class VersionDifference:
    """A version's metric − the baseline's.

    Attributes:
        version: The version.
        metric: The metric.
        difference: Of its values.
        lower: The lower end of the interval.
        upper: The upper end.
        p_value: How often chance alone would make as large a difference, either way; None where no row varies.
    """

    version: int
    metric: str
    difference: float
    lower: float
    upper: float
    p_value: float | None


@dataclass(frozen=True)
class SampleRatio:
    """Whether the versions answered as many requests as their shares say.

    Attributes:
        shares: Version → percent of the requests, as declared.
        requests: Version → how many it answered.
        statistic: Pearson's χ² of the requests against the shares.
        p_value: How often chance alone would take them as far from the shares.
    """

    shares: Mapping[int, float]
    requests: Mapping[int, int]
    statistic: float
    p_value: float

    @property
    def is_mismatch(self) -> bool:
        """Whether that is less often than once in a thousand: something else than the split chose who is asked."""
        return self.p_value < _MISMATCH

    def __str__(self) -> str:
        every = sum(self.requests.values())
        parts = [
            f"version {version} {count / every:.2%} of {self.shares[version]:g}%"
            for version, count in self.requests.items()
        ]
        return f"requests by version: {', '.join(parts)}; p = {self.p_value:.2g}"


@dataclass(frozen=True)
class ABTest:
    """The versions side by side.

    Attributes:
        model: Its name.
        baseline: The version that others are compared with.
        level: Of the intervals.
        versions: What came of each, by number.
        differences: Of each other version from the baseline, metric by metric.
        repeated: Rows that were left out, since their key had come before.
        sample_ratio: The requests against the shares; None where no shares were declared.
        without_prediction: Rows that were left out, since their clients asked for other outputs than the prediction.
        without_labels: Version → rows, of those that were left out, since none of their rows has a label.
    """

    model: str
    baseline: int
    level: float
    versions: tuple[VersionOutcome, ...]
    differences: tuple[VersionDifference, ...]
    repeated: int
    sample_ratio: SampleRatio | None = None
    without_prediction: int = 0
    without_labels: Mapping[int, int] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:  # Any: JSON
        """All of it as JSON has it."""
        body = asdict(self)
        for version, outcome in zip(body["versions"], self.versions, strict=True):
            version["labelled_share"] = outcome.labelled_share
        if self.sample_ratio is not None:
            body["sample_ratio"]["is_mismatch"] = self.sample_ratio.is_mismatch
        return body

    def frame(self) -> Any:  # a pandas.DataFrame: pandas ships no types
        """One row for each version and metric, with the difference from the baseline.

        Raises:
            DrivetrainError: pandas is not installed.
        """
        differences = {(each.version, each.metric): each for each in self.differences}
        rows = []
        for outcome in self.versions:
            for metric, value in outcome.metrics.items():
                lower, upper = outcome.intervals.get(metric, (None, None))
                apart = differences.get((outcome.version, metric))
                change = (apart.difference, apart.lower, apart.upper, apart.p_value) if apart else (None,) * 4
                rows.append(
                    (outcome.version, outcome.rows, outcome.labelled_share, metric, value, lower, upper, *change)
                )
        columns = ("version", "rows", "labelled_share", "metric", "value", "lower", "upper", "difference",
                   "difference_lower", "difference_upper", "p_value")  # fmt: skip
        return frame(columns, rows)

    def __repr__(self) -> str:
        lines = []
        for outcome in self.versions:
            share = f"{outcome.labelled_share:.1%} labelled"
            values = [f"{name} {value:.4g}" for name, value in outcome.metrics.items() if value is not None]
            lines.append(f"version {outcome.version}: {outcome.rows:,} rows, {share}; {', '.join(values)}")
        lines += [
            f"version {each.version} − {self.baseline}: {each.metric} {each.difference:+.4g} "
            f"[{each.lower:.4g}, {each.upper:.4g}]" + ("" if each.p_value is None else f", p = {each.p_value:.2g}")
            for each in self.differences
        ]
        lines += map(left_out, self.without_labels, self.without_labels.values())
        if self.sample_ratio is not None:
            lines.append(f"{'MISMATCH: ' if self.sample_ratio.is_mismatch else ''}{self.sample_ratio}")
        return printable("\n".join(lines))


def left_out(version: int, rows: int) -> str:
    """What is said of a version without labels."""
    return f"version {version} was left out, since none of its {rows:,} rows has a label"


@dataclass(frozen=True)
class LabelledAnswers:
    """The answers of a request log beside what came true.

    Attributes:
        model: The model's name.
        rows: Each key once, as it was answered first: `ANSWERED_BY`, the version; the label's column, null where it is
            not known; and the prediction's.
        prediction: The name of its column.
        asked: How many rows asked for the prediction, each as often as it came.
        logged: All rows of the log that are of the time, as they came.
        task: What the predictions say that they are; None where they say nothing.
    """

    model: str
    rows: pa.Table
    prediction: str
    asked: int
    logged: pa.Table
    task: Task | None


def labelled_answers(
    log: str | Path | Sequence[str | Path],
    labels: object,
    *,
    label: str,
    key: str = "request_id",
    prediction: str | None = None,
    signature: str | None = None,
    since: str | None = None,
    until: str | None = None,
) -> LabelledAnswers:
    """The answers of a request log joined with labels; arguments and errors are those of `ab_test`."""
    window = moment("since", since), moment("until", until)
    model, logged = _answered(log, key, prediction, signature, window)
    # A score for each class: labels here are one value a row.
    task: Task | None = "multiclass" if is_list(logged[_PREDICTION].type) else None
    known = _labels(labels, label, key)
    if key == "request_id" and "request_row" not in known.column_names:
        known = _of_the_only_row(known, logged)
    keys = ["request_id", "request_row"] if key == "request_id" else [key]
    for name in keys:
        try:
            known = known.set_column(
                known.column_names.index(name), name, known[name].cast(logged.schema.field(name).type)
            )
        except (pa.ArrowException, ValueError) as error:
            raise InputError(
                f"the column {name!r} of the labels is {known.schema.field(name).type}, that of the log "
                f"{logged.schema.field(name).type}",
                fix="give both the same type",
            ) from error
    asked = _with_prediction(logged)
    output = label + " as predicted"  # a label and an output are often called alike
    first = _first_of_each(asked, keys)
    positions = first.select(keys).append_column(_POSITION, pa.array(np.arange(first.num_rows)))
    joined = positions.join(_one_label_each(known, keys), keys, join_type="left outer").sort_by(_POSITION)
    rows = pa.table({ANSWERED_BY: first[_VERSION], label: joined[_LABEL], output: first[_PREDICTION]})
    return LabelledAnswers(model, rows, output, asked.num_rows, logged, task)


def ab_test(
    log: str | Path | Sequence[str | Path],
    labels: object,
    *,
    label: str,
    key: str = "request_id",
    prediction: str | None = None,
    baseline: int | None = None,
    versions: Sequence[int] | None = None,
    signature: str | None = None,
    since: str | None = None,
    until: str | None = None,
    shares: Mapping[int, float] | None = None,
    metrics: Sequence[MetricLike] | None = None,
    task: Task | None = None,
    classes: Sequence[str | int] | None = None,
    threshold: float = 0.5,
    level: float = 0.95,
) -> ABTest:
    """Compare the versions of a model that clients were shared out among, once their labels are known.

    Each metric and its jackknife interval is that of `evaluate` over a version's labelled rows. Versions have different
    rows, so the standard error of a difference is the root of the sum of both squares, with Welch's degrees of freedom.
    Rows count as independent of one another: where callers have many rows each, intervals are too narrow. p-values are
    not adjusted for the number of metrics and versions, nor for looking again and again.

    Args:
        log: The folder of a model's request log, as `drivetrain serve --request-log` writes it, or files of it.
        labels: A table that `data.source_of` takes, with the columns `key` and `label`.
        label: The column of labels.
        key: What a row is known by: "request_id", with `request_row` where labels are of requests with several rows, or
            an input. A key that was answered twice counts as it was answered first.
        prediction: The output that is judged; None: the only one.
        baseline: The version that others are compared with; None: the smallest number.
        versions: Those that are compared; None: all of which a row has a label.
        signature: What was asked; None: `predict`, or the only one.
        since: Only requests that came then or later: a day or a time as ISO 8601 has it, UTC where it names no zone.
        until: Only requests that came before.
        shares: Version → percent of the requests that it was to answer meanwhile; a version that is not named has the
            rest. Then `sample_ratio` says whether they did: where they did not, do not trust the comparison.
        metrics: As of `evaluate`, as is what follows; None: the usual ones of the task.
        task: What kind of model it is.
        classes: The class of each score, in their order; None: labels are positions.
        threshold: Above which a prediction counts as positive.
        level: Of the intervals.

    Raises:
        InputError: There is no log, or a column is not there, or has several types; a key is a list, has two labels, or
            several rows; there are fewer than two versions with labels, or a named one has none; there is no request in
            the time, or none that asked for the prediction; the shares cannot be.
    """
    confidence = Confidence("jackknife", level=level, buckets=_BUCKETS)
    answers = labelled_answers(
        log, labels, label=label, key=key, prediction=prediction, signature=signature, since=since, until=until
    )
    ratio = None if shares is None else _sample_ratio(answers.logged, shares)
    rows, output, task = answers.rows, answers.prediction, task or answers.task
    labelled = rows.filter(pc.is_valid(rows[label]))
    known = sorted(set(rows[ANSWERED_BY].to_pylist()))
    chosen = _version_numbers(() if versions is None else versions)
    named = {*chosen, *(() if baseline is None else (baseline,))}
    for number in sorted(named):
        if number not in known:
            raise InputError(
                f"the log has no answers of version {number!r:.40}", fix=f"it has {', '.join(map(str, known))}"
            )
    counts = {number: (_count(rows, number), _count(labelled, number)) for number in sorted({*(chosen or known)})}
    if len(counts) < 2:
        raise InputError(f"there are answers of version {next(iter(counts))} alone", fix="compare two versions")
    without_labels = {number: every for number, (every, some) in counts.items() if not some}
    numbers = [number for number in counts if number not in without_labels]
    if without_labels and (len(numbers) < 2 or named & without_labels.keys()):
        number = min(named & without_labels.keys() or without_labels)
        raise InputError(
            f"no answer of version {number} has a label",
            fix=f"do the labels have its {key}? Name versions that have labels by versions (--versions), "
            "or the time when others answered by since and until (--since, --until)",
        )
    if baseline is None:
        baseline = numbers[0]
    if baseline not in numbers:
        raise InputError(f"the baseline, version {baseline}, is not one of versions", fix="name it there, too")
    labelled = labelled.filter(pc.is_in(labelled[ANSWERED_BY], value_set=pa.array(numbers, labelled[ANSWERED_BY].type)))
    result = evaluate(
        labelled, label=label, predictions=output, slices=[[], [ANSWERED_BY]], metrics=metrics, task=task,
        classes=classes, threshold=threshold, confidence=confidence,
    )  # fmt: skip
    (judged,) = result.models.values()
    items = {item["pairs"][0][1]: item for item in judged["metrics"]["slices"] if item["pairs"]}
    outcomes = tuple(_outcome(number, *counts[number], items[number]) for number in numbers)
    (before,) = (outcome for outcome in outcomes if outcome.version == baseline)
    differences = [
        apart
        for outcome in outcomes
        if outcome is not before
        for metric in outcome.metrics
        if (apart := _difference(outcome, before, metric, confidence)) is not None
    ]
    repeated, unasked = answers.asked - rows.num_rows, answers.logged.num_rows - answers.asked
    return ABTest(answers.model, baseline, level, outcomes, tuple(differences), repeated, ratio, unasked,
                  without_labels)  # fmt: skip


def _version_numbers(versions: object) -> list[int]:
    try:
        return [operator.index(each) for each in versions]  # type: ignore[attr-defined]  # what a user passes
    except TypeError:
        raise InputError(f"versions={versions!r:.80} are no version numbers", fix="versions=[3, 4]") from None


def _outcome(number: int, rows: int, labelled: int, item: Mapping[str, Any]) -> VersionOutcome:
    values, intervals = item["metrics"]["candidate"], item["intervals"].get("candidate", {})
    shown = {name: value for name, value in values.items() if name != "example_count"}
    return VersionOutcome(
        number,
        rows,
        labelled,
        {name: value if isinstance(value, float) else None for name, value in shown.items()},
        {name: intervals[name] for name in shown if isinstance(intervals.get(name), tuple)},
    )


def _difference(
    candidate: VersionOutcome, before: VersionOutcome, metric: str, confidence: Confidence
) -> VersionDifference | None:
    """The difference of a metric, where both have an interval."""
    from scipy.special import stdtr, stdtrit  # late: half a second to import

    new, old = candidate.metrics[metric], before.metrics.get(metric)
    if new is None or old is None or metric not in candidate.intervals or metric not in before.intervals:
        return None
    # Each half is t · error with as many degrees of freedom as there are buckets, less one; with a few rows, whose
    # buckets are not all occupied, the error is taken to be slightly larger than it is.
    freedom = _BUCKETS - 1
    tail = (1 + confidence.level) / 2
    once = float(stdtrit(freedom, tail))
    ends = [each.intervals[metric] for each in (candidate, before)]
    squares = [((upper - lower) / 2 / once) ** 2 for lower, upper in ends]
    variance = sum(squares)
    apart = new - old
    if variance == 0:
        return VersionDifference(candidate.version, metric, apart, apart, apart, None)
    error = math.sqrt(variance)
    joint = variance**2 / sum(square**2 / freedom for square in squares)
    half = error * float(stdtrit(joint, tail))
    p_value = 2 * float(stdtr(joint, -abs(apart) / error))
    return VersionDifference(candidate.version, metric, apart, apart - half, apart + half, p_value)


def _sample_ratio(answered: pa.Table, shares: Mapping[int, float]) -> SampleRatio:
    """The requests by version, each counted as it was answered first, against the shares."""
    from scipy.special import chdtrc  # late: half a second to import

    total = sum(shares.values())
    if not shares or not all(0 < share <= 100 for share in shares.values()) or total > 100 + 1e-9:
        raise InputError(
            f"the shares {dict(shares)!r:.200} are none", fix="say for each version how many percent of the requests"
        )
    first = _first_of_each(answered.filter(pc.equal(answered["request_row"], 0)), ["request_id"])
    counts = Counter[int](first[_VERSION].to_pylist())
    others = sorted(counts.keys() - shares.keys())
    rest = 100 - total if total < 100 - 1e-9 else 0.0
    if len(others) > 1 or bool(others) != bool(rest):
        raise InputError(
            f"the shares leave {rest:g}% of the requests for other versions, and the log has "
            + (f"those of {', '.join(map(str, others))}" if others else "none"),
            fix="name the share of each version, or of all but one, or choose the time by since and until",
        )
    declared = dict(sorted({**shares, **dict.fromkeys(others, rest)}.items()))
    requests = {version: counts[version] for version in declared}
    expected = {version: share / 100 * counts.total() for version, share in declared.items()}
    statistic = sum((requests[version] - each) ** 2 / each for version, each in expected.items())
    return SampleRatio(declared, requests, statistic, float(chdtrc(len(declared) - 1, statistic)))


def _count(rows: pa.Table, number: int) -> int:
    return int(pc.sum(pc.equal(rows[ANSWERED_BY], number)).as_py() or 0)


# --- the log ---


def _answered(
    log: str | Path | Sequence[str | Path],
    key: str,
    prediction: str | None,
    signature: str | None,
    window: tuple[datetime | None, datetime | None],
) -> tuple[str, pa.Table]:
    """The model; and of each row its version, request, row, time, key and prediction, in order of time."""
    paths = [str(log)] if isinstance(log, (str, Path)) else [str(each) for each in log]
    files = sorted(str(file) for path in paths for file in _files(Path(path)))
    if not files:
        raise InputError(f"{paths[0]} has no file of a request log", fix="name the folder of a model in it")
    logged = logged_files(files, None, signature)
    outputs = sorted({output for _, footer in logged for output in footer.outputs})
    if prediction is None:
        if len(outputs) != 1:
            raise InputError(f"the model has the outputs {', '.join(outputs):.200}", fix="name one as prediction")
        prediction = outputs[0]
    if prediction not in outputs:
        raise InputError(f"the log has no output {prediction!r:.80}", fix=suggest(prediction, outputs))
    tables = [_read(path, footer, key, prediction) for path, footer in logged]
    try:
        table = pa.concat_tables(tables, promote_options="permissive")
    except pa.ArrowException as error:
        types = str(error).rpartition(" has ")[2]
        raise InputError(
            f"the output {prediction!r:.80}, or the column {key!r:.80}, has {types} in the log",
            fix="compare versions in which both have one type",
        ) from error
    if pa.types.is_nested(table.schema.field(key).type):
        raise InputError(f"the column {key!r:.80} holds lists", fix="name one of single values as key, or request_id")
    times, every = table["request_time"], table.num_rows
    for bound, holds in zip(window, (pc.greater_equal, pc.less), strict=True):
        if bound is not None:
            table = table.filter(holds(table["request_time"], pa.scalar(bound, times.type)))
    if not table.num_rows:
        ends = pc.min_max(times).as_py()
        raise InputError(
            f"not one of the log's {every:,} rows is of a request of this time",
            fix=f"they are from {ends['min']} to {ends['max']}",
        )
    return logged[0][1].model, table.sort_by([("request_time", "ascending"), ("request_row", "ascending")])


def _files(path: Path) -> list[Path]:
    return [path] if path.is_file() else [file for file in path.rglob("*.parquet") if not file.name.startswith(".")]


def _read(path: str, footer: LogFooter, key: str, prediction: str) -> pa.Table:
    facts = {name: footer.facts[name] for name in ("request_id", "request_row", "request_time", _VERSION)}
    if prediction not in footer.outputs:
        raise InputError(f"{path} has no output {prediction!r:.80}", fix="compare versions that have it")
    columns = {**facts, _PREDICTION: footer.outputs[prediction]}
    if key not in columns:
        if key not in footer.inputs:
            raise InputError(f"{path} has no column {key!r:.80}", fix=suggest(key, ["request_id", *footer.inputs]))
        columns[key] = key
    try:
        rows = pq.ParquetFile(path).read(columns=list(dict.fromkeys(columns.values())))
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:  # the last: of a column's name
        raise damaged_file(path, error) from error
    return pa.table({name: rows[column] for name, column in columns.items()})


def _with_prediction(rows: pa.Table) -> pa.Table:
    """The rows whose clients asked for the prediction; of texts all, since the model may predict none."""
    if pa.types.is_string(rows.schema.field(_PREDICTION).type):
        return rows
    asked = rows.filter(pc.is_valid(rows[_PREDICTION]))
    if not asked.num_rows:
        raise InputError("no client asked for the prediction", fix="name another output as prediction")
    return asked


def _first_of_each(rows: pa.Table, keys: Sequence[str]) -> pa.Table:
    """The rows whose key had not come before, without those that have none."""
    rows = rows.filter(pc.is_valid(rows[keys[0]]))
    positions = rows.select(keys).append_column(_POSITION, pa.array(np.arange(rows.num_rows)))
    first = positions.group_by(list(keys)).aggregate([(_POSITION, "min")])[f"{_POSITION}_min"]
    return rows.take(np.sort(first.to_numpy()))


# --- the labels ---


def _labels(labels: object, label: str, key: str) -> pa.Table:
    source = source_of(labels)
    for name in (key, label):
        if name not in source.columns:
            raise InputError(f"the labels have no column {name!r:.80}", fix=suggest(name, list(source.columns)))
    wanted = [key, label]
    if key == "request_id" and "request_row" in source.columns:
        wanted.append("request_row")
    some = source.select(wanted)
    batches = [batch for shard in some.shards for batch in some.read(shard)]
    if not batches:
        raise InputError("there are no labels", fix="give a table with a row for each label")
    table = pa.Table.from_batches(batches).select(wanted).rename_columns([key, _LABEL, *wanted[2:]])
    for at, column in enumerate(table.schema):
        if pa.types.is_dictionary(column.type):
            table = table.set_column(at, column.name, table[column.name].cast(column.type.value_type))
    if pa.types.is_nested(table.schema.field(_LABEL).type):
        raise InputError(f"the labels {label!r:.80} are lists", fix="give one number, or one class, for each row")
    return table.filter(pc.and_(pc.is_valid(table[key]), pc.is_valid(table[_LABEL])))


def _of_the_only_row(known: pa.Table, answered: pa.Table) -> pa.Table:
    """The labels as of row 0, where no request that they name had several."""
    several = answered["request_id"].filter(pc.greater(answered["request_row"], 0))
    unclear = known["request_id"].filter(
        pc.is_in(known["request_id"].cast(several.type), value_set=several.combine_chunks())
    )
    if len(unclear):
        raise InputError(
            f"request {unclear[0].as_py()!r:.80} has several rows, and the labels do not say of which row they are",
            fix="add a column request_row to the labels, from 0",
        )
    return known.append_column("request_row", pa.array(np.zeros(known.num_rows, np.int32)))


def _one_label_each(known: pa.Table, keys: Sequence[str]) -> pa.Table:
    """The labels, each key once; the same label may have come twice."""
    distinct = known.group_by([*keys, _LABEL]).aggregate([])
    if distinct.num_rows > len(distinct.group_by(list(keys)).aggregate([])):
        counts = distinct.group_by(list(keys)).aggregate([([], "count_all")])
        twice = counts.filter(pc.greater(counts["count_all"], 1)).slice(0, 1).to_pylist()[0]
        raise InputError(f"{keys[0]} {twice[keys[0]]!r:.80} has two different labels", fix="keep the one that holds")
    return distinct
