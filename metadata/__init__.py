"""Artifact types, the store of what ran on what, cache keys, payloads: everything known about a result."""

from __future__ import annotations

from .cache import cache_key, explain
from .errors import (
    AlreadyExists,
    ConflictError,
    DiskFull,
    LeaseLost,
    NotFound,
    SchemaMismatch,
    StateError,
    StoreUnavailable,
)
from .foreign import described
from .fsck import FsckReport, fsck
from .owner import Owner
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
    NewArtifact,
)
from .store import MetadataStore
from .summary import Summary, summarize, summarizes_itself, summary_of
from .types import (
    AnalyzerCache,
    Anomalies,
    Artifact,
    Decision,
    Evaluation,
    Examples,
    ExamplesDiff,
    Model,
    PushedModel,
    Schema,
    Statistics,
    TransformGraph,
    Value,
    artifact_type,
    staging,
)
from .uri import check as check_uri
from .uri import resolve as resolve_uri

__all__ = [
    "AlreadyExists",
    "AnalyzerCache",
    "Anomalies",
    "Artifact",
    "ArtifactRecord",
    "Claim",
    "ConflictError",
    "ContextRecord",
    "Decision",
    "DiskFull",
    "Evaluation",
    "Examples",
    "ExamplesDiff",
    "ExecutionRecord",
    "FsckReport",
    "LeaseLost",
    "LineageEdge",
    "LineageGraph",
    "LocalPayloads",
    "MetadataStore",
    "Model",
    "NewArtifact",
    "NotFound",
    "Owner",
    "Payloads",
    "PushedModel",
    "Schema",
    "SchemaMismatch",
    "StateError",
    "Statistics",
    "StoreUnavailable",
    "Summary",
    "TransformGraph",
    "Value",
    "artifact_type",
    "cache_key",
    "check_uri",
    "described",
    "explain",
    "fsck",
    "keep_payloads_at",
    "open_payloads",
    "payloads_at",
    "resolve_uri",
    "staging",
    "summarize",
    "summarizes_itself",
    "summary_of",
]
