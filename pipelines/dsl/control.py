"""Control flow of a pipeline: branches, loops, what runs on exit, and what may be missing."""

from __future__ import annotations

import typing
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, TypeVar, Union, cast

from ...errors import BuildError
from ..ir.ir import Json
from ..project.functions import user_line
from .builder import PipelineBuilder
from .component import recorder
from .handles import ChoiceHandle, Expression, Handle, Property, Scalar, encode, operand, operation
from .hints import spell
from .symbolic import SymbolicArtifact

T = TypeVar("T")
R = TypeVar("R")


def when(condition: bool) -> AbstractContextManager[None]:
    """Nodes inside run only if a scalar of the run is true: `with dt.when(evaluation.blessed & (rows > 1000)): ...`.

    The condition is a bool output, a bool property of an output, a bool parameter, or a comparison of any of them.
    Where it is false they are skipped, and so is what needs their outputs (see `optional` and `one_of`). What a
    condition needs was skipped: they are skipped too.

    Raises:
        BuildError: Used outside a pipeline, or with something that is not known only when it runs.
    """
    builder = _builder("dt.when")
    # mypy sees a bool, because a handle has its artifact's type; while building it is symbolic.
    return builder.block("dt.when", builder.branch(_condition("dt.when", condition)))


def otherwise(condition: bool = True) -> AbstractContextManager[None]:
    """Nodes inside run only if no condition of the `when` above, and of an `otherwise` between, was true.

    With a condition of its own it is an `elif`: `with dt.otherwise(evaluation.auc > 0.8): ...`.

    Raises:
        BuildError: There is no `when` right above it.
    """
    builder = _builder("dt.otherwise")
    if not builder.refused:
        raise BuildError(
            "dt.otherwise has no dt.when right above it",
            where=user_line(),
            fix="write `with dt.when(...):` first, at the same level",
        )
    encoded = None if condition is True else _condition("dt.otherwise", condition)
    return builder.block("dt.otherwise", builder.alternative(encoded))


def map_(fn: Callable[[T], R], over: Sequence[T], *, max_parallel: int | None = None, id: str = "") -> list[R]:  # noqa: A002 - as of components
    """Call a function's components once for each item of a list that is known when the pipeline runs.

    Example: `models = dt.map_(lambda rate: Trainer(examples, fn="model:train", rate=rate), over=rates)`, then
    `Compare(models)`, which takes `list[Model]`. An item is a value: pass it on, or a part of it (`item["rate"]`).

    Args:
        fn: Called once, with what stands for an item; what it returns (an output, or a tuple of outputs) comes back as
            the list of every item's. Items whose node was skipped are left out of it.
        over: A list parameter, a list that a component returned, a list property of an output, or a plain list.
        max_parallel: How many items are worked on at once at most.
        id: The loop's id; `map`, `map2`, … where empty.

    Raises:
        BuildError: `over` is not a list, or `max_parallel` is less than 1.
    """
    builder = _builder("dt.map_")
    where = user_line()
    items: object = list(over) if isinstance(over, range) else over
    if isinstance(items, Handle) and items._collected:
        raise BuildError(
            f"dt.map_ goes over values, not artifacts, as {items!r} of every item are",
            where=where,
            fix="do what follows for each of them in the function that makes it",
        )
    if not isinstance(items, (Scalar, list, tuple)) or (isinstance(items, Scalar) and not _is_list(items.hint)):
        raise BuildError(
            f"dt.map_ goes over a list, not {items!r:.60}",
            where=where,
            fix="give a list parameter, a list that a component returned, or a plain list",
        )
    if isinstance(items, (list, tuple)) and (outputs := [each for each in items if isinstance(each, SymbolicArtifact)]):
        raise BuildError(
            f"dt.map_ goes over values, not {outputs[0]!r:.60}",
            where=where,
            fix="these outputs are all known now: call the function for each of them, in a `for` with options(id=...)",
        )
    most: object = max_parallel
    if most is not None and not (isinstance(most, int) and most >= 1):
        raise BuildError(f"max_parallel is {max_parallel!r}", where=where, fix="give 1 or more, or leave it out")
    with builder.loop(id, encode(items, where), max_parallel) as name:
        item = Expression({"$item": name}, _item_hint(items))
        result = fn(cast(T, item))
    return cast("list[R]", _collected(result))


def unzip(items: list[tuple[T, R]]) -> tuple[list[T], list[R]]:
    """The two lists of what `map_` gives for a function that returns a pair of outputs."""
    # Nothing to do: `map_` gives a tuple of two lists already. A type checker sees a list of pairs, and believes this.
    return cast("tuple[list[T], list[R]]", items)


class FinishedRun:
    """How the run ended, for what runs on exit.

    Attributes:
        run: The run's id.
        state: COMPLETE, FAILED, STOPPED (a gate's veto) or CANCELED.
        failed: The nodes that failed.
        reason: Why the first of them did; empty where none did.
    """

    run: str
    state: str
    failed: list[str]
    reason: str

    def __init__(self) -> None:
        for name, hint in (("run", str), ("state", str), ("failed", list[str]), ("reason", str)):
            setattr(self, name, Expression({"$status": name}, hint))


