"""The one resolver: from a payload's URI to a path below the root, at every use; and which URLs may be roots."""

from __future__ import annotations

import os
import re
from pathlib import Path

from ..addresses import SCHEMES
from ..errors import InputError

# An allow-list, not a list of tricks: no escape, query, fragment, scheme, drive, tilde or hidden name can be spelled.
_SEGMENT = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._=+@,-]{0,254}", re.ASCII)
_LONGEST = 1024
BELOW = 3
"""Segments of a payload's URI below `artifacts/`: its node, its execution's uid, its key."""

_HOST = r"[A-Za-z0-9][A-Za-z0-9._-]*(:[0-9]{1,5})?"
_FOLDER = r"(?!\.{1,2}$)[A-Za-z0-9._-][A-Za-z0-9._=+@,-]{0,254}"


def check(uri: str) -> str:
    """Return the URI when it is well formed: relative, POSIX, segments of letters, digits and ``. _ = + @ , -``.

    Raises:
        InputError: It is anything else: empty, absolute, with ``..``, ``%``, a backslash, a scheme, …
    """
    if not is_plain(uri):
        raise InputError(
            f"{uri!r:.200} is not a payload URI",
            fix="use a relative path such as artifacts/Trainer/<uid>/model: letters, digits and . _ = + @ , -",
        )
    return uri


def is_plain(uri: str) -> bool:
    """Whether a relative path is well formed, see `check`."""
    return len(uri) <= _LONGEST and all(map(_SEGMENT.fullmatch, uri.split("/")))


def resolve(root: Path, uri: str) -> Path:
    """The path of a URI below root, whether or not something is there.

    Raises:
        InputError: The URI is not well formed, or leads through a symbolic link.
    """
    path = str(root).rstrip("/")  # text, not paths: every payload is resolved several times
    for segment in check(uri).split("/"):
        path = f"{path}/{segment}"
        if os.path.islink(path):  # noqa: PTH114
            raise InputError(
                f"{uri!r} leads through the link {path}", fix="a root holds plain folders: replace the link"
            )
    return Path(path)


def check_root(url: str) -> str:
    """Return the URL of a root off this machine in its one spelling: `s3://bucket/prefix`, without a last slash.

    A URL that is refused is not shown, since it may hold a secret.

    Raises:
        InputError: It is not a URL, or of a scheme that cannot be a root (chained ones and `http://` among them); it
            has a user, a password, a query, a fragment, an escape, `..`, or a sign that means more
            than text to some store.
    """
    scheme, separator, rest = url.partition("://")
    scheme = scheme.lower()
    if not separator:
        raise InputError(
            "the address of artifacts is not a URL", fix="give e.g. s3://bucket/prefix, or file:///path for a folder"
        )
    kind = SCHEMES.get(scheme)
    if kind is None or not kind.artifacts:
        allowed = ", ".join(f"{name}://" for name, each in SCHEMES.items() if each.artifacts)
        raise InputError(
            f"artifacts cannot be kept behind {scheme!r:.40}",
            fix=f"give one of {allowed}; another needs a line in drivetrain/addresses.py",
        )
    host, *folders = rest.removesuffix("/").split("/")
    user, at, name = host.rpartition("@")
    if at and (not kind.user or not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", user, re.ASCII)):
        raise InputError(
            f"the {scheme}:// URL of artifacts holds a user or a password, which would be stored with the runs",
            fix="take it out, and give the credentials by the environment",
        )
    named = re.fullmatch(_HOST, name) is not None or (not host and kind.host != "needed" and bool(folders))
    if (
        not named
        or (host and kind.host == "none")
        or len(rest) > _LONGEST
        or not all(re.fullmatch(_FOLDER, folder) for folder in folders)
    ):
        raise InputError(
            f"the {scheme}:// URL of artifacts cannot be used",
            fix="give e.g. s3://bucket/prefix or file:///path: letters, digits and . _ = + @ , - between slashes",
        )
    return f"{scheme}://{'/'.join((host, *folders))}"
