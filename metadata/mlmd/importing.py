"""From an MLMD file into a store: contexts, artifacts, executions and what links them; twice changes nothing."""
# ruff: noqa: S608 (only this room's own constants are put into SQL; every value is bound)

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ...progress import Progress, no_progress
from .. import rows, writes
from ..database import Transaction
from ..errors import StateError
from ..store import MetadataStore
from . import names
from .executions import keep_executions
from .file import MlmdFile
from .keeper import Keeper, short
from .values import Row

RUN: Final = "mlmd.pipeline_run"
"""The type of a run's context until somebody has said what ran in it: see `runs.adopt`."""


@dataclass(frozen=True)
class MlmdImport:
    """What came into the store.

    Attributes:
        source: The identity of that MLMD store, see `MlmdFile.key`.
        contexts: How many are new.
        artifacts: How many are new.
        executions: How many are new.
        events: How many are new.
        updated: Artifacts, executions and contexts that had changed since they were imported.
        passed_on: Outputs that an earlier execution had made: here an artifact has one maker, and what passes it on
            takes it.
        left_out: Rows that cannot be kept: they name what is not there, or an input of what had already given.
        runs: Ids of the contexts of runs that are new or have changed.
    """

    source: str
    contexts: int = 0
    artifacts: int = 0
    executions: int = 0
    events: int = 0
    updated: int = 0
    passed_on: int = 0
    left_out: int = 0
    runs: tuple[int, ...] = ()


def import_mlmd(store: MetadataStore, path: Path, progress: Progress = no_progress) -> MlmdImport:
    """Take what an MLMD SQLite file (schema 6 to 10) knows into a store, and what was added since the last time.

    Payloads stay where they are: an artifact becomes a REFERENCE (PENDING, DELETED and ABANDONED ones stay so), whose
    `mlmd` property holds its id, URI, type, name and properties there. Of contexts, pipelines and nodes are those of
    the same name here, others get the type `mlmd.<type>`. An execution that has not ended is ABANDONED until a later
    import finds its end. Times are kept.

    The file is read, never written to. The store is written page by page, so that pipelines at work need not wait; what
    was interrupted is finished by importing again.

    Args:
        store: Where to.
        path: The file.
        progress: Called after each page, with what of a kind has been taken in so far.

    Raises:
        InputError: There is no such file, or it is damaged, or holds no MLMD of a version that is read.
    """
    source = MlmdFile(path)
    try:
        keeper = Keeper(store._db, source)
        _keep_pages(keeper, progress)
        keep_executions(keeper, progress)
        _keep_links(keeper, progress)
        _keep_source(keeper)
        return MlmdImport(source.key, **keeper.counts, runs=tuple(run for run, asked in keeper.runs.items() if asked))
    finally:
        source.close()


def _keep_pages(keeper: Keeper, progress: Progress) -> None:
    """Store contexts and artifacts."""
    for kind, keep in (("Context", _keep_context), ("Artifact", _keep_artifact)):
        count = 0
        for page in keeper.source.pages(kind):  # type: ignore[arg-type]  # one of the two
            with keeper.db.write(durable=False) as tx:
                known = keeper.known(tx, kind.lower(), [row["id"] for row in page])
                for row in page:
                    keep(keeper, tx, row, known.get(keeper.uid(kind.lower(), row["id"])))
            count += len(page)
            progress(count, None, f"{kind.lower()}s")


def _keep_context(keeper: Keeper, tx: Transaction, row: Row, there: Row | None) -> None:
    kind = keeper.type(row, "context")
    ours = RUN if kind in names.RUNS else kind if kind in names.SHARED else f"mlmd.{kind}"
    type_ = keeper.type_id(tx, "context", ours)
    created, updated = keeper.times(row, "context")
    name = short(row["name"] or f"unnamed-{row['id']}")
    taken = tx.first("SELECT id FROM context WHERE type_id = :type AND name = :name", type=type_, name=name)
    if there is None and taken is not None and ours in names.SHARED:  # ours, or of another import
        keeper.shared[row["id"]] = taken["id"]
        return
    if there is None:
        number = tx.insert(
            "INSERT INTO context (uid, type_id, name, properties, created_at, updated_at) "
            "VALUES (:uid, :type, :name, :properties, :created, :updated) RETURNING id",
            uid=keeper.uid("context", row["id"]),
            type=type_,
            name=name if taken is None else f"{name[:230]}@{keeper.source.key}",
            properties=rows.as_json({"mlmd": keeper.origin(row)}),
            created=created,
            updated=updated,
        )
        keeper.count(contexts=1)
    else:
        number = there["id"]
        if there["updated_at"] != updated:
            keeper.update(tx, "context", number, {"mlmd": keeper.origin(row)}, updated)
    if ours in names.SHARED:
        keeper.shared[row["id"]] = number
    elif ours == RUN:
        waiting = "SELECT 1 FROM context WHERE id = :id AND type_id = :type"
        keeper.runs[number] = tx.first(waiting, id=number, type=type_) is not None


