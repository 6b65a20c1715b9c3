"""Requests that arrive together are answered together: a queue for each signature, emptied once a turn of the loop."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ..engine.bundles.bundle import Bundle
from ..engine.graphs.graph import FieldSpec
from ..engine.host_ops.columns import ARROW
from ..engine.lowering.programs import BundleError
from ..errors import InputError
from .api import ColumnValues, Described, InferenceAnswer, InferenceRequest, RequestError, StatusCode

_LOG: Final = logging.getLogger("drivetrain.serving")
Outputs: TypeAlias = Mapping[str, NDArray[Any]]
Done: TypeAlias = Callable[[InferenceAnswer | RequestError], None]
"""What a request's answer is given to: a callback, since a future would take longer than all else in the queue."""
Predict: TypeAlias = Callable[[Mapping[str, ColumnValues], int], Outputs]

_LONGEST_REST: Final = 1.0  # seconds
SINGLES: Final = 2
"""Requests of one row up to which each row by itself is quicker than a batch of them."""

FEW: Final = 24
"""Rows up to which host ops on each are quicker than on Arrow's columns of them all."""


@dataclass(frozen=True, slots=True)
class BatchingOptions:
    """How requests are put together, under the names of TensorFlow Serving's batching parameters.

    Attributes:
        max_batch_size: Rows of a batch; a larger request is a batch of its own.
        batch_timeout_micros: How long the first request of a batch waits for others, in microseconds. 0: those come
            along that arrived in the same turn of the event loop, or while the batch before was computed; nobody waits
            for them. More pays for models that take longer than a millisecond.
        max_enqueued_rows: Rows that may wait; a request beyond is refused with RESOURCE_EXHAUSTED. Requests that are
            batches of their own count among themselves and what waits: no one of them keeps small ones out.
    """

    max_batch_size: int = 64
    batch_timeout_micros: int = 0
    max_enqueued_rows: int = 65_536


@dataclass(slots=True)
class _Waiting:
    columns: Mapping[str, ColumnValues]
    rows: int
    outputs: Sequence[str] | None
    deadline: float | None
    done: Done


class Batcher:
    """The queue of one signature of one version.

    Args:
        answering: The version.
        predict: Columns and their number of rows → outputs; raises InputError where a row cannot be used.
        options: How requests are put together.
        executor: Where batches beyond `max_batch_size` run, so that the loop goes on meanwhile.
        slow: Whether all batches run there, one at a time.
    """

    def __init__(
        self, answering: Described, predict: Predict, options: BatchingOptions, executor: Executor, *, slow: bool
    ) -> None:
        self._answering = answering
        self._predict = predict
        self._options = options
        self._executor = executor
        self._slow = slow
        self._queue: list[_Waiting] = []
        self._rows = 0  # that wait, or are computed as a slow batch
        self._large_rows = 0  # of requests that are batches of their own
        self._timer: asyncio.Handle | None = None
        self._running = 0
        self._loop = asyncio.get_running_loop()

    @property
    def idle(self) -> bool:
        """Whether no request waits or runs."""
        return not self._queue and not self._running

    @property
    def is_busy(self) -> bool:
        """Whether more than a batch waits."""
        return self._rows + self._large_rows > self._options.max_batch_size

    def submit(self, request: InferenceRequest, done: Done) -> None:
        """Put a request into the queue; what comes of it is given to `done`, later and in the event loop.

        Raises:
            RequestError: RESOURCE_EXHAUSTED: too many rows wait.
        """
        rows = request.rows
        is_large = rows > self._options.max_batch_size
        before = self._rows + (self._large_rows if is_large else 0)
        if before and before + rows > self._options.max_enqueued_rows:
            raise RequestError(
                StatusCode.RESOURCE_EXHAUSTED, f"{before:,} rows wait already", fix="try again, later and less at once"
            )
        if self._slow or is_large:
            done = on_time(done, request.deadline)
        waiting = _Waiting(request.columns, rows, request.outputs, request.deadline, done)
        if is_large:
            self._large_rows += rows
            self._start([waiting], is_large=True)
            return
        self._rows += rows
        self._queue.append(waiting)
        if self._slow and self._running:
            return  # the batch that runs starts the next one
        full = self._rows >= self._options.max_batch_size
        if self._timer is None:
            if full or not self._options.batch_timeout_micros:
                self._timer = self._loop.call_soon(self._flush)
            else:
                self._timer = self._loop.call_later(self._options.batch_timeout_micros / 1e6, self._flush)
        elif full and self._options.batch_timeout_micros:
            self._timer.cancel()
            self._timer = self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._timer = None
        if self._slow:
            if self._queue and not self._running:
                self._start(self._next())
            return
        while self._queue:
            batch = self._next()
            self._rows -= sum(waiting.rows for waiting in batch)
            self._settle(batch, answers(self._predict, batch))

    def _start(self, batch: list[_Waiting], *, is_large: bool = False) -> None:
        """Run a batch in the executor."""
        self._running += 1
        task = self._loop.run_in_executor(self._executor, answers, self._predict, batch)

        def done(ended: asyncio.Future[list[Outputs | RequestError]]) -> None:
            self._running -= 1
            rows = sum(waiting.rows for waiting in batch)
            if is_large:
                self._large_rows -= rows
            else:
                self._rows -= rows
            if ended.cancelled():
                results: list[Outputs | RequestError] = [_STOPPED for _ in batch]
            else:
                error = ended.exception()
                results = [as_request_error(error) for _ in batch] if error else ended.result()
            self._settle(batch, results)
            self._flush()

        task.add_done_callback(done)

    def _next(self) -> list[_Waiting]:
        """The requests of the next batch, in their order; those whose deadline has passed are answered so."""
        batch: list[_Waiting] = []
        rows, taken = 0, 0
        now = time.monotonic()
        for waiting in self._queue:
            if batch and rows + waiting.rows > self._options.max_batch_size:
                break
            taken += 1
            if waiting.deadline is not None and now > waiting.deadline:
                self._rows -= waiting.rows
                waiting.done(_late())
                continue
            batch.append(waiting)
            rows += waiting.rows
        del self._queue[:taken]
        return batch

    def _settle(self, batch: Sequence[_Waiting], results: Sequence[Outputs | RequestError]) -> None:
        of = self._answering
        for waiting, result in zip(batch, results, strict=True):
            if isinstance(result, RequestError):
                waiting.done(result)
                continue
            if waiting.outputs is not None:
                result = {name: result[name] for name in waiting.outputs}
            waiting.done(InferenceAnswer(of.name, of.version, result, of.digest))


