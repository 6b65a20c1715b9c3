"""Runs that begin by themselves: schedules in the store, the decision of a moment, the process that starts runs."""

from .daemon import Scheduler
from .records import (
    ScheduleRecord,
    Tick,
    find_schedule,
    pause_schedule,
    register_schedule,
    remove_schedule,
    schedules,
    ticks,
)
from .replay import Firing, replay

__all__ = [
    "Firing",
    "ScheduleRecord",
    "Scheduler",
    "Tick",
    "find_schedule",
    "pause_schedule",
    "register_schedule",
    "remove_schedule",
    "replay",
    "schedules",
    "ticks",
]
