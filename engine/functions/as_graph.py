"""A traced function as a `Graph`: arguments by name, results by key or position, captured arrays as weights."""

from __future__ import annotations

from typing import Any, Final

import jax
from jax.extend.core import ClosedJaxpr

from ..graphs.graph import Graph
from ..graphs.nodes import Tensor
from ..tracing.equations import graph_of_jaxpr
from .signatures import Argument, CallSignature
from .values import Spec

SIGNATURE: Final = "call"
"""The name of the one signature of a function's graph."""

_RESULT: Final = "result"  # what a function returns that returns one tensor
Path = tuple[Any, ...]  # Any: JAX's entries of the way to a leaf


def graph_of(jaxpr: ClosedJaxpr, signature: CallSignature, out_tree: Any) -> Graph:  # Any: a PyTreeDef
    """See `ConcreteFunction.graph`."""
    inputs = [(item.name, _tensor(item, item.spec)) for item in signature.arguments if item.spec is not None]
    outputs = {written(path): position for position, path in enumerate(paths(out_tree))}
    return graph_of_jaxpr(jaxpr, inputs, outputs, signature=SIGNATURE)


def _tensor(item: Argument, spec: Spec) -> Tensor:
    return Tensor(item.name, str(spec.dtype), tuple(dim if isinstance(dim, int) else str(dim) for dim in spec.shape))


def paths(tree: Any) -> list[Path]:  # Any: a PyTreeDef
    """The ways to the leaves of a tree, in order."""
    leaves = jax.tree.unflatten(tree, range(tree.num_leaves))
    return [path for path, _ in jax.tree_util.tree_flatten_with_path(leaves)[0]]


def written(path: Path) -> str:
    """A result as the user would write it: its key or position, then what is below."""
    first = jax.tree_util.keystr(path[:1], simple=True)
    return f"{first}{jax.tree_util.keystr(path[1:])}" if path else _RESULT
