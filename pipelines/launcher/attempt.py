"""One attempt at a node's work under a claim: call the component in staging and publish, or take everything back."""

from __future__ import annotations

import contextlib
import os
import shutil
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import BuildError, Canceled, DrivetrainError, InputError
from ...metadata import (
    Artifact,
    Claim,
    ContextRecord,
    ExecutionRecord,
    LeaseLost,
    StagedArtifact,
    Value,
    staging,
    summarizes_itself,
    summary_of,
)
from ...metadata.payload import explain_full_disk
from ...metadata.records import INPUTS_COMPARED, SEARCH
from ...positions import line_of
from ...progress import Progress, no_progress
from ...redaction import redact, redacted_json
from ..dsl.component import Component
from ..dsl.hints import accepts, spell
from ..ir.tasks import Task
from ..project.context import LaunchContext, TrialRecorder, enter
from ..project.files import FileSet
from ..project.metrics import Metrics
from ..project.reads import Reads, recording
from . import processes
from .decisions import decision
from .flow import Outputs
from .heartbeat import heartbeat
from .home import Home
from .observers import LoggingObserver
from .pending_uploads import drop, pack, unsent
from .preflight import preflight, preflight_downstream
from .resolve import ResolvedTask
from .results import failure_properties, format_traceback
from .retries import Retries
from .reuse import change_since, properties_of
from .runs import Run
from .shared_state import SHARED_STATE
from .source_texts import keep_sources

if TYPE_CHECKING:
    from .resources import ResourceUse
    from .trials import SearchRecords


