"""What a run found out about things that change (which spans there are, which model is the newest), recorded once.

All processes of the run, its retries and its resumptions get the recorded answer, so that they do the same work.
"""

from __future__ import annotations

from collections.abc import Callable

from ...digest import digest
from ...metadata import ContextRecord, MetadataStore
from ..ir.ir import Json


class Answers:
    """The answers that a run has got, recorded in its store.

    Args:
        store: Where they are kept.
        run: The run's record.
        kept: Whether a new answer is recorded; False for someone who only looks at the run.
    """

    def __init__(self, store: MetadataStore, run: ContextRecord, *, kept: bool = True) -> None:
        self._store = store
        self._run = run
        self._kept = kept

    def once(self, question: Json, ask: Callable[[], Json]) -> Json:
        """The answer to a question: the recorded one, else what `ask` returns, which is recorded.

        Of two processes that ask at the same moment, both get the answer that was recorded first: the store keeps one
        context of a name, and returns it to whoever comes second.
        """
        name = f"{self._run.name}/{digest('drivetrain-question-v1', question)[:32]}"
        there = self._store.find_context("answer", name)
        if there is None and not self._kept:
            return ask()
        if there is None:
            there = self._store.context("answer", name, {"question": question, "answer": ask()})
        return there.properties["answer"]
