"""Cache keys: what a node's result depends on, digested; and which part of it changed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..digest import canonical_json, digest

_DOMAIN = "drivetrain-cache-v1"
_HEX = re.compile(r"[0-9a-f]{32,}")
# How the parts of a preimage are called in a sentence; a part without a name here keeps its own.
_NAMES = {
    "code": "code of",
    "inputs": "input",
    "outputs": "output",
    "parameters": "parameter",
    "params": "parameter",
    "env": "environment",
}
_ABSENT = object()


def cache_key(preimage: Mapping[str, Any]) -> str:
    """SHA-256 (hex) of everything a result depends on, as canonical, length-framed JSON in a domain of its own.

    Args:
        preimage: JSON values; order that matters stands in lists.

    Raises:
        InputError: The preimage is not JSON (NaN, a lone surrogate, a NUL, an integer beyond 64 bits included).
    """
    return digest(_DOMAIN, preimage)


def explain(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """What changed from one preimage to another, a line per change in the new one's order; empty when keys are equal.

    Digests are named as changed, not quoted at length: "code of features:preprocess changed: helpers.py",
    "parameter epochs: 1 -> 2", "input examples: fingerprint 1c0ffee5… -> 5eed5eed…".
    """
    lines: dict[str, None] = {}  # an ordered set: two digests of one file need one line
    for path, before, after in _changes((), old, new):
        lines[_line(path, before, after)] = None
    return list(lines)


def _changes(path: tuple[str, ...], old: object, new: object) -> Iterator[tuple[tuple[str, ...], object, object]]:
    if _same(old, new):
        return
    one, two = _members(old), _members(new)
    if one is None or two is None:
        yield path, old, new
        return
    if one.keys() == two.keys() and list(one) != list(two) and all(_same(one[key], two[key]) for key in one):
        yield (*path, "order"), list(one), list(two)
        return
    for key in dict.fromkeys((*two, *one)):
        yield from _changes((*path, key), one.get(key, _ABSENT), two.get(key, _ABSENT))


def _same(old: object, new: object) -> bool:
    if old is _ABSENT or new is _ABSENT:
        return old is new
    return canonical_json(old) == canonical_json(new)


def _members(value: object) -> dict[str, object] | None:
    """The named parts of a mapping, a list of pairs or a list; None for a leaf."""
    if isinstance(value, Mapping):
        return {str(key): item for key, item in sorted(value.items())}
    if isinstance(value, str) or not isinstance(value, Sequence) or not value:
        return None
    if all(isinstance(item, Sequence) and len(item) == 2 and isinstance(item[0], str) for item in value) and all(
        not isinstance(item, str) for item in value
    ):
        named = {item[0]: item[1] for item in value}
        if len(named) == len(value):
            return named
    return {f"[{index}]": item for index, item in enumerate(value)}


def _line(path: tuple[str, ...], old: object, new: object) -> str:
    head, *rest = path or ("key",)
    name = _NAMES.get(head, head)
    if head == "code" and rest:
        what, verb = ".".join(rest[1:]), _verb(old, new)
        if what and _quiet(old) and _quiet(new):
            return f"{name} {rest[0]} {'changed' if verb == 'changed' else verb}: {what}"
        if _quiet(old) and _quiet(new):
            return f"{name} {rest[0]} {verb}"
    where, *deeper = (part for part in rest) if rest else (None,)
    subject = name if where is None else f"{name} {where}"
    subject += "".join(part if part.startswith("[") else f".{part}" for part in deeper[:-1])
    last = deeper[-1] if deeper else None
    if last is not None and last.startswith("["):
        subject, last = subject + last, None
    if old is _ABSENT or new is _ABSENT:
        label = subject if last is None else f"{subject}: {last}"
        return f"{label} {_verb(old, new)} ({_short(old if new is _ABSENT else new)})"
    return f"{subject}: {'' if last is None else last + ' '}{_short(old)} -> {_short(new)}"


def _verb(old: object, new: object) -> str:
    return "added" if old is _ABSENT else "removed" if new is _ABSENT else "changed"


def _quiet(value: object) -> bool:
    return value is _ABSENT or (isinstance(value, str) and _HEX.fullmatch(value) is not None)


def _short(value: object) -> str:
    if isinstance(value, str) and _HEX.fullmatch(value):
        return f"{value[:8]}…"
    text = canonical_json(value).decode()
    return text if len(text) <= 120 else f"{text[:117]}…"