def on_exit() -> AbstractContextManager[FinishedRun]:
    """Nodes inside run when all others have ended, however they did: `with dt.on_exit() as run: Notify(run.state)`.

    They are never taken from the cache. Of other nodes' outputs they can take `dt.optional(...)` only.

    Raises:
        BuildError: Used inside a branch or a loop.
    """
    builder = _builder("dt.on_exit")
    if builder.conditions or builder.loops_open or builder.exiting:
        raise BuildError(
            "dt.on_exit is used inside a branch or a loop", where=user_line(), fix="put it at the pipeline's own level"
        )
    return builder.block("dt.on_exit", _exiting(builder))


@contextmanager
def _exiting(builder: PipelineBuilder) -> Iterator[FinishedRun]:
    builder.exiting = True
    builder.refused = []
    try:
        yield FinishedRun()
    finally:
        builder.exiting = False
        builder.refused = []


def optional(output: T) -> T | None:
    """An output or scalar whose node may be skipped: then None stands in, and the consumer runs all the same.

    Raises:
        BuildError: It is not an output.
    """
    return cast("T | None", ChoiceHandle((_selectable("dt.optional", output),), optional=True))


def one_of(*outputs: T) -> T:
    """The first of these outputs (or scalars) whose node was not skipped: what follows the branches of a `when`.

    The consumer is skipped where all of them were.

    Raises:
        BuildError: They are not outputs, or fewer than two.
    """
    if len(outputs) < 2:
        raise BuildError("dt.one_of takes two or more outputs", where=user_line(), fix="give one of each branch")
    return cast(T, ChoiceHandle(tuple(_selectable("dt.one_of", output) for output in outputs), optional=False))


def not_(condition: bool) -> bool:
    """A condition that is true where the given one is false."""
    return cast(bool, operation("not", _condition("dt.not_", condition)))


def _builder(name: str) -> PipelineBuilder:
    builder = recorder.get()
    if not isinstance(builder, PipelineBuilder):
        raise BuildError(f"{name} is used outside a pipeline", where=user_line(), fix="move it into a @dt.pipeline")
    return builder


def _condition(name: str, condition: object) -> Json:
    if not isinstance(condition, Scalar):
        raise BuildError(
            f"{name} takes an output's property or another scalar of the run, not {condition!r}",
            where=user_line(),
            fix="write e.g. `with dt.when(evaluation.blessed):`",
        )
    if condition.hint is not bool:
        raise BuildError(
            f"{condition!r} is {spell(condition.hint)}, not bool",
            where=user_line(),
            fix="give one that is true or false, or compare it",
        )
    return operand(condition)


def _selectable(name: str, output: object) -> Handle | Scalar:
    if isinstance(output, tuple) and hasattr(output, "_fields"):
        raise BuildError(f"{name} takes one output", where=user_line(), fix="name it, e.g. `transform.examples`")
    if not isinstance(output, (Handle, Scalar)):
        raise BuildError(f"{name} takes a component's output, not {output!r:.60}", where=user_line(), fix="pass one")
    return output


def _item_hint(over: Scalar | list[object] | tuple[object, ...]) -> Any:
    """The type of a list's items, as far as it is known."""
    if isinstance(over, Scalar):
        return next(iter(typing.get_args(over.hint)), Any)
    hints = {each.hint if isinstance(each, Scalar) else Any if each is None else type(each) for each in over}
    return Any if Any in hints or not hints else Union[tuple(hints)]  # noqa: UP007 - made here


def _is_list(hint: Any) -> bool:
    origin = typing.get_origin(hint) or hint
    return hint is Any or (isinstance(origin, type) and issubclass(origin, Sequence) and origin is not str)


def _collected(result: object) -> object:
    """What a loop's function returned, as the lists of every item's."""
    if isinstance(result, tuple):
        items = [_collected(item) for item in result]
        kind: Any = type(result)  # a NamedTuple's class
        return kind(*items) if hasattr(result, "_fields") else tuple(items)
    if isinstance(result, Handle) and not result._collected:
        return Handle(result._node, result._output, result._type, collected=True)
    if isinstance(result, Property) and not result.collected:
        return Property(result.node, result.output, result.name, list[result.hint], collected=True)  # type: ignore[name-defined]
    if result is None:
        return None
    if isinstance(result, (Handle, Property)):
        raise BuildError(
            f"the function of dt.map_ returns a list, {result!r:.60} of every item of a loop inside: "
            "lists of lists are not gathered",
            where=user_line(),
            fix="give that list to a component in the function, and return what it makes of it",
        )
    raise BuildError(
        f"the function of dt.map_ returns {result!r:.60}",
        where=user_line(),
        fix="return a component's output, or a tuple of outputs",
    )
