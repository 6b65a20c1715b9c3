"""A child process that launches tasks, and its supervisor: events, time limits, cancellation, its death."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from ..ir.expressions import names_any
from ..ir.tasks import parse_task
from ..launcher import processes
from ..launcher.home import STORE
from ..launcher.launcher import Launcher
from ..launcher.observers import Observer
from ..launcher.results import AttemptTimeout, NodeResult, brief
from ..launcher.retries import Retries
from ..launcher.root import VARIABLE
from ..launcher.states import EndState
from ..project.functions import FunctionRef

GRACE = 10.0
"""Seconds that a task gets to end and to record it, and then what it started, before they are killed."""
_TICK = 0.2
_LAST = 2.0
"""Seconds in which a process ends that closed the descriptor of its events by ending."""
_CUT_OFF = "its process closed files that were not its own, its events among them, and was ended"
_SIGNALS = {
    signal.SIGKILL: "killed, or the machine ran out of memory",
    signal.SIGSEGV: "a crash in native code",
    signal.SIGBUS: "a crash in native code, or a full disk",
    signal.SIGILL: "a crash in native code",
    signal.SIGFPE: "a crash in native code",
    signal.SIGABRT: "native code gave up",
}


def command(launcher: Launcher, events: int) -> list[str]:
    """What starts a child for the tasks of a run, which writes its events to a descriptor."""
    run = launcher.run
    settings = {
        "root": str(launcher.home.root),
        "run": run.id,
        "ir": run.pipeline.digest,
        "project": str(run.project) if str(run.project) != run.context.properties["project"] else None,
        "resuming": launcher.resuming,
        "events": events,
    }
    # -P: a file of the working directory must not stand in for a module of Python's.
    return [sys.executable, "-P", "-m", "drivetrain.pipelines.node", "--serve", json.dumps(settings)]


def _stderr_of_processes(launcher: Launcher) -> BinaryIO:
    """A file for what a child prints outside of tasks; the null device where no log can be written."""
    with suppress(OSError):
        launcher.logs.folder.mkdir(parents=True, exist_ok=True)
        return (launcher.logs.folder / ".processes.log").open("ab")
    return Path(os.devnull).open("ab")


class Child:
    """A process that serves: it does one task after another.

    Args:
        launcher: Of the run.
        environment: Variables that it has beside this process's.
        inherited: Descriptors that it keeps open for as long as it lives.

    Raises:
        OSError: It cannot be started.
    """

    def __init__(
        self, launcher: Launcher, environment: Mapping[str, str] | None = None, inherited: tuple[int, ...] = ()
    ) -> None:
        self.mark, mark = processes.new_mark()
        self._buffer = b""
        self._lock = threading.Lock()
        self._reading, writing = os.pipe()
        self._poll = select.poll()
        self._poll.register(self._reading, select.POLLIN)
        try:
            with _stderr_of_processes(launcher) as log:
                self._process = subprocess.Popen(  # noqa: S603
                    command(launcher, writing),
                    stdin=subprocess.PIPE,
                    stdout=subprocess.DEVNULL,
                    stderr=log,
                    pass_fds=(writing, *inherited),
                    start_new_session=True,  # a terminal's Ctrl-C is for the run, which hands it on
                    env={
                        **os.environ,
                        # It finds what this process finds.
                        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
                        # The URL may hold a password, and anyone on a machine may read a command line.
                        **({STORE: launcher.home.url} if launcher.home.url else {}),
                        VARIABLE: str(launcher.home.root),  # whatever folder it works in
                        **(environment or {}),
                        **mark,
                    },
                )
        except BaseException:
            os.close(self._reading)
            raise
        finally:
            os.close(writing)

    @property
    def pid(self) -> int:
        """The id of the child's process, which leads a session of its own."""
        return self._process.pid

    @property
    def lives(self) -> bool:
        """Whether it can be given a task."""
        return self._process.poll() is None

    def send(self, **message: object) -> None:
        """Send it a message; none arrives where it is dead."""
        with self._lock, suppress(OSError, ValueError):
            assert self._process.stdin is not None
            self._process.stdin.write(json.dumps(message).encode() + b"\n")
            self._process.stdin.flush()

    def events(self, seconds: float) -> list[dict[str, Any]] | None:
        """Its events of the next so many seconds, as soon as there are some; None once it is dead and all were read."""
        # Before the look at the pipe: what it wrote before it died is still there, and must be read first.
        died = self._process.poll() is not None
        if not self._poll.poll(0 if died else seconds * 1000):
            return None if died else []
        data = os.read(self._reading, 1 << 16)
        if not data:
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(_LAST)
            return None
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        return [json.loads(line) for line in lines]

    def stop(self, reason: str | None, why: str = "") -> None:
        """Ask it and its descendants to end its task: as a failure for this reason, as a cancellation where None."""
        self.send(stop=reason, why=why)
        processes.terminate(processes.descendants(self.pid, self.mark))

    def retire(self) -> None:
        """Ask it to end, with what descends from it; it is killed after twice the grace."""
        self.dismiss()
        try:
            self._process.wait(2 * GRACE)
        except subprocess.TimeoutExpired:
            self.kill()
        if self._process.returncode:
            processes.end_descendants(self.pid, self.mark, 0)
        with suppress(OSError):
            os.close(self._reading)
        self._reading = -1

    def dismiss(self) -> None:
        """Ask it to end, without waiting."""
        with self._lock, suppress(OSError, ValueError):
            assert self._process.stdin is not None
            self._process.stdin.close()

    def kill(self) -> None:
        """End it at once, with what descends from it."""
        left = processes.descendants(self.pid, self.mark)  # while it can be seen whose they are
        self._process.kill()
        self._process.wait()
        for process in left:
            with suppress(Exception):  # psutil's: it is gone
                process.kill()
        processes.end_descendants(self.pid, self.mark, 0)

    def death(self) -> str:
        """Wait for its end; gives the cause as a reason for a result."""
        status = self._process.wait()
        if status < 0:
            with suppress(ValueError):
                number = signal.Signals(-status)
                return f"its process was ended by {number.name} ({_SIGNALS.get(number, 'from outside')})"
        return f"its process ended with status {status} before it could say how"


