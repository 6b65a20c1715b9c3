"""Where messages go: webhooks, Slack, Teams, mail. Errors show no address, no answer and nothing of a secret."""

from __future__ import annotations

import json
import smtplib
import ssl
from collections.abc import Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from email.message import EmailMessage
from email.utils import formatdate
from http import HTTPStatus
from http.client import HTTPException
from ipaddress import ip_address
from pathlib import Path
from threading import Thread
from typing import Any, Final, Protocol, TypeAlias
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import Request

from ...errors import DrivetrainError, InputError
from ...paced_http import opener
from ...redaction import CREDENTIALS, holds_credentials, redact
from .message import Message
from .references import SecretReference

_TIMEOUT: Final = 10.0
"""Seconds for each step of a delivery."""
DEADLINE: Final = 60.0
"""Seconds for all of it, looking up the host included."""
_LATER: Final = (401, 403, 408, 425, 429)
"""Answers of 400 to 499 that may be another one later, when a secret was renewed or a server has time again."""
_LONGEST_PAUSE: Final = 3600

Header: TypeAlias = str | SecretReference


class DeliveryError(DrivetrainError):
    """A message was not delivered.

    Attributes:
        is_final: Whether to send it again would be in vain.
        pause: Seconds after which the server wants to be asked again; None where it did not say.
    """

    def __init__(self, message: str, *, is_final: bool = False, pause: float | None = None) -> None:
        super().__init__(redact(message))
        self.is_final = is_final
        self.pause = pause


class NotificationChannel(Protocol):
    """Where messages go."""

    def send(self, message: Message) -> str:
        """Deliver a message; returns what is to be recorded of it beside that, mostly nothing.

        Raises:
            DeliveryError: It was not delivered.
            InputError: A secret is missing.
        """
        ...

    def check(self) -> None:
        """See that its secrets are there.

        Raises:
            InputError: One is missing, or is no address.
        """
        ...


@dataclass(frozen=True)
class WebChannel:
    """A channel over HTTP.

    Attributes:
        format: What its server takes: webhook, slack or teams.
        url: Where; for Slack and Teams a secret.
        headers: What the request says beside.
        insecure: Whether `http://` to another machine is meant.
        ca: The certificates in PEM that the server's must descend from; the machine's own where None.
    """

    format: str
    url: Header
    headers: Mapping[str, Header]
    insecure: bool = False
    ca: Path | None = None

    def send(self, message: Message) -> str:
        """See `NotificationChannel.send`. It follows no redirection, and reads nothing of the answer but its status."""
        body = {"webhook": message.to_json, "slack": message.to_slack, "teams": message.to_teams}[self.format]()
        headers = {name: _revealed(value) for name, value in self.headers.items()}
        headers |= {"Content-Type": "application/json", "User-Agent": "drivetrain", "Idempotency-Key": message.id}
        url = self._address()
        request = Request(url, json.dumps(body).encode(), headers, method="POST")  # noqa: S310 - `_address` saw it
        try:
            opener(context=_context(self.ca), redirects=False).open(request, timeout=_TIMEOUT).close()
        except HTTPError as error:
            error.close()
            raise _refused(error) from None
        except URLError as error:
            raise DeliveryError(f"the server cannot be reached: {_cause(error.reason)}") from None
        except (OSError, HTTPException, ValueError) as error:  # ValueError: a header with a line break
            raise DeliveryError(f"the server did not answer: {_cause(error)}") from None
        return ""

    def check(self) -> None:
        """See `NotificationChannel.check`."""
        self._address()
        for value in self.headers.values():
            _revealed(value)

    def _address(self) -> str:
        url = _revealed(self.url)
        refuse_address(url, self.url.text if isinstance(self.url, SecretReference) else url, insecure=self.insecure)
        return url


@dataclass(frozen=True)
class MailChannel:
    """A channel by mail.

    Attributes:
        host: The mail server.
        port: Its port.
        security: How the connection is encrypted: by starttls, tls from the beginning, or none.
        sender: Who writes.
        to: Who reads.
        username: Who logs in; None for nobody.
        password: With what.
        ca: As of `WebChannel`.
    """

    host: str
    port: int
    security: str
    sender: str
    to: tuple[str, ...]
    username: Header | None = None
    password: SecretReference | None = None
    ca: Path | None = None

    def send(self, message: Message) -> str:
        """See `NotificationChannel.send`; returns how many of several readers the server refused."""
        letter = self._letter(message)
        login = (_revealed(self.username), self.password.reveal()) if self.username and self.password else None
        try:
            client = self._connected()
        except (OSError, smtplib.SMTPException) as error:
            raise DeliveryError(f"the mail server cannot be reached: {_cause(error)}") from None
        try:
            if login is not None:
                client.login(*login)
            refused = client.send_message(letter)
            with suppress(OSError, smtplib.SMTPException):  # the message was taken, whatever comes of the farewell
                client.quit()
        except smtplib.SMTPAuthenticationError as error:
            raise DeliveryError(f"the mail server answered {error.smtp_code} to the login") from None
        except smtplib.SMTPRecipientsRefused as error:
            codes = [code for code, _ in error.recipients.values()]
            raise DeliveryError(
                f"the mail server answered {codes[0]} to all readers", is_final=min(codes) >= 500
            ) from None
        except smtplib.SMTPResponseException as error:
            raise DeliveryError(
                f"the mail server answered {error.smtp_code}", is_final=error.smtp_code >= 500
            ) from None
        except (OSError, smtplib.SMTPException) as error:
            raise DeliveryError(f"the mail server did not answer: {_cause(error)}") from None
        finally:
            client.close()
        return f"the mail server refused {len(refused)} of {len(self.to)} readers" if refused else ""

    def check(self) -> None:
        """See `NotificationChannel.check`."""
        for value in (self.username, self.password):
            if value is not None:
                _revealed(value)

    def _connected(self) -> smtplib.SMTP:
        context = _context(self.ca)
        if self.security == "tls":
            return smtplib.SMTP_SSL(self.host, self.port, timeout=_TIMEOUT, context=context)
        client = smtplib.SMTP(self.host, self.port, timeout=_TIMEOUT)
        if self.security == "starttls":
            try:
                client.starttls(context=context)
            except BaseException:
                client.close()
                raise
        return client

    def _letter(self, message: Message) -> EmailMessage:
        letter = EmailMessage()
        letter["Subject"] = message.subject
        letter["From"] = self.sender
        letter["To"] = ", ".join(self.to)
        letter["Date"] = formatdate()
        letter["Message-ID"] = f"<{message.id}@{self.sender.rpartition('@')[2].rstrip('>')}>"
        letter["Auto-Submitted"] = "auto-generated"
        letter.set_content(message.text or message.subject)
        return letter


