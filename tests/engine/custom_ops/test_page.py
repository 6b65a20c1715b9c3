"""docs/custom-ops.md: its code runs as it stands, and each op is as short as it says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.engine, pytest.mark.slow]

PAGE = Path(__file__).parents[3] / "docs" / "custom-ops.md"

CHECK = """
import numpy as np, pyarrow as pa, pyarrow.parquet as pq
from drivetrain import data
from drivetrain.engine import Bundle, analyze

x = jnp.asarray([-2.5, 0.4, 1.6])
np.testing.assert_array_equal(rounded(x), np.round(x))
np.testing.assert_array_equal(jax.grad(lambda x: rounded(x).sum())(x), [1, 1, 1])
np.testing.assert_allclose(squared_relu(x), [0, 0.16, 2.56], rtol=1e-6)
np.testing.assert_allclose(soft_clip(x, limit=2.0), 2 * np.tanh(x / 2), rtol=1e-6)
np.testing.assert_allclose(jax.grad(lambda x: soft_clip(x, limit=2.0).sum())(x), 1 - np.tanh(x / 2) ** 2, rtol=1e-5)
rows = pa.table({"name": ["ann", None], "day": ["2026-11-21", None]})
pq.write_table(rows, "rows.parquet")
bundle = analyze(preprocess, data.open_parquet(["rows.parquet"]), data.LocalExecutor())
made = bundle.run("transform", rows.to_batches()[0])
assert made["initials"].tolist() == ["AN", None] and made["weekday"].tolist() == [5, 7]
assert initials(pa.array(["ann"])).to_pylist() == ["A"]
names = [op.name for op in custom_ops.registered()]
assert names == ["shop.initials", "shop.rounded", "shop.soft_clip", "shop.squared_relu", "shop.weekday"]
"""


def test_the_page_runs(tmp_path: Path) -> None:
    blocks = re.findall(r"```(python|cpp)\n(.*?)```", PAGE.read_text("utf-8"), re.S)
    assert [kind for kind, _ in blocks] == ["python", "python", "cpp", "python", "python"]
    assert all(code.count("\n") <= 20 for _, code in blocks)
    (kernel,) = (code for kind, code in blocks if kind == "cpp")
    (tmp_path / "soft_clip.cc").write_text(kernel)
    (tmp_path / "page.py").write_text("".join(code for kind, code in blocks if kind == "python") + CHECK)
    done = subprocess.run(
        [sys.executable, "page.py"], cwd=tmp_path, capture_output=True, text=True, timeout=240,
        env={**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
