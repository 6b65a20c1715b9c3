"""What `fit` reads: batches stacked for one dispatch to the device, and sent there ahead of their use."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ....errors import InputError
from ...ragged.rows import FlatRows, bucket
from .columns import Columns, narrow, rows_in
from .dataset import Dataset, InputStep, State, Stream, measured

if TYPE_CHECKING:
    from ..loader import Loader


@dataclass(frozen=True)
class LoaderStacks(Dataset):
    """An epoch of a loader as (stack, number of batches in it); the state is the next batch's number."""

    loader: Loader
    depth: int

    @property
    def label(self) -> str:
        """In short."""
        return "read, shuffle and batch"

    def stream(self, epoch: int, state: State = None) -> Stream:
        """See `Dataset.stream`."""
        batch = state or 0
        for stack, count in self.loader.stacks(epoch, batch, self.depth):
            batch += count
            yield (stack, count), batch


@dataclass(frozen=True)
class Stacks(InputStep):
    """Batches of a dataset as (stack, number of batches in it), none of which goes on beyond `epoch_steps` batches.

    Batches of another shape begin a new stack. The state is the parent's, and how many batches of an epoch are gone.
    """

    depth: int
    epoch_steps: int

    @property
    def label(self) -> str:
        """In short."""
        return "stack"

    def stream(self, epoch: int, state: State = None) -> Stream:
        """See `Dataset.stream`."""
        at, gone = state or (None, 0)
        held: list[dict[str, Any]] = []
        before = at
        for columns, after in measured(self.parent, epoch, at):
            batch = device_batch(columns)
            if held and _shapes(batch) != _shapes(held[0]):
                yield (_stacked(held, self.depth), len(held)), [before, gone]
                held = []
            held.append(batch)
            before, gone = after, gone + 1
            if len(held) == self.depth or gone == self.epoch_steps:
                gone %= self.epoch_steps
                yield (_stacked(held, self.depth), len(held)), [before, gone]
                held = []
        if held:
            yield (_stacked(held, self.depth), len(held)), [before, gone]


@dataclass(frozen=True)
class OnDevice(InputStep):
    """Stacks sent to the devices by `feed`."""

    feed: Callable[[Any], Any]

    @property
    def label(self) -> str:
        """In short."""
        return "to device"

    def stream(self, epoch: int, state: State = None) -> Stream:
        """See `Dataset.stream`."""
        for (stack, count), after in measured(self.parent, epoch, state):
            yield (self.feed(stack), count), after


def device_batch(columns: Columns) -> dict[str, Any]:
    """A batch as a device takes it: arrays of at most 32 bits, lists as `Ragged` in the smallest bucket.

    Raises:
        InputError: It has no rows, or a column that is no numbers or does not fit 32 bits.
    """
    if not isinstance(columns, dict) or not rows_in(columns):
        raise InputError("the dataset gave a batch without rows", fix="end it by batch(…)")
    batch: dict[str, Any] = {}
    for name, column in columns.items():
        if not isinstance(column, FlatRows):
            batch[name] = narrow(column, name)
            continue
        from ...ragged.ragged import Ragged  # late: it is a pytree, and other batches need no JAX

        lists = FlatRows(narrow(column.values, name), column.splits)
        batch[name] = Ragged(*lists.padded(bucket(len(lists.values))), len(lists))
    return batch


def _shapes(batch: dict[str, Any]) -> list[tuple[str, tuple[int, ...]]]:
    """Shapes by name, of a `Ragged` those of its values."""
    return [(name, getattr(column, "values", column).shape) for name, column in batch.items()]


def _stacked(batches: list[dict[str, Any]], depth: int) -> dict[str, Any]:
    """Arrays [depth, batch, …]; zeros where there are fewer batches."""
    stack: dict[str, Any] = {}
    for name, column in batches[0].items():
        if isinstance(column, np.ndarray):
            stack[name] = _filled([batch[name] for batch in batches], depth)
            continue
        from ...ragged.ragged import Ragged

        values = _filled([batch[name].values for batch in batches], depth)
        ids = _filled([batch[name].segment_ids for batch in batches], depth, column.rows)
        stack[name] = Ragged(values, ids, column.rows)
    return stack


def _filled(arrays: list[Any], depth: int, value: int = 0) -> Any:
    whole = np.full((depth, *arrays[0].shape), value, arrays[0].dtype)
    for number, array in enumerate(arrays):
        whole[number] = array
    return whole
