"""The scheduler: a loop over the store's schedules that starts a process for each run that is due.

Any number of schedulers may work on one store: one holds a lease and looks, the others wait for it to end. Nothing
depends on the lease but the work that it saves, see `records`.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from ...errors import DrivetrainError
from ...metadata import Claim, ConflictError, LeaseLost
from ..launcher.heartbeat import heartbeat
from ..launcher.home import STORE, Home
from ..triggers.trigger import ARTIFACTS, RUNS, Signal
from .listings import SpanListings
from .records import ScheduleRecord, Tick, UnreadableSchedule, modified, record_tick, recorded_schedules
from .tick import decide_tick, give_up, is_interrupted, settle
from .view import Patience, StoreView

_LEASE: Final = 60.0
_KEY: Final = "scheduler"
_AFTER_ERROR: Final = timedelta(minutes=1)
"""How long a schedule whose look failed is left alone."""
_ATTEMPTS: Final = 3
"""How often a process is started for a run that ends before the run has begun and does not say why."""

Report = Callable[[str], None]


@dataclass
class _Watched:
    """What the scheduler knows of a schedule between two looks.

    Attributes:
        version: Of its record at the last look.
        signal: What its trigger said then.
        looked: When that was (UTC).
        attempts: Processes started for its pending run.
        process: The last of them, or that which resumes a run.
        resuming: The run that it resumes, "" for none.
        source: The modification time of the pipeline.py that it was last told to register, in nanoseconds.
        error: Why the last look failed, "" where it did not.
        listings: What files there were.
    """

    version: int = 0
    signal: Signal | None = None
    looked: datetime = field(default_factory=lambda: datetime.min.replace(tzinfo=UTC))
    attempts: int = 0
    process: subprocess.Popen[bytes] | None = None
    resuming: str = ""
    source: int | None = None
    error: str = ""
    listings: SpanListings = field(default_factory=SpanListings)


class Scheduler:
    """Looks at the schedules of a store, and starts what is due.

    Args:
        home: The root; runs lie in it.
        clock: The time in UTC.
        report: Called with a line for each thing that happened.
        patience: Seconds for which an answer of files or a database is waited for; meanwhile no other schedule is
            looked at.
    """

    def __init__(
        self,
        home: Home,
        *,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        report: Report = lambda line: None,
        patience: float = 10.0,
    ) -> None:
        self._home = home
        self._clock = clock
        self._report = report
        self._patience = Patience(patience)
        self._watched: dict[str, _Watched] = {}
        self._newest_artifact = 0
        self._newest_run = datetime.min.replace(tzinfo=UTC)
        self._processes: list[subprocess.Popen[bytes]] = []

    def run(self, stop: threading.Event, *, poll: float = 5.0) -> None:
        """Look every `poll` seconds until `stop` is set; runs that were started go on."""
        claim: Claim | None = None
        waiting, failure = False, ""
        while not stop.is_set():
            try:
                claim = claim or self._home.store.claim(_KEY, lease=_LEASE)
                if claim is None:
                    if not waiting:
                        self._report("another scheduler is at work on this store; waiting for it to end")
                    waiting = True
                else:
                    waiting = False
                    with heartbeat.of(self._home.store, claim):
                        while not stop.is_set():
                            self.look()
                            self._home.store.heartbeat(claim)
                            failure = ""
                            stop.wait(poll)
            except DrivetrainError as error:  # a store that restarts, say
                claim = None if isinstance(error, LeaseLost) else claim
                if error.message != failure:
                    self._report(f"{error.message}; trying again")
                failure = error.message
            stop.wait(poll)
        if claim is not None:
            self._home.store.release(claim)

    def look(self) -> None:
        """Look once at every schedule that may have something to say."""
        now = self._clock()
        changed = self._changed(now)
        records = recorded_schedules(self._home)
        following = _following(records)
        for record in records:
            watched = self._watched.setdefault(record.name, _Watched())
            if watched.error and watched.looked <= now < watched.looked + _AFTER_ERROR:
                continue
            try:
                if isinstance(record, UnreadableSchedule):
                    raise record.error
                self._look_at(record, watched, now, changed, follows=record.name in following)
                watched.error = ""
            except ConflictError:
                watched.signal = None  # at the next look
            except Exception as error:  # a database that does not answer, a damaged mark: the others go on
                message = error.message if isinstance(error, DrivetrainError) else f"{type(error).__name__}: {error}"
                if message != watched.error:
                    self._report(f"{record.name}: {message}; trying again every {_AFTER_ERROR.seconds} s")
                watched.error, watched.signal, watched.looked = message, None, now
        for name in self._watched.keys() - {record.name for record in records}:
            del self._watched[name]

    def join(self) -> None:
        """Wait for the processes that it started: for the runs that began."""
        for process in self._processes:
            process.wait()

    def _look_at(
        self, record: ScheduleRecord, watched: _Watched, now: datetime, changed: set[str], *, follows: bool
    ) -> None:
        if record.pending is not None:
            record = self._begin(record, watched, now)
        if record.pending is not None:
            return
        if record.paused:
            watched.signal = None
            return
        if record.schedule.interrupted == "resume" and self._resumes(record, watched, now):
            return
        if follows:
            self._follow_edits(record, watched)
        if record.context.version == watched.version and not _may_differ(watched, now, changed):
            return
        decision = decide_tick(self._home, record, self._view(record, now, watched.listings))
        # Where it started a run, or waits for one to end, nothing tells when to look again.
        keeps = not decision.signal.due
        watched.signal, watched.looked = (decision.signal, now) if keeps else (None, now)
        watched.version = decision.record.context.version
        if decision.run:
            self._report(f"{record.name}: {decision.signal.reason}; run {decision.run}")
            watched.attempts = 0
            self._begin(decision.record, watched, now)

    def _view(self, record: ScheduleRecord, now: datetime, listings: SpanListings) -> StoreView:
        return StoreView(self._home, record.project, now, self._patience.of(record.name), listings)

    def _begin(self, record: ScheduleRecord, watched: _Watched, now: datetime) -> ScheduleRecord:
        """See that a pending run begins; gives the schedule afterwards, without it where it has begun."""
        record = settle(self._home, record)
        if record.pending is None:
            watched.process, watched.attempts, watched.signal = None, 0, None
            return record
        if watched.process is not None and watched.process.poll() is None:
            return record
        if watched.attempts >= _ATTEMPTS:
            reason = f"its process ended {_ATTEMPTS} times before it began, see {self._log(record.pending.run)}"
            watched.process, watched.attempts = None, 0
            return give_up(self._home, record, record.pending, reason, now)
        watched.attempts += 1
        watched.process = self._spawn(record.name, record.pending.run)
        return record

    def _resumes(self, record: ScheduleRecord, watched: _Watched, now: datetime) -> bool:
        """See that a run of a schedule whose process died goes on; whether one is just being resumed."""
        if watched.process is not None and watched.process.poll() is None:
            return watched.resuming != "" and is_interrupted(self._home, watched.resuming)
        watched.process, watched.resuming = None, ""
        for run in record.active:
            attempts = record.resumed.get(run, 0)
            if attempts < _ATTEMPTS and is_interrupted(self._home, run):
                counted = {**record.resumed, run: attempts + 1}
                kept = {name: count for name, count in counted.items() if name in record.active}
                # Before it is resumed, so that one that ends its process is resumed so often and no more.
                self._home.store.update_context(
                    record.context, {"resumed": kept}, expected_version=record.context.version
                )
                reason = f"resumes run {run}, whose process died (attempt {attempts + 1} of {_ATTEMPTS})"
                record_tick(self._home, record.name, Tick(now, "", reason))
                self._report(f"{record.name}: {reason}")
                watched.process, watched.resuming = self._spawn(record.name, run, "--resume"), run
                return True
        return False

    def _spawn(self, name: str, run: str = "", *more: str) -> subprocess.Popen[bytes]:
        """Start a process that begins a schedule's run, or registers the schedule again where there is none."""
        command = [sys.executable, "-P", "-m", f"{__package__}.start", str(self._home.root), name, run, *more]
        store = {} if self._home.url is None else {STORE: self._home.url}  # not as an argument: it may hold a password
        log = self._log(run or "registrations")
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as file:
            # A session of its own: the run outlives the scheduler, and its Ctrl-C.
            process = subprocess.Popen(  # noqa: S603 - our own module
                command,
                env={**os.environ, **store},
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                start_new_session=True,
            )
        self._processes = [*(each for each in self._processes if each.poll() is None), process]
        return process

    def _log(self, run: str) -> Path:
        return self._home.root / "logs" / "scheduler" / f"{run}.log"

    def _follow_edits(self, record: ScheduleRecord, watched: _Watched) -> None:
        """Register a schedule anew whose pipeline.py was changed, unless it is pinned."""
        source = modified(record.project)
        if source not in (None, record.source, watched.source) and record.schedule.version == "follow":
            self._report(f"{record.name}: {record.project / 'pipeline.py'} was edited; registering it again")
            self._spawn(record.name)
            watched.source = source

    def _changed(self, now: datetime) -> set[str]:
        """What came since the last look: ARTIFACTS, RUNS.

        What is from after `now`, by the clock of another machine, has come again at the next look: nobody has seen it.
        """
        store, changed = self._home.store, set()
        artifacts = store.artifacts(state=None, limit=1)
        if artifacts and artifacts[0].id != self._newest_artifact:
            if artifacts[0].created_at <= now:
                self._newest_artifact = artifacts[0].id
            changed.add(ARTIFACTS)
        if runs := store.contexts("run", limit=None, changed_after=min(self._newest_run, now)):
            self._newest_run = min(max(run.updated_at for run in runs), now)
            changed.add(RUNS)
        return changed


def _following(records: Sequence[ScheduleRecord | UnreadableSchedule]) -> frozenset[str]:
    """The schedules that follow edits: of each pipeline that which was registered last, since a file declares one.

    Those that were registered before from another version of the file keep their trigger.
    """
    newest: dict[tuple[Path, str], ScheduleRecord] = {}
    for record in records:
        if isinstance(record, ScheduleRecord):
            key = (record.project, record.pipeline)
            if key not in newest or newest[key].registered < record.registered:
                newest[key] = record
    return frozenset(record.name for record in newest.values())


def _may_differ(watched: _Watched, now: datetime, changed: set[str]) -> bool:
    """Whether a look at a schedule may say something else than the last one."""
    signal = watched.signal
    if signal is None or changed & signal.watches or now < watched.looked:  # the clock was set back
        return True
    if signal.wake is not None and now >= signal.wake:
        return True
    return signal.poll is not None and now >= watched.looked + timedelta(seconds=signal.poll)
