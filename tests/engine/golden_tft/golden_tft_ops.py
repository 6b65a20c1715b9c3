"""Our op for each of TFT's: what it takes, and the call."""

from __future__ import annotations

import dataclasses
import operator
import re
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from drivetrain.engine import ops
from drivetrain.engine.tracing.columns import Column
from golden_tft_calls import (  # type: ignore[import-not-found]  # conftest puts this folder on the path
    APPLYING,
    TEXT_MAPPERS,
    Call,
    Calls,
    Made,
    Result,
)
from golden_tft_grammar import NotUnderstoodError, Step, inside  # type: ignore[import-not-found]  # as above


def numbers_in(step: Step) -> list[Any]:
    """The numeric arguments, in order; or those that are named."""
    named = (step.options.get(key) for key in ("num_buckets", "hash_buckets", "output_dim", "vocab_size", "depth"))
    return [arg for arg in (*step.args, *named) if isinstance(arg, (int, float)) and not isinstance(arg, bool)]


def buckets_of(step: Step) -> int:
    """How many buckets; 10 where a step says none, as one that fails anyway may."""
    return int((numbers_in(step) or [10])[0])


def is_elementwise(step: Step) -> bool:
    """Whether each place of a vector has statistics of its own."""
    return bool(step.options.get("elementwise")) or step.options.get("reduce_instance_dims") is False


def ranged(step: Step) -> tuple[float, float]:
    """The ends of scale_by_min_max."""
    if step.name.startswith("scale_to_0_1"):
        return 0.0, 1.0
    given = numbers_in(step)
    low = step.options.get("output_min", given[0] if given else 0.0)
    high = step.options.get("output_max", given[1] if len(given) > 1 else 1.0)
    return float(low), float(high)


def boundaries(calls: Calls, step: Step, source: Made) -> Any:
    """The boundaries that a step is given: numbers, or those of another column's quantiles."""
    for arg in (*step.args, *step.options.values()):
        if isinstance(arg, Step) and arg.name == "quantiles":
            return ops.quantiles(source.value, numbers_in(arg)[0], weights=calls.side(arg, "weights"))
    found = edges_of(step)
    if found is None:
        raise NotUnderstoodError(f"no boundaries in {step.text!r}")
    return found


def item_of(value: Any) -> str | None:
    """What a column is a list of; None for what is not a list."""
    return value.item if isinstance(value, Column) else None


def _interpolated(calls: Calls, step: Step, source: Made) -> Result:
    edges = boundaries(calls, step, source)
    if item_of(source.value) is not None:
        ragged = ops.to_ragged(source.value)
        return [("", ragged.map_values(lambda values: ops.apply_buckets_with_interpolation(values, edges)))]
    return [("", ops.apply_buckets_with_interpolation(source.value, edges))]


def _statistic(calls: Calls, step: Step, source: Made) -> Result:
    x = source.value
    feature = calls.features.get(source.column or "")
    if step.name != "size":
        return [("", getattr(ops, step.name)(x, elementwise=is_elementwise(step)))]
    if feature is not None and feature.lists:
        return [("", ops.sum(ops.fill_missing(ops.word_count(x), 0)))]
    width = () if isinstance(x, Column) else x.shape[1:]
    if not width:
        return [("", ops.size(x))]
    return [("", ops.size(x) * (jnp.ones(width, jnp.int32) if is_elementwise(step) else width[0]))]


def _ids(calls: Calls, step: Step, source: Made) -> Result:
    if step.name == "apply_vocabulary":
        name = list(calls.learnt)[-1]
        learnt = calls.learnt[name]
    else:
        name, learnt = calls.learn(step, source, 0.0)
    applying = {"oov_buckets": 0} | {
        ours: step.options[theirs] for theirs, ours in APPLYING.items() if theirs in step.options
    }
    calls.applied[name] = applying
    return [("", ops.apply_vocabulary(source.value, learnt, **applying), name)]


