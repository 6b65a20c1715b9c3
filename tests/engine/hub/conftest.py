"""A small encoder, its params and rows: what the hub's tests publish."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="session")
def encoder() -> tuple[Any, Any, Any]:
    """The function, its params, and rows for it."""
    import jax.numpy as jnp
    import numpy as np

    rng = np.random.default_rng(0)

    def encode(params: Any, x: Any) -> Any:
        hidden = jnp.tanh(x @ params["dense"]["kernel"] + params["dense"]["bias"])
        return hidden @ params["blocks"][0] + params["blocks"][1]

    params = {
        "dense": {"kernel": rng.normal(size=(5, 4)).astype(np.float32), "bias": rng.normal(size=4).astype(np.float32)},
        "blocks": [rng.normal(size=(4, 3)).astype(np.float32), rng.normal(size=3).astype(np.float32)],
    }
    return encode, params, rng.normal(size=(7, 5)).astype(np.float32)


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
