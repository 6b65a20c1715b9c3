"""The trials of a search, each attempt at one an execution of the store, beside the task that searches."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal

from ...errors import DrivetrainError
from ...metadata import Claim, ExecutionRecord, MetadataStore
from ...metadata.records import SEARCH, TRIAL
from ...metadata.writes import Inputs
from ...redaction import redact, redacted_json


class SearchRecords:
    """The trials of one search, recorded by the process that searches.

    Args:
        store: Where.
        execution: Of the task that searches.
        inputs: What that reads, and each trial with it.
        claim: What the task is run under: who takes that over, ends the trials that are RUNNING with the task.
        name: Of the search.
        note: Told what cannot be recorded.

    Raises:
        DrivetrainError: The store cannot be written to.
    """

    def __init__(
        self,
        store: MetadataStore,
        execution: ExecutionRecord,
        inputs: Inputs,
        claim: Claim,
        name: str,
        note: Callable[[str], None],
    ) -> None:
        self.name = name
        self._store, self._inputs, self._note = store, inputs, note
        about = {each: execution.properties[each] for each in ("run", "node")}
        self._about = {**about, "claim": claim.cache_key}
        self._context = store.context(SEARCH, name, parents=[store.context("run", about["run"])])
        self._running: dict[int, ExecutionRecord] = {}

    def begin(self, number: int, properties: Mapping[str, object]) -> None:
        """See `TrialRecorder`."""
        if number in self._running:  # how it ended could not be recorded: it is RUNNING yet
            return
        about = {**self._about, "number": number, **redacted_json(properties)}
        try:
            self._running[number] = self._store.start(
                TRIAL, contexts=[self._context], inputs=self._inputs, properties=about
            )
        except DrivetrainError as error:
            self._note(f"that trial {number} began is not recorded: {error.message}")

    def end(
        self,
        number: int,
        state: Literal["COMPLETE", "FAILED", "CANCELED", "ABANDONED"],
        error: str | None = None,
        properties: Mapping[str, object] | None = None,
    ) -> None:
        """See `TrialRecorder`."""
        if (execution := self._running.get(number)) is None:  # its begin could not be recorded
            return
        about = redacted_json(properties or {})
        try:
            if state == "COMPLETE":
                self._store.publish(execution, {}, properties=about)
            else:
                self._store.finish(execution, state, error=error and redact(error), properties=about)
            del self._running[number]
        except DrivetrainError as problem:
            self._note(f"how trial {number} ended is not recorded: {problem.message}")

    def ended(self) -> set[int]:
        """See `TrialRecorder`."""
        executions = self._store.executions(context=self._context)
        return {each.properties["number"] for each in executions if each.state not in ("RUNNING", "ABANDONED")}

    def close(self) -> None:
        """Record that trials which are RUNNING yet are so no more: the task that searches is over."""
        for number in list(self._running):
            self.end(number, "ABANDONED", "the search was stopped")
