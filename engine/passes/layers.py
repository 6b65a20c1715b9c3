"""Algebraic passes on layers with known weights: scales and offsets around them go into the weights, to within 1e-6.

They take every known weight for frozen, so they are for graphs that will not be trained again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
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
from .structural import Operand, prune, renamed, unused_prefix, with_meaning

_LARGEST_OFFSET: Final = 16.0
"""A z-score with mean ÷ std beyond this stays: (x − mean) · w would lose its digits as x · w − mean · w."""

_Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class _Affine:
    """`base · scale + offset`, with a number, or one per channel."""

    base: str
    scale: _Numbers
    offset: _Numbers
    steps: tuple[str, ...] = ()  # what is computed on the way, the last first


def fold_batch_norm(graph: Graph) -> Graph:
    """With the scale and offset per channel after a convolution or dense layer in its weights and one addition.

    That is what batch normalisation is once its statistics are known (Jacob et al., 2018, section 3.2).
    """
    look = _Look(graph)
    rewrites: list[_Rewrite] = []
    for node in graph.nodes:
        layer = look.layer(node)
        if layer is None or not isinstance(node, DeviceOp):
            continue
        found = look.after(node.outputs[0], layer.out_axis)
        if found is None or np.all(found.scale == 1.0):
            continue
        spread = np.expand_dims(
            np.broadcast_to(found.scale, layer.channels),
            tuple(axis for axis in range(layer.weights.ndim) if axis != layer.weight_axis),
        )
        shape = [1] * len(node.outputs[0].shape)
        shape[layer.out_axis] = layer.channels
        offset = np.broadcast_to(found.offset, layer.channels).reshape(shape)
        rewrites.append(_Rewrite(node, layer.weights * spread, offset, found.base, {}))
    return _rewritten(graph, rewrites)


def fold_scaling(graph: Graph) -> Graph:
    """With the scaling of single features, such as z-scores, in the weights of the dense layer that reads them."""
    look = _Look(graph)
    rewrites: list[_Rewrite] = []
    for node in graph.nodes:
        layer = look.dense(node)
        if layer is None or not isinstance(node, DeviceOp) or not isinstance(node.operands[0], str):
            continue
        weights = np.moveaxis(layer.weights, 1 - layer.weight_axis, 0).copy()
        offset = np.zeros(layer.channels)
        meaning: dict[str, Operand] = {}
        start = 0
        for piece, width in look.pieces(node.operands[0]):
            scaled = look.before(piece)
            if scaled.steps and np.max(np.abs(scaled.offset), initial=0.0) <= _LARGEST_OFFSET:
                rows = slice(start, start + width)
                offset += np.broadcast_to(scaled.offset, width) @ weights[rows]
                weights[rows] *= np.broadcast_to(scaled.scale, width)[:, None]
                meaning[scaled.steps[0]] = scaled.base
            start += width
        if meaning:
            made = np.moveaxis(weights, 0, 1 - layer.weight_axis)
            rewrites.append(_Rewrite(node, made, offset, node.outputs[0].id, meaning))
    return _rewritten(graph, rewrites)


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
class _Rewrite:
    """A layer's new weights, what is added to its result, which tensor that becomes, and what its inputs become."""

    node: DeviceOp
    weights: _Numbers
    offset: _Numbers
    becomes: str
    meaning: dict[str, Operand]


