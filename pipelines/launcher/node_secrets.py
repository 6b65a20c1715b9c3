"""The secrets that a node uses: named, redacted in what is printed, and asked for before the first task of a run."""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any, TypeAlias

from ...errors import InputError
from ..ir.ir import Node, Pipeline, Query
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


def require_secrets(pipeline: Pipeline, nodes: Iterable[str]) -> None:
    """See that the secrets are there of those of these nodes that will be launched for certain.

    A node is not where a condition, a loop or a query for an artifact, which may be absent, decides about it or about a
    node upstream: its secrets are asked for when it is launched. Where the cache may decide a node counts: it asks for
    its secrets before it is looked for there, and whether it is there is known only once those upstream have ended.

    Raises:
        InputError: Some are not set (all are named, with their nodes), or one cannot be redacted.
    """

    @cache
    def certain(node: str) -> bool:
        by_query = any(isinstance(source, Query) for _, sources in pipeline[node].inputs for source in sources)
        open_ended = by_query or pipeline[node].conditions or pipeline.scope(node)
        return not open_ended and all(certain(upstream) for upstream in pipeline.upstream(node))

    users: dict[Secret, list[str]] = defaultdict(list)
    for node in filter(certain, nodes):
        for name in sorted(secrets_of(pipeline[node])[0]):
            users[Secret(name)].append(node)
    if missing := [secret for secret in users if not secret.is_set]:
        names = ", ".join(f"{secret.name} (for {', '.join(users[secret])})" for secret in missing)
        raise InputError(
            f"the secret {names} is not set" if len(missing) == 1 else f"the secrets {names} are not set",
            fix="; ".join(secret.how_to_set for secret in missing),
        )
    for secret in users:
        secret.reveal()


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
