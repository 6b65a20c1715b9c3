"""Metrics of ranked documents, query by query: each is a mean over the queries that have a relevant document.

A row is a document: its label says how relevant it is (0: not at all), its prediction where it ranks. A query weighs
the mean of its documents' weights.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ...errors import InputError
from .definitions import NO_ROWS, Definition, Direction, Metric, Result, is_finite, mean
from .rows import Floats, SliceRows
from .states import Leaves, MetricState, Sums, Term

Gain: TypeAlias = Literal["linear", "exponential"]
_FAR: Final = 60.0  # a label whose gain of 2^label - 1 is 2^label in floats
_NOTHING_RELEVANT: Final = "no query with a relevant document"


@dataclass(frozen=True, eq=False)
class Rankings:
    """The documents of all queries, query by query and best first.

    Documents of equal predictions stand with the least relevant first, so that a model that cannot tell them apart
    gains nothing by their order.

    Attributes:
        label: (n,).
        prediction: (n,).
        position: (n,), from 0 within the query.
        starts: (queries,), where each begins.
        first: (queries,), which row is its best document.
        weight: (queries,).
    """

    label: Floats
    prediction: Floats
    position: NDArray[np.int64]
    starts: NDArray[np.int64]
    first: NDArray[np.int64]
    weight: Floats

    @classmethod
    def of(cls, rows: SliceRows) -> Rankings:
        """The rankings of some rows, at least one."""
        assert rows.query is not None
        order = np.lexsort((rows.label, -rows.prediction, rows.query))
        query = rows.query[order]
        starts = np.flatnonzero(np.concatenate([[True], query[1:] != query[:-1]]))
        sizes = np.diff(np.append(starts, len(query)))
        position = np.arange(len(query)) - np.repeat(starts, sizes)
        weight = np.add.reduceat(rows.weight[order], starts) / sizes
        return cls(rows.label[order], rows.prediction[order], position, starts, order[starts], weight)

    @property
    def relevant(self) -> NDArray[np.bool_]:
        """Which documents are relevant, i.e. have a label above 0; (n,)."""
        return self.label > 0

    def total(self, values: Floats) -> Floats:
        """Σ over each query's documents; (queries,)."""
        totals: Floats = np.add.reduceat(values, self.starts)
        return totals

    @property
    def sizes(self) -> NDArray[np.int64]:
        """Documents of each query."""
        return np.diff(np.append(self.starts, len(self.label)))


def _ndcg(ranked: Rankings, k: int | None, gain: Gain) -> Floats:
    """DCG / the best DCG, DCG being Σ gain / log2(position + 2); equal predictions share their positions' discounts.

    Järvelin and Kekäläinen 2002; ties after McSherry and Najork 2008, as scikit-learn has them.
    """
    sizes = ranked.sizes
    gains = _gains(ranked, gain)
    discount = _discount(ranked.position, k)
    # Runs of equal predictions: each document has the mean gain of its run.
    same = (ranked.position > 0) & (np.append(False, ranked.prediction[1:] == ranked.prediction[:-1]))
    runs = np.flatnonzero(~same)
    lengths = np.diff(np.append(runs, len(gains)))
    shared = np.repeat(np.add.reduceat(gains, runs) / lengths, lengths)
    query = np.repeat(np.arange(len(sizes)), sizes)
    best = gains[np.lexsort((-gains, query))]
    return ranked.total(shared * discount) / _or_one(ranked.total(best * discount))


def _gains(ranked: Rankings, gain: Gain) -> Floats:
    """The gain of each document / the largest of its query: NDCG is the same, and no label is too large or small."""
    largest = np.repeat(_or_one(np.maximum.reduceat(ranked.label, ranked.starts)), ranked.sizes)
    if gain == "linear":
        return ranked.label / largest
    few = np.minimum(largest, _FAR)
    exact = np.expm1(np.minimum(ranked.label, few) * np.log(2)) / np.expm1(few * np.log(2))
    # Above _FAR, 2^label - 1 rounds to 2^label, which may overflow.
    far: Floats = np.where(largest > _FAR, np.exp2(ranked.label - largest), exact)
    return np.where(ranked.label > 0, far, 0.0)