class _Look:
    """What a graph says around a layer: who makes a tensor, who reads it, what is known of it."""

    def __init__(self, graph: Graph) -> None:
        self._values = graph.values
        self._tensors = graph.tensors()
        self._makers = {t.id: node for node in graph.nodes if isinstance(node, DeviceOp) for t in node.outputs}
        self._readers: dict[str, list[GraphNode]] = {}
        for node in graph.nodes:
            for name in node.inputs:
                if name is not None:
                    self._readers.setdefault(name, []).append(node)
        self._uses = Counter(root for name in graph.signatures for root in graph.roots(name))
        self._uses.update({name: len(readers) for name, readers in self._readers.items()})

    def known(self, operand: Operand) -> _Numbers | None:
        """An operand's numbers, if they are known and float."""
        if isinstance(operand, Literal):
            return np.asarray(operand.value, np.float64)
        value = self._values.get(operand)
        return None if value is None or value.dtype.kind != "f" else value.astype(np.float64)

    def layer(self, node: GraphNode) -> _Layer | None:
        """A convolution or dense layer with known weights."""
        if not isinstance(node, DeviceOp) or node.op != "conv_general_dilated":
            return self.dense(node)
        weights = self.known(node.operands[1])
        spec = node.equation.params["dimension_numbers"]
        if weights is None or node.equation.params["batch_group_count"] != 1:
            return None
        return _Layer(weights, spec.rhs_spec[0], spec.out_spec[1])

    def dense(self, node: GraphNode) -> _Layer | None:
        """A product with a known matrix over the last axis."""
        if not isinstance(node, DeviceOp) or node.op != "dot_general" or not isinstance(node.operands[0], str):
            return None
        weights = self.known(node.operands[1])
        (left, right), (batch, _) = node.equation.params["dimension_numbers"]
        rank = len(self._tensors[node.operands[0]].shape)
        if weights is None or weights.ndim != 2 or batch or tuple(left) != (rank - 1,) or len(right) != 1:
            return None
        return _Layer(weights, 1 - right[0], rank - 1)

    def after(self, made: Tensor, axis: int) -> _Affine | None:
        """The chain of scales and offsets per channel that nothing else reads; None where there is none."""
        name, scale, offset = made.id, np.asarray(1.0), np.asarray(0.0)
        steps: list[str] = []
        while self._uses[name] == 1 and self._readers.get(name):
            (reader,) = self._readers[name]
            step = self._step(reader, name, axis)
            if step is None:
                break
            scale, offset = step(scale, offset)
            name = reader.outputs[0].id
            steps.append(name)
        return _Affine(name, scale, offset, tuple(steps)) if steps else None

    def before(self, name: str) -> _Affine:
        """A tensor as scales and offsets, each read by nothing else, of another one."""
        scales: list[Callable[[_Numbers, _Numbers], tuple[_Numbers, _Numbers]]] = []
        steps: list[str] = []
        base = name
        while self._uses[base] == 1 and base in self._makers:
            maker = self._makers[base]
            inner = next((o for o in maker.operands if isinstance(o, str) and self.known(o) is None), None)
            axis = len(maker.outputs[0].shape) - 1
            step = self._step(maker, inner, axis if axis > 0 else None) if inner is not None else None
            if step is None or inner is None:
                break
            scales.append(step)
            steps.append(base)
            base = inner
        scale, offset = np.asarray(1.0), np.asarray(0.0)
        for step in reversed(scales):
            scale, offset = step(scale, offset)
        return _Affine(base, scale, offset, tuple(steps))

    def pieces(self, name: str) -> list[tuple[str, int]]:
        """The tensors that are put side by side in the last axis, and how many columns each has."""
        maker = self._makers.get(name)
        width = self._tensors[name].shape[-1]
        last = len(self._tensors[name].shape) - 1
        if self._uses[name] == 1 and maker is not None:
            names = [operand for operand in maker.operands if isinstance(operand, str)]
            whole, params = len(names) == len(maker.operands), maker.equation.params
            if whole and maker.op == "concatenate" and params["dimension"] == last:
                return [piece for part in names for piece in self.pieces(part)]
            if whole and maker.op == "stack" and params["axis"] == last:
                return [(part, 1) for part in names]
            spread = maker.op in ("broadcast_in_dim", "reshape") and width == 1 and names
            if spread and self._tensors[names[0]].shape == self._tensors[name].shape[:-1]:
                return [(names[0], 1)]
        return [(name, int(width))]

    def _step(
        self, node: GraphNode, read: str, axis: int | None
    ) -> Callable[[_Numbers, _Numbers], tuple[_Numbers, _Numbers]] | None:
        """What a node does to `x · scale + offset`, if it only scales or moves it, per channel of an axis."""
        if not isinstance(node, DeviceOp) or node.op not in ("add", "sub", "mul", "div") or len(node.operands) != 2:
            return None
        made = node.outputs[0]
        x, y = node.operands
        if (x == read) == (y == read) or self._tensors[read].shape != made.shape or made.dtype != "float32":
            return None
        other = self._per_channel(y if x == read else x, made, axis)
        if other is None or (node.op == "div" and y == read):
            return None
        c = other
        if node.op == "add":
            return lambda scale, offset: (scale, offset + c)
        if node.op == "mul":
            return lambda scale, offset: (scale * c, offset * c)
        if node.op == "div":
            return lambda scale, offset: (scale / c, offset / c)
        return (lambda scale, offset: (scale, offset - c)) if x == read else (lambda s, offset: (-s, c - offset))

    def _per_channel(self, operand: Operand, made: Tensor, axis: int | None) -> _Numbers | None:
        """A known operand as one number, or one per channel; it must be finite."""
        value = self.known(operand)
        if value is None and isinstance(operand, str):
            maker = self._makers.get(operand)  # a number or vector spread over rows
            if maker is None or maker.op != "broadcast_in_dim":
                return None
            value = self.known(maker.operands[0])
            if value is None:
                return None
            dims = maker.equation.params["broadcast_dimensions"]
            shape = [1] * len(made.shape)
            for place, dim in zip(dims, value.shape, strict=True):
                shape[place] = dim
            value = value.reshape(shape)
        if value is None or not np.all(np.isfinite(value)):
            return None
        if value.size == 1:
            return value.reshape(())
        if axis is None or value.ndim != len(made.shape) or value.size != value.shape[axis]:
            return None
        return value.reshape(-1)


