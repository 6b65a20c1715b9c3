"""How good a model is: metrics by slice, thresholds and blessing. Importing it loads no model library."""

from __future__ import annotations

from .config import EXACT_ROWS, EvaluationConfig, Threshold
from .metrics import DEFAULT_METRICS, METRICS, Metric
from .read import SliceMetrics, read_slices, read_validation

__all__ = [
    "DEFAULT_METRICS",
    "EXACT_ROWS",
    "METRICS",
    "EvaluationConfig",
    "Metric",
    "SliceMetrics",
    "Threshold",
    "read_slices",
    "read_validation",
]
