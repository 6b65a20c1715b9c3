"""A run while it runs: a live tree in a terminal, plain lines elsewhere, nothing for --json."""

from __future__ import annotations

import os
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from ..pipelines import NodeResult, Observer, Run
from ..pipelines.launcher.states import EndState, RunState, TaskState, UnfinishedState
from .outline import outline, tasks_by_node
from .terminal import echo, output_while_read

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

STYLES: Final[Mapping[str, str]] = {
    EndState.COMPLETE: "green",
    EndState.CACHED: "cyan",
    EndState.SKIPPED: "dim",
    EndState.BLOCKED: "yellow",
    RunState.STOPPED: "yellow",
    EndState.FAILED: "red",
    UnfinishedState.INTERRUPTED: "red",
    EndState.CANCELED: "magenta",
    UnfinishedState.RUNNING: "bold blue",
    UnfinishedState.PENDING: "blue",
    UnfinishedState.WAITING: "dim",
}
"""Of tasks and runs: states that both have are spelled alike, so that they are equal."""
WORST_FIRST: Final[Sequence[TaskState]] = (
    EndState.FAILED, UnfinishedState.INTERRUPTED, EndState.CANCELED, EndState.BLOCKED, UnfinishedState.RUNNING,
    UnfinishedState.PENDING, UnfinishedState.WAITING, EndState.COMPLETE, EndState.CACHED, EndState.SKIPPED,
)  # fmt: skip
_WINDOW: Final = 10.0
"""Seconds over which a rate is measured."""
_QUIET: Final = 1.0
"""Seconds that a node may run before a line says that it does."""
_BETWEEN: Final = 10.0
"""Seconds between lines about the progress of one node."""


@dataclass
class Meter:
    """How far a piece of work is, how fast over the last seconds, and what is left.

    Attributes:
        done: Units done.
        total: Units in all, None where unknown.
        unit: What is counted: rows, examples, …
    """

    done: int = 0
    total: int | None = None
    unit: str = ""
    _samples: deque[tuple[float, int]] = field(default_factory=deque)

    def update(self, done: int, total: int | None, unit: str, now: float) -> None:
        """Take a reading; `now` in seconds of any clock that only goes forward."""
        if unit != self.unit or done < self.done:
            self._samples.clear()  # another phase of the same node
        self.done, self.total, self.unit = done, total, unit
        self._samples.append((now, done))
        while len(self._samples) > 2 and self._samples[0][0] < now - _WINDOW:
            self._samples.popleft()

    @property
    def rate(self) -> float | None:
        """Units per second over the last ten seconds; None until two readings differ in time."""
        if len(self._samples) < 2:
            return None
        (start, before), (end, after) = self._samples[0], self._samples[-1]
        return (after - before) / (end - start) if end > start else None

    @property
    def left(self) -> float | None:
        """Seconds until done at this rate; None where the total or the rate is unknown."""
        rate = self.rate
        return (self.total - self.done) / rate if self.total is not None and rate else None

    def __str__(self) -> str:
        if not self.unit and not self.done:
            return ""
        share = f" of {self.total:,} ({self.done / self.total:.0%})" if self.total else ""
        parts = [f"{self.done:,}{share} {self.unit}".rstrip()]
        if self.rate:
            parts.append(f"{self.rate:{',.0f' if self.rate >= 10 else '.2g'}} {self.unit}/s")
        if self.left is not None and self.done != self.total:
            parts.append(f"{span(self.left)} left")
        return ", ".join(parts)


def span(seconds: float) -> str:
    """A duration for people: "0.42 s", "12.3 s", "3 min 20 s", "2 h 5 min"."""
    if seconds < 60:
        return f"{seconds:.2f} s" if seconds < 9.995 else f"{seconds:.1f} s"  # from 9.995 on, two digits round to 10.00
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


def number(value: float | None) -> str:
    """A metric for people; "–" where it is undefined."""
    return "–" if value is None else f"{value:.4f}" if 0.001 <= abs(value) < 1e6 else f"{value:.4g}"


@dataclass
class _Progress:
    begin: float | None = None  # where it was not started yet
    meter: Meter = field(default_factory=Meter)
    note: str = ""
    result: NodeResult | None = None
    shown: float = 0.0


class TreeProgress:
    """An observer that redraws the DAG a few times a second: state, time, progress, rate, what is left."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._lines = list(outline(run.pipeline))
        self._nodes: dict[str, _Progress] = {}
        self._lock = threading.Lock()

    def started(self, node: str) -> None:
        """Show the node as running, its clock at 0."""
        with self._lock:
            self._nodes[node] = _Progress(time.monotonic())

    def progress(self, node: str, done: int, total: int | None, unit: str) -> None:
        """Show how far the node is, and at which rate."""
        with self._lock:
            _of(self._nodes, node).meter.update(done, total, unit, time.monotonic())

    def note(self, node: str, text: str) -> None:
        """Show the text until the next note."""
        with self._lock:
            _of(self._nodes, node).note = text

    def ended(self, result: NodeResult) -> None:
        """Show the node's state, time and reason."""
        with self._lock:
            _of(self._nodes, result.node).result = result

    def __rich__(self) -> Table:
        from rich.markup import escape
        from rich.table import Table
        from rich.text import Text

        table = Table.grid(padding=(0, 2))
        for justify in ("left", "left", "right"):
            table.add_column(justify=justify, no_wrap=True)
        table.add_column(no_wrap=True, overflow="ellipsis")  # a line that wraps would make the tree jump
        table.add_row(Text(self._run.pipeline.name, "bold"), Text(self._run.id, "dim"))
        with self._lock:
            tasks = tasks_by_node(self._nodes)
            for guide, name in self._lines:
                state, seconds, text = _together([self._nodes[task] for task in tasks.get(name, ())])
                style = STYLES[state]
                table.add_row(
                    Text.assemble((guide, "dim"), name), Text(state.lower(), style), seconds, escape(text), style=None
                )
        return table


