"""A model as a function from a table of raw rows to an array of predictions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from ...data.frames import dataframe
from ...engine.attribution import Scorer, checked_scores
from ...errors import InputError, suggest
from ..evaluation.table_models import features_of

if TYPE_CHECKING:
    from ...engine import Bundle

ModelLike: TypeAlias = "Callable[[Any], Any] | Bundle | str | Path"
"""A function from a DataFrame of rows to an array, or a bundle, or its folder."""


def scorer_of(model: ModelLike, prediction: str | None, excluded: Sequence[str] = ()) -> Scorer:
    """The model as a function of tables.

    Args:
        model: A function, a bundle, or the folder of one.
        prediction: Of a bundle, the output of `predict`; None: its only one.
        excluded: Columns that are no features: label and weight.

    Raises:
        InputError: No such bundle, signature or output.
    """
    if callable(model):
        name = getattr(model, "__name__", "model")
        return lambda rows: checked_scores(model(features_of(model, dataframe(rows), name, excluded)), rows.num_rows)
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
    return lambda rows: checked_scores(bundle.run("predict", rows)[name], rows.num_rows)
