"""Functions as graphs: tracing by signature, Python control flow on tensors, gradients."""

from .autograph import convert, do_not_convert
from .concrete import ConcreteFunction
from .derivatives import custom_gradient, hessian, hvp, jacobian, value_and_gradient
from .function import Function, RetraceWarning, eager, function
from .gradients import Tape
from .options import LoopOptions, loop_options, set_max_steps
from .state import stateful
from .symbolic import TensorSpec

__all__ = [
    "ConcreteFunction", "Function", "LoopOptions", "RetraceWarning", "Tape", "TensorSpec",
    "convert", "custom_gradient", "do_not_convert", "eager", "function", "hessian",
    "hvp", "jacobian", "loop_options", "set_max_steps", "stateful", "value_and_gradient",
]  # fmt: skip
