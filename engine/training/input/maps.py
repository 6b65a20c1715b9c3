"""What a user's function makes of rows: map, filter; and which rows and columns are wanted at all."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass, fields, is_dataclass
from functools import partial
from typing import Any

import numpy as np

from ....errors import InputError, suggest
from ....user_code import mistakes_named
from .columns import Columns, checked, row_by_row, rows_in, taken
from .dataset import InputStep, State, Stream, UncountedStep, check_seed, measured, parts_of, random_for


@dataclass(frozen=True)
class Mapped(InputStep):
    """See `Dataset.map`. Its state is the parent's, and the number of the next row."""

    fn: Callable[..., Mapping[str, Any]]
    by_row: bool = False
    seed: int | None = None
    workers: int = 0
    timeout: float | None = None

    def __post_init__(self) -> None:
        check_seed(self.seed)
        if self.workers < 0:
            raise InputError(f"{self.label} in {self.workers} workers", fix="use 0 for this process, or more")
        if self.timeout is not None and not self.timeout > 0:
            raise InputError(f"{self.label} with a timeout of {self.timeout}", fix="use seconds, more than 0")
        if self.timeout is not None and not self.workers:
            raise InputError(
                f"{self.label} has a timeout and no workers: a call in this process cannot be ended",
                fix="add workers=1, or more",
            )
        self._refuse_arguments()
        if self.workers:
            from .workers import refuse_unnamed

            refuse_unnamed(self.fn, self.label)

    def _refuse_arguments(self) -> None:
        """Refuse a function that takes no random generator where it is given one, or waits for one in vain."""
        arguments = ("columns",) if self.seed is None else ("columns", "random")
        try:
            signature = inspect.signature(self.fn)
        except (TypeError, ValueError):  # some functions of C say nothing of theirs
            return
        try:
            signature.bind(*arguments)
        except TypeError as error:
            raise InputError(
                f"{self.label} calls {_name(self.fn)}{signature} with {' and '.join(arguments)}",
                fix="add seed=…, for a random generator"
                if self.seed is None
                else "let it take a random generator as the second argument, or leave seed out",
            ) from error

    @property
    def label(self) -> str:
        """In short; in how many processes makes no difference to what comes."""
        seed = "" if self.seed is None else f", seed={self.seed}"
        return f"map({_name(self.fn)}{seed})"

    def stream(self, epoch: int, state: State = None) -> Stream:
        """See `Dataset.stream`."""
        at, row = parts_of(state, (None, 0))
        with closing(measured(self.parent, epoch, at)) as blocks:
            if self.workers:
                from .workers import in_workers

                yield from in_workers(self, epoch, blocks, row)
                return
            for block, after in blocks:
                result = self.apply(block, epoch, row)
                row += rows_in(block)
                yield result, [after, row]

    def apply(self, block: Columns, epoch: int, row: int) -> Columns:
        """`fn` of a block that begins at `row` of the epoch.

        Raises:
            InputError: `fn` raised something, or gave what are no columns of so many rows.
        """
        rows = rows_in(block)
        arguments: list[Any] = []
        if self.seed is not None:
            arguments = [random_for(self, self.seed, epoch, row)]
        with _at_rows(self.label, epoch, row, rows):
            if self.by_row:
                return checked(row_by_row(lambda each: self.fn(each, *arguments), block, self.label), self.label, rows)
            return checked(self.fn(dict(block), *arguments), self.label, rows)


@dataclass(frozen=True)
class Filtered(UncountedStep):
    """See `Dataset.filter`. Its state is the parent's, and the number of the next row before the filter."""

    fn: Callable[[Mapping[str, Any]], Any]

    @property
    def label(self) -> str:
        """In short."""
        return f"filter({_name(self.fn)})"

    def stream(self, epoch: int, state: State = None) -> Stream:
        """See `Dataset.stream`."""
        at, row = parts_of(state, (None, 0))
        with closing(measured(self.parent, epoch, at)) as blocks:
            for block, after in blocks:
                rows = rows_in(block)
                with _at_rows(self.label, epoch, row, rows):
                    kept = np.asarray(self.fn(dict(block)))
                if kept.shape != (rows,) or kept.dtype != bool:
                    raise InputError(
                        f"{self.label} returned {kept.dtype}{list(kept.shape)}, not bool[{rows}]",
                        fix="return whether each row is kept",
                    )
                row += rows
                if kept.any():
                    yield taken(block, np.flatnonzero(kept)), [after, row]


@dataclass(frozen=True)
class Selected(InputStep):
    """See `Dataset.select`."""

    names: tuple[str, ...]

    @property
    def label(self) -> str:
        """In short."""
        return f"select({', '.join(self.names)})"

    def stream(self, epoch: int, state: State = None) -> Stream:
        """See `Dataset.stream`."""
        with closing(measured(self.parent, epoch, state)) as blocks:
            for block, after in blocks:
                for name in self.names:
                    if name not in block:
                        raise InputError(f"there is no column {name!r}", fix=suggest(name, list(block), "there are"))
                yield {name: block[name] for name in self.names}, after


@dataclass(frozen=True)
class Sharded(InputStep):
    """See `Dataset.shard`. Its state is the parent's, and the number of the parent's next row."""

    index: int
    count: int

    def __post_init__(self) -> None:
        if not 0 <= self.index < self.count:
            raise InputError(f"shard {self.index} of {self.count}", fix="number the shards from 0 to count - 1")

    @property
    def label(self) -> str:
        """In short."""
        return f"shard({self.index} of {self.count})"

    @property
    def rows(self) -> int | None:  # type: ignore[override]  # computed, not stored
        """Of this shard."""
        rows = self.parent.rows
        return None if rows is None else len(range(self.index, rows, self.count))

    @property
    def batch_size(self) -> int | None:  # type: ignore[override]  # as above
        """They differ."""
        return None

    def stream(self, epoch: int, state: State = None) -> Stream:
        """See `Dataset.stream`."""
        at, row = parts_of(state, (None, 0))
        with closing(measured(self.parent, epoch, at)) as blocks:
            for block, after in blocks:
                chosen = slice((self.index - row) % self.count, None, self.count)
                row += rows_in(block)
                numbers = np.arange(rows_in(block))[chosen]
                if len(numbers):
                    yield taken(block, numbers), [after, row]


def _at_rows(label: str, epoch: int, row: int, rows: int) -> AbstractContextManager[None]:
    """What a user's function raises, as an error that names the step, the epoch and the rows."""
    at = f"row {row}" if rows == 1 else f"rows {row} to {row + rows - 1}"
    return mistakes_named(f"{label} failed at {at} of epoch {epoch + 1}")


def _name(fn: Any) -> str:  # Any: whatever can be called
    """A function in short, with its settings: a state, or a cache, of other settings is another's."""
    if isinstance(fn, partial):
        settings = [*map(_setting, fn.args), *(f"{name}={_setting(value)}" for name, value in fn.keywords.items())]
        return f"{_name(fn.func)}({', '.join(settings)})"
    if is_dataclass(fn) and not isinstance(fn, type):
        settings = [f"{field.name}={_setting(getattr(fn, field.name))}" for field in fields(fn)]
        return f"{type(fn).__name__}({', '.join(settings)})"
    return str(getattr(fn, "__qualname__", None) or type(fn).__name__).rpartition("<locals>.")[2]


def _setting(value: object) -> str:
    """A value that another process spells alike, as JSON is; of others the type."""
    try:
        return json.dumps(value)
    except (TypeError, ValueError):
        return type(value).__name__
