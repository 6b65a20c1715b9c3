"""The jobs of the examples compile their programs once in a session, not in each of a hundred runs of the same job."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True, scope="module")
def _compiled_once(programs_compiled_once: None) -> None:
    """All tests here."""