def _keep_artifact(keeper: Keeper, tx: Transaction, row: Row, there: Row | None) -> None:
    type_ = keeper.type(row, "artifact")
    kind = short(names.TYPES.get(type_, type_))
    called, state = names.artifact_state(keeper.number(row, "state", "artifact"))
    created, updated = keeper.times(row, "artifact")
    origin = {**keeper.origin(row), "state": called, "uri": row["uri"] or ""}
    known = {**row["custom_properties"], **row["properties"]}
    properties = {**names.properties(kind, known), "mlmd": origin}
    if there is None:
        tx.run(
            "INSERT INTO artifact (uid, type_id, uri, fingerprint, size, state, properties, created_at, updated_at) "
            "VALUES (:uid, :type, :uri, '', 0, :state, :properties, :created, :updated)",
            uid=keeper.uid("artifact", row["id"]),
            type=keeper.type_id(tx, "artifact", kind),
            uri=f"external/{keeper.source.key}/{row['id']}",
            state=state,
            properties=rows.as_json(properties),
            created=created,
            updated=updated,
        )
        keeper.count(artifacts=1)
    elif there["updated_at"] != updated:
        keeper.update(tx, "artifact", there["id"], properties, updated)
        tx.run("UPDATE artifact SET state = :state WHERE id = :id", id=there["id"], state=state)


def _keep_links(keeper: Keeper, progress: Progress) -> None:
    """Store what is in which context, and which context is below which."""
    with keeper.db.write(durable=False) as tx:
        for child, parent in keeper.source.parents():
            ids = keeper.contexts(tx, [child, parent])
            try:
                writes.link_parent(tx, writes.context(tx, ids[parent]), ids[child])
            except (KeyError, StateError):
                keeper.count(left_out=1)
    count = 0
    for table, member in (("Association", "execution"), ("Attribution", "artifact")):
        for page in keeper.source.links(table):  # type: ignore[arg-type]  # one of the two
            with keeper.db.write(durable=False) as tx:
                contexts = keeper.contexts(tx, [context for context, _ in page])
                members = keeper.resolved(tx, member, [member_id for _, member_id in page])
                pairs = [(contexts[c], members[m]) for c, m in page if c in contexts and m in members]
                keeper.count(left_out=len(page) - len(pairs))
                if member == "execution":
                    _note_runs(keeper, tx, pairs)
                tx.many(
                    f"INSERT INTO {table.lower()} (context_id, {member}_id) VALUES (:context, :member) "
                    "ON CONFLICT DO NOTHING",
                    [{"context": context, "member": member_id} for context, member_id in pairs],
                )
            count += len(page)
            progress(count, None, "links")


def _note_runs(keeper: Keeper, tx: Transaction, pairs: Iterable[tuple[int, int]]) -> None:
    """Note which runs get an execution that they did not have."""
    there = "SELECT 1 FROM association WHERE context_id = :run AND execution_id = :execution"
    for run, execution in pairs:
        if keeper.runs.get(run) is False and tx.first(there, run=run, execution=execution) is None:
            keeper.runs[run] = True


def _keep_source(keeper: Keeper) -> None:
    """Store where all this is from and which types it has: durably, and with it what came before."""
    source = keeper.source
    facts = {"path": str(source.path), "schema_version": source.version, "types": list(source.types.values())}
    with keeper.db.write() as tx:
        there = writes.context(tx, writes.insert_context(tx, "mlmd", source.key, facts))
        if there.properties != facts:
            writes.change_context(tx, there.id, facts, None)
