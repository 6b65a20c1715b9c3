"""Raw examples in, scored rows out: slices, labels and weights beside the predictions of one or two models."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from ...data.base import BatchFn
from ...errors import InputError
from .checks import check_columns, check_outputs
from .config import EvaluationConfig
from .slice_sql import values_of


@dataclass
class Scores:
    """A batch function over raw examples; gives what `MetricsAccumulator` takes.

    Columns out: `label`, `candidate`, `baseline` where there is one, `weight` and `query` where configured, and
    `slice:NAME` for each raw column or expression that slices are made of. One row out for each row in.

    Args:
        config: Which outputs and columns to take.
        model: Raw rows to the model's outputs and the label.
        baseline: Raw rows to the baseline's outputs.
    """

    config: EvaluationConfig
    model: BatchFn
    baseline: BatchFn | None = None

    def setup(self) -> None:
        """Prepare both models, once in each process."""
        set_up(self.model, self.baseline)

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Score a batch.

        Raises:
            InputError: A model does not give the configured output, or not one row for each row.
        """
        before = None if self.baseline is None else self.baseline(batch)
        return scored(self.config, batch, self.model(batch), before)


def set_up(*models: BatchFn | None) -> None:
    """Prepare those that there are."""
    for model in models:
        if model is not None:
            model.setup()


def scored(
    config: EvaluationConfig, batch: pa.RecordBatch, outputs: pa.RecordBatch, before: pa.RecordBatch | None
) -> pa.RecordBatch:
    """What `Scores` gives, from raw rows and what the models made of them.

    Args:
        config: Which outputs and columns to take.
        batch: Raw rows.
        outputs: The model's, and the label.
        before: The baseline's outputs, if there is one.

    Raises:
        InputError: A model did not give the configured output, or not one row for each row.
    """
    check_outputs(config, outputs.schema.names, columns=batch.schema.names)
    labels = outputs if config.label in outputs.schema.names else batch
    columns = {
        "label": _output(labels, config.label, "label", batch.num_rows),
        "candidate": _output(outputs, config.prediction, "prediction", batch.num_rows),
    }
    if before is not None:
        check_outputs(config, before.schema.names, "the baseline")
        columns["baseline"] = _output(before, config.prediction, "baseline's prediction", batch.num_rows)
    for role, name in (("weight", config.weight), ("query", config.query)):
        if name is not None:
            source = outputs if name in outputs.schema.names else batch
            check_columns({name: f"the {role}"}, source.schema.names, config.where)
            columns[role] = _output(source, name, role, batch.num_rows)
    expressions = config.expressions
    for name in config.slice_columns:
        raw = name not in expressions
        columns[f"slice:{name}"] = batch.column(name) if raw else values_of(expressions[name], batch)
    return pa.record_batch(list(columns.values()), names=list(columns))


def _output(batch: pa.RecordBatch, name: str, role: str, rows: int) -> pa.Array:
    if batch.num_rows != rows:
        raise InputError(
            f"the model gave {batch.num_rows} rows for {rows}", fix="preprocessing must keep one row for each example"
        )
    return batch.column(name)