def _vocabulary(calls: Calls, step: Step, source: Made) -> Result:
    name, learnt = calls.learn(step, source, None)
    given = source.value[0] if isinstance(source.value, list) else source.value
    calls.hidden[f"_{name}"] = ops.apply_vocabulary(given, learnt)
    if isinstance(source.value, list):
        return [("vocabulary", source.value, name)]
    applied = ops.apply_vocabulary(given, learnt, oov_buckets=0)  # should the case have its ids and not say so
    return [("vocabulary", source.value, name), ("ids", applied, name)]


def _size_by_name(calls: Calls, step: Step, source: Made) -> Result:
    if not calls.learnt:
        made = calls.call(Step("compute_and_apply_vocabulary", text=step.text), None)
        name = made.learnt
    else:
        name = list(calls.learnt)[-1]
    return [("", ops.vocabulary_size(calls.learnt[str(name)]))]


def _split(calls: Calls, step: Step, source: Made) -> Result:
    if step.flag("characters"):
        return [("", ops.split(source.value, regex=""))]
    raw = inside(step.text) if "(" in step.text else ""
    return [("", ops.split(source.value, raw or " "))]


def _regex_replace(calls: Calls, step: Step, source: Made) -> Result:
    pattern, replacement = inside(step.text).rsplit(",", 1)
    return [("", ops.regex_replace(source.value, pattern, {"empty": ""}.get(replacement.strip(), replacement)))]


def _lookup(calls: Calls, step: Step, source: Made) -> Result:
    keys = next((arg for arg in step.args if isinstance(arg, list)), None)
    if keys is None:
        raise NotUnderstoodError(f"no table in {step.text!r}")
    default = numbers_in(step)[-1] if numbers_in(step) else -1
    return [("", ops.lookup(source.value, {key: place for place, key in enumerate(keys)}, default))]


def _grams(calls: Calls, step: Step, source: Made) -> Result:
    sizes = (
        next((arg for arg in step.args if isinstance(arg, tuple)), None) or step.options.get("ngram_range") or (1, 1)
    )
    given = [arg for arg in step.args if isinstance(arg, str) and arg not in calls.features]
    separator = step.options.get("separator", given[0] if given else " ")
    return [("", getattr(ops, step.name)(source.value, tuple(sizes), separator))]


def _tfidf(calls: Calls, step: Step, source: Made) -> Result:
    size = step.options.get("vocab_size") or numbers_in(step)[0]
    found = ops.tfidf(source.value, size, smooth=bool(step.options.get("smooth", True)))
    return [("indices", found[0]), ("weights", found[1])]


def _dense(calls: Calls, step: Step, source: Made) -> Result:
    shape = next(arg for arg in step.args if isinstance(arg, list))
    fill = step.options.get("default_value", step.args[-1])
    if item_of(source.value) == "string":
        return [("padded text", ops.join(source.value) if shape[-1] == 1 else source.value)]
    found = ops.to_dense(source.value, shape[-1], fill)
    return [("", found[:, 0] if shape[-1] == 1 else found)]


def _fill(calls: Calls, step: Step, source: Made) -> Result:
    said = step.text.split()[-1]
    if item_of(source.value) is not None:
        return [("", ops.to_dense(source.value, 1, float(said))[:, 0])]
    value = getattr(ops, said)(source.value) if said in ("mean", "median", "mode") else float(said)
    return [("", ops.fill_missing(source.value, value))]


def _one_hot(calls: Calls, step: Step, source: Made) -> Result:
    said = [arg for arg in (*step.args, step.options.get("depth", "")) if arg not in ("", *calls.features)]
    found = re.search(r"\d+", str(said[0])) if said else None
    if found is None or "size" in str(said[0]):
        raise NotUnderstoodError(f"no depth in {step.text!r}")
    return [("", ops.one_hot(source.value, depth=int(found[0])))]


def bins_of(step: Step) -> Any:
    """The boundaries of a histogram, or how many; None where it says none."""
    given = (*step.args, step.options.get("boundaries"))
    return next((arg for arg in given if arg is not None and not isinstance(arg, str)), None)


def edges_of(step: Step) -> list[float] | None:
    """Boundaries that stand in the text."""
    for arg in (*step.args, *step.options.values()):
        if isinstance(arg, (list, tuple)):
            return [float(edge) for edge in (arg[0] if arg and isinstance(arg[0], (list, tuple)) else arg)]
    return None


