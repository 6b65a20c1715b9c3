"""Runs whose store is behind a metadata server: every verb works as on a database that the process may use itself."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from drivetrain.console.cli import cli
from drivetrain.metadata import MetadataStore
from drivetrain.metadata.audit import verify
from drivetrain.metadata.namespaces import create_namespace
from drivetrain.serving.access import digest_of
from drivetrain.serving.metadata_access import read_access
from drivetrain.tests.data.postgres import Server
from drivetrain.tests.metadata.remote.server import MetadataServerProcess

NO_DATABASES = """
import sqlite3
def connect(*arguments, **options):
    raise RuntimeError("this process may use no database")
sqlite3.connect = sqlite3.dbapi2.connect = connect
"""


@pytest.fixture
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MetadataServerProcess]:
    server = MetadataServerProcess(tmp_path_factory.mktemp("server"))
    server.start()
    yield server
    server.end()


class Shell:
    """A shell without access to any database, in the folder of a project."""

    def __init__(self, folder: Path, server: MetadataServerProcess, url: str) -> None:
        self.folder = folder
        self.url = url
        site = server.folder / "site"
        site.mkdir()
        (site / "sitecustomize.py").write_text(NO_DATABASES)
        server.add_key("ada", ["writer", "approver", "gc"], namespaces=["shop"])
        self.environment = {**server.environment("ada"), "PYTHONPATH": str(site), "DRIVETRAIN_STORE": url}
        self.environment["DRIVETRAIN_ROOT"] = str(folder / "shop" / ".drivetrain")

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "drivetrain", *arguments],
            cwd=self.folder, env=self.environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    def run(self, *arguments: str, code: int = 0, says: bool = False) -> str:
        """What a command prints, or says beside (`says`)."""
        process = self.start(*arguments)
        output, errors = process.communicate(timeout=240)
        assert process.returncode == code, (arguments, output, errors)
        return errors if says else output


@pytest.fixture
def shell(shop: Path, server: MetadataServerProcess) -> Shell:
    return Shell(shop.parent, server, server.namespace("shop", server.folder / "shop.db"))


@pytest.mark.slow
@pytest.mark.parametrize("runner", ["inline", "process"])
def test_a_pipeline_runs_where_no_database_can_be_used(
    shell: Shell, server: MetadataServerProcess, runner: str
) -> None:
    first = json.loads(shell.run("run", "shop", "--runner", runner, "--json").splitlines()[-1])
    second = json.loads(shell.run("run", "shop", "--runner", runner, "--json").splitlines()[-1])
    assert first["state"] == second["state"] == "COMPLETE"
    shown = json.loads(shell.run("show", "--json"))
    assert {each["state"] for each in shown["nodes"].values()} <= {"CACHED", "SKIPPED"}
    assert "Train" in shell.run("why", "Train")
    model = next(
        name for name in shell.run("find", "artifacts", "type = 'Model'", "--json").split('"') if "/Train/" in name
    )
    assert "Make" in shell.run("lineage", model)
    assert json.loads(shell.run("find", "runs", "state = 'COMPLETE'", "--json"))
    assert shell.run("audit", "verify")
    shell.run("registry", "register", "shop", model, "--by", "the queen")
    shell.run("registry", "alias", "shop", "champion", "1", "--by", "the queen")
    assert "ada" in shell.run("registry", "show", "shop")
    assert shell.run("fsck")
    with MetadataStore.open(server.folder / "shop.db", readonly=True) as store:
        assert {each.properties.get("by") for each in store.contexts("run")} == {"ada"}
        actors = {row["actor"].partition(",")[0] for row in store._db.all("SELECT actor FROM journal WHERE number > 3")}
    assert actors == {"ada"}
    assert server.secret("ada") not in server.log
    logs = [path for path in (shell.folder / "shop" / ".drivetrain").rglob("*") if path.is_file()]
    assert logs
    assert not [path for path in logs if server.secret("ada").encode() in path.read_bytes()]


def until_trains(shell: Shell, store: MetadataStore, parameter: str) -> subprocess.Popen[str]:
    """A run whose node Train is at work."""
    process = shell.start("run", "shop", "--runner", "process", "-p", parameter, "--json")
    deadline = time.monotonic() + 120
    while not [each for each in store.executions(state="RUNNING") if each.component.endswith("Train")]:
        assert time.monotonic() < deadline
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    return process


@pytest.mark.slow
@pytest.mark.postgres
def test_a_run_is_stopped_resumed_and_collected_over_tls_before_postgresql(
    shop: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The whole way: a client without a password, TLS, a server that is admin of a namespace, PostgreSQL."""
    from drivetrain.tests.serving.test_tls import write_certificate

    folder = tmp_path_factory.mktemp("server")
    certificate, key, _ = write_certificate(folder, "server")
    database, server = Server(), MetadataServerProcess(folder, (certificate, key))
    database.start()
    try:
        create_namespace(database.url, "shop")
        url = server.namespace("shop", f"{database.url}?namespace=shop")
        server.start()
        shell = Shell(shop.parent, server, url)
        assert "cannot be trusted" in shell.run("runs", code=2, says=True)
        shell.environment["SSL_CERT_FILE"] = str(certificate)
        with MetadataStore.open(f"{database.url}?namespace=shop") as store:
            process = until_trains(shell, store, "seconds=10")
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=120)
            assert {each.state for each in store.executions()} == {"COMPLETE", "CANCELED"}
            assert store.claims() == []
            assert json.loads(shell.run("runs", "--json").splitlines()[-1])["runs"][0]["state"] == "CANCELED"
            assert json.loads(shell.run("resume", "--json").splitlines()[-1])["state"] == "COMPLETE"
            process = until_trains(shell, store, "seconds=600")
            process.kill()  # and what the dead held is free
            process.communicate()
            models = store.artifacts(type="Model")
            shell.run("pin", models[0].uri, "--reason", "for the audit")
            shell.run("run", "shop", "-p", "rows=4", "--json")
            dry = json.loads(shell.run("gc", "--keep-last", "1", "--json").splitlines()[-1])
            assert dry["mark"]["count"] > 0
            shell.run("gc", "--keep-last", "1", "--grace", "0", "--apply")
            states = {each.uri: each.state for each in store.artifacts(state=None)}
            assert states[models[0].uri] == "LIVE"
            assert {states[uri] for uri in dry["mark"]["uris"]} == {"DELETED"}
            root = shop / ".drivetrain"
            assert all((root / uri).is_dir() == (state == "LIVE") for uri, state in states.items())
            assert verify(store).findings == []
        assert shell.run("fsck")
        assert database.url not in server.log
    finally:
        server.end()
        database.close()


