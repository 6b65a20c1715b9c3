"""Batch normalisation with known statistics goes into the weights of the layer before it, to within 1e-6.

Every known weight is taken for frozen, so this is for graphs that will not be trained again. It pays where XLA does not
do it: a convolution of 512 small images is 2 to 12 % faster on a processor, and compiles 20 % faster.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from ..graphs.graph import Graph
from ..graphs.nodes import DeviceOp, GraphNode, Literal, Tensor
from ..tracing.equations import Builder, aval_of
from ..tracing.primitives import shaped
from .constants import folded_name
from .meaning import Operand, renamed, unused_prefix, with_meaning
from .structural import changing, prune

_LARGEST_OFFSET: Final = 16.0
"""Offsets beyond this, in units of the result, stay: (x + 1e6) − 1e6 has lost its digits, and x + 0 would not."""
_SCALES: Final = (1e-12, 1e12)
"""Scales beyond these stay: a product of weights would leave float32."""

_Numbers = NDArray[np.float64]
_AffineStep = Callable[[_Numbers, _Numbers], tuple[_Numbers, _Numbers]]  # scale and offset before → after


@dataclass(frozen=True)
class _Affine:
    """What is done to a layer's result: `result · scale + offset`, with a number, or one per channel.

    Attributes:
        output: The tensor that this gives.
        keeps_digits: Whether it can be done to the weights in float32 instead.
    """

    output: str
    scale: _Numbers
    offset: _Numbers
    keeps_digits: bool


@dataclass(frozen=True)
class _Layer:
    """A convolution or dense layer: its weights, their axis of output channels, and the result's."""

    weights: _Numbers
    weight_axis: int
    out_axis: int

    @property
    def channels(self) -> int:
        return int(self.weights.shape[self.weight_axis])


@dataclass(frozen=True)
class _FoldedLayer:
    """A layer's new weights, what is added to its result, and the tensor that the sum then is."""

    weights: _Numbers
    offset: _Numbers
    becomes: str


def fold_batch_norm(graph: Graph) -> Graph:
    """With the scale and offset per channel after a convolution or dense layer in its weights and one addition.

    That is what batch normalisation is once its statistics are known (Jacob et al., 2018, section 3.2).
    """
    surroundings = _Surroundings(graph)
    rewrites: dict[int, _FoldedLayer] = {}  # by the node's id()
    for node in graph.nodes:
        layer = surroundings.layer(node)
        if layer is None:
            continue
        affine = surroundings.after(node.outputs[0], layer.out_axis)
        if affine is None or not affine.keeps_digits or np.all(affine.scale == 1.0):
            continue
        scale = np.expand_dims(
            np.broadcast_to(affine.scale, layer.channels),
            tuple(axis for axis in range(layer.weights.ndim) if axis != layer.weight_axis),
        )
        shape = [1] * len(node.outputs[0].shape)
        shape[layer.out_axis] = layer.channels
        offset = np.broadcast_to(affine.offset, layer.channels).reshape(shape)
        rewrites[id(node)] = _FoldedLayer(layer.weights * scale, offset, affine.output)
    return _rewritten(graph, rewrites) if rewrites else graph


def _affine(output: str, steps: Sequence[_AffineStep]) -> _Affine:
    """Steps as one, the first of them first."""
    scale, offset = np.asarray(1.0), np.asarray(0.0)
    stages: list[tuple[_Numbers, _Numbers]] = []
    with np.errstate(all="ignore"):  # infinities and NaN keep no digits
        for step in steps:
            scale, offset = step(scale, offset)
            stages.append((scale, offset))
        least, most = _SCALES
        bounded = all(bool(np.all((abs(s) >= least) & (abs(s) <= most))) for s, _ in stages)
        # Each stage counts, in units of the last one: digits that are lost on the way do not come back.
        near = all(bool(np.all(abs(o * scale / s) <= _LARGEST_OFFSET)) for s, o in stages)
    return _Affine(output, scale, offset, bounded and near)


