"""Payloads behind a URL, for tests: in memory and in a folder, what is staged, what is sent."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from drivetrain.metadata.payload_remote import RemotePayloads

fsspec = pytest.importorskip("fsspec")

WORKERS = Path(__file__).with_name("workers.py")
URI = "artifacts/Node/uid/out"


@pytest.fixture(autouse=True)
def emptied_memory() -> Iterator[None]:
    yield
    store = fsspec.filesystem("memory")
    store.store.clear()
    store.pseudo_dirs[:] = [""]


@pytest.fixture(params=["memory", "file"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return "memory://bucket/prefix" if request.param == "memory" else f"file://{tmp_path}/share"


@pytest.fixture
def payloads(url: str, tmp_path: Path) -> RemotePayloads:
    return RemotePayloads(tmp_path / "root", url)


def another(payloads: RemotePayloads, tmp_path: Path) -> RemotePayloads:
    """The same payloads as another machine sees them."""
    return RemotePayloads(tmp_path / "another", str(payloads.url))


def files(path: Path) -> dict[str, bytes]:
    return {file.relative_to(path).as_posix(): file.read_bytes() for file in path.rglob("*") if file.is_file()}


class Sends:
    """What is sent, by its name behind the URL; `fail` may raise before a file is, or after."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, payloads: RemotePayloads) -> None:
        self.names: list[str] = []
        self.before: Callable[[str], None] = lambda name: None
        self.after: Callable[[str], None] = lambda name: None
        real = type(payloads.objects).send

        def send(this: Any, path: Path, name: str, *rest: Any) -> None:
            self.before(name)
            self.names.append(name.removeprefix(f"{URI}/"))
            real(this, path, name, *rest)
            self.after(name)

        monkeypatch.setattr(type(payloads.objects), "send", send)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=600k", "tmpfs", str(disk)]
    if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("cannot mount a tmpfs here (needs root)")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)
