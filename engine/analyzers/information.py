"""The information of a word about a label: (adjusted) mutual information in bits, as TFT orders vocabularies by it.

A word's information is Σ over labels of n_ij · log2(n · n_ij / (x_i · y_j)), with n_ij the weight of rows with the word
and the label, x_i of the word, y_j of the label and n of all. It is not divided by n: it reads like an adjusted count.
Adjusted, what is expected by chance is taken off (Vinh, Epps and Bailey, "Information theoretic measures for
clusterings comparison", 2009), again without a normalisation.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

import numpy as np

from ...errors import InputError

LabelCounts = Mapping[str, float]
_LEAST: Final = 1e-6  # TFT keeps P(label | word) this far from 0 and 1; without it near ties would fall otherwise


def informations(
    words: Mapping[str, LabelCounts], labels: LabelCounts, adjusted: bool, min_diff: float | None
) -> dict[str, float]:
    """The information of each word.

    Args:
        words: Per word, the weight of its rows by label.
        labels: The weight of all rows by label.
        adjusted: Whether to take off what chance would give.
        min_diff: A label whose weight with the word is closer than that to what independence would give adds nothing;
            None: 2 up to 10,000 rows, rising to 25 at a million, as TFT recommends.

    Raises:
        InputError: A word has more weight than all rows: it stands several times in a row.
    """
    n = math.fsum(labels.values())
    least = float(int(min(25, max(2, (n - 1e4) / (1e6 - 1e4) * 23 + 2)))) if min_diff is None else min_diff
    return {word: _information(word, counts, labels, n, adjusted, least) for word, counts in words.items()}


def _information(word: str, counts: LabelCounts, labels: LabelCounts, n: float, adjusted: bool, least: float) -> float:
    x = math.fsum(counts.values())
    if x == 0 or round(x) == round(n):
        return 0.0  # it stands in no row or in every one, and has no information
    if x > n:
        raise InputError(
            f"the word {word!r:.80} occurs {x:g} times in rows of weight {n:g}",
            fix="give each word once per row where labels are given",
        )
    total = 0.0
    for label, y in labels.items():
        both = min(max(counts.get(label, 0.0) / x, _LEAST), 1 - _LEAST) * x
        if abs(x * y / n - both) < least:
            continue
        total += both * (math.log2(both) + math.log2(n) - math.log2(x) - math.log2(y))
        if adjusted:
            total -= expected_information(n, x, y)
    return total


def expected_information(n: float, x: float, y: float) -> float:
    """What a word of weight x and a label of weight y would share by chance: Σ k·log2(n·k/(x·y)) · P(k), k > 0.

    P is hypergeometric. Weights need not be whole; the range of k is then rounded.
    """
    from scipy.special import gammaln  # late: importing it costs a training 0.2 s, and few order words by this

    k = np.arange(round(max(0.0, x + y - n)), round(min(x, y)) + 1, dtype=np.float64)
    # Rounding may take k a little beyond x or y.
    logs = -gammaln(k + 1) - gammaln(x - k + 1) - gammaln(y - k + 1) - gammaln(n - x - y + k + 1)
    chance = np.exp(logs - logs.max())
    shared = np.where(k > 0, k * np.log2(n * np.where(k > 0, k, 1) / (x * y)), 0.0)
    return float((shared * chance).sum() / chance.sum())
