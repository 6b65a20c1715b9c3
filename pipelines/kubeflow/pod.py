"""The container's command: `python -m drivetrain.pipelines.kubeflow.pod --project P --ir DIGEST --node ID …`.

A pod builds the pipeline that is in its image, joins its run, runs its task with the node entrypoint in a child
process, and writes the result to three places: the store, the records beside the payloads, and KFP's output file. Its
exit status is 0 where the task is COMPLETE, CACHED, SKIPPED or BLOCKED (another attempt would not change a gate's
veto), 1 where it FAILED, and 143 where the pod got SIGTERM.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import os
import shutil
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

if __name__ == "__main__":
    gc.disable()  # what is imported stays

from ...errors import DrivetrainError, InputError
from ...lazy import end_process, kept_imports
from ...metadata import ArtifactRecord, StoreUnavailable
from ...redaction import redact
from ..dsl.hints import accepts
from ..dsl.pipeline import PipelineFunction, load_compiled
from ..ir.ir import Query
from ..ir.tasks import parse_task, task_name
from ..launcher import run_records as records
from ..launcher.home import Home
from ..launcher.launcher import Launcher
from ..launcher.logs import LogReader
from ..launcher.node_secrets import redact_secrets
from ..launcher.results import NodeResult
from ..launcher.states import EndState, RunState
from ..run import state_of
from ..runners.children import Supervisor
from ..runners.pool import Pool
from . import reconcile
from .joining import JoinedRun, PodEnvironment, join_in_own_store, join_run, retry_while_unavailable
from .manifests import RUN, STATUS, ExecutorInput, PodOutputs

TERMINATED = "its pod got SIGTERM: it was evicted or deleted, or its run was terminated"
CANCELED = 143
"""The exit status of a pod that got SIGTERM, as of any program that it ends: 128 + 15."""
_EXIT_OF_STATE = {RunState.FAILED: 1, RunState.CANCELED: 1, RunState.STOPPED: 3}
"""How the pod that closes the run exits, so that KFP's own state of the run agrees with ours; 0 for all else."""
_FINAL = "final"
"""The type of the context that says of an execution, by its uid, that it failed for good."""
_LOG_POLL = 0.2
"""Seconds between two looks at the log of the task's child."""


