"""Dataset: an immutable chain of steps, each of which gives its elements with the state from which the rest follows."""

from __future__ import annotations

import threading
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

import numpy as np

from ....errors import InputError
from .columns import Columns, joined_columns, rows_in, taken

if TYPE_CHECKING:
    from .batches import Bucketed, Padded

State = Any
"""JSON: where a step goes on. None is the beginning."""
Element = Any
"""What a step gives: mostly `Columns`."""
Stream = Iterator[tuple[Element, State]]


class Dataset:
    """Rows by column, block after block, in an order fixed by the data, the steps and the epoch.

    A dataset is a value: a method returns another one with a step more, and reads nothing. Where blocks begin and end
    is nobody's business before `batch`, which cuts them anew; what steps before it do must not depend on it.

    A step is a subclass with `stream`. The state goes along with each element, so a step that runs ahead (a prefetch,
    workers) hands out exact states without knowing how.

    Attributes:
        rows: Rows of an epoch, None where only a pass would tell.
        batch_size: Rows of each element, None where they differ.
    """

    rows: int | None = None
    batch_size: int | None = None
    waits = False
    """Whether its time is spent waiting for a thread."""

    def stream(self, epoch: int, state: State = None) -> Stream:
        """The elements of an epoch, each with the state after it; from the beginning, or after such a state."""
        raise NotImplementedError

    @property
    def label(self) -> str:
        """The step in short, as errors and reports name it."""
        raise NotImplementedError

    @property
    def parents(self) -> Sequence[Dataset]:
        """The datasets it reads."""
        return ()

    def __str__(self) -> str:
        """All steps, from the source on."""
        return " > ".join([*map(str, self.parents), self.label])

    def __iter__(self) -> DatasetIterator:
        return self.iterator()

    def iterator(self, state: Mapping[str, State] | None = None) -> DatasetIterator:
        """The elements, from the beginning or from what `DatasetIterator.state` gave.

        Raises:
            InputError: The state is of other steps.
        """
        return DatasetIterator(self, state)

    @property
    def steps(self) -> int | None:
        """Elements of an epoch, where that is known of batches."""
        if self.rows is None or self.batch_size is None:
            return None
        return -(-self.rows // self.batch_size)

    # The steps. Each stands in a module of its own, loaded when it is used.

    def map(
        self,
        fn: Callable[..., Mapping[str, Any]],
        *,
        by_row: bool = False,
        seed: int | None = None,
        workers: int = 0,
        timeout: float | None = None,
    ) -> Dataset:
        """`fn` of each block: columns from columns, as many rows as before.

        Args:
            fn: Takes columns by name, arrays [rows, …]; with `by_row` the values of one row. Before `batch` it must
                treat each row by itself.
            by_row: Call it for each row; slower for what numpy does on whole columns, apt for images.
            seed: Pass `fn` a `numpy.random.Generator` as a second argument, another one for each block of each epoch.
            workers: Call it in as many processes, where it stands at the top level of a module; the order stays.
            timeout: Seconds that a worker may take for a block, its start included; then it is ended, which is an
                error.
        """
        from .maps import Mapped

        return Mapped(self, fn, by_row, seed, workers, timeout)

    def filter(self, fn: Callable[[Mapping[str, Any]], Any]) -> Dataset:
        """The rows for which `fn` of their block is true: bool [rows] from columns."""
        from .maps import Filtered

        return Filtered(self, fn)

    def select(self, *names: str) -> Dataset:
        """These columns alone, in this order."""
        from .maps import Selected

        return Selected(self, names)

    def shard(self, index: int, count: int) -> Dataset:
        """Every `count`-th row from row `index` on: one of `count` parts, disjoint and complete."""
        from .maps import Sharded

        return Sharded(self, index, count)

    def shuffle(self, seed: int, *, window: int | None = None) -> Dataset:
        """The rows in another order in each epoch.

        Args:
            seed: Of the order.
            window: Rows that are shuffled together and held in memory, window after window; files' row groups come in
                random order too. None shuffles all rows by index, which takes a dataset whose rows can be reached by
                number: arrays, or `cache`.
        """
        from .shuffling import shuffled

        return shuffled(self, seed, window)

    def batch(self, size: int, *, drop_remainder: bool = True) -> Dataset:
        """Blocks of exactly `size` rows; a shorter last one of an epoch is left out, or kept where wanted."""
        from .batches import Batched

        return Batched(self, size, drop_remainder)

    def pad(self, length: int | None = None, *names: str, value: float = 0, overlong: str = "error") -> Padded:
        """Lists as arrays [rows, length], filled up with `value`; `NAME_length` says how many are real.

        Args:
            length: Of each row; None: that of the longest of the batch, rounded up to a power of two.
            names: The columns; none are all that have lists.
            value: What fills up.
            overlong: What becomes of longer rows: "error", or "truncate".
        """
        from .batches import Padded

        return Padded(self, length, names, value, overlong)

    def bucket(self, name: str, boundaries: Sequence[int], *, batch_size: int, window: int, seed: int) -> Bucketed:
        """Batches of rows of like length, so that padding wastes little.

        Of each `window` batches the rows are ordered by the bucket of their length, cut into batches, and these are
        shuffled. A following `pad` fills each up to the smallest boundary that holds its longest row.

        Args:
            name: The column of lists whose lengths count.
            boundaries: Lengths, ascending; no row may be longer than the last.
            batch_size: Rows of each batch; what fills none at the end of an epoch is left out.
            window: Batches that are cut together.
            seed: Of the order of batches.
        """
        from .batches import Bucketed

        return Bucketed(self, name, tuple(boundaries), batch_size, window, seed)

    def pack(self, *names: str, length: int, window: int = 4096) -> Dataset:
        """Several sequences in each row of `length`, so that hardly any padding is computed.

        Each row of the result has `NAME` [length], and for the first of the columns `segment_ids` [length] (1 for its
        first sequence, 0 in empty slots) and `positions` [length], as attention masks want them.

        Args:
            names: Columns of lists, equally long in each row.
            length: Slots of a row; no sequence may be longer.
            window: Sequences that are packed together, by best fit.
        """
        from .packing import Packed

        return Packed(self, names, length, window)

    def repeat(self, epochs: int | None = None) -> Dataset:
        """The epochs one after another, without a seam where `batch` comes after; None never ends."""
        from .repeating import Repeated

        return Repeated(self, epochs)

    def cache(self, folder: Path | str | None = None) -> Dataset:
        """The rows kept after one pass: in memory, or as files that are mapped into memory, not loaded.

        What comes before is computed once, for the first epoch. Rows can then be reached by number, so that
        `shuffle(seed)` needs no window.
        """
        from .caching import Cached

        return Cached(self, None if folder is None else Path(folder))

    def prefetch(self, count: int = 2) -> Dataset:
        """Up to `count` elements made ready in a thread, while the ones before are used."""
        from .prefetching import Prefetched

        return Prefetched(self, count)


@dataclass(frozen=True)
class InputStep(Dataset):
    """A step after one dataset, with as many rows in batches of the same size, where it does not say otherwise."""

    parent: Dataset

    @property
    def parents(self) -> Sequence[Dataset]:
        """The one before."""
        return (self.parent,)

    @property
    def rows(self) -> int | None:  # type: ignore[override]  # computed, not stored
        """As before."""
        return self.parent.rows

    @property
    def batch_size(self) -> int | None:  # type: ignore[override]  # as above
        """As before."""
        return self.parent.batch_size


class UncountedStep(InputStep):
    """A step that gives as many rows, in batches as large, as the data has it."""

    @property
    def rows(self) -> int | None:  # type: ignore[override]  # as above
        """Not known."""
        return None

    @property
    def batch_size(self) -> int | None:  # type: ignore[override]  # as above
        """They differ."""
        return None


class DatasetIterator:
    """The elements of a dataset, and at any moment the state from which the rest comes again, bit by bit."""

    def __init__(self, dataset: Dataset, state: Mapping[str, State] | None = None) -> None:
        """Nothing is read yet."""
        self._dataset = dataset
        self._stream: Any = None  # mostly a generator
        self._at: State = None
        self.restore({"dataset": str(dataset), "at": None} if state is None else state)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Element:
        element, self._at = next(self._stream)
        return element

    def state(self) -> dict[str, State]:
        """JSON, small: after the last element taken, whatever was prefetched."""
        return {"dataset": str(self._dataset), "at": self._at}

    def restore(self, state: Mapping[str, State]) -> None:
        """Go on after a state.

        Raises:
            InputError: It is of other steps, or no such state.
        """
        body: object = state  # a person may have changed it
        if not isinstance(body, Mapping) or "at" not in body:
            raise damaged(state)
        if state.get("dataset") != str(self._dataset):
            raise InputError(
                f"the state is of another dataset: {state.get('dataset')}, here {self._dataset}",
                fix="build the dataset by the same steps with the same arguments",
            )
        self.close()
        self._at = state["at"]
        self._stream = self._dataset.stream(0, self._at)

    def close(self) -> None:
        """End threads and processes of the steps; an iterator that is dropped does too."""
        if self._stream is not None:
            self._stream.close()


class Cursor:
    """Rows of a dataset taken in any number, across its blocks.

    Its state is the dataset's before the block under way, and how many of that block's rows are gone.
    """

    def __init__(self, dataset: Dataset, epoch: int, state: State = None) -> None:
        """At the beginning, or after such a state."""
        self._before: State
        self._gone: int
        self._before, self._gone = parts_of(state, (None, 0))
        self._blocks = measured(dataset, epoch, self._before)
        self._block: Columns | None = None
        self._after: State = None

    @property
    def state(self) -> State:
        """After the rows taken so far."""
        return [self._before, self._gone]

    def take(self, count: int) -> Columns | None:
        """The next `count` rows, fewer at the end, None where none is left."""
        parts: list[Columns] = []
        while count:
            if self._block is None:
                self._block, self._after = next(self._blocks, (None, None))
                if self._block is None:
                    break
            size = rows_in(self._block)
            if self._gone > size:
                raise damaged(self.state)
            part = taken(self._block, slice(self._gone, min(size, self._gone + count)))
            if rows := rows_in(part):
                parts.append(part)
            self._gone += rows
            count -= rows
            if self._gone >= size:
                self._before, self._gone, self._block = self._after, 0, None
        return joined_columns(parts) if parts else None

    def close(self) -> None:
        """End what the dataset has running."""
        self._blocks.close()


def parts_of(state: State, begin: Sequence[State]) -> Sequence[State]:
    """The parts of a step's state; None is the beginning.

    Args:
        state: A state that the step gave, or what became of it.
        begin: The parts at the beginning: a number stands where one of 0 or more does, a list where a list does.

    Raises:
        InputError: The state has other parts.
    """
    if state is None:
        return begin
    if not isinstance(state, Sequence) or len(state) != len(begin):
        raise damaged(state)
    for part, first in zip(state, begin, strict=True):
        if isinstance(first, list) and not isinstance(part, list):
            raise damaged(state)
        if isinstance(first, int) and (type(part) is not int or part < 0):
            raise damaged(state)
    return state


def row_of(state: State, rows: int) -> int:
    """The number of the next row, where that is all of a state.

    Raises:
        InputError: It is no number, or there are fewer rows.
    """
    row: int = parts_of(None if state is None else [state], (0,))[0]
    if row > rows:
        raise damaged(state)
    return row


def damaged(state: object) -> InputError:
    """The error of a state that no step gave."""
    return InputError(
        f"no dataset is ever at the state {state!r:.200}",
        fix="use what DatasetIterator.state() gave, unchanged and with the same data; or begin without a state",
    )


def check_seed(seed: object) -> None:
    """Refuse what NumPy takes for no seed.

    Raises:
        InputError: It is below 0, or no whole number.
    """
    if seed is not None and (not isinstance(seed, int | np.integer) or seed < 0):
        raise InputError(f"seed is {seed!r:.80}", fix="use a whole number, 0 or more")


def random_for(step: Dataset, seed: int, epoch: int, number: int) -> np.random.Generator:
    """The random numbers of one element of a step: they follow from nothing else, so none are drawn for those before.

    Steps with the same seed draw different ones.
    """
    name = zlib.crc32(step.label.encode())
    return np.random.Generator(np.random.Philox(np.random.SeedSequence([seed, epoch, number, name])))


class StepTimes:
    """How long each step works, by label, without the steps before it; and which are at work now.

    Attributes:
        seconds: By label.
    """

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._at_work: dict[int, list[tuple[str | None, float]]] = {}  # by thread: each asked by the step before it

    @contextmanager
    def working(self, label: str | None) -> Iterator[None]:
        """While it is open a step is asked for an element; None where it only waits for those of another thread."""
        steps = self._at_work.setdefault(threading.get_ident(), [])
        steps.append((label, time.perf_counter()))
        try:
            yield
        finally:
            steps.pop()

    def at_work(self) -> tuple[str, float] | None:
        """The step that has been at work on an element for longest, and for how many seconds."""
        innermost = [step for steps in list(self._at_work.values()) for step in steps[-1:]]  # others change them now
        began = [(since, label) for label, since in innermost if label is not None]
        if not began:
            return None
        since, label = min(began)
        return label, time.perf_counter() - since


_TIMES: Final[ContextVar[StepTimes | None]] = ContextVar("times of the steps", default=None)
_under_way = threading.local()


@contextmanager
def step_times() -> Iterator[StepTimes]:
    """While it is open, the times of all steps that begin, also in their threads."""
    times = StepTimes()
    token = _TIMES.set(times)
    try:
        yield times
    finally:
        _TIMES.reset(token)


def measured(dataset: Dataset, epoch: int, state: State = None) -> Any:  # a generator, which can be closed
    """`dataset.stream`, with its seconds noted."""
    stream = dataset.stream(epoch, state)
    times = _TIMES.get()
    return stream if times is None else _noted(stream, None if dataset.waits else dataset.label, times)


def _noted(stream: Any, label: str | None, times: StepTimes) -> Stream:
    try:
        while True:
            outer, _under_way.inner = getattr(_under_way, "inner", 0.0), 0.0
            begin = time.perf_counter()
            try:
                with times.working(label):
                    item = next(stream, None)
            finally:
                whole = time.perf_counter() - begin
                if label is not None:
                    times.seconds[label] = times.seconds.get(label, 0.0) + whole - _under_way.inner
                _under_way.inner = outer + whole
            if item is None:
                return
            held = [item]
            del item
            yield held.pop()  # and keep nothing of it: who takes it says when it goes
    finally:
        stream.close()
