"""Batches for training: transformed Examples as numpy arrays, shuffled through a window, resumable at any batch."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ...data import open_examples
from ...errors import InputError
from ..graphs.graph import FieldSpec
from ..ragged.rows import FlatRows, bucket, joined, read_lists
from .input.columns import Columns, joined_columns, rows_in, taken

WINDOW_BYTES = 128 * 2**20
# Devices compute in 32 bits by default. Narrowing is checked here; on the device it would wrap silently.
_NARROW = {"float64": "float32", "int64": "int32", "uint64": "uint32"}

Array = npt.NDArray[Any]  # Any: one batch holds arrays of several dtypes
Batch = dict[str, Any]  # Any: an array, or a `Ragged` where the feature is a list per row


class Loader:
    """Batches of one split of transformed examples, in a random order fixed by the seed and the epoch.

    Row groups are dealt in random order into windows of at most `window_bytes` (or one row group, if that is larger),
    and the rows of a window are shuffled together; data that fits into one window is read once and shuffled as a
    whole. Memory is bounded by one window and one row group. Every row comes once per epoch, except the last
    `rows % batch_size` of the order, which are left out so that all batches have one shape; they are different rows
    in every epoch. The state is (seed, epoch, batch): any batch can be reached without the ones before it.

    A feature with a list per row (`FieldSpec("list<int64>")`) comes as a `Ragged` in the smallest bucket that holds
    every batch of the epoch. So its size depends on data, seed and epoch alone, not on where a resumed run begins, and
    hardly ever changes between epochs; the lengths that it follows from are read once, before the first batch.

    Attributes:
        rows: Rows in the split.
        batches: Batches per epoch.
    """

    def __init__(
        self,
        content: Path,
        split: str,
        features: Mapping[str, FieldSpec],
        *,
        batch_size: int,
        seed: int = 0,
        shuffle: bool = True,
        window_bytes: int = WINDOW_BYTES,
    ) -> None:
        """Look at the files, read no rows.

        Args:
            content: The content folder of an Examples artifact.
            split: Name of the split.
            features: The columns wanted.
            batch_size: Rows per batch.
            seed: Of the order.
            shuffle: False gives the rows as they are stored, in every epoch.
            window_bytes: How much decoded data is shuffled together.

        Raises:
            InputError: There is no such split or column, or the split has fewer rows than one batch.
        """
        if batch_size < 1:
            raise InputError(f"batch_size is {batch_size}", fix="use 1 or more")
        if seed < 0:
            raise InputError(f"seed is {seed}", fix="use 0 or more")
        self.split, self.features, self.batch_size, self.seed, self.shuffle = split, features, batch_size, seed, shuffle
        if not features:
            raise InputError("there are no features to train on", fix="return columns from preprocess")
        self._content = content
        self._source = open_examples(content, split, features)
        self._sizes = [shard.rows for shard in self._source.shards]
        self.rows = sum(self._sizes)
        if self.rows < batch_size:
            raise InputError(
                f"split {split!r} has {self.rows} rows, fewer than one batch of {batch_size}",
                fix=f"set batch_size to {self.rows} or less" if self.rows else "look at the split of ExampleGen",
            )
        self.batches = self.rows // batch_size
        self._window_bytes = window_bytes

    def epoch(self, epoch: int, start: int = 0) -> Iterator[Batch]:
        """The batches of an epoch from number `start` on: arrays of shape [batch_size, *feature shape] by name.

        Lists are `Ragged` of batch_size rows.

        Raises:
            InputError: A column holds missing values or text, or integers that need 64 bits.
        """
        capacities = self._capacities(epoch)
        for block in self._blocks(epoch, start * self.batch_size, self.batch_size):
            yield {
                name: _ragged(column, capacities[name]) if isinstance(column, FlatRows) else column
                for name, column in block.items()
            }

    def stacks(self, epoch: int, start: int, depth: int) -> Iterator[tuple[Batch, int]]:
        """The same batches, up to `depth` of them stacked: arrays [depth, batch_size, *feature shape], and how many.

        The leaves of a `Ragged` are [depth, capacity, …]. Where fewer than `depth` are left in the epoch the rest is
        zeros, and rows without values.
        """
        capacities = self._capacities(epoch)
        for block in self._blocks(epoch, start * self.batch_size, depth * self.batch_size):
            rows = len(next(iter(block.values())))
            stack: Batch = {}
            for name, column in block.items():
                if isinstance(column, FlatRows):
                    stack[name] = self._stacked(column, capacities[name], depth)
                else:
                    whole = _padded(column, depth * self.batch_size)
                    stack[name] = whole.reshape(depth, self.batch_size, *whole.shape[1:])
            yield stack, rows // self.batch_size

    def _stacked(self, column: FlatRows, capacity: int, depth: int) -> Any:  # a Ragged
        size = self.batch_size
        none = FlatRows(column.values[:0], np.zeros(size + 1, np.int64))
        parts = [column[begin : begin + size] for begin in range(0, len(column), size)]
        padded = [part.padded(capacity) for part in [*parts, *[none] * (depth - len(parts))]]
        return _as_ragged(np.stack([values for values, _ in padded]), np.stack([ids for _, ids in padded]), size)

    def _capacities(self, epoch: int) -> dict[str, int]:
        """For each ragged feature the bucket of the fullest batch of the epoch."""
        if not self._lengths:
            return {}
        begins = np.cumsum([0, *self._sizes])
        stored = np.concatenate(
            [
                np.concatenate([np.arange(begins[shard], begins[shard + 1]) for shard in window])[order]
                for window, order in self._orders(epoch)
            ]
        )[: self.batches * self.batch_size]
        return {
            name: bucket(int(lengths[stored].reshape(self.batches, self.batch_size).sum(axis=1).max()))
            for name, lengths in self._lengths.items()
        }

    @cached_property
    def _lengths(self) -> dict[str, npt.NDArray[np.int64]]:
        """How many values each row of each ragged feature has, in stored order; read once."""
        ragged = {name: spec for name, spec in self.features.items() if spec.ragged}
        if not ragged:
            return {}
        source = open_examples(self._content, self.split, ragged)
        parts: dict[str, list[npt.NDArray[np.int64]]] = {name: [] for name in ragged}
        for shard in range(len(source.shards)):
            for batch in source.read(shard):
                for name, spec in ragged.items():
                    parts[name].append(_lists(batch.column(name), name, spec, sum(map(len, parts[name]))).lengths)
        return {name: np.concatenate(lengths) for name, lengths in parts.items()}

    @cached_property
    def _window_rows(self) -> int:
        row_bytes = 0.0
        for name, spec in self.features.items():
            each = device_dtype(spec).itemsize * math.prod(spec.shape)
            row_bytes += each * (self._lengths[name].mean() if spec.ragged else 1)
        return max(1, int(self._window_bytes / max(1, row_bytes)))

    def _blocks(self, epoch: int, position: int, size: int) -> Iterator[Columns]:
        """Consecutive blocks of `size` rows, the last one shorter, of the epoch's order from row `position` on."""
        end = self.batches * self.batch_size
        begin = 0  # of the window, in rows of the epoch
        parts: list[Columns] = []
        for window, order in self._orders(epoch):
            rows = len(order)
            if begin + rows > position:
                table = self._whole if rows == self.rows else self._read(window)
                while position < min(begin + rows, end):
                    missing = size - sum(map(rows_in, parts))
                    take = order[position - begin :][: min(missing, end - position)]
                    parts.append(taken(table, take))
                    position += len(take)
                    if len(take) == missing or position == end:
                        yield joined_columns(parts)
                        parts = []
                del table  # before the next window is read
            begin += rows

    def _orders(self, epoch: int) -> Iterator[tuple[list[int], npt.NDArray[np.int64]]]:
        """Each window of the epoch with the order of its rows, numbered as its shards store them."""
        for number, window in enumerate(self._windows(epoch)):
            rows = sum(self._sizes[shard] for shard in window)
            yield window, self._random(epoch, 1 + number).permutation(rows) if self.shuffle else np.arange(rows)

    def _windows(self, epoch: int) -> list[list[int]]:
        """The shards (row groups) of each window; inside a window they keep their stored order."""
        count = len(self._sizes)
        order = self._random(epoch, 0).permutation(count) if self.shuffle else np.arange(count)
        windows: list[list[int]] = []
        room = 0
        for shard in order.tolist():
            if self._sizes[shard] > room:
                windows.append([])
                room = self._window_rows
            windows[-1].append(shard)
            room -= self._sizes[shard]
        return [sorted(window) for window in windows]

    def _random(self, epoch: int, stream: int) -> np.random.Generator:
        # A generator of its own for each window of each epoch: a resumed run draws no numbers for what it skips.
        return np.random.Generator(np.random.Philox(np.random.SeedSequence([self.seed, epoch, stream])))

    @cached_property
    def _whole(self) -> Columns:
        """All rows, kept: only used where one window holds them."""
        return self._read(range(len(self._sizes)))

    def _read(self, shards: Iterable[int]) -> Columns:
        chosen = list(shards)
        rows = sum(self._sizes[shard] for shard in chosen)
        table = {
            name: np.empty((rows, *spec.shape), device_dtype(spec))
            for name, spec in self.features.items()
            if not spec.ragged
        }
        lists: dict[str, list[FlatRows]] = {name: [] for name, spec in self.features.items() if spec.ragged}
        begin = 0
        for shard in chosen:
            first = sum(self._sizes[:shard])
            for batch in self._source.read(shard):
                for name, spec in self.features.items():
                    if spec.ragged:
                        lists[name].append(_lists(batch.column(name), name, spec, first))
                    else:
                        table[name][begin : begin + batch.num_rows] = stored_values(batch.column(name), name, spec)
                begin += batch.num_rows
                first += batch.num_rows
        return {name: joined(lists[name]) if spec.ragged else table[name] for name, spec in self.features.items()}


