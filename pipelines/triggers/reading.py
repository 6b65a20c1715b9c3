"""Triggers and schedules from the JSON of the IR."""

from __future__ import annotations

from typing import Final

from ...errors import BuildError, InputError
from .clock import Cron, Every
from .events import After, Drift, Failed, MetricDrop, NewArtifact
from .messages import NewMessages
from .rows import NewRows
from .schedule import Schedule
from .spans import NewSpan
from .trigger import KIND, AllOf, AnyOf, Cooldown, Debounce, Json, Trigger

_KINDS: Final[dict[str, type[Trigger]]] = {
    kind.__name__: kind
    for kind in (
        *(After, AllOf, AnyOf, Cooldown, Cron, Debounce, Drift, Every, Failed),
        *(MetricDrop, NewArtifact, NewMessages, NewRows, NewSpan),
    )
}


def read_trigger(body: Json) -> Trigger:
    """The trigger that `Trigger.to_json` described.

    Raises:
        BuildError: It is not a trigger, or one that this release does not know.
    """
    try:
        kind = _KINDS.get(body[KIND])
        if kind is None:
            raise BuildError(f"there is no trigger {body[KIND]!r:.60}", fix="upgrade drivetrain")
        return kind(**{name: _value(value) for name, value in body.items() if name != KIND})
    except (KeyError, TypeError, AttributeError, InputError) as error:
        cause = error.message if isinstance(error, InputError) else error
        raise BuildError(f"a trigger cannot be read: {cause}", fix="register its schedule again") from None


def read_schedule(body: Json) -> Schedule:
    """The schedule that `Schedule.to_json` described.

    Raises:
        BuildError: It is not a schedule, or of a newer release.
    """
    try:
        return Schedule(**body | {"trigger": read_trigger(body["trigger"])})
    except (KeyError, TypeError) as error:
        raise BuildError(f"a schedule cannot be read: {error}", fix="register it again") from None


def _value(value: Json) -> object:
    if isinstance(value, dict) and KIND in value:
        return read_trigger(value)
    return tuple(_value(each) for each in value) if isinstance(value, list) else value
