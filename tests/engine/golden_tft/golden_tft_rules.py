"""What a TFT case must give here: TFT's answer, or where that is wrong the one of `golden_tft_better`.

docs/tft-differences.md lists each difference with its reason. Ids for what is missing or new are numbered otherwise
here; that is a mapping of TFT's answer, not another answer.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import golden_tft_better as better  # type: ignore[import-not-found]  # conftest puts this folder on the path
import numpy as np
from drivetrain.engine import Bundle
from golden_tft_calls import Calls, Feature, Made  # type: ignore[import-not-found]  # as above
from golden_tft_data import Row, flat, table_of  # type: ignore[import-not-found]  # as above
from golden_tft_grammar import NotUnderstoodError, Step  # type: ignore[import-not-found]  # as above
from golden_tft_ops import bins_of, edges_of, is_elementwise, numbers_in, ranged  # type: ignore[import-not-found]  # as above


@dataclass
class Run:
    """A case that ran: what came in, and what came out here."""

    case: dict[str, Any]
    features: dict[str, Feature]
    rows: list[Row]
    bundle: Bundle
    out: dict[str, Any]
    names: dict[str, Made]
    calls: Calls
    filled: set[str]

    def table(self, rows: list[Row]) -> Any:
        """Rows as a record batch."""
        return table_of(rows, self.features).combine_chunks().to_batches()[0]

    def asset(self, name: str) -> Any:
        return self.bundle.payload.assets[name]

    def column(self, made: Made) -> list[Any] | None:
        """The values of training that a step read, where it read a raw column of numbers."""
        feature = self.features.get(made.column or "")
        if made.step is None or feature is None or feature.dtype == "string":
            return None
        return [row[feature.name] for row in self.rows]

    def places(self, made: Made) -> list[Any] | None:
        """Those values as arrays: one for each place of a vector where each has its own statistics, else one."""
        values = self.column(made)
        if values is None:
            return None
        if made.step is not None and is_elementwise(made.step):
            return [better.floats(list(place)) for place in zip(*values, strict=True)]
        return [better.floats(flat(values))]


def wanted(
    run: Run, name: str, rows: list[Row], out: dict[str, Any], theirs: list[Any]
) -> tuple[list[Any], list[Any], float, float]:
    """What we gave, what it should be, and the relative and absolute tolerance."""
    made = run.names[name]
    ours = _read(run, made, len(theirs)) if made.value is None else list(out[name])
    rule = RULES.get(made.name)
    right = rule(run, made, rows, theirs) if rule is not None else theirs
    return ours, right, 2e-6, _absolute(run, made)


def _absolute(run: Run, made: Made) -> float:
    """Half a unit in the last place of what a result is the difference of, and a millionth."""
    values = run.column(made)
    known = better.finite(better.floats(flat(values))) if values else np.zeros(0)
    if made.name in ("tukey_location", "tukey_scale", "tukey_h_params", "scale_to_gaussian"):
        return 2e-5
    if not len(known):
        return 1e-6
    size, unit = np.abs(known).max(), 2.0**-24
    if made.name.startswith("scale_to_z_score"):
        return float(1e-6 + unit * size / (known.std() or 1))
    if made.name.startswith(("scale_by_min_max", "scale_to_0_1")):
        low, high = ranged(made.step)
        return float(1e-6 * max(1, abs(low), abs(high)) + unit * size / (np.ptp(known) or 1) * (high - low))
    if made.name in ("covariance", "pca", "var"):
        return float(unit * size**2 if made.part != "vectors" and made.name != "pca" else 1e-4 * max(size, 1))
    return float(unit * size)


def _read(run: Run, made: Made, rows: int) -> list[Any]:
    """What stands in an asset: the words or keys in the order of their bytes, and how often each occurs."""
    if made.name == "count_per_key":
        (table,) = (table for name, table in run.bundle.payload.assets.items() if name.startswith("count-per-key"))
    else:
        table = run.asset(str(made.learnt))
    pairs = sorted(
        zip(*(column.to_pylist() for column in table.columns), strict=True), key=lambda pair: str(pair[0]).encode()
    )
    feature = run.features[made.column or ""]
    read = [pair[0] if feature.dtype == "string" else int(pair[0]) for pair in pairs]
    return [[int(pair[1]) for pair in pairs] if made.part == "counts" else read] * rows


def _values(made: Made, rows: list[Row]) -> list[Any]:
    return [row[made.column] for row in rows[:]] if made.column else []


def _min_max(run: Run, made: Made, rows: list[Row], theirs: list[Any]) -> list[Any]:
    """NaN, Inf and constants: the formula over finite values, midway for one value; TFT gives sigmoids, 0 or NaN."""
    places = run.places(made)
    if places is None:
        return theirs
    low, high = ranged(made.step)
    odd = [not np.isfinite(x).all() or not len(x) or x.min() == x.max() for x in places]
    if not any(odd):
        return theirs
    found = []
    for value, old in zip(_values(made, rows), theirs, strict=False):
        if len(places) == 1:
            found.append(better.each(value, lambda x: better.scaled(x, places[0], low, high)))
        else:
            right = [better.scaled(x, places[i], low, high) for i, x in enumerate(value)]
            found.append([right[i] if odd[i] else old[i] for i in range(len(right))])
    return found


def _statistic(run: Run, made: Made, rows: list[Row], theirs: list[Any]) -> list[Any]:
    """Of finite values; nothing is the mean of none."""
    places = run.places(made)
    if places is None or made.name == "size":
        return theirs
    odd = [not np.isfinite(x).all() or not len(x) for x in places]
    if made.name in ("mean", "var"):
        odd = [not len(better.finite(x)) for x in places]
    right = [better.statistic(made.name, x) for x in places]
    if len(places) == 1 and not is_elementwise(made.step):
        return [right[0] if odd[0] else old for old in theirs]
    return [[right[i] if odd[i] else old for i, old in enumerate(row)] for row in theirs]


def _weights(run: Run, made: Made) -> Any:
    name = made.step.options.get("weights") if made.step is not None else None
    return None if name is None else np.nan_to_num(better.floats([row[name] for row in run.rows]))


def _edges(run: Run, made: Made) -> list[Any] | None:
    """Boundaries worked out where infinities stand in the data, or nothing finite; None where TFT's are right."""
    places = run.places(made)
    if places is None or all(not np.isinf(x).any() and len(better.finite(x)) for x in places):
        return None
    return [better.quantiles(x, numbers_in(made.step)[0], _weights(run, made)) for x in places]


