"""The builder records the calls of components as nodes, and checks each of them where the user wrote it.

While a pipeline function runs, nothing has a value: components return handles, and `with dt.when(...)` or `dt.map_`
set what holds for the calls inside (`conditions`, `loops_open`, `exiting`, the prefix of ids). A call is complete when
it is made, so almost every mistake is reported at once, at the user's line. The few that need all calls (who waits for
a gate, who made what a query names, cycles) wait for `Draft.finish`.
"""

from __future__ import annotations

import ast
import math
import os
import re
import typing
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from ...errors import BuildError, DrivetrainError, suggest
from ...metadata import artifact_type
from ..ir.expressions import dependencies, items
from ..ir.ir import (
    CANDIDATE,
    Edge,
    Json,
    Loop,
    Node,
    Source,
    UidSource,
)
from ..project import closure as source_code
from ..project.files import FileSet, SqlQuery
from ..project.functions import FunctionRef, reference, user_line
from ..project.secret import Secret
from .component import Component, InputSpec, ParameterSpec
from .draft import Draft
from .handles import (
    ChoiceHandle,
    Expression,
    Handle,
    KnownValue,
    Parameter,
    Property,
    QueryHandle,
    Scalar,
    encode,
    named_kind,
)
from .hints import accepts, fits, spell, takes_query
from .symbolic import Symbolic

T = TypeVar("T")

_ID = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,99}")


@dataclass(frozen=True, eq=False)
class WithBlock(AbstractContextManager[T]):
    """What `dt.when` and its like return: a block that must be opened by `with`.

    A `dt.when(...)` without `with` would be valid Python and leave no trace in the pipeline, so each block stands in
    `unopened` until it is opened, and the builder refuses a pipeline in which one is left.

    Attributes:
        name: The function that the user called.
        inner: What is entered in its place.
        unopened: The blocks that are not opened yet, with the user's line of each.
    """

    name: str
    inner: AbstractContextManager[T]
    unopened: dict[WithBlock[T], str]

    def __enter__(self) -> T:
        self.unopened.pop(self, None)
        return self.inner.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return self.inner.__exit__(kind, error, trace)


