"""What a text must not show: secrets, credentials in URLs, and characters that steer a terminal.

Each way out (store, logs, notes, errors, tracebacks, terminal) passes its texts through here.
"""

from __future__ import annotations

import base64
import html
import json
import re
import threading
from collections.abc import Iterator
from functools import lru_cache
from typing import Final
from urllib.parse import quote, quote_plus, unquote

SHORTEST: Final = 6
"""Characters of the shortest secret: a shorter one stands in much else, and to redact it would destroy that."""
_COMMON: Final = frozenset({
    "changeme", "complete", "component", "database", "default", "development", "drivetrain", "evaluator", "examples",
    "execution", "failed", "localhost", "metadata", "password", "pipeline", "postgres", "postgresql", "production",
    "progress", "pusher", "python", "running", "schema", "secret", "serving", "skipped", "staging", "statistics",
    "testing", "trainer", "training", "transform", "username", "version", "warning",
})  # fmt: skip
# What stands before the host, or a password with an unquoted slash; a port and a path with an @ are neither. Where a
# URL was taken for a path, one of its slashes is gone.
_URL: Final = re.compile(
    r"(?<![A-Za-z0-9+.-])(?=[0-9+.-]*[A-Za-z])([A-Za-z0-9+.-]++)(://?)"
    r"([^/?#\s\"'<>]*|[^/?#\s\"'<>:]*:(?!\d*/)[^\s\"'<>@]*)@"
)
_STRETCH: Final = re.compile(r"[^\s\"'<>]+")
_PARAMETER: Final = re.compile(r"[?&;#]([\w.%~\[\]-]+)=")
_VALUE: Final = re.compile(r"[^&;#\s\"'<>]+")
_PERCENT: Final = re.compile("%[0-9A-F]{2}")
_WORD: Final = re.compile(r"[A-Z]?[a-z0-9]+|[A-Z0-9]+(?![a-z])")
_SECRET_WORDS: Final = frozenset({
    "key", "apikey", "accesskey", "token", "auth", "authorization", "password", "passwd", "pwd", "pass", "passphrase",
    "secret", "sig", "signature", "credential", "credentials", "jwt", "sas", "bearer", "session", "sessionid",
})  # fmt: skip
_USERS: Final = frozenset({"http", "https", "ftp", "ftps"})
"""Schemes where what stands before the host is a credential though it has no password: `https://TOKEN@host`."""
CREDENTIALS: Final = "take it out, and give it by the environment; a component gets it as a parameter: dt.Secret"
"""What to do about a URL that holds credentials."""
_HIDDEN: Final = "…"
_NO_LETTERS: Final = "0123456789+.-"
_CONTROL: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufeff]"
)

_secrets: frozenset[str] = frozenset()
_LOCK: Final = threading.Lock()


def mark_secret(value: str) -> None:
    """From now on, `redact` removes this value in this process, as it is and as it is spelled elsewhere.

    That is each of its lines, and their spelling in Python, JSON, HTML, URLs and base64.
    """
    global _secrets
    with _LOCK:
        _secrets |= {value}


def marked_secrets() -> tuple[str, ...]:
    """All spellings that this process redacts, the longest first, so that one that holds another goes as a whole."""
    return _spellings(_secrets)


def weakness(secret: str) -> str | None:
    """Why to redact a value would destroy other text: it is too short, or too common; None where it would not."""
    if len(secret) < SHORTEST:
        return f"has {len(secret)} characters; shorter than {SHORTEST} it may stand in any text"
    if len(set(secret)) < 3 or secret.casefold() in _COMMON:
        return "is a text that stands in much else"
    return None


def redact(text: str) -> str:
    """A text with `***` in place of each secret that this process has revealed, and without credentials in URLs."""
    if (pattern := _pattern(_secrets)) is not None:
        text = pattern.sub("***", text)
    return without_credentials(text)


def without_credentials(text: str) -> str:
    """A text with `…` in place of passwords, tokens and signatures in its URLs: `https://…@host/?token=…`."""
    if ":/" not in text:
        return text
    return _hide_values(_STRETCH.sub(_hide_users, text) if "@" in text else text)