class _Surroundings:
    """What a graph says around a layer: who makes a tensor, who reads it, what is known of it."""

    def __init__(self, graph: Graph) -> None:
        changing_weights = changing(graph)
        self._values = {name: value for name, value in graph.values.items() if name not in changing_weights}
        self._tensors = graph.tensors()
        self._makers = {t.id: node for node in graph.nodes if isinstance(node, DeviceOp) for t in node.outputs}
        self._readers: dict[str, list[GraphNode]] = {}
        for node in graph.nodes:
            for name in node.inputs:
                if name is not None:
                    self._readers.setdefault(name, []).append(node)
        self._uses = Counter(root for name in graph.signatures for root in graph.roots(name))
        self._uses.update({name: len(readers) for name, readers in self._readers.items()})

    def layer(self, node: GraphNode) -> _Layer | None:
        """The convolution or dense layer that a node is, if its weights are known and all of it is float32."""
        if not isinstance(node, DeviceOp) or node.op not in ("conv_general_dilated", "dot_general"):
            return None
        weights = self._weights(node)
        if weights is None:
            return None
        if node.op == "conv_general_dilated":
            spec = node.equation.params["dimension_numbers"]
            grouped = node.equation.params["batch_group_count"] != 1
            return None if grouped else _Layer(weights, spec.rhs_spec[0], spec.out_spec[1])
        (left, right), (batch, _) = node.equation.params["dimension_numbers"]
        rank = len(self._tensors[str(node.operands[0])].shape)
        if weights.ndim != 2 or batch or tuple(left) != (rank - 1,) or len(right) != 1:
            return None
        return _Layer(weights, 1 - right[0], rank - 1)

    def _weights(self, node: DeviceOp) -> _Numbers | None:
        """The second operand, if it is known, the first one is a tensor, and all are float32."""
        operand, name = node.operands
        value = self._values.get(name) if isinstance(operand, str) and isinstance(name, str) else None
        dtypes = {node.outputs[0].dtype, *(self._tensors[read].dtype for read in node.inputs)}
        return None if value is None or dtypes != {"float32"} else value.astype(np.float64)

    def after(self, result: Tensor, axis: int) -> _Affine | None:
        """The chain of scales and offsets per channel that nothing else reads; None where there is none."""
        name = result.id
        steps: list[_AffineStep] = []
        while self._uses[name] == 1 and self._readers.get(name):
            (reader,) = self._readers[name]
            step = self._step(reader, name, axis)
            if step is None:
                break
            steps.append(step)
            name = reader.outputs[0].id
        return _affine(name, steps) if steps else None

    def _step(self, node: GraphNode, read: str, axis: int) -> _AffineStep | None:
        """What a node does to `x · scale + offset`, if it only scales or moves it, per channel of an axis."""
        if not isinstance(node, DeviceOp) or node.op not in ("add", "sub", "mul", "div") or len(node.operands) != 2:
            return None
        output = node.outputs[0]
        x, y = node.operands
        if (x == read) == (y == read) or self._tensors[read].shape != output.shape or output.dtype != "float32":
            return None
        c = self._per_channel(y if x == read else x, output, axis)
        if c is None or (node.op == "div" and y == read):
            return None
        if node.op == "add":
            return lambda scale, offset: (scale, offset + c)
        if node.op == "mul":
            return lambda scale, offset: (scale * c, offset * c)
        if node.op == "div":
            return lambda scale, offset: (scale / c, offset / c)
        return (lambda scale, offset: (scale, offset - c)) if x == read else (lambda s, offset: (-s, c - offset))

    def _per_channel(self, operand: Operand, output: Tensor, axis: int) -> _Numbers | None:
        """A known operand as one number, or one per channel; it must be finite."""
        value = self._known(operand)
        if value is None and isinstance(operand, str):
            maker = self._makers.get(operand)  # a number or vector spread over rows
            if maker is None or maker.op != "broadcast_in_dim":
                return None
            value = self._known(maker.operands[0])
            if value is None:
                return None
            shape = [1] * len(output.shape)
            for dim, size in zip(maker.equation.params["broadcast_dimensions"], value.shape, strict=True):
                shape[dim] = size
            value = value.reshape(shape)
        if value is None or not np.all(np.isfinite(value)):
            return None
        if value.size == 1:
            return value.reshape(())
        return value.reshape(-1) if value.ndim == len(output.shape) and value.size == value.shape[axis] else None

    def _known(self, operand: Operand) -> _Numbers | None:
        """An operand's numbers, if they are known and float."""
        if isinstance(operand, Literal):
            return np.asarray(operand.value, np.float64)
        value = self._values.get(operand)
        return None if value is None or value.dtype.kind != "f" else value.astype(np.float64)


def _rewritten(graph: Graph, rewrites: dict[int, _FoldedLayer]) -> Graph:
    """The graph with layers exchanged: `layer(x, new weights) + offset` in place of what each becomes."""
    builder = Builder(unused_prefix(graph, "folded"))
    weights, values = dict(graph.weights), dict(graph.values)
    meaning: dict[str, Operand] = {}
    nodes: list[GraphNode] = []
    for node in graph.nodes:
        rewrite = rewrites.get(id(node))
        node = renamed(node, meaning)
        if rewrite is None or not isinstance(node, DeviceOp):
            nodes.append(node)
            continue
        name = folded_name([str(node.operands[1])], weights)
        values[name] = rewrite.weights.astype(np.float32)
        weights[name] = Tensor(name, "float32", values[name].shape)
        (result,) = node.outputs
        nodes.append(replace(node, operands=(node.operands[0], name)))
        if not rewrite.offset.any():
            meaning[rewrite.becomes] = result.id
            continue
        builder.nodes = []
        (total,) = _emit(builder, lambda y, c=rewrite.offset: y + jnp.asarray(c, jnp.float32), [result], graph.dims)
        nodes += builder.nodes
        # The readers of the last in its chain read the sum; the addition itself reads the layer.
        meaning[rewrite.becomes] = total
    values.update(builder.constants)
    weights.update((n, Tensor(n, str(a.dtype), a.shape)) for n, a in builder.constants.items())
    whole = replace(graph, nodes=tuple(nodes), weights=weights, values=values)
    return prune(with_meaning(whole, meaning))


def _emit(builder: Builder, fn: Callable[..., Any], operands: list[Tensor], dims: Any) -> list[Operand]:
    """Add what a function does to some tensors to the graph being built."""
    avals = [aval_of(tensor, dims) for tensor in operands]
    closed = jax.make_jaxpr(fn)(*(shaped(aval.shape, aval.dtype) for aval in avals))
    return builder.inline(closed, [tensor.id for tensor in operands], None)
