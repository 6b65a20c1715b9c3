"""Before a task does long work: whether those that take what it is about to make could use it."""

from __future__ import annotations

from collections.abc import Mapping

from ...errors import DrivetrainError, InputError
from ..dsl.component import Component
from ..ir.ir import Edge, Node
from ..ir.tasks import Task
from ..project.functions import FunctionRef
from .flow import shared_depth
from .home import Home, Run
from .resolve import Resolver


def foresee(home: Home, run: Run, task: Task, output: str, facts: Mapping[str, object]) -> None:
    """Let every node that takes an output refuse what is known of it; see `component(foresee=…)`.

    Args:
        home: Where the run lies.
        run: The run.
        task: The task that is about to make the output.
        output: Its key.
        facts: What is known of it, as the component says.

    Raises:
        InputError: Of the first that refuses, with its name.
    """
    for node in run.pipeline.nodes:
        coming = {name: facts for name, sources in node.inputs if Edge(task.node.id, output) in sources}
        if not coming or (run.options.only and node.id not in run.options.only):
            continue
        component = FunctionRef(run.project if node.code else None, node.component).load()
        if isinstance(component, Component) and component.foresee is not None:
            try:
                component.foresee(_known(home, run, task, node, component), coming)
            except DrivetrainError as error:
                # Without a line of its own none is better than that of the training, which is not to blame.
                raise InputError(f"{node.id}: {error.message}", where=error.where or "", fix=error.fix) from error


def _known(home: Home, run: Run, task: Task, node: Node, component: Component[..., object]) -> dict[str, object]:
    """The parameters and inputs of a node that are known already, as a task upstream of it sees them."""
    resolver, scope = Resolver(home, run), run.pipeline.scope(node.id)
    index = task.index[: shared_depth(run.pipeline.scope(task.node.id), scope)]
    known: dict[str, object] = {}
    for name, value in node.parameters:
        try:
            known[name] = resolver.parameter(component, name, value, scope, index)
        except (DrivetrainError, LookupError, ValueError):
            continue  # an item of a loop that is not opened yet, what another node makes, a file: told in its time
    for name, sources in node.inputs:
        spec = component.inputs[name]
        if not spec.many and len(sources) == 1 and isinstance(sources[0], Edge):
            for record in resolver.flow.artifacts_along(sources[0], index, scope)[:1]:
                known[name] = spec.type.from_record(record, home.payloads.local(record.uri, record.fingerprint))
    return known
