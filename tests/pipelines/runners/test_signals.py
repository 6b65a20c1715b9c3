"""Ctrl-C that lands in another thread than the main one ends the main one's waits too."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from queue import SimpleQueue

import pytest
from drivetrain.pipelines.runners.signals import take, wait


@pytest.mark.timeout(20)
@pytest.mark.parametrize("waiting", [lambda: wait(threading.Event()), lambda: take(SimpleQueue[str]())])
def test_a_signal_in_another_thread_ends_the_wait(waiting: Callable[[], object]) -> None:
    def interrupt() -> None:
        time.sleep(0.1)
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)
        time.sleep(2)  # it must not be the end of this thread that wakes the other

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        waiting()
    thread.join()


def test_what_is_waited_for_comes() -> None:
    event, queue = threading.Event(), SimpleQueue[str]()
    event.set()
    wait(event)
    threading.Timer(0.1, queue.put, ["x"]).start()
    assert take(queue) == "x"