class PodEntrypoint:
    """The work of one container, from KFP's input to its exit status.

    Args:
        arguments: As parsed.
        place: What its environment says.
        retried: How often KFP tried it before.
    """

    def __init__(self, arguments: argparse.Namespace, environment: PodEnvironment, retried: int) -> None:
        self.arguments = arguments
        self.environment = environment
        self.retried = retried
        self.kfp_input = ExecutorInput(arguments.executor_input)
        self._cancel: threading.Event | None = None
        self._hurry = threading.Event()
        self._joined: JoinedRun | None = None
        self._cached_launcher: Launcher | None = None
        self._project = arguments.project
        self._task = ""

    def run(self) -> int:
        """Run what the arguments name and return the exit status.

        Raises:
            InputError: The image holds another version of the pipeline, or the run is another one.
            StoreUnavailable: The store is away, and the task needs it.
        """
        with kept_imports():
            function = load_compiled(self.arguments.project, self.arguments.ir)
        pipeline = function.build()
        values = function.values(dict(self._parameters(function)))
        if pipeline.digest != self.arguments.ir:
            raise InputError(
                f"the image holds another version of {pipeline.name} ({pipeline.digest[:12]}) than was compiled "
                f"({self.arguments.ir[:12]})",
                fix="build the image from the sources that were compiled, or compile what the image holds",
            )
        name = self.kfp_input.parameters.get(RUN) or f"kubeflow-{self.environment.kfp_run}"
        self._project = function.project
        self._work_on(join_run(self.environment, name, pipeline, self._project, values))
        if self.arguments.leave:
            return self._close_run()
        if self.arguments.open:
            return self._open_loop(self.arguments.open)
        return self._run_node(self.arguments.node)

    def close(self) -> None:
        """Close the store. One of the pod's own is removed: all that it holds is in the records by now."""
        if self._joined is not None:
            self._joined.home.close()
            if self._joined.alone and self._joined.home.url is not None:
                shutil.rmtree(Path(self._joined.home.url).parent, ignore_errors=True)

    def stop(self) -> None:
        """Cancel what runs, on SIGTERM: the task gets time to record how it ended; a second signal ends it at once."""
        if self._cancel is None:
            raise KeyboardInterrupt(TERMINATED)
        if self._cancel.is_set():
            self._hurry.set()
        self._cancel.set()

    def record_cancellation(self) -> int:
        """Record the task as CANCELED where SIGTERM came before it began, and return the exit status."""
        if self._joined is not None and self._task:
            with contextlib.suppress(DrivetrainError):
                self._launcher().recovery.after_death(self._task, os.getpid(), EndState.CANCELED, TERMINATED)
                records.write_record(self._joined.home, self._joined.run, self._task)
        print(TERMINATED, file=sys.stderr, flush=True)
        return CANCELED

    def _parameters(self, function: PipelineFunction[..., object]) -> Iterator[tuple[str, object]]:
        """The run's parameters; one that may be None comes as text, since KFP's driver loses what is null."""
        for name, parameter in function.parameters.items():
            value = self.kfp_input.parameters.get(name)
            if value is not None:
                yield name, None if value == "null" and accepts(parameter.annotation, None) else value

    # -- what a pod may be for

    def _run_node(self, node: str) -> int:
        joined = self._current
        scope = joined.run.pipeline.scope(node)
        self._task = task_name(node, self.kfp_input.index(scope))
        if joined.run.pipeline[node].on_exit:
            return self._report(self._attempt(resuming=self._reconcile_before_exit()))
        reconcile.reconcile_upstream(self._launcher(), self._task)
        return self._report(self._attempt(resuming=True))

    def _reconcile_before_exit(self) -> bool:
        """Reconcile the work before an exit node runs; return whether the status was recorded unchanged before.

        Only then may an earlier execution of the exit node stand for this one: it saw the same end of the work.
        """
        joined = self._current
        run, unchanged = reconcile.reconcile_work(joined.home, joined.run, self._status)
        self._work_on(replace(joined, run=replace(run, project=self._project)))
        return unchanged

    def _open_loop(self, loop: str) -> int:
        """Give KFP the numbers of a loop's items; where the loop does not run, record why for each node in it."""
        pipeline = self._current.run.pipeline
        inside = [node.id for node in pipeline.nodes if loop in pipeline.scope(node.id)]
        scope = pipeline.scope(inside[0])
        outer = self.kfp_input.index(scope[: scope.index(loop)])
        self._task = task_name(inside[0], outer)
        if pipeline[inside[0]].on_exit:  # its items may be what failed
            self._reconcile_before_exit()
        else:
            reconcile.reconcile_upstream(self._launcher(), self._task)
        launcher = self._launcher()
        count, results = launcher.flow.count(loop, outer), []
        if count is None:
            for node in inside:
                results.append(launcher.launch(task_name(node, outer)))
                records.write_record(self._current.home, self._current.run, results[-1].node)
        self._answer(EndState.COMPLETE, launcher, items=list(range(count or 0)))
        return 1 if any(result.state is EndState.FAILED for result in results) else 0

    def _close_run(self) -> int:
        results = reconcile.reconcile_run(self._current.home, self._current.run, self._status)
        state = state_of(results.values())
        for result in results.values():
            print(f"{result.node}: {result.state} {result.reason}".rstrip(), flush=True)
        self._answer(state, self._launcher())
        return _EXIT_OF_STATE.get(state, 0)

    # -- the attempt

    def _attempt(self, *, resuming: bool) -> NodeResult:
        """One attempt; where the store goes away during it and does not come back, one more without it."""
        try:
            result = self._attempt_once(resuming=resuming)
            if result.state is not EndState.FAILED:
                return result
            # A failure may itself come of a store that went away: ask it, and if it is gone, try again without it.
            retry_while_unavailable(lambda: self._current.home.store.contexts("run", limit=1))
            return result
        except StoreUnavailable as error:
            if self._current.alone:
                raise
            print(f"the store went away, this pod goes on without it: {error.message}", flush=True)
        if self._cancel is not None and self._cancel.is_set():
            raise KeyboardInterrupt(TERMINATED)
        joined = self._current
        facts = dict(joined.run.context.properties)
        body = {"id": joined.run.id, "facts": facts, "ir": joined.run.pipeline.to_json()}
        with contextlib.suppress(DrivetrainError):
            joined.home.close()
        joined = join_in_own_store(self.environment, body)
        self._work_on(replace(joined, run=replace(joined.run, project=self._project)))
        return self._attempt_once(resuming=resuming)

    def _attempt_once(self, *, resuming: bool) -> NodeResult:
        launcher = self._launcher(resuming=resuming)
        ended = launcher.recovery.earlier(self._task) if resuming else None
        if ended is not None:  # an attempt that finished, but whose pod died before KFP read its result
            return ended
        if self.retried and (last := self._final_result(launcher)) is not None:
            return last
        if not launcher.flow.may_run(self._task):
            return launcher.launch(self._task)
        self._refuse_query_without_store()
        options = launcher.run.pipeline[parse_task(self._task)[0]].options
        if options.replicas == 1:
            return self._attempt_in_pool(launcher)
        if (known := launcher.end_without_running(self._task)) is not None:
            return known  # so that no Job of workers starts for a cached or skipped task
        from .workers import worker_processes  # late: few pods have others beside them

        words = ["--project", str(self._project), "--ir", self.arguments.ir, "--run", launcher.run.id]
        with worker_processes(options.replicas, [*words, "--task", self._task], timeout=options.timeout):
            return self._attempt_in_pool(launcher)

    def _attempt_in_pool(self, launcher: Launcher) -> NodeResult:
        self._cancel = launcher.cancel
        pool = Pool(Supervisor(launcher, self._hurry, TERMINATED))
        try:
            with _forwarded_log(launcher, self._task):
                return pool.attempt(self._task, self.retried)
        finally:
            pool.close()

    def _final_result(self, launcher: Launcher) -> NodeResult | None:
        """How the last attempt ended, where another is of no use: the error is the user's, or not in `retry_on`."""
        execution = launcher.flow.execution(*parse_task(self._task))
        if execution is None or launcher.home.store.find_context(_FINAL, execution.uid) is None:
            return None
        return launcher.records.read(self._task)

    def _refuse_query_without_store(self) -> None:
        joined = self._current
        node = joined.run.pipeline[parse_task(self._task)[0]]
        if joined.alone and any(isinstance(source, Query) for _, sources in node.inputs for source in sources):
            raise StoreUnavailable(
                f"{node.id} asks for what earlier runs made, which only the store knows", fix="bring the store back"
            )

    # -- reporting

    def _report(self, result: NodeResult) -> int:
        joined = self._current
        try:
            records.write_record(joined.home, joined.run, self._task)
        except (DrivetrainError, OSError) as error:
            if joined.alone:
                raise  # the record is the only place that would keep it
            print(f"no record was written beside the payloads: {redact(str(error))}", file=sys.stderr, flush=True)
        print(f"{self._task}: {result.state} {redact(result.reason)}".rstrip(), flush=True)
        if result.state is EndState.FAILED:
            execution = self._launcher().flow.execution(*parse_task(self._task))
            if result.again is None and execution is not None:
                # KFP retries by exit status alone: the next attempt reads this and returns at once.
                joined.home.store.context(_FINAL, execution.uid)
            print(redact((execution.error if execution else None) or result.reason), file=sys.stderr, flush=True)
            return 1
        if result.state is EndState.CANCELED:
            return CANCELED
        self._answer(result.state, self._launcher(), result)
        return 0

    def _answer(
        self,
        state: EndState | RunState,
        launcher: Launcher,
        result: NodeResult | None = None,
        items: Sequence[int] = (),
    ) -> None:
        home, run = launcher.home, launcher.run
        facts = {"run": run.id, "store": home.store.context("store", "this").uid}
        if result is not None:
            execution = launcher.flow.execution(*parse_task(result.node))
            facts |= {"task": result.node, "execution": execution.uid if execution else ""}
        outputs, vetoed = (result.outputs, result.vetoed) if result else ({}, False)
        self.kfp_input.answer(PodOutputs(state, facts, _address(home), outputs, vetoed, items))

    @property
    def _current(self) -> JoinedRun:
        assert self._joined is not None
        return self._joined

    @property
    def _status(self) -> str:
        final_status = self.kfp_input.parameters.get(STATUS)
        return str(final_status.get("state", "")) if isinstance(final_status, dict) else ""

    def _work_on(self, joined: JoinedRun) -> None:
        """Use this run in this store from now on."""
        self._joined = joined
        self._cached_launcher = None  # it holds the run as it was before

    def _launcher(self, *, resuming: bool | None = None) -> Launcher:
        """The pod's launcher, a new one after `_work_on` or where `resuming` differs from the last one's.

        It is kept because it caches what the store said of the tasks that have ended.
        """
        launcher = self._cached_launcher
        if launcher is None or resuming not in (None, launcher.resuming):
            launcher = Launcher(self._current.home, self._current.run, resuming=resuming is not False)
            self._cached_launcher = launcher
        return launcher


