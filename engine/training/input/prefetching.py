"""Prefetching: elements made ready by a thread, while those before are used."""

from __future__ import annotations

import threading
from collections import deque
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

from ....errors import InputError
from .dataset import Dataset, InputStep, State, Stream, measured
from .waiting import ABANDONMENT, LOOK_SECONDS, Abandoned, Abandonment, in_thread, look


@dataclass(frozen=True)
class Prefetched(InputStep):
    """See `Dataset.prefetch`."""

    count: int
    waits = True

    def __post_init__(self) -> None:
        if self.count < 1:
            raise InputError(f"prefetch of {self.count}", fix="use 1 or more")

    @property
    def label(self) -> str:
        """In short."""
        return "prefetch"  # how many makes no difference to what comes: a state of another count can be used

    def stream(self, epoch: int, state: State = None) -> Stream:
        """See `Dataset.stream`; the thread begins at once."""
        return _Ahead(self.parent, epoch, state, self.count)


class _Ahead:
    """A stream whose items a thread has ready. It ends with this object, which the thread does not hold."""

    def __init__(self, parent: Dataset, epoch: int, state: State, count: int) -> None:
        self._items = _Items(count)
        self._abandonment = Abandonment()
        self._outer = ABANDONMENT.get()  # of the thread that takes the items
        self._end = partial(_abandon, self._items, self._abandonment)
        if self._outer is not None:
            self._outer.add(self._end)
        # The context goes along: whose run this is, and where the seconds are noted.
        context = copy_context()
        context.run(in_thread, self._abandonment)
        arguments = (_work, self._items, parent, epoch, state)
        self._thread = threading.Thread(target=context.run, args=arguments, daemon=True)
        self._thread.start()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> tuple[Any, State]:
        if (item := self._items.take()) is None:
            self._thread.join()
            raise StopIteration
        return item

    def close(self) -> None:
        """End the thread: at once where it waits for others, else after what it is at."""
        self._drop()
        self._thread.join()

    def _drop(self) -> None:
        self._items.close()
        self._abandonment.set()
        if self._outer is not None:
            self._outer.remove(self._end)

    def __del__(self) -> None:
        self._drop()


def _abandon(items: _Items, abandonment: Abandonment) -> None:
    items.close(Abandoned())
    abandonment.set()


class _Items:
    """A few items between the thread that makes them and the one that takes them."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._ready: deque[tuple[Any, State]] = deque()
        self._changed = threading.Condition()
        self._ended = False
        self._error: BaseException | None = None

    def put(self, item: tuple[Any, State]) -> None:
        """Add an item."""
        with self._changed:
            self._ready.append(item)
            self._changed.notify_all()

    def wait_for_room(self) -> bool:
        """Wait until there is room for another item; False where none is wanted any more."""
        with self._changed:
            self._changed.wait_for(lambda: len(self._ready) < self._count or self._ended)
            return not self._ended

    def take(self) -> tuple[Any, State] | None:
        """The next item, None at the end. An error of the stream is raised when the items before it are gone."""
        with self._changed:
            while not self._changed.wait_for(lambda: self._ready or self._ended, LOOK_SECONDS):
                look()
            if self._ready:
                self._changed.notify_all()
                return self._ready.popleft()
            if self._error is None:
                return None
            error, self._error = self._error, None
            raise error

    def close(self, error: BaseException | None = None) -> None:
        """No more items come, or are wanted. The first end counts: what is abandoned has not come to its end since."""
        with self._changed:
            if not self._ended:
                self._ended, self._error = True, error
            self._changed.notify_all()


def _work(items: _Items, parent: Dataset, epoch: int, state: State) -> None:
    stream = None
    try:
        stream = measured(parent, epoch, state)
        while (item := next(stream, None)) is not None:
            items.put(item)
            del item  # while it waits, it keeps nothing that may be taken
            if not items.wait_for_room():
                break
        items.close()
    except BaseException as error:  # it belongs to who takes the elements
        items.close(error)
    finally:
        if stream is not None:
            stream.close()
