"""From a declaration to a component whose work is done by something other than a Python function.

`declare` makes the signature that the DSL reads, and an `ExternalFunction` that stands in for the function: called, it
prepares files and folders, has a `carry_out` (a command, a container, a notebook) do the work, and reads what it wrote.
"""

from __future__ import annotations

import inspect
import json
import keyword
import sys
import tempfile
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any, TypeAlias

from ...digest import canonical_json
from ...errors import BuildError, DrivetrainError, InputError
from ...metadata import Artifact
from ..dsl.component import Component
from ..dsl.hints import accepts, is_artifact, spell
from ..ir.ir import ComponentKind
from ..project.context import current
from ..project.files import Files, FileSet, resolve_files
from ..project.functions import user_line

Types: TypeAlias = Mapping[str, Any]
"""Types by name. Any: type expressions; of parameters, values too, which are their defaults."""

_HERE = __name__.rpartition(".external.")[0]
DONE = "done"
"""The output of a component that declares none."""


@dataclass(frozen=True)
class Call:
    """One call of an external function.

    Attributes:
        name: The component's name.
        spec: What it is to do, as it stands in the IR.
        inputs: The artifacts by name; a list where it is one, empty where an optional one is not given.
        parameters: The values by name.
        files: The paths of its files by name.
        outputs: The artifacts to fill, by name.
        values: And the files for the JSON values, by name.
        properties: The files for properties of the artifacts to fill, by name.
        scratch: A folder for this call alone.
        many: The inputs that are lists.
    """

    name: str
    spec: Mapping[str, Any]
    inputs: Mapping[str, list[Artifact] | None]
    parameters: Mapping[str, object]
    files: Mapping[str, tuple[Path, ...]]
    outputs: Mapping[str, Artifact]
    values: Mapping[str, Path]
    properties: Mapping[str, Path]
    scratch: Path
    many: frozenset[str]


