"""What a metric sees of one slice and one model: labels, predictions, weights, and predictions to compare with."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]
Labels: TypeAlias = NDArray[np.bool_]
Task: TypeAlias = Literal["binary", "regression", "multiclass", "multilabel", "ranking"]
TASKS: tuple[Task, ...] = ("binary", "regression", "multiclass", "multilabel", "ranking")


@dataclass(frozen=True, eq=False)
class SliceRows:
    """n examples. Nothing in them is missing or NaN, and weights are finite and ≥ 0.

    Attributes:
        label: Binary: (n,), booleans. Regression: (n,), floats. Multi-class: (n,), the index of the class. Multi-label:
            (n, k), booleans. Ranking: (n,), floats ≥ 0.
        prediction: (n,), or (n, k) with a score for each of k classes.
        weight: (n,), 1 where examples have no weight.
        baseline: As `prediction`, of the model to compare with; None where there is none.
        bucket: (n,), the bucket of each row, where intervals are wanted.
        query: Ranking: (n,), a number for each query; all its documents are there.
    """

    label: NDArray[Any]
    prediction: Floats
    weight: Floats
    baseline: Floats | None = None
    bucket: NDArray[np.int16] | None = None
    query: NDArray[np.uint64] | None = None

    @classmethod
    def of_weight_1(cls, label: NDArray[Any], prediction: Floats, *others: Any) -> SliceRows:
        """Rows without weights, which take no memory then; further arguments as those behind `weight`."""
        rows = cls(label, prediction, np.broadcast_to(1.0, len(label)), *others)
        rows.__dict__["unweighted"] = True
        return rows

    def __len__(self) -> int:
        return len(self.weight)

    def take(self, which: Any) -> SliceRows:
        """Some of the rows, by a slice, a mask or positions."""
        positions = isinstance(which, np.ndarray) and which.dtype != np.bool_

        def of(values: Any) -> Any:  # None or an array, and the same
            # By positions, `take` is quicker than brackets.
            return None if values is None else values.take(which, axis=0) if positions else values[which]

        label = of(self.label)
        # Of weights that are all 1, any so many are those of the rows; a draw may repeat rows, and have more.
        weight = self.weight[: len(label)] if self.unweighted and len(label) <= len(self) else of(self.weight)
        some = SliceRows(label, of(self.prediction), weight, of(self.baseline), of(self.bucket), of(self.query))
        if self.unweighted:
            some.__dict__["unweighted"] = True
        return some

    def read_only(self) -> SliceRows:
        """The same rows in arrays that refuse to be changed."""
        views = {}
        for name in self.__dataclass_fields__:
            values = getattr(self, name)
            if values is not None:
                values = values.view()
                values.flags.writeable = False
            views[name] = values
        return SliceRows(**views)

    @cached_property
    def unweighted(self) -> bool:
        """Whether every weight is 1, so that sums of weights are counts."""
        return bool((self.weight == 1).all())

    @cached_property
    def weighted(self) -> Floats:
        """Each row's prediction times its weight, as `prediction`."""
        return self.prediction if self.unweighted else self.weight * self.prediction

    @cached_property
    def labelled(self) -> dict[bool, NDArray[np.int64]]:
        """Where the label is yes and where it is no, of labels that are booleans."""
        return {True: np.flatnonzero(self.label), False: np.flatnonzero(~self.label)}

    @cached_property
    def buckets(self) -> NDArray[np.int64]:
        """`bucket`, where there is one."""
        assert self.bucket is not None
        return self.bucket.astype(np.int64)

    @cached_property
    def by_bucket(self) -> list[tuple[int, SliceRows]]:
        """Each bucket that has rows, with its rows in their order."""
        assert self.bucket is not None
        order = np.argsort(self.bucket, kind="stable")
        present, starts = np.unique(self.bucket[order], return_index=True)
        rows = self.take(order)
        ends = [*starts[1:].tolist(), len(self)]
        parts = zip(present.tolist(), starts.tolist(), ends, strict=True)
        return [(bucket, rows.take(slice(start, end))) for bucket, start, end in parts]
