"""Arrays that are equal to the last bit where a processor computed both."""

from __future__ import annotations

import os
from typing import Any, Final

import numpy as np

STAGES_ON_GPU: Final = os.environ.get("DRIVETRAIN_STAGES") == "gpu"
"""Whether every stage runs on the GPU (see conftest.py)."""


def assert_same(actual: Any, expected: Any) -> None:
    """Equal; on a GPU within 1e-5: its kernels, and so the order of their sums, depend on the size of a batch."""
    if STAGES_ON_GPU:
        np.testing.assert_allclose(actual, expected, rtol=1e-5)
    else:
        np.testing.assert_array_equal(actual, expected)