def refuse_address(url: str, name: str, *, insecure: bool) -> None:
    """Refuse what no message may be sent to.

    Args:
        url: The address.
        name: What a message calls it.
        insecure: Whether `http://` to another machine is meant.

    Raises:
        InputError: It is no URL, has a password, or would send what it sends for all to read.
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if not host or parts.scheme not in ("https", "http") or port == 0 or not url.isascii() or not url.isprintable():
        raise InputError(f"{redact(name)} is not a web address", fix="give one as https://example.org/hook")
    if holds_credentials(f"{parts.scheme}://{parts.netloc}/"):
        raise InputError(f"{redact(name)} has a password before its host", fix="give it in headers: Authorization")
    if parts.scheme == "http" and not insecure and not is_here(host):
        raise InputError(
            f"{redact(name)} is not encrypted", fix="give an https:// address; in a network of your own, insecure: true"
        )


def refuse_shown_secret(url: str) -> None:
    """Refuse an address that holds a secret and is no reference."""
    if holds_credentials(url):
        raise InputError("the address holds a password, a token or a signature", fix=CREDENTIALS.partition(";")[0])


def is_here(host: str) -> bool:
    """Whether a host is this machine by its name."""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def deliver(channel: NotificationChannel, message: Message) -> Future[str]:
    """Send a message in a thread; the answer is for `result(DEADLINE)`, since nothing ends a call that hangs."""
    answer: Future[str] = Future()

    def work() -> None:
        try:
            answer.set_result(channel.send(message))
        except BaseException as error:  # raised where it is asked for
            answer.set_exception(error)

    Thread(target=work, daemon=True).start()
    return answer


def failure_of(answer: Future[str], seconds: float = DEADLINE) -> tuple[str, DeliveryError | None]:
    """What is to be recorded of a delivery, and why it failed, None where it did not."""
    try:
        return answer.result(max(0.0, seconds)), None
    except DeliveryError as error:
        return "", error
    except TimeoutError:
        return "", DeliveryError(f"the server did not answer within {DEADLINE:g} s")
    except DrivetrainError as error:
        return "", DeliveryError(error.message)
    except Exception as error:  # a mistake of ours must not keep other channels waiting
        return "", DeliveryError(f"the message could not be sent: {type(error).__name__}", is_final=True)


def _revealed(value: Header) -> str:
    return value.reveal() if isinstance(value, SecretReference) else value


def _context(ca: Path | None) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=ca)
    except OSError as error:
        raise InputError(f"{ca} cannot be used: {_cause(error)}", fix="give certificates in PEM") from None


def _refused(error: HTTPError) -> DeliveryError:
    """By the status alone: the reason beside it is the server's text, which may repeat the address."""
    if 300 <= error.code < 400:
        return DeliveryError(f"the server answered {error.code}, a redirection, which is not followed", is_final=True)
    with_name = f"{error.code} {HTTPStatus(error.code).phrase}" if error.code in _STATUSES else f"{error.code}"
    is_final = 400 <= error.code < 500 and error.code not in _LATER
    pause = error.headers.get("Retry-After", "")
    seconds = min(int(pause), _LONGEST_PAUSE) if pause.isdecimal() and len(pause) < 9 else None
    return DeliveryError(f"the server answered {with_name}", is_final=is_final, pause=seconds)


_STATUSES: Final = frozenset(map(int, HTTPStatus))


def _cause(error: Any) -> str:  # Any: URLError's reason is an exception or a text
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {error.verify_message}"
    if isinstance(error, TimeoutError):
        return "it took too long"
    if isinstance(error, smtplib.SMTPServerDisconnected):  # as smtplib has both
        return "it hung up, or took too long"
    if isinstance(error, smtplib.SMTPResponseException):
        return f"it answered {error.smtp_code}"
    if isinstance(error, OSError) and error.strerror:
        return str(error.strerror)
    return type(error).__name__
