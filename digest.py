"""Digests and durable writes: what makes two payloads, two keys or two bundles the same."""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import re
import secrets
import sys
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from .errors import InputError

_INT64 = range(-(2**63), 2**63)
_BLOCK = 1 << 16
"""Bytes that are read at once."""
_AT_ONCE = 64
"""Files that are open at once."""


def canonical_json(value: object) -> bytes:
    """UTF-8 JSON with one spelling per value: sorted keys, no spaces, NFC text, finite floats, int64 integers.

    `1`, `1.0`, `True` and `"1"` stay different. Order that matters belongs in a list (of pairs).

    Raises:
        InputError: The value is not JSON, or holds NaN, an infinity, a lone surrogate, a NUL or a wider integer.
    """
    with contextlib.suppress(TypeError, ValueError, RecursionError):
        text = _encode(value)
        # What comes back equal had text for keys and lists for sequences; plain ASCII is its own NFC. A NUL in a text
        # and an integer that may be too wide go the long way.
        if text.isascii() and "\\u0000" not in text and not _LONG.search(f",{text}") and _decode(text)[0] == value:
            return text.encode("ascii")
    return _encode(_plain(value)).encode("utf-8")


def json_encoder(encoder: json.JSONEncoder) -> Callable[[object], str]:
    """The `encode` of an encoder without indentation, for many small values: its parts are made once, not for each.

    It looks for no circles: what holds itself is a RecursionError.
    """
    make = getattr(json.encoder, "c_make_encoder", None)  # CPython's own; others have none, and need none
    if make is None:
        return encoder.encode
    text = json.encoder.encode_basestring_ascii if encoder.ensure_ascii else json.encoder.encode_basestring
    separators = encoder.key_separator, encoder.item_separator
    parts = make(None, encoder.default, text, None, *separators, encoder.sort_keys, encoder.skipkeys, encoder.allow_nan)
    return lambda value: "".join(parts(value, 0))


_encode = json_encoder(json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False))
_decode = json.JSONDecoder().raw_decode
_LONG = re.compile(r"[:,[]-?[0-9]{19}")


def is_deep(value: object, levels: int = 200) -> bool:
    """Whether a JSON value nests lists and mappings in more levels than that: what walks them recurses.

    Python's JSON reader gives up at some thousand levels, depending on how deep its caller is; others earlier.
    """
    level: list[object] = [value]
    for _ in range(levels):
        level = [
            item
            for outer in level
            for item in (outer.values() if isinstance(outer, dict) else outer if isinstance(outer, list) else ())
            if isinstance(item, (dict, list))
        ]
        if not level:
            return False
    return True


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
    raise InputError(
        f"a {type(value).__name__} is not a JSON value: {value!r:.80}", fix="use text, numbers, lists, dicts"
    )


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
    return _measured(str(path))[1]


def _measured(path: str) -> tuple[int, str]:
    """A file's size in bytes and its SHA-256."""
    sha256, size = hashlib.sha256(), 0
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        while block := os.read(handle, _BLOCK):
            sha256.update(block)
            size += len(block)
    finally:
        os.close(handle)
    return size, sha256.hexdigest()


class FileEntry(NamedTuple):
    """One file of a tree: path relative to the tree's root with "/" between parts, size in bytes, SHA-256."""

    path: str
    size: int
    sha256: str


class TreeDigest(NamedTuple):
    """A folder's fingerprint: a digest over its files, sorted by path. Empty folders, times and modes do not count."""

    fingerprint: str
    files: tuple[FileEntry, ...]

    @property
    def size(self) -> int:
        """Bytes in all files together."""
        return sum(file.size for file in self.files)


def digest_tree(root: Path) -> TreeDigest:
    """Fingerprint a folder; one that is not there is as an empty one.

    Raises:
        InputError: It holds a link or a special file, which a payload must not.
    """
    return digest_files(paths_below(root))


def paths_below(root: Path) -> dict[str, str]:
    """The files of a folder, by their paths in it; of one that is not there, none. Raises as `digest_tree`."""
    return dict(_files(str(root), "")) if root.is_dir() else {}


def digest_files(paths: Mapping[str, str]) -> TreeDigest:
    """The digest of the folder that would hold these files; each by its path in it, and where it lies."""
    return tree_of(FileEntry(name, *_measured(path)) for name, path in paths.items())


def tree_of(files: Iterable[FileEntry]) -> TreeDigest:
    """The digest of a folder of which the files are known."""
    ordered = tuple(sorted(files, key=lambda file: file.path))
    body = [[file.path, file.size, file.sha256] for file in ordered]
    return TreeDigest(digest("drivetrain-tree-v1", body), ordered)


def _files(folder: str, prefix: str) -> Iterator[tuple[str, str]]:
    """Name and path of every file: text, as a path object each would cost more than reading a small one."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                yield from _files(entry.path, f"{prefix}{entry.name}/")
            elif entry.is_file(follow_symlinks=False):
                yield prefix + entry.name, entry.path
            else:
                raise InputError(
                    f"{entry.path} is a link or a special file", fix="a payload holds plain files and folders"
                )


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
    _sync(str(folder))


def sync_files(root: Path, names: Sequence[str]) -> None:
    """Make some files below root durable, and the folders on the way to them, root included.

    Small files reach the disk together: all of a batch are on their way before one is waited for.

    Args:
        root: The folder.
        names: Paths relative to it, with "/" between parts.
    """
    for start in range(0, len(names), _AT_ONCE):
        handles: list[int] = []
        try:
            for name in names[start : start + _AT_ONCE]:
                handles.append(os.open(f"{root}/{name}", os.O_RDONLY | os.O_CLOEXEC))
                _begin_writing(handles[-1])
            for handle in handles:
                os.fsync(handle)
        finally:
            for handle in handles:
                os.close(handle)
    folders = {name[:end] for name in names for end, letter in enumerate(name) if letter == "/"}
    for folder in sorted(folders, reverse=True):  # what lies deeper first
        _sync(f"{root}/{folder}")
    _sync(str(root))


def _begin_writing(handle: int) -> None:
    """Send a file's first page on its way to the disk, without waiting; it stays in memory, too."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError):  # the sync will tell what is wrong
            os.posix_fadvise(handle, 0, 1, os.POSIX_FADV_DONTNEED)  # less than a page: none is dropped


def sync_tree(root: Path) -> None:
    """Make every file and folder below root durable; all there is to an empty folder is its name, in the one above."""
    _sync_below(str(root))


def _sync_below(folder: str) -> None:
    with os.scandir(folder) as entries:
        children = list(entries)
    for entry in children:
        if entry.is_dir(follow_symlinks=False):
            _sync_below(entry.path)
        else:
            _sync(entry.path)
    if children:
        _sync(folder)


def _sync(path: str) -> None:
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
