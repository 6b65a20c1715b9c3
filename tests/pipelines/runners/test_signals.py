"""Ctrl-C that lands in another thread than the main one, or whose exception is lost, is seen all the same."""

from __future__ import annotations

import gc
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue

import pytest
from drivetrain.pipelines import Home, RunOptions, load_pipeline, resume, run_pipeline
from drivetrain.pipelines.runners import signals
from drivetrain.pipelines.runners.signals import stoppable, take, wait


@pytest.fixture(autouse=True)
def _looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signals, "_LOOK", 0.02)


class Interrupted(threading.Thread):
    """Sends SIGINT to itself after a moment; its end must not be what wakes the other thread."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = threading.Event()

    def run(self) -> None:
        time.sleep(0.1)
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)
        self.seen.wait(15)


@pytest.mark.timeout(40)
def test_a_signal_in_another_thread_ends_the_wait() -> None:
    over, cancel, hurry = threading.Event(), threading.Event(), threading.Event()
    thread = Interrupted()
    with stoppable(cancel):
        thread.start()
        wait(over, cancel, hurry, stop=over.set)
        assert (cancel.is_set(), hurry.is_set(), thread.is_alive()) == (True, False, True)
        thread.seen.set()
        thread.join()
        thread = Interrupted()
        thread.start()
        with pytest.raises(KeyboardInterrupt):
            take(SimpleQueue[str](), threading.Event())
    assert thread.is_alive()
    thread.seen.set()
    thread.join()


def test_what_is_waited_for_comes() -> None:
    over, queue = threading.Event(), SimpleQueue[str]()
    over.set()
    wait(over, threading.Event(), threading.Event())
    threading.Timer(0.1, queue.put, ["x"]).start()
    assert take(queue, threading.Event()) == "x"


class Dying:
    """Gets a signal in its finalizer."""

    def __init__(self, number: int) -> None:
        self._number = number

    def __del__(self) -> None:
        signal.raise_signal(self._number)


def in_finalizer(number: int) -> None:
    Dying(number)


def in_garbage_collection(number: int) -> None:
    def callback(phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            signal.raise_signal(number)

    gc.callbacks.append(callback)
    try:
        gc.collect()
    finally:
        gc.callbacks.remove(callback)


@contextmanager
def exceptions_ignored() -> Iterator[list[object]]:
    lost: list[object] = []
    before, sys.unraisablehook = sys.unraisablehook, lambda raised: lost.append(raised.exc_type)
    try:
        yield lost
    finally:
        sys.unraisablehook = before


@pytest.mark.timeout(60)
@pytest.mark.parametrize("lose", [in_finalizer, in_garbage_collection])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stop_whose_exception_is_lost_is_seen(lose: Callable[[int], None], number: int) -> None:
    over, cancel, hurry = threading.Event(), threading.Event(), threading.Event()
    with exceptions_ignored() as lost, stoppable(cancel):
        lose(number)
        assert lost == [KeyboardInterrupt]
        wait(over, cancel, hurry, stop=over.set)
        with pytest.raises(KeyboardInterrupt):
            take(SimpleQueue[str](), cancel)
    assert not hurry.is_set()


def test_handlers_are_as_they_were_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    with stoppable(threading.Event()):
        assert signal.getsignal(signal.SIGINT) != before[0]
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a shell's background
    try:
        with stoppable(threading.Event()):
            assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before[0])


PIPELINE = """
import gc, os, signal, sys, time
import drivetrain as dt
from drivetrain.pipelines import current

class Thing(dt.Artifact):
    pass

class Dying:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGINT)
        for _ in range(100):
            time.sleep(0.001)  # the handler runs here

def callback(phase, info):
    Dying().__del__()

def lose(how):
    sys.unraisablehook = lambda raised: None
    if how == "finalizer":
        Dying()
    if how == "gc":
        gc.callbacks.append(callback)
        gc.collect()
        gc.callbacks.remove(callback)
    sys.unraisablehook = sys.__unraisablehook__

@dt.component
def Train(*, how: str, steps: int) -> Thing:
    base = current().base
    if (base / "stopped").exists():  # resumed
        return Thing.new()
    (base / "stopped").touch()
    lose(how)
    for step in range(steps):
        current().progress(step, steps, "steps")
        time.sleep(0.01)
    return Thing.new()

@dt.component
def Push(thing: Thing | None = None) -> Thing:
    (current().base / "pushed").touch()
    return Thing.new()

@dt.pipeline
def shop(how: str, steps: int) -> None:
    Push(Train(how=how, steps=steps))
"""


@pytest.mark.timeout(120)
@pytest.mark.parametrize("how", ["finalizer", "gc"])
@pytest.mark.parametrize(("runner", "steps"), [("inline", 500), ("inline", 0), ("process", 500)])
def test_a_run_ends_although_the_interrupt_was_ignored(
    home: Home, tmp_path: Path, how: str, runner: str, steps: int
) -> None:
    """JAX's callback of the garbage collector swallowed it, and the run trained on and pushed."""
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "pipeline.py").write_text(PIPELINE)
    pipeline = load_pipeline(tmp_path / "shop")
    result = run_pipeline(home, pipeline, {"how": how, "steps": steps}, options=RunOptions(runner=runner))
    assert result.state == "CANCELED"
    assert result.nodes["Train"].state == ("CANCELED" if steps else "COMPLETE")  # what asks nothing has ended well
    assert result.nodes["Push"].state in ("CANCELED", "BLOCKED")
    assert not (home.base / "pushed").exists()
    assert resume(home).state == "COMPLETE"
