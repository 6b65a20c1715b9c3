"""The hub: programs published with a version and a card, reused as layers and columns; weights that others published.

Names load on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...lazy import lazy_names

if TYPE_CHECKING:
    from .card import ModelCard as ModelCard
    from .loading import load as load
    from .loading import verify as verify
    from .modules import HubModule as HubModule
    from .modules import module as module
    from .onnx_file import OnnxModel as OnnxModel
    from .onnx_file import from_onnx as from_onnx
    from .publishing import Version as Version
    from .publishing import clean as clean
    from .publishing import save as save
    from .publishing import versions as versions
    from .weight_files import weights as weights

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "card": "ModelCard",
        "loading": "load verify",
        "modules": "HubModule module",
        "onnx_file": "OnnxModel from_onnx",
        "publishing": "Version clean save versions",
        "weight_files": "weights",
    },
)
