"""`container_component`: a program of a container image as a component, by docker or podman."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
import subprocess
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, get_args

from ...errors import BuildError, InputError
from ...metadata import Artifact
from ..dsl.component import Component
from ..project.context import current
from ..project.functions import user_line
from ..project.secret import Secret
from . import placeholders
from .declare import Call, Types, declare
from .placeholders import Placeholder, PlaceholderValues, Word
from .shell import checked, environment, parameters_of, revealed

ENGINE = "DRIVETRAIN_CONTAINERS"
"""The environment variable that names the program that runs containers."""

_PINNED = re.compile(r"@sha256:[0-9a-f]{64}$|^sha256:[0-9a-f]{64}$")
_INSIDE = "/drivetrain"
_PATIENCE = 60.0
"""Seconds that the engine gets to remove a container."""
# What an engine is found and set up by: it keeps its own where a container is to have others.
_ENGINES = re.compile(r"HOME|PATH|TMPDIR|(XDG|DOCKER|CONTAINERS?|BUILDAH|REGISTRY)_\w+|(HTTPS?|NO|ALL|FTP)_PROXY", re.I)


def container_component(
    name: str,
    image: str,
    command: Sequence[Word] = (),
    *,
    args: Sequence[Word] = (),
    inputs: Types | None = None,
    outputs: Types | None = None,
    parameters: Types | None = None,
    files: Mapping[str, str] | None = None,
    env: Mapping[str, str | Secret | Placeholder] | None = None,
    network: bool = False,
    gates: str | None = None,
    deterministic: bool = True,
) -> Component[..., Any]:
    """A program of a container image as a component.

    It runs as the user who runs the pipeline, without capabilities and without a network. Inputs are mounted to be
    read only, outputs to be written. Assign it to a name at the top of a module of the project.

    Args:
        name: The id of its nodes.
        image: The image, best with its digest, `name@sha256:…`: what a tag names may change unseen.
        command: In place of the image's entry point: text, and what `dt.external.input_path` and the like give.
        args: What follows the command, in place of the image's own.
        inputs: As of `shell_component`, so are the others.
        outputs: What it gives.
        parameters: JSON types or defaults.
        files: Files of the project.
        env: Environment variables of the container; it gets no others.
        network: Whether it may use the network.
        gates: An input that it may veto, as of `dt.component`: by an output whose property `passed` is false.
        deterministic: Whether equal inputs give equal content, so that what it gave before may stand in.

    Raises:
        BuildError: The command names what is not declared, or a declaration makes no sense.
    """
    where = user_line()
    if not re.fullmatch(r"[A-Za-z0-9][\w./:@-]*", image):
        raise BuildError(f"{name}: {image!r} is not a valid image", where=where, fix="write registry/name@sha256:…")
    all_words = [*command, *args]
    words = checked(name, all_words, env, inputs, outputs, parameters, files) if all_words else ()
    for variable, value in (env or {}).items():
        if _ENGINES.fullmatch(variable) and _is_secret(value, parameters or {}):
            raise BuildError(
                f"{name}: {variable} is read by what runs the container, and would be seen in its command",
                where=where,
                fix="put the secret into another variable",
            )
    body = {"command": placeholders.encode(words[: len(command)]), "args": placeholders.encode(words[len(command) :])}
    return contained(
        name,
        image,
        body,
        environment(env),
        inputs=inputs,
        outputs=outputs,
        parameters=parameters,
        files=files,
        network=network,
        gates=gates,
        deterministic=deterministic,
    )


def contained(
    name: str, image: str, body: Mapping[str, Any], env: Mapping[str, Any], *, network: bool = False, **declared: Any
) -> Component[..., Any]:
    """The component of a command that was checked already; `declared` is passed on to `declare`."""
    if not _PINNED.search(image):
        file, _, line = user_line().rpartition(":")
        text = f"{name}: the image {image} has no digest, so the cache cannot see when its content changes"
        # Of `python -c` and of a shell there is no file, and so no line.
        warnings.warn_explicit(text, UserWarning, file or "<unknown>", int(line) if line.isdigit() else 0)
    spec = {"image": image, **body, "env": dict(env), "network": network}
    return declare(name, "container", spec, _carry_out, **declared)


@dataclass(frozen=True)
class Engine:
    """The program that runs containers.

    Attributes:
        path: The program.
        podman: Whether it is podman, which maps users by itself.
    """

    path: str
    podman: bool


def engine() -> Engine:
    """The program that `DRIVETRAIN_CONTAINERS` names, or the first of docker and podman that answers.

    Raises:
        InputError: None answers; says of each why.
    """
    return _engine(os.environ.get(ENGINE, ""), os.environ.get("PATH", ""))


@cache
def _engine(named: str, path: str) -> Engine:
    refusals = []
    for name in (named,) if named else ("docker", "podman"):
        program = shutil.which(name, path=path)
        if program is None:
            refusals.append(f"{name} is not installed")
            continue
        try:
            answer = subprocess.run(  # noqa: S603 - found above
                [program, "version"], capture_output=True, text=True, timeout=30, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            refusals.append(f"{name} does not answer: {error}")
            continue
        if answer.returncode == 0:
            return Engine(program, "podman" in answer.stdout.lower() or "podman" in Path(program).name)
        refusals.append(f"{name} does not answer: {(answer.stderr.strip() or 'no reason given').splitlines()[-1]}")
    raise InputError(
        f"nothing here runs containers: {'; '.join(refusals)}", fix=f"install docker or podman, or name one in {ENGINE}"
    )


@dataclass
class _Mounts:
    """Folders of this machine inside the container."""

    arguments: list[str] = field(default_factory=list)

    def add(self, source: Path, target: str, *, write: bool = False) -> str:
        """Mount a folder or file; gives its path inside."""
        if any(sign in str(source.resolve()) for sign in ',"\n'):
            raise InputError(f"{source} has a comma, a quote or a line feed in its name", fix="use another --root")
        read = "" if write else ",readonly"
        self.arguments += ["--mount", f"type=bind,source={source.resolve()},target={target}{read}"]
        return target


def _carry_out(call: Call) -> None:
    from . import commands

    runtime = engine()
    mounts = _Mounts()
    values = _values(call, mounts)
    work = mounts.add(current().work_dir, f"{_INSIDE}/work", write=True)
    env = {"HOME": work, **revealed(call.spec["env"], values)}
    engines = {key for key in env if _ENGINES.fullmatch(key)}
    command = placeholders.fill(placeholders.decode(call.spec["command"]), values)
    args = placeholders.fill(placeholders.decode(call.spec["args"]), values)
    name = f"drivetrain-{secrets.token_hex(8)}"
    argv = [
        *(runtime.path, "run", "--rm", "--name", name, "--workdir", work),
        *(() if call.spec["network"] else ("--network", "none")),
        *("--cap-drop", "ALL", "--security-opt", "no-new-privileges"),
        *(("--userns", "keep-id") if runtime.podman and os.geteuid() else ()),
        *("--user", f"{os.geteuid()}:{os.getegid()}"),
        *mounts.arguments,
        # By name: a value would be seen in the list of processes. But for those that the engine reads itself.
        *(each for key in env for each in ("--env", f"{key}={env[key]}" if key in engines else key)),
        *(("--entrypoint", command[0]) if command else ()),
        call.spec["image"],
        *(*command[1:], *args),
    ]

    def remove() -> None:
        for verb in (("stop", "-t", "3"), ("rm", "-f")):
            with contextlib.suppress(OSError, subprocess.TimeoutExpired):  # why it is removed must not be lost
                subprocess.run([runtime.path, *verb, name], capture_output=True, timeout=_PATIENCE, check=False)  # noqa: S603

    shown = [call.spec["image"], *command, *args]
    # What the engine leaves running to clean up after a container is not the command's.
    environ = {**os.environ, **{key: value for key, value in env.items() if key not in engines}}
    commands.run(call.name, shown, argv, environ, call.scratch, on_stop=remove, marked=False)


def _is_secret(value: str | Secret | Placeholder, parameters: Types) -> bool:
    """Whether a variable's value is a secret, or is joined with one."""
    if isinstance(value, (str, Secret)):
        return isinstance(value, Secret)
    hints = [parameters.get(reference.name) for reference in placeholders.references([value])]
    return any(hint is Secret or Secret in get_args(hint) for hint in hints)


