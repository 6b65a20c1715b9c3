"""What a node is that KFP's spec does not say: its container has it, so that `diff` tells what changed; its secrets.

KFP is told who waits for whom. Which output is gathered of a loop, what is asked of history, conditions that the pod
decides, the values of a list: those are between our launcher and our store.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Iterator
from typing import Any, TypeAlias

from ...digest import canonical_json, digest
from ...errors import InputError
from ..ir.expressions import spelled
from ..ir.ir import (
    Edge,
    Node,
    Pipeline,
    Source,
    UidSource,
)
from ..project.secret import Secret, mark_secret

Json: TypeAlias = Any  # a JSON value; Any because the type is recursive and read by key

VARIABLE = "DRIVETRAIN_NODE"
"""Of a node's container. Pods do not read it."""
_ELSEWHERE = ("retries", "backoff", "backoff_factor", "timeout", "cpus", "memory", "accelerators", "env")
"""The options that the spec and the platform document say, and what is told of by itself."""
_TELLING = 8
"""Characters of a line of a secret that is blotted out by itself; shorter ones stand in much else."""
_LONG = 2000
"""Characters of a value that is written out there."""


def about(pipeline: Pipeline, node: Node) -> str:
    """A node of a pipeline as the JSON of its variable: facts, and maps of facts by name."""
    loops = [pipeline.loop(name) for name in pipeline.scope(node.id)]
    facts = {
        "component": node.component,
        "code": node.code,
        "cache": node.cache,
        "gates": node.gates,
        "asks": node.asks or None,
        "when": _all(node.conditions),
        "input": {name: [_source(each) for each in sources] for name, sources in node.inputs},
        "parameter": {name: _short(value) for name, value in node.parameters},
        "output": dict(node.outputs),
        "node's env": dict(node.options.env),
        "option": {name: value for name, value in node.options.to_json().items() if name not in _ELSEWHERE},
        "over": {loop.id: _short(loop.over) for loop in loops},
        "loop when": {loop.id: _all(loop.conditions) for loop in loops if loop.conditions},
    }
    return canonical_json({name: fact for name, fact in facts.items() if fact not in ({}, "", None)}).decode()


def secrets(node: Node) -> tuple[frozenset[str], frozenset[str]]:
    """The secrets that a node is given, by name; and the variables that the connections of its queries are in."""
    given = [value for _, value in (*node.parameters, *node.options.env)]
    return frozenset(_held(given, "$secret")), frozenset(_held(given, "$query"))


def blot_out(node: Node) -> None:
    """From now on, this process blots out the secrets that a node is given, as far as they are there.

    Of one with several lines, such as a private key, each line too: a log is told line by line.
    """
    for name in frozenset().union(*secrets(node)):
        with contextlib.suppress(InputError):
            for line in Secret(name).reveal().splitlines():
                if len(line) >= _TELLING:
                    mark_secret(line)


def _held(value: Json, kind: str) -> Iterator[str]:
    if isinstance(value, dict):
        named = value.get(kind)
        if kind == "$query" and isinstance(named, list):
            named = named[1].removeprefix("env:") if str(named[1]).startswith("env:") else None
        if isinstance(named, str):
            yield named
        for each in value.values():
            yield from _held(each, kind)
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from _held(each, kind)


def _all(conditions: Iterable[Json]) -> str:
    return " and ".join(map(spelled, conditions))


def _source(source: Source) -> Json:
    """What an input takes from, in a word where there is one."""
    if not isinstance(source, Edge):
        return {"uids": _short(source.uids)} if isinstance(source, UidSource) else source.to_json()
    kind = f" (choice {source.choice})" if source.choice else " (optional)" if source.optional else ""
    return f"{source.node}.{source.output}{kind}"


def _short(value: Json) -> Json:
    return value if len(json.dumps(value)) <= _LONG else f"sha256:{digest('drivetrain-parameter', value)}"
