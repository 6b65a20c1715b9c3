"""A damaged database is named as such by every verb, with the ways out; none ends in a traceback."""

from __future__ import annotations

import os
import re
import shutil
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from drivetrain.metadata import MetadataStore
from drivetrain.tests.console.damage import damage

Json = dict[str, Any]
Command = Callable[..., Result]
SEED = os.environ.get("DRIVETRAIN_DAMAGE_SEED", "1")


@cache
def machine(part: str) -> list[object]:
    """What `doctor` says of the packages or of the devices: no store changes it."""
    return [*getattr(import_module("drivetrain.console.doctor"), part)()]


@pytest.fixture(autouse=True)
def _machine_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    for part in ("_packages", "_devices"):
        monkeypatch.setattr(f"drivetrain.console.doctor.{part}", partial(machine, part))


def problem(verb: tuple[str, ...], result: Result) -> str | None:
    """What is wrong with how a verb ended on a damaged store; None where it went well, or named the damage."""
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        return repr(result.exception)
    if result.exit_code == 0 or (verb[0] in ("fsck", "doctor") and result.exit_code == 1):
        return None
    named = "damaged" in result.stderr and "drivetrain backup" in result.stderr and "--rebuild" in result.stderr
    return None if named and result.exit_code == 2 else f"{result.exit_code}: {result.stderr}"


def attack(root: Path, two_runs: tuple[Json, Json], drivetrain: Command, seeds: range) -> list[str]:
    """Damage copies of a root, run every verb that reads on each, and give what went wrong."""
    first, second = (run["run"] for run in two_runs)
    verbs: tuple[tuple[str, ...], ...] = (
        ("runs",), ("runs", "--sort", "-rows", "--json"), ("show",), ("show", first, "--json"),
        ("show", "--html", str(root.parent / "page.html")), ("diff", first, second), ("why", "Train"), ("logs",),
        ("logs", first, "Train"), ("lineage", "Push"), ("lineage", "Make", "--down", "--json"), ("tag",),
        ("tag", "x=y"), ("fsck",), ("doctor",),
    )  # fmt: skip
    problems = []
    with MetadataStore.open(root / "metadata.db") as store:
        store.context("note", "the log is not empty")
        sound = {path.name: path.read_bytes() for path in root.glob("metadata.db*")}
    copy = root.parent / "copy"
    for seed in seeds:
        shutil.rmtree(copy, ignore_errors=True)
        copy.mkdir()
        for folder in ("artifacts", "logs"):
            shutil.copytree(root / folder, copy / folder)
        for name in ("metadata.db", "metadata.db-wal"):
            (copy / name).write_bytes(sound[name])
        how = damage(copy, f"{SEED}-{seed}")
        damaged = {path.name: path.read_bytes() for path in copy.glob("metadata.db*")}
        for verb in verbs:
            for path in copy.glob("metadata.db*"):
                path.unlink()
            for name, data in damaged.items():
                (copy / name).write_bytes(data)
            if text := problem(verb, drivetrain(*verb, "--root", str(copy))):
                problems.append(f"{how}, seed {SEED}-{seed}, {' '.join(verb)}: {text}")
    return problems


def test_every_verb_names_damage(shop: Path, two_runs: tuple[Json, Json], drivetrain: Command) -> None:
    assert attack(shop.parent / ".drivetrain", two_runs, drivetrain, range(8)) == []


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_every_verb_names_damage_of_many_kinds(shop: Path, two_runs: tuple[Json, Json], drivetrain: Command) -> None:
    assert attack(shop.parent / ".drivetrain", two_runs, drivetrain, range(8, 200)) == []


@pytest.mark.slow
def test_every_lost_property_is_named(root: Path, two_runs: tuple[Json, Json], drivetrain: Command) -> None:
    verbs = (("show",), ("diff", *(run["run"] for run in two_runs)), ("why", "Train"), ("lineage", "Push"))
    connection = sqlite3.connect(root / "metadata.db")
    columns = {
        "artifact": "properties",
        "context": "properties",
        "execution": "properties",
        "cache_preimage": "preimage",
    }
    names = {
        (table, name)
        for table, column in columns.items()
        for (properties,) in connection.execute(f"SELECT {column} FROM {table}")
        for name in re.findall(r'"(\w+)":', properties)
    }
    connection.close()
    assert len(names) > 40
    statements = [
        f"UPDATE {table} SET {columns[table]} = replace({columns[table]}, '\"{name}\":', '\"{name}~\":')"
        for table, name in sorted(names)
    ]
    problems = [
        (verb, statement, text)
        for statement in each_alone(root, statements)
        for verb in verbs
        if (text := problem(verb, drivetrain(*verb)))
    ]
    assert problems == []


