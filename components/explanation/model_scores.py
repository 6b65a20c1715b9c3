"""A model as a function from a table of raw rows to an array of predictions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa

from ...errors import InputError, missing_extra, suggest
from ..evaluation.rows import Floats
from ..evaluation.table_models import features_of

if TYPE_CHECKING:
    from ...engine import Bundle

ModelLike: TypeAlias = "Callable[[Any], Any] | Bundle | str | Path"
"""A function from a DataFrame of rows to an array, or a bundle, or its folder."""
Scorer: TypeAlias = Callable[[pa.Table], Floats]
"""Rows to predictions, (n,) or (n, classes)."""


def scorer_of(model: ModelLike, prediction: str | None, hidden: Sequence[str] = ()) -> Scorer:
    """The model as a function of tables.

    Args:
        model: A function, a bundle, or the folder of one.
        prediction: Of a bundle, the output of `predict`; None: its only one.
        hidden: Columns that are no features: label and weight.

    Raises:
        InputError: No such bundle, signature or output.
    """
    if callable(model):
        name = getattr(model, "__name__", "model")
        return lambda rows: _checked(model(features_of(model, _dataframe(rows), name, hidden)), rows.num_rows)
    from ...engine import Bundle  # late: JAX

    bundle = model if isinstance(model, Bundle) else Bundle.load(model)
    if "predict" not in bundle.signatures:
        raise InputError(
            "the bundle has no signature 'predict'", fix=f"it has {', '.join(bundle.signatures)}: give a model's bundle"
        )
    outputs = list(bundle.signatures["predict"].outputs)
    if prediction is None and len(outputs) > 1:
        raise InputError(f"predict gives {', '.join(outputs)}", fix=f"say which: prediction={outputs[0]!r}")
    name = outputs[0] if prediction is None else prediction
    if name not in outputs:
        raise InputError(f"predict gives no {name!r}", fix=suggest(name, outputs, "it gives"))
    return lambda rows: _checked(bundle.run("predict", rows)[name], rows.num_rows)


def _dataframe(rows: pa.Table) -> Any:  # a pandas.DataFrame
    try:
        return rows.to_pandas()
    except ModuleNotFoundError as error:
        raise missing_extra("pandas", "pandas") from error


def _checked(values: Any, rows: int) -> Floats:  # Any: what a model gave
    if isinstance(values, np.ma.MaskedArray) and values.dtype.kind in "biuf":
        values = np.where(np.ma.getmaskarray(values), np.nan, values.data)  # what a mask hides is no number
    scores = np.asarray(values)
    if scores.ndim == 2 and scores.shape[1] == 1:
        scores = scores[:, 0]
    if scores.ndim not in (1, 2) or len(scores) != rows or scores.dtype.kind not in "biuf":
        raise InputError(
            f"the model gave an array of shape {scores.shape} and type {scores.dtype} for {rows} rows",
            fix="return a number, or one for each class, for each row: predict_proba(rows)[:, 1]",
        )
    scores = scores.astype(np.float64)
    unusable = ~np.isfinite(scores).reshape(rows, -1).all(axis=1)
    if unusable.any():
        row = int(np.argmax(unusable))
        raise InputError(
            f"the model gave {scores[row]!s:.80} for row {row}, and no finite numbers for {int(unusable.sum()):,} rows",
            fix="return a number for each row",
        )
    return scores
