"""Messages to people about what happened in a store: on failure, on recovery, when a gate refuses or somebody must."""

from .channels import DeliveryError, deliver, failure_of
from .events import Event, EventSource
from .message import Message, compose, sample
from .notifier import Notifier
from .outbox import Outbox, log, outboxes
from .settings import NotificationSettings, Rule, read_notifications

__all__ = [
    "DeliveryError",
    "Event",
    "EventSource",
    "Message",
    "NotificationSettings",
    "Notifier",
    "Outbox",
    "Rule",
    "compose",
    "deliver",
    "failure_of",
    "log",
    "outboxes",
    "read_notifications",
    "sample",
]
