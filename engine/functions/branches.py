"""Branches of the graph: `if`, the ternary, `and`, `or`, `not`, comparison chains, `assert` and `raise`."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import Any, Final

import jax
import jax.numpy as jnp
from jax.experimental import checkify
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun

from ...errors import InputError
from .._caller import caller
from .jumps import RETURNED
from .values import (
    NO_VALUE,
    Changes,
    Getter,
    Setter,
    Spec,
    Unset,
    described,
    having,
    is_number,
    is_traced,
    join,
    load,
    refuse_changes,
    same,
    shown,
    truth,
)

Thunk = Callable[[], Any]  # Any: a value of the user's

STAGED: Final[ContextVar[tuple[Callable[..., Any], ...]]] = ContextVar("drivetrain_staged", default=())
"""The blocks around what is traced now, the outermost first: it runs on some path only, or many times."""

CHECKED: Final[ContextVar[bool]] = ContextVar("drivetrain_checked", default=False)
"""Whether asserts on tensors become checks of the graph."""

_COMPARE: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "Lt": operator.lt, "LtE": operator.le, "Gt": operator.gt, "GtE": operator.ge, "Eq": operator.eq,
    "NotEq": operator.ne, "Is": operator.is_, "IsNot": operator.is_not, "In": lambda a, b: _within(a, b),
    "NotIn": lambda a, b: not_(_within(a, b)),
}  # fmt: skip


_Source = Callable[[Sequence[Any]], Any]  # Any: from a path's outputs to a leaf of the user's
_Wanted = tuple[tuple[_Source, _Source], Spec]  # a leaf on either path, and what it is after the branch


class Taken:
    """One path, traced once: its jaxpr, and for each variable its value, with tensors named by output number."""

    def __init__(self, run: Callable[[], Sequence[Any]]) -> None:  # Any: the variables after the path
        self.values: Sequence[Any] = ()
        self.numbers: dict[int, int] = {}

        def traced() -> list[Any]:
            with having(STAGED, (*STAGED.get(), run)):
                self.values = run()
            arrays = [
                leaf for value in self.values if not isinstance(value, Unset)
                for leaf in jax.tree.leaves(value) if isinstance(leaf, jax.Array)
            ]  # fmt: skip
            self.numbers = {id(leaf): number for number, leaf in enumerate(arrays)}
            return arrays

        self.jaxpr: ClosedJaxpr = jax.make_jaxpr(traced)()

    def source(self, leaf: Any) -> _Source:  # Any: a leaf of the user's
        """How to read a leaf off the outputs of the jaxpr."""
        number = self.numbers.get(id(leaf)) if isinstance(leaf, jax.Array) else None
        return (lambda outputs: outputs[number]) if number is not None else (lambda _: leaf)

    def run(self) -> list[Any]:
        """Its outputs, once more, as part of what is traced now."""
        return list(jaxpr_as_fun(self.jaxpr)())


def if_(
    test: Any,  # a Python value or a tracer
    then: Callable[[], None],
    orelse: Callable[[], None],
    get: Getter,
    put: Setter,
    names: Sequence[str],
    changes: Changes,
) -> None:
    """Run one branch, or both as a `lax.cond` where the condition is a tensor."""
    if not is_traced(test):
        then() if test else orelse()
        return
    condition = truth(test, "the condition of this if")
    refuse_changes(changes, "an if")
    before = get()

    def path(run: Callable[[], None]) -> Callable[[], Sequence[Any]]:
        def traced() -> Sequence[Any]:
            put(before)
            run()
            return get()

        return traced

    try:
        after = join_paths(condition, path(then), path(orelse), names)
    finally:
        put(before)
    put(after)


def join_paths(
    condition: Any, then: Callable[[], Sequence[Any]], orelse: Callable[[], Sequence[Any]], names: Sequence[str]
) -> list[Any]:  # Any: a traced bool; the variables of the user's
    """Trace two paths and give each variable the value of the path that is taken."""
    yes, no = Taken(then), Taken(orelse)
    wanted: list[_Wanted] = []
    trios = zip(names, yes.values, no.values, strict=True)
    left = [dict(zip(names, taken.values, strict=True)).get(RETURNED) is True for taken in (yes, no)]
    rebuilt: list[Any] = [
        _joined(
            name,
            NO_VALUE if left[0] and isinstance(a, Unset) else a,  # nothing after a return reads it
            NO_VALUE if left[1] and isinstance(b, Unset) else b,
            yes,
            no,
            wanted,
        )
        for name, a, b in trios
    ]

    def branch(side: int, taken: Taken) -> Callable[[], list[Any]]:
        def run() -> list[Any]:
            outputs = taken.run()
            return [spec.cast(sources[side](outputs)) for sources, spec in wanted]

        return run

    acts = yes.jaxpr.effects or no.jaxpr.effects  # a check or a print leaves no value
    outputs: Sequence[Any] = jax.lax.cond(condition, branch(0, yes), branch(1, no)) if wanted or acts else ()
    return [item(outputs) if callable(item) and not isinstance(item, Unset) else item for item in rebuilt]


def _joined(name: str, a: Any, b: Any, yes: Taken, no: Taken, wanted: list[_Wanted]) -> Any:
    """An Unset, or a function from the cond's outputs to the variable's value."""
    if isinstance(a, Unset) or isinstance(b, Unset):
        if a is b:
            return a
        if a is NO_VALUE or b is NO_VALUE:
            known = b if a is NO_VALUE else a
            if isinstance(known, Unset):
                return known
            # One path has returned nothing yet, and the flag of having returned keeps all from reading what stands in
            # for it. Zeros of the other path's shape do, since a cond needs equal shapes on both.
            blank = jax.tree.map(lambda leaf: Spec.of(leaf).zeros() if isinstance(leaf, jax.Array) else leaf, known)
            a, b = (blank, b) if a is NO_VALUE else (a, blank)
        else:
            poisoned = next((item for item in (a, b) if isinstance(item, Unset) and item.message), None)
            if poisoned is not None or (isinstance(a, Unset) and isinstance(b, Unset)):
                return poisoned or a
            return Unset(
                name,
                f"{shown(name)} has a value on one path of a branch only, and a tensor decides which",
                fix="give it a value on both paths, or before the branch",
                where=caller(),
            )
    leaves_a, tree_a = jax.tree.flatten(a)
    leaves_b, tree_b = jax.tree.flatten(b)
    if not _equal(tree_a, tree_b):
        return _unlike(name, described(a), described(b))
    sources: list[_Source] = []
    for leaf_a, leaf_b in zip(leaves_a, leaves_b, strict=True):
        # A leaf that both paths leave alone is no output of the cond, so that it keeps what is known of it.
        if same(leaf_a, leaf_b):
            sources.append(lambda _, leaf=leaf_a: leaf)  # type: ignore[misc]  # mypy infers no type for a default
            continue
        spec = join(Spec.of(leaf_a), Spec.of(leaf_b)) if is_number(leaf_a) and is_number(leaf_b) else None
        if spec is None:
            return _unlike(name, described(leaf_a), described(leaf_b))
        wanted.append(((yes.source(leaf_a), no.source(leaf_b)), spec))
        number = len(wanted) - 1
        sources.append(lambda outputs, number=number: outputs[number])  # type: ignore[misc]  # as above
    return lambda outputs: jax.tree.unflatten(tree_a, [source(outputs) for source in sources])


def _equal(a: Any, b: Any) -> bool:  # Any: JAX types no comparison of PyTreeDefs
    return bool(a == b)


def _unlike(name: str, first: str, second: str) -> Unset:
    return Unset(
        name,
        f"{shown(name)} is {first} on one path of a branch and {second} on the other, and a tensor decides which",
        fix="give both paths one shape and dtype",
        where=caller(),
    )


def choose(test: Thunk, then: Thunk, orelse: Thunk) -> Any:  # Any: the user's value
    """`then if test else orelse`: one of them is run, or both are traced where a tensor decides."""
    outcome = test()
    if not is_traced(outcome):
        return then() if outcome else orelse()
    condition = truth(outcome, "the condition of this expression")
    (value,) = join_paths(condition, lambda: [then()], lambda: [orelse()], ["the value of this expression"])
    return load(value)


def and_(*parts: Thunk) -> Any:  # Any: the user's values
    """`a and b and …`: the first that is false, else the last; later ones are not run if Python can decide."""
    return _chain(parts, stop=False)


def or_(*parts: Thunk) -> Any:  # Any: as above
    """`a or b or …`: the first that is true, else the last."""
    return _chain(parts, stop=True)


def _chain(parts: Sequence[Thunk], *, stop: bool) -> Any:  # Any: as above
    value = parts[0]()
    if len(parts) == 1:
        return value
    if not is_traced(value):
        return value if bool(value) is stop else _chain(parts[1:], stop=stop)
    condition = truth(value, f"what comes before `{'or' if stop else 'and'}`")
    rest = Taken(lambda: [_chain(parts[1:], stop=stop)])
    (other,) = rest.values
    if (
        _cheap(rest.jaxpr)
        and value.dtype == bool
        and (isinstance(other, bool) or (is_traced(other) and other.dtype == bool))
    ):
        # Both are quick to compute, so no branch: XLA fuses them.
        with_other = rest.source(other)(rest.run())
        with_other = truth(with_other, "what comes after it") if is_traced(with_other) else with_other
        return jnp.logical_or(condition, with_other) if stop else jnp.logical_and(condition, with_other)
    again: Thunk = lambda: jax.tree.unflatten(  # noqa: E731  # the traced rest, run inside of the branch
        jax.tree.structure(other), [rest.source(leaf)(rest.run()) for leaf in jax.tree.leaves(other)]
    )
    paths = (lambda: [value], lambda: [again()]) if stop else (lambda: [again()], lambda: [value])
    (joined,) = join_paths(condition, *paths, [f"the value of `{'or' if stop else 'and'}`"])
    return load(joined)


def _cheap(jaxpr: ClosedJaxpr) -> bool:
    """Whether a jaxpr neither loops nor branches."""
    return not any(word in str(jaxpr) for word in ("while[", "scan[", "cond["))


def not_(value: Any) -> Any:  # Any: the user's value
    """`not value`: a Python bool, or a bool array where the value is traced."""
    return jnp.logical_not(truth(value, "what comes after `not`")) if is_traced(value) else not value


def compare(words: Sequence[str], *parts: Thunk) -> Any:  # Any: bools, or a traced bool
    """`a < b < c`: each part is run once, from the left, and no further than Python's answer needs."""
    left, right = parts[0](), parts[1]()
    outcome = _COMPARE[words[0]](left, right)
    if len(words) == 1:
        return outcome
    return and_(lambda: outcome, lambda: compare(words[1:], lambda: right, *parts[2:]))


