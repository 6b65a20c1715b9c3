"""Where a store lies: every test that asks for `store_address` runs on SQLite and on PostgreSQL."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from drivetrain.tests.data.postgres import Server

StoreAddress = Callable[[str], str | Path]


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    """A PostgreSQL server, one for all tests of a process."""
    server = Server()
    server.start()
    yield server
    server.close()


@pytest.fixture
def schema(postgres: Server) -> Callable[[str], str]:
    """Gives the URL of a fresh schema; the same for the same name."""
    import psycopg

    urls: dict[str, str] = {}

    def fresh(name: str = "metadata") -> str:
        if name not in urls:
            schema = f"s{uuid.uuid4().hex}"
            with psycopg.connect(postgres.url, autocommit=True) as connection:
                connection.execute(f"CREATE SCHEMA {schema}".encode())
            urls[name] = f"{postgres.url}?options=-csearch_path%3D{schema}"
        return urls[name]

    return fresh


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=(pytest.mark.postgres, pytest.mark.slow))])
def store_address(request: pytest.FixtureRequest, tmp_path: Path) -> StoreAddress:
    """Gives where the store of a name lies."""
    if request.param == "sqlite":
        return lambda name: tmp_path / f"{name}.db"
    fresh: Callable[[str], str] = request.getfixturevalue("schema")
    return fresh
