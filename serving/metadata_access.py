"""Who may ask a metadata server for what: namespaces, API keys by their digests, and users whom a proxy names."""

from __future__ import annotations

import hmac
import ipaddress
import logging
import math
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, TypeAlias, cast

from ..errors import InputError
from ..metadata.remote.service import Person
from ..metadata.roles import ROLES, Role
from ..yaml_lines import YamlValue, read_yaml
from .access import DIGEST, NAME, SECRET, TokenBucket, bucket, digest_of, expiry
from .http import HttpRequest
from .watched_file import stamp_of, text_of

Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network

_FIX: Final = "write `namespaces:` and `keys:`, see docs/metadata-server.md"
_NAMESPACE: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,62}")
_USER: Final = re.compile(r"[\x21-\x7e]{1,120}")
_GRANTED: Final = ("roles", "namespaces", "expires", "rate", "burst")
_LOG: Final = logging.getLogger("drivetrain.serving")


@dataclass(frozen=True)
class Grant:
    """What somebody may do, and where.

    Attributes:
        person: Who, with their roles.
        namespaces: Where; None: in all.
        expires: Seconds since 1970 from which on nothing is allowed; infinite: never.
        bucket: How often they may ask; None: as often as they like.
    """

    person: Person
    namespaces: frozenset[str] | None = None
    expires: float = math.inf
    bucket: TokenBucket | None = None

    def reaches(self, namespace: str) -> bool:
        """Whether it is for a namespace."""
        return self.namespaces is None or namespace in self.namespaces


@dataclass(frozen=True)
class Proxy:
    """A proxy that has found out who asks.

    Attributes:
        trusted: The addresses that it asks from.
        header: The header, in small letters, in which it names the user.
        users: What each user may do; "*": everybody else.
    """

    trusted: tuple[Network, ...]
    header: str
    users: Mapping[str, Grant]

    def grant(self, request: HttpRequest) -> Grant | None:
        """What the user may do whom a request names; None where it does not come from the proxy, or names nobody."""
        user = request.headers.get(self.header)
        if user is None or not any(_address(request.peer) in network for network in self.trusted):
            return None
        if not _USER.fullmatch(user) or "," in user:  # a header that came twice is joined by a comma
            return None
        if user in self.users:
            return self.users[user]
        rest = self.users.get("*")
        return None if rest is None else replace(rest, person=Person(user, rest.person.roles))


@dataclass(frozen=True)
class MetadataAccess:
    """What the file of a metadata server says.

    Attributes:
        namespaces: The store of each, a path or URL.
        keys: What each key may do, by the SHA-256 of its secret.
        proxy: The proxy before the server; None: there is none.
    """

    namespaces: Mapping[str, str]
    keys: Mapping[str, Grant]
    proxy: Proxy | None = None

    def grant(self, request: HttpRequest) -> Grant | None:
        """What whoever sends a request may do; None of somebody unknown."""
        bearer, api_key = request.headers.get("authorization"), request.headers.get("x-api-key")
        if bearer is None and api_key is None:
            return None if self.proxy is None else self.proxy.grant(request)
        if bearer is not None and api_key is not None:
            return None
        scheme, _, secret = ("bearer", "", api_key or "") if bearer is None else bearer.partition(" ")
        secret = secret.strip(" ")
        if scheme.lower() != "bearer" or not SECRET.fullmatch(secret):
            return None
        digest, grant = digest_of(secret), None
        for known, each in self.keys.items():  # all of them, each compared in constant time
            if hmac.compare_digest(known, digest):
                grant = each
        return None if grant is None or time.time() >= grant.expires else grant


