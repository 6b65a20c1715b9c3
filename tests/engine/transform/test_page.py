"""docs/transform.md: its function runs, its table is whole, its pipeline builds."""

import datetime as dt
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from drivetrain.engine import ops
from drivetrain.pipelines import load_pipeline

pytestmark = pytest.mark.engine

PAGE = (Path(__file__).parents[3] / "docs" / "transform.md").read_text("utf-8")
FUNCTION, PIPELINE = re.findall(r"```python\n(.*?)```", PAGE, re.S)


def test_the_table_has_every_op() -> None:
    table = PAGE.partition("| idea | ops |")[2].partition("\n\n")[0]
    assert sorted(re.findall(r"`(\w+)`", table)) == sorted(set(ops.__all__) - {"Columns"})


def test_the_function_runs(learn: Any) -> None:
    space: dict[str, Any] = {}
    exec(FUNCTION, space)
    _, out = learn(
        space["preprocess"], dep_delay=[1.0, None, -3.0, 30.0], carrier=["AA", "UA", None, "AA"],
        time=pa.array([dt.datetime(2013, 1, 1, hour) for hour in (0, 6, 12, 18)], pa.timestamp("ms")),
        origin=["JFK", "JFK", "EWR", None], remark=["on time", "Late late", None, ""],
    )  # fmt: skip
    np.testing.assert_allclose(out["hour"], [[0, 1], [1, 0], [0, -1], [-1, 0]], atol=1e-6)
    np.testing.assert_allclose(out["late_start"], np.log1p([1, 1, 0, 30]), rtol=1e-6)
    assert out["carrier"].tolist() == [0, 1, 3, 0]


def test_the_pipeline_builds(project: Callable[..., Path]) -> None:
    imports = (
        "import drivetrain as dt\nfrom drivetrain.components import *\nfrom drivetrain.metadata import AnalyzerCache\n"
    )
    folder = project("daily", pipeline=imports + PIPELINE, features="def preprocess(columns): ...")
    assert [node.id for node in load_pipeline(folder).build().nodes][-1] == "Transform"