@dataclass
class Supervisor:
    """Gives tasks of a run to children, one attempt at a time, and sees that each attempt ends and is recorded.

    Attributes:
        launcher: Of the run. Where its `cancel` is set, what is at work is cancelled.
        hurry: Set to kill at once what is at work, after a second Ctrl-C.
        why: Why what is at work is cancelled, where that is known.
    """

    launcher: Launcher
    hurry: threading.Event
    why: str = ""

    def environment(self, name: str) -> dict[str, str]:
        """The environment that a task's options ask for; nothing for one that is not to run.

        Raises:
            InputError: A secret is not set, or a value is not text.
        """
        node, index = parse_task(name)
        if not self.launcher.run.pipeline[node].options.env or not self.launcher.flow.may_run(name):
            return {}
        return self.launcher.flow.environment(node, index)

    def end_without_child(self, name: str) -> NodeResult | None:
        """How a task ends that need not or must not run, recorded; it is looked up in this process.

        Returns:
            None where a child has to see: the task may have to run, as does mostly what never ran in any run; the look
            counts against its time limit; it would import modules of the project, and only a child is to be harmed by
            them; or it would ask a database, which is to be asked once.
        """
        launcher = self.launcher
        node = launcher.run.pipeline[parse_task(name)[0]]
        component = FunctionRef(launcher.run.project if node.code else None, node.component)
        asks = any(names_any(value, {"$query"}) for _, value in node.parameters)
        if node.options.timeout or asks or component.module not in sys.modules or launcher.cancel.is_set():
            return None
        result = None
        with suppress(Exception):  # whatever it is, a child meets it too, and its end and its log say so
            if launcher.home.store.find_context("node", f"{launcher.run.pipeline.name}.{node.id}") is not None:
                result = launcher.end_without_running(name)
        if result is not None:
            launcher.logs.end(result)
        return result

    def attempt(self, name: str, child: Child, retried: int, *, last: bool) -> tuple[NodeResult, bool] | None:
        """Have a child try a task once.

        Args:
            name: The task.
            child: Does it.
            retried: How often it was tried before.
            last: Whether no other child can have it.

        Returns:
            How it ended, and whether the child may do another; None where it died before it began the task, which
            another can have.
        """
        begin, limit = time.monotonic(), self.launcher.run.pipeline[parse_task(name)[0]].options.timeout
        clock: float | None = None
        stopped: float | None = None
        reason: str | None = None
        result: NodeResult | None = None
        begun = False  # any event at all: another child must not repeat it
        child.send(task=name, retried=retried)
        while (events := child.events(_TICK)) is not None:
            for event in events:
                begun = True
                if event["event"] == "idle":
                    assert result is not None
                    return self._with_outputs(result), bool(event["clean"]) and stopped is None
                if event["event"] in ("started", "working"):
                    clock = time.monotonic() if event.get("works", True) else None
                result = relay(self.launcher.observer, event) or result
            # Events first, clocks second: if this process stood still, the task may have ended in time meanwhile.
            now = time.monotonic()
            if stopped is None and result is None:
                if self.launcher.cancel.is_set():
                    stopped = now
                elif limit is not None and clock is not None and now - clock > limit:
                    stopped, reason = now, f"ran longer than its timeout of {limit:g} s"
                if stopped is not None:
                    child.stop(reason, self.why)
            if stopped is not None and (now - stopped > GRACE or self.hurry.is_set()):
                child.kill()
        if result is not None:  # it died after its work
            return self._with_outputs(result), False
        death = _end(child)
        if not (last or begun or stopped is not None or self._began(name, child)):
            note = f"{death}, before the task began: another takes it"
            self.launcher.logging_observer.note(name, note)
            return None
        return self._died(name, child, death, retried, time.monotonic() - begin, stopped is not None, reason), False

    def _began(self, name: str, child: Child) -> bool:
        """Whether the store knows of a task that a child began it."""
        execution = self.launcher.flow.execution(*parse_task(name))
        return execution is not None and execution.owner is not None and execution.owner.pid == child.pid

    def _with_outputs(self, result: NodeResult) -> NodeResult:
        """A result with the outputs, which events do not carry: they are read from the store."""
        if not result.state.succeeded:
            return result
        return self.launcher.records.read(result.node) or result

    def _died(
        self, name: str, child: Child, death: str, retried: int, seconds: float, stopped: bool, reason: str | None
    ) -> NodeResult:
        """A task whose process died: record how, and remove what it left."""
        canceled = stopped and reason is None
        reason = reason or (f"{self.why or 'asked to stop'}, and did not" if canceled else death)
        end = EndState.CANCELED if canceled else EndState.FAILED
        launcher, retry, unjudged = self.launcher, dict[str, object](), ""
        options = launcher.flow.task(name).node.options
        retries = Retries(options, launcher.run.project, retried, seed=(launcher.run.id, name))
        if not canceled:
            try:
                retry = retries.plan(AttemptTimeout(reason) if stopped else ChildProcessError(reason))
            except Exception as wrong:  # the user's predicate
                unjudged = f"; and whether to try again: {brief(wrong)}"
        recorded = launcher.recovery.after_death(name, child.pid, end, reason, retry)
        if recorded is not None:  # it died after its work
            return recorded
        if retry:
            launcher.logging_observer.note(name, retries.announced(reason))
        result = NodeResult(name, end, seconds, reason + unjudged, again=retries.planned)
        self.launcher.logs.redact(name)
        self.launcher.logs.end(result)
        return result


def _end(child: Child) -> str:
    """Kill a process that sends no more events, if it still lives, and its descendants; gives how it died."""
    death = _CUT_OFF if child.lives else ""
    child.kill()
    return death or child.death()


def relay(observer: Observer, event: Mapping[str, Any]) -> NodeResult | None:
    """Pass a child's event on to an observer; gives the result that the last event of a task carries instead.

    Raises:
        KeyError, TypeError, ValueError: It is not an event.
    """
    kind: str = event["event"]
    if kind == "progress":
        observer.progress(event["node"], event["done"], event["total"], event["unit"])
    elif kind == "note":
        observer.note(event["node"], event["text"])
    elif kind == "ended":
        flags = {"vetoed": event["vetoed"], "user_error": event["user_error"], "again": event["again"]}
        flags["refused_by"] = event.get("refused_by", "")
        return NodeResult(event["node"], EndState(event["state"]), event["seconds"], event["reason"], **flags)
    elif kind not in ("started", "working"):
        raise KeyError(kind)
    return None
