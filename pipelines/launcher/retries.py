"""Whether a failed attempt is made again, and when; and what is known of that until it begins."""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import Final

from ...digest import digest
from ...errors import BuildError, InputError
from ...metadata import ExecutionRecord
from ..ir.options import NodeOptions
from ..project.functions import reference
from .results import AttemptTimeout
from .runs import Run
from .states import RunState

_RETRY: Final = "retry"
"""The property of an execution that failed, and is followed by another."""


class Retries:
    """The retries of one task: counted, with growing pauses.

    Args:
        options: The node's.
        project: The pipeline's folder, which a predicate is named relative to.
        done: How many were made before, by another process.
        seed: What the jitter of the pauses is drawn from, together with the retry's number: the run and the task.

    Attributes:
        most: How many there are at most.
        done: How many were made, or are planned.
        planned: Seconds until the next, by the last `plan`; None where there is none.
    """

    def __init__(self, options: NodeOptions, project: Path, done: int = 0, *, seed: tuple[str, str]) -> None:
        self.most = options.retries
        self.done = done
        self.planned: float | None = None
        self._options = options
        self._project = project
        self._seed = seed

    @property
    def as_reason(self) -> str:
        """As part of the reason why a task runs."""
        return f"; retry {self.done} of {self.most}" if self.done else ""

    def plan(self, error: BaseException) -> dict[str, object]:
        """Decide whether an attempt that fails is made again, before that is recorded.

        Returns:
            What its execution is to record of it: so nobody can see it failed, and not yet that it is tried again.

        Raises:
            InputError: `retry_on` names no function. That may raise, too.
        """
        self.planned = self.next_pause(error)
        if self.planned is None:
            return {}
        self.done += 1
        return {_RETRY: {"number": self.done, "of": self.most, "due": time.time() + self.planned}}

    def take_back(self) -> None:
        """Undo `plan`: the failure was not the task's."""
        if self.planned is not None:
            self.done, self.planned = self.done - 1, None

    def announced(self, text: str) -> str:
        """Why an attempt failed, and what is planned."""
        return f"{text}; retry {self.done} of {self.most} in {self.planned:.3g} s"

    def next_pause(self, error: BaseException) -> float | None:
        """Seconds until the next attempt after an error; None where there is none. Asking counts nothing."""
        if isinstance(error, AttemptTimeout):
            error = TimeoutError(str(error))
        if self.done >= self.most or not self._worth(error):
            return None
        options = self._options
        try:
            grown = options.backoff * options.backoff_factor**self.done
        except OverflowError:
            grown = math.inf if options.backoff else 0.0
        # Drawn from names, not from a clock: whichever process makes this attempt, and whoever repeats a test of it,
        # waits as long. The limit is applied first, so that pauses that have grown to it are spread as well.
        fraction = int(digest("drivetrain-jitter-v1", [*self._seed, self.done + 1])[:13], 16) / 16**13
        return min(grown, options.backoff_max) * (1 - options.jitter * fraction)

    def _worth(self, error: BaseException) -> bool:
        wanted = self._options.retry_on
        if len(wanted) == 1 and ":" in wanted[0]:
            predicate = reference(wanted[0], self._project).load()
            if not callable(predicate):
                raise InputError(f"retry_on names {wanted[0]}, which is not a function", fix="name a predicate")
            return bool(predicate(error))
        if not wanted:
            return isinstance(error, Exception) and not isinstance(error, (BuildError, InputError))
        names = {
            name for kind in type(error).__mro__ for name in (kind.__name__, f"{kind.__module__}.{kind.__qualname__}")
        }
        return bool(names & set(wanted))


def postponed(run: Run, last: ExecutionRecord) -> str | None:
    """What a task of a run waits for whose last execution failed; None where it failed for good, or its run is over."""
    retry = last.properties.get(_RETRY)
    if retry is None or last.state != "FAILED" or run.state is not RunState.RUNNING:
        return None
    left = max(0.0, retry["due"] - time.time())
    return f"waits {left:.0f} s for retry {retry['number']} of {retry['of']}"
