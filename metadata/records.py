"""The store's rows as values: what is read, and what is to be published."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, NamedTuple, TypeVar

from ..owner import Owner
from .errors import NotFound

ArtifactState = Literal["PENDING", "LIVE", "MARKED_FOR_DELETION", "DELETED", "ABANDONED", "REFERENCE"]
ExecutionState = Literal[
    "NEW", "RUNNING", "COMPLETE", "CACHED", "FAILED", "CANCELED", "SKIPPED", "BLOCKED", "ABANDONED"
]
Direction = Literal["INPUT", "OUTPUT"]
_Record = TypeVar("_Record")
_PAGE = 1000  # records that are read at once
Properties = dict[str, Any]  # JSON values: Any is their boundary

Metrics = Mapping[str, float | None]
"""Numbers by name; None for what was not finite."""

COLLECTED = "collected"
"""The property of an artifact that `retention` marked: `at` (ISO 8601, UTC) and `reason`."""

PINNED = "pinned"
"""The property of an artifact that is kept whatever a policy says: `by`, `reason` and `at`; None after `unpin`."""

INPUTS_COMPARED = "inputs_compared"
"""The property of an execution whose inputs were compared with their digests before and after they were read."""

TRIAL = "Trial"
"""The type of executions that are trials of a search: in the context of that alone, as they are no tasks of a run."""

SEARCH = "search"
"""The type of a search's context, whose name is the uid of the execution that began it, and whose parents are runs."""

ARTIFACT_MOVES: Mapping[str, frozenset[str]] = {
    "PENDING": frozenset({"LIVE", "ABANDONED", "DELETED"}),
    "LIVE": frozenset({"MARKED_FOR_DELETION", "ABANDONED", "DELETED"}),
    "MARKED_FOR_DELETION": frozenset({"LIVE", "ABANDONED", "DELETED"}),
    "REFERENCE": frozenset({"ABANDONED", "DELETED"}),
    "ABANDONED": frozenset({"DELETED", "LIVE"}),  # LIVE: a repair that was undone
    "DELETED": frozenset({"LIVE"}),
}
EXECUTION_MOVES: Mapping[str, frozenset[str]] = {
    "NEW": frozenset({"RUNNING", "CANCELED", "ABANDONED"}),
    "RUNNING": frozenset({"COMPLETE", "FAILED", "CANCELED", "ABANDONED"}),
    **{end: frozenset() for end in ("COMPLETE", "CACHED", "FAILED", "CANCELED", "SKIPPED", "BLOCKED", "ABANDONED")},
}


@dataclass(frozen=True)
class ContextRecord:
    """A pipeline, a run, a node: what executions and artifacts are grouped by. Times are UTC."""

    id: int
    uid: str
    type: str
    name: str
    properties: Properties = field(hash=False)
    version: int
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True)
class ArtifactRecord:
    """A published artifact: what it is, where its payload lies, who made it.

    Attributes:
        uri: Below the root, see `metadata.uri`; of one that was imported only a name.
        fingerprint: SHA-256 (hex) of its `content/`; "" where the payload is not ours.
        size: Bytes in its `content/`.
        producer: Id of the execution that made it.
        version: Counts the updates of the row, for optimistic locking.
    """

    id: int
    uid: str
    type: str
    name: str | None
    uri: str
    fingerprint: str
    size: int
    state: ArtifactState
    producer: int | None
    properties: Properties = field(hash=False)
    version: int
    created_at: datetime
    updated_at: datetime

    @property
    def external(self) -> str | None:
        """Where the payload lies of an artifact that another system made; None of those that are ours."""
        origin = self.properties.get("mlmd")
        return str(origin.get("uri", "")) if self.uri.startswith("external/") and isinstance(origin, dict) else None

    @property
    def collected(self) -> str | None:
        """When and why `retention` marked it, of one whose payload is removed since; None of all others."""
        mark = self.properties.get(COLLECTED)
        return f"{mark['at'][:16]}Z: {mark['reason']}" if self.state == "DELETED" and mark else None

    @property
    def metrics(self) -> Metrics:
        """Its property of that name: of an Evaluation, or of a user's type that declares one."""
        return _metrics(self.properties)


