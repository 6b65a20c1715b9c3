"""The secrets that a node uses: named for the compiler, and redacted in whatever its pods print."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, TypeAlias

from ...errors import InputError
from ..ir.ir import Node
from ..project.secret import Secret

Json: TypeAlias = Any  # a JSON value; Any because the type is recursive and read by key


def secrets_of(node: Node) -> tuple[frozenset[str], frozenset[str]]:
    """The names of the secrets in a node's parameters and environment, and of the variables with its queries' URLs."""
    values = [value for _, value in (*node.parameters, *node.options.env)]
    return frozenset(_named_in(values, "$secret")), frozenset(_named_in(values, "$query"))


def redact_secrets(node: Node) -> None:
    """Redact a node's secrets in all that this process prints from now on; one that is not there is left out."""
    for name in frozenset().union(*secrets_of(node)):
        with contextlib.suppress(InputError):
            Secret(name).reveal()


def _named_in(value: Json, kind: str) -> Iterator[str]:
    if isinstance(value, dict):
        named = value.get(kind)
        if kind == "$query" and isinstance(named, list):
            named = named[1].removeprefix("env:") if str(named[1]).startswith("env:") else None
        if isinstance(named, str):
            yield named
        for each in value.values():
            yield from _named_in(each, kind)
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from _named_in(each, kind)