def device_dtype(spec: FieldSpec) -> np.dtype[Any]:
    """The dtype in a batch, of a list's values: 64-bit numbers become 32-bit ones."""
    return np.dtype(_NARROW.get(spec.value_dtype, spec.value_dtype))


def zeros(features: Mapping[str, FieldSpec], rows: int) -> Batch:
    """A batch of zeros, of rows without values where a feature is a list."""
    batch: Batch = {}
    for name, spec in features.items():
        values = np.zeros((0 if spec.ragged else rows, *spec.shape), device_dtype(spec))
        batch[name] = _ragged(FlatRows(values, np.zeros(rows + 1, np.int64)), 1) if spec.ragged else values
    return batch


def _ragged(rows: FlatRows, capacity: int) -> Any:  # a Ragged
    return _as_ragged(*rows.padded(capacity), len(rows))


def _as_ragged(values: Array, segment_ids: Array, rows: int) -> Any:  # a Ragged
    from ..ragged.ragged import Ragged  # late: it is a pytree, and batches without lists need no JAX

    return Ragged(values, segment_ids, rows)


def _lists(array: pa.Array, name: str, spec: FieldSpec, first_row: int) -> FlatRows:
    return read_lists(array, name, device_dtype(spec).name, spec.shape, first_row=first_row)


