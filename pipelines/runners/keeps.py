"""What a runner cannot keep of a pipeline: told before anything runs, in the same words whichever runner it is."""

from __future__ import annotations

from collections.abc import Iterator

from ...errors import InputError
from ..ir.ir import Node, Pipeline
from ..ir.options import NodeOptions

_WORDS = {
    "timeout": "a timeout",
    "priority": "a priority",
    "cpus": "cores of its own",
    "memory": "memory of its own",
    "accelerators": "devices of its own",
    "replicas": "several processes at its work",
    "env": "environment variables of its own",
}
_CANNOT = {
    # A thread cannot be ended, and shares its process's environment and what that has of the machine.
    "inline": ("timeout", "env", "cpus", "memory", "accelerators", "replicas"),
    # Its tasks are on this machine, where one process has all devices already.
    "process": ("replicas",),
    # The order, and what stands beside what, are decided by Beam.
    "beam": ("priority", "cpus", "memory", "accelerators", "replicas"),
}


def refuse_what_is_not_kept(pipeline: Pipeline, runner: str, parallel: int | None = None) -> None:
    """See that a runner keeps all that a pipeline's nodes ask for.

    Args:
        pipeline: What is to run.
        runner: By whom.
        parallel: How many tasks at once at most.

    Raises:
        InputError: It does not, or this machine has less than a node asks for; names the first such node.
    """
    if runner == "beam" and parallel is not None:
        raise InputError(
            "the run may have so many tasks at once, which the beam runner cannot keep",
            fix="leave out --parallel, and give Beam's own options instead",
        )
    for node in pipeline.nodes:
        for name in _asked(node, _CANNOT.get(runner, ())):
            raise InputError(
                f"{node.id} has {_WORDS[name]}, which the {runner} runner cannot keep",
                fix="`drivetrain kubeflow submit` keeps them; or leave replicas= out"
                if name == "replicas"
                else f"take another runner, e.g. process, or leave {name}= out",
            )
    if runner == "process":
        from .leases import machine_for

        machine_for(pipeline)


def _asked(node: Node, names: tuple[str, ...]) -> Iterator[str]:
    default = NodeOptions()
    return (name for name in names if getattr(node.options, name) != getattr(default, name))
