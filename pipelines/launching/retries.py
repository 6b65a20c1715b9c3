"""Whether a failed attempt is made again, and when."""

from __future__ import annotations

from pathlib import Path

from ...errors import BuildError, InputError
from ..form.ir import NodeOptions
from ..sources.functions import reference
from .outcome import Overtime


class Retries:
    """The retries of one task: counted, with growing pauses.

    Args:
        options: The node's.
        project: The pipeline's folder, which a predicate is named relative to.
        done: How many were made before, by another process.
    """

    def __init__(self, options: NodeOptions, project: Path, done: int = 0) -> None:
        self.most = options.retries
        self.done = done
        self._options = options
        self._project = project

    @property
    def told(self) -> str:
        """As part of the reason why a task runs."""
        return f"; retry {self.done} of {self.most}" if self.done else ""

    def pause(self, error: BaseException) -> float | None:
        """Seconds until the next attempt; None where there is none."""
        if isinstance(error, Overtime):
            error = TimeoutError(str(error))
        if self.done >= self.most or not self._worth(error):
            return None
        options = self._options
        self.done += 1
        return min(options.backoff * options.backoff_factor ** (self.done - 1), options.backoff_max)

    def _worth(self, error: BaseException) -> bool:
        wanted = self._options.retry_on
        if len(wanted) == 1 and ":" in wanted[0]:
            predicate = reference(wanted[0], self._project).load()
            if not callable(predicate):
                raise InputError(f"retry_on names {wanted[0]}, which is no function", fix="name a predicate")
            return bool(predicate(error))
        if not wanted:
            return isinstance(error, Exception) and not isinstance(error, (BuildError, InputError))
        names = {
            name for kind in type(error).__mro__ for name in (kind.__name__, f"{kind.__module__}.{kind.__qualname__}")
        }
        return bool(names & set(wanted))