def _discount(position: NDArray[np.int64], k: int | None) -> Floats:
    discount: Floats = 1 / np.log2(position + 2.0)
    return discount if k is None else np.where(position < k, discount, 0.0)


def _or_one(values: Floats) -> Floats:
    """1 in place of 0, so that one may divide by it: queries without relevant documents are left out later."""
    return np.where(values > 0, values, 1.0)


def _first_relevant(ranked: Rankings, k: int | None) -> Floats:
    """The rank, from 1, of the first relevant document; infinite where none is among the first k."""
    among = ranked.relevant if k is None else ranked.relevant & (ranked.position < k)
    positions: Floats = np.minimum.reduceat(np.where(among, ranked.position + 1.0, np.inf), ranked.starts)
    return positions


def _reciprocal(ranked: Rankings, k: int | None) -> Floats:
    return 1 / _first_relevant(ranked, k)


def _any_hit(ranked: Rankings, k: int | None) -> Floats:
    return np.isfinite(_first_relevant(ranked, k)).astype(np.float64)


def _average_precision(ranked: Rankings, k: int | None) -> Floats:
    """The mean over the relevant documents of the precision where each stands; 0 for those beyond the first k."""
    relevant = ranked.relevant
    so_far = np.cumsum(relevant)
    before: NDArray[np.int64] = np.repeat(so_far[ranked.starts] - relevant[ranked.starts], ranked.sizes)
    precision = np.where(relevant, (so_far - before) / (ranked.position + 1), 0.0)
    if k is not None:
        precision = np.where(ranked.position < k, precision, 0.0)
    return ranked.total(precision) / _or_one(ranked.total(relevant.astype(np.float64)))


def _precision(ranked: Rankings, k: int) -> Floats:
    return _hits(ranked, k) / k


def _recall(ranked: Rankings, k: int) -> Floats:
    return _hits(ranked, k) / _or_one(ranked.total(ranked.relevant.astype(np.float64)))


def _hits(ranked: Rankings, k: int) -> Floats:
    return ranked.total((ranked.relevant & (ranked.position < k)).astype(np.float64))


_MEASURES: Final[Mapping[str, Callable[..., Floats]]] = {
    "ndcg": _ndcg,
    "reciprocal": _reciprocal,
    "first": _first_relevant,
    "hit": _any_hit,
    "average_precision": _average_precision,
    "precision": _precision,
    "recall": _recall,
}


@dataclass(frozen=True)
class QueryMeasure(Sums):
    """Σw, and Σw of a measure, of the queries that have a relevant document."""

    measure: str
    options: tuple[Any, ...]
    by_cells: ClassVar[bool] = False  # a query is ranked anew within each slice
    names: ClassVar[tuple[str, ...]] = ("weight", "measure")

    def terms(self, rows: SliceRows) -> Iterator[Term]:
        """The weight of each query with a relevant document, and that times its measure."""
        if not len(rows):
            return
        ranked = Rankings.of(rows)
        some = ranked.total(ranked.relevant.astype(np.float64)) > 0
        first = ranked.first[some]
        yield Term("weight", ranked.weight[some], first)
        yield Term("measure", ranked.weight[some] * _MEASURES[self.measure](ranked, *self.options)[some], first)

    def summed(self, sums: Mapping[str, float]) -> Mapping[str, float]:
        """The sums, 0 where no query had a relevant document."""
        return {"weight": 0.0, "measure": 0.0, **sums}


def _of_queries(title: str, direction: Direction, measure: str, *options: Any, bar: bool = True) -> Metric:
    def result(sums: Mapping[str, float]) -> Result:
        value = mean(sums, "measure")
        return _NOTHING_RELEVANT if value == NO_ROWS else value

    return Metric(title, direction, QueryMeasure(measure, options), result, bar=bar)


def ndcg(*, k: int | None = None, gain: Gain = "linear") -> Metric:
    """Discounted gain of the first k documents / that of the best order; gain "exponential" is 2^label − 1."""
    if gain not in ("linear", "exponential"):
        raise InputError(f"gain must be 'linear' or 'exponential', not {gain!r}")
    return _of_queries("NDCG", "higher", "ndcg", _whole(k), gain)