@dataclass(frozen=True)
class ExecutionRecord:
    """One attempt to run a node, or the note that it was not needed, skipped or blocked.

    Attributes:
        cached_from: Id of the COMPLETE execution whose outputs a CACHED one reuses.
        error: What went wrong: the text and the traceback of a FAILED one, the reason of others.
        owner: The process that runs or ran it.
        version: Counts the updates of the row.
    """

    id: int
    uid: str
    component: str
    name: str | None
    cache_key: str | None
    state: ExecutionState
    cached_from: int | None
    properties: Properties = field(hash=False)
    error: str | None
    owner: Owner | None
    version: int
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    updated_at: datetime

    @property
    def metrics(self) -> Metrics:
        """What its component recorded by `current().metric`; of a CACHED one, that of the work it reuses."""
        return _metrics(self.properties)

    @property
    def resources(self) -> Mapping[str, Any]:
        """What it used of the machine, see docs/costs.md; empty where nothing was measured."""
        resources = self.properties.get("resources")
        return resources if isinstance(resources, Mapping) else {}

    @property
    def seconds(self) -> float | None:
        """How long it took, as who ran it measured, else by the clock; never negative; None before its end."""
        measured = self.properties.get("seconds")
        if isinstance(measured, (int, float)):
            return float(measured)
        if self.started_at is None or self.finished_at is None:
            return None
        return max(0.0, (self.finished_at - self.started_at).total_seconds())  # the clock may have been set back


def _metrics(properties: Properties) -> Metrics:
    metrics = properties.get("metrics")
    if not isinstance(metrics, dict):
        return {}
    return {name: value for name, value in metrics.items() if isinstance(value, (int, float, type(None)))}


@dataclass(frozen=True)
class StagedArtifact:
    """An artifact about to be published; its payload is already in place."""

    type: str
    uri: str
    fingerprint: str
    size: int
    properties: Mapping[str, Any] = field(default_factory=dict, hash=False)
    name: str | None = None
    uid: str | None = None


@dataclass(frozen=True)
class Claim:
    """The right to publish under one cache key, until the lease runs out.

    Attributes:
        token: Grows with every holder of the key: an old holder's is refused.
        expires_at: When others may take over, UTC.
        lease: Seconds that a heartbeat adds.
        displaced: The owner it was taken over from: dead, or silent past its lease.
    """

    cache_key: str
    owner: Owner
    token: int
    expires_at: datetime
    lease: float
    displaced: Owner | None = None


@dataclass(frozen=True)
class RunOutput:
    """An artifact that a node gave in a run, made there or from the cache.

    Attributes:
        node: The name of the node's context: the pipeline's and the node's, with a dot between.
        key: The output.
        run: Id of the run's context.
        artifact: Id of the artifact.
    """

    node: str
    key: str
    run: int
    artifact: int


class LineageEdge(NamedTuple):
    """An artifact goes into, or comes out of, an execution, as the index-th of the values named key."""

    execution: int
    direction: Direction
    key: str
    index: int  # type: ignore[assignment]  # hides the method of tuples, which nobody needs of an edge
    artifact: int


class RecordsById(Mapping[int, _Record]):
    """Records by id, in the order of the ids. They are read when they are asked for, a page of ids at a time.

    Args:
        numbers: The ids.
        read: Gives the records of some ids.
    """

    def __init__(self, numbers: Iterable[int], read: Callable[[list[int]], list[_Record]]) -> None:
        self._numbers = sorted(numbers)
        self._read = read
        self._records: dict[int, _Record] = {}

    def __getitem__(self, number: int) -> _Record:
        if number not in self._records:
            if number not in self:
                raise KeyError(number)
            start = bisect_left(self._numbers, number) // _PAGE * _PAGE
            numbers = self._numbers[start : start + _PAGE]
            records = self._read(numbers)
            if len(records) != len(numbers):
                raise NotFound("records that this graph names are not in the store", fix="run `drivetrain fsck`")
            self._records |= zip(numbers, records, strict=True)
        return self._records[number]

    def __contains__(self, number: object) -> bool:
        return isinstance(number, int) and self._numbers[(at := bisect_left(self._numbers, number)) : at + 1] == [
            number
        ]

    def __iter__(self) -> Iterator[int]:
        return iter(self._numbers)

    def __len__(self) -> int:
        return len(self._numbers)


@dataclass(frozen=True)
class LineageGraph:
    """Artifacts and executions by id, and the edges between them, from one starting point.

    The ids and the edges are those of one moment. Records are read from the store as they are asked for, so it has to
    be open then: a state is what it is by that time.
    """

    artifacts: Mapping[int, ArtifactRecord] = field(hash=False)
    executions: Mapping[int, ExecutionRecord] = field(hash=False)
    edges: tuple[LineageEdge, ...]
