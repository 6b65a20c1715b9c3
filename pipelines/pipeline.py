"""`@pipeline` and `when`: a function that is run once with symbolic values, while the builder records its calls."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..errors import BuildError, InputError
from .builder import Builder, suggest
from .component import accepts, recorder, spell
from .functions import blamed, package_name, user_line
from .handles import Parameter, Property
from .ir import Pipeline


@contextmanager
def when(condition: bool) -> Iterator[None]:
    """Nodes inside run only if a published property is true: `with dt.when(evaluation.blessed): ...`.

    Raises:
        BuildError: Used outside a pipeline, or with something other than an output's bool property.
    """
    builder = recorder.get()
    # mypy sees a bool, because a handle has its artifact's type; while building it is a Property.
    given: object = condition
    if not isinstance(builder, Builder):
        raise BuildError("dt.when is used outside a pipeline", where=user_line(), fix="move it into a @dt.pipeline")
    if not isinstance(given, Property):
        raise BuildError(
            f"dt.when takes an output's property, not {given!r}",
            where=user_line(),
            fix="write e.g. `with dt.when(evaluation.blessed):`",
        )
    if given.hint is not bool:
        raise BuildError(
            f"{given!r} is {spell(given.hint)}, not bool", where=user_line(), fix="give one that is true or false"
        )
    builder.conditions.append(given.condition)
    try:
        yield
    finally:
        builder.conditions.pop()


class PipelineFunction:
    """A pipeline as its author wrote it; `build` gives the compiled form."""

    def __init__(self, fn: Callable[..., None]) -> None:
        self.fn = fn
        self.name = fn.__name__
        self.__doc__ = fn.__doc__

    @property
    def project(self) -> Path:
        """The folder the pipeline lies in."""
        return Path(self.fn.__code__.co_filename).resolve().parent

    @property
    def parameters(self) -> dict[str, inspect.Parameter]:
        """The pipeline's parameters by name, with types as annotations."""
        hints = typing.get_type_hints(self.fn)
        signature = inspect.signature(self.fn)
        return {name: p.replace(annotation=hints.get(name, Any)) for name, p in signature.parameters.items()}

    def __call__(self, *args: object, **kwargs: object) -> typing.NoReturn:
        """A pipeline is not called; it is run."""
        raise BuildError(
            f"the pipeline {self.name} was called", where=user_line(), fix="use `drivetrain run`, or `.build()`"
        )

    def build(self) -> Pipeline:
        """The compiled form.

        Raises:
            BuildError: Whatever is wrong with the pipeline, naming the user's own line.
        """
        builder = Builder(self.project)
        token = recorder.set(builder)
        try:
            with blamed(self.project):
                self.fn(**{name: Parameter(name, p.annotation) for name, p in self.parameters.items()})
        finally:
            recorder.reset(token)
        parameters = []
        for name, parameter in self.parameters.items():
            default = None if parameter.default is parameter.empty else parameter.default
            if default is not None and not accepts(parameter.annotation, default):
                raise BuildError(f"the default of {name!r} is no {spell(parameter.annotation)}", where=self._where)
            parameters.append(
                (
                    name,
                    spell(parameter.annotation),
                    {"$required": True}
                    if parameter.default is parameter.empty
                    else builder.encode(default, self._where),
                )
            )
        if not builder.nodes:
            raise BuildError(f"the pipeline {self.name} has no nodes", where=self._where, fix="call a component in it")
        return Pipeline(self.name, tuple(parameters), builder.finish())

    def values(self, given: Mapping[str, object]) -> dict[str, object]:
        """The parameters of a run: what is given over the defaults. Text is read as the parameter's type.

        Raises:
            InputError: An unknown or missing parameter, or a value of another type.
        """
        found: dict[str, object] = {}
        for name in given:
            if name not in self.parameters:
                raise InputError(
                    f"the pipeline {self.name} has no parameter {name!r}", fix=suggest(name, list(self.parameters))
                )
        for name, parameter in self.parameters.items():
            if name in given:
                found[name] = _read(name, parameter.annotation, given[name])
            elif parameter.default is parameter.empty:
                raise InputError(f"the parameter {name!r} has no value", fix=f"give --param {name}=...")
            else:
                found[name] = parameter.default
        return found

    @property
    def _where(self) -> str:
        return f"{self.fn.__code__.co_filename}:{self.fn.__code__.co_firstlineno}"


def pipeline(fn: Callable[..., None]) -> PipelineFunction:
    """Make a pipeline of a function that calls components. Its parameters are the run's."""
    return PipelineFunction(fn)


def load_pipeline(folder: Path) -> PipelineFunction:
    """The pipeline of a project's `pipeline.py`.

    Raises:
        InputError: The folder has no pipeline.py, or that one no single pipeline.
    """
    from .functions import import_project_module

    folder = folder.resolve()
    if not (folder / "pipeline.py").is_file():
        raise InputError(f"{folder} holds no pipeline.py", fix="name the folder of a pipeline, e.g. examples/flights")
    with blamed(folder):
        module = import_project_module(folder, f"{package_name(folder)}.pipeline")
    found = {v.name: v for v in vars(module).values() if isinstance(v, PipelineFunction)}
    if len(found) != 1:
        names = ", ".join(found) or "none"
        raise InputError(
            f"{folder / 'pipeline.py'} defines {names}", fix="keep exactly one function under @dt.pipeline"
        )
    return next(iter(found.values()))


def _read(name: str, hint: Any, value: object) -> object:
    """A given value; text from a command line is read as JSON where the type is not text."""
    if isinstance(value, str) and not accepts(hint, value):
        import json

        try:
            value = json.loads(value)
        except ValueError:
            value = {"true": True, "false": False, "none": None}.get(str(value).lower(), value)
    if not accepts(hint, value):
        raise InputError(f"the parameter {name!r} takes {spell(hint)}, not {value!r}", fix="give a value of that type")
    return value
