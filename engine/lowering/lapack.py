"""LAPACK for JAX, without the rest of `scipy.linalg`.

Before JAX lowers an exported program for a processor it takes LAPACK's addresses from SciPy, whatever the program
calls, by importing `scipy.linalg.cython_blas` and `cython_lapack`. These need nothing of the package around them, which
takes longer than many a program: 0.16 s of processor time for 200 modules.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from pathlib import Path
from typing import Final

_PACKAGE: Final = "scipy.linalg"
_lock: Final = threading.Lock()
_was_asked = False


def load_lapack() -> None:
    """Have JAX know LAPACK; to be called before an exported program is. Where that fails, JAX does it in its way."""
    global _was_asked
    with _lock:
        if _was_asked:
            return
        _was_asked = True
        if _PACKAGE in sys.modules:  # it costs nothing more
            return
        names = [f"{_PACKAGE}.cython_blas", f"{_PACKAGE}.cython_lapack"]
        try:
            with contextlib.suppress(ImportError, AttributeError, OSError):  # of another build of SciPy's or jaxlib's
                for name in names:
                    _load(name)
                from jaxlib.cpu import _lapack

                _lapack.initialize()  # remembers the addresses
        finally:
            for name in names:  # who imports the package itself gets these as any others of it
                sys.modules.pop(name, None)


def _load(name: str) -> None:
    """Import a module without the package that it lies in."""
    import scipy

    spec = PathFinder.find_spec(name, [str(Path(folder) / "linalg") for folder in scipy.__path__])
    if spec is None or spec.loader is None:
        raise ImportError(name)
    module = module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