class ExternalFunction:
    """Stands in for a component's function, with the attributes of one that the DSL and the launcher read.

    Other processes find a component by the name of the variable that it was assigned to, which is not known yet when it
    is declared. So `__qualname__` is looked up in the module each time; it does not exist before the assignment.
    """

    def __init__(
        self,
        name: str,
        kind: str,
        signature: inspect.Signature,
        files: frozenset[str],
        carry_out: Callable[[Call], None],
        frame: FrameType,
    ) -> None:
        self.__name__ = name
        self.__module__ = str(frame.f_globals.get("__name__", "__main__"))
        self.__signature__ = signature
        self.__annotations__ = {each.name: each.annotation for each in signature.parameters.values()}
        self.__annotations__["return"] = signature.return_annotation
        # As of a function: where it stands.
        self.__code__ = SimpleNamespace(co_filename=frame.f_code.co_filename, co_firstlineno=frame.f_lineno)
        self._spec_name = kind
        self._files = files
        self._carry_out = carry_out

    def __getattr__(self, name: str) -> str:
        if name == "__qualname__":
            for variable, value in vars(sys.modules.get(self.__module__, SimpleNamespace())).items():
                if isinstance(value, Component) and value.fn is self:
                    return variable
        raise AttributeError(name)

    def __repr__(self) -> str:
        return f"{self.__name__} ({self.__code__.co_filename}:{self.__code__.co_firstlineno})"

    def __call__(self, *args: object, **kwargs: object) -> object:
        """Carry out what was declared.

        Returns:
            The outputs, as the NamedTuple of the signature.

        Raises:
            DrivetrainError: It failed.
            InputError: An output was not written, or is of another type.
        """
        bound = self.__signature__.bind(*args, **kwargs)
        bound.apply_defaults()
        arguments = dict(bound.arguments)
        spec = arguments.pop(self._spec_name)
        files = {name: self._paths(arguments.pop(name)) for name in self._files}
        returned = typing.get_type_hints(self.__signature__.return_annotation)
        inputs = {name: _artifacts(arguments.pop(name)) for name in list(arguments) if _takes_artifacts(self, name)}
        outputs = {key: kind.new() for key, kind in returned.items() if is_artifact(kind)}
        with tempfile.TemporaryDirectory(dir=current().work_dir, prefix="call-") as scratch:
            folder = Path(scratch)
            values = {key: folder / "outputs" / key for key in returned if key not in outputs}
            properties = {key: folder / "outputs" / f"{key}.properties" for key in outputs}
            (folder / "outputs").mkdir()
            many = frozenset(name for name in inputs if _is_list(self.__annotations__[name]))
            self._carry_out(
                Call(self.__name__, spec, inputs, arguments, files, outputs, values, properties, folder, many)
            )
            read = {key: self._value(key, path, returned[key]) for key, path in values.items() if key != DONE}
            for key, artifact in outputs.items():
                self._complete(key, artifact, properties[key])
        if DONE in values:
            read[DONE] = True
        return self.__signature__.return_annotation(**outputs, **read)

    def _paths(self, value: Files) -> tuple[Path, ...]:
        """The paths of files. Outside a pipeline they may still be a pattern, looked up beside the declaring file."""
        folders = (Path(self.__code__.co_filename).parent, current().base)
        return tuple(file.path for file in resolve_files(value, folders).files)

    def _value(self, key: str, path: Path, hint: Any) -> object:
        """A value that was written: JSON; where the type is str, the text as it is, without its last line feed."""
        if not path.is_file():
            raise InputError(
                f"{self.__name__} did not write its output {key!r}", fix=f"write {spell(hint)} to the file it is given"
            )
        try:
            text = path.read_text("utf-8").removesuffix("\n")
        except UnicodeDecodeError:
            raise InputError(
                f"{self.__name__} wrote bytes that are not UTF-8 text as {key!r}",
                fix="write text, or declare an artifact type and write files",
            ) from None
        if hint is str:
            return text
        try:
            # Python's spelling of these two is what many programs print.
            value = json.loads({"True": "true", "False": "false"}.get(text, text))
        except ValueError:
            value = text
        if accepts(hint, value):
            return value
        if not accepts(hint, text):
            raise InputError(f"{self.__name__} wrote {text!r:.60} as {key!r}, not {spell(hint)}", fix="write that type")
        return text

    def _complete(self, key: str, artifact: Artifact, properties: Path) -> None:
        if not any(artifact.content.iterdir()):
            raise InputError(
                f"{self.__name__} wrote nothing to its output {key!r}", fix="write files to the folder it is given"
            )
        if not properties.is_file():
            return
        try:
            written = json.loads(properties.read_bytes())
        except ValueError as error:
            raise InputError(f"the properties of {key!r} are not JSON: {error}", fix="write an object") from None
        if not isinstance(written, dict):
            raise InputError(f"the properties of {key!r} are {written!r:.60}", fix="write an object")
        for name, value in written.items():
            if name not in artifact.declared():  # `path`, `uid` and the like are not for it to set
                known = ", ".join(artifact.declared()) or "none"
                raise InputError(
                    f"{type(artifact).__name__} has no property {name!r}", fix=f"declare it; there are: {known}"
                )
            setattr(artifact, name, value)


class CommandError(DrivetrainError):
    """A command, a container or a notebook failed. Unlike an `InputError`, it is worth another attempt."""