def _padded(array: Array, rows: int) -> Array:
    if len(array) == rows:
        return array
    whole = np.zeros((rows, *array.shape[1:]), array.dtype)
    whole[: len(array)] = array
    return whole


def stored_values(array: pa.Array, name: str, spec: FieldSpec) -> Array:
    """A column as an array [rows, *shape] of its device dtype."""
    rows = len(array)
    missing = array.null_count
    ragged = False
    while pa.types.is_nested(array.type) and not pa.types.is_struct(array.type):
        lengths = np.unique(pc.list_value_length(array.drop_null()).to_numpy(zero_copy_only=False))
        ragged = ragged or len(lengths) > 1
        array = array.flatten()
        missing += array.null_count
    if missing:
        raise InputError(
            f"feature {name!r} has {missing} missing values",
            fix="fill them in preprocess (ops.fill_missing); raw examples are to be transformed first",
        )
    if not (pa.types.is_integer(array.type) or pa.types.is_floating(array.type) or pa.types.is_boolean(array.type)):
        raise InputError(
            f"feature {name!r} is of type {array.type}, not numbers",
            fix="turn it into ids in preprocess (ops.vocabulary) or leave it out; or give Trainer the transformed "
            "examples, if these are raw",
        )
    values: Array = array.to_numpy(zero_copy_only=False)
    if ragged or len(values) != rows * math.prod(spec.shape):
        raise InputError(
            f"feature {name!r} holds {len(values)} values in {rows} rows, not {list(spec.shape)} each",
            fix="give every row a value of the same shape in preprocess",
        )
    target = device_dtype(spec)
    if values.dtype.kind in "iu" and target.kind in "iu" and len(values):
        limits = np.iinfo(target)
        if values.min() < limits.min or values.max() > limits.max:
            raise InputError(
                f"feature {name!r} holds integers that do not fit {target}",
                fix="cast it to float32 or look it up in a vocabulary in preprocess",
            )
    with np.errstate(over="ignore"):  # beyond float32 is an infinity, as in a list
        return values.astype(target, copy=False).reshape(rows, *spec.shape)
