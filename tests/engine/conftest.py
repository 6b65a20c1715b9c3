"""What the engine's tests share."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture(scope="session")
def problem() -> ModuleType:
    """The module training_problem.py beside this file; tests are no package that could import it."""
    path = Path(__file__).with_name("training_problem.py")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
