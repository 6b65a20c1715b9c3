"""Numbers that a component records of its work: the last value of each, and curves by step."""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, SupportsFloat, TextIO

from ...errors import InputError
from ...redaction import redact

_METRICS: Final = 1000
"""Metrics that one execution records at most, and values by step that it keeps of each."""


class Metrics:
    """What a component measured while it ran; any of its threads may add to it.

    While it runs, values can be written to a file too, a line each, so that other processes see the curves grow.
    """

    def __init__(self) -> None:
        self._path: Path | None = None
        self._file: TextIO | None = None  # opened when there is something to write
        self._last: dict[str, float] = {}
        self._steps: dict[str, list[tuple[int, float | None]]] = {}
        self._every: dict[str, int] = {}  # by metric: every how many steps one is kept
        self._count: dict[str, int] = {}
        self._lock = threading.Lock()

    def record(self, name: str, value: SupportsFloat, step: int | None = None) -> None:
        """Keep a value of a metric; see `LaunchContext.metric`."""
        from ...metadata.rows import name_text  # late: the store, which a process of trials does without

        name = name_text(name, "name of a metric")
        try:
            number = float(value) if not isinstance(value, str) else None
        except (TypeError, ValueError):
            number = None
        except OverflowError:  # an integer that no float holds
            number = math.inf
        if number is None:
            raise InputError(f"the metric {name!r:.80} is {value!r:.80}, not a number", fix="give one number")
        try:
            at = None if step is None else int(step)
        except (TypeError, ValueError, OverflowError):
            raise InputError(
                f"the step of the metric {name!r:.80} is {step!r:.80}, not a whole number", fix="count steps from 0"
            ) from None
        known = _known(number)
        with self._lock:
            if name not in self._last and len(self._last) >= _METRICS:
                raise InputError(
                    f"the metric {name!r:.80} is one of more than {_METRICS:,} that this task records",
                    fix="say the step by step=, not in the name",
                )
            self._last[name] = number
            if at is not None:
                self._append(name, (at, known))
            self._write(json.dumps([redact(name), known, at]))

    @contextmanager
    def written_to(self, path: Path) -> Iterator[None]:
        """Write what is recorded in this block to a file too, which is gone after it."""
        self._path = path
        try:
            yield
        finally:
            with self._lock:
                self._path = None
                if self._file is not None:
                    with suppress(OSError):
                        self._file.close()
                    self._file = None
                    path.unlink(missing_ok=True)

    def _write(self, line: str) -> None:
        """Write a line at once; where that fails, as on a full disk, the curves do not grow, and that is all."""
        if self._path is None:
            return
        try:
            if self._file is None:
                self._path.parent.mkdir(parents=True, exist_ok=True)
                self._file = self._path.open("w", encoding="utf-8", buffering=1)
            self._file.write(line + "\n")
        except OSError:
            self._path = None

    @classmethod
    def read(cls, path: Path) -> Metrics:
        """What a component that is at work has measured until now; nothing where there is no such file.

        A line that is damaged is left out: what is shown of a run must not fail for it.
        """
        metrics = cls()
        with suppress(OSError), path.open(encoding="utf-8", errors="replace") as file:
            for line in file:
                # Without an end it is being written.
                with suppress(ValueError, TypeError, RecursionError, InputError):
                    if line.endswith("\n"):
                        name, value, step = json.loads(line)
                        metrics.record(name, math.nan if value is None else value, step)
        return metrics

    def _append(self, name: str, point: tuple[int, float | None]) -> None:
        """Keep a point, or drop it: of more than fit every second, then every fourth, ... is kept, and the last."""
        points, every = self._steps.setdefault(name, []), self._every.setdefault(name, 1)
        count = self._count[name] = self._count.get(name, 0) + 1
        if points and (count - 2) % every:  # the one before is there only because it was the last
            points.pop()
        points.append(point)
        if len(points) > _METRICS:
            self._every[name] = 2 * every
            self._steps[name] = points[:-1:2] + points[-1:]

    @property
    def last(self) -> dict[str, float]:
        """The last value of each by name, which may be NaN or infinite."""
        with self._lock:
            return dict(self._last)

    @property
    def properties(self) -> dict[str, object]:
        """As an execution records them: `metrics`, the last value by name, and `metric_steps`, [step, value] by name.

        A value is null where it was not finite. Names are redacted: where two are the same then, the later one stays.
        """
        with self._lock:
            last = {redact(name): _known(value) for name, value in self._last.items()}
            steps = {redact(name): [list(point) for point in points] for name, points in self._steps.items()}
            return ({"metrics": last} if last else {}) | ({"metric_steps": steps} if steps else {})


def _known(value: float) -> float | None:
    """The value where it is finite: no store takes a NaN."""
    return value if math.isfinite(value) else None
