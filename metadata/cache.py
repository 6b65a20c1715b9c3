"""Cache keys: what a node's result depends on, digested; and which part of it changed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ..digest import canonical_json, digest

_DOMAIN = "drivetrain-cache-v1"
_HEX = re.compile(r"[0-9a-f]{32,}")
# How the parts of a preimage are called in a sentence; a part without a name here keeps its own.
_NAMES = {"inputs": "input", "outputs": "output", "parameters": "parameter"}
# Lists whose items have names, and how values are wrapped, which nobody needs to hear of.
_FIELDS = {
    "$query": ("sql", "connection", "parameters", "watermark", "seen"),
    "$span": ("span", "version"),
}
_WRAPPERS = ("$map", "$fn", "$query", "$span")
_ABSENT = object()


class Change(NamedTuple):
    """One part of a preimage that is another.

    Attributes:
        path: The way to it, e.g. ("parameters", "epochs"); ("code", "features:preprocess", "helpers.py") of a source
            file that a function reaches.
        old: Its JSON value before; None where it was not there.
        new: Its JSON value now; None where it is gone.
        line: The change in a sentence.
    """

    path: tuple[str, ...]
    old: Any
    new: Any
    line: str


def cache_key(preimage: Mapping[str, Any]) -> str:
    """SHA-256 (hex) of everything a result depends on, as canonical, length-framed JSON in a domain of its own.

    Args:
        preimage: JSON values; order that matters stands in lists.

    Raises:
        InputError: The preimage is not JSON (NaN, a lone surrogate, a NUL, an integer beyond 64 bits included).
    """
    return digest(_DOMAIN, preimage)


def explain(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """What changed from one preimage to another, a line per change; empty when the keys are equal.

    For example "code of features:preprocess changed: helpers.py", "parameter epochs: 1 -> 2", "input examples:
    fingerprint 1c0ffee5… -> 5eed5eed…". Any nested JSON can be compared; a mapping with `$fn` and `code` is a function
    and the digests of its source files.
    """
    return [change.line for change in changes(old, new)]


def changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[Change]:
    """As `explain`, with the values; one for each line."""
    by_line: dict[str, Change] = {}  # two digests of one file need one line
    for path, before, after in _changes((), old, new):
        line = _line(path, before, after)
        was, now = (None if value is _ABSENT else value for value in (before, after))
        by_line.setdefault(line, Change(path, was, now, line))
    return list(by_line.values())


def _changes(path: tuple[str, ...], old: object, new: object) -> Iterator[tuple[tuple[str, ...], object, object]]:
    """Each differing leaf with the way to it."""
    if repr(old) == repr(new):  # most of it: not gone through
        return
    if path[-1:] == ("$files",) and isinstance(old, Sequence) and isinstance(new, Sequence):
        old, new = ({name: f"{size:,} {sha256}" for name, size, sha256 in files} for files in (old, new))
    if path and path[-1] in _FIELDS and isinstance(old, Sequence) and isinstance(new, Sequence):
        old, new = (dict(zip(_FIELDS[path[-1]], values, strict=False)) for values in (old, new))
    before, after = _members(old), _members(new)
    if before is None or after is None:
        if not _same(old, new):
            yield path, old, new
        return
    if (
        list(before) != list(after)
        and set(before) == set(after)
        and all(_same(before[key], after[key]) for key in before)
    ):
        yield (*path, "order"), list(before), list(after)
        return
    if not before and not after and not _same(old, new):  # an empty list, and an empty mapping
        yield path, old, new
    function = before.get("$fn") if before.get("$fn") == after.get("$fn") else None
    for key in dict.fromkeys((*after, *before)):
        if key == "code" and isinstance(function, str):
            way: tuple[str, ...] = ("code", function)
        elif key == "[0]" and len(before) == len(after) == 1:
            way = path  # the only one needs no number
        else:
            way = (*path, key)
        yield from _changes(way, before.get(key, _ABSENT), after.get(key, _ABSENT))


def _same(old: object, new: object) -> bool:
    """Whether a key takes both for the same: canonical JSON tells 1 from 1.0, and normalises text that is not ASCII."""
    if old is new or old is _ABSENT or new is _ABSENT:
        return old is new
    if isinstance(old, str) and isinstance(new, str) and old.isascii() and new.isascii():
        return old == new
    return canonical_json(old) == canonical_json(new)


def _members(value: object) -> dict[str, object] | None:
    """The named parts of a mapping, a list of pairs (a mapping whose order matters) or a list; None for a leaf."""
    if isinstance(value, Mapping):
        return {str(key): value[key] for key in sorted(value)}
    if isinstance(value, str) or not isinstance(value, Sequence):
        return None
    if value and all(_is_pair(item) for item in value) and len({item[0] for item in value}) == len(value):
        return {item[0]: item[1] for item in value}
    return {f"[{index}]": item for index, item in enumerate(value)}


def _is_pair(value: object) -> bool:
    if isinstance(value, str) or not isinstance(value, Sequence):
        return False
    return len(value) == 2 and isinstance(value[0], str)


def _line(path: tuple[str, ...], old: object, new: object) -> str:
    verb = "added" if old is _ABSENT else "removed" if new is _ABSENT else "changed"
    head, *rest = path or ("key",)
    if head == "code" and rest and _is_digest(old) and _is_digest(new):
        *function, file = rest
        return f"code{' of ' if function else ''}{'.'.join(function)} {verb}: {file}"
    if "$files" in rest[:-1]:
        at = rest.index("$files")
        return f"parameter {'.'.join(rest[:at])}: file {_file(rest[at + 1], verb, old, new)}"
    if rest[:1] == ["distributions"] and len(rest) > 1:
        what = f"{old} -> {new}" if verb == "changed" else f"{old if new is _ABSENT else new} {verb}"
        return f"{rest[1]} {what}"
    subject = _NAMES.get(head, head)
    for index, part in enumerate(part for part in rest if part not in _WRAPPERS):
        subject += part if part.startswith("[") else f"{' ' if index == 0 else '.'}{part}"
    if verb != "changed":
        return f"{subject} {verb}: {_short(old if new is _ABSENT else new)}"
    fingerprint = "fingerprint " if head == "inputs" and _is_digest(old) and _is_digest(new) else ""
    return f"{subject}: {fingerprint}{_short(old)} -> {_short(new)}"


def _file(name: str, verb: str, old: object, new: object) -> str:
    """What became of one file: its size before and after."""
    sizes = [each.partition(" ")[0] for each in (old, new) if isinstance(each, str)]
    return f"{name} {verb} ({' -> '.join(dict.fromkeys(sizes))} bytes)"


def _is_digest(value: object) -> bool:
    return value is _ABSENT or (isinstance(value, str) and _HEX.fullmatch(value) is not None)


def _short(value: object) -> str:
    if isinstance(value, str) and _HEX.fullmatch(value):
        return f"{value[:8]}…"
    if isinstance(value, list) and value and all(isinstance(each, str) and _is_digest(each) for each in value):
        more = f" and {len(value) - 3} more" if len(value) > 3 else ""
        return ", ".join(map(_short, value[:3])) + more
    text = canonical_json(_unwrapped(value)).decode()
    return text if len(text) <= 120 else f"{text[:117]}…"


def _unwrapped(value: object) -> object:
    """A value as it was written in the pipeline: its mappings without their wrapper."""
    if isinstance(value, Mapping):
        if value.keys() == {"$map"} and (members := _members(value["$map"])) is not None:
            return {key: _unwrapped(item) for key, item in members.items()}
        return {key: _unwrapped(item) for key, item in value.items()}
    return [_unwrapped(item) for item in value] if isinstance(value, list) else value
