"""Where the time of a training goes, and what it says while its input gives nothing."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from .input.dataset import StepTimes, step_times
from .input.waiting import looked_after

_WAITED = 0.03
"""The share of the time that a training may wait for its input before it says what was slow there."""
_SHOWN = 60
"""Characters of a step of the input in that line."""
_SILENT = 60.0
"""Seconds that a step of the input may work on an element before a line says so; then twice as long, and so on."""


class TrainingTimes:
    """The seconds of one training.

    Attributes:
        seconds: By part, as in `Trained.seconds`.
    """

    def __init__(self, note: Callable[[str], None]) -> None:
        """Nothing is measured yet.

        Args:
            note: Told of a step of the input that gives nothing, and at the end where the time went.
        """
        self._note = note
        self._begin = 0.0
        self.seconds = dict.fromkeys(("start", "input", "device", "evaluation", "checkpoints", "host"), 0.0)
        self._steps = StepTimes()

    @contextmanager
    def running(self) -> Iterator[None]:
        """The training, until its steps end."""
        self._begin = time.perf_counter()
        with step_times() as self._steps:
            yield

    @property
    def of_input(self) -> Mapping[str, float]:
        """How long each step of the input has worked, by its name."""
        return self._steps.seconds

    def started(self) -> None:
        """What was no other part until now was the start."""
        self.seconds["start"] = self._rest()

    def ended(self) -> None:
        """What was no other part until now was the host's; a line says where the time went."""
        self.seconds["host"] = self._rest()
        self._note(spelled_times(self.seconds, self.of_input))

    def _rest(self) -> float:
        return time.perf_counter() - self._begin - sum(self.seconds.values())

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """What is done within belongs to that part."""
        begin = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] += time.perf_counter() - begin

    @contextmanager
    def waiting(self, heed: Callable[[], object], part: str = "input") -> Iterator[None]:
        """A wait for the input, which belongs to a part; see `looked_after`."""
        with self.part(part), self.looked_after(heed):
            yield

    @contextmanager
    def looked_after(self, heed: Callable[[], object]) -> Iterator[None]:
        """A wait for the input. Each second of it `heed` is called; a line says which step gives nothing for long."""
        silent = _SILENT

        def look() -> None:
            nonlocal silent
            heed()
            label, seconds = self._steps.at_work() or ("", 0.0)
            if seconds >= silent:
                silent = 2 * seconds
                self._note(f"{_cut(label)} has been at work on its next element for {seconds:.0f} s")

        with looked_after(look):
            yield


def spelled_times(seconds: Mapping[str, float], input_seconds: Mapping[str, float]) -> str:
    """Where the time went, in a line; where it went in the input, if that was waited for."""
    whole = sum(seconds.values())
    parts = sorted(seconds.items(), key=lambda part: -part[1])
    shares = [f"{name} {value / whole:.0%}" for name, value in parts if value >= whole / 200]
    text = f"trained in {whole:.1f} s: {', '.join(shares)}"
    if seconds["input"] < _WAITED * whole:
        return text
    step, slowest = max(input_seconds.items(), key=lambda step: step[1])
    return f"{text}; the longest at work in the input was {_cut(step)}, {slowest:.1f} s"


def _cut(step: str) -> str:
    """The name of a step of the input: a source names all its columns."""
    return step if len(step) <= _SHOWN else f"{step[: _SHOWN - 2]}…)"
