"""What is launched: a node, or a node for one item of each of its loops, e.g. `Trainer[3]` or `Trainer[3,0]`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from ...errors import InputError
from .ir import Node

Index: TypeAlias = tuple[int, ...]
"""Which item of each loop, the outermost first; shorter than the node's loops are deep where one has no items."""


def task_name(node: str, index: Index = ()) -> str:
    """The name of a task."""
    return f"{node}[{','.join(map(str, index))}]" if index else node


def parse_task(name: str) -> tuple[str, Index]:
    """The node and the index of a task.

    Raises:
        InputError: It is not the name of a task.
    """
    node, bracket, rest = name.partition("[")
    try:
        return node, tuple(int(part) for part in rest.removesuffix("]").split(",")) if bracket else ()
    except ValueError:
        raise InputError(f"{name!r} names no node", fix="write e.g. Trainer, or Trainer[3] for an item") from None


@dataclass(frozen=True)
class Task:
    """What is launched: a node, for one item of each of its loops."""

    node: Node
    index: Index = ()

    @property
    def name(self) -> str:
        """The name under which it is shown and recorded."""
        return task_name(self.node.id, self.index)
