"""A bundle as a page: its graph, with what its programs hold and what its weights weigh."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ...report.graph import render
from ..graphs.describe import describe
from ..graphs.graph import Graph
from ..lowering.programs import Payload, program_facts

_ROWS: Final = 512
_PLUMBING: Final = frozenset(
    {"broadcast_in_dim", "compare", "concatenate", "constant", "convert", "custom_call", "dynamic_broadcast_in_dim",
     "dynamic_reshape", "get_dimension_size", "iota", "reshape", "return", "select", "slice", "transpose"}
)  # fmt: skip


def bundle_page(graph: Graph, payload: Payload, signatures: Iterable[str]) -> str:
    """The HTML of `Bundle.to_html`: the graph, its signatures, and every node with its cost at 512 rows."""
    ops = {
        name: {op.split(".", 1)[1]: count for op, count in sorted(program_facts(program).ops.items(), key=_most)}
        for name, program in payload.programs.items()
    }
    described = describe(graph, _ROWS, ops)
    described["weights"] = [
        {"id": name, "type": f"{array.dtype}[{','.join(map(str, array.shape))}]", "bytes": array.nbytes}
        for name, array in sorted(payload.weights.items())
    ]
    return render(described, f"Bundle: {', '.join(signatures)}")


def _most(item: tuple[str, int]) -> tuple[bool, int, str]:
    """The sort key: ops that compute before ops that only move numbers, then the frequent ones, then by name."""
    op, count = item
    return op.split(".", 1)[1] in _PLUMBING, -count, op