class Rest:
    """Has a thread rest as long as it has worked: at least half of a core's time is for clients."""

    def __init__(self) -> None:
        self._until = 0.0

    def __call__(self, predict: Predict) -> Predict:
        """The same, after a rest as long as the work before."""

        def rested(columns: Mapping[str, ColumnValues], rows: int) -> Outputs:
            time.sleep(max(self._until - time.monotonic(), 0))
            start = time.monotonic()
            try:
                return predict(columns, rows)
            finally:
                end = time.monotonic()
                self._until = end + min(end - start, _LONGEST_REST)

        return rested


def on_time(done: Done, deadline: float | None) -> Done:
    """What gives a result to `done`, or DEADLINE_EXCEEDED when the deadline passes before there is one.

    Args:
        done: Called once.
        deadline: By `time.monotonic`; None: there is none.
    """
    if deadline is None:
        return done
    is_answered = False

    def once(result: InferenceAnswer | RequestError) -> None:
        nonlocal is_answered
        if not is_answered:
            is_answered = True
            timer.cancel()
            done(result)

    timer = asyncio.get_running_loop().call_later(max(deadline - time.monotonic(), 0), lambda: once(_late()))
    return once


def _late() -> RequestError:
    return RequestError(StatusCode.DEADLINE_EXCEEDED, "the deadline passed before there was an answer")


_STOPPED: Final = RequestError(StatusCode.UNAVAILABLE, "the server is ending")


def answers(predict: Predict, batch: Sequence[_Waiting]) -> list[Outputs | RequestError]:
    """The outputs of each request, or its error: rows that cannot be used fail their own request alone."""
    if not batch:
        return []
    if len(batch) == 1 or (len(batch) <= SINGLES and all(waiting.rows == 1 for waiting in batch)):
        return [_alone(predict, waiting) for waiting in batch]
    rows = sum(waiting.rows for waiting in batch)
    try:
        outputs = predict(joined([waiting.columns for waiting in batch]), rows)
    except Exception:  # whichever it is: each request by itself says what is wrong with it
        return [_alone(predict, waiting) for waiting in batch]
    parts: list[Outputs | RequestError] = []
    start = 0
    for waiting in batch:
        end = start + waiting.rows
        parts.append({name: values[start:end] for name, values in outputs.items()})
        start = end
    return parts


def _alone(predict: Predict, waiting: _Waiting) -> Outputs | RequestError:
    try:
        return predict(waiting.columns, waiting.rows)
    except Exception as error:
        return as_request_error(error)


def as_request_error(error: BaseException) -> RequestError:
    """The error that a client is told: of unusable rows with all they need, of anything else without what is inside.

    That goes to the log.
    """
    if isinstance(error, RequestError):
        return error
    if isinstance(error, InputError) and not isinstance(error, BundleError):
        return RequestError(StatusCode.INVALID_ARGUMENT, error.message, fix=error.fix)
    _LOG.error("a request failed", exc_info=error)
    return RequestError(StatusCode.INTERNAL, f"the model failed ({type(error).__name__})")


