"""Before a task does long work: whether those that take what it is about to make could use it."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from ...errors import DrivetrainError, InputError
from ...user_code import as_mistake
from ..dsl.component import Component
from ..ir.ir import Edge, Node, Pipeline
from ..ir.tasks import Task
from ..project.files import FileSet, NoFileError, resolve_files
from ..project.functions import FunctionRef
from .flow import shared_depth
from .home import Home
from .resolve import Resolver
from .results import PreflightError
from .runs import Run


def preflight(home: Home, run: Run, task: Task, output: str, facts: Mapping[str, object]) -> None:
    """Let every node that takes an output refuse what is known of it; see `component(preflight=…)`.

    Args:
        home: Where the run lies.
        run: The run.
        task: The task that is about to make the output.
        output: Its key.
        facts: What is known of it, as the component says.

    Raises:
        PreflightError: Of the first that refuses, with its name.
    """
    for node in run.pipeline.nodes:
        coming = {name: facts for name, sources in node.inputs if Edge(task.node.id, output) in sources}
        if coming:
            _look(home, run, task, node, _component(run, node), coming)


def preflight_downstream(home: Home, run: Run, task: Task) -> None:
    """Let every node after a task that is about to begin refuse what is known already: functions, constants, inputs.

    What needs a package that is not installed here is left to the node, which may run elsewhere.

    Raises:
        PreflightError: As `preflight`.
    """
    after = _made_anew(run.pipeline, task.node) - {task.node.id}
    for node in run.pipeline.nodes:
        if node.id in after:
            try:
                component = _component(run, node)
            except Exception:  # noqa: S112 - its code is being edited, say: the node loads it anew, and says so
                continue
            with suppress(ModuleNotFoundError):
                _look(home, run, task, node, component, {})


def _made_anew(pipeline: Pipeline, node: Node) -> set[str]:
    """A node that is about to begin, and all that come after it: what they made in this run before is of no account."""
    nodes = {node.id}
    for each in pipeline.nodes:  # which are in topological order
        if not nodes.isdisjoint(pipeline.upstream(each.id)):
            nodes.add(each.id)
    return nodes


def _component(run: Run, node: Node) -> object:
    return FunctionRef(run.project if node.code else None, node.component).load()


def _look(
    home: Home, run: Run, task: Task, node: Node, component: object, coming: Mapping[str, Mapping[str, object]]
) -> None:
    """Let a node refuse what is known of it while an earlier task runs; raises as `preflight`."""
    if run.options.only and node.id not in run.options.only:
        return
    if isinstance(component, Component) and component.preflight is not None:
        try:
            component.preflight(_known(home, run, task, node, component), coming)
        except ModuleNotFoundError:
            raise
        except Exception as error:  # the user's module may raise anything
            if (mistake := as_mistake(error)) is None:
                raise
            # Without a line of its own none is better than that of the training, which is not to blame.
            message, where = f"{node.id}: {mistake.message}", mistake.where or ""
            raise PreflightError(message, where=where, fix=mistake.fix, node=node.id) from error


def preflight_pipeline(pipeline: Pipeline, project: Path | None, lines: Mapping[str, str]) -> list[str]:
    """Let the nodes of a pipeline refuse what they name of the project: functions, constants and files.

    Args:
        pipeline: Compiled.
        project: Its folder.
        lines: Node -> the user's "file:line" that called it.

    Returns:
        What could not be looked at here, since a package is not installed.

    Raises:
        DrivetrainError: Of the first that refuses, or whose code fails while it is loaded.
    """
    notes = []
    for node in pipeline.nodes:
        component = FunctionRef(project if node.code else None, node.component).load()
        named = [(name, value) for name, value in node.parameters if isinstance(value, dict)]
        if not named or not isinstance(component, Component):
            continue
        try:
            if component.absent is not None and project is not None:
                _find_files(component, project, [value["$files"] for _, value in named if "$files" in value])
            functions = {
                name: FunctionRef(project if value["code"] else None, value["$fn"])
                for name, value in named
                if "$fn" in value
            }
            if functions and component.preflight is not None:
                component.preflight(functions, {})
        except ModuleNotFoundError as error:
            notes.append(f"{node.id} is not looked at beforehand: {error.name} is not installed here")
        except Exception as error:  # the user's module may raise anything
            if (mistake := as_mistake(error)) is None:
                raise
            where = mistake.where or lines.get(node.id)
            raise InputError(f"{node.id}: {mistake.message}", where=where, fix=mistake.fix) from error
    return notes


def _find_files(component: Component[..., object], project: Path, patterns: list[object]) -> None:
    """See that the files are there that a component reads out of the project. What runs make comes later."""
    for pattern in patterns:
        if isinstance(pattern, str) and "://" not in pattern:
            try:
                resolve_files(FileSet(pattern), (project,))
            except NoFileError as error:
                raise InputError(error.message, fix=error.likely_fix or component.absent) from None


def _known(home: Home, run: Run, task: Task, node: Node, component: Component[..., object]) -> dict[str, object]:
    """The parameters and inputs of a node that are known already, as a task upstream of it sees them."""
    resolver, scope = Resolver(home, run), run.pipeline.scope(node.id)
    index = task.index[: shared_depth(run.pipeline.scope(task.node.id), scope)]
    known: dict[str, object] = {}
    for name, value in node.parameters:
        try:
            known[name] = resolver.parameter(component, name, value, scope, index)
        except (DrivetrainError, LookupError, ValueError):
            continue  # an item of a loop that is not opened, what another node makes, a file: known only later
    anew = _made_anew(run.pipeline, task.node)
    for name, sources in node.inputs:
        spec = component.inputs[name]
        if not spec.many and len(sources) == 1 and isinstance(sources[0], Edge) and sources[0].node not in anew:
            for record in resolver.flow.artifacts_along(sources[0], index, scope)[:1]:
                if home.is_usable(record):  # else it is made again, as what `gc` took since the run was interrupted
                    known[name] = spec.type.from_record(record, home.payloads.local(record.uri, record.fingerprint))
    return known
