"""Scalar expressions of the IR: what a condition, a loop or a parameter says about values still to come.

JSON with one `$` key each: `{"$param": name}`, `{"$property": [node, output, property]}`,
`{"$collect": [node, output, property]}` (of every item of a loop, as a list), `{"$item": loop}`,
`{"$status": field}` (of a run that has ended, for what runs on exit), `{"$optional": expression}` (null where what it
needs was skipped), `{"$one_of": [expression, ...]}` (the first that was not), `{"$op": [operator, operand, ...]}`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Hashable, Iterator, Mapping, Set
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias

from ...errors import InputError, suggest

Json: TypeAlias = Any  # a JSON value; Any because the type is recursive and read by key

_BINARY: dict[str, tuple[str, Callable[[Any, Any], object]]] = {
    "eq": ("==", operator.eq),
    "ne": ("!=", operator.ne),
    "lt": ("<", operator.lt),
    "le": ("<=", operator.le),
    "gt": (">", operator.gt),
    "ge": (">=", operator.ge),
}


class Dependency(NamedTuple):
    """What a node or a loop waits for.

    Attributes:
        node: Id of the node.
        kind: "need": its outputs, so that this one is skipped where it was; "optional": nothing stands in for them;
            "choice": one of its group is enough; "after": only its end, and its assent where it is a gate.
        group: Tells one choice from another.
        collected: Whether it is the outputs of every item of a loop.
    """

    node: str
    kind: Literal["need", "optional", "choice", "after"] = "need"
    group: Hashable = None
    collected: bool = False


class Bindings(Protocol):
    """Where the values of an expression come from: a run, for one item of each loop."""

    def parameter(self, name: str) -> Json:
        """The value of a parameter of the run."""
        ...

    def property(self, node: str, output: str, name: str) -> Json:
        """A property of the only artifact that a node published under an output key."""
        ...

    def collected(self, node: str, output: str, name: str) -> list[Json]:
        """The same property for every item of the loop that was not skipped, in order."""
        ...

    def item(self, loop: str) -> Json:
        """The item of a loop that the values are for."""
        ...

    def status(self, field: str) -> Json:
        """A field of how the run ended, for what runs on exit."""
        ...

    def skipped(self, node: str) -> bool:
        """Whether a node was skipped or failed, so that it has no outputs."""
        ...


def evaluate(expression: Json, values: Bindings) -> Json:
    """The value of an expression; a JSON value without `$` is its own.

    Raises:
        InputError: An operator cannot be applied to what it was given; names the expression and the values.
    """
    if isinstance(expression, list):
        return [evaluate(item, values) for item in expression]
    if not isinstance(expression, Mapping):
        return expression
    ((kind, body),) = expression.items()
    if kind == "$param":
        return values.parameter(body)
    if kind == "$property":
        return values.property(*body)
    if kind == "$collect":
        return values.collected(*body)
    if kind == "$item":
        return values.item(body)
    if kind == "$status":
        return values.status(body)
    if kind == "$optional":
        # Asked before it is evaluated: a skipped node has no artifacts, so that `values.property` would fail.
        return None if any(values.skipped(need.node) for need in dependencies(body)) else evaluate(body, values)
    if kind == "$one_of":
        left = [each for each in body if not any(values.skipped(need.node) for need in dependencies(each))]
        return evaluate(left[0], values) if left else None
    if kind == "$op":
        return _apply(expression, values)
    # A map is a list of pairs: canonical JSON sorts the keys of an object, and a user's key may begin with `$`. What is
    # left ($fn, $files, $secret, …) is no value of the run; the resolver replaces it where a task is launched.
    return {key: evaluate(item, values) for key, item in body} if kind == "$map" else expression


def _apply(expression: Json, values: Bindings) -> Json:
    name, *operands = expression["$op"]
    # As in Python, what comes after the deciding operand is not evaluated: `(a.rows > 0) & (a.best > 1)` relies on it.
    if name == "and":
        return all(_truth(evaluate(each, values), each) for each in operands)
    if name == "or":
        return any(_truth(evaluate(each, values), each) for each in operands)
    arguments = [evaluate(each, values) for each in operands]
    try:
        if name == "not":
            return not _truth(arguments[0], operands[0])
        if name == "get":
            return arguments[0][arguments[1]]
        if name == "in":
            return arguments[0] in arguments[1]
        return _BINARY[name][1](arguments[0], arguments[1])
    except (TypeError, KeyError, IndexError):
        if name == "get" and isinstance(arguments[0], Mapping) and isinstance(arguments[1], str):
            raise InputError(
                f"{spelled(operands[0])} has no item {arguments[1]!r}", fix=suggest(arguments[1], list(arguments[0]))
            ) from None
        shown = ", ".join(f"{value!r:.60}" for value in arguments)
        raise InputError(
            f"{spelled(expression)} has no value: it was given {shown}", fix="check what the upstream node published"
        ) from None


def _truth(value: object, expression: Json) -> bool:
    if not isinstance(value, bool):
        raise InputError(f"{spelled(expression)} is {value!r:.60}, not true or false", fix="compare it with something")
    return value


def holds(condition: Json, values: Bindings) -> bool:
    """The value of a condition.

    Raises:
        InputError: It is neither true nor false.
    """
    return _truth(evaluate(condition, values), condition)


def names_any(value: Json, kinds: Set[str]) -> bool:
    """Whether an expression or a value of a parameter is, or holds, one of these kinds, e.g. "$param"."""
    if isinstance(value, Mapping):
        return not kinds.isdisjoint(value) or any(names_any(item, kinds) for item in value.values())
    return isinstance(value, (list, tuple)) and any(names_any(item, kinds) for item in value)


def dependencies(expression: Json) -> Iterator[Dependency]:
    """The nodes whose outputs an expression needs."""
    if isinstance(expression, Mapping):
        for key, body in expression.items():
            if key in ("$property", "$collect"):
                yield Dependency(body[0], collected=key == "$collect")
            elif key == "$optional":
                yield from (need._replace(kind="optional") for need in dependencies(body))
            elif key == "$one_of":
                # The spelling tells choices apart: equal expressions are one choice, and one of its nodes is enough.
                needs = (need for each in body for need in dependencies(each))
                yield from (need._replace(kind="choice", group=spelled(expression)) for need in needs)
            else:
                yield from dependencies(body)
    elif isinstance(expression, (list, tuple)):
        for item in expression:
            yield from dependencies(item)


def items(expression: Json) -> Iterator[str]:
    """The loops whose items an expression uses."""
    if isinstance(expression, Mapping):
        for key, body in expression.items():
            if key == "$item":
                yield body
            else:
                yield from items(body)
    elif isinstance(expression, (list, tuple)):
        for item in expression:
            yield from items(item)


def spelled(expression: Json) -> str:
    """An expression in Python's notation, for messages and drawings."""
    if not isinstance(expression, Mapping):
        return repr(expression)
    ((kind, body),) = expression.items()
    if kind == "$property":
        node, output, name = body
        if name == "value":
            return node if output == name else f"{node}.{output}"
        return f"{node}.{name}"
    if kind == "$collect":
        return f"every {spelled({'$property': body})}"
    if kind in ("$param", "$item", "$status"):
        return {"$param": f"{body}", "$item": f"the item of {body}", "$status": f"run.{body}"}[kind]
    if kind == "$one_of":
        return f"one_of({', '.join(map(spelled, body))})"
    if kind == "$optional":
        return spelled(body)
    if kind != "$op":
        return str(expression)
    name, *operands = body
    if name == "get":
        return f"{_operand(operands[0])}[{spelled(operands[1])}]"
    if name == "not":
        return f"not {_operand(operands[0])}"
    if name in ("and", "or"):
        # Comparisons bind more closely: only an `and` in an `or`, or the reverse, needs parentheses.
        return f" {name} ".join(_operand(each, but=("get", "not", "in", *_BINARY)) for each in operands)
    return f" {_BINARY[name][0] if name in _BINARY else name} ".join(map(_operand, operands))


def _operand(expression: Json, but: tuple[str, ...] = ("get",)) -> str:
    """An operand, in parentheses if it is an operation that binds less closely than the one around it."""
    plain = not isinstance(expression, Mapping) or "$op" not in expression or expression["$op"][0] in but
    return spelled(expression) if plain else f"({spelled(expression)})"
