"""Whether a failed attempt is made again, and when; and what is known of that until it begins."""

from __future__ import annotations

import math
import time
from contextlib import suppress
from pathlib import Path

from ...digest import digest
from ...errors import BuildError, DrivetrainError, InputError
from ...metadata import ExecutionRecord, MetadataStore
from ..ir.options import NodeOptions
from ..project.functions import reference
from .results import AttemptTimeout
from .runs import Run
from .states import RunState


class Retries:
    """The retries of one task: counted, with growing pauses.

    Args:
        options: The node's.
        project: The pipeline's folder, which a predicate is named relative to.
        done: How many were made before, by another process.
        seed: What the jitter of the pauses is drawn from, together with the retry's number: the run and the task.
    """

    def __init__(self, options: NodeOptions, project: Path, done: int = 0, *, seed: tuple[str, str]) -> None:
        self.most = options.retries
        self.done = done
        self._options = options
        self._project = project
        self._seed = seed

    @property
    def as_reason(self) -> str:
        """As part of the reason why a task runs."""
        return f"; retry {self.done} of {self.most}" if self.done else ""

    def pause(self, error: BaseException) -> float | None:
        """Seconds until the next attempt; None where there is none."""
        if isinstance(error, AttemptTimeout):
            error = TimeoutError(str(error))
        if self.done >= self.most or not self._worth(error):
            return None
        options = self._options
        self.done += 1
        try:
            grown = options.backoff * options.backoff_factor ** (self.done - 1)
        except OverflowError:
            grown = math.inf if options.backoff else 0.0
        # Drawn from names, not from a clock: whichever process makes this attempt, and whoever repeats a test of it,
        # waits as long. The limit is applied first, so that pauses that have grown to it are spread as well.
        fraction = int(digest("drivetrain-jitter-v1", [*self._seed, self.done])[:13], 16) / 16**13
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


def postpone(store: MetadataStore, failed: ExecutionRecord, retries: Retries, pause: float) -> None:
    """Record that an attempt which failed is to be made again after so many seconds."""
    properties = {"retry": retries.done, "of": retries.most, "due": time.time() + pause}
    with suppress(DrivetrainError):  # a store on a full disk: then it is not shown, and made all the same
        store.context("retry", failed.uid, properties, durable=False)


def postponed(store: MetadataStore, run: Run, last: ExecutionRecord) -> str | None:
    """What a task of a run waits for whose last execution failed; None where it failed for good, or its run is over."""
    if last.state != "FAILED" or run.state is not RunState.RUNNING:
        return None
    recorded = store.find_context("retry", last.uid)
    if recorded is None:
        return None
    retry = recorded.properties
    left = max(0.0, retry["due"] - time.time())
    return f"waits {left:.0f} s for retry {retry['retry']} of {retry['of']}"
