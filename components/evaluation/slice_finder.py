"""The worst slices of the data, found automatically: tested, corrected for all that was looked at, none twice.

The search joins three methods. As in Slice Finder (Chung et al. 2019, "Slice Finder: Automated Data Slicing for Model
Validation"), a slice is worse where a one-sided test and an effect size say so. As in SliceLine (Sagadeeva and Boehm
2021, "SliceLine: Fast, Linear-Algebra-based Slice Finding for ML Model Debugging"), crosses are counted in tables, and
left out where their values bound what they can reach. As in a scan statistic (Kulldorff 1997), the slice of the
strongest evidence is named, its excess is taken out of the losses, and the search goes on in what is left: so nothing
is named only because it overlaps with what was named before.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from ...data import Source, source_of
from ...errors import InputError
from ...progress import Progress, no_progress
from .binary import CLIP
from .checks import Problems, check_classes, check_columns, labels_of, scores_of, weights_of
from .config import EvaluationConfig
from .cut_columns import MOST_BINS, CutColumn, Ints, cut_column, is_text
from .rows import Floats, Task
from .slice_search import SliceSearch
from .standalone import predicted_classes, task_of_values
from .table_models import Predictor, TableModel, classes_of_scores, columns_of, is_bundle, models_of
from .worse_slices import WorstSlices

_SEED: Final = 20_190  # of the sample of larger tables


def find_slices(
    data: object,
    *,
    label: str,
    predictions: Predictor,
    columns: Sequence[str] | None = None,
    weight: str | None = None,
    task: Task | None = None,
    classes: Sequence[str | int] | None = None,
    excess: bool = False,
    max_columns: int = 2,
    min_examples: int = 30,
    level: float = 0.01,
    min_effect: float = 0.1,
    bins: int = 10,
    limit: int = 10,
    max_rows: int = 1_000_000,
    progress: Progress = no_progress,
) -> WorstSlices:
    """Find where a model is worse than elsewhere: values, ranges and their crosses, the strongest evidence first.

    Args:
        data: What `data.source_of` takes.
        label: The column of labels.
        predictions: A column, a function from a DataFrame of rows to an array, or a bundle or its folder, as `evaluate`
            takes them.
        columns: Where to look; None: all columns but label, predictions and weight. Texts, booleans, numbers, dates and
            times make slices, and so does what is missing; other columns are left out.
        weight: A column of weights ≥ 0; rows of weight 0 are left out.
        task: None: what label and predictions look like. It decides the loss of a row: log-loss (binary, multi-class,
            the mean over labels of multi-label), or the squared error (regression).
        classes: The class of each score, where labels are not positions; None: as for `drivetrain.evaluate`.
        excess: Take from each log-loss what the model itself expects, the entropy of its probabilities: what is left is
            large where the model is wrong, and not where the outcome is merely uncertain.
        max_columns: How many columns a slice may be a cross of, up to 3.
        min_examples: Rows that a slice has at least, and the rest too.
        level: How often data on which no slice is worse may have any named: the family-wise error, over all slices
            that could be looked at. Each number of columns has an equal part of it.
        min_effect: The least effect of a slice that is named.
        bins: Parts of equal count into which numbers of more distinct values are cut; slices are ranges of adjacent
            ones.
        limit: Slices that are named at most.
        max_rows: Rows beyond which a random sample of about as many is searched.
        progress: Called with the rows read, then with the slices named.

    Raises:
        InputError: A column that is not there, labels or predictions that cannot be judged, a task without a loss of
            each row, or an option out of its range.
    """
    _check_options(max_columns, min_examples, level, min_effect, bins, limit, max_rows)
    source = source_of(data)
    if not (isinstance(predictions, (str, Path)) or callable(predictions) or is_bundle(predictions)):
        raise InputError(f"predictions must be a column or a function of rows, not {predictions!r}")
    ((model_name, predictor),) = models_of(predictions, source.columns).items()
    if isinstance(columns, str):
        raise InputError(f"find_slices: columns must be a list of names, not {columns!r}", fix=f"columns=[{columns!r}]")
    needed = {label: "the label"} | dict.fromkeys(columns_of({model_name: predictor}), "the prediction")
    needed |= {weight: "the weight"} if weight else {}
    check_columns(needed | dict.fromkeys(columns or (), "the search"), source.columns)
    candidates = (
        [name for name in source.columns if name not in needed] if columns is None else [*dict.fromkeys(columns)]
    )
    excluded = (label,) if weight is None else (label, weight)
    model = TableModel(label, model_name, predictor, excluded=excluded)
    if predicted_classes(source, model, {model_name: predictor}, task, None, classes) is not None:
        raise InputError(
            f"find_slices: the predictions {model_name!r} are classes, and the loss of a row is that of its scores",
            fix="give a score for each class, such as predict_proba(rows)",
        )
    if classes is None:
        classes = classes_of_scores({model_name: predictor}, text=is_text(source.schema.field(label).type))
    if task is None and classes is None:
        task = task_of_values(source, model)
    config = EvaluationConfig(label, model_name, task=task, classes=classes, weight=weight)
    if classes is None and is_text(source.schema.field(label).type):
        raise InputError(
            f"label {label!r} is text, and the classes of the scores are not named",
            fix='make it 0 or 1 for a probability, or name the class of each score: classes=["no", "yes"]',
        )
    if excess and config.task == "regression":
        raise InputError("find_slices: excess is of probabilities, and numbers have none", fix="remove it")
    model = replace(model, name=config.prediction)
    loss, weights, table = _losses(source, config, model, candidates, max_rows, progress, excess=excess)
    searched: list[CutColumn] = []
    left_out: dict[str, str] = {}
    for name in candidates:
        column = cut_column(name, table.pop(name), bins, min_examples)
        if isinstance(column, str):
            left_out[name] = column
        else:
            searched.append(column)
            if column.left_out:
                left_out[name] = column.left_out
    search = SliceSearch(searched, len(loss), max_columns, min_examples, level, min_effect)
    findings = []
    for finding in itertools.islice(search.worst(loss, weights), limit):
        findings.append(finding)
        progress(len(findings), limit, "slices")
    what = "squared error" if config.task == "regression" else "excess log-loss" if excess else "log-loss"
    mean = float(np.average(loss, weights=weights))
    return WorstSlices(tuple(findings), what, mean, len(loss), source.rows, sum(search.counts), level, left_out)


def _check_options(
    max_columns: Any, min_examples: Any, level: Any, min_effect: Any, bins: Any, limit: Any, max_rows: Any
) -> None:
    def refuse(name: str, value: object, wanted: str) -> None:
        raise InputError(f"find_slices: {name} must be {wanted}, not {value!r}")

    counts: list[tuple[str, Any, int, int | None]] = [
        ("max_columns", max_columns, 1, 3),
        ("min_examples", min_examples, 2, None),
        ("bins", bins, 2, MOST_BINS),
        ("limit", limit, 1, None),
        ("max_rows", max_rows, 1, None),
    ]
    for name, value, least, most in counts:
        if (
            isinstance(value, bool)
            or not isinstance(value, int)
            or value < least
            or (most is not None and value > most)
        ):
            refuse(name, value, f"a whole number from {least}" + ("" if most is None else f" to {most}"))
    if isinstance(level, bool) or not isinstance(level, (int, float)) or not 0 < level < 1:
        refuse("level", level, "between 0 and 1, such as 0.01")
    if isinstance(min_effect, bool) or not isinstance(min_effect, (int, float)) or not 0 <= min_effect < math.inf:
        refuse("min_effect", min_effect, "a number of standard deviations, such as 0.1")


def _losses(
    source: Source,
    config: EvaluationConfig,
    model: TableModel,
    columns: Sequence[str],
    max_rows: int,
    progress: Progress,
    *,
    excess: bool,
) -> tuple[Floats, Floats, dict[str, pa.Array]]:
    """The loss and the weight of each row, and its columns; rows of weight 0 are left out.

    Raises:
        InputError: Rows cannot be judged, or all weigh 0.
    """
    share = max_rows / max(source.rows, 1)
    random = np.random.default_rng(_SEED)
    problems = Problems()
    losses: list[Floats] = []
    weights: list[Floats] = []
    pieces: dict[str, list[pa.Array]] = {name: [] for name in columns}
    positions: list[Ints] = []
    rows = sampled = 0
    for batch in (batch for shard in source.shards for batch in source.read(shard)):
        chosen = np.flatnonzero(random.random(batch.num_rows) < share)
        positions.append(rows + chosen)
        rows += batch.num_rows
        part = batch if share >= 1 else batch.take(pa.array(chosen))
        weight, loss = _loss_of(part, config, model, problems, sampled, excess=excess)
        sampled += part.num_rows
        some = weight > 0
        losses.append(loss[some])
        weights.append(weight[some])
        for name in columns:
            pieces[name].append(part.column(name).filter(pa.array(some)))
        progress(rows, source.rows, "rows")
    if problems.kinds and share < 1:  # quoted by their place in the data, not in the sample
        where = np.concatenate(positions)
        problems.kinds = {
            kind: (count, [(int(where[row]), text) for row, text in quoted])
            for kind, (count, quoted) in problems.kinds.items()
        }
    problems.check(sampled)
    loss = np.concatenate(losses) if losses else np.zeros(0)
    if not len(loss):
        raise InputError("there are no rows to search" + (": all of them weigh 0" if sampled else ""))
    return loss, np.concatenate(weights), {name: pa.concat_arrays(parts) for name, parts in pieces.items()}


def _loss_of(
    batch: pa.RecordBatch,
    config: EvaluationConfig,
    model: TableModel,
    problems: Problems,
    offset: int,
    *,
    excess: bool,
) -> tuple[Floats, Floats]:
    """Weight and loss of each row; what cannot be judged is added to the problems, and weighs 0."""
    outputs = model(batch)
    label, fine = labels_of(outputs.column(config.label), config, problems, offset)
    score, usable = scores_of(outputs.column(config.prediction), repr(config.prediction), config, problems, offset)
    fine = fine & usable
    if score.ndim == 2:
        fine = fine & check_classes(label, score, config, problems, offset)
    weight = np.ones(len(score))
    if config.weight is not None:
        weight, _ = weights_of(batch.column(config.weight), config.weight, problems, offset)
    label, score = label[fine], score[fine]
    if config.task == "regression":
        with np.errstate(over="ignore"):
            some = (score - label) ** 2
    else:
        score = np.clip(score, CLIP, 1 - CLIP)
        if config.task == "multiclass":
            some = -np.log(score[np.arange(len(score)), label])
            expected = -(score * np.log(score)).sum(axis=1)
        else:
            some = -np.log(np.where(label, score, 1 - score))
            expected = -(score * np.log(score) + (1 - score) * np.log(1 - score))
        some = some - expected if excess else some
        some = some.mean(axis=1) if some.ndim == 2 else some
    loss = np.zeros(len(weight))
    loss[fine] = some
    problems.add("the squared error is infinite", np.isinf(loss), loss, offset)
    return np.where(fine, weight, 0.0), loss
