"""How good a model is: metrics by slice, thresholds and blessing. Importing it loads no model library."""

from __future__ import annotations

from .confidence import Confidence
from .config import EXACT_ROWS, EvaluationConfig, Slice, Threshold
from .definitions import Metric
from .metrics import METRICS, metric
from .read import SliceMetrics, read_slices, read_validation
from .rows import SliceRows

__all__ = [
    "EXACT_ROWS",
    "METRICS",
    "Confidence",
    "EvaluationConfig",
    "Metric",
    "Slice",
    "SliceMetrics",
    "SliceRows",
    "Threshold",
    "metric",
    "read_slices",
    "read_validation",
]
