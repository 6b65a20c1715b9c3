"""The hub: programs published with a version and a card, reused as layers and columns; weights that others published.

Names load on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .card import ModelCard as ModelCard
    from .cleaning import clean as clean
    from .loading import load as load
    from .loading import verify as verify
    from .modules import HubModule as HubModule
    from .modules import module as module
    from .onnx_file import OnnxModel as OnnxModel
    from .onnx_file import from_onnx as from_onnx
    from .publishing import Version as Version
    from .publishing import save as save
    from .publishing import versions as versions
    from .weight_files import weights as weights

_HOMES = {
    "HubModule": "modules",
    "ModelCard": "card",
    "OnnxModel": "onnx_file",
    "Version": "publishing",
    "clean": "cleaning",
    "from_onnx": "onnx_file",
    "load": "loading",
    "module": "modules",
    "save": "publishing",
    "verify": "loading",
    "versions": "publishing",
    "weights": "weight_files",
}


def __getattr__(name: str) -> object:
    if name in _HOMES:
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(_HOMES)
