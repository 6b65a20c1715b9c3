"""A compiled pipeline carried out on this machine as KFP would: its driver, its launcher, containers as processes."""

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
