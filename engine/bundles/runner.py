"""Run a graph: on record batches, at fixed device batch sizes, and on single rows."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cache, cached_property, partial
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ...errors import DrivetrainError, InputError
from ..custom_ops.registry import host_kernels
from ..graphs.graph import Graph, RowCheck
from ..graphs.nodes import BATCH, DeviceStage, GraphNode, HostNode
from ..host_ops.columns import Kernel, as_column, as_value
from ..lowering.programs import Programs, node_failed
from ..lowering.single import fits
from ..ragged.feeding import PaddedRange, counting, filled, lengths_of, padded_ranges, zeros

SMALL: Final = 512
LARGE: Final = 8192
"""Device stages see 512 rows, or 8,192 at a time, padded by repeating zeros. So there are two compilations, and a row's
result does not depend on how many rows came with it (measured: sizes from 512 up agree to the bit, smaller ones do
not). The values of lists come in a bucket of a power of two, 512 at the least. A single row (`run_row`) runs at size 1,
and its lists in buckets from 16 on."""

REQUESTS: Final = 64
"""The smallest size in a bundle that answers requests."""

INT64: Final = range(-(2**63), 2**63)
DENSE: Final = "dense"
"""The op that makes vectors of lists: of an array of them it has nothing to do."""

_PLAIN: Final = {"float64": float, "int64": int, "string": str, "bool": bool}  # types that `as_value` leaves alone

Env = dict[str, Any]  # tensor id -> Arrow column, array, or one row's value


class Runner:
    """One signature, prepared: the nodes that it needs, and their kernels, each made once from params and assets.

    Args:
        graph: The graph.
        signature: Which signature.
        programs: The device programs.
        sizes: How many rows a device stage is given, ascending; more than the last come in parts of that size.
    """

    def __init__(
        self, graph: Graph, signature: str, programs: Programs, sizes: tuple[int, ...] = (SMALL, LARGE)
    ) -> None:
        self.graph = graph.signature(signature)
        self.outputs = {name: output.tensor for name, output in graph.signatures[signature].items()}
        self.signature = signature
        self._checks = graph.checks.get(signature, ())
        self._row_inputs = [(name, t.id, t.dtype, _PLAIN.get(t.dtype)) for name, t in self.graph.inputs.items()]
        self._programs = programs
        self._sizes = sizes
        self._lengths = lengths_of(self.graph.nodes)
        stages = [node for node in self.graph.nodes if isinstance(node, DeviceStage)]
        self._counting = {stage.program: counting(stage, self._lengths) for stage in stages}

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
            InputError: A column is missing, there twice or of another type, or a value cannot be used; the column is
                named.
        """
        env: Env = {}
        for name, tensor in self.graph.inputs.items():
            env[tensor.id] = self._column(batch, name)
        for node, kernel in zip(self.graph.nodes, self._batch_kernels, strict=True):
            self._run(node, kernel, env, batch.num_rows)
        for check in self._checks:
            holds = np.asarray(env[check.tensor])
            if not holds.all():
                failed = np.flatnonzero(~holds)
                row = int(failed[0])
                shown = {name: batch.column(name)[row].as_py() for name in self._reads(check)}
                raise _failed(check, shown, f" in row {row}", len(failed) - 1)
        return {name: env[tensor] for name, tensor in self.outputs.items()}

    def row(self, row: Mapping[str, object]) -> Env:
        """Output name → one Python value or numpy array; raises as `batch`."""
        env: Env = {}
        for name, key, dtype, plain in self._row_inputs:
            if name not in row:
                raise self._absent(row)
            value = row[name]
            usual = value is None or (type(value) is plain and (plain is not int or value in INT64))
            env[key] = value if usual else as_value(value, dtype, name)
        with np.errstate(over="ignore"):  # beyond float32 is an infinity, as XLA would have it
            for step in self._row_steps:
                step(env)
        for check in self._checks:
            if not env[check.tensor]:
                raise _failed(check, {name: row[name] for name in self._reads(check)}, "", 0)
        return {name: env[tensor] for name, tensor in self.outputs.items()}

    @cached_property
    def takes_columns(self) -> bool:
        """Whether `columns` can be used: the device has the last word, on one array of 32-bit words for each row."""
        is_stage = [isinstance(node, DeviceStage) for node in self.graph.nodes]
        stages = [node for node in self.graph.nodes if isinstance(node, DeviceStage)]
        results = {tensor.id: tensor.batched for stage in stages for tensor in stage.outputs}
        return (
            not self._checks
            and is_stage == sorted(is_stage)
            and all(fits(stage) and all(BATCH in shape for _, shape in stage.slots) for stage in stages)
            and all(results.values())
            and results.keys() >= set(self.outputs.values())
        )

    @cached_property
    def _dense_widths(self) -> dict[str, tuple[int]]:
        """The columns of lists that are read as dense float32 vectors alone, and the length that these have."""
        widths: dict[str, tuple[int]] = {}
        for name in (tensor.id for tensor in self.graph.inputs.values() if tensor.dtype == "list<float64>"):
            readers = [node for node in self.graph.nodes if name in node.inputs]
            dense = [node for node in readers if isinstance(node, HostNode) and node.op == DENSE]
            of = {(node.params["dtype"], int(node.params["width"])) for node in dense}
            if len(dense) == len(readers) and len(of) == 1 and name not in self.outputs.values():
                ((dtype, width),) = of
                if dtype == "float32":
                    widths[name] = (width,)
        return widths

    def columns(self, columns: Mapping[str, Sequence[object] | NDArray[Any]], rows: int) -> Env:
        """`batch` for columns of Python values or arrays, where `takes_columns`: host ops go from row to row.

        Up to some dozens of rows this is quicker, as each call of Arrow takes as long as an op on many rows.

        Raises:
            InputError: As `batch`, though it does not say which row is meant.
        """
        env: Env = {}
        for name, key, dtype, plain in self._row_inputs:
            if name not in columns:
                raise self._absent(columns)
            values = columns[name]
            if isinstance(values, np.ndarray):
                if (
                    key in self._dense_widths
                    and values.dtype == np.float64
                    and values.shape[1:] == self._dense_widths[key]
                ):
                    env[key] = values
                    continue
                values = values.tolist()
            usual = {plain, type(None)}.issuperset(map(type, values)) and plain is not int
            env[key] = values if usual else [as_value(value, dtype, name) for value in values]
        with np.errstate(over="ignore"):  # as in `row`
            for node, kernel in zip(self.graph.nodes, self._row_kernels, strict=True):
                try:
                    if isinstance(node, DeviceStage):
                        for input_id, (dtype, _) in zip(node.inputs, node.slots, strict=True):
                            if input_id is not None:
                                env[input_id] = np.asarray(env[input_id], dtype)
                        self._device(node, env, rows)
                        continue
                    assert kernel is not None
                    read = [env[name] for name in node.inputs]
                    if isinstance(read[0], np.ndarray) and node.op == DENSE:  # what its kernel makes of each row's list
                        env[node.outputs[0].id] = read[0].astype(np.float32)
                        continue
                    results = list(map(kernel, *read))
                    several = zip(*results, strict=True) if len(node.outputs) > 1 else (results,)
                    env.update(zip((tensor.id for tensor in node.outputs), several, strict=True))
                except Exception as error:
                    raise _explained(node, error) from error
        return {name: env[tensor] for name, tensor in self.outputs.items()}

    def each(self, batch: pa.RecordBatch) -> tuple[Env, NDArray[np.int64], dict[int, InputError]]:
        """`batch`, but an unusable row fails alone: results, the rows that they are of, and errors by row.

        Raises:
            InputError: A column is missing or of another type, which is not a single row's fault.
        """
        # The whole batch first: nearly all batches have no bad row, and row by row takes many times as long.
        rows = np.arange(batch.num_rows)
        try:
            return self.batch(batch), rows, {}
        except InputError as first:
            whole = first
        errors: dict[int, InputError] = {}
        columns = {name: self._column(batch, name).to_pylist() for name in self.graph.inputs}
        for row in range(batch.num_rows):
            try:
                self.row({name: values[row] for name, values in columns.items()})
            except InputError as error:
                errors[row] = error
        if not errors:  # no row fails by itself, so it is not the rows
            raise whole
        kept = np.setdiff1d(rows, list(errors))
        return self.batch(batch.take(pa.array(kept))), kept, errors

    def _column(self, batch: pa.RecordBatch, name: str) -> pa.Array:
        index = batch.schema.get_field_index(name)
        if index < 0:
            times = batch.schema.names.count(name)
            if times > 1:
                raise InputError(f"column {name!r} is there {times} times", fix="give each column once")
            raise self._absent(batch.schema.names)
        return as_column(batch.column(index), self.graph.inputs[name].dtype, name)

    def _reads(self, check: RowCheck) -> list[str]:
        """The raw columns that a check depends on."""
        return list(self.graph.needed([check.tensor]).inputs)

    def _run(self, node: GraphNode, kernel: Kernel | None, env: Env, rows: int) -> None:
        """Run a node on a batch of `rows`."""
        try:
            if kernel is not None:
                results = kernel(*(env[name] for name in node.inputs if name is not None))
                env.update(
                    zip((t.id for t in node.outputs), results if len(node.outputs) > 1 else (results,), strict=True)
                )
            elif isinstance(node, DeviceStage):
                self._device(node, env, rows)
        except Exception as error:
            raise _explained(node, error) from error

    @cached_property
    def _row_steps(self) -> list[Callable[[Env], None]]:
        """The steps of one row. All that can be decided once is decided here: a row takes tens of microseconds."""
        return [self._row_step(node, kernel) for node, kernel in zip(self.graph.nodes, self._row_kernels, strict=True)]

    def _row_step(self, node: GraphNode, kernel: Kernel | None) -> Callable[[Env], None]:
        read = [name for name in node.inputs if name is not None]
        output_ids = [tensor.id for tensor in node.outputs]
        if isinstance(node, DeviceStage):
            # `single` compiles, so it waits for the first row (and runs once): a bundle may serve batches alone.
            names, whole, prepared = node.inputs, fits(node), cache(partial(self._programs.single, node))
            # A reference back would keep a bundle until the garbage collector comes, and a server keeps it away.
            alive = weakref.ref(self)

            def on_device(env: Env) -> None:
                try:
                    if not whole:
                        runner = alive()
                        assert runner is not None, "it is running"
                        return runner._device_row(node, env)
                    results = prepared()([0 if name is None else env[name] for name in names])
                    return env.update(zip(output_ids, results, strict=True))
                except Exception as error:
                    raise _explained(node, error) from error

            return on_device
        assert kernel is not None
        if len(read) == len(output_ids) == 1:  # most are so, and a list for one argument takes longer than most kernels
            work, (input_id,), (output_id,) = kernel, read, output_ids

            def from_one_to_one(env: Env) -> None:
                try:
                    env[output_id] = work(env[input_id])
                except Exception as error:
                    raise _explained(node, error) from error

            return from_one_to_one

        def on_host(env: Env) -> None:
            try:
                results = kernel(*[env[name] for name in read])
            except Exception as error:
                raise _explained(node, error) from error
            env.update(zip(output_ids, results if len(output_ids) > 1 else (results,), strict=True))

        return on_host

    def _absent(self, names: Collection[str]) -> InputError:
        """The error for all columns that are read and are not among these."""
        absent = [name for name in self.graph.inputs if name not in names]
        columns = f"column {absent[0]!r} is" if len(absent) == 1 else f"columns {', '.join(map(repr, absent))} are"
        return InputError(
            f"{columns} missing: {self.signature!r} reads {', '.join(self.graph.inputs)}",
            fix=("give it" if len(absent) == 1 else "give them")
            + (f" beside {', '.join(names)[:200]}" if names else ""),
        )

    def _ranges(self, stage: DeviceStage, env: Env, rows: PaddedRange, *smallest: int) -> dict[str, PaddedRange]:
        """The range of each symbolic dimension that goes to the stage at once."""
        lengths = {dim: env[name] for dim, name in self._lengths.items() if name in env}
        return padded_ranges(self._counting[stage.program], lengths, rows, *smallest)

    def _device_row(self, stage: DeviceStage, env: Env) -> None:
        """One row of a stage whose inputs are not all of a fixed number of words."""
        sizes = self._ranges(stage, env, PaddedRange(0, 1, 1))
        arrays = []
        for name, (dtype, shape) in zip(stage.inputs, stage.slots, strict=True):
            if name is None:
                arrays.append(zeros(dtype, shape, sizes))
            elif shape and shape[0] == BATCH:
                arrays.append(np.asarray([env[name]], dtype=np.dtype(dtype)))
            else:
                arrays.append(_at(np.asarray(env[name], dtype=np.dtype(dtype)), shape, sizes))
        for tensor, value in zip(stage.outputs, self._programs(stage, arrays), strict=True):
            host = np.asarray(value)
            env[tensor.id] = host[0] if tensor.batched else _cut(host, tensor.shape, sizes)

    def _device(self, stage: DeviceStage, env: Env, rows: int) -> None:
        """Run a stage in chunks of the fixed sizes and put its outputs together."""
        # An empty batch runs once too, on padding alone, so that its outputs have their dtypes and shapes.
        size = next((size for size in self._sizes if rows <= size), self._sizes[-1])
        parts: list[list[NDArray[Any]]] = []
        for start in range(0, max(rows, 1), size):
            sizes = self._ranges(stage, env, PaddedRange(start, min(start + size, rows), size), min(size, SMALL))
            arrays = [
                zeros(dtype, shape, sizes) if name is None else _at(env[name], shape, sizes)
                for name, (dtype, shape) in zip(stage.inputs, stage.slots, strict=True)
            ]
            results = self._programs(stage, arrays)
            parts.append([_cut(np.asarray(a), t.shape, sizes) for t, a in zip(stage.outputs, results, strict=True)])
        for index, tensor in enumerate(stage.outputs):
            chunks = [part[index] for part in parts]
            whole = len(chunks) == 1 or not (tensor.shape and isinstance(tensor.shape[0], str))
            env[tensor.id] = chunks[0] if whole else np.concatenate(chunks)


