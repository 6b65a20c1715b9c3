"""`kfp_component`: a component of Kubeflow Pipelines, as its `component.yaml` says, run as a container."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...errors import BuildError
from ...metadata import Artifact
from ..dsl.component import Component
from ..project.functions import user_line
from ..project.reads import note_file_read
from . import kfp_yaml, placeholders
from .container import contained
from .declare import DONE, declaring_module
from .kfp_yaml import Port


def kfp_component(
    source: str | Path,
    *,
    name: str | None = None,
    types: Mapping[str, type[Artifact]] | None = None,
    network: bool = False,
    deterministic: bool = True,
) -> Component[..., Any]:
    """A KFP component as a component, run as a container on this machine.

    Inputs of the types String, Integer, Float, Boolean, List and Dict are parameters; of any other type, artifacts. An
    input without a type is text where `inputValue` passes it, and else takes any artifact. Where
    KFP would hand a file, an artifact's content holds it as `data`.

    Args:
        source: The component.yaml: a path, relative to the file that calls this; or its text, with line feeds.
        name: The id of its nodes; the component's own name, as one word, where None.
        types: Which artifact types stand for which KFP types, e.g. `{"Dataset": Examples}`. One that is not named
            gets a type of its own, so that a Dataset is not taken for a Model.
        network: Whether it may use the network.
        deterministic: Whether equal inputs give equal content, so that what it gave before may stand in.

    Raises:
        BuildError: The file does not exist, or what it holds is not supported; names its line.
    """
    body, where = _read(source)
    read = kfp_yaml.parse(body, where)
    inputs, parameters = _inputs(read.inputs, types or {}, where)
    outputs = {port.key: port.hint or _artifact(port.type, types or {}) for port in read.outputs} or {DONE: bool}
    return contained(
        name or _name(read.name),
        read.image,
        {"command": placeholders.encode(read.command), "args": placeholders.encode(read.args)},
        {key: {"words": placeholders.encode([word])} for key, word in read.env.items()},
        network=network,
        inputs=inputs,
        outputs=outputs,
        parameters=parameters,
        doc=read.description,
        deterministic=deterministic,
    )


def _name(kfp_name: str) -> str:
    """A component's name as one word, from KFP's, which may be a sentence."""
    name = re.sub(r"\W+", "", kfp_name.title())
    return name if name[:1].isalpha() else f"Component{name}"


def _read(source: str | Path) -> tuple[str, str]:
    """The text of a component.yaml, and what errors call it: its path, or the user's line."""
    if isinstance(source, str) and "\n" in source:
        return source, f"{user_line()}, its text"
    here = Path(user_line().rpartition(":")[0]).parent
    path = here / source
    note_file_read(declaring_module(), path)
    try:
        return path.read_text("utf-8"), str(path)
    except (OSError, ValueError) as error:
        raise BuildError(f"{source} cannot be read: {error}", where=user_line(), fix="name a component.yaml") from None


def _inputs(
    ports: tuple[Port, ...], types: Mapping[str, type[Artifact]], where: str
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The inputs that are artifacts, and those that are parameters."""
    inputs: dict[str, Any] = {}
    parameters: dict[str, Any] = {}
    for port in ports:
        if port.hint is None:
            kind = _artifact(port.type, types)
            if port.default is not inspect.Parameter.empty:
                raise BuildError(
                    f"the input {port.name!r} is an artifact and has a default",
                    where=f"{where}:{port.line}",
                    fix="give it a type such as String, or make it optional",
                )
            inputs[port.key] = kind | None if port.optional else kind
        elif port.default is not inspect.Parameter.empty:
            parameters[port.key] = port.default
        else:
            parameters[port.key] = port.hint | None if port.optional else port.hint
    return inputs, parameters


_TYPES: dict[str, type[Artifact]] = {}  # by KFP's name: the Dataset of two components must be one type, to fit together


def _artifact(name: str, types: Mapping[str, type[Artifact]]) -> type[Artifact]:
    """The artifact type that stands for a KFP type."""
    if name in types:
        return types[name]
    if name in ("", "Artifact"):
        return Artifact
    if name not in _TYPES:
        _TYPES[name] = type(f"Kfp{name}", (Artifact,), {"__doc__": f"KFP's {name}: its file is `content/data`."})
    return _TYPES[name]
