"""What a metric sees of one slice and one model: labels, predictions, weights, and predictions to compare with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]
Labels: TypeAlias = NDArray[np.bool_]
Task: TypeAlias = Literal["binary", "regression", "multiclass", "multilabel"]
TASKS: tuple[Task, ...] = ("binary", "regression", "multiclass", "multilabel")


@dataclass(frozen=True, eq=False)
class SliceRows:
    """n examples. Nothing in them is missing or NaN, and weights are finite and ≥ 0.

    Attributes:
        label: Binary: (n,), booleans. Regression: (n,), floats. Multi-class: (n,), the index of the class. Multi-label:
            (n, k), booleans.
        prediction: (n,), or (n, k) with a score for each of k classes.
        weight: (n,), 1 where examples have no weight.
        baseline: As `prediction`, of the model to compare with; None where there is none.
    """

    label: NDArray[Any]
    prediction: Floats
    weight: Floats
    baseline: Floats | None = None

    def __len__(self) -> int:
        return len(self.weight)

    def take(self, which: Any) -> SliceRows:
        """Some of the rows, by a slice, a mask or positions."""
        baseline = None if self.baseline is None else self.baseline[which]
        return SliceRows(self.label[which], self.prediction[which], self.weight[which], baseline)
