"""ServedEvaluator: how good a served model's answers were, once it is known what came true."""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import InputError
from ..metadata import Evaluation
from ..pipelines import Files, component, current, resolve_files

_TASKS = ("binary", "regression", "multiclass")


@component
def ServedEvaluator(
    log: Files,
    labels: Files,
    *,
    label: str,
    key: str = "request_id",
    prediction: str | None = None,
    versions: Sequence[int] | None = None,
    signature: str | None = None,
    since: str | None = None,
    until: str | None = None,
    metrics: Sequence[str] | None = None,
    task: str | None = None,
    classes: Sequence[str] | None = None,
    threshold: float = 0.5,
) -> Evaluation:
    """Measure the answers in a model server's request log against labels that came later, by version.

    `dt.triggers.MetricDrop("auc", below=0.7, pipeline=…, made_by="ServedEvaluator")` trains again when they get worse.

    Args:
        log: Its files of one model, e.g. `"request-log/flights/*/*/*.parquet"`.
        labels: Files of what ExampleGen reads, with the columns `key` and `label`.
        label: The column of labels.
        key: What a row is known by: "request_id", with `request_row` where labels are of requests with several rows, or
            an input. A key that was answered twice counts as it was answered first.
        prediction: The output that is judged; by default the only one.
        versions: Of the model; by default all.
        signature: What was asked: by default `predict`, or the only one.
        since: Only requests that came then or later: a day or a time as ISO 8601 has it, UTC where it names no zone.
        until: Only requests that came before.
        metrics: By default the usual ones of the task.
        task: "binary", "regression" or "multiclass"; by default what labels and predictions look like.
        classes: The class of each score, in their order, where labels are texts.
        threshold: Above which a prediction counts as positive.

    Returns:
        `metrics` over all labelled rows, a one-line `summary`; it blesses nothing. The files are those of Evaluator.

    Raises:
        InputError: The log or the labels cannot be used, see `drivetrain ab-test`, or no answer has a label.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    from .evaluation.ab_test import ANSWERED_BY, labelled_answers
    from .evaluation.outputs import ONLY
    from .evaluation.run import overall, write
    from .evaluation.standalone import evaluate

    if task is not None and task not in _TASKS:
        raise InputError(f"task is {task!r:.40}", fix=f"give {', '.join(_TASKS)}, or leave it out")
    answers = labelled_answers(
        [str(file.path) for file in resolve_files(log).files],
        [str(file.path) for file in resolve_files(labels).files],
        label=label,
        key=key,
        prediction=prediction,
        signature=signature,
        since=since,
        until=until,
    )
    rows = answers.rows
    if versions is not None:
        known = sorted(set(rows[ANSWERED_BY].to_pylist()))
        rows = rows.filter(pc.is_in(rows[ANSWERED_BY], value_set=pa.array(list(versions), rows[ANSWERED_BY].type)))
        if not rows.num_rows:
            raise InputError(
                f"the log has no answers of version {', '.join(map(str, versions))}",
                fix=f"it has {', '.join(map(str, known))}",
            )
    labelled = rows.filter(pc.is_valid(rows[label])).rename_columns(["model_version", label, answers.prediction])
    if not labelled.num_rows:
        raise InputError("no answer has a label", fix=f"do the labels have its {key}?")
    result = evaluate(
        labelled, label=label, predictions=answers.prediction, slices=[[], ["model_version"]], metrics=metrics,
        task=task or answers.task, classes=classes, threshold=threshold,  # type: ignore[arg-type]  # one of `_TASKS`
    )  # fmt: skip
    (judged,) = result.models.values()
    evaluation = Evaluation.new(metrics=overall({ONLY: judged}))
    share = f"{labelled.num_rows:,} of {rows.num_rows:,} rows of {answers.model} have a label"
    evaluation.summary = ", ".join([share, *(f"{name} {value:.4g}" for name, value in evaluation.metrics.items())])
    write({ONLY: judged}, evaluation.content, evaluation.extra, title=f"{answers.model} as served")
    current().note(evaluation.summary)
    return evaluation
