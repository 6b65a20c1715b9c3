"""What a running component may ask of its launch: where to work, how far it is, which executor to use."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol, SupportsFloat

from ...errors import InputError
from ...progress import Progress, no_progress
from .metrics import Metrics

if TYPE_CHECKING:
    from ...metadata import Artifact


def _ignore_note(text: str) -> None:
    """The `note` of a plain call: there is nobody to show it to."""


def _undecided() -> None:
    """The `decision` of a plain call: nobody has made one."""


def _register_nothing(model: Artifact, name: str, alias: str, why: str) -> int:
    """The `register` of a plain call: there is no store to register anything in."""
    raise InputError(
        "nothing is registered outside a run", fix="call it in a pipeline, or `drivetrain registry register`"
    )


def _no_provenance(uri: str) -> Mapping[str, object]:
    """The `provenance` of a plain call: no store knows the artifact."""
    return {}


def _nothing_pushed() -> Sequence[Mapping[str, object]]:
    """The `pushed` of a plain call: there is no store that knows of a push."""
    return ()


def _ignore_facts(output: str, facts: Mapping[str, object]) -> None:
    """The `preflight` of a plain call: no component takes the output later."""


class TrialRecorder(Protocol):
    """Records the trials of a search while they are at work, each attempt at one as an execution of its own.

    What cannot be recorded is noted, and the search goes on: `ended` tells later what is missing.
    """

    def begin(self, number: int, properties: Mapping[str, object]) -> None:
        """Record that a trial is RUNNING, with these properties."""

    def end(
        self,
        number: int,
        state: Literal["COMPLETE", "FAILED", "CANCELED", "ABANDONED"],
        error: str | None = None,
        properties: Mapping[str, object] | None = None,
    ) -> None:
        """Record how a trial that is RUNNING ended; its further properties are merged into those that it has."""

    def ended(self) -> set[int]:
        """The numbers of trials that are recorded to have ended, whichever execution searched; not those ABANDONED."""
        ...


class UnrecordedTrials:
    """The `trials` of a plain call: there is no store to record them in.

    Args:
        search: The search.
    """

    def __init__(self, search: str) -> None:
        pass

    def begin(self, number: int, properties: Mapping[str, object]) -> None:
        """Record nothing."""

    def end(
        self, number: int, state: str, error: str | None = None, properties: Mapping[str, object] | None = None
    ) -> None:
        """Record nothing."""

    def ended(self) -> set[int]:
        """None."""
        return set()


def _never_canceled() -> None:
    """The `check` of a plain call: no run can be asked to stop."""


def _print(text: str, last: str) -> None:
    """The `printed` of a plain call: it writes the lines to standard output."""
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
        preflight: Called before long work with an output's key and what is known of it already: who takes that output
            later refuses it now (`component(preflight=…)`), by an InputError.
        work: Where `work_dir` lies; a temporary folder where None.
        decision: Gives what a person said of this node in this run, as the properties of a `Decision`; None until then.
        register: Makes an artifact that was published the next version of a registered model, and has an alias stand
            for it unless that is "": called with the artifact, the name, the alias and why; gives the version.
        provenance: Gives of an artifact, by its URI, how it came to be, as JSON: `run`, `pipeline` and `node`, of the
            asking task; of its producer `execution`, `component`, `parameters`, `code` (digests by file),
            `environment`, `started`, `finished`; `artifacts` (uri, type, fingerprint, span, version) and `files` (name,
            size, sha256) that it was made from. What is not known is left out.
        pushed: Gives the properties of every `PushedModel` that the store knows, also of those that were deleted.
        trials: Gives who records the trials of a search, of its name: the uid of the execution that began it.
        metrics: What `metric` has recorded.
    """

    run: str = ""
    node: str = ""
    execution: str = ""
    base: Path = field(default_factory=Path.cwd)
    executor: str = "local"
    executor_options: tuple[str, ...] = ()
    progress: Progress = no_progress
    note: Callable[[str], None] = _ignore_note
    printed: Callable[[str, str], None] = _print
    check: Callable[[], None] = _never_canceled
    preflight: Callable[[str, Mapping[str, object]], None] = _ignore_facts
    work: Path | None = None
    decision: Callable[[], Mapping[str, object] | None] = _undecided
    register: Callable[[Artifact, str, str, str], int] = _register_nothing
    provenance: Callable[[str], Mapping[str, object]] = _no_provenance
    pushed: Callable[[], Sequence[Mapping[str, object]]] = _nothing_pushed
    trials: Callable[[str], TrialRecorder] = UnrecordedTrials
    metrics: Metrics = field(default_factory=Metrics)

    def metric(self, name: str, value: SupportsFloat, *, step: int | None = None) -> None:
        """Record a number with this execution: `drivetrain runs` shows it, and `dt.artifact(where=…)` can ask for it.

        Args:
            name: E.g. "loss"; a later value of the same name replaces the one before.
            value: A number, also a scalar of numpy or JAX. One that is not finite is recorded as undefined.
            step: Where in the work it was measured: then it is also kept as a point of the metric's curve. Of a curve
                of more than 1,000 points an even selection is kept.

        Raises:
            InputError: It is not a number or has no name, or there are more than 1,000 metrics.
        """
        self.metrics.record(name, value, step)

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
