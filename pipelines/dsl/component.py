"""`@component`: a typed function becomes a pipeline's building block; its annotations are its interface."""

from __future__ import annotations

import inspect
import re
import typing
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from functools import cached_property, update_wrapper
from pathlib import Path
from textwrap import fill
from typing import Any, Generic, Literal, NamedTuple, ParamSpec, Protocol, TypeVar, Unpack, overload

from ...errors import BuildError, suggest
from ...metadata import Artifact, Value, artifact_type
from ..ir.ir import ComponentKind
from ..ir.options import OPTIONS, NodeOptions, OptionArguments
from ..project.files import FileSet
from ..project.functions import FunctionRef, user_line
from .hints import is_artifact, is_value, members
from .symbolic import Symbolic

P = ParamSpec("P")
R = TypeVar("R")
M = TypeVar("M", bound=Callable[..., object])
_AS_IT_IS: Any = ...
"""Stands for an option that is not given. Any: each has a type of its own."""


class Withdrawn(NamedTuple):
    """An effect that somebody has undone on purpose: what was reused does not do it again, until it is asked to.

    Attributes:
        reason: What was undone, as of a sentence.
    """

    reason: str


class Verify(Protocol):
    """Checks an effect outside the root before a cache hit is believed."""

    def __call__(
        self, outputs: Mapping[str, Artifact], parameters: Mapping[str, object], base: Path, /
    ) -> str | Withdrawn | None:
        """None where the effect still stands, else why it is to be done again, or is not although it was undone."""
        ...


class Preflight(Protocol):
    """Refuses, by what is known of a call before its time, what the component would refuse then."""

    def __call__(self, known: Mapping[str, object], coming: Mapping[str, Mapping[str, object]], /) -> None:
        """See whether the call can go well.

        Args:
            known: The parameters and inputs that are known already: while a pipeline is built the values that it names;
                before a component upstream does its work also functions and artifacts.
            coming: What that component says of the inputs that it is about to make (`LaunchContext.preflight`).

        Raises:
            InputError: It cannot.
        """
        ...


class InputSpec(NamedTuple):
    """An input: artifacts of one type; `many` for a list, `optional` where None may stand."""

    name: str
    type: type[Artifact]
    many: bool = False
    optional: bool = False


class ParameterSpec(NamedTuple):
    """A parameter: a JSON value, a user's function, or input files."""

    name: str
    hint: Any  # Any: a type expression
    kind: Literal["value", "function", "files"]
    default: object = inspect.Parameter.empty

    @property
    def required(self) -> bool:
        """Whether a call must give it."""
        return self.default is inspect.Parameter.empty


class Options(NamedTuple):
    """What one call of a component in a pipeline sets beside its parameters.

    Attributes:
        id: The node's id in the pipeline; the component's name where None.
        cache: Whether an earlier execution with the same key may stand in; None where that is not said.
        after: Outputs of nodes that must have ended, though nothing of them is used.
        node: How it is carried out.
    """

    id: str | None = None
    cache: bool | None = None
    after: tuple[object, ...] = ()
    node: NodeOptions = NodeOptions()


class Recorder(Protocol):
    """Records the calls of components while a pipeline is built."""

    def add(self, component: Component[Any, Any], args: Sequence[object], kwargs: Mapping[str, object], /) -> object:
        """Record a call; returns handles of its outputs."""
        ...


recorder: ContextVar[Recorder | None] = ContextVar("drivetrain_recorder", default=None)
"""Who records calls now; nobody outside a pipeline function."""


def _with_declared_options(method: M) -> M:
    """Complete the signature and the help of a method that takes `**options` by the options that are declared."""
    signature = inspect.signature(method)
    listed = [each for each in signature.parameters.values() if each.kind is not each.VAR_KEYWORD]
    for name, annotation in OptionArguments.__annotations__.items():
        hint = getattr(annotation, "__forward_arg__", annotation)  # a string, which TypedDict wraps
        listed.append(inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=_AS_IT_IS, annotation=hint))
    method.__signature__ = signature.replace(parameters=listed)  # type: ignore[attr-defined]  # what `inspect` reads
    defaults = NodeOptions()
    lines = [f"{name}: {each.help} Unless said: {getattr(defaults, name)!r}." for name, each in OPTIONS.items()]
    filled = "\n".join(fill(line, 120, initial_indent=" " * 12, subsequent_indent=" " * 16) for line in lines)
    before, _, rest = (method.__doc__ or "").partition(" " * 12 + "**options:")  # none where Python runs with -OO
    method.__doc__ = f"{before}{filled}\n{rest.partition(chr(10))[2]}" if before else None
    return method


