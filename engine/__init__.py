"""The engine: graphs of host and device stages, training, and the bundles that carry both into serving.

Names load on first use: a cached run and the building of a pipeline touch neither JAX nor Arrow.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from ..errors import missing_module

if TYPE_CHECKING:
    from . import custom_ops as custom_ops
    from . import hub as hub
    from . import ops as ops
    from . import ragged as ragged
    from ._caller import raised_at as raised_at
    from .analyzers.spans import AnalyzerCache as AnalyzerCache
    from .analyzers.spans import Span as Span
    from .bundles.batch_fn import BundleFn as BundleFn
    from .bundles.bundle import Bundle as Bundle
    from .bundles.compiled import keep_compiled as keep_compiled
    from .bundles.inverse import inverse as inverse
    from .bundles.manifest import Signature as Signature
    from .bundles.manifest import reseal as reseal
    from .bundles.refreshing import Refreshed as Refreshed
    from .bundles.refreshing import refresh_bundle as refresh_bundle
    from .bundles.stateful import export_stateful as export_stateful
    from .bundles.stateful import initial_state as initial_state
    from .bundles.stateful import step as step
    from .bundles.verifying import BundleCheck as BundleCheck
    from .bundles.verifying import verify_bundle as verify_bundle
    from .export import export_model as export_model
    from .functions.autograph import do_not_convert as do_not_convert
    from .functions.concrete import ConcreteFunction as ConcreteFunction
    from .functions.derivatives import custom_gradient as custom_gradient
    from .functions.derivatives import hessian as hessian
    from .functions.derivatives import hvp as hvp
    from .functions.derivatives import jacobian as jacobian
    from .functions.derivatives import value_and_gradient as value_and_gradient
    from .functions.function import Function as Function
    from .functions.function import RetraceWarning as RetraceWarning
    from .functions.function import eager as eager
    from .functions.function import function as function
    from .functions.gradients import Tape as Tape
    from .functions.options import loop_options as loop_options
    from .functions.options import set_max_steps as set_max_steps
    from .functions.state import stateful as stateful
    from .functions.symbolic import TensorSpec as TensorSpec
    from .graphs.graph import FieldSpec as FieldSpec
    from .graphs.graph import Graph as Graph
    from .lowering.programs import BundleError as BundleError
    from .ragged.ragged import Ragged as Ragged
    from .tracing.columns import Column as Column
    from .tracing.placing import on as on
    from .training.loader import Batch as Batch
    from .training.loader import Loader as Loader
    from .training.model import Model as Model
    from .training.model import nnx_model as nnx_model
    from .training.strategy import STRATEGIES as STRATEGIES
    from .training.strategy import Strategy as Strategy
    from .training.training import EpochRecord as EpochRecord
    from .training.training import Trained as Trained
    from .training.training import TrainingRun as TrainingRun
    from .transform.transform import analyze as analyze
    from .transform.transform import apply as apply

_HOMES = {
    "AnalyzerCache": "analyzers.spans",
    "Batch": "training.loader",
    "Bundle": "bundles.bundle",
    "BundleCheck": "bundles.verifying",
    "BundleError": "lowering.programs",
    "BundleFn": "bundles.batch_fn",
    "Column": "tracing.columns",
    "ConcreteFunction": "functions.concrete",
    "EpochRecord": "training.training",
    "FieldSpec": "graphs.graph",
    "Function": "functions.function",
    "Graph": "graphs.graph",
    "Loader": "training.loader",
    "Model": "training.model",
    "Ragged": "ragged.ragged",
    "Refreshed": "bundles.refreshing",
    "RetraceWarning": "functions.function",
    "STRATEGIES": "training.strategy",
    "Signature": "bundles.manifest",
    "Span": "analyzers.spans",
    "Strategy": "training.strategy",
    "Tape": "functions.gradients",
    "TensorSpec": "functions.symbolic",
    "Trained": "training.training",
    "TrainingRun": "training.training",
    "analyze": "transform.transform",
    "apply": "transform.transform",
    "custom_gradient": "functions.derivatives",
    "do_not_convert": "functions.autograph",
    "eager": "functions.function",
    "export_model": "export",
    "export_stateful": "bundles.stateful",
    "function": "functions.function",
    "hessian": "functions.derivatives",
    "hvp": "functions.derivatives",
    "initial_state": "bundles.stateful",
    "inverse": "bundles.inverse",
    "jacobian": "functions.derivatives",
    "keep_compiled": "bundles.compiled",
    "loop_options": "functions.options",
    "nnx_model": "training.model",
    "on": "tracing.placing",
    "raised_at": "_caller",
    "refresh_bundle": "bundles.refreshing",
    "reseal": "bundles.manifest",
    "set_max_steps": "functions.options",
    "stateful": "functions.state",
    "step": "bundles.stateful",
    "value_and_gradient": "functions.derivatives",
    "verify_bundle": "bundles.verifying",
}


def __getattr__(name: str) -> object:
    try:
        if name in ("custom_ops", "hub", "ops", "ragged"):
            return import_module(f"{__name__}.{name}")
        if name in _HOMES:
            return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    except ModuleNotFoundError as error:
        if (missing := missing_module(error)) is not None:
            raise missing from error
        raise
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*_HOMES, "custom_ops", "hub", "ops", "ragged"])
