"""What an execution took and gave, out of MLMD's events: each artifact once, at one place."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from . import names
from .file import Step

_PREFERRED: Final = (4, 6, 1, 7)  # OUTPUT, INTERNAL_OUTPUT, DECLARED_OUTPUT, PENDING_OUTPUT


@dataclass(frozen=True)
class Place:
    """An artifact at a place.

    Attributes:
        key: The name of the input or output; "artifact" where MLMD has no path.
        index: Which of those of that name; None where MLMD does not say.
        artifact: Its id there.
        at: When, in milliseconds.
    """

    key: str
    index: int | None
    artifact: int
    at: int


@dataclass
class Flow:
    """What one execution took and gave, in the order in which it was recorded."""

    takes: list[Place] = field(default_factory=list)
    gives: list[Place] = field(default_factory=list)


def flow_of(events: Iterable[Step]) -> dict[int, Flow]:
    """The flows of executions, by id.

    The same output is recorded as declared, pending and given: it is one. Events of no known kind are none.
    """
    takes: dict[int, dict[tuple[int, str, int | None], Place]] = {}
    gives: dict[int, dict[int, tuple[int, Place]]] = {}
    for event in events:
        place = _place(event)
        if event.kind in names.INPUTS:
            takes.setdefault(event.execution, {}).setdefault((place.artifact, place.key, place.index), place)
        elif event.kind in names.OUTPUTS:
            rank = _PREFERRED.index(event.kind)
            there = gives.setdefault(event.execution, {})
            if place.artifact not in there or rank < there[place.artifact][0]:
                there[place.artifact] = (rank, place)
    return {
        execution: Flow(
            list(takes.get(execution, {}).values()), [place for _, place in gives.get(execution, {}).values()]
        )
        for execution in takes.keys() | gives.keys()
    }


def _place(event: Step) -> Place:
    """A path such as ("examples", 0): TFX writes a name and an index; others write what they like."""
    *front, last = event.path or ("artifact",)
    if isinstance(last, int) and front:
        return Place("/".join(map(str, front)), last, event.artifact, event.at)
    return Place("/".join(map(str, event.path)) or "artifact", None, event.artifact, event.at)
