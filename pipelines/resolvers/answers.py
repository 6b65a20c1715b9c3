"""What a run was told of things that change: asked once, the same for all its processes, retries and resumptions."""

from __future__ import annotations

from collections.abc import Callable

from ...digest import digest
from ...metadata import ContextRecord, MetadataStore
from ..ir.ir import Json


class Answers:
    """The answers that a run has had, kept in its store.

    Args:
        store: Where they are kept.
        run: The run's record.
        kept: Whether what is asked for the first time is kept, so that whoever asks next hears the same.
    """

    def __init__(self, store: MetadataStore, run: ContextRecord, *, kept: bool = True) -> None:
        self._store = store
        self._run = run
        self._kept = kept

    def once(self, question: Json, ask: Callable[[], Json]) -> Json:
        """What the run was told when it first asked this; of two processes that ask at once, both hear the first."""
        name = f"{self._run.name}/{digest('drivetrain-question-v1', question)[:32]}"
        there = self._store.find_context("answer", name)
        if there is None and not self._kept:
            return ask()
        if there is None:
            there = self._store.context("answer", name, {"question": question, "answer": ask()})
        return there.properties["answer"]
