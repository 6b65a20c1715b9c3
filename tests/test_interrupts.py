"""Signals that wait for a moment that suits."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from types import FrameType

import pytest
from drivetrain.interrupts import deferred


class Stopped(BaseException):
    """What the handler below raises."""


@pytest.fixture
def handled() -> Iterator[list[int]]:
    """The signals that a handler was called for; it raises `Stopped`."""
    numbers: list[int] = []

    def stop(number: int, frame: FrameType | None) -> None:
        numbers.append(number)
        raise Stopped

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    yield numbers
    for number, handler in before.items():
        signal.signal(number, handler)


def test_a_signal_waits_until_it_is_delivered(handled: list[int]) -> None:
    steps = []

    def work() -> None:
        with deferred() as deliver:
            for step in range(5):
                deliver()
                signal.raise_signal(signal.SIGTERM)
                signal.raise_signal(signal.SIGINT)  # of the same Ctrl-C, by way of a runner
                steps.append(step)

    with pytest.raises(Stopped):
        work()
    assert (steps, handled) == ([0], [signal.SIGTERM])


def test_one_that_nobody_asks_for_is_delivered_at_the_end(handled: list[int]) -> None:
    def work() -> None:
        with deferred():
            signal.raise_signal(signal.SIGTERM)
            raise ValueError("another fault")

    with pytest.raises(Stopped) as caught:
        work()
    assert isinstance(caught.value.__context__, ValueError)
    assert handled == [signal.SIGTERM]
    with pytest.raises(Stopped):
        signal.raise_signal(signal.SIGTERM)  # as before the block


def test_a_later_one_is_handled_at_once(handled: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    moment = [10.0]
    monkeypatch.setattr(time, "monotonic", lambda: moment[0])
    steps = []

    def work() -> None:
        with deferred():
            for seconds in (1.9, 0.2, 0.0):
                signal.raise_signal(signal.SIGINT)
                moment[0] += seconds
                steps.append(seconds)

    with pytest.raises(Stopped):
        work()
    assert steps == [1.9, 0.2]


def test_a_handler_that_sets_another_is_left_its_way() -> None:
    def stop(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise Stopped

    before = signal.signal(signal.SIGTERM, stop)
    try:
        with pytest.raises(Stopped), deferred():
            signal.raise_signal(signal.SIGTERM)
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGTERM, before)


def test_what_ends_the_process_without_a_handler_is_not_held_back() -> None:
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        with deferred():
            assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    finally:
        signal.signal(signal.SIGTERM, before)


def test_nothing_changes_in_another_thread(handled: list[int]) -> None:
    seen: list[object] = []

    def work() -> None:
        with deferred() as deliver:
            seen.append(signal.getsignal(signal.SIGTERM))
            deliver()

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [signal.getsignal(signal.SIGTERM)]
    assert not handled
