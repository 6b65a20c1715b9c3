"""`@pipeline`: a function that is run once with symbolic values, while the builder records its calls."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, overload

from ...errors import BuildError, DrivetrainError, InputError, suggest
from ...redaction import CREDENTIALS, holds_credentials
from ..ir.dag import dag
from ..ir.ir import Pipeline
from ..project.functions import errors_at_user_line, import_project_module, package_name, user_line
from .builder import PipelineBuilder
from .component import recorder
from .draft import check_names
from .handles import KnownValue, Parameter, encode
from .hints import accepts, is_writable, read_value, spell
from .symbolic import Symbolic

if TYPE_CHECKING:
    from ..triggers.schedule import Schedule
    from ..triggers.trigger import Trigger

P = ParamSpec("P")
R = TypeVar("R")


class PipelineFunction(Generic[P, R]):
    """A pipeline as its author wrote it; `build` compiles it. Called in another one, it becomes part of that.

    Attributes:
        lines: Once it was built: node -> the user's "file:line" that called it; "" -> that of the pipeline.
        schedule: When it runs by itself; None where it does not.
    """

    def __init__(self, fn: Callable[P, R], id: str = "", schedule: Schedule | None = None) -> None:  # noqa: A002 - as of components
        self.fn = fn
        self.schedule = schedule
        self.lines: Mapping[str, str] = {}
        self.name = fn.__name__
        self._id = id or fn.__name__
        self.__doc__ = fn.__doc__

    def options(self, *, id: str) -> PipelineFunction[P, R]:  # noqa: A002 - as of components
        """The same pipeline for one use inside another one: its nodes' ids begin with this one and a dot."""
        return PipelineFunction(self.fn, id)

    @property
    def project(self) -> Path:
        """The folder the pipeline lies in."""
        return Path(self.fn.__code__.co_filename).resolve().parent

    @cached_property
    def parameters(self) -> dict[str, inspect.Parameter]:
        """The pipeline's parameters by name, with types as annotations."""
        hints = typing.get_type_hints(self.fn)
        signature = inspect.signature(self.fn)
        return {name: p.replace(annotation=hints.get(name, Any)) for name, p in signature.parameters.items()}

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Add the pipeline's nodes to the one that is being built; gives what it returns.

        Raises:
            BuildError: No pipeline is being built, or the arguments do not fit.
        """
        builder = recorder.get()
        where = user_line()
        if not isinstance(builder, PipelineBuilder):
            raise BuildError(
                f"the pipeline {self.name} was called", where=where, fix="use `drivetrain run`, or `.build()`"
            )
        if not self.project.is_relative_to(builder.project):
            raise BuildError(
                f"the pipeline {self.name} is in {self.project}, not in this project",
                where=where,
                fix=f"move it below {builder.project}: functions are named relative to one folder",
            )
        if builder.exiting:
            raise BuildError("a pipeline is called in dt.on_exit", where=where, fix="call components there")
        try:
            bound = inspect.signature(self.fn).bind(*args, **kwargs)
        except TypeError as error:
            raise BuildError(
                f"{self.name}: {error}", where=where, fix=f"it takes {', '.join(self.parameters) or 'nothing'}"
            ) from None
        bound.apply_defaults()
        arguments = {name: self._as_parameter(name, value, where) for name, value in bound.arguments.items()}
        with builder.nested(self._id):
            return self.fn(**arguments)  # type: ignore[arg-type, call-arg]

    def _as_parameter(self, name: str, value: object, where: str) -> object:
        """An argument as the function sees it: symbolic, as its parameter is where the pipeline is run by itself."""
        hint = self.parameters[name].annotation
        if isinstance(value, Symbolic) or not accepts(hint, value):
            if isinstance(value, Symbolic) or hint is Any or not _is_json(value):
                return value
            raise BuildError(f"{self.name}: the parameter {name!r} takes {spell(hint)}, not {value!r:.60}", where=where)
        return KnownValue(encode(value, where), hint, value) if _is_json(value) else value

    def build(self) -> Pipeline:
        """Compile the pipeline: call the function once with symbolic parameters, and check what it recorded.

        Raises:
            BuildError: Whatever is wrong with the pipeline, naming the user's own line.
            InputError: Its schedule gives a parameter no value, or one that it does not take.
        """
        builder = PipelineBuilder(self.project)
        token = recorder.set(builder)
        try:
            with errors_at_user_line(self.project):
                self.fn(**{name: Parameter(name, p.annotation) for name, p in self.parameters.items()})  # type: ignore[arg-type, call-arg]
        finally:
            recorder.reset(token)
        parameters = []
        for name, parameter in self.parameters.items():
            if not is_writable(parameter.annotation):
                raise BuildError(
                    f"the parameter {name!r} of the pipeline is {spell(parameter.annotation)}, which is not JSON",
                    where=self._where,
                    fix="take text or a number: files by their pattern, a secret by its name where it is used",
                )
            default = None if parameter.default is parameter.empty else parameter.default
            if default is not None and not accepts(parameter.annotation, default):
                raise BuildError(
                    f"the default of {name!r} is not of type {spell(parameter.annotation)}", where=self._where
                )
            parameters.append(
                (
                    name,
                    spell(parameter.annotation),
                    {"$required": True} if parameter.default is parameter.empty else encode(default, self._where),
                )
            )
        if not builder.nodes:
            raise BuildError(f"the pipeline {self.name} has no nodes", where=self._where, fix="call a component in it")
        self.lines = {"": self._where, **builder.lines}
        nodes = builder.finish()
        check_names(self.name, nodes, self.lines)
        if self.schedule is not None:
            self.values(self.schedule.parameters)
            if self.schedule.trigger.follows(self.name):
                raise BuildError(
                    f"{self.schedule.trigger} starts {self.name} after each run of {self.name}: it would never rest",
                    where=self._where,
                    fix="name another pipeline, or say how often: .cooldown('1h')",
                )
        schedule = None if self.schedule is None else self.schedule.to_json()
        return Pipeline(self.name, tuple(parameters), nodes, tuple(builder.loops.values()), schedule)

    def values(self, arguments: Mapping[str, object]) -> dict[str, object]:
        """The parameters of a run: the arguments, and defaults for the others. Text is read as the parameter's type.

        Raises:
            InputError: An unknown or missing parameter, a value of another type, or a URL that holds credentials.
        """
        values: dict[str, object] = {}
        for name in arguments:
            if name not in self.parameters:
                raise InputError(
                    f"the pipeline {self.name} has no parameter {name!r}", fix=suggest(name, list(self.parameters))
                )
        for name, parameter in self.parameters.items():
            if name in arguments:
                values[name] = read_value(name, parameter.annotation, arguments[name])
                if holds_credentials(str(arguments[name])):
                    raise InputError(
                        f"the parameter {name!r} holds a password or a token, which would be stored with the run",
                        fix=CREDENTIALS,
                    )
            elif parameter.default is parameter.empty:
                raise InputError(f"the parameter {name!r} has no value", fix=f"give --param {name}=...")
            else:
                values[name] = parameter.default
        return values

    def _repr_html_(self) -> str:
        """The compiled pipeline, drawn as SVG for a notebook."""
        from ...report.dag import drawing

        return drawing(dag(self.build())).markup

    @property
    def _where(self) -> str:
        return f"{self.fn.__code__.co_filename}:{self.fn.__code__.co_firstlineno}"


def _is_json(value: object) -> bool:
    return value is None or isinstance(value, (bool, int, float, str, list, tuple, Mapping))


@overload
def pipeline(fn: Callable[P, R], /) -> PipelineFunction[P, R]: ...
@overload
def pipeline(*, schedule: Schedule | Trigger | None = None) -> Callable[[Callable[P, R]], PipelineFunction[P, R]]: ...
def pipeline(
    fn: Callable[P, R] | None = None, /, *, schedule: Schedule | Trigger | None = None
) -> PipelineFunction[P, R] | Callable[[Callable[P, R]], PipelineFunction[P, R]]:
    """Make a pipeline of a function that calls components, with or without parentheses. Its parameters are the run's.

    Called in another pipeline of the project, it is part of that one, and returns outputs to it.

    Args:
        fn: The function.
        schedule: When it runs by itself, once `drivetrain schedule register` has told the store: a trigger, or a
            `dt.triggers.Schedule`.
    """
    whole = None if schedule is None else _as_schedule(schedule)

    def decorate(function: Callable[P, R]) -> PipelineFunction[P, R]:
        return PipelineFunction(function, schedule=whole)

    return decorate if fn is None else decorate(fn)


def _as_schedule(schedule: Schedule | Trigger) -> Schedule:
    from ..triggers.schedule import Schedule  # few pipelines have one

    return schedule if isinstance(schedule, Schedule) else Schedule(schedule)


def _pipelines_in(folder: Path, name: str) -> str:
    """The fix for a folder that is not there: those beside it."""
    there = sorted(path.parent.name for path in folder.glob("*/pipeline.py"))
    return suggest(name, there, f"in {folder} are") if there else "name the folder that holds pipeline.py"


def load_pipeline(folder: str | Path, name: str | None = None) -> PipelineFunction[..., object]:
    """A pipeline of a project's `pipeline.py`.

    Args:
        folder: The project's.
        name: Which of several; where None, the one that has the folder's name: the others are parts of it.

    Raises:
        InputError: The folder has no pipeline.py, or that one no pipeline of that name, or several to choose from.
    """
    functions = load_pipelines(folder)
    file = Path(folder).resolve() / "pipeline.py"
    if name is None and len(functions) > 1 and package_name(file.parent) in functions:
        name = package_name(file.parent)
    if name is None and len(functions) == 1:
        (name,) = functions
    if name in functions:
        return functions[name]
    if name is not None:
        raise InputError(f"{file} defines no pipeline {name!r:.60}", fix=suggest(name, list(functions), "it defines"))
    raise InputError(
        f"{file} defines {', '.join(functions) or 'no pipeline'}",
        fix=f"say which: --pipeline {next(iter(functions))}"
        if functions
        else "write @dt.pipeline above the function that calls the components",
    )


def load_pipelines(folder: str | Path) -> dict[str, PipelineFunction[..., object]]:
    """All pipelines of a project's `pipeline.py`, by name.

    Raises:
        InputError: The folder has no pipeline.py.
    """
    folder = Path(folder).resolve()
    if not (folder / "pipeline.py").is_file():
        if folder.is_file():
            raise InputError(f"{folder} is a file", fix=f"name its folder, {folder.parent}")
        if not folder.exists():
            raise InputError(f"there is no folder {folder}", fix=_pipelines_in(folder.parent, folder.name))
        raise InputError(f"{folder} holds no pipeline.py", fix="name the folder of a pipeline, e.g. examples/flights")
    with errors_at_user_line(folder):
        module = import_project_module(folder, f"{package_name(folder)}.pipeline")
    return {value.name: value for value in vars(module).values() if isinstance(value, PipelineFunction)}


def load_compiled(folder: str | Path, digest: str) -> PipelineFunction[..., object]:
    """The pipeline of a project that was compiled to this digest; of one with a single pipeline that, in any version.

    Raises:
        InputError: See `load_pipeline`.
    """
    functions = load_pipelines(folder)
    for function in functions.values() if len(functions) > 1 else ():
        with suppress(DrivetrainError):  # another one, which may need what is not here
            if function.build().digest == digest:
                return function
    return load_pipeline(folder)