def _histogram(calls: Calls, step: Step, source: Made) -> Result:
    if step.flag("categorical"):
        name = f"v{len(calls.learnt)}"
        calls.learnt[name] = ops.learn_vocabulary(source.value, keep_empty=True, name=name)
        calls.hidden[f"_{name}"] = ops.apply_vocabulary(source.value, name)
        return [("counts", None, name), ("edges", None, name)]
    given = bins_of(step)
    bins = [i / 10 for i in range(11)] if given is None else given - 1 if isinstance(given, int) else given
    counts, edges = ops.histogram(source.value, bins)
    return [("counts", counts), ("edges", edges)]


def _density(calls: Calls, step: Step, source: Made) -> Result:
    if step.flag("categorical"):
        return [("", ops.count_per_key(source.value) / ops.size(source.value))]
    edges = boundaries(calls, step, source)
    counts, _ = ops.histogram(source.value, edges)
    width = (edges[-1] - edges[0]) / (len(edges) - 1)
    place = ops.apply_buckets(source.value, edges[1:-1])
    return [("", counts[place] / (jnp.sum(counts) * width))]


def _pca(calls: Calls, step: Step, source: Made) -> Result:
    k = step.options.get("output_dim") or numbers_in(step)[0]
    vectors = ops.pca(source.value, k)
    return [("projected", source.value @ vectors), ("vectors", vectors)]


def _tukey(calls: Calls, step: Step, source: Made) -> Result:
    fitted = ops.statistics.tukey(source.value, elementwise=is_elementwise(step))
    if step.name == "tukey_h_params":
        return [("left", fitted[..., 2]), ("right", fitted[..., 3])]
    return [("", fitted[..., 0 if step.name == "tukey_location" else 1])]


def _per_key(calls: Calls, step: Step, source: Made) -> Result:
    key = calls.key(step, source)
    if step.name == "scale_to_z_score_per_key":
        return [("", ops.z_score_per_key(source.value, key))]
    if step.name == "bucketize_per_key":
        weights = calls.side(step, "weights")
        more = {} if weights is None else {"weights": weights}
        return [("", ops.bucketize_per_key(source.value, key, numbers_in(step)[0], **more))]
    return [("", ops.min_max_per_key(source.value, key, *ranged(step)))]


def _count_per_key(calls: Calls, step: Step, source: Made) -> Result:
    calls.hidden["_count"] = ops.count_per_key(source.value)
    return [("keys", None), ("counts", None)]


def _positions(calls: Calls, step: Step, source: Made) -> Result:
    lists = source.value if item_of(source.value) != "string" else ops.hash_buckets(source.value, 2)
    ragged = ops.to_ragged(lists)
    return [("", dataclasses.replace(ragged, values=ragged.positions))]


def _crossed(calls: Calls, step: Step, source: Made) -> Result:
    named = [word for word in step.text.split() if word in calls.features]
    texts = [made for made in calls.made if made.name in TEXT_MAPPERS]
    if not named or not texts:
        raise NotUnderstoodError(f"nothing to cross in {step.text!r}")
    return [("", ops.concat(texts[-1].value, calls.columns[named[-1]], separator="_"))]


ASSERTED: dict[str, Callable[[Any, Any], Any]] = {
    "assert_less": operator.lt, "assert_less_equal": operator.le, "assert_greater": operator.gt,
    "assert_greater_equal": operator.ge, "assert_equal": operator.eq, "assert_none_equal": operator.ne,
    "assert_positive": operator.gt, "assert_non_negative": operator.ge, "assert_negative": operator.lt,
}  # fmt: skip


def _assert(calls: Calls, step: Step, source: Made) -> Result:
    bound = (numbers_in(step) or [0])[0]
    ops.check(ASSERTED[step.name](source.value, bound), f"x does not pass {step.name} {bound}")
    return [("", source.value)]


def _scaled(call: Callable[..., Any]) -> Callable[[Calls, Step, Made], Result]:
    return lambda calls, step, source: [("", call(step, source.value))]