def _explained(node: GraphNode, error: Exception) -> DrivetrainError:
    """The error to raise for one that a node raised."""
    if isinstance(error, InputError) and error.where is None and isinstance(node, HostNode):
        return InputError(error.message, fix=error.fix, where=node.where)  # the user's line, kept in the graph
    if isinstance(error, DrivetrainError):
        return error
    return node_failed(node, error)  # what a bundle says need not fit together, and that shows in many ways


def _failed(check: RowCheck, values: Mapping[str, object], row: str, more: int) -> InputError:
    shown = ", ".join(f"{name} = {value!r:.80}" for name, value in values.items())
    others = f", and {more} rows more" if more else ""
    return InputError(
        f"check failed{row}{others}: {check.message} ({shown})",
        fix="correct the row, or the check in the preprocessing function",
        where=check.where,
    )


def _at(values: NDArray[Any], shape: tuple[str | int, ...], sizes: Mapping[str, PaddedRange]) -> NDArray[Any]:
    """The part of an array that goes to the device, filled up where its leading dimension is symbolic."""
    dim = shape[0] if shape else 0
    return filled(values, sizes[dim]) if isinstance(dim, str) else values


def _cut(values: NDArray[Any], shape: tuple[str | int, ...], sizes: Mapping[str, PaddedRange]) -> NDArray[Any]:
    """A result of the device without the padding."""
    dim = shape[0] if shape else 0
    return values[: sizes[dim].end - sizes[dim].begin] if isinstance(dim, str) else values


