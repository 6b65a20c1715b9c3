"""The beam runner: the DAG is itself a Beam pipeline whose elements are tasks, each launched by the entrypoint.

A failed task is a state, not an exception, so that independent branches go on. A loop's items become elements when
they are known. A runner's retry of an element finds what the first attempt published, and is fenced by the claim.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from ...beam_job import elsewhere, job_options, run_job
from ...errors import DrivetrainError, InputError
from ...metadata.postgres import holds_password
from ..launcher.home import Home
from ..launcher.launcher import Launcher
from ..launcher.results import NodeResult
from ..launcher.runs import open_run
from ..launcher.states import EndState, RunState
from .children import Supervisor
from .pool import TaskWorker
from .signals import wait
from .steps import LaunchStep, StepShare, steps

import apache_beam as beam  # isort: skip - beam_job has imported it, quietly, or said that it is not installed

# Elements carry names only. Where driver and worker share a process, the worker finds here the launcher that the
# driver made, with its observer and its cancel event.
_WORKERS: dict[str, TaskWorker] = {}
_STOPPING = "stopping"
"""The property of the run's record by which workers in other processes learn that the run was stopped."""
_WORDLESS = "its process ended before it could say how"


@dataclass(frozen=True)
class RunAddress:
    """What an element carries so that a worker, in whatever process, can open the run.

    Attributes:
        root: The root folder.
        store: Where the metadata lies, if not there.
        run: The run's id.
        resuming: Whether what ended well in it stays.
    """

    root: str
    store: str | None
    run: str
    resuming: bool

    @property
    def begun(self) -> Path:
        """The file that a worker makes when it begins."""
        return Path(self.root, "work", f"{self.run}.begun")

    @contextmanager
    def worker(self) -> Iterator[TaskWorker]:
        """The worker of this process, for the time of the block."""
        with suppress(OSError):
            self.begun.parent.mkdir(exist_ok=True)
            self.begun.touch()
        if self.run in _WORKERS:
            yield _WORKERS[self.run]
            return
        home = Home(Path(self.root), store=self.store)
        try:
            run = open_run(home, self.run)
            launcher = Launcher(home, run, resuming=self.resuming)
            if run.state is not RunState.RUNNING or run.context.properties.get(_STOPPING):
                launcher.cancel.set()
            with TaskWorker(Supervisor(launcher, threading.Event())) as worker:
                yield worker
        finally:
            home.close()


def refuse_options(flags: Sequence[str], home: Home) -> None:
    """See that a run can be carried out with these of Beam's options.

    Raises:
        InputError: A runner that does other than it says, or one on other machines: they cannot share a SQLite file,
            and are sent no password.
    """
    away = elsewhere(job_options(flags))
    if away and (home.url or "sqlite://").partition("://")[0] in ("sqlite", home.url):
        raise InputError(
            f"the run's metadata is a SQLite file, {home.url or home.root / 'metadata.db'}, which {away} cannot share: "
            "its locks hold on one machine",
            fix="walk the pipeline here and send its data passes there: --runner process --executor beam",
        )
    url = home.url or ""
    if away and url.startswith("postgres") and holds_password(url):
        raise InputError(
            f"the store's URL holds a password, which the job would carry to {away}",
            fix="leave it out of the URL, and give it here and to the workers by PGPASSWORD or a password file",
        )


