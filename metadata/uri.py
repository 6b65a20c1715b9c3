"""The one resolver: from a payload's URI to a path below the root, at write, read and delete."""

from __future__ import annotations

import os
import re
from pathlib import Path

from ..errors import InputError

# An allow-list, not a list of tricks: no escape, query, fragment, scheme, drive, tilde or hidden name can be spelled.
_SEGMENT = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._=+@,-]{0,254}", re.ASCII)
_LONGEST = 1024


def check(uri: str) -> str:
    """Return the URI when it is well formed: relative, POSIX, segments of letters, digits and ``. _ = + @ , -``.

    Raises:
        InputError: It is anything else: empty, absolute, with ``..``, ``%``, a backslash, a scheme, …
    """
    if len(uri) > _LONGEST or not all(map(_SEGMENT.fullmatch, uri.split("/"))):
        raise InputError(
            f"{uri!r:.200} is no payload URI",
            fix="use a relative path such as artifacts/Trainer/<uid>/model: letters, digits and . _ = + @ , -",
        )
    return uri


def resolve(root: Path, uri: str) -> Path:
    """The path of a URI below root, whether or not something is there.

    Raises:
        InputError: The URI is not well formed, or leads through a symbolic link.
    """
    path = str(root)  # text, not paths: every payload is resolved several times
    for segment in check(uri).split("/"):
        path = f"{path}/{segment}"
        if os.path.islink(path):  # noqa: PTH114
            raise InputError(
                f"{uri!r} leads through the link {path}", fix="a root holds plain folders: replace the link"
            )
    return root / uri
