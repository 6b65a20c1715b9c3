"""The loss that a second model expects of each row: direct loss estimation (DLE), for predictions of numbers.

A regression of the losses of a labelled reference on the row's columns and its prediction gives the loss to expect
where there is no label, as NannyML's documentation describes it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np

from ...errors import InputError, missing_extra
from .rows import Floats

LOSSES: Final[Mapping[str, Callable[[Floats, Floats], Floats]]] = {
    "mae": lambda label, prediction: np.abs(prediction - label),
    "mse": lambda label, prediction: (prediction - label) ** 2,
    "rmse": lambda label, prediction: (prediction - label) ** 2,
}
"""The metrics that are means of a row's loss, or the root of one: metric → the loss from label and prediction, (n,)."""
_FOLDS: Final = 5


def expected_losses(
    features: Floats, reference: Floats, losses: Floats, weight: Floats, seed: int
) -> tuple[Floats, Floats]:
    """What to expect of each row, and how far the reference's losses are from what was expected of them.

    Args:
        features: (n, d), NaN where missing.
        reference: Those of the rows whose losses are known, (m, d).
        losses: Their losses, (m,).
        weight: Their weights, (m,).
        seed: For the folds and the model.

    Returns:
        The expected losses, (n,), none below 0; and of each row of the reference its loss − the one expected by a model
        that has not seen it, (m,).

    Raises:
        InputError: The reference has fewer than 100 rows.
        DrivetrainError: scikit-learn is not installed.
    """
    try:
        from sklearn.ensemble import HistGradientBoostingRegressor
    except ModuleNotFoundError as error:
        raise missing_extra("scikit-learn", "analysis") from error
    if len(losses) < 100:
        raise InputError(f"the reference has {len(losses)} rows, of at least 100 to learn losses from")

    def fitted(rows: Any) -> Any:  # an index, and a model of scikit-learn's
        model = HistGradientBoostingRegressor(max_leaf_nodes=15, min_samples_leaf=20, random_state=seed)
        return model.fit(reference[rows], losses[rows], sample_weight=weight[rows])

    fold = np.random.default_rng(seed).integers(0, _FOLDS, len(losses))
    unseen = np.zeros(len(losses))
    for part in range(_FOLDS):
        unseen[fold == part] = fitted(fold != part).predict(reference[fold == part])
    expected = np.maximum(fitted(slice(None)).predict(features), 0.0)
    return expected, losses - np.maximum(unseen, 0.0)
