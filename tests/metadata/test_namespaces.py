"""Namespaces on a live server: what each role may do, by plain SQL and by our own calls, and what it may not."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from drivetrain.errors import InputError
from drivetrain.metadata import AccessDenied, MetadataStore, Model, SchemaMismatch, StagedArtifact, StoreUnavailable
from drivetrain.metadata import database as metadata_database
from drivetrain.metadata.approvals import ApprovalRule
from drivetrain.metadata.audit import verify
from drivetrain.metadata.database import _MIGRATIONS
from drivetrain.metadata.finding import RecordQuery
from drivetrain.metadata.namespaces import create_namespace, grant_role, list_namespaces, revoke_role
from drivetrain.metadata.registry import Registry
from drivetrain.metadata.retention import COLLECTION, RetentionPolicy, RetentionRule, collect, pin, plan, unpin
from drivetrain.metadata.roles import ROLES, Role
from drivetrain.pipelines.launcher.verdicts import overrule
from drivetrain.tests.data.postgres import Server

pytestmark = [pytest.mark.postgres, pytest.mark.slow]


@pytest.fixture(scope="module")
def database(postgres: Server) -> Server:
    """A server with the namespaces team_a and team_b, and in each a user for each role: a_reader, b_writer, …"""
    import psycopg

    with psycopg.connect(postgres.url, autocommit=True) as connection:
        for team in "ab":
            create_namespace(postgres.url, f"team_{team}")
            for role in ROLES:
                connection.execute(f"CREATE ROLE {team}_{role} LOGIN".encode())
                grant_role(postgres.url, f"team_{team}", f"{team}_{role}", role)
    return postgres


def url_of(server: Server, user: str, namespace: str = "team_a") -> str:
    return server.url.replace("//me:secret@", f"//{user}@") + f"?namespace={namespace}"


@contextmanager
def store_of(server: Server, user: str, namespace: str = "team_a", **options: Any) -> Iterator[MetadataStore]:
    with MetadataStore.open(url_of(server, user, namespace), **options) as store:
        yield store


def publish(store: MetadataStore, name: str, kind: str = "Thing", *inputs: Any, **properties: Any) -> Any:
    run = store.context("run", f"run of {name}", {"state": "RUNNING"})
    claim = store.claim(f"key of {name}")
    execution = store.start(
        "Make", contexts=[run], inputs={"in": inputs}, cache_key=f"key of {name}", preimage={"name": name}
    )
    staged = StagedArtifact(kind, f"artifacts/Make/{name}/out", "f" * 64, 1, properties)
    return store.publish(execution, {"out": [staged]}, claim=claim)["out"][0]


ALLOWED = """
CREATE FUNCTION pg_temp.allowed(statements TEXT[]) RETURNS TEXT[] LANGUAGE plpgsql AS $$
DECLARE
    done TEXT[] := '{}';
    statement TEXT;
BEGIN
    FOREACH statement IN ARRAY statements LOOP
        BEGIN
            EXECUTE statement;
            RAISE EXCEPTION USING ERRCODE = 'UNDO0';
        EXCEPTION WHEN insufficient_privilege THEN
            NULL;
        WHEN SQLSTATE 'UNDO0' THEN
            done := done || statement;
        END;
    END LOOP;
    RETURN done;
