"""What a running component may ask of its launch: where to work, how far it is, which executor to use."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from ...progress import Progress, no_progress


def _unheard(text: str) -> None:
    """A `note` that does nothing."""


def _undecided() -> None:
    """A `decision` that nobody has made."""


def _unforeseen(output: str, facts: Mapping[str, object]) -> None:
    """A `foresee` that nobody listens to."""


def _unstopped() -> None:
    """A `check` that nobody stops."""


def _print(text: str, last: str) -> None:
    """A `printed` that writes to standard output."""
    if text:
        print(text, flush=True)


@dataclass(frozen=True)
class LaunchContext:
    """The launch that a component runs in; a plain call in a test gets one with harmless defaults.

    Attributes:
        run: Run id, empty outside a run.
        node: Node id, empty outside a run.
        execution: Uid of the execution that the store records of this launch, empty where it records none.
        base: The folder that relative outputs mean (the parent of the root).
        executor: Which executor data passes use: "local" or "beam".
        executor_options: Options of that executor, e.g. Beam's pipeline flags.
        progress: Called as (done, total or None, unit); raises `Canceled` once the run is asked to stop.
        note: Called with one line worth showing.
        printed: Called with lines that a process of the component's printed, "" for none, and with the one of them
            that is worth showing now, "" for none.
        check: Raises `Canceled` once the run is asked to stop.
        foresee: Called before long work with an output's key and what is known of it already: who takes that output
            later refuses it now (`component(foresee=…)`), by an InputError.
        work: Where `work_dir` lies; a temporary folder where None.
        decision: Gives what a person said of this node in this run, as the properties of a `Decision`; None until then.
    """

    run: str = ""
    node: str = ""
    execution: str = ""
    base: Path = field(default_factory=Path.cwd)
    executor: str = "local"
    executor_options: tuple[str, ...] = ()
    progress: Progress = no_progress
    note: Callable[[str], None] = _unheard
    printed: Callable[[str, str], None] = _print
    check: Callable[[], None] = _unstopped
    foresee: Callable[[str, Mapping[str, object]], None] = _unforeseen
    work: Path | None = None
    decision: Callable[[], Mapping[str, object] | None] = _undecided

    @cached_property
    def work_dir(self) -> Path:
        """A folder that outlives attempts at the same work until it is published: the place for checkpoints.

        Of a plain call it goes with the process.
        """
        if self.work is None:
            folder = Path(tempfile.mkdtemp(prefix="drivetrain-work-"))
            atexit.register(shutil.rmtree, folder, ignore_errors=True)
            return folder
        self.work.mkdir(parents=True, exist_ok=True)
        return self.work


_CURRENT: ContextVar[LaunchContext | None] = ContextVar("drivetrain_launch", default=None)


def current() -> LaunchContext:
    """The launch this code runs in."""
    return _CURRENT.get() or LaunchContext()


def enter(context: LaunchContext) -> Callable[[], None]:
    """Make a context current for this thread; returns a function that undoes it."""
    token = _CURRENT.set(context)
    return lambda: _CURRENT.reset(token)
