"""The registry of analyzers: each module named here declares its own in `STATES` and `ANALYZERS` (see `kinds`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from . import documents, moments, numbers, products, reducer, tukey, weighted, words
from .kinds import AnalyzerKind, StateMaker

_MODULES: Final = (documents, moments, numbers, products, reducer, tukey, weighted, words)

STATES: Final[Mapping[str, StateMaker]] = {
    kind: maker for module in _MODULES for kind, maker in getattr(module, "STATES", {}).items()
}
"""Kind of state → what makes an empty one."""

ANALYZERS: Final[Mapping[str, AnalyzerKind]] = {
    name: kind for module in _MODULES for name, kind in getattr(module, "ANALYZERS", {}).items()
}
"""Every analyzer by name."""
