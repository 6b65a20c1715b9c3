"""The graph engine: a preprocessing function and a model as one dataflow graph, traced, analysed, trained and saved.

Names load on first use: `import drivetrain.engine` imports neither JAX nor pyarrow.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import ops
    from .bundle import Bundle, BundleFn, FieldSpec, Signature, reseal
    from .columns import Column
    from .export import export_model
    from .graph import Graph
    from .loader import Batch as Batch
    from .loader import FeatureSpec as FeatureSpec
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
    "Bundle": "bundle",
    "BundleFn": "bundle",
    "Column": "columns",
    "FieldSpec": "bundle",
    "Graph": "graph",
    "Signature": "bundle",
    "analyze": "transform",
    "apply": "transform",
    "export_model": "export",
    "reseal": "bundle",
    "Batch": "loader",
    "Bundle": "bundle",
    "BundleFn": "bundle",
    "Column": "columns",
    "EpochRecord": "training",
    "FeatureSpec": "loader",
    "FieldSpec": "bundle",
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
    "reseal": "bundle",
}


def __getattr__(name: str) -> Any:  # Any: a class or function of a module below
    if name == "ops":
        return import_module(f"{__name__}.ops")
    if name in _HOMES:
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES, "ops"])