class PipelineBuilder:
    """Records the components that a pipeline function calls.

    Attributes:
        project: The pipeline's folder; functions are named relative to it.
        nodes: What was recorded, by id, in the order of the calls.
        loops: The loops, by id.
        conditions: What must hold for a node that is added now: those of all branches around it, the outermost first.
        refused: The conditions of the `when` right above and of each `otherwise` since. An `otherwise` means that none
            of them held, so whatever comes between (a node, a loop, another pipeline) clears them.
        loops_open: The loops around a node that is added now, the outermost first.
        exiting: Whether nodes that are added now run on exit.
        lines: The user's "file:line" that added a node, by its id.
    """

    def __init__(self, project: Path) -> None:
        self.project = project
        self.nodes: dict[str, Node] = {}
        self.loops: dict[str, Loop] = {}
        self.conditions: list[Json] = []
        self.refused: list[Json] = []
        self.loops_open: list[str] = []
        self.exiting = False
        self._prefix: list[str] = []
        self.lines: dict[str, str] = {}
        self._within: dict[str, tuple[str, ...]] = {}
        self._unopened: dict[WithBlock[Any], str] = {}
        self._codes: dict[str, source_code.Code] = {}

    def finish(self) -> tuple[Node, ...]:
        """The nodes in the order they can run, with the control edges of gates.

        Raises:
            BuildError: A block was never opened by `with`; or what `Draft.finish` raises.
        """
        for block, where in self._unopened.items():
            raise BuildError(
                f"{block.name} stands alone, so nothing is inside of it",
                where=where,
                fix=f"write `with {block.name}(...):` and indent what belongs to it",
            )
        return self._recorded.finish()

    @property
    def _recorded(self) -> Draft:
        return Draft(self.nodes, self.loops, self.lines, self._within)

    def block(self, name: str, inner: AbstractContextManager[T]) -> WithBlock[T]:
        """A block that the user must open by `with`, remembered until that happens."""
        block = WithBlock(name, inner, self._unopened)
        self._unopened[block] = user_line()
        return block

    @contextmanager
    def branch(self, *conditions: Json) -> Iterator[None]:
        """Nodes added inside have these conditions too."""
        outer = len(self.conditions)
        self.conditions += conditions
        self.refused = []
        try:
            yield
        finally:
            # Only the last condition is the branch's own, for an `otherwise` to negate. Before it `alternative` passes
            # those of the branches above, negated already.
            del self.conditions[outer:]
            self.refused = [conditions[-1]]

    @contextmanager
    def alternative(self, condition: Json | None) -> Iterator[None]:
        """Nodes added inside run where none of the conditions right above held, and this one, if any, does."""
        before = self.refused
        added = [] if condition is None else [condition]
        with self.branch(*({"$op": ["not", each]} for each in before), *added):
            yield
        # A branch with a condition of its own may have another `otherwise` below it; one without ends the chain.
        self.refused = [*before, *added] if added else []

    @contextmanager
    def loop(self, name: str, over: Json, parallel: int | None) -> Iterator[str]:
        """Nodes added inside are launched for each item; gives the loop's id."""
        where = user_line()
        name = self._prefixed(name or f"map{len(self.loops) + 1 if self.loops else ''}")
        if name in self.loops or not _ID.fullmatch(name):
            raise BuildError(
                f"{name!r} is not a valid id for a loop, or is taken", where=where, fix="give it another id="
            )
        within = self.loops_open[-1] if self.loops_open else ""
        self._checked_uses(name, [over, *self.conditions], where)
        self._check_items(name, over, where)
        self.loops[name] = Loop(name, over, within, parallel, tuple(self.conditions))
        self.loops_open.append(name)
        self.refused = []
        try:
            yield name
        finally:
            self.loops_open.pop()
            self.refused = []

    @contextmanager
    def nested(self, name: str) -> Iterator[None]:
        """Nodes and loops added inside have ids that begin with the name."""
        self._prefix.append(name)
        self.refused = []
        try:
            yield
        finally:
            self._prefix.pop()
            self.refused = []

    def _prefixed(self, name: str) -> str:
        return ".".join([*self._prefix, name])

    def _checked_uses(self, consumer: str, expression: Json, where: str) -> Json:
        """The same expression, once all that it uses is known to exist where it is used."""
        for need in dependencies(expression):
            self._check_use(consumer, need.node, need.collected, where)
        for loop in items(expression):
            if loop not in self.loops_open:
                raise BuildError(
                    f"{consumer} uses an item of {loop} outside of it",
                    where=where,
                    fix="use it in the function that dt.map_ calls",
                )
        return expression

    def _check_use(self, consumer: str, producer: str, collected: bool, where: str) -> None:
        """Check that an output can be used here: there must be one of it, or all of a loop's must be there.

        A node in loops has one output for each item. Inside the same loops, `collected` False means that of the same
        item. From outside, only the list of all items' outputs makes sense, and only right around the innermost of the
        producer's loops, where that list is complete.
        """
        if producer not in self.nodes:
            raise BuildError(f"{producer} belongs to another pipeline", where=where, fix="call its component here")
        scope, here = self._recorded.scope(producer), self.loops_open
        inside = scope == here[: len(scope)]
        if not collected and not inside:
            raise BuildError(
                f"{consumer} uses the output of {producer}, which is made for each item of {scope[-1]}",
                where=where,
                fix="return it from the function that dt.map_ calls, and use what dt.map_ returns",
            )
        if collected and (inside or scope[:-1] != here[: len(scope) - 1]):
            raise BuildError(
                f"{consumer} uses every output of {producer} where there are not all of them yet",
                where=where,
                fix=f"give them to a component right around {scope[-1]}" if scope else "use the output itself",
            )
        if self.nodes[producer].on_exit and not self.exiting:
            raise BuildError(f"{consumer} uses what {producer} makes on exit", where=where, fix="move it inside")

    def add(self, component: Component[Any, Any], args: Sequence[object], kwargs: Mapping[str, object]) -> object:
        """Add a node.

        Returns:
            Handles of its outputs: one, or a NamedTuple of them where the component returns one.

        Raises:
            BuildError: The id is taken or no id, an argument does not fit, or an output is used where it is not there.
        """
        where = user_line()
        options = component.options_
        name = self._prefixed(options.id or component.name)
        self.refused = []
        if not _ID.fullmatch(name):
            raise BuildError(
                f"{name!r} is not a valid node id", where=where, fix="use letters, digits, _ . -, at most 100"
            )
        if name in self.nodes:
            raise BuildError(
                f"there already is a node {name!r} (at {self.lines[name]})",
                where=where,
                fix=f'give this one a name: {component.name}.options(id="Second{component.name}")(...)',
            )
        bound = self._bind(component, args, kwargs, where)
        ref = reference(component.fn, self.project)
        inputs = [(key, self._sources(name, component, key, bound[key], where)) for key in component.inputs]
        self._checked_uses(name, self.conditions, where)
        node = Node(
            id=name,
            component=ref.name if ref.project else component.ref,
            code=self._code(ref).digest if ref.project else None,
            # An optional input that was not given is left out, so that a release that adds one to a component changes
            # no cache key of pipelines that do not use it.
            inputs=tuple((key, sources) for key, sources in inputs if sources or not component.inputs[key].optional),
            parameters=tuple(
                (key, self._parameter(name, spec, bound[key], where)) for key, spec in component.parameters.items()
            ),
            outputs=tuple((key, kind.__name__) for key, kind in component.outputs.items()),
            conditions=tuple(self.conditions),
            gates=component.gates,
            after=tuple(
                dict.fromkeys(each for output in options.after for each in self._upstream_of(name, output, where))
            ),
            # On exit, each end of a run counts; and what one person decided for another run decides nothing here.
            cache=component.cached and not self.exiting and not component.asks,
            asks=component.asks,
            kind=component.kind,
            loop=self.loops_open[-1] if self.loops_open else "",
            on_exit=self.exiting,
            options=replace(options.node, env=tuple((k, encode(v, where)) for k, v in options.node.env)),
        )
        for wanted in node.options.retry_on:
            if ":" in wanted:
                self._function(wanted, where)
        self._check_exit(node, where)
        _preflight(component, bound, where)
        self.nodes[name] = node
        self.lines[name] = where
        self._within[name] = tuple(self._prefix)
        handles: dict[str, Handle | Property] = {
            key: Property(name, key, "value", component.scalars[key])
            if key in component.scalars
            else Handle(name, key, kind)
            for key, kind in component.outputs.items()
        }
        returned = component.result_type
        return returned(**handles) if hasattr(returned, "_fields") else next(iter(handles.values()))

    def _upstream_of(self, node: str, output: object, where: str) -> Iterator[str]:
        """The nodes that must have ended before another one, named by an output, or a tuple of outputs."""
        if isinstance(output, tuple) and output:
            for each in output:
                yield from self._upstream_of(node, each, where)
            return
        if not isinstance(output, (Handle, Property)):
            raise BuildError(f"{node}: after= takes outputs, not {output!r:.60}", where=where, fix="pass an output")
        before, collected = (
            (output._node, output._collected) if isinstance(output, Handle) else (output.node, output.collected)
        )
        self._check_use(node, before, collected, where)
        yield before

    def _check_exit(self, node: Node, where: str) -> None:
        for need in node.dependencies if node.on_exit else ():
            if need.kind in ("need", "choice") and not self.nodes[need.node].on_exit:
                raise BuildError(
                    f"{node.id} runs however the run ends, and {need.node} may not have run",
                    where=where,
                    fix="pass dt.optional(...) of its output",
                )

    def _check_items(self, loop: str, over: Json, where: str) -> None:
        for need in dependencies(over) if self.exiting else ():
            if not self.nodes[need.node].on_exit:
                raise BuildError(
                    f"{loop} goes over what {need.node} makes, however the run ends, and that may not have run",
                    where=where,
                    fix="give dt.optional(...) of it to a component here, and go over what that returns",
                )
        if (kind := named_kind(over)) is not None:
            raise BuildError(
                f"{loop} goes over {kind}, which no item of a list can be",
                where=where,
                fix="these are all known now: call the function for each of them, in a `for` with options(id=...)",
            )

    def _bind(
        self, component: Component[Any, Any], args: Sequence[object], kwargs: Mapping[str, object], where: str
    ) -> dict[str, object]:
        names = list(component.signature.parameters)
        unknown = [key for key in kwargs if key not in names]
        if unknown:
            raise BuildError(
                f"{component.name} has no parameter {unknown[0]!r}", where=where, fix=suggest(unknown[0], names)
            )
        try:
            bound = component.signature.bind(*args, **kwargs)
        except TypeError as error:
            raise BuildError(f"{component.name}: {error}", where=where, fix=_takes(component)) from None
        bound.apply_defaults()
        return dict(bound.arguments)

    def _sources(
        self, node: str, component: Component[Any, Any], key: str, value: object, where: str
    ) -> tuple[Source, ...]:
        spec = component.inputs[key]
        if value is None and spec.optional:
            return ()
        sources: list[Source] = []
        for position, item in enumerate(value if spec.many and isinstance(value, list) else [value], 1):
            if not isinstance(item, ChoiceHandle):
                sources.append(self._source(node, spec, item, component.inputs, where))
                continue
            if item.optional and not (spec.optional or spec.many):
                raise BuildError(
                    f"{node}: the input {spec.name!r} must be given, and {item!r} may be skipped",
                    where=where,
                    fix=f"declare it `{spec.name}: {spec.type.__name__} | None`",
                )
            for choice in item.choices:
                # `choice` numbers the groups of one_of within an input, from 1: 0 says that the edge is in none.
                edge = self._source(node, spec, choice, component.inputs, where)
                if isinstance(edge, Edge):
                    sources.append(replace(edge, optional=item.optional, choice=0 if item.optional else position))
        return tuple(sources)

    def _source(self, node: str, spec: InputSpec, value: object, inputs: Mapping[str, InputSpec], where: str) -> Source:
        wanted = spec.type
        if isinstance(value, Expression):  # an item of a loop, which names artifacts by their uids
            return UidSource(self._checked_uses(node, value.expression, where))
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            fitting = [item for item in value if isinstance(item, Handle) and issubclass(item._type, wanted)]
            if len(fitting) != 1:
                raise BuildError(
                    f"{node}: the input {spec.name!r} takes {wanted.__name__}, and the outputs "
                    f"{', '.join(value._fields)} hold {len(fitting)} of that type",
                    where=where,
                    fix="name the output, e.g. `transform.examples`",
                )
            value = fitting[0]
        if isinstance(value, QueryHandle):
            if value.query.strategy == "latest_blessed" and (spec.name == CANDIDATE or CANDIDATE not in inputs):
                raise BuildError(
                    f"{node}: {value!r} finds a baseline for the candidate, which is the input {CANDIDATE!r}",
                    where=where,
                    fix="a warm start takes dt.resolvers.latest_model('blessed')"
                    if CANDIDATE not in inputs
                    else f"give the candidate to {CANDIDATE!r}, and this to another input",
                )
            if value.query.type != wanted.__name__ and not issubclass(artifact_type(value.query.type), wanted):
                raise BuildError(
                    f"{node}: the input {spec.name!r} takes {wanted.__name__}, not {value.query.type}", where=where
                )
            if value.many and not spec.many:
                raise BuildError(
                    f"{node}: the input {spec.name!r} takes one {wanted.__name__}, and {value!r} finds a list",
                    where=where,
                    fix=f"declare it `{spec.name}: list[{wanted.__name__}]`",
                )
            if value.query.of is not None:
                self._check_use(node, value.query.of.node, value.collected, where)
            self._checked_uses(node, [argument for _, argument in value.query.arguments], where)
            if value.query.strategy == "registered":
                # What is registered is there as a rule: an input that must be given fails where it is not.
                return value.query if spec.optional and not spec.many else value.query.with_argument("required", True)
            if not spec.optional and not spec.many:
                raise BuildError(
                    f"{node}: the input {spec.name!r} must be given, and {value!r} may find nothing",
                    where=where,
                    fix=f"declare it `{spec.name}: {wanted.__name__} | None`",
                )
            return value.query
        if not isinstance(value, Handle):
            raise BuildError(
                f"{node}: the input {spec.name!r} takes {wanted.__name__}, not {value!r:.60}",
                where=where,
                fix=_instead(spec, value),
            )
        if not issubclass(value._type, wanted):
            raise BuildError(
                f"{node}: the input {spec.name!r} takes {wanted.__name__}, not {value._type.__name__} ({value!r})",
                where=where,
                fix=f"pass an output of type {wanted.__name__}",
            )
        if value._collected and not spec.many:
            raise BuildError(
                f"{node}: the input {spec.name!r} takes one {wanted.__name__}, and {value!r} is a list",
                where=where,
                fix=f"declare it `{spec.name}: list[{wanted.__name__}]`",
            )
        self._check_use(node, value._node, value._collected, where)
        return Edge(value._node, value._output)

    def _parameter(self, node: str, spec: ParameterSpec, value: object, where: str) -> Json:
        if isinstance(value, (Handle, QueryHandle)):
            raise BuildError(
                f"{node}: the parameter {spec.name!r} takes a value, not {value!r}",
                where=where,
                fix="pass a property of it, or declare the parameter with an artifact type",
            )
        if isinstance(value, KnownValue):
            value = value.value
        if isinstance(value, ChoiceHandle):
            if not value.optional or accepts(spec.hint, None):
                for choice in value.choices:
                    self._parameter(node, spec, choice, where)
                return encode(value, where)
            raise BuildError(
                f"{node}: the parameter {spec.name!r} takes {spell(spec.hint)}, and {value!r} may be None", where=where
            )
        if isinstance(value, Scalar):
            if not _compatible(spec, value.hint):
                raise BuildError(
                    f"{node}: the parameter {spec.name!r} takes {spell(spec.hint)}, "
                    f"and {value!r} is {spell(value.hint)}",
                    where=where,
                    fix=_annotated(value, spec),
                )
            return self._checked_uses(node, encode(value, where), where)
        if value is None and accepts(spec.hint, None):
            return None
        if spec.kind == "function":
            return self._function(value, where)
        if isinstance(value, SqlQuery) and not takes_query(spec.hint):
            raise BuildError(f"{node}: the parameter {spec.name!r} takes files, not a query", where=where)
        if spec.kind == "files":
            return self._checked_uses(node, encode(_by_pattern(value), where), where)
        if not accepts(spec.hint, value):
            raise BuildError(
                f"{node}: the parameter {spec.name!r} takes {spell(spec.hint)}, not {value!r:.60}",
                where=where,
                fix=_of_type(spec, value),
            )
        return self._checked_uses(node, encode(value, where), where)

    def _code(self, ref: FunctionRef) -> source_code.Code:
        """The code that a function's module reaches; read once for all the nodes that share the module."""
        if ref.module not in self._codes:
            self._codes[ref.module] = source_code.closure(ref)
        return self._codes[ref.module]

    def _function(self, value: object, where: str) -> Json:
        try:
            ref = reference(typing.cast(Any, value), self.project)
            code = self._code(ref)
            if code.files and not source_code.defines(ref):
                name, _, attribute = ref.name.partition(":")
                raise BuildError(
                    f"{name} does not define {attribute!r}",
                    fix=suggest(attribute, source_code.names(ref), "it defines"),
                )
        except BuildError as error:
            raise BuildError(error.message, where=error.where or where, fix=error.fix) from None
        return {"$fn": ref.name, "code": code.digest if ref.project else None}


