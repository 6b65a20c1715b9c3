"""Runs that begin by themselves: schedules in the store, the decision of a moment, the process that starts runs.

The process of a run that a schedule started imports this package and few of its names: they are imported on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...lazy import lazy_names

if TYPE_CHECKING:
    from .daemon import Scheduler as Scheduler
    from .firings import Firing as Firing
    from .firings import replay as replay
    from .records import ScheduleRecord as ScheduleRecord
    from .records import Tick as Tick
    from .records import UnreadableSchedule as UnreadableSchedule
    from .records import find_schedule as find_schedule
    from .records import pause_schedule as pause_schedule
    from .records import recorded_schedules as recorded_schedules
    from .records import register_schedule as register_schedule
    from .records import remove_schedule as remove_schedule
    from .records import schedules as schedules
    from .records import ticks as ticks

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "daemon": "Scheduler",
        "records": "ScheduleRecord Tick UnreadableSchedule find_schedule pause_schedule recorded_schedules "
        "register_schedule remove_schedule schedules ticks",
        "firings": "Firing replay",
    },
)
