"""Python objects that analyzers run (a user's reducer, a key function): known by name while a jaxpr names them."""

from __future__ import annotations

_KNOWN: dict[str, list[object]] = {}


def remember(remembered: object) -> str:
    """A name for the object: "module:qualified name/number", the same for the same object.

    Objects are compared by identity and kept alive: names stand in graphs, and two equal objects may come to differ.
    """
    kind = remembered if hasattr(remembered, "__qualname__") else type(remembered)
    base = f"{kind.__module__}:{getattr(kind, '__qualname__', type(remembered).__qualname__)}"
    known = _KNOWN.setdefault(base, [])
    for number, other in enumerate(known):
        if other is remembered:
            return f"{base}/{number}"
    known.append(remembered)
    return f"{base}/{len(known) - 1}"


def recall(name: str) -> object:
    """The object that `remember` gave this name. Raises KeyError where this process remembers none."""
    base, _, number = name.rpartition("/")
    return _KNOWN[base][int(number)]
