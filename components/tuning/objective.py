"""Objectives: which recorded values are to become small or large, and which of several trials is the best."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ...errors import InputError, suggest

Mode = Literal["min", "max"]


@dataclass(frozen=True)
class Objective:
    """One value of an epoch's record, and whether a smaller or a larger one is better."""

    name: str
    mode: Mode

    def better(self, value: float, other: float) -> bool:
        """Whether one value is better than another."""
        return value > other if self.mode == "max" else value < other

    def best(self, values: Sequence[float]) -> float:
        """The best of some."""
        return max(values) if self.mode == "max" else min(values)


def sign_of(mode: str) -> float:
    """What a value is multiplied by, so that smaller ones are better."""
    return -1.0 if mode == "max" else 1.0


def objectives_of(objective: str | Mapping[str, Any]) -> tuple[Objective, ...]:
    """The objectives that a pipeline names, in order.

    Args:
        objective: "loss" or "eval_loss"; or names with "min" or "max".

    Raises:
        InputError: There is none, or the direction of a metric is not said.
    """
    named = {objective: None} if isinstance(objective, str) else objective
    if not named:
        raise InputError("there is no objective", fix='name one, such as objective="eval_loss"')
    chosen = []
    for name, mode in named.items():
        if mode is None and name not in ("loss", "eval_loss"):
            raise InputError(
                f"whether a smaller or a larger {name!r} is better is not known",
                fix=f'write objective={{"{name}": "max"}}, or "min"',
            )
        if mode not in (None, "min", "max"):
            raise InputError(f"the objective {name!r} has no direction {mode!r}", fix='use "min" or "max"')
        chosen.append(Objective(name, mode or "min"))
    return tuple(chosen)


def check_recorded(objectives: Sequence[Objective], names: Sequence[str]) -> None:
    """Refuse an objective that a training does not record.

    Raises:
        InputError: Naming it and what is recorded.
    """
    for objective in objectives:
        if objective.name not in names:
            fix = suggest(objective.name, names, "run.fit records")
            if objective.name == "eval_loss":
                fix = 'give the Tuner an eval split that has rows, or tune by objective="loss"'
            raise InputError(f"no trial records the objective {objective.name!r}", fix=fix)


def pareto(objectives: Sequence[Objective], values: Mapping[int, Sequence[float]]) -> list[int]:
    """The trials that no other is better than in one objective and as good as in all: the Pareto front, by number.

    Args:
        objectives: What the values are.
        values: Of each trial, by its number, in the order of the objectives.
    """

    def beats(first: Sequence[float], second: Sequence[float]) -> bool:
        pairs = list(zip(objectives, first, second, strict=True))
        return any(o.better(a, b) for o, a, b in pairs) and not any(o.better(b, a) for o, a, b in pairs)

    return sorted(n for n, mine in values.items() if not any(beats(other, mine) for other in values.values()))


def best_trial(objectives: Sequence[Objective], values: Mapping[int, Sequence[float]]) -> int | None:
    """The number of the best trial: best in the first objective, then in the next, then the earliest.

    It is always on the Pareto front.
    """

    def rank(number: int) -> tuple[float, ...]:
        signed = zip(objectives, values[number], strict=True)
        return (*(sign_of(each.mode) * value for each, value in signed), number)

    return min(values, key=rank, default=None)


def values_of(objectives: Sequence[Objective], record: Mapping[str, float | None]) -> list[float]:
    """The objectives' values in an epoch's record; NaN where it has none."""
    return [math.nan if (value := record.get(each.name)) is None else float(value) for each in objectives]
