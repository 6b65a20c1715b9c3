"""Names that records and folders are made of: one that the store or a disk does not take is refused at build."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from ...errors import BuildError
from ...metadata.uri import is_plain
from ..ir.ir import Node

_LONGEST: Final = 255
"""Characters of a name in the store, and of a folder's, which is ASCII: bytes."""
_MORE: Final = ".sent"
"""Beside the folder of an output that is sent elsewhere lies a file of its name with a dot before it and this."""


def check_names(pipeline: str, nodes: Iterable[Node], lines: Mapping[str, str]) -> None:
    """See that what is made of the names in a pipeline can be recorded and written.

    Args:
        pipeline: Its name.
        nodes: Its nodes.
        lines: Where each was added, and under "" where the pipeline begins.

    Raises:
        BuildError: It cannot, naming the user's line.
    """
    for node in nodes:
        _check_node(node, lines[node.id])
    room = _LONGEST - 1 - max(len(node.id) for node in nodes)  # a node is recorded as pipeline.node
    if len(pipeline) > room:
        raise BuildError(
            f"the pipeline's name {pipeline:.40}… is too long: {len(pipeline)} characters",
            where=lines[""],
            fix=f"shorten it to {room}, which leaves room for its nodes' names",
        )


def _check_node(node: Node, where: str) -> None:
    if len(node.component) > _LONGEST:
        raise BuildError(
            f"{node.id}: the component's name {node.component:.40}… is too long: {len(node.component)} characters",
            where=where,
            fix=f"shorten it to {_LONGEST - len(node.component.rpartition(':')[0]) - 1}",
        )
    for key, kind in node.outputs:
        if not is_plain(f"_{key}{_MORE}"):
            raise BuildError(
                f"{node.id}: the output {key!r:.60} has a name that no folder can have here",
                where=where,
                fix=f"use letters a-z, digits and _, at most {_LONGEST - 1 - len(_MORE)}",
            )
        number = f"-{len(node.outputs)}"
        if not is_plain(f"{node.id}.{kind}{number}"):  # it is staged there
            raise BuildError(
                f"{node.id}: the type {kind!r:.60} of its output {key!r:.60} has a name that no folder can have here",
                where=where,
                fix=f"use letters a-z, digits and _, at most {_LONGEST - len(node.id) - 1 - len(number)}",
            )
