"""Artifact types, the store of what ran on what, cache keys, payloads: everything known about a result."""

from __future__ import annotations

from ..owner import Owner
from .cache import Change, cache_key, changes, explain
from .errors import (
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
from .types import (
    AnalyzerCache,
    Anomalies,
    Artifact,
    Decision,
    Evaluation,
    Examples,
    ExamplesDiff,
    Explanation,
    InfraValidation,
    Model,
    Predictions,
    PushedModel,
    Registration,
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
    "Change",
    "Claim",
    "ConflictError",
    "ContextRecord",
    "Decision",
    "DiskFull",
    "Evaluation",
    "Examples",
    "ExamplesDiff",
    "ExecutionRecord",
    "Explanation",
    "InfraValidation",
    "LeaseLost",
    "LineageEdge",
    "LineageGraph",
    "LocalPayloads",
    "MetadataStore",
    "Model",
    "NoStore",
    "NotFound",
    "Owner",
    "Payloads",
    "Predictions",
    "PushedModel",
    "Registration",
    "Schema",
    "SchemaMismatch",
    "StagedArtifact",
    "StateError",
    "Statistics",
    "StoreDamaged",
    "StoreUnavailable",
    "Summary",
    "TransformGraph",
    "Value",
    "artifact_type",
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
    "staging",
    "summarize",
    "summarizes_itself",
    "summary_of",
]
