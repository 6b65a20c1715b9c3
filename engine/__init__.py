"""The engine: graphs of host and device stages, training, and the bundles that carry both into serving.

Names load on first use: a cached run and the building of a pipeline touch neither JAX nor Arrow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..lazy import lazy_names

if TYPE_CHECKING:
    from . import custom_ops as custom_ops
    from . import hub as hub
    from . import models as models
    from . import ops as ops
    from . import ragged as ragged
    from .analyzers.cache import AnalyzerCache as AnalyzerCache
    from .analyzers.spans import Span as Span
    from .bundles.batch_fn import BundleFn as BundleFn
    from .bundles.bundle import Bundle as Bundle
    from .bundles.child import Limits as Limits
    from .bundles.compile_cache import keep_compiled as keep_compiled
    from .bundles.inverse import inverse as inverse
    from .bundles.isolation import IsolatedBundle as IsolatedBundle
    from .bundles.manifest import Signature as Signature
    from .bundles.refreshing import RefreshedBundle as RefreshedBundle
    from .bundles.refreshing import refresh_bundle as refresh_bundle
    from .bundles.signing import sign_bundle as sign_bundle
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
    from .tracing.device_hints import on as on
    from .training import input as input  # noqa: A004  # it is `engine.input`
    from .training import metrics as metrics
    from .training.adapters import equinox_model as equinox_model
    from .training.adapters import haiku_model as haiku_model
    from .training.adapters import keras_model as keras_model
    from .training.callbacks import Callback as Callback
    from .training.callbacks import EarlyStopping as EarlyStopping
    from .training.callbacks import TrainingProgress as TrainingProgress
    from .training.checkpoint import CheckpointPolicy as CheckpointPolicy
    from .training.checkpoint import read_checkpoint as read_checkpoint
    from .training.loader import Batch as Batch
    from .training.loader import Loader as Loader
    from .training.model import Model as Model
    from .training.model import nnx_model as nnx_model
    from .training.profiling import Profile as Profile
    from .training.rollback import Rollback as Rollback
    from .training.rollback import RollbackRecord as RollbackRecord
    from .training.strategy import STRATEGIES as STRATEGIES
    from .training.strategy import Strategy as Strategy
    from .training.tables import SparseTables as SparseTables
    from .training.tables import rowwise_adagrad as rowwise_adagrad
    from .training.tables import rowwise_adam as rowwise_adam
    from .training.tensorboard import TensorBoard as TensorBoard
    from .training.training import EpochRecord as EpochRecord
    from .training.training import Trained as Trained
    from .training.training import TrainingRun as TrainingRun
    from .training.warm_start import checkpoint_variables as checkpoint_variables
    from .transform.transform import analyze as analyze
    from .transform.transform import apply as apply

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "analyzers.cache": "AnalyzerCache",
        "analyzers.spans": "Span",
        "bundles.batch_fn": "BundleFn",
        "bundles.bundle": "Bundle",
        "bundles.child": "Limits",
        "bundles.compile_cache": "keep_compiled",
        "bundles.inverse": "inverse",
        "bundles.isolation": "IsolatedBundle",
        "bundles.manifest": "Signature",
        "bundles.refreshing": "RefreshedBundle refresh_bundle",
        "bundles.signing": "sign_bundle",
        "bundles.stateful": "export_stateful initial_state step",
        "bundles.verifying": "BundleCheck verify_bundle",
        "export": "export_model",
        "functions.autograph": "do_not_convert",
        "functions.concrete": "ConcreteFunction",
        "functions.derivatives": "custom_gradient hessian hvp jacobian value_and_gradient",
        "functions.function": "Function RetraceWarning eager function",
        "functions.gradients": "Tape",
        "functions.options": "loop_options set_max_steps",
        "functions.state": "stateful",
        "functions.symbolic": "TensorSpec",
        "graphs.graph": "FieldSpec Graph",
        "lowering.programs": "BundleError",
        "ragged.ragged": "Ragged",
        "tracing.columns": "Column",
        "tracing.device_hints": "on",
        "training.adapters": "equinox_model haiku_model keras_model",
        "training.callbacks": "Callback EarlyStopping TrainingProgress",
        "training.checkpoint": "CheckpointPolicy read_checkpoint",
        "training.loader": "Batch Loader",
        "training.model": "Model nnx_model",
        "training.profiling": "Profile",
        "training.rollback": "Rollback RollbackRecord",
        "training.strategy": "STRATEGIES Strategy",
        "training.tables": "SparseTables rowwise_adagrad rowwise_adam",
        "training.tensorboard": "TensorBoard",
        "training.training": "EpochRecord Trained TrainingRun",
        "training.warm_start": "checkpoint_variables",
        "transform.transform": "analyze apply",
    },
    submodules=("custom_ops", "hub", "models", "ops", "ragged", "training.input", "training.metrics"),
)
