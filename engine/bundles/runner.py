"""Run a graph: on record batches, at fixed device batch sizes, and on single rows."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ...errors import DrivetrainError, InputError
from ..extending.registry import host_kernels
from ..graphs.graph import Graph
from ..graphs.nodes import BATCH, DeviceStage, GraphNode, HostNode
from ..host.columns import Kernel, as_column, as_value
from ..lowering.programs import Programs, node_failed

SMALL: Final = 512
LARGE: Final = 8192
"""Device stages see 512 rows, or 8,192 at a time, padded by repeating zeros. So there are two compilations, and a row's
result does not depend on how many rows came with it (measured: sizes from 512 up agree to the bit, smaller ones do
not). A single row (`run_row`) runs at size 1."""

Env = dict[str, Any]  # tensor id -> Arrow column, array, or one row's value


class Runner:
    """One signature, prepared: kernels made from params and assets, and only the nodes it needs."""

    def __init__(self, graph: Graph, signature: str, programs: Programs) -> None:
        self.graph = graph.signature(signature)
        self.outputs = {name: output.tensor for name, output in graph.signatures[signature].items()}
        self.signature = signature
        self._programs = programs
        self._tensors = graph.tensors()

    def _kernels(self, kind: str) -> list[Kernel | None]:
        return [self._kernel(node, kind) for node in self.graph.nodes]

    def _kernel(self, node: GraphNode, kind: str) -> Kernel | None:
        if not isinstance(node, HostNode):
            return None
        assets = tuple(self._programs.payload.assets[name] for name in node.assets)
        try:
            kernel: Kernel = getattr(host_kernels(node.op), kind)(node.params, assets)
        except (LookupError, TypeError, ValueError, ArithmeticError, AttributeError) as error:
            raise node_failed(node, error) from error
        return kernel

    @cached_property
    def _batch_kernels(self) -> list[Kernel | None]:
        return self._kernels("batch")

    @cached_property
    def _row_kernels(self) -> list[Kernel | None]:
        return self._kernels("row")

    def batch(self, batch: pa.RecordBatch) -> Env:
        """Output name → Arrow column or array of `batch.num_rows`.

        Raises:
            InputError: A column is missing or of another type, or a value cannot be used; the column is named.
        """
        env: Env = {}
        for name, tensor in self.graph.inputs.items():
            place = batch.schema.get_field_index(name)
            if place < 0:
                raise self._absent(name, batch.schema.names)
            env[tensor.id] = as_column(batch.column(place), tensor.dtype, name)
        for node, kernel in zip(self.graph.nodes, self._batch_kernels, strict=True):
            self._run(node, kernel, env, batch.num_rows)
        return {name: env[tensor] for name, tensor in self.outputs.items()}

    def row(self, row: Mapping[str, object]) -> Env:
        """Output name → one Python value or numpy array; raises as `batch`."""
        env: Env = {}
        for name, tensor in self.graph.inputs.items():
            if name not in row:
                raise self._absent(name, row)
            env[tensor.id] = as_value(row[name], tensor.dtype, name)
        for node, kernel in zip(self.graph.nodes, self._row_kernels, strict=True):
            self._run(node, kernel, env, None)
        return {name: env[tensor] for name, tensor in self.outputs.items()}

    def _run(self, node: GraphNode, kernel: Kernel | None, env: Env, rows: int | None) -> None:
        """Run a node on a batch of `rows`, or where None on one row."""
        try:
            if kernel is not None:
                env[node.outputs[0].id] = kernel(*(env[name] for name in node.inputs if name is not None))
            elif isinstance(node, DeviceStage):
                if rows is None:
                    self._device_row(node, env)
                else:
                    self._device(node, env, rows)
        except DrivetrainError:
            raise
        except Exception as error:  # what a bundle says need not fit together, and that shows in many ways
            raise node_failed(node, error) from error

    def _absent(self, name: str, given: Any) -> InputError:  # Any: names
        return InputError(
            f"column {name!r} is missing: {self.signature!r} reads {', '.join(self.graph.inputs)}",
            fix=f"give it (the columns given are {', '.join(given)[:200]})",
        )

    def _device_row(self, stage: DeviceStage, env: Env) -> None:
        arrays = [
            _zeros(dtype, shape, 1)
            if name is None
            else np.asarray([env[name]] if shape and shape[0] == BATCH else env[name], dtype=np.dtype(dtype))
            for name, (dtype, shape) in zip(stage.inputs, stage.slots, strict=True)
        ]
        for tensor, value in zip(stage.outputs, self._programs(stage, arrays), strict=True):
            host = np.asarray(value)
            env[tensor.id] = host[0] if tensor.batched else host

    def _device(self, stage: DeviceStage, env: Env, rows: int) -> None:
        """Run a stage in chunks of the fixed sizes and put its outputs together."""
        size = SMALL if rows <= SMALL else LARGE
        parts: list[list[NDArray[Any]]] = []
        for start in range(0, max(rows, 1), size):
            arrays = [
                _zeros(dtype, shape, size)
                if name is None
                else _chunk(env[name], start, size)
                if shape and shape[0] == BATCH
                else env[name]
                for name, (dtype, shape) in zip(stage.inputs, stage.slots, strict=True)
            ]
            parts.append(self._programs(stage, arrays))
        for place, tensor in enumerate(stage.outputs):
            found = [np.asarray(part[place]) for part in parts]
            env[tensor.id] = _joined(found)[:rows] if tensor.batched else found[0]


def _joined(parts: list[NDArray[Any]]) -> NDArray[Any]:
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _chunk(values: NDArray[Any], start: int, size: int) -> NDArray[Any]:
    part = values[start : start + size]
    if len(part) == size:
        return part
    return np.concatenate([part, np.zeros((size - len(part), *part.shape[1:]), part.dtype)])


def _zeros(dtype: str, shape: tuple[str | int, ...], rows: int) -> NDArray[Any]:
    return np.zeros(tuple(rows if dim == BATCH else int(dim) for dim in shape), np.dtype(dtype))


def to_arrow(value: Any) -> pa.Array:  # Any: an Arrow column or an array
    """A batch result as an Arrow array: vectors become fixed-size lists, further dimensions are flattened into them."""
    if isinstance(value, (pa.Array, pa.ChunkedArray)):
        return value
    array = np.asarray(value)
    if array.dtype.name == "bfloat16":
        array = array.astype(np.float32)
    if array.ndim == 1:
        return pa.array(array)
    width = int(np.prod(array.shape[1:]))
    return pa.FixedSizeListArray.from_arrays(pa.array(array.reshape(-1)), width)


def to_numpy(value: Any) -> NDArray[Any]:  # Any: as to_arrow
    """A batch result as numpy; text and lists as objects, None where missing."""
    if isinstance(value, pa.Array):
        if pa.types.is_dictionary(value.type):
            value = value.dictionary_decode()
        return np.fromiter(value.to_pylist(), object, len(value))  # asarray would make lists of one length a matrix
    return np.asarray(value)
