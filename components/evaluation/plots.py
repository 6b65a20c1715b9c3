"""Points to draw, few enough for a page: the ROC curve and the calibration by tenths of the score."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from .tally import Tally

_POINTS: Final = 200
_BUCKETS: Final = 10


def plots(tally: Tally) -> dict[str, Any]:
    """The points of one slice and model.

    Returns:
        `roc`: [false positive rate, true positive rate, threshold] from (0, 0) to (1, 1), at most 202 points, empty
        where only one class is there. `calibration`: for each tenth of [0, 1] that holds examples, its `low` and
        `high` edge, the `weight` in it, the mean `prediction` and the mean `label`.
    """
    return {"roc": _roc(tally), "calibration": _calibration(tally)}


def _roc(tally: Tally) -> list[list[float | None]]:
    if not tally.positive_weight or not tally.negative_weight:
        return []
    hits, alarms = np.cumsum(tally.positives[::-1]), np.cumsum(tally.negatives[::-1])
    tpr, fpr, scores = hits / hits[-1], alarms / alarms[-1], tally.scores[::-1]
    # Even steps along the curve's length (fpr + tpr), so that steep and flat parts get points alike.
    wanted = np.linspace(0, 2, _POINTS)
    kept = np.unique(np.minimum(np.searchsorted(fpr + tpr, wanted), len(scores) - 1))
    points: list[list[float | None]] = [[0.0, 0.0, None]]
    points += [[float(fpr[at]), float(tpr[at]), float(scores[at])] for at in kept]
    return points if kept[-1] == len(scores) - 1 else [*points, [1.0, 1.0, float(scores[-1])]]


def _calibration(tally: Tally) -> list[dict[str, float]]:
    bucket = np.minimum((tally.scores * _BUCKETS).astype(np.int64), _BUCKETS - 1)
    mass = tally.positives + tally.negatives
    weight = np.bincount(bucket, mass, minlength=_BUCKETS)
    label = np.bincount(bucket, tally.positives, minlength=_BUCKETS)
    score = np.bincount(bucket, mass * tally.scores, minlength=_BUCKETS)
    return [
        {
            "low": at / _BUCKETS,
            "high": (at + 1) / _BUCKETS,
            "weight": float(weight[at]),
            "prediction": float(score[at] / weight[at]),
            "label": float(label[at] / weight[at]),
        }
        for at in np.flatnonzero(weight).tolist()
    ]
