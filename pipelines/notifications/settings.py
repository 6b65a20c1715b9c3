"""`notifications.yaml`: the channels that messages go to, and the rules that say what goes where."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from email.errors import MessageError
from email.headerregistry import Address
from fnmatch import fnmatchcase
from pathlib import Path
from string import Template
from typing import Final, TypeVar

from ...errors import InputError, suggest
from ...redaction import without_credentials
from ...yaml_lines import YamlValue, read_yaml
from ..triggers.durations import seconds_of
from .channels import Header, MailChannel, NotificationChannel, WebChannel, is_here, refuse_address, refuse_shown_secret
from .events import FIELDS, KINDS, Event
from .message import SUBJECT, TEXT
from .references import SecretReference, is_reference

_NAME: Final = re.compile(r"\w[\w.-]{0,99}")
_HEADER: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_WEB_KEYS: Final = ("kind", "url", "insecure", "ca")
_KEYS: Final[Mapping[str, tuple[str, ...]]] = {
    "webhook": (*_WEB_KEYS, "headers"),
    "slack": _WEB_KEYS,
    "teams": _WEB_KEYS,
    "email": ("kind", "host", "port", "security", "from", "to", "username", "password", "insecure", "ca"),
}
_PORTS: Final = {"starttls": 587, "tls": 465, "none": 25}
_Read = TypeVar("_Read")


@dataclass(frozen=True)
class Rule:
    """Which events go to which channels, and how.

    Attributes:
        name: Unique in its file.
        events: Kinds of events.
        pipelines: Patterns of pipelines' names (`shop-*`).
        channels: Names of channels.
        wait: Seconds from the first event to the message, so that what comes together is told together.
        window: Seconds from one message to the next; what comes meanwhile is told in one.
        subject: The first line about a single event.
        text: The rest about a single event.
    """

    name: str
    events: tuple[str, ...]
    pipelines: tuple[str, ...]
    channels: tuple[str, ...]
    wait: int
    window: int
    subject: Template
    text: Template

    def wants(self, event: Event) -> bool:
        """Whether an event is one of its."""
        return event.event in self.events and any(fnmatchcase(event.pipeline, name) for name in self.pipelines)


@dataclass(frozen=True)
class NotificationSettings:
    """What a `notifications.yaml` says: channels by their names, and rules."""

    channels: Mapping[str, NotificationChannel]
    rules: tuple[Rule, ...]

    def check(self) -> None:
        """See that every secret is there.

        Raises:
            InputError: One is missing; it names the channel.
        """
        for name, channel in self.channels.items():
            try:
                channel.check()
            except InputError as error:
                raise InputError(f"channel {name}: {error.message}", fix=error.fix) from None

    def channel(self, name: str) -> NotificationChannel:
        """The channel of that name.

        Raises:
            InputError: There is none.
        """
        if name not in self.channels:
            raise InputError(f"there is no channel {name!r}", fix=suggest(name, list(self.channels), "there are"))
        return self.channels[name]


def read_notifications(path: Path) -> NotificationSettings:
    """What a file says.

    Raises:
        InputError: It cannot be read, or is wrong; the error names the line.
    """
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        cause = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise InputError(f"{path} cannot be read: {cause}", fix="name a file as docs/notifications.md has it") from None
    document = read_yaml(text, str(path), name="the file")
    if document is None:
        raise InputError(f"{path} is empty", fix="write channels: and rules:, see docs/notifications.md")
    entries = document.mapping(("channels", "rules"), required=("channels", "rules"))
    base = path.absolute().parent
    channels = {_name(entry, name): _channel(entry, base) for name, entry in entries["channels"].mapping().items()}
    rules = tuple(_rule(entry, _name(entry, name), channels) for name, entry in entries["rules"].mapping().items())
    return NotificationSettings(channels, rules)


def _channel(value: YamlValue, base: Path) -> NotificationChannel:
    kind = value.mapping(required=("kind",))["kind"].choice(*_KEYS)
    required = ("host", "from", "to") if kind == "email" else ("url",)
    entries = value.mapping(_KEYS[kind], required=required)
    insecure = "insecure" in entries and entries["insecure"].boolean()
    ca = base / entries["ca"].string() if "ca" in entries else None
    if kind == "email":
        return _mail(value, entries, base, insecure=insecure, ca=ca)
    url = _header(entries["url"], base)
    if isinstance(url, str):
        if kind != "webhook":
            raise entries["url"].error(
                f"{entries['url'].name}: who knows this address may write to the channel",
                "put it into a variable or a file: env:NAME or file:PATH",
            )
        _with_line(entries["url"], lambda: refuse_shown_secret(url))
        _with_line(entries["url"], lambda: refuse_address(url, url, insecure=insecure))
    headers = {
        _header_name(entry, name): _header(entry, base)
        for name, entry in (entries["headers"].mapping() if "headers" in entries else {}).items()
    }
    return WebChannel(kind, url, headers, insecure, ca)


def _mail(
    value: YamlValue, entries: Mapping[str, YamlValue], base: Path, *, insecure: bool, ca: Path | None
) -> MailChannel:
    host = entries["host"].string()
    security = entries["security"].choice(*_PORTS) if "security" in entries else "starttls"
    if security == "none" and not (insecure or is_here(host)):
        raise entries["security"].error(
            f"{value.name}: mail to {host} would not be encrypted",
            "write starttls or tls; in a network of your own, insecure: true",
        )
    if security == "none" and "password" in entries and not is_here(host):
        raise entries["password"].error(f"{value.name}: the password would not be encrypted", "use starttls or tls")
    port = entries["port"].whole() if "port" in entries else _PORTS[security]
    if not 0 < port < 1 << 16:
        raise entries["port"].error(f"{port} is not a port", "write 1 to 65535")
    if ("username" in entries) != ("password" in entries):
        raise value.error(f"{value.name} has only one of username: and password:", "give both, or neither")
    password = None
    if "password" in entries:
        revealed = _header(entries["password"], base)
        if not isinstance(revealed, SecretReference):
            raise entries["password"].error(
                f"{entries['password'].name} is the password itself",
                "put it into a variable or a file: env:NAME or file:PATH",
            )
        password = revealed
    readers = entries["to"].items() if entries["to"].is_list else [entries["to"]]
    if not readers:
        raise entries["to"].error(f"{entries['to'].name} is empty", "name who is to read it")
    return MailChannel(
        host,
        port,
        security,
        _mailbox(entries["from"]),
        tuple(map(_mailbox, readers)),
        _header(entries["username"], base) if "username" in entries else None,
        password,
        ca,
    )


def _rule(value: YamlValue, name: str, channels: Mapping[str, NotificationChannel]) -> Rule:
    entries = value.mapping(
        ("events", "pipelines", "channels", "wait", "window", "subject", "text"), required=("events", "channels")
    )
    return Rule(
        name,
        tuple(_known(item, KINDS, "event") for item in _listed(entries["events"])),
        tuple(item.string() for item in _listed(entries["pipelines"])) if "pipelines" in entries else ("*",),
        tuple(_known(item, list(channels), "channel") for item in _listed(entries["channels"])),
        _seconds(entries["wait"]) if "wait" in entries else 10,
        _seconds(entries["window"]) if "window" in entries else 300,
        _template(entries.get("subject"), SUBJECT),
        _template(entries.get("text"), TEXT),
    )


def _listed(value: YamlValue) -> list[YamlValue]:
    items = value.items() if value.is_list else [value]
    if not items:
        raise value.error(f"{value.name} is empty", "name at least one")
    return items


def _known(value: YamlValue, names: list[str] | tuple[str, ...], what: str) -> str:
    name = value.string()
    if name not in names:
        raise value.error(f"{value.name}: there is no {what} {name!r}", suggest(name, names, "there are"))
    return name


def _seconds(value: YamlValue) -> int:
    text = value.text()
    return 0 if text in ("0", "0s") else _with_line(value, lambda: seconds_of(text))


def _template(value: YamlValue | None, default: str) -> Template:
    template = Template(default if value is None else value.string())
    if value is not None:
        if not template.is_valid():
            raise value.error(f"{value.name} has a $ that begins no name", "write $$ for a dollar")
        for name in template.get_identifiers():
            if name not in FIELDS:
                raise value.error(f"{value.name}: there is no ${name}", suggest(name, FIELDS, "there are"))
    return template


def _header(value: YamlValue, base: Path) -> Header:
    """A text, or a secret where it refers to one."""
    text = value.string()
    return SecretReference(text, base) if is_reference(text) else text


def _header_name(value: YamlValue, name: str) -> str:
    if not _HEADER.fullmatch(name):
        raise value.error(f"{name!r:.80} cannot be the name of a header", "give e.g. X-Team")
    text = value.string()
    # As in a URL, a name says that its value is a secret.
    is_secret = without_credentials(f"https://host/?{name}=value") != f"https://host/?{name}=value"
    if is_secret and not is_reference(text):
        raise value.error(f"{value.name} is the secret itself", "put it into a variable or a file: env:NAME, file:PATH")
    if not text.isprintable():
        raise value.error(f"{value.name} has a line break", "write one line")
    return name


def _mailbox(value: YamlValue) -> str:
    text = value.string()
    name, is_named, address = text.rpartition("<")
    try:
        mailbox = Address(name.strip(), addr_spec=address.removesuffix(">") if is_named else text)
        if not mailbox.username or not mailbox.domain or not text.isprintable():
            raise ValueError
    except (ValueError, IndexError, MessageError):
        raise value.error(f"{value.name}: {text!r:.80} is not an address", "write e.g. team@example.org") from None
    return str(mailbox)


def _name(value: YamlValue, name: str) -> str:
    if not _NAME.fullmatch(name):
        raise value.error(f"{name!r:.80} cannot be a name here", "use letters, digits and . _ -, 100 at most")
    return name


def _with_line(value: YamlValue, read: Callable[[], _Read]) -> _Read:
    """What `read` gives; its error at the value's line."""
    try:
        return read()
    except InputError as error:
        raise value.error(f"{value.name}: {error.message}", error.fix or "") from None
