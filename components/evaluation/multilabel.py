"""Metrics of several labels of which any may hold: of whole rows, and of all decisions together."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar, Final

import numpy as np

from .binary import f1
from .classes import for_several_classes
from .definitions import Definition, Metric, mean
from .rows import SliceRows
from .states import Sums, Term


@dataclass(frozen=True)
class WholeRows(Sums):
    """Σw, Σw of the rows that are right in all labels, Σw·(share of wrong labels), Σw·(intersection over union)."""

    threshold: float = 0.5
    names: ClassVar[tuple[str, ...]] = ("weight", "exact", "wrong", "jaccard")

    def terms(self, rows: SliceRows) -> Iterator[Term]:
        """Each row's weight, whether all labels are right, the share that is wrong, and the overlap."""
        called = rows.prediction > self.threshold
        wrong = called != rows.label
        yield Term("weight")
        yield Term("exact", of=~wrong.any(axis=1))
        yield Term("wrong", rows.weight * wrong.mean(axis=1))
        both, either = (called & rows.label).sum(axis=1), (called | rows.label).sum(axis=1)
        # Nothing called where nothing holds is as right as can be.
        overlap = np.divide(both, either, out=np.ones(len(rows)), where=either > 0)
        yield Term("jaccard", rows.weight * overlap)


def exact_match(*, threshold: float = 0.5) -> Metric:
    """Σw of the rows that are right in all labels / Σw, a prediction above the threshold counting as yes."""
    return Metric("Exact match", "higher", WholeRows(threshold), lambda sums: mean(sums, "exact"), bar=True)


def hamming_loss(*, threshold: float = 0.5) -> Metric:
    """The share of labels that are wrong."""
    return Metric("Hamming loss", "lower", WholeRows(threshold), lambda sums: mean(sums, "wrong"), bar=True)


def jaccard(*, threshold: float = 0.5) -> Metric:
    """The mean over rows of |called ∩ labels| / |called ∪ labels|; 1 for a row with neither."""
    return Metric("Jaccard index", "higher", WholeRows(threshold), lambda sums: mean(sums, "jaccard"), bar=True)


def micro_f1(*, threshold: float = 0.5) -> Metric:
    """2·TP / (2·TP + FP + FN) with TP, FP and FN summed over labels."""
    return for_several_classes(f1(threshold=threshold), "f1", None, average="micro").titled("Micro F1")


def macro_f1(*, threshold: float = 0.5) -> Metric:
    """The mean over labels of 2·TP / (2·TP + FP + FN); a label that never holds and is never called has none."""
    return for_several_classes(f1(threshold=threshold), "f1", None, average="macro").titled("Macro F1")


def _multilabel(build: Callable[..., Metric]) -> Definition:
    return Definition(build, ("multilabel",), default=True)


MULTILABEL_METRICS: Final[Mapping[str, Definition]] = {
    "exact_match": _multilabel(exact_match),
    "hamming_loss": _multilabel(hamming_loss),
    "jaccard": _multilabel(jaccard),
    "micro_f1": _multilabel(micro_f1),
    "macro_f1": _multilabel(macro_f1),
}