def _address(home: Home) -> Callable[[ArtifactRecord], str]:
    root = home.payloads.url or home.root.as_uri()
    return lambda record: f"{root}/{record.uri}"


@contextlib.contextmanager
def _forwarded_log(launcher: Launcher, task: str) -> Iterator[None]:
    """Copy the task's log to standard output while the block runs, in whole lines, secrets redacted."""
    redact_secrets(launcher.run.pipeline[parse_task(task)[0]])
    over, reader = threading.Event(), LogReader(launcher.logs.path(task), launcher.logs.size(task))

    def follow() -> None:
        last = False
        while not last:
            last = over.wait(_LOG_POLL)
            with contextlib.suppress(OSError):
                for text in reader.read(last=last):
                    sys.stdout.write(text)
                sys.stdout.flush()

    thread = threading.Thread(target=follow, name="drivetrain-follow", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def parser() -> argparse.ArgumentParser:
    """The parser of the command's arguments."""
    arguments = argparse.ArgumentParser(
        prog="python -m drivetrain.pipelines.kubeflow.pod",
        description="Do what a container of a compiled pipeline is for.",
        epilog="example: python -m drivetrain.pipelines.kubeflow.pod --project /app/flights --ir 5f0c… --node Trainer "
        "--executor-input '{{$}}'",
    )
    arguments.add_argument("--project", type=Path, required=True, help="the pipeline's folder in the image")
    arguments.add_argument("--ir", required=True, help="digest of the pipeline that was compiled")
    what = arguments.add_mutually_exclusive_group(required=True)
    what.add_argument("--node", help="launch this node, for the item that the input names")
    what.add_argument("--open", metavar="LOOP", help="tell the items of this loop")
    what.add_argument("--leave", action="store_true", help="record how the run ended")
    arguments.add_argument("--executor-input", required=True, help="what KFP resolved for it (JSON)")
    return arguments


def main(argv: list[str] | None = None) -> int:
    """Run the command; returns the exit status, and prints errors without secrets."""
    arguments = parser().parse_args(argv)
    pod: PodEntrypoint | None = None

    def stop(number: int, frame: object) -> None:
        if pod is None:
            raise KeyboardInterrupt(TERMINATED)
        pod.stop()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    try:
        pod = PodEntrypoint(arguments, PodEnvironment.here(), int(os.environ.get("KFP_RETRY_INDEX") or 0))
        return pod.run()
    except KeyboardInterrupt:
        return pod.record_cancellation() if pod else CANCELED
    except DrivetrainError as error:
        print(redact(str(error)), file=sys.stderr, flush=True)
        return 1
    except Exception:
        print(redact(traceback.format_exc()), file=sys.stderr, flush=True)
        return 1
    finally:
        if pod is not None:
            pod.close()


if __name__ == "__main__":
    gc.enable()
    end_process(main())
