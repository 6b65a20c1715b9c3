"""One task of an earlier run again, with today's code on that run's inputs; nothing of it is recorded."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from ...digest import digest_tree
from ...errors import InputError
from ...metadata import Artifact, staging
from ...metadata.payload import explain_full_disk
from ..dsl.component import ParameterSpec
from ..dsl.hints import read_value
from ..dsl.pipeline import PipelineFunction
from ..ir.tasks import Index, Task, parse_task, task_name
from ..project.context import LaunchContext, enter
from ..project.functions import reference
from ..resolvers.answers import Answers
from .attempt import arguments, checked_outputs
from .decisions import decision
from .flow import Flow
from .home import Home
from .observers import NullObserver, Observer
from .readiness import readiness
from .resolve import Resolver
from .runs import Run


@dataclass(frozen=True)
class SpinResult:
    """What a task made this time.

    Attributes:
        run: The run whose inputs it got.
        task: Which one.
        seconds: Wall time of the component's function.
        outputs: What it returned, by key; their folders lie below `folder`.
        fingerprints: Of their `content/`.
        before: Those of the run; without the keys that it does not have.
        folder: Where they are; the next spin of the task empties it.
    """

    run: str
    task: str
    seconds: float
    outputs: Mapping[str, Artifact]
    fingerprints: Mapping[str, str]
    before: Mapping[str, str]
    folder: Path

    def to_json(self) -> dict[str, object]:
        """As `spin --json` prints it."""
        return {
            "run": self.run,
            "node": self.task,
            "seconds": round(self.seconds, 3),
            "outputs": {
                key: {
                    "path": str(artifact.path),
                    "type": type(artifact).__name__,
                    "fingerprint": self.fingerprints[key],
                    "same": self.before.get(key) == self.fingerprints[key],
                    "properties": artifact.properties,
                }
                for key, artifact in self.outputs.items()
            },
        }


def spin(
    home: Home,
    run: Run,
    pipeline: PipelineFunction[..., object],
    name: str,
    *,
    parameters: Mapping[str, object] | None = None,
    observer: Observer | None = None,
    trap: Callable[[], None] | None = None,
    folder: Path | None = None,
) -> SpinResult:
    """Call a node's component, in this process and thread, with what an earlier run gave it.

    Args:
        home: Where the run is.
        run: The run.
        pipeline: As it is now: the node's code and parameters are those of today, its inputs the run's.
        name: The node, or its task for an item of a loop (`Trainer[3]`).
        parameters: The component's, over those of the pipeline; text is read as its type, or names a function.
        observer: Called with progress and notes.
        folder: Where it works, and leaves what it makes; below the root's `work/spin/` where None.
        trap: Called while an exception of the component is handled, before it is raised: for a debugger.

    Raises:
        InputError: The pipeline has no such node, the run not what it needs, or a parameter is of another type.
    """
    events = observer or NullObserver()
    node_id, index = parse_task(name)
    built = pipeline.build()
    node = built[node_id]
    kept = {key: value for key, value in run.parameters.items() if key in pipeline.parameters}
    now = replace(run, pipeline=built, parameters=pipeline.values(kept))
    flow = Flow(home.store, now)
    scope = now.pipeline.scope(node_id)
    _see_item(flow, node_id, index)
    ready = readiness(flow.needs(node.dependencies, index, scope))  # whatever its conditions say: the user asks for it
    if not ready.runs:
        raise InputError(f"{name} has nothing to work on in run {run.id}: {ready.reason}", fix="give another --run")
    resolver = Resolver(home, now)
    resolver.answers = Answers(home.store, run.context, kept=False)  # the run did not ask what only today's code asks
    work = resolver.resolve(Task(node, index))
    known = work.component.parameters
    unknown = set(parameters or {}) - set(known)
    if unknown:
        raise InputError(f"{node.component} has no parameter {min(unknown)!r}", fix=f"it has {', '.join(known)}")
    overrides = {key: _read(known[key], value, Path(run.project)) for key, value in (parameters or {}).items()}
    work = replace(work, parameters={**work.parameters, **overrides})
    if node.asks and decision(home, run, name) is None:
        raise InputError(
            f"nobody has decided {name} of run {run.id} yet", fix=f"`drivetrain approve {run.id} {name}` first"
        )
    folder = folder or home.root / "work" / "spin" / name
    shutil.rmtree(folder, ignore_errors=True)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"{folder}, where {name} is to work, cannot be made: {error.strerror}",
            fix="make room, or name the root, or a copy of it, where you may write: --root",
        ) from None
    context = LaunchContext(
        run=run.id,
        node=name,
        base=home.base,
        executor=run.options.executor,
        executor_options=run.options.executor_options,
        progress=lambda done, total, unit: events.progress(name, done, total, unit),
        note=lambda text: events.note(name, text),
        work=folder / "work",
        decision=lambda: decision(home, run, name),
    )
    begin = time.monotonic()
    with _staged(folder), _environment(flow.environment(node_id, index)):
        leave = enter(context)
        try:
            with explain_full_disk(f"running {name}"):
                result = work.component.fn(**arguments(home, work))
                outputs = checked_outputs(work.component, result, folder)
        except BaseException:
            if trap is not None:
                trap()
            raise
        finally:
            leave()
    seconds = time.monotonic() - begin
    before = flow.outputs(node_id, index)
    return SpinResult(
        run.id,
        name,
        seconds,
        outputs,
        {key: digest_tree(artifact.content).fingerprint for key, artifact in outputs.items()},
        {key: records[0].fingerprint for key, records in before.items() if records},
        folder,
    )


def _see_item(flow: Flow, node: str, index: Index) -> None:
    """See that a task is of an item that the run had."""
    scope = flow.run.pipeline.scope(node)
    counts = [flow.count(loop, index[:depth]) for depth, loop in enumerate(scope[: len(index)])]
    beyond = any(count is not None and not 0 <= at < count for at, count in zip(index, counts, strict=False))
    if len(index) == len(scope) and not beyond:
        return
    what = f"is not one of {node}'s items" if index else "is a node of a loop"
    had = next(
        (f"; the loop {loop} has {count}" for loop, count in zip(scope, counts, strict=False) if count is not None), ""
    )
    raise InputError(
        f"{task_name(node, index)} {what} in run {flow.run.id}{had}",
        fix=f"name e.g. {task_name(node, (0,) * len(scope))}",
    )


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Within the block this process has these variables too."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _read(spec: ParameterSpec, value: object, project: Path) -> object:
    if spec.kind == "value":
        return read_value(spec.name, spec.hint, value)
    return reference(value, project) if spec.kind == "function" and isinstance(value, str) else value


@contextmanager
def _staged(folder: Path) -> Iterator[None]:
    count = 0

    def provide(kind: type[Artifact]) -> Path:
        nonlocal count
        count += 1
        path = folder / f"{kind.__name__}-{count}"
        path.mkdir(parents=True)
        return path

    token = staging.set(provide)
    try:
        yield
    finally:
        staging.reset(token)
