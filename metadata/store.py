"""The metadata store: what ran, on what, with what result, each change one transaction."""
# ruff: noqa: A002 (`type` is the field's word)

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

from ..digest import digest
from ..errors import InputError
from ..owner import Owner
from . import claims as leases
from . import foreign, rows, writes
from .database import Database, Transaction
from .dialect import parse
from .errors import StateError
from .operations import may_bring_in, may_change_artifacts, may_change_context, may_have_context, operation
from .reader import StoreReader
from .records import (
    PINNED,
    ArtifactRecord,
    ArtifactState,
    Claim,
    ContextRecord,
    ExecutionRecord,
    ExecutionState,
    StagedArtifact,
)
from .roles import role_for_artifact, role_for_context


class MetadataStore(StoreReader):
    """One store, shared by any number of threads, processes and runs; every write is one durable transaction.

    Records are snapshots: a method that changes something returns the record as it is afterwards.
    """

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self._lease_watch = leases.LeaseWatch()

    @classmethod
    def open(
        cls,
        url: str | Path,
        *,
        readonly: bool = False,
        create: bool = True,
        upgrade: bool = False,
        clock: Callable[[], int] | None = None,
    ) -> MetadataStore:
        """Open a store; any number of processes may do so at once.

        Args:
            url: The path of a SQLite file, `sqlite:///` and the path, `postgresql://user@host:port/database`, or of
                a metadata server `https://host:port/namespace`.
            readonly: Refuse every write; nothing is made.
            create: Make it where there is none, unless it is `readonly`.
            upgrade: Bring an older schema up to date (back it up first).
            clock: Microseconds since 1970, UTC; for tests. None is this machine's with SQLite, the server's with
                PostgreSQL.

        Raises:
            InputError: The URL names nothing that can be opened.
            NoStore: There is none, and none may be made.
            SchemaMismatch: A newer or older schema, or a file of something else.
            StoreUnavailable: Not writable, damaged, on a network filesystem, or its server does not answer.
            DrivetrainError: The driver of PostgreSQL is not installed.
        """
        if str(url).lower().startswith(("http://", "https://")) and not isinstance(url, Path):
            from .remote.client import open_remote

            if clock is not None or upgrade:
                raise InputError("a metadata server has its database's clock and schema", fix="open the database")
            return open_remote(str(url), readonly=readonly)
        dialect = parse(url, readonly=readonly)
        create = create and not readonly
        dialect.prepare(create=create)
        database = Database(dialect, clock=clock)
        try:
            database.migrate(upgrade=upgrade, create=create)
        except BaseException:
            database.close()
            raise
        return cls(database)

    def close(self) -> None:
        """Close the connections of every thread."""
        self._db.close()

    def files_kept(self, by: str) -> AbstractContextManager[None]:
        """See that a block closes no file of the store, as `by`, which runs in it; see `Database.files_kept`."""
        return self._db.files_kept(by)

    def __enter__(self) -> MetadataStore:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # -- contexts

    @operation(asked=may_have_context)
    def context(
        self,
        type: str,
        name: str,
        properties: Mapping[str, Any] | None = None,
        parents: Iterable[ContextRecord] = (),
        *,
        durable: bool = True,
    ) -> ContextRecord:
        """Get or create the context of that type and name, and link it to its parents.

        The properties of one that exists stay as they are: `update_context` changes them.

        Raises:
            InputError: A name is empty or longer than 255, or a property is not JSON.
            StateError: A parent is the context itself or below it.
        """
        parents = list(parents)
        if not parents and (there := self.find_context(type, rows.name_text(name, "context name"))) is not None:
            return there  # the common case needs no write lock

        def put(tx: Transaction) -> ContextRecord:
            if not tx.begun[0]:
                return writes.new_context(tx, type, name, properties, parents)
            there = rows.context(tx.begun[0][0])
            for parent in parents:
                writes.link_parent(tx, parent, there.id)
            return there

        asking, needs = writes.asking_for_context(type, name), role_for_context(type, properties)
        return self._db.written("context", put, asking, durable=durable, needs=needs)

    @operation(asked=may_change_context)
    def update_context(
        self, context: ContextRecord, properties: Mapping[str, Any], *, expected_version: int | None = None
    ) -> ContextRecord:
        """Merge properties into a context's; those not named stay.

        Raises:
            ConflictError: It is no longer at `expected_version`.
        """

        def change(tx: Transaction) -> ContextRecord:
            writes.change_context(tx, context.id, properties, expected_version)
            return writes.context(tx, context.id)

        return self._db.written("update context", change, needs=role_for_context(context.type, properties))

    @operation()
    def index_property(self, kind: Literal["artifact", "execution"], field: str) -> None:
        """Make the indexes by which a filter finds a property or a metric without reading every row; once is enough.

        Args:
            kind: Of artifacts or executions.
            field: As a filter names it: "property.span", "metric.auc".

        Raises:
            InputError: It is no such field, or no such kind.
        """
        from .filters import Compiler
        from .finding import ARTIFACT_FIELDS, EXECUTION_FIELDS

        if kind not in ("artifact", "execution"):
            raise InputError(f"{kind!r:.40} has no properties that are indexed", fix="name artifact or execution")
        fields = ARTIFACT_FIELDS if kind == "artifact" else EXECUTION_FIELDS
        name = digest("drivetrain-property-index-v1", field)[
            :16
        ]  # whatever stands in the field, and however long it is
        for value_kind, sql in Compiler(fields, self._db.dialect, rows.when(self.now())).index(field).items():
            statement = f"CREATE INDEX IF NOT EXISTS {kind}_{name}_{value_kind} ON {kind} (({sql}))"
            self._db.written("index", lambda tx, statement=statement: tx.run(statement), needs="admin")  # type: ignore[misc]

    # -- executions

    @operation("writer")
    def start(
        self,
        component: str,
        *,
        name: str | None = None,
        contexts: Iterable[ContextRecord] = (),
        inputs: writes.Inputs | None = None,
        cache_key: str | None = None,
        preimage: Mapping[str, Any] | None = None,
        properties: Mapping[str, Any] | None = None,
        owner: Owner | None = None,
    ) -> ExecutionRecord:
        """Record that an execution is RUNNING, with its inputs, in its contexts.

        Args:
            component: What runs; the execution's type.
            name: Unique among the component's executions, or None.
            contexts: What it belongs to.
            inputs: Artifacts by input name, in order.
            cache_key: See `cache.cache_key`.
            preimage: What the key digests, kept for `why`.
            properties: JSON values.
            owner: The process that runs it; this one unless given.

        Raises:
            AlreadyExists: The name is taken.
            NotFound: An input or a context is not in this store.
            StateError: An input is not LIVE (or a REFERENCE).
        """
        contexts = list(contexts)
        return self._db.written(
            "start",
            lambda tx: writes.insert_execution(
                tx,
                component,
                "RUNNING",
                name=name,
                cache_key=cache_key,
                preimage=preimage,
                properties=properties,
                owner=owner or Owner.current(),
                contexts=contexts,
                inputs=inputs,
            ),
            durable=False,
        )

    @operation("writer")
    def publish(
        self,
        execution: ExecutionRecord,
        outputs: Mapping[str, Sequence[StagedArtifact]],
        *,
        claim: Claim | None = None,
        properties: Mapping[str, Any] | None = None,
    ) -> dict[str, list[ArtifactRecord]]:
        """Make a RUNNING execution COMPLETE and its outputs LIVE, all or nothing; the claim is done.

        The payloads must be in place before: a crash between leaves a payload without a row, never the reverse.

        Raises:
            LeaseLost: The claim is no longer ours.
            StateError: The execution is not RUNNING.
            AlreadyExists: An output's uid, URI or name is taken: an artifact has one producer.
            InputError: A URI, a name, a uid or a property is malformed.
        """
        publishing = writes.Publishing(execution, outputs, claim)
        return self._db.written("publish", lambda tx: publishing.publish(tx, properties), *publishing.first)

    @operation("writer")
    def finish(
        self,
        execution: ExecutionRecord,
        state: Literal["FAILED", "CANCELED", "ABANDONED"],
        *,
        error: str | None = None,
        properties: Mapping[str, Any] | None = None,
        claim: Claim | None = None,
    ) -> ExecutionRecord:
        """End a RUNNING execution without outputs and release its claim.

        Raises:
            LeaseLost: The claim is no longer ours; who took over has ended the execution.
            StateError: The execution is not RUNNING, or `state` is not such a end.
        """
        if state not in {"FAILED", "CANCELED", "ABANDONED"}:
            raise StateError(f"an execution does not finish as {state}", fix="use publish for COMPLETE")

        def end(tx: Transaction) -> ExecutionRecord:
            if claim is not None and not leases.close(tx, claim, "RELEASED"):
                raise leases.lost_lease(tx, claim)
            return writes.move(tx, execution, state, error=error, properties=properties)

        return self._db.written("finish", end)

    @operation("writer")
    def record(
        self,
        component: str,
        state: ExecutionState,
        *,
        name: str | None = None,
        contexts: Iterable[ContextRecord] = (),
        inputs: writes.Inputs | None = None,
        cache_key: str | None = None,
        preimage: Mapping[str, Any] | None = None,
        cached_from: ExecutionRecord | None = None,
        properties: Mapping[str, Any] | None = None,
        error: str | None = None,
    ) -> ExecutionRecord:
        """Record in one go what needed no work: CACHED, SKIPPED, BLOCKED (or FAILED, CANCELED before a start).

        It survives a power loss with the next durable write, such as the end of the run.

        The outputs of a CACHED execution are those of `cached_from`; its contexts are attributed to them.

        Raises:
            StateError: Another state; CACHED from an execution that is not COMPLETE or has lost an output.
        """
        if state not in {"CACHED", "SKIPPED", "BLOCKED", "FAILED", "CANCELED"}:
            raise StateError(f"an execution cannot be recorded as {state} in one go", fix="use start, then publish")
        if (state == "CACHED") != (cached_from is not None):
            raise StateError("a CACHED execution, and no other, has one it is cached from", fix="pass cached_from")
        contexts = list(contexts)

        def put(tx: Transaction) -> ExecutionRecord:
            source = None if cached_from is None else writes.reusable(tx, cached_from)
            created = writes.insert_execution(
                tx,
                component,
                state,
                name=name,
                cache_key=cache_key,
                preimage=preimage,
                properties=properties,
                owner=Owner.current(),
                contexts=contexts,
                inputs=inputs,
                cached_from=source,
                error=error,
            )
            if source is not None:
                tx.run(
                    "INSERT INTO attribution (context_id, artifact_id) SELECT a.context_id, e.artifact_id "
                    "FROM association a JOIN event e ON e.execution_id = :source AND e.direction = 'OUTPUT' "
                    "WHERE a.execution_id = :id ON CONFLICT DO NOTHING",
                    id=created.id,
                    source=source,
                )
            return created

        return self._db.written("record", put, durable=False)

    @operation(asked=may_bring_in)
    def bring_in(self, body: Mapping[str, Any], newest_in: Collection[str] = ()) -> bool:
        """Take in an execution that another store recorded, as `foreign.described` gave it; False where it is here.

        Args:
            body: The JSON.
            newest_in: See `foreign.bring_in`.

        Raises:
            InputError: It is not such a JSON.
            AlreadyExists: A payload of its lies where another artifact's does.
        """
        return self._db.written("bring in", lambda tx: foreign.bring_in(tx, body, newest_in))

    @operation("writer", "gc")
    def abandon(self) -> list[ExecutionRecord]:
        """Make ABANDONED every RUNNING execution that `is_dead`, and release the claims of the dead.

        Returns:
            The executions it ended.
        """

        def end(tx: Transaction) -> list[ExecutionRecord]:
            leases.shorten_leases(tx)
            dead = [execution for execution in leases.running(tx) if leases.owner_is_dead(tx, execution, tx.now)]
            abandoned = [
                writes.move(tx, execution, "ABANDONED", error=f"abandoned: {execution.owner} died")
                for execution in dead
            ]
            leases.release_dead(tx)
            return abandoned

        return self._db.written("abandon", end)

    # -- cache

    @operation("writer")
    def claim(self, cache_key: str, *, owner: Owner | None = None, lease: float = 60.0) -> Claim | None:
        """Take the right to publish under a key; None while somebody alive holds it.

        A dead process of this host and boot loses it at once, one that cannot be seen at the end of its lease, and one
        that lives where it stays silent for half a lease more while this is asked again: the clock may have been set,
        or the machine asleep. What it was running becomes ABANDONED. At most one holder can publish; more than one may
        have run.

        Args:
            cache_key: The key.
            owner: Who takes it; this process unless given.
            lease: Seconds until others may take over; call `heartbeat` every third of it.
        """
        key, holder = rows.name_text(cache_key, "cache key"), owner or Owner.current()
        taken: list[Claim] = []  # what was acquired before the connection was lost, and may have been stored

        def take(tx: Transaction) -> Claim | None:
            if taken and leases.is_held(tx, taken[-1]):
                return taken[-1]
            claim = leases.acquire(tx, key, holder, lease, self._lease_watch)
            taken.extend([] if claim is None else [claim])
            return claim

        return self._db.written("claim", take, leases.asking(key), durable=False)

    @operation("writer")
    def heartbeat(self, claim: Claim) -> Claim:
        """Begin the lease anew.

        Raises:
            LeaseLost: Somebody else has the key by now.
        """
        return self._db.written("heartbeat", lambda tx: leases.extend(tx, claim), durable=False)

    @operation("writer")
    def release(self, claim: Claim) -> None:
        """Give the claim up; nothing happens if it is no longer ours.

        What its holder is still running under it becomes CANCELED: a start that was interrupted after its commit.
        """
        self._db.written("release", lambda tx: leases.release(tx, claim), durable=False)

    # -- artifacts

    @operation(asked=may_change_artifacts)
    def update_artifact(
        self,
        artifact: ArtifactRecord,
        *,
        state: ArtifactState | None = None,
        properties: Mapping[str, Any] | None = None,
        expected_version: int | None = None,
    ) -> ArtifactRecord:
        """Move an artifact to another state, merge properties into its own, or both.

        Raises:
            ConflictError: It is no longer at `expected_version`.
            StateError: It cannot go to that state.
        """

        def change(tx: Transaction) -> ArtifactRecord:
            writes.change_artifact(tx, artifact.id, state, properties, expected_version)
            if (properties or {}).get(PINNED):
                writes.spare_ancestors(tx, artifact.id)
            return writes.artifact(tx, artifact.id)

        return self._db.written("update artifact", change, needs=role_for_artifact(state, properties))

    @operation(asked=may_change_artifacts)
    def update_artifacts(
        self, artifacts: Iterable[ArtifactRecord], *, state: ArtifactState, properties: Mapping[str, Any]
    ) -> list[ArtifactRecord]:
        """Move many artifacts to a state in one transaction, and merge the same properties into those of each.

        Returns:
            Those that were moved: what has changed since it was read stays as it is.

        Raises:
            StateError: One cannot go to that state; nothing is changed.
        """
        artifacts = list(artifacts)

        def change(tx: Transaction) -> list[ArtifactRecord]:
            return writes.change_artifacts(tx, artifacts, state, properties)

        return self._db.written("update artifacts", change, needs=role_for_artifact(state, properties))