def _takes(component: Component[Any, Any]) -> str:
    """The fix for arguments that do not fit: the component's signature, keyword-only parameters as `name=...`."""
    parameters = component.signature.parameters.values()
    spelled = [f"{each.name}=..." if each.kind is each.KEYWORD_ONLY else each.name for each in parameters]
    return f"it takes {component.name}({', '.join(spelled)})"


def _instead(spec: InputSpec, value: object) -> str:
    """The fix where the argument for an input is not an output at all."""
    if isinstance(value, Component):
        return f"call it: `{value.name}(...)`"
    if isinstance(value, (list, tuple)):
        return f"pass one output, or declare it `{spec.name}: list[{spec.type.__name__}]`"
    if hasattr(value, "__arrow_c_stream__"):
        return "write the table to a file, which ExampleGen reads, and pass its output"
    return "pass another component's output"


def _by_pattern(value: object) -> object:
    """The value of a parameter of files, with paths as text."""
    if isinstance(value, Mapping):
        return {name: _path(item) for name, item in value.items()}
    return FileSet(value) if isinstance(value := _path(value), str) else value


def _path(value: object) -> object:
    return os.fspath(value) if isinstance(value, os.PathLike) and not isinstance(value, Symbolic) else value


def _annotated(value: Scalar, spec: ParameterSpec) -> str:
    """The fix where a value to come is of another type than the parameter that it is given to."""
    if isinstance(value, Parameter) and value.hint is Any:
        kind = "str" if spec.kind in ("files", "function") else spell(spec.hint)
        return f"say its type where the pipeline takes it: `{value.name}: {kind}`"
    return "give a value of that type"


