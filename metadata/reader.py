"""The store's reading half: every question is one statement, or one snapshot."""
# ruff: noqa: A002, S608
# A002: `type` is the field's word. S608: only this package's own constants are put into SQL; every value is bound.

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

from ..digest import canonical_json
from ..errors import InputError
from ..owner import Owner
from . import rows
from .claims import owner_is_dead
from .database import Database
from .dialect import IDS, UIDS
from .errors import NotFound
from .operations import Remote, operation
from .records import (
    ArtifactRecord,
    ArtifactState,
    Claim,
    ContextRecord,
    Direction,
    ExecutionRecord,
    ExecutionState,
    LineageEdge,
    LineageGraph,
    RecordsById,
    RunOutput,
)

if TYPE_CHECKING:
    from .finding import Page, RecordQuery

_PROPERTY = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)


class StoreReader:
    """What can be asked of a store. Records are snapshots.

    Attributes:
        remote: The way to it, where it is elsewhere.
    """

    remote: Remote | None = None

    def __init__(self, database: Database) -> None:
        self._db = database

    @property
    def readonly(self) -> bool:
        """Whether it was opened to read only."""
        return self._db.dialect.readonly

    @property
    def location(self) -> str:
        """The database's file, or its URL without a password."""
        return self._db.dialect.location

    @operation("reader")
    def now(self) -> int:
        """The store's clock, in microseconds since 1970, UTC."""
        return self._db.now()

    @operation("reader")
    def integrity(self) -> list[str]:
        """What the database finds wrong with itself; empty when it is sound."""
        return self._db.integrity()

    def durability(self) -> list[tuple[bool, str]]:
        """What is known of how commits survive a failure of the server: whether each fact is as it should be, and it.

        Empty of a SQLite store: a commit is on the disk when it returns.
        """
        return self._db.durability()

    # -- contexts

    @operation("reader")
    def find_context(self, type: str, name: str) -> ContextRecord | None:
        """The context of that type and name, None if there is none."""
        row = self._db.first(
            f"{rows.CONTEXT} WHERE {_of_type('c', 'context', 'type')} AND c.name = :name",
            type=type,
            name=name,
        )
        return None if row is None else rows.context(row)

    @operation("reader")
    def contexts(
        self, type: str, *, limit: int | None = 50, changed_after: datetime | None = None
    ) -> list[ContextRecord]:
        """The contexts of a type, newest first; only those made or changed after a moment (UTC), where one is named."""
        sql, params = f"{rows.CONTEXT} WHERE {_of_type('c', 'context', 'type')}", dict[str, Any]()
        if changed_after is not None:
            sql, params = f"{sql} AND c.updated_at > :after", {"after": rows.microseconds(changed_after)}
        context_rows = self._db.all(f"{sql} ORDER BY c.id DESC LIMIT :limit", type=type, limit=_limit(limit), **params)
        return [rows.context(row) for row in context_rows]

    @operation("reader")
    def count_contexts(self, type: str) -> int:
        """How many contexts of a type there are."""
        sql = f"SELECT count(*) AS n FROM context c WHERE {_of_type('c', 'context', 'type')}"
        row = self._db.first(sql, type=type)
        return int(row["n"]) if row is not None else 0

    def context_type(self, number: int) -> str | None:
        """The type of the context of an id, None if there is none."""
        row = self._db.first(f"{rows.CONTEXT} WHERE c.id = :id", id=number)
        return None if row is None else str(row["type"])

    @operation("reader")
    def contexts_of(self, record: ExecutionRecord | ArtifactRecord) -> list[ContextRecord]:
        """What an execution or an artifact belongs to, oldest context first."""
        table, column = (
            ("association", "execution_id") if isinstance(record, ExecutionRecord) else ("attribution", "artifact_id")
        )
        sql = f"{rows.CONTEXT} JOIN {table} s ON s.context_id = c.id WHERE s.{column} = :id ORDER BY c.id"
        return [rows.context(row) for row in self._db.all(sql, id=record.id)]

    @operation("reader")
    def parents(self, context: ContextRecord) -> list[ContextRecord]:
        """The contexts directly above one, oldest first."""
        sql = f"{rows.CONTEXT} JOIN context_parent p ON p.parent_id = c.id WHERE p.child_id = :child ORDER BY c.id"
        return [rows.context(row) for row in self._db.all(sql, child=context.id)]

    # -- executions

    @operation("reader")
    def execution(self, reference: int | str) -> ExecutionRecord:
        """The execution with that id or uid.

        Raises:
            NotFound: There is none.
        """
        row = self._db.first(f"{rows.EXECUTION} WHERE e.{_column(reference)} = :reference", reference=reference)
        if row is None:
            raise NotFound(f"there is no execution {reference!r} in this store")
        return rows.execution(row)

    @operation("reader")
    def executions_by_id(self, numbers: Iterable[int]) -> list[ExecutionRecord]:
        """The executions of some ids, the oldest first; without those that there are not."""
        sql = f"{rows.EXECUTION} WHERE e.id IN {IDS} ORDER BY e.id"
        return [rows.execution(row) for row in self._db.all(sql, ids=json.dumps(list(numbers)))]

    @operation("reader")
    def executions(
        self,
        *,
        context: ContextRecord | None = None,
        contexts: Iterable[ContextRecord] | None = None,
        component: str | None = None,
        state: ExecutionState | None = None,
        cache_key: str | None = None,
        trials: bool = True,
        limit: int | None = None,
    ) -> list[ExecutionRecord]:
        """Executions, newest first: in the context (all the contexts), of the component, in the state, of the key.

        Without the trials of searches where not `trials`. Those are in no context of a run or a node anyway.
        """
        params: dict[str, Any] = {"limit": _limit(limit)}
        sql, tests, order = rows.EXECUTION, [], "e.id"
        for index, each in enumerate([*([] if context is None else [context]), *(contexts or ())]):
            sql += (
                f" JOIN association s{index} ON s{index}.execution_id = e.id AND s{index}.context_id = :context{index}"
            )
            params[f"context{index}"] = each.id
            order = "s0.execution_id"  # the same number, read from the index of the context: no sorting
        if component is not None:
            tests.append(_of_type("e", "execution", "component"))
            params["component"] = component
        if state is not None:
            tests.append("e.state = :state")
            params["state"] = state
        if cache_key is not None:
            tests.append("e.cache_key = :cache_key")
            params["cache_key"] = cache_key
        if not trials:
            tests.append(f"e.id NOT IN {rows.TRIALS}")
        sql += f"{_where(tests)} ORDER BY {order} DESC LIMIT :limit"
        return [rows.execution(row) for row in self._db.all(sql, **params)]

    @operation("reader")
    def is_dead(self, execution: ExecutionRecord) -> bool:
        """Whether the process that ran an execution certainly does so no more.

        Dead is: gone from this host; or, where the process itself cannot be seen, its lease is over or the host has
        booted since. Of one on another host, without a lease, nothing is known: it counts as living.
        """
        return owner_is_dead(self._db, execution, self.now())

    @operation("reader")
    def inputs(self, execution: ExecutionRecord) -> dict[str, list[ArtifactRecord]]:
        """What went into an execution, by input name, in order."""
        return self._linked(execution.id, "INPUT")

    @operation("reader")
    def outputs(self, execution: ExecutionRecord) -> dict[str, list[ArtifactRecord]]:
        """What came out of an execution, by output name, in order; of a CACHED one, what it reuses."""
        return self._linked(execution.cached_from or execution.id, "OUTPUT")

    def _linked(self, execution: int, direction: Direction) -> dict[str, list[ArtifactRecord]]:
        sql = rows.ARTIFACT.replace(" FROM", ", v.key AS event_key FROM", 1)
        sql += " JOIN event v ON v.artifact_id = a.id WHERE v.execution_id = :execution AND v.direction = :direction"
        by_key: dict[str, list[ArtifactRecord]] = {}
        for row in self._db.all(f"{sql} ORDER BY v.key, v.idx", execution=execution, direction=direction):
            by_key.setdefault(row["event_key"], []).append(rows.artifact(row))
        return by_key

    # -- cache

    @operation("reader")
    def find_cached(self, cache_key: str) -> ExecutionRecord | None:
        """The newest COMPLETE execution under a key whose outputs are all LIVE."""
        row = self._db.first(
            f"{rows.EXECUTION} WHERE e.cache_key = :key AND e.state = 'COMPLETE' AND NOT EXISTS ("
            "SELECT 1 FROM event v JOIN artifact a ON a.id = v.artifact_id "
            "WHERE v.execution_id = e.id AND v.direction = 'OUTPUT' AND a.state <> 'LIVE') ORDER BY e.id DESC LIMIT 1",
            key=cache_key,
        )
        return None if row is None else rows.execution(row)

    @operation("reader")
    def preimage(self, cache_key: str) -> dict[str, Any] | None:
        """What a key digests; None if it was never stored."""
        row = self._db.first("SELECT preimage FROM cache_preimage WHERE cache_key = :key", key=cache_key)
        return None if row is None else rows.properties(row["preimage"])

    @operation("reader")
    def last_preimage(
        self,
        component: str | None = None,
        context: ContextRecord | None = None,
        *,
        before: ExecutionRecord | None = None,
        outside: ContextRecord | None = None,
    ) -> dict[str, Any] | None:
        """What the key of the newest execution digests, to compare another with by `cache.explain`.

        Args:
            component: Only its executions.
            context: Only those in it, such as a node's context.
            before: Only those older than this one.
            outside: Only those not in it, such as the run at work.
        """
        row = self._db.first(
            "SELECT p.preimage FROM execution e JOIN type t ON t.id = e.type_id "
            "JOIN cache_preimage p ON p.cache_key = e.cache_key "
            "WHERE (CAST(:component AS TEXT) IS NULL OR t.name = :component) "
            "AND (CAST(:before AS BIGINT) IS NULL OR e.id < :before) "
            "AND (CAST(:context AS BIGINT) IS NULL OR EXISTS (SELECT 1 FROM association s "
            "WHERE s.execution_id = e.id AND s.context_id = :context)) "
            "AND (CAST(:outside AS BIGINT) IS NULL OR NOT EXISTS (SELECT 1 FROM association s "
            "WHERE s.execution_id = e.id AND s.context_id = :outside)) ORDER BY e.id DESC LIMIT 1",
            component=component,
            context=None if context is None else context.id,
            before=None if before is None else before.id,
            outside=None if outside is None else outside.id,
        )
        return None if row is None else rows.properties(row["preimage"])

    @operation("reader")
    def claim_holder(self, cache_key: str) -> Owner | None:
        """Who holds a key, dead or alive; None if nobody does."""
        row = self._db.first("SELECT owner FROM claim WHERE cache_key = :key AND state = 'HELD'", key=cache_key)
        return None if row is None else rows.owner(row["owner"])

    @operation("reader")
    def is_lease_over(self, cache_key: str, owner: Owner) -> bool | None:
        """Whether an owner's lease on a key is over; None where it has had none since somebody else had one."""
        row = self._db.first("SELECT owner, state, expires_at FROM claim WHERE cache_key = :key", key=cache_key)
        if row is None or rows.owner(row["owner"]) != owner:
            return None
        return bool(row["state"] != "HELD" or row["expires_at"] <= self.now())

    @operation("reader")
    def claims(self) -> list[Claim]:
        """Every claim that is held, by key."""
        claim_rows = self._db.all("SELECT * FROM claim WHERE state = 'HELD' ORDER BY cache_key")
        return [rows.claim(row) for row in claim_rows]

    # -- artifacts

    @operation("reader")
    def artifact(self, reference: int | str) -> ArtifactRecord:
        """The artifact with that id or uid.

        Raises:
            NotFound: There is none.
        """
        row = self._db.first(f"{rows.ARTIFACT} WHERE a.{_column(reference)} = :reference", reference=reference)
        if row is None:
            raise NotFound(f"there is no artifact {reference!r} in this store")
        return rows.artifact(row)

    @operation("reader")
    def artifacts_by_id(self, numbers: Iterable[int]) -> list[ArtifactRecord]:
        """The artifacts of some ids, the oldest first; without those that there are not."""
        sql = f"{rows.ARTIFACT} WHERE a.id IN {IDS} ORDER BY a.id"
        return [rows.artifact(row) for row in self._db.all(sql, ids=json.dumps(list(numbers)))]

    @operation("reader")
    def uris_in_use(self, uris: Iterable[str]) -> set[str]:
        """Those of some URIs at which the payload of an artifact lies that is neither DELETED nor ABANDONED."""
        sql = f"SELECT uri FROM artifact WHERE uri IN {UIDS} AND state NOT IN ('DELETED', 'ABANDONED')"
        return {row["uri"] for row in self._db.all(sql, uids=json.dumps(list(uris)))}

    @operation("reader")
    def artifact_by_uri(self, uri: str) -> ArtifactRecord | None:
        """The artifact whose payload lies there (the newest, if others before it were deleted)."""
        row = self._db.first(
            f"{rows.ARTIFACT} WHERE a.uri = :uri ORDER BY a.state IN ('DELETED', 'ABANDONED'), a.id DESC LIMIT 1",
            uri=uri,
        )
        return None if row is None else rows.artifact(row)

    @operation("reader")
    def artifacts(
        self,
        *,
        type: str | None = None,
        state: ArtifactState | None = "LIVE",
        where: Mapping[str, Any] | None = None,
        fingerprint: str | None = None,
        context: ContextRecord | None = None,
        after: int | None = None,
        limit: int | None = None,
    ) -> list[ArtifactRecord]:
        """Artifacts, newest first.

        Args:
            type: Of that type.
            state: In that state; None for any.
            where: With these properties: equal JSON, so `True` is not `1` and `1` not `1.0`.
            fingerprint: With that content.
            context: In that context.
            after: With a larger id: published later.
            limit: At most so many.
        """
        params: dict[str, Any] = {"limit": _limit(limit)}
        sql, tests = rows.ARTIFACT, []
        if context is not None:
            sql += " JOIN attribution s ON s.artifact_id = a.id AND s.context_id = :context"
            params["context"] = context.id
        if type is not None:
            tests.append(_of_type("a", "artifact", "type"))
            params["type"] = type
        for column, value in (("state", state), ("fingerprint", fingerprint)):
            if value is not None:
                tests.append(f"a.{column} = :{column}")
                params[column] = value
        if after is not None:
            tests.append("a.id > :after")
            params["after"] = after
        for index, (key, value) in enumerate((where or {}).items()):
            if not _PROPERTY.fullmatch(key):
                raise InputError(f"{key!r:.80} is not a property name", fix="use a name such as span")
            tests.append(self._db.dialect.json_equals("a.properties", f"key{index}", f"value{index}"))
            params |= {f"key{index}": key, f"value{index}": canonical_json(value).decode()}
        sql += _where(tests) + " ORDER BY a.id DESC LIMIT :limit"
        return [rows.artifact(row) for row in self._db.all(sql, **params)]

    @operation("reader")
    def find_artifacts(self, query: RecordQuery) -> Page[ArtifactRecord]:
        """A page of the artifacts that a filter fits, of every state: see `filters` and docs/finding.md.

        Raises:
            InputError: The filter, the order or `after` is not valid.
        """
        from . import finding  # late, as below: a run finds nothing

        read, fields = rows.artifact, finding.ARTIFACT_FIELDS
        return finding.find(self._db, rows.ARTIFACT, "a", fields, read, query, lineage_of=self._reference)

    @operation("reader")
    def find_executions(self, query: RecordQuery, abandoned: Iterable[int] = ()) -> Page[ExecutionRecord]:
        """A page of the executions that a filter fits; raises as `find_artifacts`.

        Args:
            query: What is asked for.
            abandoned: The ids of RUNNING ones that are dead: a filter takes them as ABANDONED, which they are recorded
                to be once somebody goes on with their work.
        """
        from . import finding

        read, fields = rows.execution, finding.execution_fields(abandoned)
        return finding.find(self._db, rows.EXECUTION, "e", fields, read, query, lineage_of=self._reference)

    @operation("reader")
    def find_runs(self, query: RecordQuery, interrupted: Iterable[int] = ()) -> Page[ContextRecord]:
        """A page of the runs that a filter fits; raises as `find_artifacts`.

        Args:
            query: What is asked for.
            interrupted: The ids of runs whose process died: their state is INTERRUPTED, which their record cannot say.
        """
        from . import finding

        also, params = _of_type("c", "context", "type"), {"type": "run"}
        fields = finding.run_fields(self._db.dialect, interrupted)
        return finding.find(self._db, rows.CONTEXT, "c", fields, rows.context, query, also=also, params=params)

    def _reference(self, reference: str) -> int:
        """The id of the artifact of a URI or a uid."""
        by_uri = self.artifact_by_uri(reference)
        return by_uri.id if by_uri is not None else self.artifact(reference).id

    @operation("reader")
    def last_uses(self) -> dict[int, datetime]:
        """When each artifact was last made, read, or reused from the cache (UTC), by its id."""
        sql = (
            "SELECT artifact, max(at) AS at FROM (SELECT artifact_id AS artifact, at FROM event UNION ALL "
            "SELECT v.artifact_id, x.created_at FROM execution x JOIN event v ON v.execution_id = x.cached_from "
            "AND v.direction = 'OUTPUT') AS uses GROUP BY artifact"
        )
        return {row["artifact"]: rows.when(row["at"]) for row in self._db.all(sql)}

    @operation("reader")
    def outputs_of_runs(self) -> list[RunOutput]:
        """What the nodes of all runs gave, made or from the cache."""
        sql = (
            "SELECT DISTINCT n.name AS node, r.id AS run, v.key, v.artifact_id AS artifact FROM association an "
            f"JOIN context n ON n.id = an.context_id AND {_of_type('n', 'context', 'node')} "
            "JOIN association ar ON ar.execution_id = an.execution_id "
            f"JOIN context r ON r.id = ar.context_id AND {_of_type('r', 'context', 'run')} "
            "JOIN execution x ON x.id = an.execution_id "
            "JOIN event v ON v.execution_id = coalesce(x.cached_from, x.id) AND v.direction = 'OUTPUT'"
        )
        columns = self._db.all(sql, node="node", run="run")
        return [RunOutput(row["node"], row["key"], row["run"], row["artifact"]) for row in columns]

    @operation("reader")
    def ancestors(self, artifacts: Iterable[int]) -> set[int]:
        """The ids of all artifacts that those of some ids were made from, directly or not."""
        from . import lineage

        return lineage.ancestors(self._db, artifacts)

    def lineage(
        self,
        start: ArtifactRecord | ExecutionRecord,
        direction: Literal["upstream", "downstream"] = "upstream",
        max_hops: int | None = None,
        *,
        of_data: bool = False,
    ) -> LineageGraph:
        """Everything that led to an artifact or execution, or everything made from it; the start is in the graph.

        Downstream, a CACHED execution leads to the outputs it reuses. From an execution, upstream leaves out its
        outputs and downstream its inputs.

        Args:
            start: Where to begin.
            direction: Which way to go.
            max_hops: Edges to follow at most (artifact to execution is one); None for all.
            of_data: Only what data took its way through. An analyzer cache that an execution takes, or makes, is in the
                graph, and nothing beyond it: it holds what was learnt of other spans, which changes no result.
        """
        edges = tuple(self.lineage_edges(start, direction, max_hops))
        if of_data:
            from . import lineage
            from .types import AnalyzerCache

            artifacts_by_id = RecordsById({edge.artifact for edge in edges}, self.artifacts_by_id)
            caches = {number for number, each in artifacts_by_id.items() if each.type == AnalyzerCache.__name__}
            edges = tuple(lineage.up_to(caches, edges, start, direction))
        artifacts, executions = {edge.artifact for edge in edges}, {edge.execution for edge in edges}
        (artifacts if isinstance(start, ArtifactRecord) else executions).add(start.id)
        return LineageGraph(
            RecordsById(artifacts, self.artifacts_by_id), RecordsById(executions, self.executions_by_id), edges
        )

    @operation("reader")
    def lineage_edges(
        self,
        start: ArtifactRecord | ExecutionRecord,
        direction: Literal["upstream", "downstream"] = "upstream",
        max_hops: int | None = None,
    ) -> list[LineageEdge]:
        """The edges alone of what `lineage` gives, sorted."""
        from . import lineage

        return lineage.trace(self._db, start, direction, max_hops)


def _column(reference: int | str) -> str:
    return "uid" if isinstance(reference, str) else "id"


def _of_type(table: str, kind: str, name: str) -> str:
    """SQL: a row is of the type whose name is bound. By its one id, so that an index gives the rows in their order."""
    chosen = f"SELECT id FROM type WHERE kind = '{kind}' AND name = :{name} AND version = ''"
    return f"{table}.type_id = ({chosen})"


def _where(tests: list[str]) -> str:
    return f" WHERE {' AND '.join(tests)}" if tests else ""


def _limit(limit: int | None) -> int:
    if limit is not None and limit < 0:
        raise InputError(f"a limit is not negative: {limit}")
    return 2**63 - 1 if limit is None else limit