END $$
"""


def allowed(server: Server, user: str, *statements: str) -> list[str]:
    """Those of some statements of SQL that the server lets a user do; each is undone."""
    import psycopg

    with psycopg.connect(server.url.replace("//me:secret@", f"//{user}@")) as connection:
        connection.execute(ALLOWED)
        row = connection.execute("SELECT pg_temp.allowed(%s)", (list(statements),)).fetchone()
        connection.rollback()
    assert row is not None
    return list(row[0])


@pytest.fixture(scope="module")
def filled(database: Server) -> Server:
    """The server, with a run, a registered model, an evaluation and a claim in team_a."""
    with store_of(database, "a_admin") as store:
        publish(store, "filled", Model.__name__)
        store.claim("held")
        store.start("Train")  # and goes on
        Registry(store).register("flights", store.artifacts(type="Model")[0], by="ada")
        store.context("decision", "first", {"approved": True})
        store.context(COLLECTION, "first", {"finished": True})
    return database


TABLES = (
    "schema_version", "type", "artifact", "execution", "context", "context_parent", "event", "association",
    "attribution", "claim", "cache_preimage", "journal", "answered",
)  # fmt: skip
CHANGES = [
    *(f"DELETE FROM team_a.{table}" for table in TABLES),
    *(f"TRUNCATE team_a.{table} CASCADE" for table in TABLES),
    "DROP SCHEMA team_a CASCADE", "DROP TABLE team_a.claim", "ALTER TABLE team_a.journal DISABLE TRIGGER ALL",
    "ALTER TABLE team_a.context DISABLE ROW LEVEL SECURITY", "DROP POLICY changing ON team_a.context",
    "CREATE TABLE team_a.mine (id INT)", "CREATE INDEX ON team_a.artifact (size)",
    "CREATE OR REPLACE FUNCTION team_a.journal_law() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'",
    "UPDATE team_a.journal SET actor = 'nobody'", "UPDATE team_a.type SET name = 'other'",
    "UPDATE team_a.artifact SET uri = 'elsewhere'", "UPDATE team_a.artifact SET fingerprint = 'f'",
    "UPDATE team_a.execution SET uid = 'x'", "UPDATE team_a.event SET key = 'x'",
    "UPDATE team_a.context SET name = 'x'", "UPDATE team_a.schema_version SET version = 1",
    "INSERT INTO team_a.schema_version VALUES (99, 0)", "INSERT INTO team_a.answered VALUES ('s', 1, 'a', 0, 'x')",
    "INSERT INTO team_a.type (id, kind, name) VALUES (99, 'context', 'x')",
    'GRANT "postgres.team_a.admin" TO b_reader', 'SET ROLE "postgres.team_a.admin"',
]  # fmt: skip
"""What only an admin may do, or the database lets nobody do that is none."""


def context_of(kind: str, properties: str = "{}") -> str:
    return (
        "INSERT INTO team_a.context (uid, type_id, name, properties, created_at, updated_at) "
        f"SELECT 'new', id, 'new', '{properties}', 0, 0 FROM team_a.type WHERE name = '{kind}'"
    )


def properties_of(name: str) -> str:
    return f"""UPDATE team_a.artifact SET properties = '{{"{name}": true}}'"""


START = (
    "INSERT INTO team_a.execution (uid, type_id, state, properties, created_at, updated_at) "
    "SELECT 'new', id, 'RUNNING', '{}', 0, 0 FROM team_a.type WHERE name = 'Make'"
)
CLAIM = "UPDATE team_a.claim SET state = 'RELEASED'"
APPEND = (
    "INSERT INTO team_a.journal SELECT max(number) + 1, 0, 'me', 'publish', '[]', repeat('0', 64) FROM team_a.journal"
)
RECORD, DECIDE, MODEL = context_of("run"), context_of("decision"), context_of("registered_model")
MOVE, VERSION = (context_of("registry of flights", f'{{"kind": "{kind}"}}') for kind in ("alias", "version"))
COLLECT, MARK = context_of(COLLECTION), "UPDATE team_a.artifact SET state = 'MARKED_FOR_DELETION'"
BLESS, PIN, REWRITE = map(properties_of, ("blessed", "pinned", "accuracy"))
RIGHTS: dict[Role, set[str]] = {
    "reader": set(),
    "writer": {START, CLAIM, APPEND, RECORD, MODEL, VERSION},
    "approver": {APPEND, DECIDE, MODEL, MOVE, VERSION, BLESS},
    "gc": {CLAIM, APPEND, COLLECT, MARK, PIN},
}
READS = [f"SELECT * FROM team_a.{table}" for table in TABLES]
EVERY = (START, CLAIM, APPEND, RECORD, MODEL, VERSION, DECIDE, MOVE, COLLECT, MARK, BLESS, PIN, REWRITE)


@pytest.mark.parametrize("role", RIGHTS)
def test_a_role_may_do_by_sql_what_it_needs_and_no_more(filled: Server, role: Role) -> None:
    assert set(allowed(filled, f"a_{role}", *EVERY)) == RIGHTS[role]
    assert allowed(filled, f"a_{role}", *CHANGES) == []
    assert allowed(filled, f"a_{role}", *READS) == READS
    assert allowed(filled, f"b_{role}", *EVERY, *CHANGES, *READS) == []


def test_an_admin_may_do_all_of_it(filled: Server) -> None:
    assert set(allowed(filled, "a_admin", *EVERY)) == set(EVERY)
    assert allowed(filled, "a_admin", *EVERY[:1], "CREATE INDEX ON team_a.artifact (size)", "DROP TABLE team_a.claim")


def test_a_table_that_is_made_later_is_not_forgotten(filled: Server) -> None:
    """Each table there is stands above, and so in what is tried: a new one needs its rights, and to be tried."""
    with store_of(filled, "a_reader", readonly=True) as store:
        tables = store._db.all("SELECT tablename AS name FROM pg_tables WHERE schemaname = 'team_a'")
        assert {row["name"] for row in tables} == set(TABLES)


def test_what_ended_is_not_changed_and_the_dead_are_ended(filled: Server) -> None:
    import psycopg

    def changed(user: str, state: str, where: str) -> int:
        with psycopg.connect(filled.url.replace("//me:secret@", f"//{user}@")) as connection:
            sql = f"UPDATE team_a.execution SET state = '{state}' WHERE {where}"
            count = connection.execute(sql.encode()).rowcount
            connection.rollback()
            return count

    assert changed("a_writer", "FAILED", "state = 'COMPLETE'") == 0
    assert changed("a_writer", "FAILED", "state = 'RUNNING'") == 1
    assert changed("a_gc", "ABANDONED", "state = 'RUNNING'") == 1
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        changed("a_gc", "COMPLETE", "state = 'RUNNING'")


def test_a_table_of_the_same_name_does_not_deceive_the_journal(filled: Server) -> None:
    import psycopg

    with psycopg.connect(filled.url.replace("//me:secret@", "//a_writer@")) as connection:
        connection.execute("CREATE TEMP TABLE journal (number BIGINT)")
        connection.execute("INSERT INTO pg_temp.journal VALUES (998)")
        with pytest.raises(psycopg.errors.RaiseException, match="only added at its end"):
            connection.execute(f"INSERT INTO team_a.journal VALUES (999, 0, 'me', 'x', '[]', '{'0' * 64}')".encode())


def test_each_operation_works_with_the_role_it_needs(database: Server, tmp_path: Path) -> None:
    name = "operations"
    with store_of(database, "b_writer", "team_b") as store:
        data = publish(store, "data")
        model = publish(store, name, Model.__name__, data)
        publish(store, "evaluation", "Evaluation", blessed=False)
        claim = store.claim("work")
        assert claim is not None
        store.heartbeat(claim)
        failed = store.start("Train", cache_key="work", inputs={"model": [model]})
        store.finish(failed, "CANCELED", claim=claim)
        cached = store.executions(state="COMPLETE")[0]
        store.record("Make", "CACHED", cached_from=cached)
        run = store.find_context("run", f"run of {name}")
        assert run is not None
        store.update_context(run, {"tags": {"owner": "ada"}, "state": "COMPLETE"})
        store.abandon()
        version = Registry(store).register("flights", model, by="ada")
        with pytest.raises(AccessDenied, match="needs the role approver"):
            Registry(store).set_alias("flights", "champion", version.number, by="ada")
    with store_of(database, "b_gc", "team_b") as store:
        data = store.update_artifact(data, state="MARKED_FOR_DELETION")
    with store_of(database, "b_approver", "team_b") as store:
        Registry(store).require("flights", "champion", ApprovalRule(), by="kim")
        Registry(store).answer("flights", 1, approved=True, by="bob")
        Registry(store).set_alias("flights", "champion", 1, by="bob")
        assert store.artifact(data.id).version == data.version + 1  # a collection that was planned before leaves it
        store.context("decision", "run/Approval", {"approved": True, "by": "bob", "comment": ""})
        overrule(store, store.artifacts(type="Evaluation")[0], blessed=True, by="bob", reason="right")
        with pytest.raises(AccessDenied, match="needs the role gc"):
            pin(store, model, "bob", "mine")
    with store_of(database, "b_gc", "team_b") as store:
        unpin(store, pin(store, store.artifact(model.id), "eve", "the audit"))
        policy = RetentionPolicy((RetentionRule(keep_for=timedelta(0)),), grace=timedelta(0))
        claim = store.claim("a payload")
        assert claim is not None
        store.release(claim)
        store.abandon()
        for _ in range(2):  # marked, then removed
            collect(store, tmp_path, plan(store, tmp_path, policy), "eve")
        with pytest.raises(AccessDenied, match="needs the role approver"):
            overrule(store, store.artifacts(type="Evaluation")[0], blessed=False, by="eve", reason="wrong")
    with store_of(database, "b_reader", "team_b", readonly=True) as store:
        assert verify(store).findings == []
        assert store.find_executions(RecordQuery("state = 'CANCELED'")).records == [store.execution(failed.id)]
        assert store.lineage(model, "downstream").executions[failed.id].state == "CANCELED"
        assert store.integrity() == []
        assert Registry(store).resolve("flights@champion").number == 1
    with store_of(database, "b_admin", "team_b") as store:
        store.index_property("artifact", "property.span")
        assert verify(store).findings == []
    with store_of(database, "b_writer", "team_b") as store, pytest.raises(AccessDenied, match="needs the role admin"):
        store.index_property("artifact", "property.other")


def test_a_call_beyond_the_role_is_one_clear_error(filled: Server) -> None:
    with store_of(filled, "a_reader") as store:
        run = store.contexts("run")[0]
        artifact = store.artifacts()[0]
        for needs, call in (
            ("writer", lambda: store.context("run", "r")),
            ("writer", lambda: store.start("Make")),
            ("writer", lambda: store.claim("k")),
            ("writer", lambda: store.update_context(run, {"tags": {}})),
            ("approver", lambda: store.context("decision", "d")),
            ("approver", lambda: store.update_artifact(artifact, properties={"blessed": True})),
            ("gc", lambda: pin(store, artifact, "me", "")),
            ("gc", lambda: store.update_artifact(artifact, state="DELETED")),
            ("admin", lambda: store.index_property("artifact", "property.span")),
        ):
            with pytest.raises(AccessDenied) as raised:
                call()
            assert f"needs the role {needs}: " in raised.value.message
            assert raised.value.fix == (f"ask an admin of it for `drivetrain namespace grant team_a a_reader {needs}`")
    with pytest.raises(AccessDenied, match=r"b_reader may not .* needs the role reader: .*schema team_a"):
        MetadataStore.open(url_of(filled, "b_reader"))
    with pytest.raises(StoreUnavailable, match=r"no namespace team_x in .*\n.*namespace create team_x"):
        MetadataStore.open(url_of(filled, "me", "team_x"))


def test_a_role_is_given_and_taken(database: Server) -> None:
    import psycopg

    with psycopg.connect(database.url, autocommit=True) as connection:
        connection.execute("CREATE ROLE newcomer LOGIN")
        connection.execute("CREATE ROLE alone LOGIN NOINHERIT")
        connection.execute('CREATE ROLE "odd "" one; DROP" LOGIN')
    by_admin = url_of(database, "a_admin")
    grant_role(by_admin, "team_a", "newcomer", "reader")
    grant_role(by_admin, "team_a", 'odd " one; DROP', "gc")
    members = {each.name: each.members for each in list_namespaces(by_admin)}
    assert members["team_a"]["reader"] == ("a_reader", "newcomer")
    assert members["team_a"]["gc"] == ("a_gc", 'odd " one; DROP')
    with store_of(database, "newcomer") as store:
        assert store.contexts("nothing") == []
        revoke_role(by_admin, "team_a", "newcomer", "reader")
        with pytest.raises(StoreUnavailable, match=r"newcomer .*|does not exist"):
            store.contexts("nothing")
    for user, says in (("nobody", "has no user 'nobody'"), ("alone", "does not inherit")):
        with pytest.raises(InputError, match=says):
            grant_role(by_admin, "team_a", user, "reader")
    with pytest.raises(InputError, match="does not have the role writer"):
        revoke_role(by_admin, "team_a", "newcomer", "writer")
    with pytest.raises(InputError, match="has no namespace 'public'"):
        grant_role(by_admin, "public", "newcomer", "reader")
    for other in ("b_admin", "a_writer"):
        with pytest.raises(StoreUnavailable, match="may not be written"):
            grant_role(url_of(database, other), "team_a", "newcomer", "reader")
        with pytest.raises(StoreUnavailable, match="may not be written"):
            create_namespace(url_of(database, other), "team_c")


def test_who_may_make_roles_makes_a_namespace_and_an_admin_upgrades_it(
    database: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import psycopg

    with psycopg.connect(database.url, autocommit=True) as connection:
        connection.execute("CREATE ROLE founder LOGIN CREATEROLE")
        connection.execute("GRANT CREATE ON DATABASE postgres TO founder")
        connection.execute("CREATE ROLE second LOGIN; CREATE ROLE clerk LOGIN; CREATE ROLE guest LOGIN")
    url = url_of(database, "founder", "team_d")
    assert create_namespace(url, "team_d") is True
    assert create_namespace(url, "team_d") is False
    grant_role(url, "team_d", "second", "admin")
    grant_role(url_of(database, "second", "team_d"), "team_d", "clerk", "writer")
    grant_role(url_of(database, "second", "team_d"), "team_d", "guest", "reader")
    with store_of(database, "clerk", "team_d") as store:
        publish(store, "clerk")
        assert verify(store).findings == []
    shutil.copytree(_MIGRATIONS, tmp_path / "migrations")
    later = tmp_path / "migrations" / "postgres" / "0004_later.sql"
    later.write_text("CREATE TABLE later (id BIGINT GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY, text TEXT);")
    monkeypatch.setattr(metadata_database, "_MIGRATIONS", tmp_path / "migrations")
    with pytest.raises(SchemaMismatch, match="drivetrain upgrade"):
        MetadataStore.open(url_of(database, "clerk", "team_d"))
    with pytest.raises(AccessDenied, match="needs the role admin"):
        MetadataStore.open(url_of(database, "clerk", "team_d"), upgrade=True)
    MetadataStore.open(url_of(database, "second", "team_d"), upgrade=True).close()
    insert, read = "INSERT INTO team_d.later (text) VALUES ('x')", "SELECT * FROM team_d.later"
    assert allowed(database, "clerk", insert, read) == [insert, read]
    assert allowed(database, "guest", insert, read) == [read]
    with psycopg.connect(database.url) as connection:
        owners = connection.execute("SELECT DISTINCT tableowner FROM pg_tables WHERE schemaname = 'team_d'").fetchall()
        assert owners == [("postgres.team_d.admin",)]


def test_a_namespace_is_copied_and_put_back(database: Server, tmp_path: Path) -> None:
    import psycopg

    create_namespace(database.url, "team_f")
    with MetadataStore.open(url_of(database, "me", "team_f")) as store:
        kept = publish(store, "kept")
    with psycopg.connect(database.url, autocommit=True) as connection:
        connection.execute("CREATE ROLE keeper LOGIN; CREATE ROLE recorder LOGIN")
    grant_role(database.url, "team_f", "keeper", "reader")
    grant_role(database.url, "team_f", "recorder", "writer")
    copy, url = tmp_path / "copy.sql", database.url.replace("//me:secret@", "//keeper@")
    dump = ["pg_dump", "--schema=team_f", "--enable-row-security", f"--file={copy}", url]
    restore = ["psql", "--quiet", "--set=ON_ERROR_STOP=1", f"--file={copy}", database.url]
    subprocess.run([str(database.programs / dump[0]), *dump[1:]], check=True)
    with psycopg.connect(database.url, autocommit=True) as connection:
        connection.execute("DROP SCHEMA team_f CASCADE")
    subprocess.run([str(database.programs / restore[0]), *restore[1:]], check=True)
    assert create_namespace(database.url, "team_f") is False
    with store_of(database, "recorder", "team_f") as store:
        assert store.artifact(kept.id) == kept
        publish(store, "later")
        assert verify(store).findings == []
    assert allowed(database, "recorder", "DELETE FROM team_f.artifact", "UPDATE team_f.journal SET actor = 'x'") == []


@pytest.mark.parametrize("superuser", [True, False])
def test_a_store_without_roles_becomes_a_namespace(database: Server, superuser: bool) -> None:
    import psycopg

    name, owner = f"adopted_{superuser}".lower(), f"owner_{superuser}".lower()
    with psycopg.connect(database.url, autocommit=True) as connection:
        connection.execute(f"CREATE ROLE {owner} LOGIN CREATEROLE; CREATE ROLE {name} LOGIN".encode())
        connection.execute(f"GRANT CREATE ON DATABASE postgres TO {owner}".encode())
        connection.execute(f"CREATE SCHEMA {name} AUTHORIZATION {owner}".encode())
    plain = f"{url_of(database, owner).partition('?')[0]}?options=-csearch_path%3D{name}"
    with MetadataStore.open(plain) as store:
        kept = publish(store, "before")
        Registry(store).register("flights", publish(store, "model", Model.__name__), by="ada")
    with psycopg.connect(plain, autocommit=True) as connection:  # who had rights, to all, to a column, to give on
        for right in (
            f"USAGE ON SCHEMA {name} TO {name}", f"ALL ON ALL TABLES IN SCHEMA {name} TO {name} WITH GRANT OPTION",
            f"UPDATE (state) ON artifact TO {name}", "SELECT ON artifact TO PUBLIC",
            f"USAGE ON SCHEMA {name} TO PUBLIC",
        ):  # fmt: skip
            connection.execute(f"GRANT {right}".encode())
        connection.execute("CREATE VIEW mine AS SELECT * FROM artifact")
    url = database.url if superuser else url_of(database, owner)
    with pytest.raises(InputError, match=f"the schema {name} of postgres holds other things beside a store: mine"):
        create_namespace(url, name, adopt=True)
    with psycopg.connect(plain, autocommit=True) as connection:
        connection.execute("DROP VIEW mine")
    with pytest.raises(InputError, match=rf"is not a namespace\n.*namespace create {name} --adopt"):
        create_namespace(url, name)
    deletes = f"DELETE FROM {name}.cache_preimage"
    assert allowed(database, name, deletes, f"SELECT * FROM {name}.artifact")
    assert create_namespace(url, name, adopt=True) is True
    assert create_namespace(url, name, adopt=True) is False
    statements = [statement.replace("team_a", name) for statement in (*CHANGES[:-2], *EVERY, *READS)]
    assert allowed(database, name, *statements) == []
    for member in [name] if superuser else [name, owner]:  # who made it is an admin, unless a superuser
        grant_role(url, name, member, "writer")
    with MetadataStore.open(f"{url_of(database, name).partition('?')[0]}?namespace={name}") as store:
        assert store.artifacts()[-1] == kept
        publish(store, "after")
        assert verify(store).findings == []
        with pytest.raises(AccessDenied, match="needs the role approver"):
            Registry(store).set_alias("flights", "champion", 1, by="ada")
    assert deletes not in allowed(database, name, deletes)
    assert (deletes in allowed(database, owner, deletes)) is not superuser


def test_what_is_no_namespace_is_left_alone(database: Server) -> None:
    import psycopg

    with psycopg.connect(database.url, autocommit=True) as connection:
        connection.execute("CREATE SCHEMA plain")
        connection.execute('CREATE ROLE "postgres.team_e.reader" LOGIN')
    for adopt in (False, True):
        with pytest.raises(InputError, match="has a schema plain that is neither a namespace nor a store"):
            create_namespace(database.url, "plain", adopt=adopt)
    with pytest.raises(InputError, match=r"has a role postgres\.team_e\.reader"):
        create_namespace(database.url, "team_e")
    with MetadataStore.open(f"{database.url}?options=-csearch_path%3Dplain") as store:
        publish(store, "anything")
        assert store.update_artifact(store.artifacts()[0], properties={"accuracy": 1}).version == 2
        assert store._db.all("SELECT * FROM pg_policies WHERE schemaname = 'plain'") == []
    with pytest.raises(InputError, match="is a file, and its permissions"):
        create_namespace("metadata.db", "team_a")
