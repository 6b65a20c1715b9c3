"""State: arguments of a traced function as weights of its graph, and the results that are their next values."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

import jax

from ...errors import InputError
from .._caller import caller
from ..graphs.graph import Graph
from ..graphs.nodes import Tensor
from .as_graph import SIGNATURE, Path, paths, written
from .concrete import ConcreteFunction
from .signatures import Argument


def stateful(concrete: ConcreteFunction, *state: str) -> Graph:
    """The graph of a function that takes state and returns its next value: a training step, a running mean.

    State goes in as weights of the graph and comes out as its `updates`; all else stays inputs and outputs. The next
    values are the first results, in the order named here, as those of `jax.lax.scan`; of a function that returns a
    dict, those under the arguments' names; of one that returns nothing but one state, all of it.

        step = stateful(train_step.get_concrete_function(params, x, y), "params")
        step.updates["call"]  # {"params['w']": "t12", "params['b']": "t14"}

    Args:
        concrete: The function, traced for one signature.
        state: Names of arguments: arrays or trees of arrays, such as params, optax's and NNX's states.

    Raises:
        InputError: There is no such argument, or no next value of it: another tree, shape or dtype is returned.
    """
    graph = concrete.graph
    updates: dict[str, str] = {}
    outputs = dict(graph.signatures[SIGNATURE])
    for name, (before, after) in _pairs(concrete, state).items():
        for item, path in _matched(name, before, after):
            output = written(path)
            updates[item.name] = outputs.pop(output).tensor
            have, want = graph.tensors()[updates[item.name]], graph.inputs[item.name]
            if (have.dtype, have.shape) != (want.dtype, want.shape):
                raise InputError(
                    f"{item.name} is {_spec(want)}, and its next value is {_spec(have)}",
                    fix="return state with the shapes and dtypes that it came with",
                    where=caller(),
                )
    return replace(
        graph,
        inputs={name: tensor for name, tensor in graph.inputs.items() if name not in updates},
        weights={**{name: graph.inputs[name] for name in updates}, **graph.weights},
        signatures={SIGNATURE: outputs},
        updates={SIGNATURE: updates},
    )


def _spec(tensor: Tensor) -> str:
    return f"{tensor.dtype}[{','.join(map(str, tensor.shape))}]"


def _pairs(
    concrete: ConcreteFunction, state: tuple[str, ...]
) -> dict[str, tuple[list[tuple[Path, Argument]], list[Path]]]:
    """For each state, its leaves before, and the results that are its leaves after."""
    arguments = list(zip(paths(concrete.in_tree), concrete.signature.arguments, strict=True))
    results = paths(concrete.out_tree)
    shape = jax.tree.unflatten(concrete.out_tree, range(concrete.out_tree.num_leaves))
    pairs = {}
    for position, name in enumerate(state):
        before = [(path[2:], item) for path, item in arguments if re.split(r"[\[.]", item.name)[0] == name]
        if not before:
            known = dict.fromkeys(re.split(r"[\[.]", item.name)[0] for _, item in arguments)
            raise InputError(
                f"{concrete.name} has no argument {name!r}", fix=f"name one of {', '.join(known)}", where=caller()
            )
        if isinstance(shape, Mapping) and any(_key(path) == name for path in results):
            after = [path for path in results if _key(path) == name]
        elif isinstance(shape, tuple) and type(shape) is tuple:
            after = [path for path in results if _key(path) == position]
        else:
            after = results if len(state) == 1 else []
        pairs[name] = (before, after)
    return pairs


def _key(path: Path) -> object:
    return getattr(path[0], "key", getattr(path[0], "idx", None)) if path else None


def _matched(name: str, before: list[tuple[Path, Argument]], after: list[Path]) -> list[tuple[Argument, Path]]:
    """Each leaf of a state with the result that is its next value.

    Raises:
        InputError: The trees differ, or a leaf is a Python value.
    """
    fixed = next((item for _, item in before if item.spec is None), None)
    if fixed is not None:
        raise InputError(
            f"{fixed.name} is {fixed.value}, a Python value, which does not change",
            fix="make it an array: jnp.asarray(…)",
            where=caller(),
        )
    for cut in (0, 1):
        if [path for path, _ in before] == [path[cut:] for path in after]:
            return [(item, path) for (_, item), path in zip(before, after, strict=True)]
    kept = ", ".join(item.name for _, item in before)
    returned = ", ".join(map(written, after)) or "nothing"
    raise InputError(
        f"the state {name!r} is {kept:.200}, and {returned:.200} is returned for it",
        fix="return the same tree, before all other results or in a dict under its name",
        where=caller(),
    )