def _whole_shares(value: object) -> Mapping[object, int] | None:
    """Shares such as 0.8 and 0.2 as whole numbers, 8 and 2; None where the value is something else."""
    if not isinstance(value, Mapping) or not value or not all(isinstance(share, float) for share in value.values()):
        return None
    for scale in (1, 10, 100, 1000):
        scaled = {name: round(share * scale) for name, share in value.items()}
        if all(scaled[name] and math.isclose(scaled[name], value[name] * scale) for name in value):
            return scaled
    return None


def _of_type(spec: ParameterSpec, value: object) -> str:
    """The fix where a value is of another type than the parameter."""
    if isinstance(value, Secret):
        return f"declare it `{spec.name}: dt.Secret`"
    if isinstance(value, tuple) and hasattr(value, "_fields"):  # all outputs of a component
        return f"name one of the outputs: {', '.join(value._fields)}"
    if isinstance(value, str):  # a number in quotation marks
        try:
            literal = ast.literal_eval(value)
        except (SyntaxError, ValueError):
            literal = value
        if literal is not value and accepts(spec.hint, literal):
            return f"write {spec.name}={literal!r}"
    if (scaled := _whole_shares(value)) is not None and accepts(spec.hint, scaled):
        return f"write whole numbers: {spec.name}={scaled!r}"
    return "give a value of that type"


def _compatible(spec: ParameterSpec, hint: Any) -> bool:
    if spec.kind == "files":
        return hint in (str, FileSet)
    if spec.kind == "function":
        return hint is str
    return fits(hint, spec.hint)


def _preflight(component: Component[Any, Any], bound: Mapping[str, object], where: str) -> None:
    """Let a component refuse the values that its call names; what is a function is not loaded yet."""
    if component.preflight is None:
        return
    values = [name for name, spec in component.parameters.items() if spec.kind == "value"]
    known = {name: bound[name] for name in values if not isinstance(bound[name], Symbolic)}
    try:
        component.preflight(known, {})
    except DrivetrainError as error:
        raise BuildError(error.message, where=where, fix=error.fix) from error
