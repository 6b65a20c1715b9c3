"""When a pipeline runs by itself: `@dt.pipeline(schedule=dt.triggers.Cron("0 3 * * *", tz="Europe/Oslo"))`.

Triggers are combined with `&` and `|`, and changed by `.debounce("10m")` and `.cooldown("6h")`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...lazy import lazy_names

if TYPE_CHECKING:
    from .clock import Cron as Cron
    from .clock import Every as Every
    from .events import After as After
    from .events import Drift as Drift
    from .events import Failed as Failed
    from .events import MetricDrop as MetricDrop
    from .events import NewArtifact as NewArtifact
    from .messages import NewMessages as NewMessages
    from .rows import NewRows as NewRows
    from .schedule import Schedule as Schedule
    from .spans import NewSpan as NewSpan
    from .trigger import Signal as Signal
    from .trigger import Trigger as Trigger
    from .trigger import TriggerView as TriggerView

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "clock": "Cron Every",
        "events": "After Drift Failed MetricDrop NewArtifact",
        "messages": "NewMessages",
        "rows": "NewRows",
        "schedule": "Schedule",
        "spans": "NewSpan",
        "trigger": "Signal Trigger TriggerView",
    },
)
