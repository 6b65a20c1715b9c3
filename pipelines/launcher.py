"""`launch`, the only way a node runs: inputs, conditions, key, claim, execute in staging, publish at once."""

from __future__ import annotations

import contextlib
import threading
import time
from dataclasses import replace
from functools import partial
from typing import Literal

from ..errors import Canceled, DrivetrainError
from ..metadata import (
    ArtifactRecord,
    ContextRecord,
    ExecutionRecord,
    LeaseLost,
    Owner,
    explain,
)
from .attempt import Attempt
from .home import Home, Run
from .ir import Node
from .outcome import Guarded, NodeResult, Observer, Silent, State, facts, traced
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
        self.resolver = Resolver(home.store, run, home.base, home.root / "work")

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
            result = NodeResult.failed(node_id, error)
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
        work = self.resolver.work(node, partial(self._progress, node.id))
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
            attempt = Attempt(
                self.home, self.run, node, work, claim, self._contexts(node), reason, self.observer, self.cancel
            )
            try:
                execution, error = attempt.carry_out()
            except LeaseLost as lost:
                self.observer.note(node.id, lost.message)  # who took over will publish, and is waited for
                continue
            if error is not None:
                return NodeResult.failed(node.id, error)
            return self._ended(node, execution, "COMPLETE", reason)

    def _progress(self, node: str, done: int, total: int | None, unit: str) -> None:
        if self.cancel.is_set():
            raise Canceled("the run was stopped")
        self.observer.progress(node, done, total, unit)

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
                ends = {"FAILED": "failed", "BLOCKED": "is blocked", "CANCELED": "was stopped"}
                return "BLOCKED", f"{name} {ends.get(state, 'was interrupted')}"
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
            artifacts = {key: self.home.artifact(work.component.outputs[key], r[0]) for key, r in outputs.items()}
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
            properties={"run": self.run.id, "node": node.id, **facts(error)},
            error=traced(error),
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

    def _present(self, record: ArtifactRecord) -> bool:
        return self.home.payloads.present(record.uri)
