"""What each analyzer reads off its state: numbers, arrays, or a table that becomes an asset."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from .keyed import Elementwise, Keyed
from .moments import SCALARS, Moments
from .numbers import Numbers
from .products import Products
from .tukey import tukey_parameters
from .weighted import WeightedNumbers
from .words import TaggedWords, Words, vocabulary

Params = Mapping[str, Any]  # Any: JSON
Needs = tuple[str, tuple[str, ...]]  # the kind of state, and the parameters that it is made with


@dataclass(frozen=True)
class AnalyzerKind:
    """How an analyzer is computed: the state it needs, and what it makes of it."""

    state: Callable[[Params], Needs]
    finish: Callable[[Params, Any], Any]


def _elementwise(inner: str) -> Callable[[Params], Needs]:
    return lambda params: (f"elementwise-{inner}", ("width",)) if params.get("width") else (inner, ())


def _each(state: Any, read: Callable[[Any], Any]) -> Any:
    """What is read of a state, or of each place's."""
    return [read(one) for one in state.states] if isinstance(state, Elementwise) else read(state)


def _scalar(kind: str) -> AnalyzerKind:
    return AnalyzerKind(_elementwise("moments"), lambda params, state: _each(state, lambda s: s.scalar(kind)))


def _numbers(read: Callable[[Params, Numbers], Any]) -> AnalyzerKind:
    return AnalyzerKind(_elementwise("numbers"), lambda params, state: _each(state, lambda s: read(params, s)))


def _quantiles_of(params: Params) -> Needs:
    return ("weighted", ("weight",)) if params.get("weight") else _elementwise("numbers")(params)


def _numbers_per_key(params: Params) -> Needs:
    return ("keyed-weighted", ("key", "weight")) if params.get("weight") else ("keyed-numbers", ("key",))


def _words_of(params: Params) -> Needs:
    return ("tagged", ("weight",)) if params.get("weight") or params.get("label") else ("words", ())


def _vocabulary(params: Params, state: Words | TaggedWords) -> pa.Table:
    if isinstance(state, TaggedWords) and params.get("label"):
        ranked = state.informative(params["adjusted"], params["min_diff"])
    else:
        ranked = state.ranked()
    return vocabulary(ranked, params, params.get("key_fn"))


def _mode_of_text(params: Params, state: Words) -> pa.Table:
    ranked = state.ranked()
    best = [word for word, count in ranked if count == ranked[0][1]]
    return pa.table({"value": pa.array(sorted(best)[:1], pa.string())})


def _count_per_key(params: Params, state: Words) -> pa.Table:
    ranked = sorted(state.ranked())
    keys, counts = [word for word, _ in ranked], [count for _, count in ranked]
    return pa.table({"key": pa.array(keys, pa.string()), "count": pa.array(counts, pa.float64())})


def _per_key(params: Params, state: Keyed[Moments]) -> pa.Table:
    found = list(state.items())
    columns = {stat: pa.array([s.scalar(stat) for _, s in found], pa.float64()) for stat in params["stats"]}
    return pa.table({"key": pa.array([key for key, _ in found], pa.string()), **columns})


def _quantiles_per_key(params: Params, state: Keyed[Numbers] | Keyed[WeightedNumbers]) -> pa.Table:
    found = [(key, s.quantiles(params["buckets"])) for key, s in state.items()]
    edges = np.array([values for _, values in found], np.float64).reshape(len(found), params["buckets"] - 1)
    columns = {f"boundary {place}": pa.array(edges[:, place]) for place in range(edges.shape[1])}
    return pa.table({"key": pa.array([key for key, _ in found], pa.string()), **columns})


def _products(read: Callable[[Params, Products], Any]) -> AnalyzerKind:
    return AnalyzerKind(lambda params: ("products", ("width",)), read)


ANALYZERS: Final[Mapping[str, AnalyzerKind]] = {
    **{kind: _scalar(kind) for kind in SCALARS},
    "size": AnalyzerKind(lambda params: ("size", ()), lambda params, state: state.rows),
    "quantiles": AnalyzerKind(
        _quantiles_of, lambda params, state: _each(state, lambda s: s.quantiles(params["buckets"]))
    ),
    "median": _numbers(lambda params, state: state.median()),
    "mode": _numbers(lambda params, state: state.mode(params["column"])),
    "mode_of_text": AnalyzerKind(lambda params: ("words", ()), _mode_of_text),
    "histogram_counts": _numbers(lambda params, state: state.histogram(params["bins"])[0]),
    "histogram_edges": _numbers(lambda params, state: state.histogram(params["bins"])[1]),
    "tukey": _numbers(lambda params, state: list(tukey_parameters(state.table()))),
    "covariance": _products(lambda params, state: state.covariance()),
    "correlation": _products(lambda params, state: state.correlation()),
    "pca": _products(lambda params, state: state.components(params["k"])),
    "vocabulary": AnalyzerKind(_words_of, _vocabulary),
    "vocabulary_size": AnalyzerKind(_words_of, lambda params, state: _vocabulary(params, state).num_rows),
    "count_per_key": AnalyzerKind(lambda params: ("words", ()), _count_per_key),
    "moments_per_key": AnalyzerKind(lambda params: ("keyed-moments", ("key",)), _per_key),
    "quantiles_per_key": AnalyzerKind(_numbers_per_key, _quantiles_per_key),
    "documents": AnalyzerKind(lambda params: ("documents", ()), lambda params, state: state.frequencies()),
    "reduce": AnalyzerKind(lambda params: ("reduced", ("reducer",)), lambda params, state: state.result()),
}
"""Every analyzer by name. Boundaries of quantiles, medians and the like are NaN where no value was seen."""
