"""Workers: a user's function called in several processes, where one is not fast enough.

A worker is this interpreter, started anew on `worker_main`. It is told the function by name, and asked with a block of
rows at a time. A message is a head in JSON and the bytes of arrays; nothing is unpickled on either side.
"""

from __future__ import annotations

import dataclasses
import json
import os
import queue
import struct
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from threading import Event, Timer
from typing import IO, Any, Final

import numpy as np

from ....errors import InputError
from .columns import Columns, decoded, encoded, rows_in
from .dataset import State
from .waiting import ABANDONMENT, LOOK_SECONDS, Abandoned, Abandonment, look

_LENGTH: Final = struct.Struct("<I")
_PATIENCE: Final = 5.0
"""Seconds that a worker may take to end when nothing is asked any more."""


def in_workers(
    mapped: Any, epoch: int, blocks: Iterator[tuple[Columns, State]], row: int
) -> Iterator[tuple[Columns, State]]:
    """What `Mapped.stream` gives, in the order of the blocks, some of them under way in each worker.

    Args:
        mapped: The step.
        epoch: Which pass.
        blocks: What it maps.
        row: Of the epoch, where the first block begins.
    """
    idle: queue.SimpleQueue[_InputWorker] = queue.SimpleQueue()
    workers: list[_InputWorker] = []
    under_way: deque[tuple[Future[Columns], State]] = deque()
    threads = ThreadPoolExecutor(mapped.workers, "input worker")
    abandonment = ABANDONMENT.get() or Abandonment()
    abandoned = Event()

    def abandon() -> None:
        abandoned.set()
        for worker in workers:
            worker.kill()

    def result_of(future: Future[Columns]) -> Columns:
        while True:
            if abandoned.is_set():
                raise Abandoned
            done, _ = wait([future], LOOK_SECONDS)
            if done:
                return future.result()
            look()

    abandonment.add(abandon)
    try:
        for _ in range(mapped.workers):
            workers.append(_InputWorker(mapped))
            idle.put(workers[-1])

        def ask(block: Columns, row: int) -> Columns:
            worker = idle.get()
            try:
                return worker.ask(block, epoch, row)
            finally:
                idle.put(worker)

        for block, after in blocks:
            future = threads.submit(ask, block, row)
            row += rows_in(block)
            under_way.append((future, [after, row]))
            if len(under_way) > 2 * mapped.workers:
                future, state = under_way.popleft()
                yield result_of(future), state
        while under_way:
            future, state = under_way.popleft()
            yield result_of(future), state
    finally:
        abandonment.remove(abandon)
        threads.shutdown(wait=False, cancel_futures=True)
        for worker in workers:
            worker.close()