def _quantiles(run: Run, made: Made, rows: list[Row], theirs: list[Any]) -> list[Any]:
    edges = _edges(run, made)
    if edges is None:
        return theirs
    return [[list(each) for each in edges] if is_elementwise(made.step) else list(edges[0])] * len(theirs)


def _bucketize(run: Run, made: Made, rows: list[Row], theirs: list[Any]) -> list[Any]:
    """NaN has an id of its own, after the last bucket's."""
    if run.column(made) is None:
        return theirs
    edges = _edges(run, made) if made.name == "bucketize" else None
    if made.name == "bucketize":
        buckets = numbers_in(made.step)[0]
    else:
        given = edges_of(made.step)
        inner = next((arg for arg in made.step.args if isinstance(arg, Step)), made.step)
        buckets = len(given) + 1 if given is not None else numbers_in(inner)[0]
    found = []
    for value, old in zip(_values(made, rows), theirs, strict=False):
        if edges is not None:
            several = isinstance(value, list) and len(edges) > 1
            found.append(
                [better.bucket(x, edges[i]) for i, x in enumerate(value)]
                if several
                else better.each(value, lambda x: better.bucket(x, edges[0]))
            )
        else:
            found.append(_where_nan(value, old, buckets))
    return found


def _where_nan(value: Any, old: Any, instead: Any) -> Any:
    if isinstance(value, list):
        return [_where_nan(x, y, instead) for x, y in zip(value, old, strict=True)]
    return instead if isinstance(value, float) and math.isnan(value) else old


def _interpolation(run: Run, made: Made, rows: list[Row], theirs: list[Any]) -> list[Any]:
    """NaN stays NaN."""
    if run.column(made) is None:
        return theirs
    return [_where_nan(value, old, math.nan) for value, old in zip(_values(made, rows), theirs, strict=False)]


