"""What `fit` returns to, and how often, when a loss, a gradient or a parameter is no longer finite."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp

from ...errors import InputError

if TYPE_CHECKING:
    from .program import State


@dataclass(frozen=True)
class Rollback:
    """A return to the last good state of a training, in place of the error that ends it.

    The good state is a copy, on the devices, of all that a step changes, with what the callbacks remember: that of the
    begin, and then of the end of each epoch. Batches are not trained on again (as with PaLM: Chowdhery et al., 2022,
    section 5.1): the training goes on with the batch after the dispatch in which it broke, of at most 32 steps.

    Attributes:
        times: How many rollbacks there are at most; after those the error ends the training.
        factor: By what the updates of the optimizer are multiplied from each rollback on, above 0 and at most 1.
        every: Steps: the good state is taken at each multiple within an epoch too, after the dispatch that reaches it.

    Raises:
        InputError: A number that cannot be.
    """

    times: int = 3
    factor: float = 0.5
    every: int | None = None

    def __post_init__(self) -> None:
        counts: dict[str, Any] = {"times": self.times} | ({} if self.every is None else {"every": self.every})
        for name, number in counts.items():
            if not isinstance(number, int) or number < 1:
                raise InputError(f"{name} of the rollback is {number!r}", fix="use a whole number, 1 or more")
        factor: Any = self.factor  # the user's, as those are
        if not isinstance(factor, float | int) or not 0 < factor <= 1:
            raise InputError(f"factor of the rollback is {factor!r}", fix="use more than 0 and at most 1, such as 0.5")

    def due(self, step: int, count: int) -> bool:
        """Whether the good state is to be taken when `count` steps after the first `step` have run."""
        return self.every is not None and (step + count) // self.every > step // self.every


@dataclass(frozen=True)
class RollbackRecord:
    """One rollback of a training; steps are counted from 1.

    Attributes:
        step: The step whose loss or gradients, or after which a parameter, was not finite.
        restored_step: The step after which the state was as it is again; 0 for the initial one.
        resumed_step: The step with which the training goes on: the steps between have no effect.
        scale: By what updates are multiplied from then on.
        reason: What was not finite, in words.
    """

    step: int
    restored_step: int
    resumed_step: int
    scale: float
    reason: str


@dataclass
class GoodState:
    """What a rollback brings back.

    Attributes:
        step: How many steps it is after.
        arrays: All that a step changes, on the devices.
        record: What else a checkpoint knows of the epoch under way, JSON values.
    """

    step: int
    arrays: State
    record: dict[str, Any]  # Any: JSON


def copied(state: State) -> State:
    """A copy on the devices: a step gives away the arrays that it takes."""
    copy: State = jax.tree.map(jnp.copy, state)
    return copy