@dataclass(frozen=True)
class Attempt:
    """One attempt at a task.

    Attributes:
        home: Where everything lies.
        run: The run it belongs to.
        task: What is launched.
        resolved: What its component is called with.
        claim: The right to publish it.
        contexts: What the execution belongs to.
        reason: Why nothing earlier could stand in.
        observer: Called with progress and notes.
        cancel: Set when the run is to stop.
        retries: Of the task: told when it fails.
        begin: When the launch began, or this attempt where it is not its first, by the monotonic clock.
        metrics: What the component measures.
        reads: What the user's code opens.
        inputs: The artifacts that the component was called with, by input.
        searches: What it records trials of.
    """

    home: Home
    run: Run
    task: Task
    resolved: ResolvedTask
    claim: Claim
    contexts: list[ContextRecord]
    reason: str
    observer: LoggingObserver
    cancel: threading.Event
    retries: Retries
    begin: float
    metrics: Metrics = field(default_factory=Metrics)
    reads: Reads = field(default_factory=Reads)
    inputs: dict[str, list[Artifact]] = field(default_factory=dict)
    searches: list[SearchRecords] = field(default_factory=list)

    def execute(self, begun: list[ExecutionRecord]) -> tuple[ExecutionRecord, Outputs | BaseException]:
        """Do the work and publish it, or record why not.

        Args:
            begun: Is given the execution once there is one: an error may come at any step, also after the commit.

        Returns:
            The execution with what it published; or else with what ended it. It has its state and properties of now.

        Raises:
            LeaseLost: Another process took over meanwhile.
            KeyboardInterrupt, Canceled: The run was stopped; that is recorded.
            BaseException: Whatever ended it when it had published already.
        """
        from .resources import METER  # late: a run that reuses everything measures nothing

        execution, use = self._start()
        folder = self.home.work_folder(self.claim.cache_key)
        about: Mapping[str, Any]
        try:
            begun.append(execution)
            with (
                self._staged(execution),
                heartbeat.of(self.home.store, self.claim, METER.read),
                self.home.payloads.reading(),
            ):
                if self.home.payloads.url is None:
                    outputs = self._call(execution, folder)
                    about = self._about(outputs)  # first: publishing moves the folders
                    new = {key: [self._store_payload(execution, key, artifact)] for key, artifact in outputs.items()}
                else:
                    new, about = self._sent(execution, folder)
                about = {**about, **self._spent(use)}
                published = self.home.store.publish(execution, new, claim=self.claim, properties=about)
        except BaseException as error:  # SystemExit too: a component that exits has failed, and the run goes on
            canceled = isinstance(error, (KeyboardInterrupt, Canceled))
            if isinstance(error, DrivetrainError) and error.where:  # of a saved graph: a definition and a statement
                error.where = line_of(error.where, self.run.project) or error.where
            about = failure_properties(error) | self.metrics.properties | self._searched | self._spent(use)
            try:
                if not canceled:
                    about |= self.retries.plan(error)  # which may raise: the user's predicate
            finally:
                try:
                    failed = self._give_up(execution, error, about, canceled=canceled)
                finally:
                    self._remove_unpublished(execution)
            if canceled or not failed:
                raise
            return replace(execution, properties={**execution.properties, **about}), error
        finally:
            # Last of all: as long as the staging folder is there, a sweep after a crash finds this execution by it, and
            # removes what it moved into place and never committed.
            _remove(self.home.payloads.staging / execution.uid)
            METER.end(use)
        if self.home.payloads.url is not None:
            drop(folder, self.home.payloads, self.home.store.artifact_by_uri)
        _remove(folder)
        self._remove_left(folder.parent)
        return replace(execution, state="COMPLETE", properties={**execution.properties, **about}), published

    def _spent(self, use: ResourceUse) -> dict[str, Any]:
        """How long it took, by a clock that nobody sets, and what it used of the machine."""
        from .resources import METER

        return {"seconds": round(time.monotonic() - self.begin, 6), "resources": METER.recorded(use)}

    def _remove_left(self, folders: Path) -> None:
        """Remove what runs left that did the same work without the cache, and failed: it is theirs alone."""
        if self.claim.cache_key != self.resolved.key:
            for left in folders.glob(f"{self.resolved.key}.*"):
                if self.home.store.claim_holder(left.name) is None:
                    shutil.rmtree(left, ignore_errors=True)

    def _start(self) -> tuple[ExecutionRecord, ResourceUse]:
        from .resources import METER

        store, use = self.home.store, None
        claimed_alone = {} if self.claim.cache_key == self.resolved.key else {"claim": self.claim.cache_key}
        try:
            use = METER.begin(self.task.node.options.accelerators)
            keep_sources(store, self.resolved)
            execution = store.start(
                self.task.node.component,
                contexts=self.contexts,
                inputs=self.resolved.inputs,
                cache_key=self.resolved.key,
                preimage=self.resolved.preimage,
                properties={"run": self.run.id, "node": self.task.name, "reason": self.reason, **claimed_alone},
            )
        except BaseException:
            if use is not None:
                METER.end(use)
            with contextlib.suppress(DrivetrainError):
                store.release(self.claim)
            raise
        return execution, use

    def _give_up(
        self, execution: ExecutionRecord, error: BaseException, about: Mapping[str, Any], *, canceled: bool
    ) -> bool:
        """Record that an execution failed or was cancelled.

        Returns:
            False where it had published already.

        Raises:
            LeaseLost: The work is another's by now, so that this error is none; not where the run was cancelled.
        """
        try:
            self.home.store.finish(
                execution,
                "CANCELED" if canceled else "FAILED",
                error=format_traceback(error),
                claim=self.claim,
                properties=about,
            )
        except LeaseLost:
            if not canceled:
                if self.home.store.execution(execution.uid).state != "COMPLETE":
                    raise
                return False
        except DrivetrainError:
            pass  # a store on a full disk: the owner's death will tell
        return True

    def _remove_unpublished(self, execution: ExecutionRecord) -> None:
        """Remove the payloads of an execution that did not become COMPLETE; what this cannot reach, fsck finds."""
        with contextlib.suppress(DrivetrainError, OSError):
            self.home.remove_unpublished(execution)

    def _call(self, execution: ExecutionRecord, folder: Path) -> dict[str, Artifact]:
        """Call the component's function; gives its outputs by key, checked."""
        component = self.resolved.component
        keywords = arguments(self.home, self.resolved, self._progress)
        for name in component.inputs:
            value = keywords[name]
            self.inputs[name] = value if isinstance(value, list) else [value] if isinstance(value, Artifact) else []
        options = self.run.options
        leave = enter(
            LaunchContext(
                run=self.run.id,
                node=self.task.name,
                execution=execution.uid,
                base=self.home.base,
                executor=options.executor,
                executor_options=options.executor_options,
                progress=self._progress,
                note=lambda text: self.observer.note(self.task.name, redact(text)),
                printed=lambda text, last: self.observer.printed(self.task.name, text, last),
                check=self._check,
                preflight=partial(preflight, self.home, self.run, self.task),
                work=folder,
                decision=lambda: decision(self.home, self.run, self.task.name),
                register=self._register,
                provenance=self._provenance,
                pushed=self._pushed,
                trials=partial(self._trials, execution),
                metrics=self.metrics,
            )
        )
        # A process that serves a run is ended by that, by who says why (`runners.children`): what it closed may be what
        # it would say it by.
        served = processes.MARK in os.environ
        self.reads.note_files_named(self.resolved.modules, self.run.project)
        try:
            self._check()  # a stop may have come since the task began
            preflight_downstream(self.home, self.run, self.task)
            with (
                contextlib.nullcontext() if served else self.home.store.files_kept(component.name),
                explain_full_disk(f"running {self.task.name}"),
                recording(self.reads),
                SHARED_STATE.kept(),
                processes.forks_end(),
                self.metrics.written_to(self.home.metrics_file(self.claim.cache_key)),
            ):
                result = component.fn(**keywords)
        finally:
            leave()
            for search in self.searches:
                search.close()
        self._refuse_changed_inputs()
        return checked_outputs(component, result, self.home.payloads.staging / execution.uid)

    def _register(self, model: Artifact, name: str, alias: str, why: str) -> int:
        """Have an input be a version of a registered model; see `LaunchContext.register`."""
        from .registering import register  # late: few components register anything

        return register(self.home, self.run, model, name, alias, why)

    def _trials(self, execution: ExecutionRecord, name: str) -> TrialRecorder:
        from .trials import SearchRecords  # late: few components search

        note = partial(self.observer.note, self.task.name)
        search = SearchRecords(self.home.store, execution, self.resolved.inputs, self.claim, name, note)
        self.searches.append(search)
        return search

    @property
    def _searched(self) -> dict[str, Any]:
        """Which search it worked on, for its execution to record."""
        return {SEARCH: self.searches[0].name} if self.searches else {}

    def _refuse_changed_inputs(self) -> None:
        """See that the component left its inputs as they were: others read them, and they are cached.

        Raises:
            InputError: It did not.
        """
        for name, records in self.resolved.inputs.items():
            for record in records:
                if record.external is None and (changes := self.home.payloads.changes(record.uri, record.fingerprint)):
                    component = self.resolved.component
                    raise InputError(
                        f"{component.name} changed its input {name}: {'; '.join(changes[:3])}",
                        where=component.where,
                        fix="copy what it changes into its output; then run `drivetrain fsck --repair`, and run again",
                    )

    def _check(self) -> None:
        if self.cancel.is_set():
            raise Canceled("the run was stopped")

    def _provenance(self, uri: str) -> Mapping[str, object]:
        from .provenance import provenance  # late: few components ask for it

        return provenance(self.home, self.run.id, self.run.pipeline.name, self.task.name, uri)

    def _pushed(self) -> list[Mapping[str, object]]:
        return [record.properties for record in self.home.store.artifacts(type="PushedModel", state=None)]

    def _progress(self, done: int, total: int | None, unit: str) -> None:
        self._check()
        self.observer.progress(self.task.name, done, total, unit)

    def _sent(
        self, execution: ExecutionRecord, folder: Path
    ) -> tuple[dict[str, list[StagedArtifact]], Mapping[str, Any]]:
        """The outputs behind the payloads' URL, and what the execution records of itself.

        They are what an earlier attempt made and did not get there, else they are made now.
        """
        component, payloads = self.resolved.component, self.home.payloads
        anyones = self.task.node.cache and self.run.options.cache
        upload = unsent(folder, payloads, None if anyones else self.run.id)
        if upload is not None and component.verify is not None:
            artifacts = upload.artifacts(payloads, component.outputs)
            undone = component.verify(artifacts, self.resolved.parameters, self.home.base)
            upload = None if isinstance(undone, str) else upload
        if upload is not None and change_since(upload.about, self.run, self.resolved):
            upload = None
        if upload is None:
            outputs = self._call(execution, folder)
            uris = {key: self._uri(execution, key) for key in outputs}
            upload = pack(folder, execution.uid, self.run.id, outputs, uris, self._about(outputs))
        else:
            self.observer.note(self.task.name, "its outputs were made before: what is missing of them is sent")
        return upload.send(payloads, self._progress), upload.about

    def _about(self, outputs: Mapping[str, Artifact]) -> dict[str, Any]:
        """What the execution records of its work: what outputs say of themselves, what was read and measured."""
        names = {name: [each.properties_read for each in inputs] for name, inputs in self.inputs.items()}
        read = properties_of(self.resolved, {name: of_each for name, of_each in names.items() if any(of_each)})
        about: dict[str, Any] = {"summaries": _summaries(outputs), "reads": self._recorded_reads()}
        about |= {"properties_read": read, INPUTS_COMPARED: bool(self.resolved.inputs)}
        return (
            {name: redacted_json(value) for name, value in about.items() if value}
            | self.metrics.properties
            | self._searched
        )

    def _recorded_reads(self) -> list[list[object]]:
        """What the user's code opened besides its inputs: the root's files and those of parameters count otherwise."""
        sets = (value for value in self.resolved.parameters.values() if isinstance(value, FileSet))
        root, project = self.home.root, self.run.project
        folders = self.home.entries if project.is_relative_to(root) else (root,)
        without = [*folders, *(file.path for each in sets for file in each.files)]
        recorded, more = self.reads.record(self.run.project, self.resolved.modules, without)
        if self.reads.changed:
            first, *others = self.reads.changed
            names = f"{first} and {len(others)} more" if others else first
            text = f"{names} changed meanwhile, which counts as its result: what it reads is named by dt.files"
            self.observer.note(self.task.name, text)
        if more:
            text = f"its code opened {more} files too many to follow: a change of them is not noticed; use dt.files"
            self.observer.note(self.task.name, text)
        return recorded

    def _store_payload(self, execution: ExecutionRecord, key: str, artifact: Artifact) -> StagedArtifact:
        uri = self._uri(execution, key)
        content = self.home.payloads.publish(artifact.path, uri)
        properties = redacted_json(artifact.properties)
        return StagedArtifact(type(artifact).__name__, uri, content.fingerprint, content.size, properties)

    @contextlib.contextmanager
    def _staged(self, execution: ExecutionRecord) -> Iterator[None]:
        """`Artifact.new` makes its folders in this execution's staging folder."""
        count = 0
        folder = self.home.payloads.staging / execution.uid
        with explain_full_disk(f"staging the outputs of {self.task.name}"):
            folder.mkdir(parents=True)

        def provide(kind: type[Artifact]) -> Path:
            nonlocal count
            count += 1
            return self.home.payloads.stage(self.task.node.id, execution.uid, f"{kind.__name__}-{count}")

        token = staging.set(provide)
        try:
            yield
        except BaseException:
            # Before it is recorded how this ended, which may need the room.
            for path in folder.glob("*/"):
                shutil.rmtree(path, ignore_errors=True)
            raise
        finally:
            staging.reset(token)

    def _uri(self, execution: ExecutionRecord, key: str) -> str:
        return f"artifacts/{self.task.node.id}/{execution.uid}/{key}"