@dataclass
class AccessFile:
    """The file, read again when it has changed: what is taken out of it is refused from the next request on.

    Attributes:
        path: The file.
        access: What it said when it was last in order.
    """

    path: Path
    access: MetadataAccess = field(init=False)
    _seen: tuple[int, ...] = field(default=(), init=False)
    _problem: str = field(default="", init=False)

    def __post_init__(self) -> None:
        self._seen = stamp_of(self.path)
        self.access = read_access(text_of(self.path, _FIX), self.path)

    def look(self) -> MetadataAccess:
        """What it says now; what is wrong with it is logged, and nobody is let in until it is right."""
        stamp = stamp_of(self.path)
        if stamp != self._seen:
            self._seen = stamp
            try:
                if not stamp:
                    raise InputError(f"{self.path} cannot be read: there is no such file", fix=_FIX)
                access = read_access(text_of(self.path, _FIX), self.path)
                for digest, grant in access.keys.items():
                    if grant.bucket is not None and digest in self.access.keys:
                        grant.bucket.go_on_from(self.access.keys[digest].bucket)
                self.access = access
                _LOG.info("%s was read again: %d keys", self.path.name, len(self.access.keys))
            except InputError as error:  # whoever took a key out means it, though the rest is wrong
                _LOG.error("nobody may ask until this is right: %s", error)
                self.access = MetadataAccess(self.access.namespaces, {})
        return self.access


def read_access(text: str, path: Path) -> MetadataAccess:
    """What the text of such a file says.

    Raises:
        InputError: It is no such file; the line is named.
    """
    top = read_yaml(text, str(path), name="the file")
    if top is None:
        raise InputError(f"{path} is empty", fix=_FIX)
    entries = top.mapping(("namespaces", "keys", "proxy"), required=("namespaces",))
    namespaces = {}
    for name, value in entries["namespaces"].mapping().items():
        if not _NAMESPACE.fullmatch(name):
            raise value.error("a namespace has other characters than letters, digits, . _ -", "rename it")
        namespaces[name] = _store(value, path)
    keys: dict[str, Grant] = {}
    for name, value in (entries["keys"].mapping() if "keys" in entries else {}).items():
        if not NAME.fullmatch(name):
            raise value.error("a key's name has other characters than letters, digits, . _ -", "rename it")
        fields = value.mapping(("sha256", *_GRANTED), required=("sha256", "roles"))
        digest = fields["sha256"].text()
        if not DIGEST.fullmatch(digest):  # it may be the secret itself: it is not repeated
            raise fields["sha256"].error(
                f"the sha256 of the key {name!r} is not a SHA-256 in lowercase hexadecimal digits",
                "drivetrain metadata-server --new-key NAME prints one",
            )
        if digest in keys:
            raise value.error(f"the keys {keys[digest].person.name!r} and {name!r} are the same", "make a new one")
        keys[digest] = _grant(name, value, fields, namespaces)
    return MetadataAccess(namespaces, keys, _proxy(entries["proxy"], namespaces) if "proxy" in entries else None)


def _store(value: YamlValue, path: Path) -> str:
    text = value.text()
    if text.lower().startswith(("http://", "https://")):
        raise value.error("a namespace's store is another metadata server", "name the database")
    return text if "://" in text else str(path.absolute().parent / Path(text).expanduser())


def _grant(name: str, value: YamlValue, fields: dict[str, YamlValue], known: Mapping[str, str]) -> Grant:
    roles = frozenset(cast(Role, each.choice(*ROLES)) for each in fields["roles"].items())
    namespaces = None
    if "namespaces" in fields:
        namespaces = frozenset(each.choice(*known) for each in fields["namespaces"].items())
    return Grant(Person(name, roles), namespaces, expiry(fields), bucket(value, fields))


def _proxy(value: YamlValue, known: Mapping[str, str]) -> Proxy:
    fields = value.mapping(("trusted", "header", "users"), required=("trusted", "users"))
    trusted: list[Network] = []
    for each in fields["trusted"].items():
        try:
            trusted.append(ipaddress.ip_network(each.text()))
        except ValueError:
            raise each.error(f"{each.text()!r:.60} is not a network", "write 10.0.0.0/8, or an address") from None
    header = fields["header"].text().lower() if "header" in fields else "x-forwarded-user"
    users = {
        user: _grant(user, entry, entry.mapping(_GRANTED, required=("roles",)), known)
        for user, entry in fields["users"].mapping().items()
    }
    return Proxy(tuple(trusted), header, users)


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    address = ipaddress.ip_address(text.partition("%")[0])
    mapped = getattr(address, "ipv4_mapped", None)
    return mapped or address
