"""Python objects that analyzers run (a user's reducer, a key function): known by name while a jaxpr names them."""

from __future__ import annotations

_KNOWN: dict[str, list[object]] = {}


def remember(made: object) -> str:
    """A name for the object: "module:qualified name/number", the same for the same object."""
    kind = made if hasattr(made, "__qualname__") else type(made)
    base = f"{kind.__module__}:{getattr(kind, '__qualname__', type(made).__qualname__)}"
    known = _KNOWN.setdefault(base, [])
    for place, one in enumerate(known):
        if one is made:
            return f"{base}/{place}"
    known.append(made)
    return f"{base}/{len(known) - 1}"


def recall(name: str) -> object:
    """The object of that name."""
    base, _, place = name.rpartition("/")
    return _KNOWN[base][int(place)]
