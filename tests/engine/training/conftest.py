"""Trainings of equal networks on equal shapes: XLA compiles each program once a file."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from contextlib import nullcontext

import pytest


@pytest.fixture(autouse=True, scope="module")
def _programs_compiled_once() -> Iterator[None]:
    from drivetrain.engine.bundles.compile_cache import compiled_kept

    with compiled_kept() if importlib.util.find_spec("jax") else nullcontext():
        yield
