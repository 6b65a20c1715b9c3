"""The operators of ONNX's domain `ai.onnx.ml` that scikit-learn, XGBoost and LightGBM models are made of, in JAX.

Definitions: https://onnx.ai/onnx/operators/ai.onnx.ml_TreeEnsembleClassifier.html and its neighbours; where these leave
a case open (two classes and one column of scores), what onnxruntime does. Classes come as their whole numbers; of
classes that are texts, each is its position in the list, since the device has no texts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from ...errors import InputError
from .onnx_ops import Attributes, Operator, Value

_COMPARISONS: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    "BRANCH_LEQ": jnp.less_equal,
    "BRANCH_LT": jnp.less,
    "BRANCH_GTE": jnp.greater_equal,
    "BRANCH_GT": jnp.greater,
    "BRANCH_EQ": jnp.equal,
    "BRANCH_NEQ": jnp.not_equal,
}
_LEAF: Final = "LEAF"
_FEW_RESULTS: Final = 1024
"""Targets or classes that trees may have without a weight for each."""


def _text(value: bytes | str) -> str:
    return value.decode() if isinstance(value, bytes) else value


def _floats(attributes: Attributes, name: str) -> NDArray[np.float32]:
    """A list of floats, or the tensor that stands for it where they are doubles."""
    values = attributes.get(name)
    return np.asarray(attributes.get(f"{name}_as_tensor", ()) if values is None else values, np.float32)


def _transformed(attributes: Attributes, scores: Value) -> Value:
    kind = attributes.get("post_transform", "NONE")
    if kind == "NONE":
        return scores
    if kind == "LOGISTIC":
        return jax.nn.sigmoid(scores)
    if kind == "SOFTMAX":
        return jax.nn.softmax(scores, -1)
    raise InputError(f"post_transform {kind} is not known", fix="export it with NONE, LOGISTIC or SOFTMAX")


def _classes(attributes: Attributes, count: int) -> NDArray[np.int32]:
    """The classes' numbers; of texts their positions."""
    labels = attributes.get("classlabels_int64s", attributes.get("classlabels_ints"))
    if labels is None:
        labels = range(len(attributes.get("classlabels_strings", range(count))))
    return np.asarray(labels, np.int32)


def _scaler(attributes: Attributes, x: Value) -> Value:
    return (jnp.asarray(x, jnp.float32) - _floats(attributes, "offset")) * _floats(attributes, "scale")


def _normalizer(attributes: Attributes, x: Value) -> Value:
    x = jnp.asarray(x, jnp.float32)
    kind = attributes.get("norm", "MAX")
    largest = x.max(-1, keepdims=True) if kind == "MAX" else None
    norm = jnp.linalg.norm(x, 1 if kind == "L1" else 2, -1, keepdims=True) if largest is None else largest
    return jnp.where(norm == 0, x, x / jnp.where(norm == 0, 1, norm))


def _linear(attributes: Attributes, x: Value, rows: int) -> Value:
    """Scores x · coefficientsᵀ + intercepts, of so many rows of coefficients."""
    coefficients = _floats(attributes, "coefficients").reshape(rows, -1)
    intercepts = _floats(attributes, "intercepts")
    scores = jnp.matmul(jnp.asarray(x, jnp.float32), coefficients.T)
    return scores + intercepts if intercepts.size else scores


def _linear_regressor(attributes: Attributes, x: Value) -> Value:
    return _transformed(attributes, _linear(attributes, x, attributes.get("targets", 1)))


def _linear_classifier(attributes: Attributes, x: Value) -> tuple[Value, Value]:
    classes = _classes(attributes, 2)
    rows = len(_floats(attributes, "intercepts")) or len(classes)
    scores = _linear(attributes, x, rows)
    if rows == 1 and len(classes) == 2:
        label, both = _of_two(attributes, scores[:, 0], classes, positive=False)
        logistic = attributes.get("post_transform") == "LOGISTIC"
        return label, both if logistic else both.at[:, 0].add(1)  # as onnxruntime does: 1 - score, whatever it means
    return jnp.take(classes, scores.argmax(-1)), _transformed(attributes, scores)


def _of_two(attributes: Attributes, score: Value, classes: NDArray[np.int32], *, positive: bool) -> tuple[Value, Value]:
    """Label and scores of two classes of which the model scores the second: a probability, or a number around zero."""
    label = jnp.where(score > (0.5 if positive else 0), classes[1], classes[0])
    if attributes.get("post_transform") == "LOGISTIC":
        return label, jax.nn.sigmoid(jnp.stack([-score, score], -1))
    return label, jnp.stack([1 - score if positive else -score, score], -1)