def _values(call: Call, mounts: _Mounts) -> PlaceholderValues:
    """The arguments that placeholders stand for: paths inside the container, where everything is mounted here."""
    inputs: dict[str, list[str] | None] = {}
    data: dict[str, list[str] | None] = {}
    for name, artifacts in call.inputs.items():
        inputs[name] = data[name] = None
        if artifacts is not None:
            inputs[name] = [_mounted(mounts, name, number, each) for number, each in enumerate(artifacts)]
            data[name] = [
                f"{path}/data" if (each.content / "data").exists() else path
                for path, each in zip(inputs[name] or (), artifacts, strict=True)
            ]
    outputs = {
        name: mounts.add(artifact.content, f"{_INSIDE}/outputs/{name}", write=True)
        for name, artifact in call.outputs.items()
    }
    inside = mounts.add(call.scratch / "outputs", f"{_INSIDE}/values", write=True)
    parameters = parameters_of(call)
    texts: dict[str, str | None] = {}
    folder = call.scratch / "texts"
    folder.mkdir()
    for reference in placeholders.references(placeholders.decode([*call.spec["command"], *call.spec["args"]])):
        text = parameters[reference.name] if reference.kind == "text" else None
        if reference.kind == "text":
            texts[reference.name] = None if text is None else f"{_INSIDE}/texts/{reference.name}"
        if text is not None:
            (folder / reference.name).write_text(text, "utf-8")
    mounts.add(folder, f"{_INSIDE}/texts")
    return PlaceholderValues(
        inputs=inputs,
        outputs={**outputs, **{name: f"{inside}/{path.name}" for name, path in call.values.items()}},
        parameters=parameters,
        files={
            name: [
                mounts.add(path, f"{_INSIDE}/files/{name}/{number}-{path.name}") for number, path in enumerate(paths)
            ]
            for name, paths in call.files.items()
        },
        properties={name: f"{inside}/{path.name}" for name, path in call.properties.items()},
        texts=texts,
        data=data,
    )


def _mounted(mounts: _Mounts, name: str, number: int, artifact: Artifact) -> str:
    return mounts.add(artifact.content, f"{_INSIDE}/inputs/{name}/{number}")
