"""Hints at the head of a loop: a bound on its steps, and whether it is unrolled."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final

from ...errors import InputError
from .._caller import caller


@dataclass(frozen=True)
class LoopOptions:
    """How a loop becomes part of the graph.

    Attributes:
        max_steps: The most steps it ever takes, or None.
        unroll: True to unroll it in Python, False to make a range of Python numbers one loop of the graph; None: a
            range is unrolled, the rows of a tensor are not.
    """

    max_steps: int | None = None
    unroll: bool | None = None


DEFAULTS: Final[ContextVar[LoopOptions]] = ContextVar("drivetrain_loops", default=LoopOptions())  # noqa: B039  # frozen


def loop_options(*, max_steps: int | None = None, unroll: bool | None = None) -> LoopOptions:
    """Say how the loop becomes part of the graph; the first statement of its body. In Python it does nothing.

    Args:
        max_steps: A bound on the steps, which makes the loop a scan over that many: it then has gradients, and its
            memory grows with the bound. A loop that has not ended by then stops, and its floats are NaN.
        unroll: For a loop over a range or the rows of a tensor: True repeats the body in the graph, one copy for each
            step; False makes a range of Python numbers one loop, its index a tensor: for what compiles too long.

    Returns:
        The options, for `@function(max_steps=…)` to merge.

    Raises:
        InputError: `max_steps` is not a positive whole number.
    """
    steps: object = max_steps  # callers without a type checker get the error too
    if steps is not None and (isinstance(steps, bool) or not isinstance(steps, int) or steps < 1):
        raise InputError(f"max_steps is {max_steps!r}", fix="give a whole number of at least 1", where=caller())
    return LoopOptions(max_steps, unroll)


def set_max_steps(steps: int) -> LoopOptions:
    """`loop_options(max_steps=steps)`.

    Returns:
        The options.

    Raises:
        InputError: `steps` is not a positive whole number.
    """
    return loop_options(max_steps=steps)
