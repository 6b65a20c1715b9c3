"""Where a store lies: every test that asks for `store_address` runs on SQLite, on PostgreSQL, and through a server.

Those that ask for `database_address` look into the database itself, or set its clock: they run without the server.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from drivetrain.metadata.remote.client import KEY
from drivetrain.tests.data.postgres import Server
from drivetrain.tests.metadata.remote.server import MetadataServerProcess

StoreAddress = Callable[[str], str | Path]
WrittenOnce = Callable[[str | Path, Callable[[str | Path], None]], None]


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


@pytest.fixture(scope="session")
def shared_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MetadataServerProcess]:
    """A metadata server, one for all tests of a process; each has namespaces of its own."""
    server = MetadataServerProcess(tmp_path_factory.mktemp("metadata-server"))
    server.start()
    yield server
    server.end()


_DATABASES = ["sqlite", pytest.param("postgres", marks=(pytest.mark.postgres, pytest.mark.slow))]


@pytest.fixture(params=[*_DATABASES, pytest.param("server", marks=pytest.mark.slow)])
def store_address(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StoreAddress:
    """Gives where the store of a name lies."""
    if request.param != "server":
        return _database_address(request, tmp_path)
    server: MetadataServerProcess = request.getfixturevalue("shared_server")
    monkeypatch.setenv(KEY, server.secret("tests"))
    prefix = f"n{uuid.uuid4().hex}"
    return lambda name: server.namespace(f"{prefix}.{name}", tmp_path / f"{name}.db")


@pytest.fixture(params=_DATABASES)
def database_address(request: pytest.FixtureRequest, tmp_path: Path) -> StoreAddress:
    """Gives where the store of a name lies, in a database that this process may use."""
    return _database_address(request, tmp_path)


@pytest.fixture(scope="module")
def written_once(tmp_path_factory: pytest.TempPathFactory) -> WrittenOnce:
    """Writes a store that all tests of a file begin with: where it is a file, each after the first gets a copy."""
    first = tmp_path_factory.mktemp("written-once") / "metadata.db"

    def write_at(address: str | Path, write: Callable[[str | Path], None]) -> None:
        if not isinstance(address, Path):
            write(address)
            return
        if not first.exists():
            write(first)
        shutil.copyfile(first, address)

    return write_at


def _database_address(request: pytest.FixtureRequest, tmp_path: Path) -> StoreAddress:
    if request.param == "sqlite":
        return lambda name: tmp_path / f"{name}.db"
    fresh: Callable[[str], str] = request.getfixturevalue("schema")
    return fresh