OPS: dict[str, tuple[str, Call]] = {
    "scale_to_z_score": ("number", _scaled(lambda s, x: ops.z_score(x, elementwise=is_elementwise(s)))),
    "scale_to_0_1": ("number", _scaled(lambda s, x: ops.min_max(x, elementwise=is_elementwise(s)))),
    "scale_by_min_max": ("number", _scaled(lambda s, x: ops.min_max(x, *ranged(s), elementwise=is_elementwise(s)))),
    "scale_to_gaussian": ("number", _scaled(lambda s, x: ops.scale_to_gaussian(x, elementwise=is_elementwise(s)))),
    **dict.fromkeys(("min", "max", "sum", "size", "mean", "var"), ("number", _statistic)),
    "quantiles": ("number", lambda calls, s, source: [("", ops.quantiles(
        source.value, buckets_of(s), weights=calls.side(s, "weights"), elementwise=is_elementwise(s)))]),
    "bucketize": ("number", lambda calls, s, source: [("", ops.bucketize(
        source.value, buckets_of(s), weights=calls.side(s, "weights"), elementwise=is_elementwise(s)))]),
    "apply_buckets": ("number", lambda calls, s, source: [
        ("", ops.apply_buckets(source.value, boundaries(calls, s, source)))]),
    "apply_buckets_with_interpolation": ("number", _interpolated),
    "scale_to_z_score_per_key": ("number", _per_key), "scale_to_0_1_per_key": ("number", _per_key),
    "scale_by_min_max_per_key": ("number", _per_key), "bucketize_per_key": ("number", _per_key),
    "count_per_key": ("category", _count_per_key),
    "covariance": ("vector", _scaled(lambda s, x: ops.covariance(x))),
    "pca": ("vector", _pca),
    "histogram": ("any", _histogram),
    "tukey_location": ("number", _tukey), "tukey_scale": ("number", _tukey), "tukey_h_params": ("number", _tukey),
    "compute_and_apply_vocabulary": ("category", _ids), "apply_vocabulary": ("category", _ids),
    "vocabulary": ("category", _vocabulary), "approximate_vocabulary": ("category", _vocabulary),
    "get_vocabulary_size_by_name": ("", _size_by_name),
    "hash_strings": ("category", lambda calls, s, source: [("", ops.hash_buckets(
        source.value, numbers_in(s)[0], key=tuple(s.options["key"]) if "key" in s.options else None))]),
    "split": ("text", _split), "ngrams": ("tokens", _grams), "bag_of_words": ("tokens", _grams),
    "word_count": ("tokens", _scaled(lambda s, x: ops.word_count(x))),
    "deduplicate_tensor_per_row": ("list", _scaled(lambda s, x: ops.deduplicate(x))),
    "segment_indices": ("list", _positions),
    "sparse_tensor_left_align": ("list", _scaled(lambda s, x: x)),
    "sparse_tensor_to_dense_with_shape": ("list", _dense),
    "tfidf": ("ids", _tfidf), "one_hot": ("ids", _one_hot), "lookup": ("text", _lookup),
    "estimated_probability_density": ("any", _density),
    "strip": ("text", _scaled(lambda s, x: ops.strip(x))), "lower": ("text", _scaled(lambda s, x: ops.lower(x))),
    "upper": ("text", _scaled(lambda s, x: ops.upper(x))), "regex_replace": ("text", _regex_replace),
    "strings.length": ("text", _scaled(lambda s, x: ops.length(x, "bytes"))),
    "as_string": ("number", _scaled(lambda s, x: ops.cast(x, "string"))),
    "log1p": ("number", _scaled(lambda s, x: jnp.log1p(x))),
    "fill": ("number", _fill), "crossed": ("", _crossed), **dict.fromkeys(ASSERTED, ("number", _assert)),
    "identity": ("any", _scaled(lambda s, x: x)),
    "expression": ("", lambda calls, s, source: [("", calls.expression(s.args[0]))]),
}  # fmt: skip
"""TFT's op → what it takes, and our call."""