def mean_reciprocal_rank(*, k: int | None = None) -> Metric:
    """1 / the position of the first relevant document, 0 where none is among the first k."""
    return _of_queries("Mean reciprocal rank", "higher", "reciprocal", _whole(k))


def mean_average_precision(*, k: int | None = None) -> Metric:
    """The mean over a query's relevant documents of the precision where each stands, 0 for those beyond the first k."""
    return _of_queries("Mean average precision", "higher", "average_precision", _whole(k))


def hit_rate(*, k: int = 10) -> Metric:
    """The share of the queries with a relevant document among the first k."""
    return _of_queries("Hit rate", "higher", "hit", _whole(k))


def precision_at_k(*, k: int) -> Metric:
    """The relevant ones of the first k documents / k."""
    return _of_queries("Precision at k", "higher", "precision", _whole(k))


def recall_at_k(*, k: int) -> Metric:
    """The relevant ones of the first k documents / all relevant ones."""
    return _of_queries("Recall at k", "higher", "recall", _whole(k))


def min_label_position() -> Metric:
    """The position, from 1, of the first relevant document."""
    return _of_queries("First relevant position", "lower", "first", None, bar=False)


def _whole(k: Any) -> int | None:  # Any: what a user wrote
    if k is not None and not (isinstance(k, int) and is_finite(k) and k >= 1):
        raise InputError(f"k must be a number of documents, not {k!r:.40}")
    return k


@dataclass(frozen=True)
class QuerySizes(MetricState):
    """How many queries and documents there are, and the fewest and most documents of a query."""

    def init(self) -> Leaves:
        """No query and no document."""
        return {"queries": np.zeros(1), "documents": np.zeros(1), "fewest": np.full(1, np.inf), "most": np.zeros(1)}

    def add(self, leaves: Leaves, rows: SliceRows) -> Leaves:
        """Count whole queries."""
        return self.merge(leaves, self._count(rows)) if len(rows) else leaves

    def _count(self, rows: SliceRows) -> Leaves:
        assert rows.query is not None
        _, sizes = np.unique(rows.query, return_counts=True)
        counts = (len(sizes), sizes.sum(), sizes.min(), sizes.max())
        return {name: np.full(1, float(count)) for name, count in zip(self.init(), counts, strict=True)}

    def merge(self, left: Leaves, right: Leaves) -> Leaves:
        """The counts of the queries of both, none of which is in both."""
        joins = {"fewest": np.minimum, "most": np.maximum}
        return {name: joins.get(name, np.add)(left[name], right[name]) for name in left}


def _sized(title: str, name: str) -> Metric:
    def result(leaves: Leaves) -> Result:
        return float(leaves[name][0]) if leaves["queries"][0] else NO_ROWS

    return Metric(title, None, QuerySizes(), result, total=True)


def query_count() -> Metric:
    """How many queries there are, those without a relevant document among them."""
    return _sized("Queries", "queries")


def min_documents() -> Metric:
    """The fewest documents of a query."""
    return _sized("Fewest documents", "fewest")


def max_documents() -> Metric:
    """The most documents of a query."""
    return _sized("Most documents", "most")


def mean_documents() -> Metric:
    """Documents / queries."""

    def result(leaves: Leaves) -> Result:
        return float(leaves["documents"][0] / leaves["queries"][0]) if leaves["queries"][0] else NO_ROWS

    return Metric("Mean documents", None, QuerySizes(), result)


def _ranking(build: Callable[..., Metric], *, default: bool = False) -> Definition:
    return Definition(build, ("ranking",), default)


RANKING_METRICS: Final[Mapping[str, Definition]] = {
    "ndcg": _ranking(ndcg, default=True),
    "mean_reciprocal_rank": _ranking(mean_reciprocal_rank, default=True),
    "mean_average_precision": _ranking(mean_average_precision, default=True),
    "hit_rate": _ranking(hit_rate),
    "precision_at_k": _ranking(precision_at_k),
    "recall_at_k": _ranking(recall_at_k),
    "min_label_position": _ranking(min_label_position),
    "query_count": _ranking(query_count, default=True),
    "min_documents": _ranking(min_documents),
    "max_documents": _ranking(max_documents),
    "mean_documents": _ranking(mean_documents),
}
