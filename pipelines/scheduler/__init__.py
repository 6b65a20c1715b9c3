"""Runs that begin by themselves: schedules in the store, the decision of a moment, the process that starts runs."""

from .daemon import Scheduler
from .records import (
    ScheduleRecord,
    Tick,
    UnreadableSchedule,
    find_schedule,
    pause_schedule,
    recorded_schedules,
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
    "UnreadableSchedule",
    "find_schedule",
    "pause_schedule",
    "recorded_schedules",
    "register_schedule",
    "remove_schedule",
    "replay",
    "schedules",
    "ticks",
]
