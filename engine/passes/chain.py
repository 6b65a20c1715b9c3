"""A chain of passes, and the report of what each removed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Final, NamedTuple

from ..graphs.graph import Graph
from ..graphs.nodes import DeviceStage
from .constants import fold
from .layers import fold_batch_norm
from .structural import forget_gradients, inline, prune, share
from .training_only import drop_training

Pass = Callable[[Graph], Graph]
"""Gives a graph that computes the same: structural passes to the bit, algebraic ones to 1e-6 (each says which)."""

STRUCTURAL: Final[tuple[Pass, ...]] = (prune, inline, share, prune)
"""What every graph goes through: results stay bitwise equal."""

EXPORTED: Final[tuple[Pass, ...]] = (prune, forget_gradients, share, prune)
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
    """Run passes one after the other.

    Returns:
        The last graph, and a report per pass, in order.
    """
    reports = []
    counted: tuple[Graph, Counter[str]] | None = None
    last_result: dict[Pass, Graph] = {}
    for step in passes:
        if last_result.get(step) is graph:  # what a pass has left as it is, it leaves so the next time too
            reports.append(PassReport(step.__name__, len(graph.nodes), len(graph.nodes), {}, 0.0))
            continue
        start = perf_counter()
        rewritten = step(graph)
        seconds = perf_counter() - start
        removed: dict[str, int] = {}
        if rewritten is not graph:
            before = counted[1] if counted is not None and counted[0] is graph else _ops(graph)
            counted = (rewritten, _ops(rewritten))
            removed = dict(before - counted[1])
        reports.append(PassReport(step.__name__, len(graph.nodes), len(rewritten.nodes), removed, seconds))
        last_result[step] = graph = rewritten
    return graph, tuple(reports)


def _ops(graph: Graph) -> Counter[str]:
    return Counter(["stage" if isinstance(node, DeviceStage) else node.op for node in graph.nodes])
