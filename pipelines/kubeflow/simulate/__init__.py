"""A compiled pipeline carried out on this machine as KFP would: its driver, its launcher, containers as processes."""

from __future__ import annotations

from .document import Document, read
from .pods import Eviction
from .run import Cluster, Outcome, Simulated, outcome, simulate

__all__ = ["Cluster", "Document", "Eviction", "Outcome", "Simulated", "outcome", "read", "simulate"]
