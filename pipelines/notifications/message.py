"""What is sent: one event by its templates, several as a digest that counts and names them; in each format."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from string import Template
from typing import Any, Final, TypeAlias

from .events import KINDS, Event, count, in_words

Json: TypeAlias = Any  # a JSON value; Any because the type is recursive
SUBJECT: Final = "$title"
TEXT: Final = "$reason\nrun $run, $at"
_GROUPS: Final = 30
"""Lines of a digest."""
_NAMED: Final = 5
"""Runs that a line of a digest names."""
_LISTED: Final = 100
"""Events in the body of a webhook; all are counted."""
_SLACK_HEADER: Final = 150
_SLACK_TEXT: Final = 3000
"""Characters, by Slack's reference of its blocks; of an entity such as `&amp;` each counts."""
_LINES: Final = 100
"""Lines of a card in Teams, which takes 28 kB."""
_LINE: Final = 240


@dataclass(frozen=True)
class Message:
    """What is sent to a channel.

    Attributes:
        id: The same whenever the same message is sent again, so that who receives it twice can tell.
        rule: The rule that it is sent by.
        subject: One line.
        text: The rest, in lines.
        events: What it is about.
        count: How many events of each kind, those included that are not among `events`.
    """

    id: str
    rule: str
    subject: str
    text: str
    events: tuple[Event, ...]
    count: Mapping[str, int]

    def to_json(self) -> Json:
        """The body that a webhook gets."""
        return {
            "id": self.id,
            "rule": self.rule,
            "subject": self.subject,
            "text": self.text,
            "count": dict(self.count),
            "events": [event.fields for event in self.events[:_LISTED]],
        }

    def to_slack(self) -> Json:
        """The body that an incoming webhook of Slack gets: a text for notifications, and blocks in its place."""
        header, text = _escaped(self.subject, _SLACK_HEADER), _escaped(self.text or self.subject, _SLACK_TEXT)
        return {
            "text": _escaped(f"{self.subject}\n{self.text}", _SLACK_TEXT),
            "blocks": [
                {"type": "header", "text": {"type": "plain_text", "text": header}},
                {"type": "section", "text": {"type": "plain_text", "text": text}},
            ],
        }

    def to_teams(self) -> Json:
        """The body that a workflow of Teams gets ("When a Teams webhook request is received"): an Adaptive Card.

        Its texts are runs of text, in which nothing is Markdown, so that no message of an error becomes a link.
        """
        lines = [line[:_LINE] for line in self.text.splitlines() if line.strip()][:_LINES]
        body = [_text_run(self.subject[:_LINE], weight="Bolder", size="Medium"), *map(_text_run, lines)]
        card = {
            "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
            "type": "AdaptiveCard",
            "version": "1.4",
            "body": body,
            "msteams": {"width": "Full"},
        }
        kind = "application/vnd.microsoft.card.adaptive"
        return {"type": "message", "attachments": [{"contentType": kind, "contentUrl": None, "content": card}]}


def compose(
    identity: str, rule: str, events: Sequence[Event], more: Mapping[str, int], subject: Template, text: Template
) -> Message:
    """The message about some events.

    Args:
        identity: Its id.
        rule: The rule that it is sent by.
        events: What it is about, the oldest first.
        more: How many more of each kind there were.
        subject: Of a single event.
        text: Of a single event.
    """
    counts = count(events)
    counts = {kind: counts.get(kind, 0) + more.get(kind, 0) for kind in KINDS if kind in counts or kind in more}
    total = sum(counts.values())
    if total == 1 and events:
        (event,) = events
        title = _one_line(subject.substitute(event.fields))
        return Message(identity, rule, title, text.substitute(event.fields).strip(), (event,), counts)
    lines = _digest(events, subject)
    if left := total - len(events):
        lines.append(f"and {left} more that are not named here")
    return Message(
        identity, rule, f"{total} event{'s' * (total > 1)}: {in_words(counts)}", "\n".join(lines), tuple(events), counts
    )


def sample(channel: str) -> Message:
    """What `notify test` sends."""
    event = Event(
        "failed", "sample", "20260101-000000-0000", "Trainer", "FAILED", "this is a sample: nothing has failed",
        "2026-01-01T00:00:00+00:00",
    )  # fmt: skip
    return compose(secrets.token_hex(8), f"notify test {channel}", [event], {}, Template(SUBJECT), Template(TEXT))


def _digest(events: Sequence[Event], subject: Template) -> list[str]:
    """A line for each kind of event of each pipeline: how often, and in which runs."""
    groups: dict[tuple[str, str], list[Event]] = {}
    for event in events:
        groups.setdefault((event.event, event.pipeline), []).append(event)
    lines = []
    for group in list(groups.values())[:_GROUPS]:
        first = group[0]
        if len(group) == 1:
            reason = f": {first.reason}" if first.reason else ""
            lines.append(f"{_one_line(subject.substitute(first.fields))}{reason} ({first.run})")
            continue
        runs = ", ".join(event.run for event in group[:_NAMED])
        more = f" and {len(group) - _NAMED} more" if group[_NAMED:] else ""
        lines.append(f"{first.title}, {len(group)} times: {runs}{more}")
    if (left := len(groups) - _GROUPS) > 0:
        lines.append(f"and {left} more pipelines")
    return lines


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _escaped(text: str, longest: int) -> str:
    """A text in which nothing is Slack's markup, so that no error calls `<!channel>`; cut to so many characters."""
    while len(escaped := text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")) > longest:
        text = text[: len(text) - (len(escaped) - longest) // 5 - 1]  # an entity has up to five characters
    return escaped


def _text_run(text: str, **looks: str) -> Json:
    return {"type": "RichTextBlock", "inlines": [{"type": "TextRun", "text": text, **looks}]}
