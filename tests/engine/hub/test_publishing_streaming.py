"""Publishing a folder and fetching a version: a block of a weight file is in memory at a time, however large it is."""

import threading
import tracemalloc
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from drivetrain import hub
from drivetrain.engine import Bundle
from drivetrain.engine.hub.fetching import local_bundle
from drivetrain.engine.hub.publishing import chosen
from drivetrain.versions import versions_at

pytestmark = [pytest.mark.engine, pytest.mark.slow]

SIZE = 200 << 20  # bytes of weights
MOST = 40 << 20  # bytes of memory: a few blocks


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle's folder with that many bytes of weights, nearly all of them zero."""
    weights = np.zeros(SIZE // 4, np.float32)
    weights[[0, -1]] = 1, 2
    path = tmp_path_factory.mktemp("large") / "bundle"
    module = hub.module(lambda params, x: x * params["w"][-1], {"w": weights}, np.zeros((2, 3), np.float32))
    module.bundle.save(path)
    return path


@pytest.fixture
def peak() -> Iterator[Callable[[], int]]:
    """The most bytes that Python and NumPy held at once since the test began."""
    tracemalloc.start()
    yield lambda: tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()


def test_a_folder_is_published_and_checked_by_blocks(folder: Path, tmp_path: Path, peak: Callable[[], int]) -> None:
    published = hub.save(folder, tmp_path / "hub")
    assert published.size > SIZE
    there = versions_at(tmp_path / "hub")
    assert local_bundle(there, chosen(there, 1)) == tmp_path / "hub" / "1"
    assert hub.save(folder, tmp_path / "hub") == published
    assert peak() < MOST


def test_a_version_is_fetched_and_checked_again_by_blocks(
    folder: Path, tmp_path: Path, peak: Callable[[], int]
) -> None:
    hub.save(folder, tmp_path / "hub")
    handler: Any = partial(SimpleHTTPRequestHandler, directory=str(tmp_path))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        there = versions_at(f"http://127.0.0.1:{server.server_port}/hub")
        for _ in range(2):  # fetched, then found in the cache
            kept = local_bundle(there, chosen(there, 1))
        server.shutdown()
    assert (kept / "weights" / "params.safetensors").stat().st_size > SIZE
    assert peak() < MOST


def test_a_module_in_memory_is_published_and_loaded_without_a_copy(
    folder: Path, tmp_path: Path, peak: Callable[[], int]
) -> None:
    module = hub.HubModule(Bundle.load(folder), "call")
    published = hub.save(module, tmp_path / "hub")
    assert published.size > SIZE
    loaded = hub.load(tmp_path / "hub", digest=published.digest)
    assert peak() < MOST
    assert [array.nbytes for array in loaded.bundle.payload.weights.values()] == [SIZE]