def as_batch(rows: object) -> pa.RecordBatch:
    """Rows as one record batch: a batch as it is, else what `table_of` takes, a DataFrame, a table, columns by name.

    Raises:
        InputError: It is none of these, or no table can be made of it; the column is named.
    """
    if isinstance(rows, pa.RecordBatch):
        return rows
    from ...data.reading.source_of import table_of  # late: servers have batches

    table = table_of(rows).combine_chunks()
    return table.to_batches()[0] if table.num_rows else pa.RecordBatch.from_pylist([], schema=table.schema)


def check_name(name: object, signatures: Collection[str]) -> None:
    """Raise InputError unless it is the name of one of the signatures."""
    if not isinstance(name, str):
        raise InputError(
            f"a signature is named by text, not by {type(name).__name__}",
            fix=f"name it first, then what it takes: one of {', '.join(signatures)}",
        )
    if name not in signatures:
        raise InputError(f"no signature {name!r:.80}", fix=f"use one of {', '.join(signatures)}")


def check_row(row: object, columns: Iterable[str]) -> None:
    """Raise InputError unless it is a mapping from column to value."""
    if not isinstance(row, Mapping):
        raise InputError(
            f"a row is a mapping from column to value, not {type(row).__name__}",
            fix=f"pass a dict of {', '.join(columns):.200}",
        )


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
