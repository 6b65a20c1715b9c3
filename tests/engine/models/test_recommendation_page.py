"""What docs/models.md shows of recommendation trains."""

from __future__ import annotations

import re
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from drivetrain.engine import FieldSpec, TrainingRun

pytestmark = [pytest.mark.slow, pytest.mark.engine]
PAGE = Path(__file__).parents[3] / "docs" / "models.md"


def test_what_the_section_shows_trains(tmp_path: Path, problem: ModuleType) -> None:
    section = PAGE.read_text("utf-8").partition("## Recommendation")[2].partition("\n## ")[0]
    names: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", section, re.DOTALL):
        exec(block, names)
    random = np.random.default_rng(0)
    columns: dict[str, Any] = {
        "user": random.integers(0, 20, 2048).astype(np.int32),
        "item": random.integers(0, 20, 2048).astype(np.int32),
        "age": random.normal(size=2048).astype(np.float32),
        "price": random.normal(size=2048).astype(np.float32),
    }
    columns["clicked"] = ((columns["user"] + columns["item"]) % 2 == 0).astype(np.float32)
    content = problem.write(tmp_path, {"train": pa.table(columns)})
    specs = {name: FieldSpec("int32", (), 20) for name in ("user", "item")}
    specs |= {name: FieldSpec("float32") for name in ("age", "price", "clicked")}
    run = TrainingRun(specs, content, epochs=8, batch_size=64, eval_split=None)
    trained = names["train"](run)
    assert trained.history[-1].loss < 0.9 * trained.history[0].loss
    several = names["train_over_devices"](run)
    assert several.history[-1].loss == pytest.approx(trained.history[-1].loss, abs=1e-3)