def _leaves(attributes: Attributes, x: Value) -> tuple[Value, dict[tuple[int, int], int]]:
    """The leaf of each row in each tree, [rows, trees], as a node's number; and the numbers by (tree, node).

    All trees are walked at once, a level at a time: a leaf leads to itself, so that short trees wait for the deepest.
    """
    keys = list(zip(attributes["nodes_treeids"], attributes["nodes_nodeids"], strict=True))
    number = {key: position for position, key in enumerate(keys)}
    modes = [_text(mode) for mode in attributes["nodes_modes"]]
    if unknown := {*modes} - {*_COMPARISONS, _LEAF}:
        raise InputError(f"trees branch by {', '.join(sorted(unknown))}", fix=f"known are {', '.join(_COMPARISONS)}")

    def children(which: str) -> NDArray[np.int32]:
        nodes = zip(keys, attributes[which], modes, strict=True)
        return np.array([number[key] if mode == _LEAF else number[key[0], to] for key, to, mode in nodes], np.int32)

    yes, no = children("nodes_truenodeids"), children("nodes_falsenodeids")
    inner = np.array([mode != _LEAF for mode in modes], bool)
    roots = np.setdiff1d(np.arange(len(keys)), np.concatenate([yes[inner], no[inner]]))
    depth, level = 0, roots
    while inner[level].any():
        depth, level = depth + 1, np.unique(np.concatenate([yes[level], no[level]]))
        if depth > len(keys):
            raise InputError("a tree leads back to one of its own nodes", fix="export the model again")
    features = np.array(attributes["nodes_featureids"], np.int32)
    values = _floats(attributes, "nodes_values")
    missing = np.array(attributes.get("nodes_missing_value_tracks_true") or [0] * len(keys), bool)
    x = jnp.asarray(x, jnp.float32)
    at = jnp.broadcast_to(jnp.asarray(roots, jnp.int32), (x.shape[0], len(roots)))
    kinds = sorted({*modes} - {_LEAF})
    for _ in range(depth):
        value = jnp.take_along_axis(x, jnp.take(features, at), 1)
        goes = jnp.zeros(at.shape, bool)
        for kind in kinds:
            holds = _COMPARISONS[kind](value, jnp.take(values, at))
            goes = (
                holds if len(kinds) == 1 else jnp.where(jnp.take(np.array([m == kind for m in modes]), at), holds, goes)
            )
        if missing.any():
            goes |= jnp.isnan(value) & jnp.take(missing, at)
        at = jnp.where(goes, jnp.take(yes, at), jnp.take(no, at))
    return at, number


def _check_results(results: int, weights: int) -> None:
    """Refuse a number that a few bytes of a file say, and that would fill the memory."""
    if results > max(_FEW_RESULTS, weights):
        raise InputError(f"its trees have {weights:,} weights for {results:,} results", fix="export the model again")


def _ensemble(attributes: Attributes, x: Value, prefix: str, columns: int) -> Value:
    """The weights of the rows' leaves, [rows, trees, columns]."""
    parts = (attributes[f"{prefix}_treeids"], attributes[f"{prefix}_nodeids"], attributes[f"{prefix}_ids"])
    _check_results(columns, len(parts[2]))
    at, number = _leaves(attributes, x)
    weights = np.zeros((len(number), columns), np.float32)
    for tree, node, column, weight in zip(*parts, _floats(attributes, f"{prefix}_weights"), strict=True):
        weights[number[tree, node], column] += weight
    return jnp.take(weights, at, axis=0)


def _tree_regressor(attributes: Attributes, x: Value) -> Value:
    weights = _ensemble(attributes, x, "target", attributes.get("n_targets", 1))
    kind = attributes.get("aggregate_function", "SUM")
    aggregates: dict[str, Operator] = {"SUM": jnp.sum, "AVERAGE": jnp.mean, "MIN": jnp.min, "MAX": jnp.max}
    scores = aggregates[kind](weights, axis=1)
    base = _floats(attributes, "base_values")
    return _transformed(attributes, scores + base if base.size else scores)


def _tree_classifier(attributes: Attributes, x: Value) -> tuple[Value, Value]:
    _check_results(1 + max(attributes["class_ids"]), len(attributes["class_ids"]))
    classes = _classes(attributes, 1 + max(attributes["class_ids"]))
    scored = {*attributes["class_ids"]}
    scores = _ensemble(attributes, x, "class", len(classes)).sum(1)
    base = _floats(attributes, "base_values")
    positive = bool((_floats(attributes, "class_weights") >= 0).all())
    if len(classes) == 2 and scored == {1}:
        raise InputError("its trees score the second of two classes alone", fix="export them with class_ids of 0")
    if len(classes) == 2 and base.size > 1:  # onnxruntime then ignores the first
        raise InputError("its two classes have base values of their own", fix="export it with one, or none")
    if len(classes) == 2 and scored == {0}:
        score = scores[:, 0] + base[0] if base.size else scores[:, 0]
        return _of_two(attributes, score, classes, positive=positive)
    scores = scores + base if base.size else scores
    # Of two classes onnxruntime does not ask which scores more, but whether the second scores at all.
    best = (scores[:, 1] > 0).astype(int) if len(classes) == 2 else scores.argmax(-1)
    return jnp.take(classes, best), _transformed(attributes, scores)


def _feature_extractor(attributes: Attributes, x: Value, indices: Value) -> Value:
    return jnp.take(jnp.atleast_2d(jnp.asarray(x)), jnp.asarray(indices).reshape(-1), axis=-1)


ML_OPS: Final[Mapping[str, Operator]] = {
    "ArrayFeatureExtractor": _feature_extractor,
    "LinearClassifier": _linear_classifier,
    "LinearRegressor": _linear_regressor,
    "Normalizer": _normalizer,
    "Scaler": _scaler,
    "TreeEnsembleClassifier": _tree_classifier,
    "TreeEnsembleRegressor": _tree_regressor,
    "ZipMap": lambda attributes, scores: scores,  # a dict for each row, of which the numbers are these
}