class Component(Generic[P, R]):
    """A typed function that makes artifacts. A plain call runs it; a call while a pipeline is built adds a node."""

    def __init__(
        self,
        fn: Callable[P, R],
        *,
        gates: str | None = None,
        verify: Verify | None = None,
        preflight: Preflight | None = None,
        absent: str | None = None,
        deterministic: bool = True,
        asks: bool = False,
        kind: ComponentKind = "function",
    ) -> None:
        self.fn = fn
        self.name = fn.__name__
        self.gates = gates
        self.verify = verify
        self.preflight = preflight
        self.absent = absent
        self.deterministic = deterministic
        self.asks = asks
        self.kind = kind
        self.options_: Options = Options()
        update_wrapper(self, fn)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run the function, or add a node to the pipeline that is being built."""
        builder = recorder.get()
        if builder is None:
            return self.fn(*args, **kwargs)
        return typing.cast(R, builder.add(self, args, kwargs))

    @_with_declared_options
    def options(
        self,
        *,
        id: str | None = None,  # noqa: A002 - the field's word
        cache: bool = _AS_IT_IS,
        after: Sequence[object] = _AS_IT_IS,
        **options: Unpack[OptionArguments],
    ) -> Component[P, R]:
        """The same component for one use, e.g. `Trainer.options(id="Second", retries=3, timeout=3600)(examples)`.

        What is not given stays as it is: `Patient = Trainer.options(retries=3)`, then `Patient.options(id="Second")`.

        Args:
            id: The node's id; the component's name where None.
            cache: Whether an earlier execution with the same key may stand in. Unless said, it may where the component
                is deterministic.
            after: Outputs of nodes that must have ended first, though nothing of them is used.
            **options: How the node is carried out.

        Raises:
            BuildError: There is no such option, or a value makes no sense.
        """
        for name in options:
            if name not in OPTIONS:
                known = ["id", "cache", "after", *OPTIONS]
                fix = suggest(name, known, "there are")
                raise BuildError(f"there is no option {name!r}", where=user_line(), fix=fix)
        before = self.options_
        if cache is not _AS_IT_IS and not isinstance(cache, bool):
            raise BuildError(f"cache={cache!r:.60} makes no sense", where=user_line(), fix="say True or False")
        if after is not _AS_IT_IS and isinstance(after, (str, Symbolic)):
            raise BuildError(f"after= takes a list, not {after!r}", where=user_line(), fix="write `after=[output]`")
        copy = Component(
            self.fn,
            gates=self.gates,
            verify=self.verify,
            preflight=self.preflight,
            absent=self.absent,
            deterministic=self.deterministic,
            asks=self.asks,
            kind=self.kind,
        )
        copy.options_ = Options(
            id or before.id,
            before.cache if cache is _AS_IT_IS else cache,
            before.after if after is _AS_IT_IS else tuple(after),
            before.node.updated(options),
        )
        return copy

    def __repr__(self) -> str:
        return f"the component {self.name}"

    @property
    def cached(self) -> bool:
        """Whether an earlier execution with the same key may stand in for this use of it."""
        return self.deterministic if self.options_.cache is None else self.options_.cache

    @property
    def where(self) -> str:
        """Where the function stands: "file:line"."""
        return f"{self.fn.__code__.co_filename}:{self.fn.__code__.co_firstlineno}"

    @property
    def ref(self) -> str:
        """`module:name`, as the component is imported."""
        return f"{self.fn.__module__}:{self.fn.__qualname__}"

    @cached_property
    def signature(self) -> inspect.Signature:
        """The component's parameters as Python sees them, read once."""
        return inspect.signature(self.fn)

    @cached_property
    def _hints(self) -> dict[str, Any]:
        try:
            return typing.get_type_hints(self.fn)
        except NameError as error:
            raise BuildError(
                f"{self.name}: the annotation {error.name!r} cannot be resolved",
                where=self.where,
                fix=_import_of(error.name or ""),
            ) from None

    @cached_property
    def inputs(self) -> dict[str, InputSpec]:
        """The artifact inputs, in order."""
        specs = {name: _input(name, self._hint(name)) for name in self.signature.parameters}
        inputs = {name: spec for name, spec in specs.items() if spec is not None}
        if self.gates is not None and self.gates not in inputs:
            raise BuildError(
                f"{self.name} gates {self.gates!r}, which is not an input",
                where=self.where,
                fix=f"name one of {', '.join(inputs)}",
            )
        return inputs

    @cached_property
    def parameters(self) -> dict[str, ParameterSpec]:
        """The other parameters, in order."""
        parameters = {}
        for name, parameter in self.signature.parameters.items():
            if parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL):
                raise BuildError(
                    f"{self.name}: *args and **kwargs have no place in a component",
                    where=self.where,
                    fix="name every parameter",
                )
            if name not in self.inputs:
                hint = self._hint(name)
                parameters[name] = ParameterSpec(name, hint, _kind(hint), parameter.default)
        return parameters

    @cached_property
    def _returned(self) -> dict[str, Any]:
        """The output types by key: of one output, or of a NamedTuple's fields."""
        hint: Any = self._hints.get("return")
        if isinstance(hint, type) and hasattr(hint, "_fields"):
            fields = typing.get_type_hints(hint)
        else:
            fields = {_snake(hint.__name__) if is_artifact(hint) else "value": hint}
        if fields and all(is_artifact(field) or is_value(field) for field in fields.values()):
            return fields
        raise BuildError(
            f"{self.name} returns {getattr(hint, '__name__', hint)}",
            where=self.where,
            fix="annotate the return type with an artifact type, a JSON type, or a NamedTuple of them",
        )

    @cached_property
    def outputs(self) -> dict[str, type[Artifact]]:
        """The artifact types by output key; a JSON value is published as a `Value`."""
        return {key: hint if is_artifact(hint) else Value for key, hint in self._returned.items()}

    @cached_property
    def scalars(self) -> dict[str, Any]:
        """The types of the outputs that are JSON values, by key."""
        return {key: hint for key, hint in self._returned.items() if not is_artifact(hint)}

    @property
    def result_type(self) -> Any:
        """The annotated return type: an artifact type, a JSON type or a NamedTuple class."""
        return self._hints["return"]

    def _hint(self, name: str) -> Any:
        if name not in self._hints:
            raise BuildError(
                f"{self.name}: the parameter {name!r} has no type", where=self.where, fix=f"annotate {name!r}"
            )
        return self._hints[name]