@pytest.fixture
def root(shop: Path, two_runs: tuple[Json, Json]) -> Path:
    return shop.parent / ".drivetrain"


def each_alone(root: Path, statements: Iterable[str]) -> Iterator[str]:
    """Change the database of a root by one statement after another, each time as it was before."""
    sound = {path: path.read_bytes() for path in root.glob("metadata.db*")}
    for statement in statements:
        for path in root.glob("metadata.db*"):
            path.unlink()
        for path, data in sound.items():
            path.write_bytes(data)
        change(root, statement)
        yield statement


def change(root: Path, *statements: str) -> None:
    connection = sqlite3.connect(root / "metadata.db")
    with connection:
        for statement in statements:
            connection.execute("PRAGMA ignore_check_constraints = ON")
            connection.execute(statement)
    connection.close()


def test_a_value_that_nobody_writes_is_damage(root: Path, drivetrain: Command) -> None:
    statements = (
        "UPDATE context SET properties = '{' || substr(properties, 3) WHERE properties LIKE '%started%'",
        "UPDATE context SET properties = replace(properties, '\"state\"', '\"stat\"')",
        "UPDATE context SET properties = replace(properties, '\"owner\"', '\"ownr\"')",
        "UPDATE context SET properties = replace(properties, 'COMPLETE', 'CONPLETE')",
        'UPDATE context SET properties = replace(properties, \'"started":"20\', \'"started":"x0\')',
        "UPDATE context SET properties = '[]' WHERE properties LIKE '%started%'",
        "UPDATE execution SET properties = replace(properties, '\"columns\"', '\"colunns\"')",
        "UPDATE execution SET properties = CAST(x'7B22C3227D' AS TEXT)",
        "UPDATE execution SET state = 'COMPLETF'",
        "UPDATE execution SET created_at = 9223372036854775807",
        "UPDATE artifact SET properties = 'nul'",
        "UPDATE artifact SET state = 'LIVF'",
        "DELETE FROM context WHERE type_id = (SELECT id FROM type WHERE name = 'ir')",
        "DROP TABLE event",
    )
    for statement in each_alone(root, statements):
        problems = [
            text
            for verb in (("runs",), ("show", "--json"), ("lineage", "Push"), ("fsck",))
            if (text := problem(verb, drivetrain(*verb)))
        ]
        assert problems == [], statement
        results = [drivetrain(*verb) for verb in (("show",), ("lineage", "Push"))]
        assert any("damaged" in result.stderr for result in results), statement


def test_a_damaged_database_is_not_repaired(root: Path, drivetrain: Command) -> None:
    payloads = set(root.glob("artifacts/*/*/*"))
    change(
        root,
        "PRAGMA writable_schema = ON",
        "DELETE FROM sqlite_master WHERE name = 'artifact_by_type'",
    )
    assert drivetrain("fsck").exit_code == 1
    result = drivetrain("fsck", "--repair")
    assert result.exit_code == 2
    assert "is damaged" in result.stderr
    assert "drivetrain backup" in result.stderr
    assert "--rebuild" in result.stderr
    assert set(root.glob("artifacts/*/*/*")) == payloads


def test_an_address_that_is_none_is_named_and_not_looked_for(root: Path, drivetrain: Command) -> None:
    uris = ("9" * 5000, "9" * 300, "../" * 9 + "etc", "")
    first = "(SELECT min(id) FROM artifact)"
    for statement in each_alone(root, (f"UPDATE artifact SET uri = '{uri}' WHERE id = {first}" for uri in uris)):
        result = drivetrain("fsck")
        assert problem(("fsck",), result) is None, statement
        assert result.exit_code == 1, statement
        assert "is not a payload URI" in result.stdout, statement


def test_a_store_that_lost_its_own_id_is_damaged(root: Path, drivetrain: Command) -> None:
    statements = (
        f"UPDATE context SET properties = replace(properties, '\"id\"', {lost}) WHERE properties LIKE '{{\"id\"%'"
        for lost in ("'\"di\"'", '\'"id":1,"was"\'')
    )
    for statement in each_alone(root, statements):
        for verb in (("fsck",), ("fsck", "--repair", "--dry-run")):
            result = drivetrain(*verb)
            assert problem(verb, result) is None, statement
            assert result.exit_code == 2, statement
            assert "is damaged: it has lost its own id" in result.stderr, statement
