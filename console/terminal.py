"""How a verb prints: texts come from data, names and errors of others, and nothing in them may steer the terminal."""

from __future__ import annotations

import errno
import io
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

import click

from ..progress import Progress, no_progress
from ..redaction import printable

if TYPE_CHECKING:
    from rich.console import Console


_LOST: Final[list[OSError]] = []


def echo(text: str, *, err: bool = False, end: str = "\n") -> None:
    """Print a text on standard output or standard error, redacted, with control characters written out.

    Where nobody reads standard error, nobody misses what is said there. Of standard output it is an error: a verb whose
    answer is not read has nothing more to do.
    """
    try:
        click.echo(printable(text) + end, nl=False, err=err)
    except OSError:
        if not err:
            raise
        _drop(sys.stderr.fileno())


class _Outlet(io.FileIO):
    """A descriptor that takes what it is given, also where nobody reads it or the disk is full: then it is dropped."""

    def write(self, data: Any) -> int:  # Any: whatever has bytes
        try:
            return super().write(data)
        except OSError as error:
            _drop(self.fileno())
            if not isinstance(error, BrokenPipeError) and error.errno != errno.EBADF:  # a component has closed it
                _LOST.append(error)
            return len(data)


@contextmanager
def output_while_read() -> Iterator[None]:
    """Within the block no print fails, of a component either: the work goes on, whatever became of the output.

    A descriptor that a component has closed is one that nobody reads, from then on.
    """
    before = sys.stdout, sys.stderr
    outlets = []
    for name, stream in zip(("stdout", "stderr"), before, strict=True):
        with suppress(OSError, ValueError, AttributeError):  # it has no descriptor, as in a test
            with suppress(OSError):  # what it holds goes where the outlet goes
                stream.flush()
            file = io.BufferedWriter(_Outlet(stream.fileno(), "wb", closefd=False))
            outlets.append(io.TextIOWrapper(file, stream.encoding, stream.errors, line_buffering=name == "stderr"))
            setattr(sys, name, outlets[-1])
    try:
        yield
    finally:
        for outlet in outlets:
            with suppress(ValueError):  # a component has closed it
                outlet.flush()
        sys.stdout, sys.stderr = before
        for outlet in outlets:
            try:
                os.fstat(outlet.fileno())
            except ValueError:  # the stream is closed, not the descriptor
                pass
            except OSError:
                _drop(outlet.fileno())


def drop_output() -> None:
    """Print no more on standard output, so that no later print fails, nor Python when it flushes at exit."""
    _drop(sys.stdout.fileno())


def _drop(number: int) -> None:
    nowhere = os.open(os.devnull, os.O_WRONLY)
    if nowhere != number:  # as it is where the descriptor was closed, and is the lowest that is free
        os.dup2(nowhere, number)
        os.close(nowhere)


def lost_output() -> OSError | None:
    """Why something could not be printed in `output_while_read`, once; None where all could."""
    return _LOST.pop() if _LOST else None


def terminal(*, stderr: bool = False) -> Console:
    """Standard output or standard error. Where it is not a terminal it is 120 characters wide and has no colour."""
    from rich.console import Console
    from rich.segment import Segment

    class PrintableConsole(Console):
        """Writes out what would steer the terminal, but what rich itself says to it."""

        def render(self, *arguments: Any, **options: Any) -> Iterable[Segment]:
            for segment in super().render(*arguments, **options):
                yield segment if segment.control else Segment(printable(segment.text), segment.style)

        def on_broken_pipe(self) -> None:
            raise BrokenPipeError  # which the shell takes for an end, where rich would exit with 1

    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else 120
    return PrintableConsole(file=stream, width=width, highlight=False, soft_wrap=False)


@contextmanager
def showing_progress(what: str) -> Iterator[Progress]:
    """Gives a progress that draws a bar on standard error, where that is a terminal."""
    if not sys.stderr.isatty():
        yield no_progress
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Bars(*columns, console=Console(stderr=True), transient=True) as bars:
        bar = bars.add_task(what)
        yield lambda done, total, unit: bars.update(bar, description=f"{what} {unit}", completed=done, total=total)