def declare(
    name: str,
    kind: ComponentKind,
    spec: Mapping[str, Any],
    carry_out: Callable[[Call], None],
    *,
    inputs: Types | None = None,
    outputs: Types | None = None,
    parameters: Types | None = None,
    files: Mapping[str, str] | None = None,
    doc: str = "",
    gates: str | None = None,
    deterministic: bool = True,
) -> Component[..., Any]:
    """A component whose call is carried out by a function.

    What it is to do, `spec`, is one more parameter, which has the name of the kind: so it is part of the cache key.

    Raises:
        BuildError: A name or a type that makes no sense.
    """
    frame = _frame()
    if not _is_name(name):
        raise BuildError(
            f"{name!r} is not a valid name of a component",
            where=user_line(),
            fix="use letters, digits and _, a letter first",
        )
    returns = dict(outputs or {DONE: bool})
    _check_names([*(inputs or {}), *(parameters or {}), *(files or {}), kind], list(returns))
    fields = [
        inspect.Parameter(
            key,
            inspect.Parameter.POSITIONAL_OR_KEYWORD,
            annotation=hint,
            default=None if _optional(hint) else inspect.Parameter.empty,
        )
        for key, hint in sorted((inputs or {}).items(), key=lambda item: _optional(item[1]))
    ]
    for key, type_or_default in (parameters or {}).items():
        hint, default = _parameter(key, type_or_default)
        fields.append(inspect.Parameter(key, inspect.Parameter.KEYWORD_ONLY, annotation=hint, default=default))
    for key, pattern in (files or {}).items():
        fields.append(
            inspect.Parameter(key, inspect.Parameter.KEYWORD_ONLY, annotation=Files, default=FileSet(pattern))
        )
    fields.append(inspect.Parameter(kind, inspect.Parameter.KEYWORD_ONLY, annotation=Mapping, default=spec))
    # mypy wants the fields spelled out; they are known only now.
    returned = typing.NamedTuple(f"{name}Outputs", list(returns.items()))  # type: ignore[misc]
    signature = inspect.Signature(fields, return_annotation=returned)
    function = ExternalFunction(name, kind, signature, frozenset(files or ()), carry_out, frame)
    function.__doc__ = doc or None
    component: Component[..., Any] = Component(function, gates=gates, deterministic=deterministic, kind=kind)
    for key, each in component.inputs.items():
        if key not in (inputs or {}):
            raise BuildError(f"{key!r} is {spell(each.type)}, no value", where=user_line(), fix="name it in inputs=")
    if values := [key for key in inputs or {} if key not in component.inputs]:
        raise BuildError(
            f"the input {values[0]!r} is {spell((inputs or {})[values[0]])}",
            where=user_line(),
            fix="give an artifact type, a list of one, or `| None`; a value goes in parameters=",
        )
    _ = component.outputs  # raises where the type of an output makes no sense: now, at the user's line
    return component


def text(value: object) -> str | None:
    """A parameter's value as a command gets it: text as it is, anything else as JSON; None of None."""
    return value if isinstance(value, str) or value is None else canonical_json(value).decode()


def declaring_module() -> str:
    """The name of the module that declares a component now."""
    return str(_frame().f_globals.get("__name__", ""))


def _frame() -> FrameType:
    """The frame that declares a component: the nearest one outside of the orchestrator."""
    frame = inspect.currentframe()
    while frame is not None and str(frame.f_globals.get("__name__", "")).startswith(f"{_HERE}."):
        frame = frame.f_back
    if frame is None:
        raise BuildError("nobody declares this component", fix="assign it to a name at the top of a module")
    return frame


def _check_names(taken: list[str], outputs: list[str]) -> None:
    for key in (*taken, *outputs):
        if not _is_name(key):
            raise BuildError(
                f"{key!r} is not a valid name", where=user_line(), fix="use letters, digits and _, a letter first"
            )
    for names in (taken, outputs):
        if twice := [key for key in names if names.count(key) > 1]:
            raise BuildError(f"the name {twice[0]!r} is taken twice", where=user_line(), fix="give it another name")


def _is_name(name: str) -> bool:
    return name.isidentifier() and not keyword.iskeyword(name) and not name.startswith("_")


def _parameter(name: str, type_or_default: Any) -> tuple[Any, Any]:
    """A parameter's type and its default, from the one of them that the user gave."""
    if isinstance(type_or_default, type) or typing.get_origin(type_or_default) is not None or type_or_default is Any:
        return type_or_default, None if _optional(type_or_default) else inspect.Parameter.empty
    if isinstance(type_or_default, (bool, int, float, str, list, dict)):
        return type(type_or_default), type_or_default
    raise BuildError(
        f"the parameter {name!r} is {type_or_default!r:.60}",
        where=user_line(),
        fix="give a JSON type, or a default that is JSON",
    )


def _optional(hint: Any) -> bool:
    return type(None) in typing.get_args(hint)


def _takes_artifacts(function: ExternalFunction, name: str) -> bool:
    hint = function.__annotations__[name]
    return any(is_artifact(each) for each in (hint, *_flat(hint)))


def _flat(hint: Any) -> list[Any]:
    return [inner for each in typing.get_args(hint) for inner in (each, *_flat(each))]


def _is_list(hint: Any) -> bool:
    return any(typing.get_origin(each) in (list, Sequence) for each in (hint, *_flat(hint)))


def _artifacts(value: Any) -> list[Artifact] | None:
    return None if value is None else value if isinstance(value, list) else [value]
