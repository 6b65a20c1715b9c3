"""Algebraic passes on layers with known weights: scales and offsets around them go into the weights, to within 1e-6.

They take every known weight for frozen, so they are for graphs that will not be trained again.
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
"""A z-score with mean ÷ std beyond this stays: (x − mean) · w would lose its digits as x · w − mean · w.

What is added on the way counts too, in units of the result: x + 1e6 − 1e6 has lost its digits already.
"""
_SCALES: Final = (1e-12, 1e12)
"""Scales beyond these stay: a product of weights would leave float32."""

_Numbers = NDArray[np.float64]
_Step = Callable[[_Numbers, _Numbers], tuple[_Numbers, _Numbers]]  # scale and offset before → after


@dataclass(frozen=True)
class _Affine:
    """`base · scale + offset`, with a number, or one per channel."""

    base: str
    scale: _Numbers
    offset: _Numbers
    steps: tuple[str, ...] = ()  # what is computed on the way, the last first
    safe: bool = True  # whether folding it keeps float32's digits


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
        if found is None or not found.safe or np.all(found.scale == 1.0):
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
    """With the scaling of single features, such as z-scores, in the weights of the dense layers that read them.

    A feature that something else reads too stays scaled.
    """
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
            if scaled.steps and scaled.safe:
                rows = slice(start, start + width)
                offset += np.broadcast_to(scaled.offset, width) @ weights[rows]
                weights[rows] *= np.broadcast_to(scaled.scale, width)[:, None]
                meaning[piece] = scaled.base
            start += width
        if meaning:
            made = np.moveaxis(weights, 0, 1 - layer.weight_axis)
            becomes, bias = node.outputs[0].id, look.after(node.outputs[0], layer.out_axis)
            if bias is not None and bias.safe and np.all(bias.scale == 1.0):
                becomes, offset = bias.base, offset + bias.offset
            offset = offset.reshape([1] * layer.out_axis + [layer.channels])
            rewrites.append(_Rewrite(node, made, offset, becomes, meaning))
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


def _affine(base: str, taken: Sequence[_Step], steps: Sequence[str]) -> _Affine:
    """What steps make of a base, the first of `taken` first."""
    scale, offset = np.asarray(1.0), np.asarray(0.0)
    moved: list[tuple[_Numbers, _Numbers]] = []
    with np.errstate(all="ignore"):  # what is no number is not safe
        for step in taken:
            scale, offset = step(scale, offset)
            moved.append((scale, offset))
        least, most = _SCALES
        safe = all(bool(np.all((abs(s) >= least) & (abs(s) <= most))) for s, _ in moved)
        safe = safe and all(bool(np.all(abs(o * scale / s) <= _LARGEST_OFFSET)) for s, o in moved)
    return _Affine(base, scale, offset, tuple(steps), safe)


class _Look:
    """What a graph says around a layer: who makes a tensor, who reads it, what is known of it."""

    def __init__(self, graph: Graph) -> None:
        kept = changing(graph)
        self._values = {name: value for name, value in graph.values.items() if name not in kept}
        self._tensors = graph.tensors()
        self._makers = {t.id: node for node in graph.nodes if isinstance(node, DeviceOp) for t in node.outputs}
        self._readers: dict[str, list[GraphNode]] = {}
        for node in graph.nodes:
            for name in node.inputs:
                if name is not None:
                    self._readers.setdefault(name, []).append(node)
        self._taken: dict[str, bool] = {}
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
        weights = self._weights(node)
        spec = node.equation.params["dimension_numbers"]
        if weights is None or node.equation.params["batch_group_count"] != 1:
            return None
        return _Layer(weights, spec.rhs_spec[0], spec.out_spec[1])

    def dense(self, node: GraphNode) -> _Layer | None:
        """A product with a known matrix over the last axis."""
        if not isinstance(node, DeviceOp) or node.op != "dot_general" or not isinstance(node.operands[0], str):
            return None
        weights = self._weights(node)
        (left, right), (batch, _) = node.equation.params["dimension_numbers"]
        rank = len(self._tensors[node.operands[0]].shape)
        if weights is None or weights.ndim != 2 or batch or tuple(left) != (rank - 1,) or len(right) != 1:
            return None
        return _Layer(weights, 1 - right[0], rank - 1)

    def _weights(self, node: DeviceOp) -> _Numbers | None:
        """The second operand, if it is known, and all of the layer is float32."""
        name = node.operands[1]
        value = self._values.get(name) if isinstance(name, str) else None
        kinds = {node.outputs[0].dtype, *(self._tensors[read].dtype for read in node.inputs)}
        return None if value is None or kinds != {"float32"} else value.astype(np.float64)

    def after(self, made: Tensor, axis: int) -> _Affine | None:
        """The chain of scales and offsets per channel that nothing else reads; None where there is none."""
        name, taken = made.id, list[_Step]()
        steps: list[str] = []
        while self._uses[name] == 1 and self._readers.get(name):
            (reader,) = self._readers[name]
            step = self._step(reader, name, axis)
            if step is None:
                break
            taken.append(step)
            name = reader.outputs[0].id
            steps.append(name)
        return _affine(name, taken, steps) if steps else None

    def before(self, name: str) -> _Affine:
        """A tensor that dense layers alone take, as scales and offsets, each read by nothing else, of another one."""
        taken: list[_Step] = []
        steps: list[str] = []
        base = name
        while base in self._makers and (self.absorbed(base) if base == name else self._uses[base] == 1):
            maker = self._makers[base]
            inner = next((o for o in maker.operands if isinstance(o, str) and self.known(o) is None), None)
            axis = len(maker.outputs[0].shape) - 1
            step = self._step(maker, inner, axis if axis > 0 else None) if inner is not None else None
            if step is None or inner is None:
                break
            taken.append(step)
            steps.append(base)
            base = inner
        return _affine(base, taken[::-1], steps)

    def absorbed(self, name: str) -> bool:
        """Whether all that reads a tensor is dense layers, or puts it side by side with others for dense layers."""
        found = self._taken.get(name)
        if found is None:
            readers = self._readers.get(name, [])
            inside = len(readers) == self._uses[name]  # no signature asks for it
            found = self._taken[name] = inside and all(self._takes(reader, name) for reader in readers)
        return found

    def _takes(self, reader: GraphNode, name: str) -> bool:
        if not isinstance(reader, DeviceOp):
            return False
        if self.dense(reader) is not None:
            return reader.operands[0] == name
        (made, *_) = reader.outputs
        return self._sides(reader) is not None and self.absorbed(made.id)

    def _sides(self, maker: DeviceOp | None) -> list[tuple[str, int]] | None:
        """What a node puts side by side in the last axis, and how many columns each has; None if it does not."""
        if maker is None or not all(isinstance(operand, str) for operand in maker.operands):
            return None
        made, names, params = maker.outputs[0], maker.inputs, maker.equation.params
        last = len(made.shape) - 1
        if last < 0 or not isinstance(made.shape[last], int):
            return None
        if maker.op == "concatenate" and params["dimension"] == last:
            return [(name, int(self._tensors[name].shape[-1])) for name in names]
        if maker.op == "stack" and params["axis"] == last:
            return [(name, 1) for name in names]
        spread = maker.op in ("broadcast_in_dim", "reshape") and len(names) == 1 and made.shape[-1:] == (1,)
        return [(names[0], 1)] if spread and self._tensors[names[0]].shape == made.shape[:-1] else None

    def pieces(self, name: str) -> list[tuple[str, int]]:
        """The tensors that are put side by side in the last axis, and how many columns each has."""
        sides = self._sides(self._makers.get(name)) if self.absorbed(name) else None
        width = self._tensors[name].shape[-1] if self._tensors[name].shape else 1
        if sides is None:
            return [(name, int(width))]
        return [
            inner
            for part, columns in sides
            for inner in (self.pieces(part) if len(self._tensors[part].shape) > 1 else [(part, columns)])
        ]

    def _step(self, node: GraphNode, read: str, axis: int | None) -> _Step | None:
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
    meaning: dict[str, Operand] = {name: operand for rewrite in rewrites for name, operand in rewrite.meaning.items()}
    nodes: list[GraphNode] = []
    for node in graph.nodes:
        rewrite = by_node.get(id(node))
        node = renamed(node, meaning)
        if rewrite is None or not isinstance(node, DeviceOp):
            nodes.append(node)
            continue
        name = folded_name([str(node.operands[1])], weights)
        values[name] = rewrite.weights.astype(np.float32)
        weights[name] = Tensor(name, "float32", values[name].shape)
        (made,) = node.outputs
        nodes.append(replace(node, operands=(node.operands[0], name)))
        if not rewrite.offset.any():
            if rewrite.becomes != made.id:
                meaning[rewrite.becomes] = made.id
            continue
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
