"""A chain of passes, and the report of what each removed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Final, NamedTuple

from ..graphs.graph import Graph
from ..graphs.nodes import DeviceStage
from .arithmetic import simplify
from .bodies import tidy_bodies
from .constants import drop_training, fold
from .glance import SPARED, at_rest
from .layers import fold_batch_norm
from .structural import forget_gradients, inline, prune, share

Pass = Callable[[Graph], Graph]
"""Gives a graph that computes the same: structural passes to the bit, algebraic ones to 1e-6 (each says which)."""

STRUCTURAL: Final[tuple[Pass, ...]] = (prune, inline, share, prune)
"""What every graph goes through: results stay bitwise equal."""

EXPORTED: Final[tuple[Pass, ...]] = (prune, share, forget_gradients, simplify, tidy_bodies, prune)
"""What a graph goes through that will be run but not differentiated: results stay bitwise equal."""

FROZEN: Final[tuple[Pass, ...]] = (
    drop_training, *EXPORTED, fold, fold_batch_norm, share, prune,
)  # fmt: skip
"""What a graph goes through whose weights will not change any more: the same to 1e-6."""


class PassReport(NamedTuple):
    """What one pass did.

    Attributes:
        name: The pass's.
        before: Nodes before it.
        after: Nodes after it.
        removed: How many fewer nodes of each op there are; an op that there are more of is left out.
        seconds: Its own wall time.
    """

    name: str
    before: int
    after: int
    removed: dict[str, int]
    seconds: float

    def __str__(self) -> str:
        gone = ", ".join(f"{count} {op}" for op, count in sorted(self.removed.items(), key=lambda item: -item[1]))
        return f"{self.name}: {self.before} -> {self.after} nodes in {self.seconds * 1e3:.1f} ms ({gone or 'nothing'})"


def optimize(graph: Graph, passes: Sequence[Pass] = STRUCTURAL) -> tuple[Graph, tuple[PassReport, ...]]:
    """Run passes one after the other; those that a first look rules out are not run.

    Returns:
        The last graph, and a report per pass, in order.
    """
    reports = []
    counted: tuple[Graph, Counter[str]] | None = None
    rests = at_rest(graph)
    last: dict[Pass, Graph] = {}
    for step in passes:
        if (rests and step in SPARED) or last.get(step) is graph:  # what found nothing does not the next time
            reports.append(PassReport(step.__name__, len(graph.nodes), len(graph.nodes), {}, 0.0))
            continue
        start = perf_counter()
        made = step(graph)
        seconds = perf_counter() - start
        removed: dict[str, int] = {}
        if made is not graph:
            before = counted[1] if counted is not None and counted[0] is graph else _ops(graph)
            counted = (made, _ops(made))
            removed = dict(before - counted[1])
            rests = False
        reports.append(PassReport(step.__name__, len(graph.nodes), len(made.nodes), removed, seconds))
        last[step] = graph = made
    return graph, tuple(reports)


def _ops(graph: Graph) -> Counter[str]:
    return Counter(["stage" if isinstance(node, DeviceStage) else node.op for node in graph.nodes])
