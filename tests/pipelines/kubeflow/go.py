"""Programs in Go that are peers in tests: built with the user's own cache, which a test session's would not outlive."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest


def build(folder: Path) -> Path:
    """The program of a module, built as `peer`."""
    cache = os.environ.get("GOCACHE") or str(Path("~/.cache/go-build").expanduser())
    made = subprocess.run(
        ["go", "build", "-o", "peer", "."],
        cwd=folder, capture_output=True, text=True, check=False, timeout=280, env={**os.environ, "GOCACHE": cache},
    )  # fmt: skip
    if "dial tcp" in made.stderr or "proxy" in made.stderr:
        pytest.skip(f"its modules cannot be had here: {made.stderr.strip()[-200:]}")
    assert made.returncode == 0, made.stderr[-2000:]
    return folder / "peer"