def joined(columns: Sequence[Mapping[str, ColumnValues]]) -> dict[str, ColumnValues]:
    """The columns of several requests, one after the other.

    Raises:
        KeyError: A request lacks a column that the first has.
    """
    together: dict[str, ColumnValues] = {}
    for name, first in columns[0].items():
        parts = [first, *(each[name] for each in columns[1:])]
        if all(isinstance(part, list) for part in parts):
            together[name] = [value for part in parts for value in part]
        elif all(isinstance(part, np.ndarray) for part in parts):
            together[name] = np.concatenate(parts)
        else:
            together[name] = [value for part in parts for value in _listed(part)]
    if any(each.keys() - together.keys() for each in columns):
        raise KeyError("the requests have different columns")
    return together


def _listed(values: ColumnValues) -> list[Any]:
    if type(values) is list:
        return values
    listed: list[Any] = values.to_pylist() if isinstance(values, pa.Array) else values.tolist()
    return listed


def predictor(bundle: Bundle, signature: str) -> Predict:
    """What a batcher calls: a signature of a bundle, row by row for one row, else as a batch."""
    inputs = bundle.signatures[signature].inputs
    few = FEW if bundle.takes_columns(signature) else 0
    defaults, specs = bundle.signatures[signature].defaults, bundle.signatures[signature].outputs

    def predict(columns: Mapping[str, ColumnValues], rows: int) -> Outputs:
        if rows == 1:
            row = {name: _single(values) for name, values in columns.items() if name in inputs}
            outputs = bundle.run_row(signature, row)
            return {name: _one_row(value, specs[name].dtype) for name, value in outputs.items()}
        if rows <= few:
            with contextlib.suppress(InputError):  # below, the error names the row
                few_rows = {
                    name: each if isinstance(each, np.ndarray) else _listed(each) for name, each in columns.items()
                }
                return bundle.run_columns(signature, few_rows, rows)
        arrays = {name: as_arrow(name, values, inputs[name]) for name, values in columns.items() if name in inputs}
        missing = [name for name in inputs if name not in arrays and name not in defaults]
        if missing and not arrays:
            raise InputError(f"column {missing[0]!r} is missing", fix=f"the inputs are {', '.join(inputs):.200}")
        names = list(arrays)
        batch = pa.RecordBatch.from_arrays([arrays[name] for name in names], names=names)
        if not names:  # all have defaults
            batch = pa.RecordBatch.from_pylist([{}] * rows)
        return bundle.run(signature, batch)

    return predict


def _single(values: ColumnValues) -> Any:
    value = values[0]
    return value.as_py() if isinstance(value, pa.Scalar) else value


def _one_row(value: object, dtype: str) -> NDArray[Any]:
    """A row's output as an array of one row, of the dtype that batches have."""
    if isinstance(value, np.ndarray) and value.dtype != object:
        return value[None]
    if isinstance(value, bool | int | float) and dtype in np.sctypeDict:
        return np.array([value], dtype)
    array = np.empty(1, dtype=object)
    array[0] = value
    return array


def as_arrow(name: str, values: ColumnValues, spec: FieldSpec) -> pa.Array:
    """A column of a request as Arrow, of the type that the graph reads.

    Raises:
        InputError: Its values are of another kind.
    """
    if isinstance(values, pa.Array):
        return values
    try:
        if isinstance(values, np.ndarray):
            if values.ndim == 2:
                flat = pa.array(np.ascontiguousarray(values).reshape(-1))
                return pa.FixedSizeListArray.from_arrays(flat, values.shape[1])
            return pa.array(values, from_pandas=True)
        # Arrow takes without a word what a graph refuses: true as the float 1, and 1.5 as the whole number 1.
        if spec.value_dtype == "float64" and bool in map(type, _numbers(values, spec)):
            raise _of_another_type(name, spec)
        if spec.value_dtype != "int64" or all(
            number.is_integer() for number in _numbers(values, spec) if type(number) is float
        ):
            return pa.array(values, ARROW.get(spec.dtype))
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        pass
    try:
        return pa.array(values)  # floats where integers belong: the graph says which
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise _of_another_type(name, spec) from error


def _of_another_type(name: str, spec: FieldSpec) -> InputError:
    return InputError(f"column {name!r} has values that are not {spec.dtype}", fix="send what it reads")


def _numbers(values: Sequence[Any], spec: FieldSpec) -> Iterable[Any]:
    """The values of a column, those of its lists one after the other."""
    return chain.from_iterable(each for each in values if isinstance(each, list)) if spec.ragged else values
