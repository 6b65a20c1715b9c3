"""Deliveries to a real web server and a real mail server: what they get, and what is said where they do not take it."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest
from drivetrain.errors import InputError
from drivetrain.pipelines.notifications import DeliveryError, deliver, failure_of, sample
from drivetrain.pipelines.notifications import channels as module
from drivetrain.pipelines.notifications.channels import MailChannel, WebChannel, refuse_address
from drivetrain.pipelines.notifications.references import SecretReference
from drivetrain.tests.pipelines.notifications.receivers import (
    WebReceiver,
    mail_receiver,
    web_receiver,
)

SECRET = "Bearer rosebud-4711"


@pytest.fixture
def token(tmp_path: Path) -> SecretReference:
    (tmp_path / "token.txt").write_text(SECRET)
    return SecretReference("file:token.txt", tmp_path)


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, Path]:
    pytest.importorskip("cryptography")
    pytest.importorskip("grpc")
    pytest.importorskip("httptools")
    from drivetrain.tests.serving.test_tls import write_certificate

    return write_certificate(tmp_path, "mail")[:2]


def test_a_webhook_gets_the_message_and_its_headers(web: WebReceiver, token: SecretReference) -> None:
    message = sample("pager")
    assert WebChannel("webhook", web.url, {"Authorization": token}).send(message) == ""
    ((path, headers, body),) = web.requests
    assert (path, headers["Authorization"], headers["Idempotency-Key"]) == ("/hook", SECRET, message.id)
    assert body == message.to_json()
    assert body["events"][0]["title"] == "sample failed"
    for kind in ("slack", "teams"):
        WebChannel(kind, web.url, {}).send(message)
    assert web.bodies[1:] == [message.to_slack(), message.to_teams()]


@pytest.mark.parametrize(
    ("status", "is_final", "said"),
    [
        (500, False, "the server answered 500 Internal Server Error"),
        (429, False, "the server answered 429 Too Many Requests"),
        (401, False, "the server answered 401 Unauthorized"),
        (404, True, "the server answered 404 Not Found"),
        (302, True, "the server answered 302, a redirection, which is not followed"),
        (308, True, "the server answered 308, a redirection, which is not followed"),
        (799, False, "the server answered 799"),
    ],
)
def test_an_answer_that_is_no_success(
    web: WebReceiver, token: SecretReference, status: int, is_final: bool, said: str
) -> None:
    with web_receiver() as other:
        web.answers, web.headers = [status], {"Location": other.url, "Retry-After": "7"}
        with pytest.raises(DeliveryError) as error:
            WebChannel("webhook", web.url, {"Authorization": token}).send(sample("pager"))
        assert (error.value.message, error.value.is_final) == (said, is_final)
        assert error.value.pause == (None if 300 <= status < 400 else 7)
        assert other.requests == []  # a redirection leads nowhere


def test_a_server_that_hangs_or_is_not_there_is_given_up(web: WebReceiver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_TIMEOUT", 0.05)
    web.answers = ["hang"]
    with pytest.raises(DeliveryError, match="took too long"):
        WebChannel("webhook", web.url, {}).send(sample("pager"))
    with pytest.raises(DeliveryError, match="cannot be reached: Connection refused"):
        WebChannel("webhook", "http://127.0.0.1:9/", {}).send(sample("pager"))
    with mail_receiver() as mail:
        mail.answers = {"MAIL": ["hang"]}
        with pytest.raises(DeliveryError, match="it hung up, or took too long"):
            MailChannel("127.0.0.1", mail.port, "none", "d@x.org", ("a@x.org",)).send(sample("mail"))
        monkeypatch.setattr(module, "_TIMEOUT", 30.0)
        mail.answers = {"MAIL": ["hang"]}
        answer = deliver(MailChannel("127.0.0.1", mail.port, "none", "d@x.org", ("a@x.org",)), sample("mail"))
        _, failure = failure_of(answer, 0.05)
        assert failure is not None
        assert failure.message == "the server did not answer within 60 s"


@pytest.mark.parametrize("url", ["https://", "file:///etc/passwd", "ftp://h/", "https://h:99999/", "https://h/\n", "x"])
def test_what_is_no_address(url: str) -> None:
    with pytest.raises(InputError, match="is not a web address"):
        refuse_address(url, "env:HOOK", insecure=True)


def test_what_is_not_encrypted_stays_on_this_machine() -> None:
    for url in ("http://127.0.0.1/", "http://localhost:80/", "http://[::1]/"):
        refuse_address(url, url, insecure=False)
    for url in ("http://10.0.0.1/", "http://127.0.0.1.example.org/", "http://localhost.example.org/"):
        with pytest.raises(InputError, match="is not encrypted"):
            refuse_address(url, url, insecure=False)


def test_a_letter_over_starttls_with_a_login(certificate: tuple[Path, Path], token: SecretReference) -> None:
    with mail_receiver(certificate) as mail:
        channel = MailChannel(
            *("127.0.0.1", mail.port, "starttls", "drivetrain <d@x.org>", ("a@x.org", "b@x.org"), "me", token),
            ca=certificate[0],
        )
        message = sample("mail")
        assert channel.send(message) == ""
        ((readers, letter),) = mail.letters
        assert readers == ["a@x.org", "b@x.org"]
        assert (letter["Subject"], letter["From"]) == ("sample failed", "drivetrain <d@x.org>")
        assert (letter["Message-ID"], letter["Auto-Submitted"]) == (f"<{message.id}@x.org>", "auto-generated")
        assert "this is a sample" in letter.get_content()
        assert mail.encrypted == [True]
        assert mail.logins == [(base64.b64encode(f"\0me\0{SECRET}".encode()).decode(), True)]


def test_a_letter_over_tls_and_a_certificate_that_is_not_trusted(certificate: tuple[Path, Path]) -> None:
    with mail_receiver(certificate, tls=True) as mail:
        MailChannel("127.0.0.1", mail.port, "tls", "d@x.org", ("a@x.org",), ca=certificate[0]).send(sample("mail"))
        assert len(mail.letters) == 1
        with pytest.raises(DeliveryError, match="its certificate is not trusted: self-signed certificate"):
            MailChannel("127.0.0.1", mail.port, "tls", "d@x.org", ("a@x.org",)).send(sample("mail"))
    with mail_receiver() as mail:  # which offers no STARTTLS
        with pytest.raises(DeliveryError, match="the mail server cannot be reached: SMTPNotSupportedError"):
            MailChannel("127.0.0.1", mail.port, "starttls", "d@x.org", ("a@x.org",)).send(sample("mail"))
        assert mail.letters == []


@pytest.mark.parametrize(
    ("answers", "is_final", "said"),
    [
        ({"MAIL": ["451 later"]}, False, "the mail server answered 451"),
        ({"MAIL": ["550 never rosebud-4711"]}, True, "the mail server answered 550"),
        ({"RCPT": ["450 later", "550 no"]}, False, "the mail server answered 450 to all readers"),
        ({"RCPT": ["550 no", "550 no"]}, True, "the mail server answered 550 to all readers"),
        ({"AUTH": ["535 wrong rosebud-4711"] * 9}, False, "the mail server answered 535 to the login"),
        ({"DATA": ["554 spam"]}, True, "the mail server answered 554"),
    ],
)
def test_a_mail_server_that_does_not_take_it(
    token: SecretReference, answers: dict[str, list[str]], is_final: bool, said: str
) -> None:
    with mail_receiver() as mail:
        mail.answers = answers
        channel = MailChannel("127.0.0.1", mail.port, "none", "d@x.org", ("a@x.org", "b@x.org"), "me", token)
        with pytest.raises(DeliveryError) as error:
            channel.send(sample("mail"))
        assert (error.value.message, error.value.is_final) == (said, is_final)


def test_a_reader_who_is_refused_keeps_no_other_from_it_and_a_farewell_is_not_asked_for() -> None:
    with mail_receiver() as mail:
        mail.answers = {"RCPT": ["550 no"], "QUIT": ["421 no"]}
        channel = MailChannel("127.0.0.1", mail.port, "none", "d@x.org", ("a@x.org", "b@x.org"))
        assert channel.send(sample("mail")) == "the mail server refused 1 of 2 readers"
        assert mail.letters[0][0] == ["b@x.org"]


def test_a_subject_cannot_add_a_header() -> None:
    with mail_receiver() as mail:
        message = sample("mail")
        object.__setattr__(message, "subject", "shop\r\nBcc: all@x.org")
        _, failure = failure_of(deliver(MailChannel("127.0.0.1", mail.port, "none", "d@x.org", ("a@x.org",)), message))
        assert failure is not None
        assert mail.letters == []
