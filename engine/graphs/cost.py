"""What a graph costs: floating-point operations and bytes moved, node by node, counted from shapes.

The counts are those of XLA's cost analysis where that is defined by the op alone: 2·m·n·k for a product of matrices,
one per element for elementwise ops, transcendental ones counted apart. Fusion, which XLA does later, saves bytes, not
operations.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from .graph import Graph
from .nodes import BATCH, DeviceOp, DeviceStage, GraphNode, Tensor

_TRANSCENDENTAL: Final = frozenset(
    {"exp", "exp2", "expm1", "log", "log1p", "sin", "cos", "tan", "tanh", "logistic", "rsqrt", "sqrt", "cbrt", "pow",
     "erf", "erfc", "erf_inv", "lgamma", "digamma", "atan2", "asin", "acos", "atan", "sinh", "cosh"}
)  # fmt: skip
_FREE: Final = frozenset(
    {"reshape", "broadcast_in_dim", "transpose", "squeeze", "expand_dims", "slice", "dynamic_slice", "concatenate",
     "stack", "pad", "gather", "rev", "iota", "copy", "convert_element_type", "bitcast_convert_type", "stop_gradient",
     "dynamic_update_slice", "random_wrap", "random_unwrap"}
)  # fmt: skip


@dataclass(frozen=True)
class Cost:
    """What something costs for some number of rows.

    Attributes:
        flops: Additions, multiplications, comparisons and the like.
        transcendentals: exp, log, tanh and their kin, one per element.
        bytes: Read and written, as if nothing were fused.
        exact: False where a loop's number of turns depends on the data: it is counted once.
    """

    flops: int = 0
    transcendentals: int = 0
    bytes: int = 0
    exact: bool = True

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            self.flops + other.flops,
            self.transcendentals + other.transcendentals,
            self.bytes + other.bytes,
            self.exact and other.exact,
        )

    def times(self, count: int) -> Cost:
        """The cost of doing it so often."""
        return Cost(self.flops * count, self.transcendentals * count, self.bytes * count, self.exact)


def costs(graph: Graph, rows: int = 512, sizes: Mapping[str, int] | None = None) -> list[tuple[GraphNode, Cost]]:
    """Each node with its cost; host nodes count the bytes of their arrays alone, stages what was counted before.

    Args:
        graph: As traced or lowered.
        rows: How many rows the batch dimension stands for.
        sizes: Of other symbolic dimensions; `rows` where not given.
    """
    dims = {BATCH: rows, **(sizes or {})}
    tensors = graph.tensors()
    node_costs: list[tuple[GraphNode, Cost]] = []
    for node in graph.nodes:
        moved = sum(_bytes(tensors[name], dims, rows) for name in node.inputs if name in tensors)  # not assets
        moved += sum(_bytes(tensor, dims, rows) for tensor in node.outputs)
        if isinstance(node, DeviceOp):
            work = _equation(node.equation, dims, rows)
            node_costs.append((node, Cost(work.flops, work.transcendentals, moved, work.exact)))
        else:
            flops = node.flops * rows if isinstance(node, DeviceStage) else 0
            node_costs.append((node, Cost(flops, bytes=moved, exact=False)))
    return node_costs


def cost(graph: Graph, rows: int = 512, sizes: Mapping[str, int] | None = None) -> Cost:
    """What the whole graph costs: the sum of `costs`, which takes the same arguments."""
    return sum((each for _, each in costs(graph, rows, sizes)), Cost())


def _equation(equation: Any, dims: Mapping[str, int], rows: int) -> Cost:  # a jax.extend.core.JaxprEqn
    from jax.extend.core import jaxprs_in_params  # late: whoever has equations has JAX

    name, params = equation.primitive.name, equation.params
    read = [_shape(var.aval, dims, rows) for var in equation.invars]
    results = [_shape(var.aval, dims, rows) for var in equation.outvars]
    size = sum(math.prod(shape) for shape in results)
    if name == "dot_general":
        (left, _), _ = params["dimension_numbers"]
        return Cost(2 * size * math.prod(read[0][axis] for axis in left))
    if name == "conv_general_dilated":
        return Cost(2 * _multiplications(params, read[0], read[1], results[0]))
    jaxprs: list[Any] = list(jaxprs_in_params(params))  # open or closed, whatever their type says
    inner = [body if hasattr(body, "eqns") else body.jaxpr for body in jaxprs]
    if inner:
        bodies = [sum((_equation(e, dims, rows) for e in body.eqns), Cost()) for body in inner]
        if name == "scan":
            return bodies[0].times(int(params["length"]))
        if name == "cond":
            return max(bodies, key=lambda body: body.flops)
        whole = sum(bodies, Cost())
        return Cost(whole.flops, whole.transcendentals, whole.bytes, whole.exact and name != "while")
    if name.startswith(("reduce_", "cum", "arg", "sort", "scatter")):
        return Cost(sum(math.prod(shape) for shape in read[:1]))
    if name in _FREE:
        return Cost()
    return Cost(transcendentals=size) if name in _TRANSCENDENTAL else Cost(size)


def _multiplications(
    params: Mapping[str, Any], image: tuple[int, ...], kernel: tuple[int, ...], result: tuple[int, ...]
) -> int:
    """Of a convolution, without those that padding and dilation make with zero, as XLA counts."""
    spec = params["dimension_numbers"]
    count: int = result[spec.out_spec[0]] * result[spec.out_spec[1]] * kernel[spec.rhs_spec[1]]
    windows = zip(
        params["window_strides"], params["padding"], params["lhs_dilation"], params["rhs_dilation"], strict=True
    )
    for axis, (stride, (low, _), spread, step) in enumerate(windows, start=2):
        out, size, taps = (
            shape[places[axis]]
            for shape, places in ((result, spec.out_spec), (image, spec.lhs_spec), (kernel, spec.rhs_spec))
        )
        at = np.arange(out)[:, None] * stride + np.arange(taps) * step - int(low)
        count *= int(np.sum((at >= 0) & (at <= (size - 1) * spread) & (at % spread == 0)))
    return count


def _shape(aval: Any, dims: Mapping[str, int], rows: int) -> tuple[int, ...]:  # a JAX abstract value
    return tuple(_dim(dim, dims, rows) for dim in getattr(aval, "shape", ()))


def _dim(dim: Any, dims: Mapping[str, int], rows: int) -> int:  # Any: an int, a name or a JAX symbolic dimension
    if isinstance(dim, int):
        return dim
    return dims.get(str(dim), rows)  # an expression such as 2*b counts as the rows


def _bytes(tensor: Tensor, dims: Mapping[str, int], rows: int) -> int:
    try:
        width = np.dtype(tensor.dtype).itemsize
    except TypeError:  # text, lists and keys: a pointer's worth
        width = 8
    return width * math.prod(_dim(dim, dims, rows) for dim in tensor.shape)
