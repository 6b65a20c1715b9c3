"""What a schema may bound about the change of a feature between two data sets, and the anomaly that exceeds it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple


class Comparator(NamedTuple):
    """A number of `drift_skew.compare.Measure` with a largest allowed value.

    Attributes:
        measure: The measure's name.
        field: Which of its numbers: "value" or "effect".
        anomaly: The anomaly where the number is above the threshold; TFDV's name where it has one.
        title: For people.
        useless: Types of values that it has no number for.
    """

    measure: str
    field: str
    anomaly: str
    title: str
    useless: frozenset[str] = frozenset()


_UNORDERED: Final = frozenset({"string", "bytes"})
_UNCOUNTED: Final = frozenset({"float", "timestamp", "date", "time", "duration"})


COMPARATORS: Final[Mapping[str, Comparator]] = {
    "l_infinity": Comparator("l_infinity", "value", "COMPARATOR_L_INFTY_HIGH", "L-infinity distance"),
    "normalized_abs_difference": Comparator(
        "normalized_abs_difference",
        "value",
        "COMPARATOR_NORMALIZED_ABSOLUTE_DIFFERENCE_HIGH",
        "normalized absolute difference",
    ),
    "jensen_shannon": Comparator(
        "jensen_shannon", "value", "COMPARATOR_JENSEN_SHANNON_DIVERGENCE_HIGH", "Jensen–Shannon divergence"
    ),
    "jensen_shannon_quantiles": Comparator(
        "jensen_shannon_quantiles",
        "value",
        "COMPARATOR_JENSEN_SHANNON_DIVERGENCE_HIGH",
        "Jensen–Shannon divergence over cells of equal mass",
    ),
    "psi": Comparator("psi", "value", "COMPARATOR_PSI_HIGH", "population stability index"),
    "wasserstein": Comparator(
        "wasserstein", "value", "COMPARATOR_WASSERSTEIN_HIGH", "Wasserstein distance", _UNORDERED
    ),
    "wasserstein_sigma": Comparator(
        "wasserstein", "effect", "COMPARATOR_WASSERSTEIN_HIGH", "Wasserstein distance in σ of the control", _UNORDERED
    ),
    "kolmogorov_smirnov": Comparator(
        "kolmogorov_smirnov",
        "value",
        "COMPARATOR_KOLMOGOROV_SMIRNOV_HIGH",
        "Kolmogorov–Smirnov distance",
        _UNORDERED | {"bool"},
    ),
    "cramers_v": Comparator("chi_squared", "effect", "COMPARATOR_CRAMERS_V_HIGH", "Cramér's V", _UNCOUNTED),
    "new_values": Comparator(
        "new_values", "value", "COMPARATOR_NEW_VALUES_HIGH", "share of rows with new values", _UNCOUNTED
    ),
    "missing_rate": Comparator("missing_rate", "value", "COMPARATOR_MISSING_RATE_HIGH", "change of the missing rate"),
}
CONTROL_MISSING: Final = "COMPARATOR_CONTROL_DATA_MISSING"
