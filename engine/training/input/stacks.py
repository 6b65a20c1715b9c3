"""What `fit` reads: batches stacked for one dispatch to the device, and sent there ahead of their use."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from ....errors import InputError
from ...ragged.rows import FlatRows, bucket
from .columns import Columns, narrow, rows_in
from .dataset import Dataset, InputStep, State, Stream, measured, parts_of, row_of

if TYPE_CHECKING:
    from ..loader import Loader


class TrainingInput(Protocol):
    """What `fit` trains on."""

    @property
    def steps(self) -> int:
        """Batches of an epoch."""
        ...

    @property
    def rows(self) -> int | None:
        """Rows of an epoch, None where that is not known."""
        ...

    @property
    def batch_size(self) -> int:
        """Rows of a batch."""
        ...

    def stacks(self, depth: int, epochs: int) -> Dataset:
        """Up to `depth` batches at a time, epoch after epoch, none across the end of one."""
        ...

    def state(self, step: int, saved: State) -> State:
        """Of `stacks` after so many steps, with what `saved` gave of the state then."""
        ...

    def saved(self, state: State) -> dict[str, State]:
        """What a checkpoint must know of a state beside the number of steps."""
        ...

    @property
    def plan(self) -> dict[str, str]:
        """What must be the same in a training that goes on."""
        ...

    def batch(self, step: int, state: State, number: int) -> dict[str, Any]:
        """The batch of a step, the `number`-th after a state of `stacks`."""
        ...


@dataclass(frozen=True)
class LoaderInput:
    """The examples in the order of a loader, where the number of a step says all."""

    loader: Loader

    @property
    def steps(self) -> int:
        """See `TrainingInput`."""
        return self.loader.batches

    @property
    def rows(self) -> int:
        """See `TrainingInput`."""
        return self.loader.rows

    @property
    def batch_size(self) -> int:
        """See `TrainingInput`."""
        return self.loader.batch_size

    def stacks(self, depth: int, epochs: int) -> Dataset:
        """See `TrainingInput`."""
        return LoaderStacks(self.loader, depth).repeat(epochs)

    def state(self, step: int, saved: State) -> State:
        """See `TrainingInput`."""
        return list(divmod(step, self.steps))

    def saved(self, state: State) -> dict[str, State]:
        """See `TrainingInput`."""
        return {}

    @property
    def plan(self) -> dict[str, str]:
        """See `TrainingInput`."""
        return {}

    def batch(self, step: int, state: State, number: int) -> dict[str, Any]:
        """See `TrainingInput`."""
        return next(self.loader.epoch(*divmod(step, self.steps)))


@dataclass(frozen=True)
class DatasetInput:
    """A user's dataset of batches, whose states say where it goes on."""

    dataset: Dataset
    steps: int
    batch_size: int

    @classmethod
    def of(cls, dataset: Dataset, steps: int | None) -> DatasetInput:
        """With as many steps as it has batches, or as are wanted.

        Raises:
            InputError: It gives no batches, or how many it has is not known.
        """
        if dataset.batch_size is None:
            raise InputError(f"the dataset gives no batches of one size: {dataset}", fix="end it by batch(…)")
        if steps is not None and steps < 1:
            raise InputError(f"steps_per_epoch is {steps}", fix="use 1 or more")
        if steps is None and dataset.steps is None:
            raise InputError(f"how many batches an epoch has is not known of {dataset}", fix="add steps_per_epoch=…")
        steps = dataset.steps if steps is None else steps
        if not steps:
            raise InputError(
                f"the dataset gives no batch of {dataset.batch_size} rows: {dataset}",
                fix="make its batches smaller, or use drop_remainder=False",
            )
        return cls(dataset, steps, dataset.batch_size)

    @property
    def rows(self) -> int | None:
        """See `TrainingInput`."""
        return self.dataset.rows

    def stacks(self, depth: int, epochs: int) -> Dataset:
        """See `TrainingInput`."""
        return Stacks(self.dataset.repeat(), depth, self.steps, epochs)

    def state(self, step: int, saved: State) -> State:
        """See `TrainingInput`."""
        return saved

    def saved(self, state: State) -> dict[str, State]:
        """See `TrainingInput`."""
        return {"data": state}

    @property
    def plan(self) -> dict[str, str]:
        """See `TrainingInput`."""
        return {"data": str(self.dataset)}

    def batch(self, step: int, state: State, number: int) -> dict[str, Any]:
        """See `TrainingInput`."""
        batches: Any = self.dataset.repeat().stream(0, None if state is None else state[0])
        with closing(batches):
            return device_batch(next(islice(batches, number, None))[0])


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
        batch = row_of(state, self.loader.batches)
        for stack, count in self.loader.stacks(epoch, batch, self.depth):
            batch += count
            yield (stack, count), batch


@dataclass(frozen=True)
class Stacks(InputStep):
    """Batches of a dataset as (stack, number of batches in it), in `epochs` of `epoch_steps` batches; None: all.

    No stack goes on beyond the end of an epoch. Batches of another shape or dtype begin a new one. The state is
    the parent's, and the number of batches that are gone.
    """

    depth: int
    epoch_steps: int | None = None
    epochs: int = 1

    @property
    def label(self) -> str:
        """In short."""
        return "stack"

    def stream(self, epoch: int, state: State = None) -> Stream:
        """See `Dataset.stream`."""
        at, gone = parts_of(state, (None, 0))
        end = None if self.epoch_steps is None else self.epochs * self.epoch_steps
        held: list[dict[str, Any]] = []
        with closing(measured(self.parent, epoch, at)) as batches:
            while gone != end and (item := next(batches, None)) is not None:
                batch = device_batch(item[0])
                if held and _shapes(batch) != _shapes(held[0]):
                    yield (_stacked(held, self.depth), len(held)), [at, gone]
                    held = []
                held.append(batch)
                at, gone = item[1], gone + 1
                if len(held) == self.depth or (self.epoch_steps and gone % self.epoch_steps == 0):
                    yield (_stacked(held, self.depth), len(held)), [at, gone]
                    held = []
        if held:
            yield (_stacked(held, self.depth), len(held)), [at, gone]


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
        with closing(measured(self.parent, epoch, state)) as stacks:
            for (stack, count), after in stacks:
                yield (self.feed(stack), count), after


def device_batch(columns: Columns) -> dict[str, Any]:
    """A batch as a device takes it: arrays of at most 32 bits, lists as `Ragged` in the smallest bucket.

    Raises:
        InputError: It has no rows, or a column that is no numbers or does not fit 32 bits.
    """
    if not rows_in(columns):
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


def _shapes(batch: dict[str, Any]) -> list[tuple[str, tuple[int, ...], np.dtype[Any]]]:
    """Shapes and dtypes by name, of a `Ragged` those of its values."""
    arrays = {name: getattr(column, "values", column) for name, column in batch.items()}
    return [(name, array.shape, array.dtype) for name, array in arrays.items()]


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
    whole = np.empty((depth, *arrays[0].shape), arrays[0].dtype)
    np.stack(arrays, out=whole[: len(arrays)])
    whole[len(arrays) :] = value
    return whole