def _of(nodes: dict[str, _Progress], name: str) -> _Progress:
    """A node's progress. A node may report before it was started: a note of what it waits for."""
    return nodes.setdefault(name, _Progress())


def _together(items: list[_Progress]) -> tuple[TaskState, str, str]:
    """State, time and text of all items of a node that have begun, as one line."""
    if len(items) < 2:
        return _now(items[0] if items else None)
    states = Counter(_now(item)[0] for item in items)
    begun = min((item.begin for item in items if item.begin is not None), default=None)
    running = states[UnfinishedState.RUNNING]
    state = UnfinishedState.RUNNING if running else next(state for state in WORST_FIRST if states[state])
    return state, span(time.monotonic() - begun) if begun is not None and running else "", counted(states.elements())


def counted(states: Iterable[TaskState]) -> str:
    """How many tasks are in each state: "3 complete, 1 failed"."""
    counts = Counter(map(str, states))
    return ", ".join(f"{counts[state]:,} {state.lower()}" for state in STYLES if counts[state])


def _now(node: _Progress | None) -> tuple[TaskState, str, str]:
    """State, time and text of one node or item at this moment."""
    if node is None:
        return UnfinishedState.WAITING, "", ""
    if node.result is not None:
        return node.result.state, span(node.result.seconds), node.result.reason.partition("\n")[0]
    said = ", ".join(part for part in (str(node.meter), node.note) if part)
    if node.begin is None:
        return UnfinishedState.WAITING, "", said
    return UnfinishedState.RUNNING, span(time.monotonic() - node.begin), said


def cause_of(result: NodeResult) -> str:
    """What went wrong, without the task's own name in it: the same for all that a full disk, say, has struck."""
    return result.reason.replace(result.node, "")


class LineProgress:
    """An observer that prints a line when a node ends, and one now and then while a long one runs."""

    def __init__(self, run: Run, say: Callable[[str], None]) -> None:
        self._say = say
        self._width = max(len(name) for name in run.pipeline.ids)
        self._nodes: dict[str, _Progress] = {}
        self._failures: dict[str, str] = {}  # the first task that ended so, by the cause
        self._lock = threading.RLock()  # reentrant: a line may be printed while a meter is updated
        say(f"{run.pipeline.name}, run {run.id}")

    def started(self, node: str) -> None:
        """Print a line a second later, unless the node has ended by then."""
        with self._lock:
            self._nodes[node] = _Progress(time.monotonic(), shown=time.monotonic())
        timer = threading.Timer(_QUIET, self._running, (node,))
        timer.daemon = True
        timer.start()

    def progress(self, node: str, done: int, total: int | None, unit: str) -> None:
        """Update the node's meter, and print it if the last line about the node is ten seconds old."""
        with self._lock:
            task, now = _of(self._nodes, node), time.monotonic()
            task.meter.update(done, total, unit, now)
            if now - task.shown >= _BETWEEN:
                task.shown = now
                self._line(node, "running", str(task.meter))

    def note(self, node: str, text: str) -> None:
        """Print the text, unless it is the last one that was printed."""
        with self._lock:
            task = _of(self._nodes, node)
            if task.note != text:
                task.note = text
                self._line(node, "note", text)

    def ended(self, result: NodeResult) -> None:
        """Print the node's state, time and the first line of its reason; what befell another before, only once."""
        with self._lock:
            _of(self._nodes, result.node).result = result
            reason = result.reason.partition("\n")[0]
            if result.state is EndState.FAILED:
                first = self._failures.setdefault(cause_of(result), result.node)
                reason = reason if first == result.node else f"as {first}"
            self._line(result.node, result.state.lower(), f"{span(result.seconds):>8}  {reason}")

    def _running(self, node: str) -> None:
        with self._lock:
            if self._nodes[node].result is None:
                self._line(node, "running", str(self._nodes[node].meter))

    def _line(self, node: str, what: str, text: str) -> None:
        self._say(f"{node:<{self._width}}  {what:<8}  {text}".rstrip())


@contextmanager
def watch(console: Console | None) -> Iterator[Callable[[Run], Observer] | None]:
    """Gives what makes an observer for a run, to be used while the block runs; None where `console` is None.

    In a terminal it is a tree, which is removed when the block ends to make room for the final table. Elsewhere it is
    lines; also in a notebook's `!command`, which calls itself a terminal and cannot move the cursor back.
    """
    if console is None or not console.is_terminal or "JPY_PARENT_PID" in os.environ:
        with output_while_read():
            yield None if console is None else lambda run: LineProgress(run, echo)
        return
    from rich.live import Live

    with Live(console=console, refresh_per_second=8, transient=True) as live:

        def begin(run: Run) -> Observer:
            tree = TreeProgress(run)
            live.update(tree)
            return tree

        yield begin
