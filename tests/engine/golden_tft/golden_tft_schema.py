"""What a TFT case's vocabularies, output schema and errors must be here."""

from __future__ import annotations

from typing import Any

import golden_tft_better as better  # type: ignore[import-not-found]  # conftest puts this folder on the path
import numpy as np
from golden_tft_calls import Made  # type: ignore[import-not-found]  # as above
from golden_tft_grammar import NotUnderstoodError  # type: ignore[import-not-found]  # as above
from golden_tft_ops import ranged  # type: ignore[import-not-found]  # as above
from golden_tft_rules import Run, close, tied  # type: ignore[import-not-found]  # as above

EMPTY = "49d0cd50-04bb-48c0-bc6f-5b575dce351a"  # the one word that TFT writes for a vocabulary of none; -1 for integers


def check_vocabularies(run: Run) -> None:
    """The words in their order, and with `store_frequency` what they are ordered by."""
    expected = {name: list(lines) for name, lines in run.case["expected"].get("vocabularies", {}).items()}
    sizes = run.case["expected"].get("vocabulary_sizes", {})
    asked = dict(run.calls.said)
    of: dict[str, str] = {}
    for ours, step in asked.items():
        said = step.options.get("vocab_filename")
        if said in expected:
            of[said] = ours
        elif step.flag("store_frequency") and "f" in expected:
            of["f"] = ours
    for name in expected:
        left = [ours for ours in asked if ours not in of.values()]
        if name not in of and left:
            of[name] = left[0]
    for name, lines in expected.items():
        if name not in of:
            _check_keys(run, name, lines)
            continue
        table = run.asset(of[name])
        words, counts = (table[column].to_pylist() for column in ("value", "count"))
        by_hand = tied(run, of[name])
        if by_hand is not None:
            assert words == by_hand
            continue
        made_up = lines in ([EMPTY], ["-1"]) and not words
        if asked[of[name]].flag("store_frequency") and not made_up:
            assert words == [line.split(" ", 1)[1] for line in lines]
            np.testing.assert_allclose(counts, [float(line.split(" ", 1)[0]) for line in lines], rtol=1e-6, atol=2e-6)
        elif not made_up:
            assert words == lines
        assert made_up or len(words) == sizes.get(name, len(words))


def _check_keys(run: Run, name: str, lines: list[str]) -> None:
    """Statistics per key in a file: "-1.0,3.0 a" is minus the least and the greatest, "2.0,1.0 a" mean and variance."""
    steps = {
        one.step.options.get("key_vocabulary_filename"): one.step for one in run.calls.made if one.step is not None
    }
    if name not in steps:
        raise NotUnderstoodError(f"the vocabulary {name!r} is of none of the steps")
    stats = {"count_per_key": ["count"], "scale_to_z_score_per_key": ["mean", "var"]}.get(
        steps[name].name, ["min", "max"]
    )
    tables = [t for t in run.bundle.payload.assets.values() if t.column_names == ["key", *stats]]
    for table in tables[:1]:
        for row, line in zip(table.to_pylist(), lines, strict=True):
            numbers, key = line.split(" ", 1)
            found = [float(x) for x in numbers.split(",")]
            assert key == row["key"]
            assert close(
                [row[s] for s in stats], [-found[0], found[1]] if stats == ["min", "max"] else found, 2e-6, 1e-6
            )
        return
    raise AssertionError(f"no asset holds {stats} per key")


def ids_of(run: Run, made: Made, domain: dict[str, Any], lists: bool) -> int:
    """How many ids ours has where TFT's go up to domain["max"]: one more for what is missing, and for a new key."""
    top = int(domain["max"])
    if made.learnt is not None and made.name in ("compute_and_apply_vocabulary", "apply_vocabulary", "vocabulary"):
        words = run.asset(made.learnt).num_rows
        unknown = run.calls.applied.get(made.learnt, {}).get("oov_buckets", 0)
        default = 0 if unknown else run.calls.applied.get(made.learnt, {}).get("default", -1) + 1
        assert top == max(max(words, 1) + unknown, default) - 1, f"TFT's domain {domain} of {words} words"
        return int(max(words + unknown + (0 if lists else 1), default))
    return top + {"bucketize_per_key": 3, "bucketize": 2, "apply_buckets": 2}.get(made.name, 1)


def shape_of(made: Made, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Ours for TFT's: edges of a histogram are not a matrix of one row."""
    return shape[1:] if made.name == "histogram" and made.part == "edges" else shape


OTHER_TYPES = {"size", "sum", "quantiles", "min", "max"}
"""Whole numbers of the whole data are float32 here where they may be large, and quantiles of integers integers."""


def better_than_raising(case: dict[str, Any]) -> bool:
    """TFT refuses defaults in the feature_spec of rows that are dicts; here a missing value is filled."""
    return "default_value" in case["raises"][0]["message"]


def check_instead(run: Run) -> None:
    """Scaling of what was filled, by numpy."""
    for made in run.calls.made:
        feature = run.features.get(made.column or "")
        if made.step is None or feature is None:
            continue
        x = better.floats([feature.default if row[feature.name] is None else row[feature.name] for row in run.rows])
        ours = run.out[f"out{run.calls.made.index(made)}"]
        right = (
            (x - x.mean()) / x.std()
            if made.name == "scale_to_z_score"
            else [better.scaled(v, x, *ranged(made.step)) for v in x]
        )
        np.testing.assert_allclose(ours, right, rtol=2e-6, atol=1e-6)
