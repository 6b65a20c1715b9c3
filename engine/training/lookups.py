"""What a model does with a table and its ids: that it looks rows up, and nothing else, is read off its jaxpr."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import jax
from jax.extend import core as jex

from ...errors import InputError
from ..passes.structural import CALLED


class _Role(NamedTuple):
    """What a value is, where it is anything that matters.

    Attributes:
        name: "table"; "ids", or what comes of ids before a look-up: "negative" (whether they are), "wrapped" (counted
            from the end, if they are) and "starts" (with where to begin in other dimensions); "segments" of a list's
            values, and "slots": which are not empty.
        of: The table's path, or the features that the ids are of.
    """

    name: str
    of: Any


_TABLES_STAY: Final = frozenset(
    {"convert_element_type", "copy", "copy_p", "sharding_constraint", "optimization_barrier"}
)
_IDS_STAY: Final = _TABLES_STAY | frozenset(
    {
        "broadcast_in_dim",
        "reshape",
        "squeeze",
        "expand_dims",
        "transpose",
        "concatenate",
        "stack",
        "slice",
        "dynamic_slice",
        "rev",
    }
)
_CALLED: Final = {**CALLED, "checkpoint": "jaxpr"}


def refuse_other_uses(traced: Any, arguments: Any, groups: Mapping[str, tuple[str, ...]]) -> None:
    """Refuse a model that would give something else were its ids numbered anew, and its tables with them.

    Args:
        traced: The jaxpr of the model's outputs and next state.
        arguments: What it was traced with: parameters and features, of which the tables and their ids matter. What
            comes after them does not.
        groups: The features whose ids name rows of a table, by the table's path.

    Raises:
        InputError: It uses a table or its ids otherwise; named with the operation.
    """
    features = {feature: names for names in groups.values() for feature in names}
    kinds: list[_Role | None] = []
    for path, _ in jax.tree_util.tree_flatten_with_path(arguments)[0]:
        _, _, name = jax.tree_util.keystr(path, simple=True, separator=".").partition(".")
        if path[0].idx == 0:
            kinds.append(_Role("table", name) if name in groups else None)
        else:
            feature = path[1].key
            listed = name == f"{feature}.segment_ids"
            kinds.append(_Role("segments" if listed else "ids", features[feature]) if feature in features else None)
    kinds += [None] * (len(traced.jaxpr.invars) - len(kinds))
    for kind in _Uses(groups).outputs(traced.jaxpr, kinds):
        if kind is not None and kind.name != "segments":
            raise _misused(kind, "its output")


class _Uses:
    """A walk through equations, which knows of each value what it is."""

    def __init__(self, groups: Mapping[str, tuple[str, ...]]) -> None:
        self._groups = groups

    def outputs(self, jaxpr: Any, inputs: Sequence[_Role | None]) -> list[_Role | None]:
        """What the outputs are, from what the inputs are."""
        known = {var: kind for var, kind in zip(jaxpr.invars, inputs, strict=True) if kind is not None}

        def kind_of(var: Any) -> _Role | None:
            return None if isinstance(var, jex.Literal) else known.get(var)

        for equation in jaxpr.eqns:
            kinds = [kind_of(var) for var in equation.invars]
            if not any(kinds):
                continue
            for var, kind in zip(equation.outvars, self._after(equation, kinds), strict=True):
                if kind is not None:
                    known[var] = kind
        return [kind_of(var) for var in jaxpr.outvars]

    def _after(self, equation: Any, kinds: Sequence[_Role | None]) -> Sequence[_Role | None]:
        name = equation.primitive.name
        if name in _CALLED:
            inner = equation.params[_CALLED[name]]
            return self.outputs(getattr(inner, "jaxpr", inner), kinds)
        return [self._result(equation, name, *kinds)] + [None] * (len(equation.outvars) - 1)

    def _result(self, equation: Any, name: str, first: _Role | None, *others: _Role | None) -> _Role | None:
        """What the result of an operation is, some operands of which matter."""
        marked = [kind for kind in (first, *others) if kind is not None]
        names = {kind.name for kind in marked}
        if names == {"segments"}:
            return _Role("slots", marked[0].of) if name == "lt" else None
        if first is not None and first.name == "table":
            if name in _TABLES_STAY:
                return first
            if name != "gather":
                raise _misused(first, f"the operation {name!r}")
            if not self._looks_up(equation, first.of, *others):
                raise _misused(first, "a look-up by other ids")
            return None
        if first is not None and names == {first.name}:
            if name == "concatenate" and first.name == "ids" and others and not any(others):
                return _Role("starts", first.of)
            aligned = name in _IDS_STAY and all(kind == first for kind in others)
            if aligned and (first.name in ("negative", "slots") or equation.outvars[0].aval.dtype.kind in "iu"):
                return first
            if first.name == "ids" and name == "dynamic_slice":
                return first
            operand = equation.invars[1] if others else None
            if first.name == "ids" and isinstance(operand, jex.Literal):
                if name == "lt" and operand.val == 0:
                    return _Role("negative", first.of)
                if name == "add":
                    return _Role("wrapped", first.of)
        if name == "select_n" and first is not None:
            ids = next((kind for kind in others if kind is not None and kind.name == "ids"), None)
            # Ids that are negative are taken for those from the end: none is, of those that are numbered anew.
            wraps = first.name == "negative" and others == (ids, _Role("wrapped", first.of))
            # What stands in an empty slot of a list does not matter.
            fills = first.name == "slots" and all(kind in (None, ids) for kind in others)
            if wraps or (fills and ids is not None):
                return ids
        if names <= {"slots", "segments"}:
            return None
        worst = next((kind for kind in marked if kind.name == "table"), marked[0])
        raise _misused(worst, "a look-up in another array" if name == "gather" else f"the operation {name!r}")

    def _looks_up(self, equation: Any, table: str, role: _Role | None) -> bool:
        """Whether a gather takes whole rows of a table by its ids."""
        indexed = equation.params["dimension_numbers"].start_index_map
        if indexed == (0,):
            return role == _Role("ids", self._groups[table])
        # As of one id, mapped over many: a row begins at its id and at 0, the only beginning of all that it has.
        whole = (1, *equation.invars[0].aval.shape[1:])
        begins = indexed == tuple(range(len(whole))) and equation.params["slice_sizes"] == whole
        starts = equation.invars[1].aval.shape[-1] == len(whole)
        return begins and starts and role == _Role("starts", self._groups[table])


def _misused(kind: _Role, by: str) -> InputError:
    if kind.name == "table":
        return InputError(
            f"the model uses the sparse table {kind.of!r} in {by}, not only to look up rows by its features' ids",
            fix="leave it out of tables, so that it is trained as a dense parameter",
        )
    features = ", ".join(map(repr, kind.of))
    return InputError(
        f"the model uses {features}, the ids of a sparse table, in {by}, not only to look up rows of it",
        fix="name every table that they are looked up in, and have preprocess return what else is made of them "
        "as a column of its own",
    )
