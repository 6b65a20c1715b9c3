"""JAX gets LAPACK without `scipy.linalg`, which may be imported afterwards like any package."""

from __future__ import annotations

import subprocess
import sys

CODE = """
import sys

import jax
import numpy as np
from drivetrain.engine.lowering.lapack import load_lapack

load_lapack()
assert "scipy.linalg" not in sys.modules
matrix = np.random.default_rng(0).normal(size=(4, 4)).astype(np.float32)
exported = jax.export.export(jax.jit(jax.numpy.linalg.eigvalsh))(matrix)
written = bytes(exported.serialize())
values = jax.jit(jax.export.deserialize(bytearray(written)).call)(matrix + matrix.T)
assert "scipy.linalg" not in sys.modules, "JAX imports it in another way"
np.testing.assert_allclose(values, np.linalg.eigvalsh(matrix + matrix.T), rtol=1e-4)

import scipy.linalg.cython_blas
from scipy import linalg

assert scipy.linalg.cython_blas.__pyx_capi__ and scipy.linalg.cython_lapack.__pyx_capi__
np.testing.assert_allclose(linalg.inv(matrix), np.linalg.inv(matrix), rtol=1e-3)
"""


def test_lapack_comes_alone_and_scipy_is_whole_afterwards() -> None:
    # A process of its own: in this one somebody has imported scipy.linalg.
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
