"""`notifications.yaml`: what is wrong in it is named with its line and a name that is near."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from drivetrain.errors import InputError
from drivetrain.pipelines.notifications import Event, read_notifications
from drivetrain.pipelines.notifications.channels import MailChannel, WebChannel
from drivetrain.pipelines.notifications.references import SecretReference
from drivetrain.redaction import redact

WHOLE = """
channels:
  team: {kind: slack, url: env:SLACK}
  office: {kind: teams, url: file:teams.txt}
  pager: {kind: webhook, url: "https://pager.example.org/hook", headers: {Authorization: env:PAGER, X-Team: shop}}
  mail:
    kind: email
    host: smtp.example.org
    from: drivetrain <drivetrain@example.org>
    to: [a@example.org, b@example.org]
    username: drivetrain
    password: file:password.txt
rules:
  nightly:
    events: [failed, recovered]
    pipelines: [flights, "shop-*"]
    channels: [team, mail]
    wait: 1m
    window: 10m
    subject: "$pipeline: $event"
    text: "costs $$5, says $reason"
  other: {events: champion, channels: pager}
"""


def read(tmp_path: Path, text: str) -> None:
    (tmp_path / "notifications.yaml").write_text(textwrap.dedent(text))
    read_notifications(tmp_path / "notifications.yaml")


def test_a_whole_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "notifications.yaml").write_text(WHOLE)
    settings = read_notifications(tmp_path / "notifications.yaml")
    mail = settings.channels["mail"]
    assert isinstance(mail, MailChannel)
    assert (mail.port, mail.security, mail.to) == (587, "starttls", ("a@example.org", "b@example.org"))
    assert mail.sender == "drivetrain <drivetrain@example.org>"
    pager = settings.channels["pager"]
    assert isinstance(pager, WebChannel)
    assert pager.headers == {"Authorization": SecretReference("env:PAGER", tmp_path), "X-Team": "shop"}
    nightly, other = settings.rules
    assert (nightly.wait, nightly.window, other.wait, other.window) == (60, 600, 10, 300)
    assert nightly.wants(Event("failed", "shop-eu"))
    assert not nightly.wants(Event("failed", "shop"))
    assert not nightly.wants(Event("champion", "flights"))
    assert other.wants(Event("champion", "anything"))


CHANNELS = "channels:\n  pager: {kind: webhook, url: https://example.org/}\n"
RULE = "rules:\n  all: {events: [failed], channels: [pager]}\n"


@pytest.mark.parametrize(
    ("text", "line", "message", "fix"),
    [
        ("", 0, "is empty", "write channels:"),
        ("channels: {}\nrulez: {}\n", 2, "unknown key 'rulez'", "did you mean 'rules'?"),
        ("channels:\n  a: {kind: slak, url: env:A}\n" + RULE, 2, "channels.a.kind is 'slak'", "slack"),
        ("channels:\n  a:\n    kind: slack\n    uri: env:A\n" + RULE, 4, "unknown key 'uri'", "did you mean 'url'?"),
        (
            "channels:\n  a: {kind: slack, url: https://x.example/T0/B0}\n" + RULE,
            2,
            "who knows this address",
            "env:NAME",
        ),
        ("channels:\n  a: {kind: webhook, url: http://example.org/}\n" + RULE, 2, "is not encrypted", "https://"),
        (
            "channels:\n  a: {kind: webhook, url: ftp://example.org/}\n" + RULE,
            2,
            "is not a web address",
            "https://",
        ),
        ("channels:\n  a: {kind: webhook, url: https://me:it@example.org/}\n" + RULE, 2, "holds a password", "take it"),
        (
            "channels:\n  a: {kind: webhook, url: https://example.org/?token=T}\n" + RULE,
            2,
            "holds a password",
            "take it",
        ),
        (
            "channels:\n  a: {kind: webhook, url: https://example.org, headers: {X-Api-Key: abcdef}}\n" + RULE,
            2,
            "channels.a.headers.X-Api-Key is the secret itself",
            "env:NAME",
        ),
        (
            "channels:\n  a: {kind: email, host: h, from: a@x.org, to: a@x.org, username: u, password: hunter22}\n"
            + RULE,
            2,
            "is the password itself",
            "env:NAME",
        ),
        ("channels:\n  a: {kind: email, host: h, from: a@x.org, to: a}\n" + RULE, 2, "'a' is not an address", "team@"),
        (
            "channels:\n  a: {kind: email, host: mail.org, from: a@x.org, to: a@x.org, security: none}\n" + RULE,
            2,
            "would not be encrypted",
            "starttls",
        ),
        (CHANNELS + "rules:\n  all: {events: [faild], channels: [pager]}\n", 4, "no event 'faild'", "'failed'?"),
        (CHANNELS + "rules:\n  all: {events: [failed], channels: [pagr]}\n", 4, "no channel 'pagr'", "'pager'?"),
        (CHANNELS + "rules:\n  all: {events: [], channels: [pager]}\n", 4, "is empty", "at least one"),
        (CHANNELS + "rules:\n  all: {events: failed, channels: pager, window: 5 min}\n", 4, "not an interval", "15m"),
        (
            CHANNELS + 'rules:\n  all: {events: failed, channels: pager, text: "$pipline"}\n',
            4,
            "no $pipline",
            "'pipeline'?",
        ),
        (CHANNELS + 'rules:\n  all: {events: failed, channels: pager, text: "5 $"}\n', 4, "begins no name", "$$"),
        (
            CHANNELS + 'rules:\n  all: {events: failed, channels: pager, text: "${pipeline.__class__}"}\n',
            4,
            "begins no name",
            "$$",
        ),
    ],
)
def test_what_is_wrong_is_named_with_its_line(tmp_path: Path, text: str, line: int, message: str, fix: str) -> None:
    with pytest.raises(InputError) as error:
        read(tmp_path, text)
    assert message in error.value.message
    assert fix in (error.value.fix or "")
    assert (error.value.where or "").endswith(f"notifications.yaml:{line}") or not line


def test_a_secret_is_read_where_it_stands_and_redacted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOOK", "https://hooks.example.org/services/T0/B0/sesame77")
    reference = SecretReference("env:HOOK", tmp_path)
    assert reference.reveal().endswith("sesame77")
    assert redact("posted to https://hooks.example.org/services/T0/B0/sesame77!") == "posted to ***!"
    assert redact("POST /services/T0/B0/sesame77 HTTP/1.1") == "POST /*** HTTP/1.1"
    (tmp_path / "token.txt").write_text("Bearer rosebud-4711\n")
    assert SecretReference("file:token.txt", tmp_path).reveal() == "Bearer rosebud-4711"
    assert "rosebud" not in redact("the token rosebud-4711 is wrong")
    for text, message in (
        ("env:NO_SUCH", "env:NO_SUCH is not set"),
        ("file:none.txt", "file:none.txt cannot be read: No such file"),
    ):
        with pytest.raises(InputError, match=message):
            SecretReference(text, tmp_path).reveal()
    (tmp_path / "short.txt").write_text("abc")
    with pytest.raises(InputError, match="shorter than 6"):
        SecretReference("file:short.txt", tmp_path).reveal()
