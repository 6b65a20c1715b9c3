"""A function traced for one signature: its jaxpr, and the compiled program."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
from jax.extend.core import ClosedJaxpr

from ...errors import InputError
from .._caller import caller
from ..graphs.graph import Graph
from .as_graph import graph_of
from .gradients import recorded
from .signatures import CallSignature, Parameters, Static, joined, signature_of, split
from .symbolic import check, program
from .values import Spec


@dataclass(frozen=True, repr=False)
class ConcreteFunction:
    """A function traced for one signature; callable with arguments that fit it.

    Attributes:
        name: The function's name.
        signature: Its arguments: tensors by shape and dtype, Python values as they were.
        jaxpr: What was traced, from the flat tensors to the flat results; the graph is made of it.
        in_tree: The PyTreeDef of (args, kwargs), Python values among the leaves.
        out_tree: The PyTreeDef of what it returns.
    """

    name: str
    signature: CallSignature
    jaxpr: ClosedJaxpr
    in_tree: Any  # a PyTreeDef
    out_tree: Any  # a PyTreeDef
    _static: Static
    _structs: tuple[jax.ShapeDtypeStruct, ...]
    _parameters: Parameters

    @functools.cached_property
    def graph(self) -> Graph:
        """Its graph: inputs by argument (`x`, `params['w']`), outputs by key or position, captured arrays as weights.

        The one signature is "call"; what is returned alone is called "result". `stateful` gives the graph in which
        some arguments are state.
        """
        return graph_of(self.jaxpr, self.signature, self.out_tree)

    @functools.cached_property
    def _fitting(self) -> set[object]:
        """Shapes and dtypes that were compared with the signature, so that a call costs no more than its program."""
        return set()

    @functools.cached_property
    def _program(self) -> Callable[..., Sequence[Any]]:  # Any: arrays
        return program(self.jaxpr, self._structs)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:  # Any: the user's arguments and results
        """Run it; Python values that it was traced for may be left out. A `Tape` around records the call.

        Raises:
            InputError: The arguments do not fit the signature.
        """
        return recorded(self._call, args, kwargs)

    def _call(self, *args: Any, **kwargs: Any) -> Any:  # Any: as above
        known, named = joined(self._static, self._structs)
        rest = known[len(args) :] if not any(map(_holds_struct, known[len(args) :])) else ()
        left = self._parameters.names[len(args) :]
        by_name = next((index for index, name in enumerate(left) if name in kwargs), len(rest))
        named = {name: value for name, value in named.items() if not _holds_struct(value)}
        named.update(zip(left[by_name:], rest[by_name:], strict=False))
        static, tensors = split(*self._parameters.canonical((*args, *rest[:by_name]), {**named, **kwargs}))
        return self.run(static, tensors)

    def run(self, static: Static, tensors: Sequence[Any]) -> Any:  # Any: tensors; the user's results
        """Run it on arguments that were taken apart."""
        self.fit(static, tensors)
        return jax.tree.unflatten(self.out_tree, self._program(*tensors))

    def fit(self, static: Static, tensors: Sequence[Any]) -> None:  # Any: tensors
        """Raise InputError where the arguments do not fit the signature."""
        if static != self._static:
            call_signature = signature_of(self._parameters, static, tensors)
            raise InputError(
                f"{self.name} was traced for ({self.signature}) and called with ({call_signature})",
                fix="give the same Python values and structure, or trace another concrete function",
                where=caller(),
            )
        shapes = tuple((tensor.shape, tensor.dtype) for tensor in tensors)
        if shapes not in self._fitting:
            names = [item.name for item in self.signature.arguments if item.spec is not None]
            check(names, tensors, self._structs)
            self._fitting.add(shapes)

    def __str__(self) -> str:
        return f"{self.name}({self.signature})"

    def __repr__(self) -> str:
        results = jax.tree.unflatten(
            self.out_tree, [Spec(aval.shape, aval.dtype, False) for aval in self.jaxpr.out_avals]
        )
        return f"ConcreteFunction({self} -> {results})"


def _holds_struct(tree: object) -> bool:
    return any(isinstance(leaf, jax.ShapeDtypeStruct) for leaf in jax.tree.leaves(tree))
