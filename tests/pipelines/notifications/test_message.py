"""What is sent: templates, digests, and that nothing in an error becomes markup of a chat."""

from __future__ import annotations

import json
from string import Template

from drivetrain.pipelines.notifications import Event, Message, compose
from drivetrain.pipelines.notifications.message import SUBJECT, TEXT
from hypothesis import given
from hypothesis import strategies as st


def composed(*events: Event, subject: str = SUBJECT, text: str = TEXT, **more: int) -> Message:
    return compose("id", "all", events, more, Template(subject), Template(text))


def failure(run: str = "r1", pipeline: str = "shop", reason: str = "boom") -> Event:
    return Event("failed", pipeline, run, "Train", "FAILED", reason, "2026-11-28T10:00:00+00:00", "nightly")


def test_one_event_by_its_templates() -> None:
    message = composed(failure(), subject="$pipeline/$node: $event", text="$reason by $schedule at $at, $state $run")
    assert message.subject == "shop/Train: failed"
    assert message.text == "boom by nightly at 2026-11-28T10:00:00+00:00, FAILED r1"
    assert composed(failure()).subject == "shop failed"
    assert composed(failure(reason="$run {0.__class__} %s")).text.startswith("$run {0.__class__} %s\n")


def test_many_events_are_counted_and_named() -> None:
    events = [failure(f"r{number}", "shop" if number % 2 else "mart") for number in range(200)]
    message = composed(*events, Event("recovered", "ship", "s1"))
    assert message.subject == "201 events: 200 failed, 1 recovered"
    assert message.text.splitlines() == [
        "mart failed, 100 times: r0, r2, r4, r6, r8 and 95 more",
        "shop failed, 100 times: r1, r3, r5, r7, r9 and 95 more",
        "ship works again (s1)",
    ]
    assert len(message.to_json()["events"]) == 100
    assert message.to_json()["count"] == {"failed": 200, "recovered": 1}
    more = composed(failure(), failed=900, stopped=2)
    assert more.subject == "903 events: 901 failed, 2 stopped"
    assert more.text.splitlines()[-1] == "and 902 more that are not named here"
    assert composed(failed=1).subject == "1 event: 1 failed"


def test_the_formats_of_chats() -> None:
    message = composed(failure(reason="<!channel> & <http://evil|click> [here](http://evil)"))
    slack = message.to_slack()
    assert slack.keys() == {"text", "blocks"}
    assert "&lt;!channel&gt; &amp; &lt;http://evil|click&gt;" in slack["text"]
    assert [block["type"] for block in slack["blocks"]] == ["header", "section"]
    assert all(block["text"]["type"] == "plain_text" for block in slack["blocks"])
    teams = message.to_teams()
    (attachment,) = teams["attachments"]
    assert (teams["type"], attachment["contentType"]) == ("message", "application/vnd.microsoft.card.adaptive")
    card = attachment["content"]
    assert (card["type"], card["$schema"]) == ("AdaptiveCard", "http://adaptivecards.io/schemas/adaptive-card.json")
    assert {block["type"] for block in card["body"]} == {"RichTextBlock"}  # in which nothing is Markdown
    assert card["body"][1]["inlines"][0]["text"].endswith("[here](http://evil)")


@given(
    st.lists(st.text("a<>&$ \n\x1b\U0001f525", max_size=3000), max_size=40),
    st.text("a<>&$ \n\U0001f525", max_size=3000),
)
def test_chats_take_it_however_long_it_is(reasons: list[str], title: str) -> None:
    events = [failure(f"r{number}", f"p{number}", reason) for number, reason in enumerate(reasons)] or [failure()]
    message = composed(*events, subject=title.replace("$", "$$"))
    slack = message.to_slack()
    assert len(slack["blocks"][0]["text"]["text"]) <= 150
    assert 0 <= len(slack["blocks"][1]["text"]["text"]) <= 3000
    assert len(json.dumps(message.to_teams(), ensure_ascii=False).encode()) < 28_000
    assert "\n" not in message.subject
    assert "\x1b" not in json.dumps(message.to_json(), ensure_ascii=False)
