"""The snippets of docs/analyzers.md run, and say what is so."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from drivetrain.engine import Bundle, ops

pytestmark = pytest.mark.engine

PAGE = (Path(__file__).parents[3] / "docs" / "analyzers.md").read_text("utf-8")


def test_the_page_runs(learn: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, back, own = re.findall(r"```python\n(.*?)```", PAGE, re.S)
    rng = np.random.default_rng(0)
    rows = 30
    columns = {
        "fare": pa.array(rng.lognormal(2, 1, rows), mask=rng.random(rows) < 0.2),
        "company": rng.choice(["x", "y", "z"], rows), "trips": rng.integers(1, 9, rows),
        "lat": rng.normal(size=rows), "lon": rng.normal(size=rows), "tipped": rng.integers(0, 2, rows),
        "pickup": rng.choice(["a", "b"], rows), "dropoff": rng.choice(["b", "c"], rows),
    }  # fmt: skip
    space: dict[str, Any] = {}
    exec(first, space)
    bundle, out = learn(space["preprocess"], **columns)
    bundle.save(tmp_path / "graph")
    assert Bundle.load(tmp_path / "graph").payload.assets["areas"].num_rows == 3
    monkeypatch.chdir(tmp_path)
    space["predictions"] = out["fare_z"]
    exec(back, space)
    fare = columns["fare"].to_numpy(zero_copy_only=False)
    np.testing.assert_allclose(space["fares"], np.where(np.isnan(fare), np.nanmedian(fare), fare), rtol=1e-5)
    exec(own, space)
    _, out = learn(space["preprocess"], **columns)
    np.testing.assert_allclose(out["share"], fare / (np.nanmax(fare) - np.nanmin(fare)), rtol=1e-5)


def test_every_op_it_names_exists() -> None:
    table = PAGE.partition("| idea | ops |")[2].partition("\n\n")[0]
    named = [name for name in re.findall(r"`([a-z_]+)`", table) if not name.endswith("_") and name != "preprocess"]
    assert len(named) > 30
    assert [name for name in named if not hasattr(ops, name)] == []
