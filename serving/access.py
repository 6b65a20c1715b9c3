"""Who may ask a server, and how often: API keys from a file that holds their digests, never the keys."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import math
import re
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Final

from ..errors import InputError
from ..yaml_lines import YamlValue, read_yaml
from .api import RequestError, StatusCode
from .watched_file import stamp_of, text_of

_DUTIES: Final = ("predict", "metrics", "admin")
SECRET: Final = re.compile(r"[A-Za-z0-9._~+/=-]{1,256}")  # what RFC 6750 lets a bearer's token be
DIGEST: Final = re.compile(r"[0-9a-f]{64}")
NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,80}")
_FIX: Final = "drivetrain serve --new-key NAME makes a key"
_LOOK_SECONDS: Final = 1.0
_SLOWEST: Final = 1e-6  # requests a second: one in eleven days
_LOG: Final = logging.getLogger("drivetrain.serving")


class OverRateError(RequestError):
    """A key asks too often.

    Attributes:
        retry_after: Whole seconds until it may ask again.
    """

    def __init__(self, name: str, retry_after: int) -> None:
        super().__init__(StatusCode.RESOURCE_EXHAUSTED, f"the key {name!r} asks more often than it may")
        self.retry_after = retry_after


@dataclass(slots=True)
class TokenBucket:
    """Lets `rate` requests a second through, and `burst` at once.

    Attributes:
        rate: Requests a second.
        burst: At once, after a rest; at least one.
        tokens: How many may pass now.
        since: When that was counted, in seconds of a monotonic clock.
    """

    rate: float
    burst: float
    tokens: float
    since: float

    def go_on_from(self, older: TokenBucket | None) -> None:
        """Have passed what an older one of the same key let pass: whoever used up its rate does not get it anew."""
        if older is not None:
            self.tokens, self.since = min(older.tokens, self.burst), older.since

    def take(self, now: float) -> float:
        """0 where a request may pass; else the seconds until one may."""
        self.tokens = min(self.burst, self.tokens + (now - self.since) * self.rate)
        self.since = now
        if self.tokens < 1:
            return (1 - self.tokens) / self.rate
        self.tokens -= 1
        return 0.0


@dataclass(frozen=True, slots=True)
class AccessKey:
    """A key, without its secret.

    Attributes:
        name: What logs and errors call it.
        may: What it may do: "predict" (and read what models are), "metrics", "admin" (all of it).
        models: The models that it is limited to; None: all.
        bucket: How often it may ask; None: as often as it likes.
        expires: Seconds since 1970 from which on it is unknown; infinite: never.
    """

    name: str
    may: frozenset[str] = frozenset({"predict"})
    models: frozenset[str] | None = None
    bucket: TokenBucket | None = None
    expires: float = math.inf

    def allow(self, duty: str, models: Sequence[str] | None = ()) -> None:
        """Pass, where it may do this to these models; None: to whichever there are.

        Raises:
            RequestError: It may not.
        """
        if duty not in self.may and "admin" not in self.may:
            raise RequestError(StatusCode.PERMISSION_DENIED, f"the key {self.name!r} may not {_ACTIONS[duty]}")
        if self.models is not None and (models is None or not self.models.issuperset(models)):
            raise RequestError(StatusCode.PERMISSION_DENIED, f"the key {self.name!r} is for some models only")


_ACTIONS: Final = {"predict": "ask for predictions", "metrics": "read metrics", "admin": "change what is served"}


@dataclass
class AccessKeys:
    """The keys of a file, by the digests of their secrets.

    A lookup by digest tells nothing by its time: who sends a secret does not choose the digest's bytes.

    Attributes:
        path: The file.
        text: What it held when it was last in order; read from it, if not given.
    """

    path: Path
    text: str = ""
    _keys: dict[str, AccessKey] = field(default_factory=dict, init=False, repr=False)
    _seen: tuple[int, ...] = field(default=(), init=False)
    _problem: str = field(default="", init=False)

    def __post_init__(self) -> None:
        if not self.text:
            self._seen = stamp_of(self.path)
            self.text = text_of(self.path, _FIX)
        self._keys = read_keys(self.text, self.path)

    def known(self, authorizations: Sequence[str], api_keys: Sequence[str] = ()) -> AccessKey:
        """The key of a request, by its headers; no request is counted.

        Args:
            authorizations: The values of `Authorization`.
            api_keys: Those of `X-API-Key`.

        Raises:
            RequestError: There is none, more than one, or one that nobody knows or that has expired.
        """
        if len(authorizations) + len(api_keys) != 1:
            many = bool(authorizations or api_keys)
            raise _unauthenticated("more than one key was sent" if many else "this server asks for a key")
        if authorizations:
            scheme, _, secret = authorizations[0].partition(" ")
            if scheme.lower() != "bearer":
                raise _unauthenticated("this server asks for a key")
            secret = secret.strip(" ")
        else:
            secret = api_keys[0]
        key = self._keys.get(digest_of(secret)) if SECRET.fullmatch(secret) else None
        if key is None or time.time() >= key.expires:
            raise _unauthenticated("the key is unknown")
        return key

    def admit(self, authorizations: Sequence[str], api_keys: Sequence[str] = ()) -> AccessKey:
        """`known`, and the request counts.

        Raises:
            RequestError: As by `known`.
            OverRateError: It asks too often.
        """
        key = self.known(authorizations, api_keys)
        if key.bucket is not None and (wait := key.bucket.take(time.monotonic())):
            raise OverRateError(key.name, math.ceil(wait))
        return key

    def look(self) -> None:
        """Read the file again if it changed; what is wrong with it is logged, and the old keys stay."""
        stamp = stamp_of(self.path)
        if stamp == self._seen:
            return
        try:
            if not stamp:
                raise InputError(f"{self.path} cannot be read: there is no such file", fix=_FIX)
            text = text_of(self.path, _FIX)
            keys = read_keys(text, self.path)
        except InputError as error:  # tried again at the next look: a file may be unreadable for a while
            if str(error) != self._problem:
                _LOG.error("the keys stay as they were: %s", error)
            self._problem = str(error)
            return
        self._seen, self._problem, self.text = stamp, "", text
        for digest, key in keys.items():
            if key.bucket is not None and digest in self._keys:
                key.bucket.go_on_from(self._keys[digest].bucket)
        self._keys = keys
        _LOG.info("the keys were read again: %d", len(keys))

    async def watch(self) -> None:
        """Look for changed keys every few seconds, until cancelled."""
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            self.look()


def read_keys(text: str, path: Path) -> dict[str, AccessKey]:
    """The keys in the text of a YAML file, by the SHA-256 of their secrets.

    Its `keys` maps names to `sha256`, and where wanted `may`, `models`, `rate`, `burst` and `expires`.

    Raises:
        InputError: It is no such file; the line is named.
    """
    top = read_yaml(text, str(path), name="the file")
    if top is None:
        raise InputError(f"{path} has no keys", fix=_FIX)
    keys: dict[str, AccessKey] = {}
    for name, value in top.mapping(("keys",), required=("keys",))["keys"].mapping().items():
        if not NAME.fullmatch(name):
            raise value.error("a key's name has other characters than letters, digits, . _ -", "rename it")
        digest, key = _key(name, value)
        if digest in keys:
            raise value.error(f"the keys {keys[digest].name!r} and {name!r} are the same", "make one of them again")
        keys[digest] = key
    return keys


def _key(name: str, value: YamlValue) -> tuple[str, AccessKey]:
    entries = value.mapping(("sha256", "may", "models", "rate", "burst", "expires"), required=("sha256",))
    digest = entries["sha256"].text()
    if not DIGEST.fullmatch(digest):  # it may be the secret itself: it is not repeated
        raise entries["sha256"].error(
            f"the sha256 of the key {name!r} is not a SHA-256 in lowercase hexadecimal digits",
            "drivetrain serve --new-key NAME prints one",
        )
    may = frozenset(each.choice(*_DUTIES) for each in entries["may"].items()) if "may" in entries else {"predict"}
    models = frozenset(each.text() for each in entries["models"].items()) if "models" in entries else None
    return digest, AccessKey(name, frozenset(may), models, bucket(value, entries), expiry(entries))


def bucket(value: YamlValue, entries: dict[str, YamlValue]) -> TokenBucket | None:
    """How often a key with the entries `rate` and `burst` may ask; None without them.

    Raises:
        InputError: They are no numbers, or too small.
    """
    if "rate" not in entries:
        if "burst" in entries:
            raise value.error("a burst without a rate means nothing", "write a rate, too")
        return None
    rate = entries["rate"].number()
    if not _SLOWEST <= rate < math.inf:
        raise entries["rate"].error(f"the rate is {rate:g}", f"write requests a second, {_SLOWEST:g} at least")
    burst = entries["burst"].number() if "burst" in entries else max(1.0, rate)
    if not 1 <= burst < math.inf:
        raise entries["burst"].error(f"the burst is {burst:g}", "write at least 1")
    return TokenBucket(rate, burst, burst, time.monotonic())


def expiry(entries: dict[str, YamlValue]) -> float:
    """When a key with the entry `expires` expires, in seconds since 1970; infinite without it.

    Raises:
        InputError: It is no date.
    """
    if "expires" not in entries:
        return math.inf
    text = entries["expires"].text()
    try:
        day = date.fromisoformat(text)
    except ValueError:
        raise entries["expires"].error(f"{text!r:.40} is not a date", "write it as 2027-12-31") from None
    return datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp()


def new_secret() -> str:
    """A secret that nobody guesses: 256 random bits."""
    return f"dt_{secrets.token_urlsafe(32)}"


def check_name(name: str) -> str:
    """The name, where a key may have it.

    Raises:
        InputError: It may not.
    """
    if not NAME.fullmatch(name):
        raise InputError(f"{name!r:.80} is not a valid name for a key", fix="use letters, digits, . _ -")
    return name


def digest_of(secret: str) -> str:
    """A secret's SHA-256, in hexadecimal digits."""
    return hashlib.sha256(secret.encode()).hexdigest()


def _unauthenticated(message: str) -> RequestError:
    return RequestError(StatusCode.UNAUTHENTICATED, message, fix="send Authorization: Bearer KEY")
