"""A compiled pipeline executed on this machine as KFP would: driver, launcher, and containers as processes."""

from __future__ import annotations

from .document import Document, read
from .pods import Eviction
from .run import SimulatedCluster, SimulatedKfpRun, SimulatedResult, result_of, simulate

__all__ = [
    "Document",
    "Eviction",
    "SimulatedCluster",
    "SimulatedKfpRun",
    "SimulatedResult",
    "read",
    "result_of",
    "simulate",
]