class _InputWorker:
    """One process."""

    def __init__(self, mapped: Any) -> None:
        self._label = mapped.label
        path = os.pathsep.join(path for path in sys.path if path)
        self._process = subprocess.Popen(  # noqa: S603  # our own module
            [sys.executable, "-m", f"{__package__}.worker_main"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": path},
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._to, self._from = self._process.stdin, self._process.stdout
        self._timeout: float | None = mapped.timeout
        self._head = {"fn": reference(mapped.fn), "by_row": mapped.by_row, "seed": mapped.seed}

    def ask(self, block: Columns, epoch: int, row: int) -> Columns:
        """The function of a block.

        Raises:
            InputError: The function raised something or took too long, or the process ended.
        """
        late = Event()
        try:
            with self._killed_late(late):
                write_message(self._to, {**self._head, "epoch": epoch, "row": row}, block)
                head, columns = read_message(self._from)
        except (OSError, EOFError):
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(_PATIENCE)
            at = f"rows {row} to {row + rows_in(block) - 1} of epoch {epoch + 1}"
            if late.is_set():
                raise InputError(
                    f"{self._label}: a worker gave nothing within {self._timeout:g} s at {at}, and was ended",
                    fix="see what the function waits for there, or use a longer timeout",
                ) from None
            code = self._process.poll() or 0
            ended = f"signal {-code}" if code < 0 else f"exit code {code}"
            raise InputError(
                f"{self._label}: a worker ended at {at}: {ended}",
                fix="look at what it printed and at the machine's memory; workers=0 calls the function in this process",
            ) from None
        if "error" in head:
            raise InputError(head["error"], fix=head["fix"], where=head["where"])
        return columns

    @contextmanager
    def _killed_late(self, late: Event) -> Iterator[None]:
        """Kill the process where the block takes longer than the timeout, and say so."""
        if self._timeout is None:
            yield
            return

        def kill() -> None:
            late.set()
            self.kill()

        timer = Timer(self._timeout, kill)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def kill(self) -> None:
        """End it, and whoever waits for it."""
        self._process.kill()

    def close(self) -> None:
        """End it. It is killed first: what writes to one that reads nothing holds the file that is to be closed."""
        self._process.kill()
        self._process.wait()
        for file in (self._to, self._from):
            with suppress(OSError):
                file.close()


def refuse_unnamed(fn: Callable[..., Any], label: str) -> None:
    """Refuse a function that another process cannot import.

    Raises:
        InputError: It does not stand at the top level of a module, or its settings are no JSON values.
    """
    try:
        reference(fn)
    except ValueError as error:
        raise InputError(
            f"{label} cannot run in workers: {error}",
            fix="define the function at the top level of a module, or use workers=0",
        ) from None


def reference(fn: Callable[..., Any]) -> dict[str, Any]:
    """How another process gets a function: its module, name and file; of a dataclass that is called its fields too.

    Raises:
        ValueError: It has no such name.
    """
    fields = None
    named: Any = fn
    if dataclasses.is_dataclass(type(fn)):
        named = type(fn)
        fields = {field.name: getattr(fn, field.name) for field in dataclasses.fields(named)}
        try:
            json.dumps(fields)
        except TypeError:
            raise ValueError(f"the fields of {named.__name__} are no JSON values") from None
    name, module = str(getattr(named, "__qualname__", "")), str(getattr(named, "__module__", ""))
    home = sys.modules.get(module)
    if home is None or module == "__main__":
        raise ValueError("it stands in the program that was started, not in a module")
    if not name.isidentifier() or getattr(home, name, None) is not named:
        raise ValueError("it is not a function at the top level of its module")
    above = [module[:end] for end, letter in enumerate(module) if letter == "."]
    packages = [[package, [str(path) for path in sys.modules[package].__path__]] for package in above]
    file = getattr(home, "__file__", None)
    return {"module": module, "name": name, "file": file, "packages": packages, "fields": fields}


def write_message(file: IO[bytes], head: dict[str, Any], columns: Columns | None = None) -> None:
    """A head and columns: the length of the head, the head, the arrays' bytes."""
    kinds, arrays = [], []
    for name, column in (columns or {}).items():
        kind, parts = encoded(column)
        kinds.append([name, kind, [[part.dtype.str, part.shape] for part in parts]])
        arrays += parts
    text = json.dumps({**head, "columns": kinds}).encode()
    file.write(_LENGTH.pack(len(text)) + text)
    for array in arrays:
        if array.size:
            file.write(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    file.flush()


def read_message(file: IO[bytes]) -> tuple[dict[str, Any], dict[str, Any]]:
    """What `write_message` wrote.

    Raises:
        EOFError: Nobody writes any more.
    """
    head: dict[str, Any] = json.loads(_read(file, _LENGTH.unpack(_read(file, _LENGTH.size))[0]))
    columns: dict[str, Any] = {}
    for name, kind, parts in head.pop("columns"):
        arrays = []
        for dtype, shape in parts:
            array = np.empty(shape, dtype)
            if array.size:
                raw: Any = array.reshape(-1).view(np.uint8).data
                if file.readinto(raw) != len(raw):  # type: ignore[attr-defined]  # a buffered file reads all
                    raise EOFError
            arrays.append(array)
        column = decoded(kind, arrays)
        columns[name] = column[:] if kind in ("text", "bytes") else column
    return head, columns


def _read(file: IO[bytes], count: int) -> bytes:
    data = file.read(count)
    if len(data) != count:
        raise EOFError
    return data
