"""The loss that a second model expects of each row: direct loss estimation (DLE), for predictions of numbers.

A regression of the losses of a labelled reference on the row's columns and its prediction gives the loss to expect
where there is no label, as NannyML's documentation describes it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
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
_FOLDS: Final = 10
_FEW: Final = 50_000  # rows of a reference


@dataclass(frozen=True, eq=False)
class ExpectedLosses:
    """What a model of losses expects of each row.

    Attributes:
        losses: (n,), none below 0.
        apart: Of each row of the reference its loss − the one expected by a model that has not seen it, (m,).
        without: What models expect that were fitted without one fold of the reference each, (folds, n).
    """

    losses: Floats
    apart: Floats
    without: Floats

    def resampled(self, generator: np.random.Generator) -> Floats:
        """What a model might expect that was fitted to another reference, (n,).

        A normal draw around `losses`, whose covariance is the one that the jackknife over the folds gives: (g − 1)/g ·
        Σ dᵢdᵢᵀ, with dᵢ how far the model without fold i is from the mean of such models.
        """
        folds = len(self.without)
        steps = generator.standard_normal(folds) * math.sqrt((folds - 1) / folds)
        likely: Floats = np.maximum(self.losses + steps @ (self.without - self.without.mean(axis=0)), 0.0)
        return likely


def expected_losses(features: Floats, reference: Floats, losses: Floats, weight: Floats, seed: int) -> ExpectedLosses:
    """What to expect of each row.

    Args:
        features: (n, d), NaN where missing.
        reference: Those of the rows whose losses are known, (m, d).
        losses: Their losses, (m,).
        weight: Their weights, (m,).
        seed: For the folds and the model.

    Raises:
        InputError: The reference has fewer than 100 rows.
        DrivetrainError: scikit-learn is not installed.
    """
    try:
        from sklearn.ensemble import HistGradientBoostingRegressor
        from threadpoolctl import threadpool_limits  # which scikit-learn needs
    except ModuleNotFoundError as error:
        raise missing_extra("scikit-learn", "analysis") from error
    if len(losses) < 100:
        raise InputError(f"the reference has {len(losses)} rows, of at least 100 to learn losses from")

    def fitted(rows: Any) -> Any:  # an index, and a model of scikit-learn's
        known = reference[rows]
        # scikit-learn cannot fit a column without any value. No split is by a column that is 0 in all rows.
        known = np.where(np.isnan(known).all(axis=0), 0.0, known)
        model = HistGradientBoostingRegressor(max_leaf_nodes=15, min_samples_leaf=20, random_state=seed)
        return model.fit(known, losses[rows], sample_weight=weight[rows])

    fold = np.random.default_rng(seed).integers(0, _FOLDS, len(losses))
    unseen = np.zeros(len(losses))
    without = np.zeros((_FOLDS, len(features)))
    # Of few rows, threads that wait for each other take three times the CPU; on a busy machine far more.
    with threadpool_limits(1 if len(losses) < _FEW else None, user_api="openmp"):
        for part in range(_FOLDS):
            model = fitted(fold != part)
            unseen[fold == part] = model.predict(reference[fold == part])
            without[part] = model.predict(features)
        expected = np.maximum(fitted(slice(None)).predict(features), 0.0)
    return ExpectedLosses(expected, losses - np.maximum(unseen, 0.0), without)
