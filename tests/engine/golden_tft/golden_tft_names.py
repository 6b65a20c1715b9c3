"""Which step gave which output: TFT's cases name their outputs by habit (`z`, `mm`, `q4`, `h1000`) and by column."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from drivetrain.engine.ragged import Ragged
from drivetrain.engine.tracing.columns import Column
from golden_tft_calls import Made  # type: ignore[import-not-found]  # conftest puts this folder on the path
from golden_tft_grammar import NotUnderstoodError  # type: ignore[import-not-found]  # as above
from golden_tft_ops import item_of, numbers_in  # type: ignore[import-not-found]  # as above
from scipy.optimize import linear_sum_assignment

HABITS: dict[tuple[str, str], tuple[str, ...]] = {
    ("scale_to_z_score", ""): ("z", "el", "all", "log"), ("scale_to_z_score_per_key", ""): ("z",),
    ("scale_to_0_1", ""): ("s", "m"), ("scale_to_0_1_per_key", ""): ("s", "m"),
    ("scale_by_min_max", ""): ("mm", "m"), ("scale_by_min_max_per_key", ""): ("mm", "m"),
    ("scale_to_gaussian", ""): ("gauss", "g"), ("bucketize", ""): ("b",), ("apply_buckets", ""): ("b",),
    ("bucketize_per_key", ""): ("b",), ("apply_buckets_with_interpolation", ""): ("interp",), ("quantiles", ""): ("q",),
    **{(name, ""): (name,) for name in ("min", "max", "sum", "size", "mean", "var")},
    ("histogram", "counts"): ("n", "nl", "nc"), ("histogram", "edges"): ("e", "el", "ec"),
    ("count_per_key", "keys"): ("keys", "k"), ("count_per_key", "counts"): ("n", "counts"),
    ("tukey_location", ""): ("loc",), ("tukey_scale", ""): ("scale",), ("tukey_h_params", "left"): ("hl",),
    ("tukey_h_params", "right"): ("hr",), ("covariance", ""): ("cov",), ("pca", "projected"): ("pca",),
    ("pca", "vectors"): ("vectors",), ("compute_and_apply_vocabulary", ""): ("id", "ids"),
    ("apply_vocabulary", ""): ("id", "ids"), ("vocabulary", "ids"): ("id", "ids"),
    ("get_vocabulary_size_by_name", ""): ("size",),
    ("hash_strings", ""): ("h", "hk", "cross"), ("tfidf", "indices"): ("idx", "i"), ("tfidf", "weights"): ("w", "raw"),
    ("ngrams", ""): ("ngr", "n"), ("bag_of_words", ""): ("bow",), ("word_count", ""): ("wc",),
    ("deduplicate_tensor_per_row", ""): ("d",), ("segment_indices", ""): ("i",), ("one_hot", ""): ("hot",),
    ("sparse_tensor_to_dense_with_shape", ""): ("d",), ("estimated_probability_density", ""): ("p",),
    ("strings.length", ""): ("n",), ("lookup", ""): ("label",),
}  # fmt: skip
"""Op and part → how its outputs are called, but for digits behind."""

# What of a step's text a letter of the name stands for.
LETTERS = {
    ("hk", "hash_strings"): "key=", ("cross", "hash_strings"): "hash_strings(", ("raw", "tfidf"): "smooth=False",
    ("nl", "histogram"): "[", ("el", "histogram"): "[", ("nc", "histogram"): "categorical",
    ("ec", "histogram"): "categorical", ("el", "scale_to_z_score"): "True", ("all", "scale_to_z_score"): "False",
}  # fmt: skip


def assigned(made: Sequence[Made], features: Sequence[dict[str, Any]]) -> dict[str, Made]:
    """For each output of TFT's schema the step that gave it.

    Raises:
        NotUnderstoodError: An output fits no step.
    """
    if not features:
        return {}
    scores = np.array([[_score(feature, one, place, made) for place, one in enumerate(made)] for feature in features])
    if scores.shape[0] > scores.shape[1]:
        raise NotUnderstoodError(f"{len(features)} outputs of {len(made)} steps")
    rows, places = linear_sum_assignment(-scores)
    found = {}
    for row, place in zip(rows, places, strict=True):
        if scores[row, place] < 0:
            steps = [f"{one.name} {one.part}".strip() for one in made]
            raise NotUnderstoodError(f"output {features[row]['name']!r} comes from none of the steps {steps}")
        found[features[row]["name"]] = made[place]
    return found


def _score(feature: dict[str, Any], one: Made, place: int, made: Sequence[Made]) -> float:
    name = feature["name"].removesuffix("_xf")
    if one.part == "vocabulary" or not _types_agree(feature, one):
        return -1000
    if one.step is None:
        return 90 if name == one.column else -500
    letters, digits = re.fullmatch(r"(.*?)(\d*)", name).groups()  # type: ignore[union-attr]  # it always matches
    stems = HABITS.get((one.name, one.part), ())
    same = [each for each in made if (each.name, each.part) == (one.name, one.part)]
    other = one.value is not None and feature["type"] != "BYTES" and _whole(one) != (feature["type"] == "INT")
    if other and one.name not in (
        "sum",
        "size",
        "min",
        "max",
        "quantiles",
    ):  # floats here or there
        return -1000
    score = 1.0 + place / 100 - 0.5 * other  # what comes last is likelier an output than what led to it
    if letters in stems or name in stems or (name == "s01" and "s" in stems):
        score += 100 - same.index(one)
        wanted = LETTERS.get((letters, one.name))
        score += 0 if wanted is None else 60 if wanted in one.step.text else -60
        score -= 30 if wanted is None and one.step.text.find("categorical") >= 0 and letters in ("n", "e") else 0
    words = set(name.lower().split("_"))
    score += 60 if len(words) > 1 and words & {*stems, *(stem for stem in ("s01",) if "s" in stems)} else 0
    score += 30 if any(len(word) > 3 and word in one.name for word in words) else 0
    score += 20 if len(words) > 1 and one.column in words else 0
    if name in (one.column, *one.step.args) and isinstance(name, str):
        score += 130
    if one.name == "fill" and one.chain == () and name == one.column:
        score += 40
    if "log1p" in one.chain:
        score += 120 if name == "log" else -60
    if one.name == "log1p" and name.startswith("log") and not _fed(one, made):
        score += 150
    if "crossed" in one.chain:
        score += 60 if name == "cross" else -60
    if digits and name != "s01":
        said = [
            *map(str, numbers_in(one.step)),
            *("".join(map(str, arg)) for arg in one.step.args if type(arg) is tuple),
        ]
        score += 50 if digits in said else 5 if any(each.startswith(digits) for each in said) else 0
        score += 20 if int(digits) == same.index(one) + 1 else 0
    if len(name) > 2 and re.search(rf"(?<![a-z]){re.escape(name)}(?![a-z])", one.step.text):
        score += 30
    score += 25 if one.step.text == name else 0
    score -= 80 if (one.name, one.part) == ("vocabulary", "ids") else 0  # only where nothing else gives ids
    domain = feature.get("int_domain")
    edges = next((arg for arg in one.step.args if isinstance(arg, list)), None)
    if domain and one.name == "apply_buckets" and edges is not None:
        score += 25 if int(domain["max"]) == len(edges[0]) else -25
    return score


def _fed(one: Made, made: Sequence[Made]) -> bool:
    """Whether a step reads this one."""
    after = made[made.index(one) + 1 :][:1]
    return bool(after) and after[0].chain == (*one.chain, one.name)


def _types_agree(feature: dict[str, Any], one: Made) -> bool:
    kind, value = feature["type"], one.value
    if isinstance(value, list):
        return False
    if value is None:
        return True  # read off an asset
    lists = isinstance(value, Ragged) or item_of(value) is not None
    if lists != ("shape" not in feature) and (not lists or not feature["shape"].get("dim")):
        return False
    dtype = str(getattr(value, "dtype", None) or value.values.dtype)
    if "string" in dtype or kind == "BYTES":
        return "string" in dtype and kind == "BYTES"
    if lists or "shape" not in feature:
        return True
    dims = [int(dim["size"]) for dim in feature["shape"].get("dim", ())]
    if isinstance(value, Column):
        return not dims
    shape = [size for size in value.shape if isinstance(size, int)]  # but for the batch, which is a symbol
    return shape == (dims[1:] if one.part == "edges" else dims)


def _whole(one: Made) -> bool:
    dtype = getattr(one.value, "dtype", None) or getattr(getattr(one.value, "values", None), "dtype", "")
    return "int" in str(dtype)