def holds_credentials(text: str) -> bool:
    """Whether a URL in a text holds a password, a token or a signature."""
    return without_credentials(text) != text


def printable(text: str) -> str:
    r"""A text as a terminal may show it: redacted, with what would steer the terminal written out, e.g. `\x1b`.

    Those are control characters but line feeds and tabs, marks of the writing direction, and lone surrogates.
    """
    return _CONTROL.sub(_escape, redact(text))


def _escape(match: re.Match[str]) -> str:
    code = ord(match.group())
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def _hide_users(match: re.Match[str]) -> str:
    """What holds no blank without what stands before hosts.

    To search from each scheme for an @ that is not there would take quadratic time: the search ends at the last one.
    """
    stretch = match.group()
    end = stretch.rfind("@") + 1
    return _URL.sub(_hide_user, stretch[:end]) + stretch[end:]


def _hide_user(match: re.Match[str]) -> str:
    scheme, separator, user = match.groups()
    last = scheme.lower().lstrip(_NO_LETTERS).rpartition("+")[2]
    # After a line feed that is written as `\n`, the n looks like the first letter of the scheme.
    escaped = match.string[match.start() - 1 : match.start()] == "\\" and last.endswith(tuple(_USERS))
    secret = ":" in user or last in _USERS or escaped
    return f"{scheme}{separator}{_HIDDEN}@" if secret and user else match.group()


def _hide_values(text: str) -> str:
    """The text without the values of parameters that are secret; the value of another may hold a URL of its own."""
    parts, at = [], 0
    for match in _PARAMETER.finditer(text):
        if match.start() >= at and _is_secret(match[1]) and (value := _VALUE.match(text, match.end())) is not None:
            parts += [text[at : match.end()], _HIDDEN]
            at = value.end()
    return "".join([*parts, text[at:]])


def _is_secret(parameter: str) -> bool:
    words = [word.lower() for word in _WORD.findall(unquote(parameter))]
    return bool(words) and words[-1] in _SECRET_WORDS


@lru_cache(1)
def _spellings(secrets: frozenset[str]) -> tuple[str, ...]:
    spelled = {text for secret in secrets for text in _spelled(secret)}
    return tuple(sorted((text for text in spelled if len(text) >= SHORTEST), key=len, reverse=True))


@lru_cache(1)
def _pattern(secrets: frozenset[str]) -> re.Pattern[str] | None:
    spellings = _spellings(secrets)
    return re.compile("|".join(map(re.escape, spellings))) if spellings else None


def _spelled(secret: str) -> Iterator[str]:
    for text in {secret, secret.strip(), *map(str.strip, secret.splitlines())}:
        for escaped in {text, *_escaped(text)}:
            yield escaped
            yield from _escaped(escaped)  # JSON in JSON, the repr of a text that holds a repr
        yield html.escape(text)
        data = text.encode("utf-8", "surrogatepass")
        yield data.hex()
        yield repr(data)[2:-1]
        for quoted in (quote(data, safe=""), quote(data), quote_plus(data)):
            yield quoted
            yield _PERCENT.sub(lambda match: match.group().lower(), quoted)
        yield from _in_base64(data)


def _escaped(text: str) -> Iterator[str]:
    """What stands for a text in Python's and JSON's strings."""
    yield repr(text)[1:-1]
    yield repr(f"{text}'\"")[1:-4]  # as a part of a text that is quoted otherwise
    yield ascii(text)[1:-1]
    yield ascii(f"{text}'\"")[1:-4]
    yield text.encode("unicode_escape", "surrogatepass").decode()
    for ascii_only in (True, False):
        yield json.dumps(text, ensure_ascii=ascii_only)[1:-1]


def _in_base64(secret: bytes) -> Iterator[str]:
    """What stands in the base64 of any bytes that hold these, wherever they begin: at one of three offsets."""
    for offset in range(3):
        encoded = base64.b64encode(b"\0" * offset + secret).decode()
        text = encoded[-(-offset * 8 // 6) : (offset + len(secret)) * 8 // 6]
        yield text
        yield text.translate(str.maketrans("+/", "-_"))
