"""Addresses of files: folders and URLs, and what is known of the kinds of stores that URLs name."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Literal, NamedTuple
from urllib.parse import unquote, urlsplit

from .errors import InputError
from .redaction import holds_credentials

_URL: Final = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)
_URL_AS_PATH: Final = r"(?i)([a-z][a-z0-9+.-]+):/+"


class Scheme(NamedTuple):
    """What a kind of store is, beside what fsspec knows of it.

    Attributes:
        artifacts: Whether the artifacts of a root may lie there.
        package: What an image installs to reach it; None where it needs none, or one that its user must choose.
        host: Whether its URLs name a host or a bucket.
        user: Whether its URLs may name a user or a container before the host.
        folders: Whether a file's folder must be made before the file.
        shared: Whether another process finds what this one wrote.
        part_options: Whether its package takes the size and the number of parts of a large file.
    """

    artifacts: bool = True
    package: str | None = None
    host: Literal["needed", "optional", "none"] = "needed"
    user: bool = False
    folders: bool = False
    shared: bool = True
    part_options: bool = False


SCHEMES: Final[Mapping[str, Scheme]] = {
    "abfs": Scheme(package="adlfs", user=True),
    "abfss": Scheme(package="adlfs", user=True),
    "adl": Scheme(),
    "az": Scheme(package="adlfs"),
    "dbfs": Scheme(),
    "file": Scheme(host="none"),
    "gcs": Scheme(package="gcsfs"),
    "gs": Scheme(package="gcsfs"),
    "hdfs": Scheme(user=True, folders=True),
    "http": Scheme(artifacts=False),
    "https": Scheme(artifacts=False),
    "local": Scheme(artifacts=False, folders=True),
    "memory": Scheme(host="optional", shared=False),
    "oci": Scheme(),
    "oss": Scheme(),
    "s3": Scheme(package="s3fs", part_options=True),
    "s3a": Scheme(package="s3fs", part_options=True),
    "sftp": Scheme(user=True, folders=True),
    "smb": Scheme(user=True, folders=True),
    "ssh": Scheme(user=True, folders=True),
    "webhdfs": Scheme(folders=True),
}
"""The kinds of stores that are known by name. An object store that fsspec reaches needs a line here to hold artifacts,
and nothing else; data are read from any scheme that fsspec knows."""
_UNKNOWN: Final = Scheme(artifacts=False)


def scheme_of(address: str) -> Scheme:
    """What is known of the store behind an address; a folder of this machine counts as `file://`."""
    name = address.partition("://")[0].lower() if is_url(address) else "file"
    return SCHEMES.get(name, _UNKNOWN)


def is_url(address: str) -> bool:
    """Whether an address names something behind a scheme, other than this machine's files."""
    return _URL.match(address) is not None and not address.startswith("file://")


def scheme_in_path(path: str | Path) -> str | None:
    """The scheme of a URL that was taken for a path, by which it loses a slash ("s3:/bucket"); None of a path."""
    url = re.match(_URL_AS_PATH, str(path))
    return None if url is None else url[1]


def local_path(address: str | Path) -> Path | None:
    """The path that an address names on this machine, as text or `file://`; None for any other URL.

    Raises:
        InputError: It is a `file://` URL of another machine.
    """
    text = str(address)
    if is_url(text):
        return None
    if text.startswith("file://"):
        parts = urlsplit(text)
        if parts.netloc not in ("", "localhost"):
            raise InputError(f"{text} names another machine", fix="write file:///path")
        text = unquote(parts.path)
    return Path(text)


def refuse_secrets(url: str) -> None:
    """See that a URL can be shown and stored.

    Raises:
        InputError: It holds a password, a token or a signature; the error does not show it.
    """
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise InputError(
            f"this {url.partition(':')[0]}:// URL cannot be parsed ({error})", fix="check the address"
        ) from None
    if holds_credentials(url):
        raise InputError(
            f"the {parts.scheme}:// URL holds a password, a token or a signature, which would be stored with the run",
            fix="take it out, and give the credentials by the environment",
        )


def relative_name(name: str) -> str:
    """Return a relative name that leads nowhere else; "" is the address itself.

    Raises:
        InputError: It is absolute, has `.` or `..`, an empty part, a backslash or a control character.
    """
    parts = name.split("/") if name else []
    if any(part in ("", ".", "..") for part in parts) or re.search(r"[\\\x00-\x1f\x7f]", name):
        raise InputError(f"the name {name!r:.80} leads elsewhere, or is empty", fix="use plain relative names")
    return name
