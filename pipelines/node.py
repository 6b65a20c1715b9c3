"""The node entrypoint: `python -m drivetrain.pipelines.node --root R --run ID --ir DIGEST --node ID`.

What every runner but the inline one starts in a child process, for one node or, with `--serve`, for one after another
as they are named on standard input. What a node prints goes into its log. Events leave on a descriptor of their own
(`--events`), a JSON object on each line; or else on standard output as JSON text sequences (RFC 7464: a record
separator, JSON, a line feed), so that what the user prints is never taken for one.
"""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import io
import json
import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue
from typing import Any, NamedTuple, TextIO

if __name__ == "__main__":
    gc.disable()  # what is imported stays

from ..errors import DrivetrainError, InputError
from ..lazy import end_process, kept_imports
from ..redaction import mark_secret
from .ir.tasks import parse_task
from .launcher import processes
from .launcher.home import STORE, Home
from .launcher.launcher import Launcher
from .launcher.logs import flush
from .launcher.process_state import ProcessState
from .launcher.results import AttemptTimeout, NodeResult
from .launcher.runs import Run, open_run
from .launcher.states import EndState
from .project.functions import package_name

_GRACE = 10.0
"""Seconds that a node gets to end once the process that gave it is gone."""
_PATIENCE = 2.0
"""Seconds that processes which it started get to end then."""
RECORD = "\x1e"
"""Begins an event on standard output."""


class EventWriter:
    """An observer that writes each event as a JSON object on a line.

    Args:
        stream: Where to.
        begin: What begins each record: nothing, or a record separator.
    """

    def __init__(self, stream: TextIO, begin: str) -> None:
        self._stream = stream
        self._begin = begin
        self._lock = threading.Lock()

    def write(self, **event: object) -> None:
        """Write an event with these fields as one record and flush it; one that nobody reads any more is dropped."""
        with self._lock, contextlib.suppress(BrokenPipeError):  # nobody listens any more
            self._stream.write(f"{self._begin}{json.dumps(event)}\n")
            self._stream.flush()

    def started(self, node: str) -> None:
        """Write `{"event": "started", "node"}`."""
        self.write(event="started", node=node)

    def progress(self, node: str, done: int, total: int | None, unit: str) -> None:
        """Write `{"event": "progress", "node", "done", "total", "unit"}`; a total that is not known is null."""
        self.write(event="progress", node=node, done=done, total=total, unit=unit)

    def note(self, node: str, text: str) -> None:
        """Write `{"event": "note", "node", "text"}`."""
        self.write(event="note", node=node, text=text)

    def working(self, node: str, works: bool) -> None:
        """Write `{"event": "working", "node", "works"}`: whether it works, or waits for another process's same work."""
        self.write(event="working", node=node, works=works)

    def ended(self, result: NodeResult) -> None:
        """Write `{"event": "ended", "node"}`, what `NodeResult.to_json` gives, and what only the parent asks for."""
        flags = {"vetoed": result.vetoed, "user_error": result.user_error, "again": result.again}
        self.write(event="ended", node=result.node, **result.to_json(), **flags)


class Server:
    """Does the tasks that are named on standard input, until that ends.

    A line there is `{"task": name, "retried": how often it was tried before}`, answered by events, the last one
    "idle"; or `{"stop": reason}`, which ends the attempt at work as a failure, as a cancellation where it is null;
    `"why"` beside it says why it is cancelled.
    Where the input ends, the process that gave the tasks is gone: the attempt at work is cancelled.
    """

    def __init__(self, events: EventWriter) -> None:
        self._events = events
        self._tasks: SimpleQueue[Mapping[str, Any] | None] = SimpleQueue()
        self._busy = threading.Event()
        self._stop_requested = False
        self._stopped = False
        self._mark = os.environ.get(processes.MARK, "").rpartition(":")[2]
        self._reason: str | None = None
        self._why = ""
        self._launcher: Launcher | None = None
        self._imports = contextlib.ExitStack()  # until the project's modules are imported
        self._imports.enter_context(kept_imports())
        # What a node reads from standard input is not meant for it.
        self._input = os.fdopen(os.dup(0), encoding="utf-8")
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.close(nothing)

    def run(self, home: Home, run: Run, *, resuming: bool) -> None:
        """Do the tasks until the input ends."""
        self._launcher = Launcher(home, run, self._events, resuming=resuming, working=self._working)
        threading.Thread(target=self._listen, name="drivetrain-listen", daemon=True).start()
        self._process_state = ProcessState(package_name(run.project))
        while (task := self._tasks.get()) is not None:
            self._do(self._launcher, task["task"], task["retried"])
        processes.end_descendants(os.getpid(), self._mark, _PATIENCE)
        threading.Thread(target=_leave, name="drivetrain-leave", daemon=True).start()

    def stop(self) -> None:
        """End the attempt at work; called in the main thread. Once, so that its end can be recorded."""
        if self._stopped or not self._busy.is_set():
            return
        self._stopped = True
        if self._reason is not None:
            raise AttemptTimeout(self._reason)
        if self._launcher is not None:
            self._launcher.cancel.set()
        raise KeyboardInterrupt(self._why)

    def _do(self, launcher: Launcher, name: str, retried: int) -> None:
        _redact_environment(launcher.run, name)
        with launcher.logs.captured(name), warnings.catch_warnings():
            self._busy.set()  # from here on a stop interrupts; one that came before is seen now
            try:
                if self._stop_requested:
                    self._events.ended(NodeResult(name, EndState.CANCELED, reason="stopped before it began"))
                else:
                    launcher.launch(name, retried)
            finally:
                self._busy.clear()
                self._imports.close()
        self._events.write(event="idle", clean=self._process_state.undo())

    def _working(self, task: str, works: bool) -> None:
        self._imports.close()
        self._process_state.imported()
        self._events.working(task, works)

    def _listen(self) -> None:
        # A signal that lands in this thread would not wake the main one from a sleep or a wait.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
        with contextlib.suppress(ValueError):  # half a line: who wrote it was killed
            for line in self._input:
                message = json.loads(line)
                if "stop" not in message:
                    self._tasks.put(message)
                    continue
                self._reason, self._why = message["stop"], message.get("why", "")
                self._stop_requested = True
                self._interrupt()
        self._reason = None
        self._stop_requested = True
        self._tasks.put(None)
        if self._busy.is_set():
            self._interrupt()
            time.sleep(_GRACE)
            processes.end_descendants(os.getpid(), self._mark, 0)
            os.kill(os.getpid(), signal.SIGKILL)

    def _interrupt(self) -> None:
        main = threading.main_thread().ident
        if main is not None:
            signal.pthread_kill(main, signal.SIGTERM)