def _rewritten(graph: Graph, rewrites: list[_Rewrite]) -> Graph:
    """The graph with layers exchanged: `layer(x, new weights) + offset` in place of what each becomes."""
    if not rewrites:
        return graph
    builder = Builder(unused_prefix(graph, "folded"))
    weights, values = dict(graph.weights), dict(graph.values)
    by_node = {id(rewrite.node): rewrite for rewrite in rewrites}
    inside = {name: operand for rewrite in rewrites for name, operand in rewrite.meaning.items()}
    meaning: dict[str, Operand] = {}
    nodes: list[GraphNode] = []
    for node in graph.nodes:
        rewrite = by_node.get(id(node))
        node = renamed(node, {**inside, **meaning})
        if rewrite is None or not isinstance(node, DeviceOp):
            nodes.append(node)
            continue
        name = folded_name([str(node.operands[1])], weights)
        values[name] = rewrite.weights.astype(np.float32)
        weights[name] = Tensor(name, "float32", values[name].shape)
        (made,) = node.outputs
        nodes.append(replace(node, operands=(node.operands[0], name)))
        builder.nodes = []
        (added,) = _emit(builder, lambda y, c=rewrite.offset: y + jnp.asarray(c, jnp.float32), [made], graph.dims)
        nodes += builder.nodes
        # Its readers, or those of the last in its chain, read the sum; the addition itself reads the layer.
        meaning[rewrite.becomes] = added
    values.update(builder.constants)
    weights.update((n, Tensor(n, str(a.dtype), a.shape)) for n, a in builder.constants.items())
    whole = replace(graph, nodes=tuple(nodes), weights=weights, values=values)
    return prune(with_meaning(whole, meaning))


def _emit(builder: Builder, fn: Callable[..., Any], operands: list[Tensor], dims: Any) -> list[Operand]:
    """Add what a function does to some tensors to the graph being built."""
    avals = [aval_of(tensor, dims) for tensor in operands]
    closed = jax.make_jaxpr(fn)(*(shaped(aval.shape, aval.dtype) for aval in avals))
    return builder.inline(closed, [tensor.id for tensor in operands], None)
