"""Ops of your own: JAX functions, Pallas kernels, C++ kernels and host ops in Python, known by name in one registry.

Names load on first use: a bundle without such ops touches neither JAX nor a compiler for this.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...lazy import lazy_names

if TYPE_CHECKING:
    from .device import ffi_op as ffi_op
    from .device import pallas_op as pallas_op
    from .device import register_op as register_op
    from .extensions import GROUP as GROUP
    from .extensions import Extension as Extension
    from .extensions import Requirement as Requirement
    from .extensions import use as use
    from .host import Returns as Returns
    from .host import host_op as host_op
    from .native import Native as Native
    from .native import compile_cpp as compile_cpp
    from .registry import Op as Op
    from .registry import find as find
    from .registry import registered as registered

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "device": "ffi_op pallas_op register_op",
        "extensions": "Extension GROUP Requirement use",
        "host": "Returns host_op",
        "native": "Native compile_cpp",
        "registry": "Op find registered",
    },
)
