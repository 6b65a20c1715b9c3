"""What triggers see at a moment of a store and of the files behind a project's patterns."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, wait
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

from ...errors import InputError
from ...metadata import ArtifactRecord
from ..launcher.home import Home
from ..project.files import fetch_offsets, fetch_watermark, is_uri, lister, local
from ..project.spans import parse
from ..triggers.trigger import EndedRun
from .listings import SPANS, SpanListings

_Answer = TypeVar("_Answer")
_SKEW = timedelta(hours=1)
"""How far the clocks of two machines may be apart: one dates the end of a run, another the record of it."""


def _ask_at_once(name: str, question: Callable[[], _Answer]) -> _Answer:
    return question()


class Ask(Protocol):
    """Carries out a question."""

    def __call__(self, name: str, question: Callable[[], _Answer], /) -> _Answer:
        """The answer to the question of that name, or what it raises."""
        ...


class Patience:
    """An `Ask` that waits for an answer for so many seconds, and not again for one that has not come by then.

    A question that is given up goes on in its thread, since nothing ends a call to a driver; asked again, it is not
    carried out a second time: what it answered meanwhile is the answer.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._unanswered: dict[tuple[str, str], Future[Any]] = {}  # Any: as each question answers

    def of(self, schedule: str) -> Ask:
        """The patience with the questions of a schedule."""

        def ask(name: str, question: Callable[[], _Answer]) -> _Answer:
            key = (schedule, name)
            answer: Future[_Answer] | None = self._unanswered.get(key)
            seconds = self._seconds if answer is None else 0.0
            if answer is None:
                answer = self._unanswered[key] = Future()
                # A daemon: the scheduler ends without the answer.
                threading.Thread(target=_carry_out, args=(question, answer), daemon=True).start()
            wait([answer], seconds)
            if not answer.done():
                raise InputError(
                    f"{name} has not answered within {self._seconds:g} s", fix="see whether it can be reached from here"
                )
            del self._unanswered[key]
            return answer.result()

        return ask


def _carry_out(question: Callable[[], _Answer], answer: Future[_Answer]) -> None:
    try:
        answer.set_result(question())
    except BaseException as error:  # raised where it was asked
        answer.set_exception(error)


class StoreView:
    """The store as it was at a moment, by the times that it recorded; files and databases as they are now.

    Args:
        home: The root.
        project: Where relative patterns are looked up first; then beside the root.
        now: The moment, in UTC.
        ask: Carries out a question to what may not answer, which it gets with a name.
        listings: What files there were at the last look.
    """

    def __init__(
        self,
        home: Home,
        project: Path,
        now: datetime,
        ask: Ask = _ask_at_once,
        listings: SpanListings | None = None,
    ) -> None:
        self.now = now
        self._ask = ask
        self._listings = SpanListings() if listings is None else listings
        self._home = home
        self._folders = (project, home.base)

    def artifacts(self, kind: str, after: int, pipeline: str, made_by: str) -> Sequence[ArtifactRecord]:
        """See `TriggerView.artifacts`."""
        store, context = self._home.store, None
        if pipeline:
            maker = ("node", f"{pipeline}.{made_by}") if made_by else ("pipeline", pipeline)
            context = store.find_context(*maker)
            if context is None:
                return []
        records = store.artifacts(type=kind, context=context, after=after)
        return [record for record in reversed(records) if record.created_at <= self.now]

    def newest_artifact(self) -> int:
        """See `TriggerView.newest_artifact`."""
        store = self._home.store
        newest = store.artifacts(state=None, limit=1)
        if newest and newest[0].created_at > self.now:  # a moment of the past
            newest = [each for each in store.artifacts(state=None) if each.created_at <= self.now]
        return newest[0].id if newest else 0

    def ended_runs(self, pipeline: str, after: datetime) -> Sequence[EndedRun]:
        """See `TriggerView.ended_runs`."""
        ended = []
        since = after - _SKEW
        for context in self._home.store.contexts("run", limit=None, changed_after=since):
            facts = context.properties
            if facts.get("pipeline") != pipeline or not facts.get("finished") or facts["state"] == "RUNNING":
                continue
            finished = datetime.fromisoformat(facts["finished"]).astimezone(UTC)
            if after < finished <= self.now:
                ended.append(EndedRun(context.name, facts["state"], finished))
        return sorted(ended, key=lambda run: (run.finished, run.id))

    def watermark(self, connection: str, query: str) -> Sequence[Sequence[str | None]]:
        """See `TriggerView.watermark`."""
        return self._ask(f"{connection} ({query:.60})", partial(fetch_watermark, connection, query, self._folders))

    def offsets(self, servers: str, topic: str) -> Mapping[int, int]:
        """See `TriggerView.offsets`."""
        return self._ask(f"{servers} ({topic})", partial(fetch_offsets, servers, topic))

    def spans(self, pattern: str) -> Sequence[tuple[int, int | None]]:
        """See `TriggerView.spans`."""
        parsed = parse(local(pattern))
        if not is_uri(pattern) and "**" not in pattern:
            return self._ask(pattern, partial(self._listings.newest, parsed, self._folders))
        paths, _ = self._ask(pattern, partial(lister(self._folders), parsed.filled({})))
        newest: dict[int, int | None] = {}
        for path in paths:
            try:
                read = parsed.read(path)
            except InputError:  # a date that does not exist: ExampleGen says so when it is asked for it
                continue
            if read is not None and read[0] < SPANS:  # digits that are no span: the store could not keep it
                span, version, _ = read
                known = newest.get(span)
                newest[span] = version if known is None or version is None else max(known, version)
        return sorted(newest.items())


def moments_of(home: Home) -> list[datetime]:
    """When something came that triggers may wait for: artifacts that were published, runs that ended (UTC)."""
    artifacts = [record.created_at for record in home.store.artifacts()]
    ends = [context.properties.get("finished") for context in home.store.contexts("run", limit=None)]
    return [*artifacts, *(datetime.fromisoformat(end).astimezone(UTC) for end in ends if end)]