def _within(item: Any, items: Any) -> Any:  # Any: the user's values; a bool, or a traced bool
    if is_traced(items):
        return (items == item).any()
    known = isinstance(items, (tuple, list, set, frozenset, range, dict))
    if known and (is_traced(item) or any(map(is_traced, items))):
        return or_(lambda: False, *(lambda member=member: item == member for member in items))
    return item in items


def value(outcome: Any) -> Thunk:  # Any: the user's value
    """A part of an operator that was run already."""
    return lambda: outcome


def certain(condition: Any, what: str) -> Any:  # Any: the user's value
    """A condition that Python itself decides on. Raises InputError where it is a tensor."""
    if is_traced(condition):
        raise InputError(
            f"a tensor decides on {what} that assigns by :=, which a graph cannot do on one path only",
            fix="assign it in a statement before, or write an if statement",
            where=caller(),
        )
    return condition


_TRACER: Final = re.compile(r"\b\w*Tracer\(([a-z]+[0-9]*\[[^\]]*\])\)")


def formatted(operand: Any, name: str, conversion: int, spec: str) -> str:  # Any: the user's value
    """A value in the f-string of an assert: of a tensor of the graph its name and shape, as it has no value yet."""
    if is_traced(operand):
        return f"{name}: {Spec.of(operand)}"
    shown_as: dict[int, Callable[[Any], str]] = {ord("r"): repr, ord("s"): str, ord("a"): ascii}
    return format(shown_as[conversion](operand) if conversion in shown_as else operand, spec)


def _said(message: Any) -> str:  # Any: the user's value
    """An assert's message as text; tensors of the graph by their shapes."""
    return "the assertion is false" if message is None else _TRACER.sub(r"\1", str(message))


def assert_(test: Thunk, message: Thunk) -> None:
    """`assert test, message`: at once where Python knows, else a check of the graph, if it was asked for."""
    outcome = test()
    if not is_traced(outcome):
        if not outcome:
            said = message()
            raise AssertionError(said) if said is not None else AssertionError
        return
    condition = truth(outcome, "what is asserted")
    if CHECKED.get():
        text = f"{caller()}\x1f{_said(message())}"
        # The text goes through str.format there.
        checkify.debug_check(condition, text.replace("{", "{{").replace("}", "}}"))


def may_raise() -> None:
    """Before `raise`. Raises InputError where a tensor decides whether it runs: a graph cannot raise."""
    if STAGED.get():
        raise InputError(
            "a tensor decides whether this `raise` runs, and a graph cannot raise",
            fix="assert the condition, with @function(checks=True), or choose a value by jnp.where",
            where=caller(),
        )