@overload
def component(fn: Callable[P, R], /) -> Component[P, R]: ...
@overload
def component(
    *,
    gates: str | None = None,
    verify: Verify | None = None,
    preflight: Preflight | None = None,
    absent: str | None = None,
    deterministic: bool = True,
    asks: bool = False,
) -> Callable[[Callable[P, R]], Component[P, R]]: ...
def component(
    fn: Callable[P, R] | None = None,
    /,
    *,
    gates: str | None = None,
    verify: Verify | None = None,
    preflight: Preflight | None = None,
    absent: str | None = None,
    deterministic: bool = True,
    asks: bool = False,
) -> Component[P, R] | Callable[[Callable[P, R]], Component[P, R]]:
    """Make a component of a typed function.

    Parameters annotated with an artifact type (`X`, `X | None`, `list[X]`) are inputs; every other one is a JSON
    value, a `Fn` (a user's function by name), `Files` (input files by pattern) or a `Secret`. The return type is the
    output: an artifact, a JSON value (`float`, `list[str]`, …) that other nodes take as a parameter and conditions
    test, or a NamedTuple of them.

    Args:
        fn: The function (when used without parentheses).
        gates: An input that this component may veto: when its output says `passed=False`, nothing else that
            consumes the same artifact runs. Nor does it where the gate failed; a gate that a condition skipped was not
            asked, and holds nothing back.
        verify: For effects outside the root: asked before a cache hit is believed.
        preflight: Tells early what the component would refuse: when the pipeline is built, before any work upstream of
            it, and once a component upstream says what it is about to make.
        absent: What to do where a file that it is to read is not there: the fix that the error names.
        deterministic: False for a component whose equal inputs may give another content: it runs each time, unless
            `.options(cache=True)` says that what it gave before will do.
        asks: Whether it waits for what a person decides (`current().decision()`): `drivetrain approve` lists its nodes,
            and each run asks again.

    Raises:
        BuildError: When used in a pipeline: an annotation is missing or not one of these.
    """
    if fn is not None:
        return Component(fn)
    return lambda function: Component(
        function,
        gates=gates,
        verify=verify,
        preflight=preflight,
        absent=absent,
        deterministic=deterministic,
        asks=asks,
    )


def _input(name: str, hint: Any) -> InputSpec | None:
    options = members(hint)
    optional = type(None) in options
    options = [option for option in options if option is not type(None)]
    if len(options) != 1:
        return None
    many = typing.get_origin(options[0]) in (list, Sequence)
    target = typing.get_args(options[0])[0] if many else options[0]
    return InputSpec(name, target, many, optional) if is_artifact(target) else None


def _kind(hint: Any) -> Literal["value", "function", "files"]:
    types = members(hint)
    if FunctionRef in types:
        return "function"
    return "files" if FileSet in types else "value"


def _import_of(name: str) -> str:
    """The fix for a type that an annotation names and that is not there."""
    module = artifact_type(name).__module__
    if artifact_type(name) is Artifact or not module.startswith(Artifact.__module__.rpartition(".")[0]):
        return "import it at the top of the module, not only for type checking"
    return f"write `from {module.rpartition('.')[0]} import {name}` at the top of the module"


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
