"""Requests that come together are computed together, and each is answered for its own."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pytest
from drivetrain.engine import analyze, ops
from drivetrain.errors import InputError
from drivetrain.serving import batching
from drivetrain.serving.api import Described, InferenceAnswer, InferenceRequest, ModelRef, RequestError, StatusCode
from drivetrain.serving.batching import Batcher, BatchingOptions, Rest
from hypothesis import given, settings
from hypothesis import strategies as st

T = TypeVar("T")
Answers = list[InferenceAnswer]
MODEL = Described("m", 3, {})


class Doubling:
    """Twice each value of `x`; None is unusable. Keeps the sizes of the batches."""

    def __init__(self, seconds: float = 0) -> None:
        self.batches: list[int] = []
        self.threads: set[int] = set()
        self.seconds = seconds

    def __call__(self, columns: Mapping[str, Any], rows: int) -> dict[str, Any]:
        self.batches.append(rows)
        self.threads.add(threading.get_ident())
        time.sleep(self.seconds)
        values = list(columns["x"])
        assert len(values) == rows
        if None in values:
            raise InputError("column 'x' has no value", fix="send one")
        return {"y": np.array([2 * value for value in values]), "row": np.arange(rows)}


def request(*values: float | None, outputs: list[str] | None = None, deadline: float | None = None) -> InferenceRequest:
    return InferenceRequest(ModelRef("m"), None, {"x": [*values]}, len(values), outputs, deadline=deadline)


def submit(batcher: Batcher, request: InferenceRequest) -> asyncio.Future[InferenceAnswer]:
    """A future of the answer."""
    future: asyncio.Future[InferenceAnswer] = asyncio.get_running_loop().create_future()

    def done(result: InferenceAnswer | RequestError) -> None:
        if isinstance(result, RequestError):
            future.set_exception(result)
        else:
            future.set_result(result)

    batcher.submit(request, done)
    return future


def run(test: Callable[[ThreadPoolExecutor], Coroutine[Any, Any, T]]) -> T:
    with ThreadPoolExecutor(2) as executor:
        return asyncio.run(asyncio.wait_for(test(executor), 30))


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.lists(st.none() | st.integers(-9, 9), min_size=1, max_size=9), min_size=1, max_size=30),
    st.sampled_from([1, 4, 64]),
    st.booleans(),
    st.sampled_from([0, 500]),
)
def test_each_request_has_its_own_answer(values: list[list[int | None]], most: int, slow: bool, wait: int) -> None:
    predict = Doubling()

    async def test(executor: ThreadPoolExecutor) -> list[InferenceAnswer | BaseException]:
        batcher = Batcher(MODEL, predict, BatchingOptions(most, wait), executor, slow=slow)
        futures = [submit(batcher, request(*each)) for each in values]
        answers = await asyncio.gather(*futures, return_exceptions=True)
        assert batcher.idle
        return answers

    for each, answer in zip(values, run(test), strict=True):
        if None in each:
            assert isinstance(answer, RequestError)
            assert (answer.code, answer.message) == (StatusCode.INVALID_ARGUMENT, "column 'x' has no value")
        else:
            assert isinstance(answer, InferenceAnswer)
            assert (answer.version, answer.outputs["y"].tolist()) == (
                3,
                [2 * value for value in each if value is not None],
            )


def test_what_comes_in_one_turn_is_one_batch() -> None:
    predict = Doubling()

    async def test(executor: ThreadPoolExecutor) -> None:
        batcher = Batcher(MODEL, predict, BatchingOptions(max_batch_size=8), executor, slow=False)
        await asyncio.gather(*(submit(batcher, request(at)) for at in range(20)))
        await submit(batcher, request(1))

    run(test)
    assert predict.batches == [8, 8, 4, 1]


def test_a_large_request_does_not_hold_the_loop() -> None:
    predict = Doubling(0.2)

    async def test(executor: ThreadPoolExecutor) -> int:
        batcher = Batcher(MODEL, predict, BatchingOptions(max_batch_size=2), executor, slow=False)
        large = submit(batcher, request(1, 2, 3))
        turns = 0
        while not large.done():
            await asyncio.sleep(0.005)
            turns += 1
        return turns

    assert run(test) > 3
    assert predict.threads != {threading.get_ident()}


def test_a_deadline_holds_while_a_slow_model_computes() -> None:
    """Which goes on to compute until the late ones were told so."""
    predict, goes_on = Doubling(), threading.Event()

    def held(columns: Mapping[str, Any], rows: int) -> dict[str, Any]:
        assert goes_on.wait(20)
        return predict(columns, rows)

    async def main(executor: ThreadPoolExecutor) -> float:
        batcher = Batcher(MODEL, held, BatchingOptions(max_batch_size=2), executor, slow=True)
        start = time.monotonic()
        asked = [
            submit(batcher, request(at, deadline=start + seconds)) for at, seconds in ((1, 0.05), (2, 60), (3, 0.1))
        ]
        for at in (0, 2):  # the first is computed, the last waits behind it
            with pytest.raises(RequestError) as late:
                await asked[at]
            assert late.value.code is StatusCode.DEADLINE_EXCEEDED
        seconds = time.monotonic() - start
        goes_on.set()
        assert (await asked[1]).outputs["y"].tolist() == [4]
        while not batcher.idle:
            await asyncio.sleep(0.01)
        return seconds

    assert run(main) >= 0.1
    assert predict.batches == [1, 1]  # what was late before it was computed never is


def test_a_slow_model_gathers_what_comes_meanwhile() -> None:
    predict = Doubling(0.05)

    async def test(executor: ThreadPoolExecutor) -> None:
        batcher = Batcher(MODEL, predict, BatchingOptions(), executor, slow=True)
        first = submit(batcher, request(0))
        await asyncio.sleep(0.02)
        await asyncio.gather(first, *(submit(batcher, request(at)) for at in range(30)))

    run(test)
    assert predict.batches == [1, 30]


def test_waiting_for_others_ends_when_the_batch_is_full() -> None:
    predict = Doubling()

    async def test(executor: ThreadPoolExecutor) -> float:
        batcher = Batcher(MODEL, predict, BatchingOptions(4, 10_000_000), executor, slow=False)
        start = time.monotonic()
        first = submit(batcher, request(0))
        await asyncio.sleep(0.01)
        await asyncio.gather(first, *(submit(batcher, request(at)) for at in range(3)))
        return time.monotonic() - start

    assert run(test) < 5
    assert predict.batches == [4]


def test_deadlines_and_a_full_queue() -> None:
    predict = Doubling()

    async def test(executor: ThreadPoolExecutor) -> list[Any]:
        options = BatchingOptions(max_batch_size=4, max_enqueued_rows=6)
        batcher = Batcher(MODEL, predict, options, executor, slow=False)
        late = submit(batcher, request(1, deadline=time.monotonic() - 1))
        fine = submit(batcher, request(3, outputs=["y"]))
        with pytest.raises(RequestError, match="2 rows wait already") as refused:
            submit(batcher, request(1, 2, 3, 4, 5))
        assert refused.value.code is StatusCode.RESOURCE_EXHAUSTED
        return [*await asyncio.gather(late, fine, return_exceptions=True)]

    late, fine = run(test)
    assert late.code is StatusCode.DEADLINE_EXCEEDED
    assert {name: values.tolist() for name, values in fine.outputs.items()} == {"y": [6]}
    assert predict.batches == [1]


def test_large_requests_count_among_those_that_wait() -> None:
    predict = Doubling()

    async def test(executor: ThreadPoolExecutor) -> Answers:
        options = BatchingOptions(max_batch_size=2, max_enqueued_rows=6)
        batcher = Batcher(MODEL, predict, options, executor, slow=False)
        first = submit(batcher, request(1, 2, 3, 4))
        with pytest.raises(RequestError, match="4 rows wait already"):
            submit(batcher, request(1, 2, 3))
        answers = [await first, await submit(batcher, request(1, 2, 3))]
        assert batcher.idle
        return answers

    assert [len(answer.outputs["y"]) for answer in run(test)] == [4, 3]


def test_a_request_larger_than_the_queue_keeps_no_small_one_out() -> None:
    """It is computed beside the loop: otherwise a client of many rows had everybody else refused."""
    predict = Doubling()

    async def test(executor: ThreadPoolExecutor) -> Answers:
        options = BatchingOptions(max_batch_size=2, max_enqueued_rows=6)
        batcher = Batcher(MODEL, predict, options, executor, slow=False)
        large = submit(batcher, request(*range(9)))
        small = [submit(batcher, request(at)) for at in range(6)]
        with pytest.raises(RequestError, match="6 rows wait already"):
            submit(batcher, request(1))
        with pytest.raises(RequestError, match="15 rows wait already"):
            submit(batcher, request(1, 2, 3))
        answers = [*await asyncio.gather(large, *small)]
        assert batcher.idle
        return answers

    assert [len(answer.outputs["y"]) for answer in run(test)] == [9, *[1] * 6]


def test_a_model_that_fails_tells_nothing_of_what_is_inside() -> None:
    def fail(columns: Mapping[str, Any], rows: int) -> dict[str, Any]:
        raise ZeroDivisionError("/secret/path")

    async def test(executor: ThreadPoolExecutor) -> list[Any]:
        batcher = Batcher(MODEL, fail, BatchingOptions(), executor, slow=False)
        both = [submit(batcher, request(1)), submit(batcher, request(1))]
        return [*await asyncio.gather(*both, return_exceptions=True)]

    for error in run(test):
        assert (error.code, error.message) == (StatusCode.INTERNAL, "the model failed (ZeroDivisionError)")


def test_a_thread_rests_as_long_as_it_has_worked(monkeypatch: pytest.MonkeyPatch) -> None:
    now, rests = [100.0], []

    def sleep(seconds: float) -> None:
        rests.append(seconds)
        now[0] += seconds

    monkeypatch.setattr(batching, "time", SimpleNamespace(monotonic=lambda: now[0], sleep=sleep))

    def predict(columns: Any, rows: int) -> dict[str, Any]:
        now[0] += 0.25 * rows
        return {}

    resting = Rest()(predict)
    for rows in (1, 2, 8, 1):
        resting({}, rows)
    assert rests == [0, 0.25, 0.5, 1.0]  # never longer than a second


@pytest.mark.engine
@pytest.mark.parametrize("rows", [1, 2, 5])
@pytest.mark.parametrize(
    ("column", "last", "words"),
    [
        ("n", 1.5, "column 'n' has 1.5, which does not fit int64"),
        ("several", [2, 1.5], "column 'several' has 1.5, which does not fit int64"),
        ("x", True, "column 'x'"),
        ("floats", [2.0, True], "column 'floats'"),
    ],
)
def test_a_batch_refuses_what_a_row_is_refused_for(rows: int, column: str, last: Any, words: str) -> None:
    """Arrow would make 1 of 1.5 and of true: a row's number is the same whoever comes along."""

    def sums(c: ops.Columns) -> ops.Columns:
        lists = [ops.cast(ops.to_dense(c[name], 2, fill=0), "float32")[:, 0] for name in ("several", "floats")]
        return {"sum": ops.cast(c["n"], "float32") + ops.cast(c["x"], "float32") + lists[0] + lists[1]}

    table = {"n": [1, 2], "x": [0.5, 1.0], "several": [[1, 2], [3]], "floats": [[0.5], []]}
    bundle = analyze(sums, pa.table(table))
    (signature,) = bundle.signatures
    predict = batching.predictor(bundle, signature)
    whole: dict[str, list[Any]] = {
        "n": [*range(rows)], "x": [0] * rows, "several": [[2, 3]] * rows, "floats": [[0.25]] * rows,
    }  # fmt: skip
    for columns in (whole, {**whole, "n": [*map(float, range(rows))], "several": [[2.0, 3.0]] * rows}):
        assert predict(columns, rows)["sum"].tolist() == [number + 2.25 for number in range(rows)]
    with pytest.raises(InputError, match=words):
        predict({**whole, column: [*whole[column][:-1], last]}, rows)
