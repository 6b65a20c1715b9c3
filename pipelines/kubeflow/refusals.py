"""What Kubeflow cannot do of a pipeline: refused when it is compiled, at the user's own line, with a fix."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...errors import InputError, suggest
from ..ir.ir import Node, Pipeline
from ..launcher.node_secrets import secrets_of
from ..runners.capabilities import not_kept
from .manifests import ITEMS, RUN, STATUS
from .settings import ClusterSettings

_TYPES = {
    "int": "NUMBER_INTEGER",
    "float": "NUMBER_DOUBLE",
    "str": "STRING",
    "bool": "BOOLEAN",
    "list": "LIST",
    "tuple": "LIST",
    "Sequence": "LIST",
    "dict": "STRUCT",
    "Mapping": "STRUCT",
}
OURS = (RUN, STATUS, ITEMS)
"""Inputs that tasks have beside a pipeline's parameters."""
_SECRETS = "/run/secrets"


def parameter_type(hint: str) -> tuple[str, bool]:
    """A parameter's type in KFP, "" where it has none; and whether it may be None."""
    members = [each.strip() for each in hint.split("|")] if "[" not in hint.partition("|")[0] or "|" in hint else [hint]
    if hint.startswith("Optional[") and hint.endswith("]"):
        members = [hint[len("Optional[") : -1], "None"]
    if hint.count("[") != hint.count("]") or any(each.count("[") != each.count("]") for each in members):
        members = [hint]  # a | within brackets
    optional = "None" in members
    kinds = {_TYPES.get(each.partition("[")[0], "") for each in members if each != "None"}
    return (kinds.pop() if len(kinds) == 1 else ""), optional


def plain(value: Any) -> Any:  # Any: JSON
    """A default of the compiled form as JSON of its own: maps are lists of pairs there."""
    if isinstance(value, dict) and value.keys() == {"$map"}:
        return {key: plain(item) for key, item in value["$map"]}
    return [plain(item) for item in value] if isinstance(value, (list, tuple)) else value


def refuse(pipeline: Pipeline, settings: ClusterSettings, lines: Mapping[str, str]) -> None:
    """Check that Kubeflow can do all that a pipeline asks for.

    Args:
        pipeline: Compiled.
        settings: Of its cluster.
        lines: Node -> the user's "file:line" that called it; "" -> that of the pipeline.

    Raises:
        InputError: It cannot; names the first thing.
    """
    if not pipeline.nodes:
        raise InputError(f"the pipeline {pipeline.name} has nothing to do", fix="there is nothing to submit")
    for name, hint, default in pipeline.parameters:
        _refuse_parameter(name, hint, default, lines.get(""))
    for name in settings.nodes:
        if name not in pipeline.ids:
            raise InputError(
                f"the pipeline {pipeline.name} has no node {name!r}",
                fix=suggest(name, list(pipeline.ids)),
                where=settings.where(f"nodes.{name}"),
            )
    for node in pipeline.nodes:
        _refuse_options(node, lines.get(node.id))
        if node.kind == "container":
            raise InputError(
                f"{node.id} is a container component, which a pod cannot start: it has no Docker",
                fix="take dt.shell_component, and put the command into the pipeline's image",
                where=lines.get(node.id),
            )
        _refuse_secrets(node, settings, lines.get(node.id))


def _refuse_parameter(name: str, hint: str, default: Any, where: str | None) -> None:  # Any: JSON
    if name in OURS:
        raise InputError(
            f"the parameter {name!r} has the name of one that drivetrain gives to every task",
            fix="give it another name",
            where=where,
        )
    kind, _ = parameter_type(hint)
    if not kind or (isinstance(default, dict) and not default.keys() <= {"$required", "$map"}):
        raise InputError(
            f"the parameter {name!r} is {hint}, for which KFP has no type",
            fix="annotate it with int, float, str, bool, list[...] or dict[...], or one of them | None",
            where=where,
        )


def _refuse_options(node: Node, where: str | None) -> None:
    options = node.options
    for name, option in not_kept(options, "kubeflow"):
        why = "all that is ready starts at once" if option.needs == "order" else "Argo waits as the spec says"
        raise InputError(
            f"{node.id} has {option.phrase}, which the kubeflow runner cannot keep: {why}",
            fix=f"leave {name}= out",
            where=where,
        )
    if options.retries and options.backoff_factor != int(options.backoff_factor):
        raise InputError(
            f"{node.id} has the back-off factor {options.backoff_factor}, and Kubeflow takes whole ones only",
            fix="write backoff_factor=2, say",
            where=where,
        )
    waits = [options.backoff * options.backoff_factor**number for number in range(options.retries)]
    if any(wait > options.backoff_max for wait in waits):
        raise InputError(
            f"{node.id} would wait {waits[-1]:g} s before its last retry, and Kubeflow cannot cut that to backoff_max",
            fix=f"take fewer retries, a smaller backoff or backoff_factor, or backoff_max={waits[-1]:g}",
            where=where,
        )


def _refuse_secrets(node: Node, settings: ClusterSettings, where: str | None) -> None:
    pod = settings.pod(node.id)
    named, connections = secrets_of(node)
    if any(folder == _SECRETS for folder, _ in (*pod.secret_volumes, *pod.pvcs)):
        named = frozenset()
    variables = {name for part in (pod.env, pod.secrets, pod.configmaps) for name, _ in part}
    file_name = settings.file.name if settings.file else "kubeflow.yaml"
    for name in sorted(named - {name for name, _ in pod.secrets}):
        raise InputError(
            f"{node.id} needs the secret {name}, which {file_name} does not give to its pods",
            fix=f"add defaults: {{secrets: {{{name}: {{secret: NAME, key: KEY}}}}}}, or mount one at {_SECRETS}",
            where=where,
        )
    for name in sorted(connections - variables - {name for name, _ in node.options.env}):
        raise InputError(
            f"{node.id} asks a database whose URL is in the variable {name}, "
            f"which {file_name} does not give to its pods",
            fix=f"add defaults: {{secrets: {{{name}: {{secret: NAME, key: KEY}}}}}}",
            where=where,
        )
