"""Run a graph: on record batches, at fixed device batch sizes, and on single rows."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ..errors import InputError
from .graph import BATCH, DeviceStage, Graph, HostNode
from .host import host_op
from .host_columns import Kernel, as_column, as_value

SMALL: Final = 512
LARGE: Final = 8192
"""Device stages see 512 rows, or 8,192 at a time, padded by repeating zeros. So there are two compilations, and a row's
result does not depend on how many rows came with it (measured: sizes from 512 up agree to the bit, smaller ones do
not). A single row (`run_row`) runs at size 1."""

Env = dict[str, Any]  # tensor id -> Arrow column, array, or one row's value


@dataclass(frozen=True)
class Payload:
    """What a graph's nodes refer to: serialized programs, weights and vocabularies, by name."""

    programs: Mapping[str, bytes]
    weights: Mapping[str, NDArray[Any]]
    assets: Mapping[str, pa.Table]


class Programs:
    """The device programs, deserialized and jitted when first called; shared by all signatures of a bundle."""

    def __init__(self, payload: Payload) -> None:
        self.payload = payload
        self._ready: dict[str, Callable[..., Any]] = {}
        self._weights: dict[str, Any] = {}
        self._lock = threading.Lock()

    def __call__(self, stage: DeviceStage, arrays: list[NDArray[Any]]) -> list[Any]:
        """Call a stage with inputs of one batch size."""
        if stage.program not in self._ready:
            self._prepare(stage)
        return list(self._ready[stage.program](*arrays, *(self._weights[name] for name in stage.weights)))

    def _prepare(self, stage: DeviceStage) -> None:
        import jax  # late: a graph of host nodes alone runs without it

        with self._lock:
            for name in stage.weights:
                if name not in self._weights:
                    self._weights[name] = jax.device_put(self.payload.weights[name])
            if stage.program not in self._ready:
                exported = jax.export.deserialize(bytearray(self.payload.programs[stage.program]))
                self._ready[stage.program] = jax.jit(exported.call)


class Runner:
    """One signature, prepared: kernels made from params and assets, and only the nodes it needs."""

    def __init__(self, graph: Graph, signature: str, programs: Programs) -> None:
        self.graph = graph.signature(signature)
        self.outputs = {name: output.tensor for name, output in graph.signatures[signature].items()}
        self.signature = signature
        self._programs = programs
        self._tensors = graph.tensors()

    def _kernels(self, kind: str) -> list[Kernel | None]:
        assets = self._programs.payload.assets
        return [
            getattr(host_op(node.op), kind)(node.params, tuple(assets[name] for name in node.assets))
            if isinstance(node, HostNode)
            else None
            for node in self.graph.nodes
        ]

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
            if kernel is not None:
                self._store(node, env, kernel(*(env[name] for name in node.inputs)))  # type: ignore[index]  # host: no None
            else:
                assert isinstance(node, DeviceStage)
                self._device(node, env, batch.num_rows)
        return {name: env[tensor] for name, tensor in self.outputs.items()}

    def row(self, row: Mapping[str, object]) -> Env:
        """Output name → one Python value or numpy array; raises as `batch`."""
        env: Env = {}
        for name, tensor in self.graph.inputs.items():
            if name not in row:
                raise self._absent(name, row)
            env[tensor.id] = as_value(row[name], tensor.dtype, name)
        for node, kernel in zip(self.graph.nodes, self._row_kernels, strict=True):
            if kernel is not None:
                self._store(node, env, kernel(*(env[name] for name in node.inputs)))  # type: ignore[index]  # host: no None
                continue
            assert isinstance(node, DeviceStage)
            arrays = [
                _zeros(dtype, shape, 1)
                if name is None
                else np.asarray([env[name]] if shape and shape[0] == BATCH else env[name], dtype=np.dtype(dtype))
                for name, (dtype, shape) in zip(node.inputs, node.slots, strict=True)
            ]
            for tensor, value in zip(node.outputs, self._programs(node, arrays), strict=True):
                host = np.asarray(value)
                env[tensor.id] = host[0] if tensor.batched else host
        return {name: env[tensor] for name, tensor in self.outputs.items()}

    def _absent(self, name: str, given: Any) -> InputError:  # Any: names
        return InputError(
            f"column {name!r} is missing: {self.signature!r} reads {', '.join(self.graph.inputs)}",
            fix=f"give it (the columns given are {', '.join(given)[:200]})",
        )

    def _store(self, node: Any, env: Env, made: Any) -> None:
        env[node.outputs[0].id] = made

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
    """A batch result as numpy; text as objects, None where missing."""
    if isinstance(value, pa.Array):
        if pa.types.is_dictionary(value.type):
            value = value.dictionary_decode()
        found: NDArray[Any] = np.asarray(value.to_pylist(), dtype=object)
        return found
    return np.asarray(value)
