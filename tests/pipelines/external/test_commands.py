"""A stop that meets a command at any moment of its start: the command does not live on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import psutil
import pytest
from drivetrain.pipelines.external import commands
from drivetrain.tests.pipelines.faulty import waits

NAMED = "DRIVETRAIN_TEST_COMMAND"


def lives(name: str) -> list[psutil.Process]:
    """The processes of a command, by a variable of theirs; killed, so that a failed test leaves none."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(NAMED) == name and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
                process.kill()
        except (psutil.Error, OSError):
            continue
    return found


def begin(name: str, folder: Path) -> None:
    commands.run("Sleep", ["sleep"], ["sleep", "60"], {**os.environ, NAMED: name}, folder)


class Stop:
    """Sends a signal to this thread when it has come to a given line of those that start a command."""

    def __init__(self, line: int, number: int) -> None:
        self.left = line
        self.number = number
        self.looks = 0  # whether the command has ended: it begun by then
        self.sent = ""
        self.over = threading.Event()

    def late(self) -> None:
        while self.looks <= 3:
            if self.over.wait(0.01):
                return
        if not self.sent:
            self.left = 10**9
            os.kill(os.getpid(), self.number)

    def __call__(self, frame: FrameType, event: str, argument: Any) -> Stop | None:  # Any: what an event is of
        starting = frame.f_code.co_filename == subprocess.__file__ or (
            frame.f_code.co_filename == commands.__file__ and frame.f_code.co_name == "run"
        )
        if event == "call":
            self.looks += frame.f_code.co_name == "poll"
            return self if starting and self.looks <= 3 else None
        if event == "line" and not self.sent:
            self.left -= 1
            if self.left < 0:
                self.sent = f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno} {frame.f_code.co_name}"
                sys.settrace(None)
                signal.raise_signal(self.number)
        return self


def stopped_at(line: int, number: int, folder: Path) -> str:
    """Start a command and send a signal at a line; gives which it was, "" where the command had begun before."""
    stop = Stop(line, number)
    # What comes after the start is reached by every command: it is stopped there too.
    late = threading.Thread(target=stop.late)
    late.start()
    sys.settrace(stop)
    try:
        begin(f"{folder}/{line}", folder)
    except KeyboardInterrupt:
        pass
    else:
        pytest.fail("it was not stopped")
    finally:
        sys.settrace(None)
        stop.over.set()
        late.join()
    assert not lives(f"{folder}/{line}"), stop.sent
    return stop.sent


@pytest.fixture
def number(request: pytest.FixtureRequest) -> Iterator[int]:
    """A signal that stops what this thread is at."""

    def stop(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(request.param, stop)
    yield request.param
    assert signal.getsignal(request.param) is stop
    signal.signal(request.param, before)


@pytest.mark.parametrize(
    ("number", "step"),
    [(signal.SIGINT, 60), (signal.SIGTERM, 45), pytest.param(signal.SIGINT, 3, marks=pytest.mark.slow)],
    indirect=["number"],
)
def test_a_stop_at_any_line_of_a_start_leaves_nothing(tmp_path: Path, number: int, step: int) -> None:
    line, seen = 0, [stopped_at(0, number, tmp_path)]
    while seen[-1]:
        line += step
        seen.append(stopped_at(line, number, tmp_path))
    assert line > 100  # all that Popen does


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], indirect=True)
def test_a_second_stop_does_not_wait_for_a_command_that_would_not_end(
    tmp_path: Path, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commands, "_GRACE", 3600.0)  # what the first one grants: longer than a test may take
    deaf = ["bash", "-c", "trap 'touch asked' TERM INT; touch begun; while true; do sleep 0.05; done"]

    def stop_twice() -> None:
        for file in ("begun", "asked"):
            waits((tmp_path / file).exists)
            os.kill(os.getpid(), number)

    stops = threading.Thread(target=stop_twice)
    stops.start()
    with pytest.raises(KeyboardInterrupt):
        commands.run("Deaf", ["deaf"], deaf, {**os.environ, NAMED: str(tmp_path)}, tmp_path)
    stops.join()
    assert not lives(str(tmp_path))
