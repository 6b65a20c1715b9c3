"""pyarrow without pandas, until somebody imports that."""

from __future__ import annotations

import subprocess
import sys

CODE = """
import sys

import pyarrow as pa
from drivetrain.data.arrays import spare_pandas

spare_pandas()
spare_pandas()
array = pa.array([1.5, None, float("nan")])
assert array.null_count == 1
array.to_numpy(zero_copy_only=False)
assert pa.table({"a": ["x"]}).to_pylist() == [{"a": "x"}]
assert "pandas" not in sys.modules

import pandas as pd

assert pa.array(pd.Series([1.5, None, float("nan")])).null_count == 2, "pyarrow takes it for a plain sequence"
assert pa.array(pd.Categorical(["x", "y"])).dictionary.to_pylist() == ["x", "y"]
pd.testing.assert_frame_equal(pa.table({"a": [1, 2]}).to_pandas(), pd.DataFrame({"a": [1, 2]}))
"""


def test_pyarrow_asks_for_pandas_once_somebody_has_imported_it() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
