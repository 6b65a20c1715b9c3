"""Shadow traffic: how far outputs differ, and that clients do not notice: neither slowness, errors nor a full queue."""

from __future__ import annotations

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from drivetrain.engine.bundles.manifest import Signature
from drivetrain.engine.graphs.graph import FieldSpec
from drivetrain.serving.api import Described, InferenceAnswer, InferenceRequest, ModelRef, RequestError
from drivetrain.serving.batching import Batcher
from drivetrain.serving.shadow import OutputDifference, ShadowCounts, ShadowRunner, ShadowTraffic, difference, merged

NAN = np.nan


@pytest.mark.parametrize(
    ("answered", "shadow", "expected"),
    [
        ([0.1, 0.6, 0.5], [0.1, 0.4, 0.5001], OutputDifference(3, 2, 2, 3, 0.2001, 0.2)),
        ([100.0, 7.0], [100.0001, 8.0], OutputDifference(2, 1, 0, 2, 1.0001, 1.0)),
        ([NAN, 1.0, NAN], [NAN, NAN, 3.0], OutputDifference(3, 2, 0, 0, 0.0, 0.0)),
        ([[0.1, 0.9], [0.8, 0.2]], [[0.9, 0.1], [0.7, 0.3]], OutputDifference(2, 2, 1, 4, 1.8, 0.8)),
        ([True, False], [True, True], OutputDifference(2, 1, 1)),
        (["a", None, "c"], ["a", None, "d"], OutputDifference(3, 1, 1)),
        ([1, 5], [1, 7], OutputDifference(2, 1, 0, 2, 2.0, 2.0)),
        ([0.1, 0.2], [[0.1], [0.2]], OutputDifference(2, 2)),
        ([0.1, 0.2], ["a", "b"], OutputDifference(2, 2)),
    ],
)
def test_how_far_values_differ(answered: list[Any], shadow: list[Any], expected: OutputDifference) -> None:
    first, second = (
        np.array(each, object) if isinstance(each[0], str) else np.array(each) for each in (answered, shadow)
    )
    measured = difference(first, second, 1e-5)
    assert (measured.rows, measured.differing, measured.flipped, measured.compared) == (
        expected.rows, expected.differing, expected.flipped, expected.compared
    )  # fmt: skip
    assert (measured.total, measured.largest) == pytest.approx((expected.total, expected.largest))


def test_an_output_that_is_not_there_differs() -> None:
    assert difference(np.zeros(3), None, 1.0) == OutputDifference(3, 3)


def test_counts_of_processes_add_up() -> None:
    one_process = ShadowCounts(
        "net", 4, 3, 2, 0.5, errors={"INTERNAL": 1}, outputs={"s": OutputDifference(2, 1, 0, 2, 3.0, 2.0)}
    )
    other = ShadowCounts(
        "net", 4, 3, 1, 0.1, dropped={"busy": 2}, outputs={"s": OutputDifference(1, 1, 1, 1, 5.0, 5.0)}
    )
    (both,) = merged([[one_process], [other]])
    assert both.summary() == {
        "version": 4, "answered_by": 3, "requests": 3, "mean_seconds": pytest.approx(0.2),
        "errors": {"INTERNAL": 1}, "dropped": {"busy": 2},
        "outputs": {"s": {"rows": 3, "differing_share": 2 / 3, "flipped_share": 1 / 3,
                          "mean_absolute_difference": pytest.approx(8 / 3), "max_absolute_difference": 5.0}},
    }  # fmt: skip


def run(
    predict: Any, *, requests: int, max_queue: int = 256, busy: bool = False, answered: Any = lambda: None
) -> tuple[ShadowCounts, int]:
    """What came of the shadows of some requests, and how many of them were answered when `answered` is called."""
    described = Described(
        "net", 3, {"predict": Signature({"x": FieldSpec("float64")}, {"score": FieldSpec("float64")})}
    )
    loaded = cast(Any, Loaded(Described("net", 4, described.signatures), predict))
    options = ShadowTraffic(4, max_queue=max_queue)
    answers: list[InferenceAnswer | RequestError] = []

    async def serve() -> tuple[ShadowCounts, int]:
        executor = ThreadPoolExecutor(1)
        runner = ShadowRunner(executor)
        for number in range(requests):
            request = InferenceRequest(ModelRef("net"), "predict", {"x": [float(number)]}, 1)
            queue = cast(Any, SimpleNamespace(is_busy=busy))
            answer = InferenceAnswer("net", 3, {"score": np.array([float(number)])})
            runner.shadowing(options, described, 4, loaded, "predict", request, answers.append, queue)(answer)
            await asyncio.sleep(0)
        before = len(answers)
        answered()
        (counts,) = runner.counts()
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            await asyncio.sleep(0.01)
            settled = counts.requests + sum(counts.errors.values()) + sum(counts.dropped.values())
            compared = counts.outputs["score"].rows if counts.outputs else 0
            if settled == requests and compared == counts.requests:
                break
        executor.shutdown()
        return counts, before

    return asyncio.run(serve())


class Loaded:
    """A version in memory that predicts by a function."""

    def __init__(self, described: Described, predict: Any) -> None:
        self.described = described
        self.predictors = {"predict": predict}


def test_a_shadow_is_compared_with_what_was_answered() -> None:
    def predict(columns: Any, rows: int) -> dict[str, Any]:
        x = np.array(columns["x"], np.float64)
        return {"score": np.where(x >= 10, x + 0.25, x)}

    counts, _ = run(predict, requests=40)
    assert (counts.version, counts.answered, counts.requests, counts.errors, counts.dropped) == (4, 3, 40, {}, {})
    assert counts.outputs["score"] == OutputDifference(40, 30, 0, 40, 7.5, 0.25)
    assert sum(counts.buckets) == 40


def test_a_shadow_that_fails_is_counted_and_nothing_else() -> None:
    def predict(columns: Any, rows: int) -> dict[str, Any]:
        raise ValueError("no")

    counts, answered = run(predict, requests=20)
    assert (counts.requests, counts.errors, counts.outputs) == (0, {"INTERNAL": 20}, {})
    assert answered == 20


def test_a_slow_shadow_fills_its_queue_and_nobody_waits() -> None:
    goes_on = threading.Event()

    def predict(columns: Any, rows: int) -> dict[str, Any]:
        assert goes_on.wait(20)
        return {"score": np.array(columns["x"], np.float64)}

    counts, answered = run(predict, requests=100, max_queue=10, answered=goes_on.set)
    assert answered == 100
    assert counts.dropped == {"queue": 90}
    assert counts.requests == 10


def test_what_the_queue_does_not_take_takes_no_room_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def submit(*_: object) -> None:
        raise ValueError("no")

    monkeypatch.setattr(Batcher, "submit", submit)
    counts, _ = run(lambda columns, rows: {}, requests=10, max_queue=2)
    assert (counts.errors, counts.dropped) == ({"INTERNAL": 10}, {})


def test_a_busy_server_asks_no_shadow() -> None:
    counts, _ = run(lambda columns, rows: {}, requests=5, busy=True)
    assert (counts.requests, counts.dropped) == (0, {"busy": 5})
