"""`namespace`: made, listed, given and taken from the shell, on a live PostgreSQL; what `doctor` says of that store."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from drivetrain.console import doctor
from drivetrain.metadata import MetadataStore
from drivetrain.tests.data.postgres import server

__all__ = ["server"]
Command = Callable[..., Result]
Read = Callable[[Result], dict[str, Any]]


@pytest.mark.postgres
@pytest.mark.slow
def test_a_namespace_is_made_and_its_roles_are_given(
    shop: Path, drivetrain: Command, last_json: Read, server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import psycopg

    def namespace(*arguments: str) -> Result:
        return drivetrain("namespace", *arguments, "--store", server)

    def store(user: str) -> list[str]:
        return ["--store", server.replace("//me:secret@", f"//{user}@") + "?namespace=team_a"]

    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute("CREATE ROLE ada LOGIN; CREATE ROLE bob LOGIN; CREATE SCHEMA plain")
    MetadataStore.open(f"{server}?options=-csearch_path%3Dplain").close()
    assert "fix: choose another name; or make it the namespace" in namespace("create", "plain").stderr
    assert last_json(namespace("create", "plain", "--adopt", "--json")) == {"name": "plain", "new": True}
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute("DROP SCHEMA plain CASCADE")
    assert "there are no namespaces" in namespace("list").stdout
    assert last_json(namespace("create", "team_a", "--json")) == {"name": "team_a", "new": True}
    assert "was there, and its rights are in order" in namespace("create", "team_a").stdout
    assert namespace("grant", "team_a", "ada", "writer").stdout == "ada is writer in team_a\n"
    namespace("grant", "team_a", "bob", "reader")
    (listed,) = last_json(namespace("list", "--json"))["namespaces"]
    members = {"reader": ["bob"], "writer": ["ada"], "approver": [], "gc": [], "admin": []}
    assert listed == {"name": "team_a", "members": members}
    assert namespace("list").stdout == "team_a\n  reader    bob\n  writer    ada\n"
    assert last_json(drivetrain("run", "shop", "--json", *store("ada")))["state"] == "COMPLETE"
    assert len(last_json(drivetrain("runs", "--json", *store("bob")))["runs"]) == 1
    denied = drivetrain("tag", "nightly", *store("bob"))
    assert denied.exit_code == 2
    assert "bob may not do this in postgresql://bob@" in denied.stderr
    assert "fix: ask an admin of it for `drivetrain namespace grant team_a bob writer`" in denied.stderr
    assert "Traceback" not in denied.stderr
    assert namespace("revoke", "team_a", "bob", "reader").stdout == "bob is no longer reader in team_a\n"
    assert "needs the role reader" in drivetrain("runs", *store("bob")).stderr

    monkeypatch.setattr(doctor, "_devices", lambda: iter(()))
    answer = last_json(drivetrain("doctor", "--json", *store("ada")))
    facts = {finding["text"]: finding["state"] for finding in answer["findings"] if finding["what"] == "store"}
    assert facts == {
        "fsync off: a power loss of the server may damage the store; set on": "warning",  # as tests start it
        "commits wait for this server's disk; no standby is connected": "ok",
    }
    assert answer["fit"] is True


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("create", "team_a"), "no store is named"),
        (("create", "team_a", "--store", "metadata.db"), "is a file, and its permissions"),
        (("create", "Team-A", "--store", "postgresql://me@127.0.0.1:1/db"), "cannot be the name of a namespace"),
        (("create", "pg_a", "--store", "postgresql://me@127.0.0.1:1/db"), "cannot be the name of a namespace"),
        (("list", "--store", "postgresql://me@127.0.0.1:1/db?namespace=a&namespace=b"), "several namespaces"),
        (("list", "--store", "postgresql://me@127.0.0.1:1/db?namespace=a%22b"), "cannot be the name of a namespace"),
    ],
)
def test_what_cannot_be_a_namespace_is_one_error(
    shop: Path, drivetrain: Command, arguments: tuple[str, ...], says: str
) -> None:
    pytest.importorskip("psycopg")
    result = drivetrain("namespace", *arguments)
    assert result.exit_code == 2
    assert says in result.stderr