def _per_key(run: Run, made: Made, rows: list[Row], theirs: list[Any]) -> list[Any]:
    """A key that is new, constant or has a NaN: the formula over its finite values, midway; ids of their own."""
    if run.column(made) is None or made.column is None:
        return theirs
    key = run.calls.keys[made.step.text]
    groups: dict[Any, list[Any]] = {}
    for row in run.rows:
        groups.setdefault(row[key], []).append(row[made.column])
    by = made.step.options.get("weights")
    weights = {each: better.floats([row[by] for row in run.rows if row[key] == each]) for each in groups} if by else {}
    found = []
    for row, old in zip(rows, theirs, strict=False):
        values = better.floats(groups.get(row[key], []))
        x = better.floats([row[made.column]])[0]
        odd = not np.isfinite(values).all() or not len(values) or values.min() == values.max()
        if made.name == "bucketize_per_key":
            buckets = numbers_in(made.step)[0]
            edges = better.quantiles(values, buckets, weights.get(row[key]))
            # TFT squeezes each key's boundaries, equal ones a hair apart, between two whole numbers and rounds there to
            # float32: a value on a boundary gets any of two ids. With two buckets these ranges lie over each other, and
            # what is just below a boundary is above it.
            near = np.abs(np.float32(x) - edges.astype(np.float32)) <= 1e-6 * np.ptp(edges)
            mine = better.bucket(x, edges) if near.any() or len(edges) < 2 else old
            found.append(buckets + 1 if not len(better.finite(values)) else buckets if math.isnan(x) else mine)
        elif made.name == "scale_to_z_score_per_key":
            found.append(old)
        else:
            found.append(better.scaled(x, values, *ranged(made.step)) if odd else old)
    return found


def _histogram(run: Run, made: Made, rows: list[Row], theirs: list[Any]) -> list[Any]:
    """NumPy's, where TFT moves the edges by 1e-4 and counts what lies outside; of categories TFT's own."""
    if made.step.flag("categorical"):
        return [old[0] if old and isinstance(old[0], list) else old for old in theirs]
    values = run.column(made)
    if values is None:
        raise NotUnderstoodError("a histogram of what another step gave")
    given = bins_of(made.step)
    bins: Any = [i / 10 for i in range(11)] if given is None else given - 1 if isinstance(given, int) else given
    counts, edges = np.histogram(better.finite(better.floats(flat(values))), bins)
    return [(counts if made.part == "counts" else edges).tolist()] * len(theirs)


def _pca(run: Run, made: Made, rows: list[Row], theirs: list[Any]) -> list[Any]:
    """The sign of a direction is free: here its largest entry is positive. TFT's must be the same but for signs."""
    data = better.floats(flat(run.column(made) or [])).reshape(len(run.rows), -1)
    k = len(theirs[0][0] if made.part == "vectors" else theirs[0])
    vectors, apart = better.projected(data, k)
    given = better.floats(flat(_values(made, rows)[: len(theirs)])).reshape(len(theirs), -1)
    right = np.array([vectors] * len(theirs)) if made.part == "vectors" else given @ vectors
    tft = np.asarray(theirs, np.float64)
    for place in range(k):
        mine, old = right[..., place].ravel(), tft[..., place].ravel()
        sign = np.sign(mine @ old) or 1
        if apart[place] > 1e-3:
            np.testing.assert_allclose(mine, sign * old, rtol=1e-3, atol=1e-4 * max(1.0, np.abs(given).max()))
        else:  # directions of equal variance are not determined: whatever ours are, they are not compared
            ours = run.bundle.run("transform", run.table(rows))[_name_of(run, made)]
            right[..., place] = np.asarray(ours)[: len(theirs), ..., place]
    found: list[Any] = right.tolist()
    return found


def _name_of(run: Run, made: Made) -> str:
    return next(name for name, one in run.names.items() if one is made)


def _gaussian(run: Run, made: Made, rows: list[Row], theirs: list[Any]) -> list[Any]:
    """TFT fits each batch and averages; here all rows are fitted. Of one batch TFT's own answer."""
    places = run.places(made)
    if "one batch" in run.case["config"]["ops"] or places is None:
        return theirs
    fits = []
    for values in places:
        known = better.finite(values)
        moments = better.l_moments(known) if len(known) >= 8 else np.zeros(4)
        if moments[1] <= 0 or moments[3] / moments[1] < 0.1226017:
            fits.append((known.mean(), known.std() or 1.0, 0.0, 0.0))
        else:
            fits.append(better.fitted(moments))
            better.check_tails(known, *fits[-1])
    gave = [better.each(value, lambda x: better.gaussianized(x, *fits[0])) for value in _values(made, rows)]
    if made.step.options.get("elementwise"):
        gave = [[better.gaussianized(x, *fits[i]) for i, x in enumerate(value)] for value in _values(made, rows)]
    return gave