@pytest.mark.slow
@pytest.mark.parametrize("runner", ["inline", "process"])
def test_a_run_goes_on_though_its_server_is_killed_and_comes_back(
    shell: Shell, server: MetadataServerProcess, runner: str
) -> None:
    process = shell.start("run", "shop", "--runner", runner, "-p", "seconds=4", "--json")
    with MetadataStore.open(server.folder / "shop.db") as store:
        deadline = time.monotonic() + 120
        while not [each for each in store.executions(state="RUNNING") if each.component.endswith("Train")]:
            assert time.monotonic() < deadline, process.poll()
            time.sleep(0.05)
        server.kill()
        time.sleep(4)  # longer than the node works: its end waits for the server
        assert process.poll() is None
        server.start()
        output, errors = process.communicate(timeout=240)
        assert process.returncode == 0, errors
        assert json.loads(output.splitlines()[-1])["state"] == "COMPLETE"
        assert len([each for each in store.executions() if each.component.endswith("Train")]) == 1
        assert not store.executions(state="RUNNING")


def test_a_new_key_is_shown_once_and_kept_as_its_digest(tmp_path: Path) -> None:
    arguments = ["metadata-server", "--new-key", "ann", "--role", "writer", "--namespace", "flights"]
    key: Any = json.loads(CliRunner().invoke(cli, [*arguments, "--expires", "2999-01-01", "--json"]).output)
    assert key["sha256"] == digest_of(key["secret"])
    text = CliRunner().invoke(cli, [*arguments, "--expires", "2999-01-01"]).output
    secret, line = text.splitlines()[0], text.splitlines()[-1]
    access = read_access(f"namespaces: {{flights: f.db}}\nkeys:\n{line}\n", tmp_path / "access.yaml")
    grant = access.keys[digest_of(secret)]
    assert grant.person.name == "ann"
    assert (set(grant.person.roles), set(grant.namespaces or ())) == ({"writer"}, {"flights"})
    assert secret not in line
    assert secret != key["secret"]


def test_what_is_missing_is_said(tmp_path: Path) -> None:
    for arguments, says in (
        ([], "needs a file of namespaces and keys"),
        (["--role", "reader", str(tmp_path / "a.yaml")], "are for --new-key"),
        ([str(tmp_path / "a.yaml"), "--tls-cert", "x.pem"], "TLS needs a certificate and its key"),
        ([str(tmp_path / "a.yaml"), "--host", "0.0.0.0"], "by plain HTTP"),
    ):
        (tmp_path / "a.yaml").write_text("namespaces: {}\n")
        result = CliRunner().invoke(cli, ["metadata-server", *arguments])
        assert result.exit_code != 0
        assert says in result.output + str(result.exception)
