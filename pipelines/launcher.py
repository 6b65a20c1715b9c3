"""`launch`, the only way a node runs: inputs, conditions, key, claim, execute in staging, publish at once."""

from __future__ import annotations

import contextlib
import shutil
import signal
import threading
import time
import traceback
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Literal

from ..errors import BuildError, Canceled, DrivetrainError
from ..metadata import (
    Artifact,
    ArtifactRecord,
    Claim,
    ContextRecord,
    ExecutionRecord,
    LeaseLost,
    NewArtifact,
    Owner,
    explain,
    staging,
)
from ..metadata.payload import explain_full_disk
from .component import Component
from .context import LaunchContext, enter
from .home import Home, Run
from .ir import Node
from .outcome import Guarded, NodeResult, Observer, Silent, State
from .resolve import Resolver, Work

LEASE = 60.0
"""Seconds after which the claim of a silent process is taken over; a dead process on the same host loses it at once."""


class Launcher:
    """Launches the nodes of one run.

    Args:
        home: Where everything lies.
        run: The run.
        observer: Who is told.
    """

    def __init__(self, home: Home, run: Run, observer: Observer | None = None) -> None:
        self.home = home
        self.run = run
        self.observer = Guarded(observer or Silent())
        self.cancel = threading.Event()
        self.resolver = Resolver(home.store, run, home.base)

    def launch(self, node_id: str) -> NodeResult:
        """Run a node, or find out why it need not or must not run. Never raises; what happened is in the store."""
        begin = time.monotonic()
        node = self.run.pipeline[node_id]
        try:
            self.observer.started(node_id)
            result = self._launch(node)
        except (KeyboardInterrupt, Canceled):
            self.cancel.set()
            result = NodeResult(node_id, "CANCELED", reason="stopped while running")
        except BaseException as error:
            # Not the component's failure, which is recorded already: what it needs, the store or the disk.
            with contextlib.suppress(DrivetrainError):  # the store itself may be what fails
                self._record_failure(node, error)
            result = _failed(node, error)
        result = replace(result, seconds=time.monotonic() - begin)
        self.observer.ended(result)
        return result

    def earlier(self, node_id: str) -> NodeResult | None:
        """How a node ended in this run before it was interrupted, if it ended well and all of it is still there."""
        result = self.recorded(node_id)
        if result is None or result.state not in ("COMPLETE", "CACHED"):
            return None
        return result if all(self._present(r) for records in result.outputs.values() for r in records) else None

    def recorded(self, node_id: str) -> NodeResult | None:
        """What the store says of a node in this run, whichever process launched it; None if none did."""
        execution = self.resolver.execution(node_id)
        if execution is None:
            return None
        facts, node = execution.properties, self.run.pipeline[node_id]
        reason, users = str(facts.get("reason", "")), bool(facts.get("user_error"))
        if execution.state in ("COMPLETE", "CACHED"):
            result = self._ended(node, execution, execution.state, reason)
        elif execution.state in ("SKIPPED", "BLOCKED", "FAILED", "CANCELED"):
            result = NodeResult(node_id, execution.state, reason=reason, user_error=users)
        else:
            state: State = "CANCELED" if self.cancel.is_set() else "FAILED"
            result = NodeResult(node_id, state, reason="its process ended without a word: killed, or out of memory")
        return replace(result, seconds=execution.seconds or 0.0)

    def _launch(self, node: Node) -> NodeResult:
        hindered = self._hindered(node)
        if hindered is not None:
            state, reason = hindered
            self._record(node, state, reason)
            return NodeResult(node.id, state, reason=reason)
        work = self.resolver.work(node)
        told: Owner | None = None
        while True:
            reason = "the cache is off for it"
            if node.cache and self.run.options.cache:
                hit, reason = self._find(node, work)
                if hit is not None:
                    reason = f"same work as {self._origin(hit)}"
                    record = self._record(node, "CACHED", reason, work=work, cached_from=hit)
                    return self._ended(node, record, "CACHED", reason)
            claim = self.home.store.claim(work.key, owner=Owner.current(), lease=LEASE)
            if claim is None:
                told = self._wait(node, work.key, told)
                continue
            if claim.displaced is not None:
                self.home.sweep()
            if node.cache and self.run.options.cache and self._find(node, work)[0] is not None:
                self.home.store.release(claim)  # published between the look and the claim
                continue
            try:
                return self._execute(node, work, claim, reason)
            except LeaseLost as error:
                self.observer.note(node.id, error.message)  # who took over will publish, and is waited for

    def _hindered(self, node: Node) -> tuple[Literal["SKIPPED", "BLOCKED"], str] | None:
        """Why a node must not run: an upstream that did not end well, a veto, a condition that is false."""
        for name in node.upstream:
            execution = self.resolver.execution(name)
            state = execution.state if execution else "CANCELED"
            if state == "SKIPPED":
                if name in node.after and name not in node.needs:
                    continue  # a gate under a condition that is false was not asked, so it did not object
                return "SKIPPED", f"{name} was skipped"
            if state not in ("COMPLETE", "CACHED"):
                return "BLOCKED", f"{name} {'is blocked' if state == 'BLOCKED' else 'did not end well'}"
        for gate in node.after:
            vetoes = self._vetoes(gate)
            if vetoes:
                return "BLOCKED", f"{gate} vetoed: {vetoes}"
        for condition in node.conditions:
            if not self.resolver.property(condition.node, condition.output, condition.property):
                return "SKIPPED", f"{condition} is false"
        return None

    def _vetoes(self, gate: str) -> str:
        """What a gate objects to, empty where it passed."""
        records = [record for records in self.resolver.outputs(gate).values() for record in records]
        return "; ".join(
            str(record.properties.get("summary") or "did not pass")
            for record in records
            if record.properties.get("passed") is False
        )

    def _find(self, node: Node, work: Work) -> tuple[ExecutionRecord | None, str]:
        """An earlier execution that can stand in, else why there is none."""
        hit = self.home.store.find_cached(work.key)
        if hit is None:
            return None, self._why(node, work)
        outputs = self.home.store.outputs(hit)
        for records in outputs.values():
            for record in records:
                if not self._present(record):
                    return None, f"{record.uri} is gone from the disk"
        if work.component.verify is not None:
            artifacts = {key: self._artifact(work.component.outputs[key], r[0]) for key, r in outputs.items()}
            missing = work.component.verify(artifacts, work.parameters, self.home.base)
            if missing:
                return None, missing
        return hit, ""

    def _why(self, node: Node, work: Work) -> str:
        """Why the key is new: what changed since the node last ran, in any run."""
        last = self.home.store.last_preimage(node.component, self._node_context(node))
        if last is None:
            return "first run"
        changes = explain(last, work.preimage)
        more = f" (and {len(changes) - 3} more)" if len(changes) > 3 else ""
        return "; ".join(changes[:3]) + more if changes else "its last execution did not end well"

    def _wait(self, node: Node, key: str, told: Owner | None) -> Owner | None:
        """Wait a moment for whoever does the same work; gives who that is, named to the observer once."""
        holder = self.home.store.claim_holder(key)
        if holder is not None and holder != told:
            self.observer.note(node.id, f"waiting for {holder}, which does the same work")
        if self.cancel.wait(0.2):
            raise Canceled("the run was stopped")
        return holder

    def _execute(self, node: Node, work: Work, claim: Claim, reason: str) -> NodeResult:
        """Do the work under a claim and publish it, or record why not.

        Raises:
            LeaseLost: Another process took over meanwhile.
        """
        store = self.home.store
        try:
            execution = store.start(
                node.component,
                contexts=self._contexts(node),
                inputs=work.inputs,
                cache_key=work.key,
                preimage=work.preimage,
                properties={"run": self.run.id, "node": node.id, "reason": reason},
            )
        except BaseException:
            with contextlib.suppress(DrivetrainError):
                store.release(claim)
            raise
        folder = self.home.root / "work" / "nodes" / work.key
        try:
            with self._staged(node, execution), self._heartbeat(claim):
                outputs = self._call(node, work, execution, folder)
                new = {key: self._store_payload(node, execution, key, artifact) for key, artifact in outputs.items()}
                store.publish(execution, {key: [item] for key, item in new.items()}, claim=claim)
        except BaseException as error:  # SystemExit too: a component that exits has failed, and the run goes on
            canceled = isinstance(error, (KeyboardInterrupt, Canceled))
            try:
                self._give_up(execution, claim, error, canceled=canceled)
            finally:
                self._take_back(node, execution, list(work.component.outputs))
            if canceled:
                raise
            return _failed(node, error)
        shutil.rmtree(folder, ignore_errors=True)
        return self._ended(node, execution, "COMPLETE", reason)

    def _give_up(self, execution: ExecutionRecord, claim: Claim, error: BaseException, *, canceled: bool) -> None:
        """Record that an execution failed or was cancelled.

        Raises:
            LeaseLost: The work is another's by now, so that this error is none; not where the run was cancelled.
        """
        try:
            self.home.store.finish(
                execution,
                "CANCELED" if canceled else "FAILED",
                error=_trace(error),
                claim=claim,
                properties=_facts(error),
            )
        except LeaseLost:
            if not canceled:
                raise
        except DrivetrainError:
            pass  # a store on a full disk: the owner's death will tell

    def _take_back(self, node: Node, execution: ExecutionRecord, keys: list[str]) -> None:
        """Remove the payloads of an execution that did not become COMPLETE; what this cannot reach, fsck finds."""
        with contextlib.suppress(DrivetrainError, OSError):
            if self.home.store.execution(execution.uid).state != "COMPLETE":
                for key in keys:
                    self.home.payloads.remove(_uri(node, execution, key))

    def _call(self, node: Node, work: Work, execution: ExecutionRecord, folder: Path) -> dict[str, Artifact]:
        """Call the component's function; gives its outputs by key, checked."""
        component = work.component
        arguments: dict[str, object] = dict(work.parameters)
        for name, spec in component.inputs.items():
            artifacts = [self._artifact(spec.type, record) for record in work.inputs[name]]
            arguments[name] = artifacts if spec.many else artifacts[0] if artifacts else None
        options = self.run.options

        def progress(done: int, total: int | None, unit: str) -> None:
            if self.cancel.is_set():
                raise Canceled("the run was stopped")
            self.observer.progress(node.id, done, total, unit)

        leave = enter(
            LaunchContext(
                run=self.run.id,
                node=node.id,
                base=self.home.base,
                executor=options.executor,
                executor_options=options.executor_options,
                progress=progress,
                note=lambda text: self.observer.note(node.id, text),
                work=folder,
            )
        )
        try:
            with explain_full_disk(f"running {node.id}"):
                result = component.fn(**arguments)
        finally:
            leave()
        return _outputs(component, result, self.home.payloads.staging_folder(execution.uid))

    def _store_payload(self, node: Node, execution: ExecutionRecord, key: str, artifact: Artifact) -> NewArtifact:
        uri = _uri(node, execution, key)
        content = self.home.payloads.publish(artifact.path, uri)
        return NewArtifact(type(artifact).__name__, uri, content.fingerprint, content.size, artifact.properties)

    @contextlib.contextmanager
    def _staged(self, node: Node, execution: ExecutionRecord) -> Iterator[None]:
        """`Artifact.new` makes its folders in this execution's staging folder, which is gone afterwards."""
        made = 0

        def provide(kind: type[Artifact]) -> Path:
            nonlocal made
            made += 1
            return self.home.payloads.stage(node.id, execution.uid, f"{kind.__name__}-{made}")

        token = staging.set(provide)
        try:
            yield
        finally:
            staging.reset(token)
            shutil.rmtree(self.home.payloads.staging_folder(execution.uid), ignore_errors=True)

    @contextlib.contextmanager
    def _heartbeat(self, claim: Claim) -> Iterator[None]:
        done = threading.Event()

        def beat() -> None:
            # A signal that lands in this thread would not wake the main one from a sleep or a wait.
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
            while not done.wait(LEASE / 3):
                # A lost lease shows when publishing, which is fenced; a busy store is tried again at the next beat.
                with contextlib.suppress(DrivetrainError):
                    self.home.store.heartbeat(claim)

        thread = threading.Thread(target=beat, name="drivetrain-heartbeat", daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()

    def _contexts(self, node: Node) -> list[ContextRecord]:
        store = self.home.store
        pipeline = store.context("pipeline", self.run.pipeline.name)
        return [pipeline, self.run.context, self._node_context(node)]

    def _node_context(self, node: Node) -> ContextRecord:
        return self.home.store.context("node", f"{self.run.pipeline.name}.{node.id}")

    def _record(
        self,
        node: Node,
        state: Literal["CACHED", "SKIPPED", "BLOCKED"],
        reason: str,
        *,
        work: Work | None = None,
        cached_from: ExecutionRecord | None = None,
    ) -> ExecutionRecord:
        return self.home.store.record(
            node.component,
            state,
            contexts=self._contexts(node),
            inputs=work.inputs if work else None,
            cache_key=work.key if work else None,
            preimage=work.preimage if work else None,
            cached_from=cached_from,
            properties={"run": self.run.id, "node": node.id, "reason": reason},
        )

    def _record_failure(self, node: Node, error: BaseException) -> None:
        """A node that failed before it had a key."""
        self.home.store.record(
            node.component,
            "FAILED",
            contexts=self._contexts(node),
            properties={"run": self.run.id, "node": node.id, **_facts(error)},
            error=_trace(error),
        )

    def _ended(self, node: Node, execution: ExecutionRecord, state: str, reason: str) -> NodeResult:
        outputs = {key: tuple(records) for key, records in self.home.store.outputs(execution).items()}
        vetoed = node.gates is not None and any(
            record.properties.get("passed") is False for records in outputs.values() for record in records
        )
        return NodeResult(
            node.id, "CACHED" if state == "CACHED" else "COMPLETE", reason=reason, outputs=outputs, vetoed=vetoed
        )

    def _origin(self, execution: ExecutionRecord) -> str:
        return f"run {execution.properties['run']}"

    def _artifact(self, kind: type[Artifact], record: ArtifactRecord) -> Artifact:
        return kind.from_record(record, self.home.payloads.path(record.uri))

    def _present(self, record: ArtifactRecord) -> bool:
        return self.home.payloads.present(record.uri)


def _uri(node: Node, execution: ExecutionRecord, key: str) -> str:
    return f"artifacts/{node.id}/{execution.uid}/{key}"


def _outputs(component: Component[..., object], result: object, folder: Path) -> dict[str, Artifact]:
    keys = list(component.outputs)
    values = list(result) if isinstance(result, tuple) else [result]
    if len(values) != len(keys):
        raise BuildError(f"{component.name} returned {len(values)} outputs, not {', '.join(keys)}")
    found: dict[str, Artifact] = {}
    for (key, kind), value in zip(component.outputs.items(), values, strict=True):
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
        found[key] = value
    return found


def _failed(node: Node, error: BaseException) -> NodeResult:
    return NodeResult(node.id, "FAILED", reason=_text(error), user_error=_is_users(error))


def _text(error: BaseException) -> str:
    if isinstance(error, (KeyboardInterrupt, Canceled)):
        return "stopped while running"
    if isinstance(error, DrivetrainError):
        return str(error)
    return f"{type(error).__name__}: {error}"


def _trace(error: BaseException) -> str:
    return "".join(traceback.format_exception(error))


def _facts(error: BaseException) -> dict[str, object]:
    """What the store keeps of a failure beside its traceback."""
    return {"reason": _text(error), "user_error": _is_users(error)}


def _is_users(error: BaseException) -> bool:
    return isinstance(error, DrivetrainError)
