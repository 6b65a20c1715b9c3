"""Digests and durable writes: what makes two payloads, two keys or two bundles the same."""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import re
import secrets
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from .errors import InputError

_INT64 = range(-(2**63), 2**63)


def canonical_json(value: object) -> bytes:
    """UTF-8 JSON with one spelling per value: sorted keys, no spaces, NFC text, finite floats, int64 integers.

    `1`, `1.0`, `True` and `"1"` stay different. Order that matters belongs in a list (of pairs).

    Raises:
        InputError: The value is not JSON, or holds NaN, an infinity, a lone surrogate, a NUL or a wider integer.
    """
    with contextlib.suppress(TypeError, ValueError, RecursionError):
        text = _encode(value)
        # What comes back equal had text for keys and lists for sequences; plain ASCII is its own NFC. A long run of
        # digits may be a wide integer, and a backslash a NUL: those go the long way.
        if text.isascii() and not _LONG_WAY.search(text) and json.loads(text) == value:
            return text.encode("ascii")
    return _encode(_plain(value)).encode("utf-8")


_encode = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode
_LONG_WAY = re.compile(r"\d{19}|\\u0000")


def _plain(value: object) -> object:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, int):
        if value not in _INT64:
            raise InputError(f"{value} does not fit in 64 bits", fix="pass it as text")
        return int(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise InputError(f"{value} has no place in JSON", fix="pass None or text")
        return float(value)
    if isinstance(value, Mapping):
        plain = {_text(_key(key)): _plain(item) for key, item in value.items()}
        if len(plain) != len(value):
            raise InputError("two keys of a mapping are the same text after normalisation", fix="rename one of them")
        return plain
    if isinstance(value, Sequence) and not isinstance(value, (bytes, bytearray)):
        return [_plain(item) for item in value]
    raise InputError(f"a {type(value).__name__} is no JSON value: {value!r:.80}", fix="use text, numbers, lists, dicts")


def _key(key: object) -> str:
    if not isinstance(key, str):
        raise InputError(f"a JSON key must be text, not {key!r}", fix="use a list of pairs")
    return key


def _text(text: str) -> str:
    if text.isascii() and "\0" not in text:
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InputError(f"text holds a lone surrogate: {text!r:.80}", fix="remove it") from None
    if "\0" in text:
        raise InputError(f"text holds a NUL: {text!r:.80}", fix="remove it")
    return unicodedata.normalize("NFC", text)


def digest(domain: str, value: object) -> str:
    """SHA-256 (hex) of a JSON value within a named domain, so that equal values of different kinds differ."""
    body = canonical_json(value)
    return hashlib.sha256(f"{domain}\0{len(body)}\0".encode() + body).hexdigest()


def digest_file(path: Path) -> str:
    """SHA-256 (hex) of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@dataclass(frozen=True)
class FileEntry:
    """One file of a tree: path relative to the tree's root with "/" between parts, size in bytes, SHA-256."""

    path: str
    size: int
    sha256: str


@dataclass(frozen=True)
class TreeDigest:
    """A folder's fingerprint: a digest over its files, sorted by path. Empty folders, times and modes do not count."""

    fingerprint: str
    files: tuple[FileEntry, ...]

    @property
    def size(self) -> int:
        """Bytes in all files together."""
        return sum(file.size for file in self.files)


def digest_tree(root: Path) -> TreeDigest:
    """Fingerprint a folder.

    Raises:
        InputError: It holds a link or a special file, which a payload must not.
    """
    files = tuple(
        FileEntry(path.relative_to(root).as_posix(), path.stat().st_size, digest_file(path)) for path in _files(root)
    )
    body = [[file.path, file.size, file.sha256] for file in files]
    return TreeDigest(digest("drivetrain-tree-v1", body), files)


def _files(root: Path) -> Iterator[Path]:
    found = []
    for folder, folders, names in os.walk(root, followlinks=False):
        for name in (*folders, *names):
            path = Path(folder, name)
            if path.is_symlink() or not (path.is_file() or path.is_dir()):
                raise InputError(f"{path} is a link or a special file", fix="a payload holds plain files and folders")
        found += [Path(folder, name) for name in names]
    yield from sorted(found, key=lambda path: path.relative_to(root).as_posix())


def write_durably(path: Path, data: bytes) -> None:
    """Write a file so that after a crash it is whole or as it was before: temporary file, fsync, rename, fsync."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        with temporary.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make a folder's entries (renames, new names) durable."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sync_tree(root: Path) -> None:
    """Make every file and folder below root durable."""
    for folder, _, names in os.walk(root):
        for name in names:
            handle = os.open(Path(folder, name), os.O_RDONLY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)
        sync_folder(Path(folder))
