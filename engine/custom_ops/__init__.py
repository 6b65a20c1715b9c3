"""Ops of your own: JAX functions, Pallas kernels, C++ kernels and host ops in Python, known by name in one registry.

Names load on first use: a bundle without such ops touches neither JAX nor a compiler for this.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

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

_HOMES = {
    "Extension": "extensions",
    "GROUP": "extensions",
    "Native": "native",
    "Op": "registry",
    "Requirement": "extensions",
    "Returns": "host",
    "compile_cpp": "native",
    "ffi_op": "device",
    "find": "registry",
    "host_op": "host",
    "pallas_op": "device",
    "register_op": "device",
    "registered": "registry",
    "use": "extensions",
}


def __getattr__(name: str) -> object:
    if name in _HOMES:
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(_HOMES)