def run_beam(launcher: Launcher, nodes: Iterable[str]) -> dict[str, NodeResult]:
    """Launch the nodes on a Beam runner (the in-process FnApiRunner unless the runner's options name another).

    The first Ctrl-C cancels what is at work, and waits for it to say so; the second kills it.
    """
    run, todo = launcher.run, list(nodes)
    options = job_options(run.options.runner_options)
    if run.context.properties.get(_STOPPING):  # before it was resumed
        launcher.home.store.update_context(run.context, {_STOPPING: False})
    keeping = _keeping(launcher, todo)
    address = RunAddress(str(launcher.home.root), launcher.home.url, run.id, keeping.resuming)
    hurry, over = threading.Event(), threading.Event()
    errors: list[BaseException] = []

    def walk() -> None:
        with TaskWorker(Supervisor(keeping, hurry)) as worker:
            _WORKERS[run.id] = worker
            begun = address.begun
            try:
                run_job(partial(add_steps, steps=steps(run.pipeline, todo), address=address), options, begun)
            finally:
                begun.unlink(missing_ok=True)

    def walk_and_report() -> None:
        try:
            walk()
        except BaseException as error:
            errors.append(error)
        finally:
            _WORKERS.pop(run.id, None)
            over.set()

    def stop_workers() -> None:
        with suppress(DrivetrainError):  # a store on a full disk: workers elsewhere go on
            launcher.home.store.update_context(run.context, {_STOPPING: True})

    # Beam wraps what is raised inside it, so it walks in a thread, and Ctrl-C reaches the main one, which only waits.
    threading.Thread(target=walk_and_report, name="drivetrain-beam", daemon=True).start()
    wait(over, launcher.cancel, hurry, stop_workers)
    if errors:
        raise errors[0]
    launcher.home.sweep()  # a child may have been killed
    results = {task: launcher.records.read(task) for name in todo for task in launcher.flow.task_names(name)}
    if not launcher.cancel.is_set():
        results = {
            name: result or NodeResult(name, EndState.FAILED, reason=_WORDLESS) for name, result in results.items()
        }
    return {name: result for name, result in results.items() if result is not None}


def add_steps(graph: beam.Pipeline, steps: Iterable[LaunchStep], address: RunAddress) -> None:
    """Make a Beam pipeline of steps, given in an order to walk them in; its elements are their parts."""
    ended: dict[str, Any] = {}  # Any: Beam's PCollections have no types
    for step in steps:
        # A side input makes a step wait until all elements of those upstream have been worked on.
        needs = [ended[up] for up in step.upstream]
        upstream = {}
        if needs:
            upstream["upstream"] = beam.pvalue.AsList(needs | f"{step.name}/upstream" >> beam.Flatten())
        begin = graph | f"{step.name}/begin" >> beam.Impulse()
        if not step.in_loop:  # it has one share, and each transform costs Beam 10 ms
            ended[step.name] = begin | f"{step.name}/launch" >> beam.FlatMap(launch_step, step, address, **upstream)
            continue
        ended[step.name] = (
            begin
            | f"{step.name}/open" >> beam.FlatMap(open_step, step, address, **upstream)
            | f"{step.name}/spread" >> beam.Reshuffle()
            | f"{step.name}/launch" >> beam.FlatMap(launch_share, address, step)
        )


def launch_step(impulse: bytes, step: LaunchStep, address: RunAddress, upstream: Iterable[str] = ()) -> list[str]:
    """Launch all tasks of a step, now that what it waits for has ended; gives their names, whatever their states."""
    shares = open_step(impulse, step, address, upstream)
    return [name for share in shares for name in launch_share(share, address, step)]


def open_step(impulse: bytes, step: LaunchStep, address: RunAddress, upstream: Iterable[str] = ()) -> list[StepShare]:
    """The parts of a step, known now that what it waits for has ended."""
    with address.worker() as worker:
        return list(step.shares(worker.launcher.flow))


def launch_share(share: StepShare, address: RunAddress, step: LaunchStep) -> list[str]:
    """Launch the tasks of a share in child processes; gives their names, whatever their states."""
    done: list[str] = []
    with address.worker() as worker:
        for name in step.tasks(share, worker.launcher.flow):
            if not worker.launcher.cancel.is_set():
                worker.launch(name)
                done.append(name)
    return done


def _keeping(launcher: Launcher, nodes: list[str]) -> Launcher:
    """A launcher under which what ended well stays: a Beam runner may do an element again.

    Not what runs on exit, which the launcher of a resumed run is to launch again.
    """
    if any(launcher.run.pipeline[name].on_exit for name in nodes):
        return launcher
    return Launcher(launcher.home, launcher.run, launcher.observer, resuming=True, cancel=launcher.cancel)
