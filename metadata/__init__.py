"""Artifact types, the store of what ran on what, cache keys, payloads: everything known about a result."""

# ruff: noqa: F403  # what a star brings is the `__all__` of `types`: a new standard type is written in one file

from __future__ import annotations

from ..owner import Owner
from . import types
from .cache import Change, cache_key, changes, explain
from .errors import (
    AccessDenied,
    AlreadyExists,
    ConflictError,
    DiskFull,
    LeaseLost,
    NoStore,
    NotFound,
    SchemaMismatch,
    StateError,
    StoreDamaged,
    StoreUnavailable,
)
from .foreign import described
from .payload import Payloads
from .payload_local import LocalPayloads
from .payload_root import keep_payloads_at, open_payloads, payloads_at
from .records import (
    ArtifactRecord,
    Claim,
    ContextRecord,
    ExecutionRecord,
    LineageEdge,
    LineageGraph,
    StagedArtifact,
)
from .store import MetadataStore
from .summary import Summary, compare, compares_itself, summarize, summarizes_itself, summary_of
from .types import *
from .uri import check as check_uri
from .uri import resolve as resolve_uri

__all__ = [
    "AccessDenied",
    "AlreadyExists",
    "ArtifactRecord",
    "Change",
    "Claim",
    "ConflictError",
    "ContextRecord",
    "DiskFull",
    "ExecutionRecord",
    "LeaseLost",
    "LineageEdge",
    "LineageGraph",
    "LocalPayloads",
    "MetadataStore",
    "NoStore",
    "NotFound",
    "Owner",
    "Payloads",
    "SchemaMismatch",
    "StagedArtifact",
    "StateError",
    "StoreDamaged",
    "StoreUnavailable",
    "Summary",
    "cache_key",
    "changes",
    "check_uri",
    "compare",
    "compares_itself",
    "described",
    "explain",
    "keep_payloads_at",
    "open_payloads",
    "payloads_at",
    "resolve_uri",
    "summarize",
    "summarizes_itself",
    "summary_of",
]
__all__ += types.__all__