def _summaries(outputs: Mapping[str, Artifact]) -> Mapping[str, Any]:
    """What the outputs say of themselves, as JSON by key.

    It is recorded with the execution, because who shows a run later may have neither the code of a type nor the
    payloads on this machine.
    """
    summaries = {key: summary_of(artifact) for key, artifact in outputs.items() if summarizes_itself(artifact)}
    return {key: summary.to_json() for key, summary in summaries.items() if summary}


def _remove(folder: Path) -> None:
    """Remove a folder, which mostly is empty or was never made."""
    try:
        folder.rmdir()
    except FileNotFoundError:
        pass
    except OSError:
        shutil.rmtree(folder, ignore_errors=True)


def arguments(home: Home, work: ResolvedTask, progress: Progress = no_progress) -> dict[str, object]:
    """What a component's function is called with; `progress` hears of what is fetched for it."""
    keywords: dict[str, object] = dict(work.parameters)
    for name, spec in work.component.inputs.items():
        artifacts = [
            spec.type.from_record(record, home.payloads.local(record.uri, record.fingerprint, progress))
            for record in work.inputs.get(name, ())
        ]
        keywords[name] = artifacts if spec.many else artifacts[0] if artifacts else None
    return keywords


def checked_outputs(component: Component[..., object], result: object, folder: Path) -> dict[str, Artifact]:
    """What a component's function returned, by key; a JSON value as a `Value`.

    Raises:
        BuildError: It is not what the function is annotated with, or was not made below the folder.
    """
    keys = list(component.outputs)
    named = hasattr(component.result_type, "_fields")
    values = list(result) if named and isinstance(result, tuple) else [result]
    if len(values) != len(keys):
        raise BuildError(f"{component.name} returned {len(values)} outputs, not {', '.join(keys)}")
    outputs: dict[str, Artifact] = {}
    for (key, kind), value in zip(component.outputs.items(), values, strict=True):
        if key in component.scalars:
            outputs[key] = _value(component, key, value)
            continue
        if not isinstance(value, kind):
            raise BuildError(
                f"{component.name} returned {type(value).__name__} as {key!r}, not {kind.__name__}",
                where=component.where,
                fix=f"return {kind.__name__}.new(...)",
            )
        if not value.path.is_relative_to(folder):
            raise BuildError(
                f"{component.name} returned a {kind.__name__} that it did not make",
                where=component.where,
                fix=f"write the output into {kind.__name__}.new(...)",
            )
        outputs[key] = value
    return outputs


def _value(component: Component[..., object], key: str, value: object) -> Value:
    """A returned JSON value as an artifact."""
    hint = component.scalars[key]
    if not accepts(hint, value):
        raise BuildError(
            f"{component.name} returned {value!r:.60} as {key!r}, not {spell(hint)}",
            where=component.where,
            fix="return a value of the annotated type, or annotate the type it has",
        )
    try:
        return Value.of(list(value) if isinstance(value, tuple) else value)
    except InputError as error:  # NaN, say
        text = f"{component.name} returned {value!r:.60} as {key!r}: {error.message.removeprefix('Value.value: ')}"
        raise BuildError(text, where=component.where, fix=error.fix) from error
