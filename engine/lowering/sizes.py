"""Which dimensions that count the values of lists a node computes with, beside those of what it reads.

A node without operands may still have such a size: zeros, a range, the size itself as a number. It can only stand where
the size is known, that is in a stage that is given the values it counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

from jax.extend import core as jex

from ..graphs.nodes import DeviceOp, GraphNode

_COUNTS: Final = re.compile(r"\bn[0-9]+\b")  # also inside of "n1 + 1"


def sizes_of(node: GraphNode) -> set[str]:
    """The names of the dimensions: of its outputs, and of what happens inside an equation."""
    names = _names(dim for tensor in node.outputs for dim in tensor.shape)
    return names | set(_inside(node.equation)) if isinstance(node, DeviceOp) else names


def _inside(equation: Any) -> Iterator[str]:  # a jax.extend.core.JaxprEqn
    yield from _names(dim for var in equation.outvars for dim in getattr(var.aval, "shape", ()))
    yield from _names([equation.params.get("dim")])  # of the primitive that makes a number of a size
    for inner in jex.jaxprs_in_params(equation.params):
        for each in inner.eqns:
            yield from _inside(each)


def _names(dims: Iterable[Any]) -> set[str]:  # sizes, symbols, or anything that is no dimension
    return {name for dim in dims if dim is not None and not isinstance(dim, int) for name in _COUNTS.findall(str(dim))}