def _stop(server: Server | None, cancel: threading.Event) -> None:
    """Let SIGINT and SIGTERM cancel the node; once, because Ctrl-C comes from the terminal and from the runner too.

    The event is for where the interrupt is raised in a callback of the garbage collector, and lost.
    """

    def stop(number: int, frame: object) -> None:
        if server is not None:
            server.stop()
            return
        for each in (signal.SIGINT, signal.SIGTERM):
            signal.signal(each, signal.SIG_IGN)
        cancel.set()
        raise KeyboardInterrupt

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)


def _leave() -> None:
    """End this process although threads that a task left go on: the interpreter would wait for them."""
    time.sleep(_PATIENCE)
    if any(not thread.daemon and thread is not threading.main_thread() for thread in threading.enumerate()):
        flush()
        os._exit(0)


def _redact_environment(run: Run, task: str) -> None:
    """Redact what a node has in its environment by the name of a secret."""
    for name, value in run.pipeline[parse_task(task)[0]].options.env:
        if isinstance(value, dict) and "$secret" in value:
            mark_secret(os.environ.get(name, ""))


def _events(descriptor: int | None) -> EventWriter:
    if descriptor is None:
        return EventWriter(os.fdopen(os.dup(1), "w", encoding="utf-8"), RECORD)
    os.set_inheritable(descriptor, False)
    return EventWriter(os.fdopen(descriptor, "w", encoding="utf-8"), "")


class ChildSettings(NamedTuple):
    """What a child process is to do.

    Attributes:
        root: The run's root folder.
        run: Its id.
        ir: Digest of its compiled pipeline.
        node: The task that is launched; None for those that standard input names.
        store: Where the metadata is, if not in the root.
        project: The pipeline's folder here, if not where the run began.
        resuming: Whether what ended well in this run stays as it is.
        events: The descriptor for events; None for standard output.
    """

    root: str
    run: str
    ir: str
    node: str | None = None
    store: str | None = None
    project: str | None = None
    resuming: bool = False
    events: int | None = None


def _settings(argv: list[str]) -> ChildSettings:
    """The settings that a command line names; `--serve` takes all of them as one JSON object."""
    store = os.environ.pop(STORE, None)  # a component has no need to see it
    if argv[:1] == ["--serve"]:
        return ChildSettings(**{"store": store, **json.loads(argv[1])})
    import argparse  # late: it takes a child of a runner as long as a small task

    parser = argparse.ArgumentParser(
        prog="python -m drivetrain.pipelines.node",
        description="Launch one node of a recorded run.",
        epilog="example: python -m drivetrain.pipelines.node --root .drivetrain --run 20261121-093000-1a2b "
        "--ir 5f0c… --node Trainer",
    )
    parser.add_argument("--root", required=True, help="the run's root folder")
    parser.add_argument("--store", default=store, help="where the metadata is, if not in the root")
    parser.add_argument("--run", required=True, help="run id")
    parser.add_argument("--ir", required=True, help="digest of the compiled pipeline")
    parser.add_argument("--project", help="the pipeline's folder here, if not where the run began")
    parser.add_argument("--node", required=True, help="node id; Trainer[3] for an item of a loop")
    parser.add_argument("--resuming", action="store_true", help="leave what ended well in this run as it is")
    parser.add_argument("--events", type=int, metavar="FD", help="a descriptor for events; else standard output")
    return ChildSettings(**vars(parser.parse_args(argv)))


def main(argv: list[str] | None = None) -> int:
    """Launch one node; 0 unless it failed (1) or was cancelled (130). Or serve."""
    settings = _settings(sys.argv[1:] if argv is None else argv)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(line_buffering=True)
    faulthandler.enable()  # a crash in native code leaves its Python events in the log
    events = _events(settings.events)
    server = Server(events) if settings.node is None else None
    cancel = threading.Event()
    _stop(server, cancel)
    try:
        home = Home(Path(settings.root), store=settings.store)
        run = open_run(home, settings.run)
        run = replace(run, project=Path(settings.project) if settings.project else run.project)
        if run.pipeline.digest != settings.ir:
            raise InputError(f"run {run.id} has another pipeline than {settings.ir[:12]}", fix="check --run and --ir")
        if server is not None:
            server.run(home, run, resuming=settings.resuming)
            return 0
        assert settings.node is not None
        launcher = Launcher(home, run, events, resuming=settings.resuming, cancel=cancel)
        _redact_environment(run, settings.node)
        with launcher.logs.captured(settings.node, visible=True):
            result = launcher.launch(settings.node)
    except DrivetrainError as error:
        print(error, file=sys.stderr)
        return 2
    return result.state.exit_code


if __name__ == "__main__":
    gc.enable()
    end_process(main())