def _ids(run: Run, made: Made, rows: list[Row], theirs: list[Any]) -> list[Any]:
    """Without TFT's made-up word in an empty vocabulary, the ids for unknown words start at 0; see `tied` too."""
    words = tied(run, str(made.learnt)) if made.learnt is not None else None
    if words is not None and not made.step.options.get("num_oov_buckets") and made.column is not None:
        default = made.step.options.get("default_value", -1)
        return [words.index(row[made.column]) if row[made.column] in words else default for row in rows[: len(theirs)]]
    if (
        made.learnt is None
        or run.asset(made.learnt).num_rows
        or not run.calls.applied.get(made.learnt, {}).get("oov_buckets")
    ):
        return theirs
    return [better.each(old, lambda x: x - 1) for old in theirs]


def tied(run: Run, name: str) -> list[str] | None:
    """The vocabulary by numpy where a word is just min_diff from independence, and TFT's rounding decides; or None."""
    step = run.calls.said.get(name)
    source = next((one for one in run.calls.made if one.learnt == name), None)
    if step is None or source is None or "labels" not in step.options or source.column is None:
        return None
    default = 0.0 if step.name != "vocabulary" else 2.0
    weight, label = step.options.get("weights"), step.options["labels"]
    rows = [(flat([row[source.column]]), row[label], row[weight] if weight else 1.0) for row in run.rows]
    adjusted = bool(step.options.get("use_adjusted_mutual_info"))
    found, tie = better.informed(rows, float(step.options.get("min_diff_from_avg", default)), adjusted=adjusted)
    if not tie:
        return None
    kept = {w: x for w, x in found.items() if w and x >= step.options.get("frequency_threshold", -math.inf)}
    return sorted(kept, key=lambda w: (kept[w], w.encode()), reverse=True)[: step.options.get("top_k")]


def _tfidf(run: Run, made: Made, rows: list[Row], theirs: list[Any]) -> list[Any]:
    """A term of no training document counts as one of one document; TFT's weight is infinite."""
    if made.part != "weights" or math.inf not in flat(theirs):
        return theirs
    ids = next(
        name for name, one in run.names.items() if one.name in ("compute_and_apply_vocabulary", "apply_vocabulary")
    )
    size = made.step.options.get("vocab_size") or numbers_in(made.step)[0]
    batch = [[int(i) % size for i in row] for row in run.bundle.run("transform", run.table(rows))[ids]]
    found = []
    for row, old in zip(batch, theirs, strict=False):
        terms = sorted(set(row))
        one = 1 + math.log(len(run.rows))
        found.append([row.count(t) / len(row) * one if x == math.inf else x for t, x in zip(terms, old, strict=True)])
    return found


def _padded(run: Run, made: Made, rows: list[Row], theirs: list[Any]) -> list[Any]:
    """Text is not padded: the device has no text. The lists are as they were, or for one text that text."""
    if made.part != "padded text":
        return theirs
    return [
        old[: len(row[made.column])] if isinstance(old, list) else old for row, old in zip(rows, theirs, strict=False)
    ]


Rule = Callable[[Run, Made, list[Row], list[Any]], list[Any]]
RULES: dict[str, Rule] = {
    "scale_to_0_1": _min_max, "scale_by_min_max": _min_max,
    **dict.fromkeys(("min", "max", "sum", "mean", "var"), _statistic),
    "quantiles": _quantiles, "bucketize": _bucketize, "apply_buckets": _bucketize,
    "apply_buckets_with_interpolation": _interpolation,
    **dict.fromkeys(("scale_to_0_1_per_key", "scale_by_min_max_per_key", "bucketize_per_key"), _per_key),
    "histogram": _histogram, "pca": _pca, "scale_to_gaussian": _gaussian,
    "compute_and_apply_vocabulary": _ids, "apply_vocabulary": _ids, "tfidf": _tfidf,
    "sparse_tensor_to_dense_with_shape": _padded,
}  # fmt: skip


def close(mine: Any, right: Any, relative: float, absolute: float) -> bool:
    """Whether two values are equal: texts and whole numbers exactly, floats nearly, NaN with NaN, lists one by one."""
    if isinstance(right, (list, tuple, np.ndarray)) and np.ndim(right):
        same = hasattr(mine, "__len__") and not isinstance(mine, str) and len(mine) == len(right)
        return same and all(close(a, b, relative, absolute) for a, b in zip(mine, right, strict=True))
    if isinstance(right, str) or right is None or mine is None or isinstance(mine, str):
        return bool(mine == right)
    if np.ndim(mine):
        return False
    return bool(np.isclose(float(mine), float(right), rtol=relative, atol=absolute, equal_nan=True))
