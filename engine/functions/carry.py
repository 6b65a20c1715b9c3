"""The variables that a loop of the graph carries from step to step: found by tracing its body until they are stable."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
from jax.extend.core import jaxpr_as_fun

from .._caller import caller
from .branches import STAGED
from .values import (
    NO_VALUE,
    Getter,
    Setter,
    Spec,
    Unset,
    described,
    having,
    is_number,
    is_traced,
    join,
    same,
    shown,
    truth,
)

Leaves = list[Any]  # JAX arrays


@dataclass
class _Variable:
    """One variable: the value before the loop, and for each leaf the spec that is carried; None for no tensor."""

    name: str
    value: Any  # the user's
    leaves: list[Any]
    tree: Any  # a PyTreeDef
    specs: list[Spec | None]

    @classmethod
    def of(cls, name: str, value: Any) -> _Variable:  # Any: the user's value
        leaves, tree = ([], None) if isinstance(value, Unset) else jax.tree.flatten(value)
        return cls(name, value, leaves, tree, [Spec.of(leaf) if is_number(leaf) else None for leaf in leaves])

    def with_tensors(self, tensors: Sequence[Any]) -> Any:  # Any: tensors; the user's value
        """The value with tensors, one for each leaf that is carried, in the places of those leaves."""
        if isinstance(self.value, Unset):
            return self.value
        stack = list(tensors)
        return jax.tree.unflatten(
            self.tree,
            [leaf if spec is None else stack.pop(0) for leaf, spec in zip(self.leaves, self.specs, strict=True)],
        )

    @property
    def carried(self) -> list[Spec]:
        return [spec for spec in self.specs if spec is not None]


class Carry:
    """A loop body traced as a function of what it carries.

    Args:
        get: Reads the block's variables.
        put: Writes them.
        names: Their names.
        body: One step; takes the tensors of its item.
        item: What those tensors are.
    """

    def __init__(
        self,
        get: Getter,
        put: Setter,
        names: Sequence[str],
        body: Callable[[Leaves], None],
        item: Sequence[jax.ShapeDtypeStruct],
    ) -> None:
        self.get, self.put, self.body, self.item = get, put, body, list(item)
        self.before = get()
        self.variables = [_Variable.of(name, value) for name, value in zip(names, self.before, strict=True)]
        # Traced until nothing changes. A wider dtype may pass from one variable to the next, one a round, and that at
        # most three times (to integers, to floats, to no tensor at all): hence this many rounds.
        for _ in range(3 * len(names) + 2):
            self.after, self.inputs, self.jaxpr = self._trace()
            if not self._settle():
                break
        self.numbers = {
            id(leaf): number for number, leaf in enumerate(leaf for value in self.after for leaf in _arrays(value))
        }
        put(self.before)

    def _specs(self) -> list[Spec]:
        return [spec for variable in self.variables for spec in variable.carried]

    def _set(self, leaves: Sequence[Any]) -> None:
        rest = list(leaves)
        values = []
        for variable in self.variables:
            count = 0 if isinstance(variable.value, Unset) else len(variable.carried)
            values.append(variable.with_tensors(rest[:count]))
            rest = rest[count:]
        self.put(values)

    def _trace(self) -> tuple[Sequence[Any], Leaves, Any]:
        seen: list[Any] = []
        body, get = self.body, self.get

        def block() -> tuple[Any, Any]:  # never run: it says what is of this block
            return body, get

        def traced(*leaves: Any) -> list[Any]:
            count = len(leaves) - len(self.item)
            self._set(leaves[:count])
            with having(STAGED, (*STAGED.get(), block)):
                body(list(leaves[count:]))
            after = get()
            seen.append((after, list(leaves[:count])))
            return [leaf for value in after for leaf in _arrays(value)]

        try:
            jaxpr = jax.make_jaxpr(traced)(*[spec.struct() for spec in self._specs()], *self.item)
        finally:
            self.put(self.before)
        return (*seen[0], jaxpr)

    def _settle(self) -> bool:
        """Fit what is carried to what a step leaves; whether anything changed, so that the body is traced again."""
        changed = False
        for index, (variable, after) in enumerate(zip(self.variables, self.after, strict=True)):
            if isinstance(variable.value, Unset):
                if variable.value is NO_VALUE and not isinstance(after, Unset) and _arrays(after):
                    blank = jax.tree.map(
                        lambda leaf: Spec.of(leaf).zeros() if isinstance(leaf, jax.Array) else leaf, after
                    )
                    self.variables[index] = _Variable.of(variable.name, blank)
                    changed = True
                continue
            new = self._fitted(variable, after)
            if new is not variable:
                self.variables[index] = new
                changed = True
        return changed

    def _fitted(self, variable: _Variable, after: Any) -> _Variable:  # Any: the user's value
        if isinstance(after, Unset):
            return _Variable.of(variable.name, after if after.message else _changed(variable, after))
        leaves, tree = jax.tree.flatten(after)
        if tree != variable.tree:
            return _Variable.of(variable.name, _changed(variable, after))
        specs: list[Spec | None] = []
        for before, spec, leaf in zip(variable.leaves, variable.specs, leaves, strict=True):
            if spec is None:
                if not same(before, leaf):
                    return _Variable.of(variable.name, _changed(variable, after))
                specs.append(None)
                continue
            joined = join(spec, Spec.of(leaf)) if is_number(leaf) else None
            if joined is None:
                return _Variable.of(variable.name, _changed(variable, after))
            specs.append(joined)
        if specs == variable.specs:
            return variable
        return _Variable(variable.name, variable.value, variable.leaves, variable.tree, specs)

    def condition(self, test: Callable[[], Any]) -> Callable[[Leaves], Any]:  # Any: a bool or tracer
        """The loop's test as a function of what is carried."""

        def traced(*leaves: Any) -> Any:
            self._set(leaves)
            outcome = test()
            return truth(outcome, "the condition of this loop") if is_traced(outcome) else bool(outcome)

        try:
            jaxpr = jax.make_jaxpr(traced)(*[spec.struct() for spec in self._specs()])
        finally:
            self.put(self.before)
        return lambda leaves: jaxpr_as_fun(jaxpr)(*leaves)[0]

    def start(self) -> Leaves:
        """The carried tensors before the first step."""
        return [
            spec.cast(leaf)
            for variable in self.variables
            for leaf, spec in zip(variable.leaves, variable.specs, strict=True)
            if spec is not None
        ]

    def step(self, state: Leaves, item: Leaves, *, fresh: bool = False) -> Leaves:
        """One step: what is carried after it; with `fresh`, also the variables that only the body sets."""
        outputs = jaxpr_as_fun(self.jaxpr)(*state, *item)
        carried: Leaves = []
        for variable, after in zip(self.variables, self.after, strict=True):
            if isinstance(variable.value, Unset):
                continue
            for leaf, spec in zip(jax.tree.leaves(after), variable.specs, strict=True):
                if spec is not None:
                    carried.append(spec.cast(self._read(leaf, outputs)))
        return carried + ([outputs[self.numbers[id(leaf)]] for leaf in self._fresh()] if fresh else [])

    def _read(self, leaf: Any, outputs: Leaves) -> Any:  # Any: a leaf of the user's
        return outputs[self.numbers[id(leaf)]] if isinstance(leaf, jax.Array) else leaf

    def _fresh(self) -> list[Any]:
        """The tensors of the variables that have no value before the loop."""
        return [
            leaf
            for variable, after in zip(self.variables, self.after, strict=True)
            if isinstance(variable.value, Unset)
            for leaf in _arrays(after)
        ]

    def fresh_start(self) -> Leaves:
        """Placeholders for those, before the first step has set them."""
        return [Spec.of(leaf).zeros() for leaf in self._fresh()]

    def finish(self, end: Leaves, *, reason: str, fresh: bool = False) -> None:
        """Give the variables their values after the loop."""
        stack = list(end)
        inputs = list(self.inputs)
        values: list[Any] = []
        late: list[int] = []
        for variable, after in zip(self.variables, self.after, strict=True):
            if isinstance(variable.value, Unset):
                late.append(len(values))
                values.append(after)
                continue
            leaves: list[Any] = []
            for before, spec, leaf in zip(variable.leaves, variable.specs, jax.tree.leaves(after), strict=True):
                if spec is None:
                    leaves.append(before)
                    continue
                ended, begun = stack.pop(0), inputs.pop(0)
                leaves.append(before if leaf is begun and not is_traced(before) else ended)  # never changed
            values.append(jax.tree.unflatten(variable.tree, leaves))
        for index in late:
            variable, after = self.variables[index], values[index]
            if isinstance(after, Unset):
                values[index] = variable.value if variable.value.message else after
            elif fresh:
                values[index] = jax.tree.map(lambda leaf: stack.pop(0) if isinstance(leaf, jax.Array) else leaf, after)
            elif variable.value.message is None and variable.value is not NO_VALUE:
                values[index] = Unset(
                    variable.name,
                    f"{shown(variable.name)} gets its value only inside the loop, in {reason}",
                    fix="give it a value before the loop",
                    where=caller(),
                )
            else:
                values[index] = variable.value
        self.put(values)


def _arrays(value: Any) -> list[Any]:  # Any: the user's value
    if isinstance(value, Unset):
        return []
    return [leaf for leaf in jax.tree.leaves(value) if isinstance(leaf, jax.Array)]


def _changed(variable: _Variable, after: Any) -> Unset:  # Any: the user's value
    return Unset(
        variable.name,
        f"{shown(variable.name)} is {described(variable.value)} before a step of this loop and {described(after)} "
        "after it, and a loop of the graph cannot change a variable's shape, dtype or kind",
        fix="give it its final shape and dtype before the loop (jnp.zeros of the largest size, say)",
        where=caller(),
    )
