"""The engine: graphs of host and device stages, training, and the bundles that carry both into serving.

Names load on first use: a cached run and the building of a pipeline touch neither JAX nor Arrow.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from . import ops as ops
    from ._caller import raised_at as raised_at
    from .bundle import Bundle as Bundle
    from .bundle import BundleFn as BundleFn
    from .bundle import Signature as Signature
    from .bundle import reseal as reseal
    from .columns import Column as Column
    from .export import export_model as export_model
    from .graph import FieldSpec as FieldSpec
    from .graph import Graph as Graph
    from .loader import Batch as Batch
    from .loader import Loader as Loader
    from .model import Model as Model
    from .model import nnx_model as nnx_model
    from .strategy import STRATEGIES as STRATEGIES
    from .strategy import Strategy as Strategy
    from .training import EpochRecord as EpochRecord
    from .training import Trained as Trained
    from .training import TrainingRun as TrainingRun
    from .transform import analyze as analyze
    from .transform import apply as apply

_HOMES = {
    "Batch": "loader",
    "Bundle": "bundle",
    "BundleFn": "bundle",
    "Column": "columns",
    "EpochRecord": "training",
    "FieldSpec": "graph",
    "Graph": "graph",
    "Loader": "loader",
    "Model": "model",
    "STRATEGIES": "strategy",
    "Signature": "bundle",
    "Strategy": "strategy",
    "Trained": "training",
    "TrainingRun": "training",
    "analyze": "transform",
    "apply": "transform",
    "export_model": "export",
    "nnx_model": "model",
    "raised_at": "_caller",
    "reseal": "bundle",
}


def __getattr__(name: str) -> object:
    if name == "ops":
        return import_module(f"{__name__}.ops")
    if name in _HOMES:
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES, "ops"])
