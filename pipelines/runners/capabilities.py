"""What a runner cannot keep of a pipeline is refused before anything runs, in the same words for each runner."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ...addresses import scheme_of
from ...errors import InputError
from ..ir.ir import Pipeline
from ..ir.options import OPTIONS, Need, NodeOptions, Option

CAN: Final[Mapping[str, frozenset[Need]]] = {
    # A thread cannot be ended, and shares its process's environment and the devices that this sees.
    "inline": frozenset({"order", "pauses", "machine"}),
    # Its tasks are on this machine, where one process has all devices already: no replicas.
    "process": frozenset({"order", "pauses", "process", "machine", "devices"}),
    # The order, and what stands beside what, are decided by Beam.
    "beam": frozenset({"pauses", "process"}),
    # All that is ready starts at once, and it waits itself between two attempts, exactly as long as its spec says.
    "kubeflow": frozenset({"process", "machine", "devices", "replicas"}),
}
"""What each runner is able to do for the options of nodes."""


def not_kept(options: NodeOptions, runner: str) -> list[tuple[str, Option]]:
    """The options that were set and that a runner cannot keep, with their names."""
    changed = [(name, OPTIONS[name]) for name in options.changed()]
    return [(name, each) for name, each in changed if each.needs and each.needs not in CAN[runner]]


def check_reach(artifacts: str | None, runner: str) -> None:
    """See that the processes in which a runner's tasks run reach the artifacts of the root.

    Args:
        artifacts: The URL that they lie behind; None for in the root.
        runner: By whom the tasks are run.

    Raises:
        InputError: They lie in the memory of this process.
    """
    if artifacts is None or "process" not in CAN[runner]:
        return
    if not scheme_of(artifacts).shared:
        raise InputError(
            f"the artifacts are in {artifacts}, in the memory of this process, and the {runner} runner runs its tasks "
            "in others",
            fix="take the inline runner, or begin again with another root and artifacts in file:///path",
        )


def check_capabilities(pipeline: Pipeline, runner: str, parallel: int | None = None) -> None:
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
        for name, option in not_kept(node.options, runner):
            raise InputError(
                f"{node.id} has {option.phrase}, which the {runner} runner cannot keep",
                fix="`drivetrain kubeflow submit` keeps them; or leave replicas= out"
                if option.needs == "replicas"
                else f"take another runner, e.g. process, or leave {name}= out",
            )
    asks = any(node.options.cpus or node.options.memory for node in pipeline.nodes)
    if runner == "process" or (runner == "inline" and asks):
        from .leases import machine_for  # late: most pipelines ask for nothing

        machine_for(pipeline)
