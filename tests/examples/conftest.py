"""The jobs of the examples compile their programs once in a session, not in each of a hundred runs of the same job."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(autouse=True, scope="module")
def _programs_compiled_once() -> Iterator[None]:
    """Has child processes keep what XLA made: the same program of the same machine. A damaged entry is made anew."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAX_COMPILATION_CACHE_DIR", str(Path(os.environ["XDG_CACHE_HOME"]) / "jax"))
        patch.setenv("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.2")
        yield
