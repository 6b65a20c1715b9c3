"""A schedule: a pipeline's trigger, and how the runs that it starts are carried out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from ...errors import BuildError, InputError
from .trigger import Json, Trigger

SCHEDULES: Final = "schedule"
"""The type of the contexts in the store that hold schedules."""
Version: TypeAlias = Literal["follow", "pin"]
Interrupted: TypeAlias = Literal["leave", "resume"]


def ticks_of(name: str) -> str:
    """The type of the contexts that hold what a schedule decided: one for each, so that its index gives the newest."""
    return f"ticks of {name}"


@dataclass(frozen=True)
class Schedule:
    """When a pipeline runs by itself, and how.

    Attributes:
        trigger: When.
        parameters: Values of the pipeline's parameters; the others have their defaults.
        max_active: How many of its runs may be at work at once; a run that is due waits for its turn.
        version: What an edit of the project does: with "follow" each run takes the code as it is then; with "pin" each
            goes on with the modules as they were when the schedule was registered.
        runner: Which runner carries runs out.
        interrupted: What becomes of a run whose process died: with "leave" it waits for `drivetrain resume`, with
            "resume" it goes on by itself, three times at most.
    """

    trigger: Trigger
    parameters: Mapping[str, Json] = field(default_factory=dict)
    max_active: int = 1
    version: Version = "follow"
    runner: str = "inline"
    interrupted: Interrupted = "leave"

    def __post_init__(self) -> None:
        if not isinstance(self.trigger, Trigger):
            raise BuildError(
                f"{self.trigger!r:.80} is not a trigger",
                fix="write dt.triggers.Cron('0 3 * * *', tz='Europe/Oslo')",
            )
        if not isinstance(self.parameters, Mapping):
            raise InputError(f"parameters is {self.parameters!r:.40}", fix='give e.g. {"epochs": 5}')
        if type(self.max_active) is not int or self.max_active < 1:
            raise InputError(f"max_active is {self.max_active!r:.40}", fix="give 1 or more")
        if self.version not in ("follow", "pin"):
            raise InputError(f"version is {self.version!r:.40}", fix="give 'follow' or 'pin'")
        if self.interrupted not in ("leave", "resume"):
            raise InputError(f"interrupted is {self.interrupted!r:.40}", fix="give 'leave' or 'resume'")

    def to_json(self) -> Json:
        """The schedule as it stands in the IR, without what has its default."""
        more = {
            "parameters": dict(self.parameters),
            "max_active": self.max_active,
            "version": self.version,
            "runner": self.runner,
            "interrupted": self.interrupted,
        }
        default = {"parameters": {}, "max_active": 1, "version": "follow", "runner": "inline", "interrupted": "leave"}
        return {"trigger": self.trigger.to_json()} | {
            name: value for name, value in more.items() if value != default[name]
        }
