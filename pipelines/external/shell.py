"""`shell_component`: a command on this machine as a component."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from ...errors import BuildError
from ..dsl.component import Component
from ..project.context import current
from ..project.functions import user_line
from ..project.secret import Secret
from . import placeholders
from .declare import Call, Types, declare, text
from .placeholders import Placeholder, PlaceholderValues, Word

_NAMES_OF_KINDS = {"given": "input or parameter", "properties": "output"}


def shell_component(
    name: str,
    command: Sequence[Word],
    *,
    inputs: Types | None = None,
    outputs: Types | None = None,
    parameters: Types | None = None,
    files: Mapping[str, str] | None = None,
    env: Mapping[str, str | Secret | Placeholder] | None = None,
    shell: bool = False,
    gates: str | None = None,
    deterministic: bool = True,
) -> Component[..., Any]:
    """A command as a component.

    It runs in the node's work folder, which outlives attempts, in a process group of its own; what it prints goes into
    the node's log. Assign it to a name at the top of a module of the project.

    Args:
        name: The id of its nodes.
        command: The program and its arguments: text, and what `dt.external.input_path` and the like give. Each is one
            argument whatever it holds.
        inputs: Artifact types by name; `list[X]` and `X | None` too.
        outputs: Artifact types, whose content it must write, and JSON types, which it must write to a file: text as
            it is, anything else as JSON. Without any it has `done`, which is true.
        parameters: JSON types by name, or their defaults.
        files: Files of the project by name, e.g. `{"script": "train.sh"}`: their content is part of the cache key.
        env: More environment variables: text, a `dt.secret`, or what `dt.external.parameter` gives.
        shell: Whether the command is text for `/bin/sh`, joined by spaces. What is filled in is still one argument
            each, never text of the script.
        gates: An input that it may veto, as of `dt.component`: by an output whose property `passed` is false.
        deterministic: Whether equal inputs give equal content, so that what it gave before may stand in.

    Raises:
        BuildError: The command names what is not declared, or a declaration makes no sense.
    """
    words = checked(name, command, env, inputs, outputs, parameters, files)
    spec = {"words": placeholders.encode(words), "env": environment(env), "shell": shell}
    return declare(
        name,
        "command",
        spec,
        _carry_out,
        inputs=inputs,
        outputs=outputs,
        parameters=parameters,
        files=files,
        gates=gates,
        deterministic=deterministic,
    )


def checked(
    name: str,
    command: Sequence[Word],
    env: Mapping[str, object] | None,
    inputs: Types | None,
    outputs: Types | None,
    parameters: Types | None,
    files: Mapping[str, str] | None,
) -> tuple[Word, ...]:
    """The words of a command, once all that they and the environment name is known to be declared.

    Raises:
        BuildError: The command is not a list of words, names what is not declared, holds a secret, or needs an optional
            input that may be missing.
    """
    where = user_line()
    if isinstance(command, (str, Placeholder)) or not command:
        raise BuildError(f"{name}: the command is not a list", where=where, fix='write ["program", "argument"]')
    wrong: list[object] = [word for word in command if not _is_word(word)]
    if wrong:
        raise BuildError(
            f"{name}: {wrong[0]!r:.60} is not text", where=where, fix="write text, or dt.external.parameter(...)"
        )
    known = {
        "input": inputs or {},
        "output": outputs or {},
        "properties": outputs or {},
        "parameter": parameters or {},
        "file": files or {},
        "given": {**(inputs or {}), **(parameters or {})},
    }
    extra = [each for each in (env or {}).values() if isinstance(each, Placeholder)]
    for reference in placeholders.references([*command, *extra]):
        names = known[reference.kind]
        if reference.name not in names:
            what = _NAMES_OF_KINDS.get(reference.kind, reference.kind)
            raise BuildError(
                f"{name}: the command names the {what} {reference.name!r}, which is not declared",
                where=where,
                fix=f"it has {', '.join(names) or 'none'}",
            )
    for reference in placeholders.references(command):
        if _secret((parameters or {}).get(reference.name)) and reference.kind != "given":
            raise BuildError(
                f"{name}: the secret {reference.name!r} is part of the command, which every process can read",
                where=where,
                fix=f"pass it by the environment: env={{'TOKEN': dt.external.parameter({reference.name!r})}}",
            )
    for reference in placeholders.unguarded(command):
        hint = {**(inputs or {}), **(parameters or {})}.get(reference.name)
        if reference.kind in ("input", "parameter") and type(None) in getattr(hint, "__args__", ()):
            raise BuildError(
                f"{name}: {reference.name!r} may be left out, and the command needs it",
                where=where,
                fix=f"write dt.external.if_present({reference.name!r}, [...])",
            )
    return tuple(command)


def environment(env: Mapping[str, str | Secret | Placeholder] | None) -> dict[str, Any]:
    """Environment variables as they stand in the IR: a secret, or the placeholders of a text."""
    return {
        name: value if isinstance(value, Secret) else {"words": placeholders.encode([value])}
        for name, value in (env or {}).items()
    }


def revealed(env: Mapping[str, Any], values: PlaceholderValues) -> dict[str, str]:
    """Environment variables with their values, secrets included."""
    return {
        name: value.reveal()
        if isinstance(value, Secret)
        else "".join(placeholders.fill(placeholders.decode(value["words"]), values))
        for name, value in env.items()
    }


def parameters_of(call: Call) -> dict[str, str | None]:
    """The parameters of a call as text."""
    return {
        name: value.reveal() if isinstance(value, Secret) else text(value) for name, value in call.parameters.items()
    }


def _carry_out(call: Call) -> None:
    from . import commands

    values = PlaceholderValues(
        inputs={
            name: None if artifacts is None else [str(each.content) for each in artifacts]
            for name, artifacts in call.inputs.items()
        },
        outputs={
            **{name: str(artifact.content) for name, artifact in call.outputs.items()},
            **{name: str(path) for name, path in call.values.items()},
        },
        parameters=parameters_of(call),
        files={name: [str(path) for path in paths] for name, paths in call.files.items()},
        properties={name: str(path) for name, path in call.properties.items()},
    )
    words = placeholders.decode(call.spec["words"])
    argv = placeholders.fill(words, values)
    if call.spec["shell"]:
        # What is filled in comes as $1, $2, …: as text of the script, the shell would interpret it.
        script, arguments = placeholders.script(words, values)
        argv = ["/bin/sh", "-c", script, call.name, *arguments]
    env = {**os.environ, **revealed(call.spec["env"], values)}
    commands.run(call.name, argv, argv, env, current().work_dir)


def _secret(hint: object) -> bool:
    return hint is Secret or Secret in getattr(hint, "__args__", ())


def _is_word(value: object) -> bool:
    return isinstance(value, (str, Placeholder))
