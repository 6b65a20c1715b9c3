"""From an MLMD file into a store: contexts, artifacts, executions and what links them; twice changes nothing."""
# ruff: noqa: S608 (only this package's own constants are put into SQL; every value is bound)

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ...errors import InputError
from ...progress import Progress, no_progress
from .. import rows, writes
from ..database import Transaction
from ..errors import StateError
from ..store import MetadataStore
from . import names
from .executions import import_executions
from .file import MlmdFile
from .row_mapper import RowMapper, short
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
        mapper = RowMapper(store._db, source)
        _import_pages(mapper, progress)
        import_executions(mapper, progress)
        _import_links(mapper, progress)
        _note_source(mapper)
        return MlmdImport(source.key, **mapper.counts, runs=tuple(run for run, asked in mapper.runs.items() if asked))
    except (LookupError, TypeError, ValueError, AttributeError, OverflowError) as error:
        # SQLite takes any value in any column, and a table whose columns are not those that its schema has.
        raise InputError(
            f"{path} holds what ML Metadata does not write ({error})", fix="restore it from a backup"
        ) from error
    finally:
        source.close()


def _import_pages(mapper: RowMapper, progress: Progress) -> None:
    """Store contexts, then artifacts, a transaction for each page of the file's rows."""
    for kind, import_row in (("Context", _import_context), ("Artifact", _import_artifact)):
        count = 0
        for page in mapper.source.pages(kind):  # type: ignore[arg-type]  # one of the two
            with mapper.db.write("import-mlmd", durable=False) as tx:
                known = mapper.known(tx, kind.lower(), [row["id"] for row in page])
                for row in page:
                    import_row(mapper, tx, row, known.get(mapper.uid(kind.lower(), row["id"])))
            count += len(page)
            progress(count, None, f"{kind.lower()}s")


def _import_context(mapper: RowMapper, tx: Transaction, row: Row, there: Row | None) -> None:
    kind = mapper.type(row, "context")
    ours = RUN if kind in names.RUNS else kind if kind in names.SHARED else f"mlmd.{kind}"
    type_ = mapper.type_id(tx, "context", ours)
    created, updated = mapper.times(row, "context")
    name = short(row["name"] or f"unnamed-{row['id']}")
    taken = tx.first("SELECT id FROM context WHERE type_id = :type AND name = :name", type=type_, name=name)
    if there is None and taken is not None and ours in names.SHARED:  # ours, or of another import
        mapper.shared[row["id"]] = taken["id"]
        return
    if there is None:
        number = tx.insert(
            "INSERT INTO context (uid, type_id, name, properties, created_at, updated_at) "
            "VALUES (:uid, :type, :name, :properties, :created, :updated) RETURNING id",
            uid=mapper.uid("context", row["id"]),
            type=type_,
            name=name if taken is None else f"{name[:230]}@{mapper.source.key}",
            properties=rows.as_json({"mlmd": mapper.origin(row)}),
            created=created,
            updated=updated,
        )
        mapper.count(contexts=1)
    else:
        number = there["id"]
        if there["updated_at"] != updated:
            mapper.update(tx, "context", number, {"mlmd": mapper.origin(row)}, updated)
    if ours in names.SHARED:
        mapper.shared[row["id"]] = number
    elif ours == RUN:
        waiting = "SELECT 1 FROM context WHERE id = :id AND type_id = :type"
        mapper.runs[number] = tx.first(waiting, id=number, type=type_) is not None


def _import_artifact(mapper: RowMapper, tx: Transaction, row: Row, there: Row | None) -> None:
    type_ = mapper.type(row, "artifact")
    kind = short(names.TYPES.get(type_, type_))
    called, state = names.artifact_state(mapper.number(row, "state", "artifact"))
    created, updated = mapper.times(row, "artifact")
    origin = {**mapper.origin(row), "state": called, "uri": row["uri"] or ""}
    known = {**row["custom_properties"], **row["properties"]}
    properties = {**names.properties(kind, known), "mlmd": origin}
    if there is None:
        tx.run(
            "INSERT INTO artifact (uid, type_id, uri, fingerprint, size, state, properties, created_at, updated_at) "
            "VALUES (:uid, :type, :uri, '', 0, :state, :properties, :created, :updated)",
            uid=mapper.uid("artifact", row["id"]),
            type=mapper.type_id(tx, "artifact", kind),
            uri=f"external/{mapper.source.key}/{row['id']}",
            state=state,
            properties=rows.as_json(properties),
            created=created,
            updated=updated,
        )
        mapper.count(artifacts=1)
    elif there["updated_at"] != updated:
        mapper.update(tx, "artifact", there["id"], properties, updated)
        tx.run("UPDATE artifact SET state = :state WHERE id = :id", id=there["id"], state=state)


def _import_links(mapper: RowMapper, progress: Progress) -> None:
    """Store what is in which context, and which context is below which."""
    with mapper.db.write("import-mlmd", durable=False) as tx:
        for child, parent in mapper.source.parents():
            ids = mapper.contexts(tx, [child, parent])
            try:
                writes.link_parent(tx, writes.context(tx, ids[parent]), ids[child])
            except (KeyError, StateError):
                mapper.count(left_out=1)
    count = 0
    for table, member in (("Association", "execution"), ("Attribution", "artifact")):
        for page in mapper.source.links(table):  # type: ignore[arg-type]  # one of the two
            with mapper.db.write("import-mlmd", durable=False) as tx:
                contexts = mapper.contexts(tx, [context for context, _ in page])
                members = mapper.resolved(tx, member, [member_id for _, member_id in page])
                pairs = [(contexts[c], members[m]) for c, m in page if c in contexts and m in members]
                mapper.count(left_out=len(page) - len(pairs))
                if member == "execution":
                    _note_runs(mapper, tx, pairs)
                tx.many(
                    f"INSERT INTO {table.lower()} (context_id, {member}_id) VALUES (:context, :member) "
                    "ON CONFLICT DO NOTHING",
                    [{"context": context, "member": member_id} for context, member_id in pairs],
                )
            count += len(page)
            progress(count, None, "links")


def _note_runs(mapper: RowMapper, tx: Transaction, pairs: Iterable[tuple[int, int]]) -> None:
    """Note which runs get an execution that they did not have."""
    there = "SELECT 1 FROM association WHERE context_id = :run AND execution_id = :execution"
    for run, execution in pairs:
        if mapper.runs.get(run) is False and tx.first(there, run=run, execution=execution) is None:
            mapper.runs[run] = True


def _note_source(mapper: RowMapper) -> None:
    """Store where all this is from and which types it has: durably, and with it what came before."""
    source = mapper.source
    facts = {"path": str(source.path), "schema_version": source.version, "types": list(source.types.values())}
    with mapper.db.write("import-mlmd") as tx:
        there = writes.context(tx, writes.insert_context(tx, "mlmd", source.key, facts))
        if there.properties != facts:
            writes.change_context(tx, there.id, facts, None)
