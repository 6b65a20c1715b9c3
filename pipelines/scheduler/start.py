"""Carries out a run that a schedule decided to start, in a process of its own.

The scheduler imports nothing of a project, so that each run has the code of its day, and no project can end it.
"""

from __future__ import annotations

import faulthandler
import gc
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

if __name__ == "__main__":
    gc.disable()  # what is imported stays

from ...errors import DrivetrainError, InputError
from ...lazy import end_process
from ...metadata import AlreadyExists
from ...redaction import redact
from ..dsl.pipeline import PipelineFunction, load_pipeline
from ..launcher.home import STORE, Home
from ..launcher.runs import RunOptions
from ..run import resume, run_pipeline
from .records import TAG, ScheduleRecord, Tick, find_schedule, record_tick, register_schedule
from .snapshot import lay_out
from .tick import give_up


def main() -> int:
    """Run what is pending; gives 0 where it has begun, however it ended then, and 1 where it could not begin.

    The arguments are the root folder, the schedule, its pending run ("" to register the schedule again) and, of a run
    that has begun and whose process died, `--resume`. Only the scheduler gives them: nothing reads them for a person.
    """
    root, schedule, run, *resumed = sys.argv[1:]
    home = Home(Path(root), store=os.environ.get(STORE), create=False)
    try:
        return _resume(home, run) if resumed else _start(home, schedule, run)
    finally:
        home.close()


def _resume(home: Home, run: str) -> int:
    try:
        resume(home, run)
    except DrivetrainError as error:  # another process resumes it, or a secret is missing
        print(redact(error.message), file=sys.stderr)
        return 1
    return 0


def _start(home: Home, name: str, run: str) -> int:
    record = find_schedule(home, name)
    if run and (record.pending is None or record.pending.run != run):
        return 0  # another process was faster
    try:
        with _bounded(home, record, run):
            pinned = record.code if run else None
            project = record.project if pinned is None else lay_out(home, record.project, pinned)
            pipeline = load_pipeline(project, record.pipeline)
            pipeline.build()
        if not run:
            register_schedule(home, pipeline, name)
            return 0
        schedule = record.schedule
        _refuse_edited(record, pipeline)
        options = RunOptions(runner=schedule.runner)
        run_pipeline(home, pipeline, schedule.parameters, options, directories={}, tags={TAG: name}, run_id=run)
    except AlreadyExists:
        return 0
    except BaseException as error:
        # A project's exception may hold a secret of its run, and goes into the store and a file.
        reason = redact(error.message if isinstance(error, DrivetrainError) else f"{type(error).__name__}: {error}")
        print(reason, file=sys.stderr)
        _record_failure(home, record, run, reason)
        if isinstance(error, Exception):
            return 1
        raise
    return 0


def _record_failure(home: Home, record: ScheduleRecord, run: str, reason: str) -> None:
    """Say in the schedule's log why a run could not begin, or the schedule could not be registered."""
    now = datetime.now(UTC)
    if not run:
        said = f"its edited pipeline.py could not be registered: {reason}"
        record_tick(home, record.name, Tick(now, "", said, failed=True))
    elif record.pending is not None and home.store.find_context("run", run) is None:
        give_up(home, record, record.pending, reason, now)


LONGEST_LOAD: Final = 600.0
"""Seconds in which a project's modules must be imported and its pipeline built."""


@contextmanager
def _bounded(home: Home, record: ScheduleRecord, run: str) -> Iterator[None]:
    """End this process where the block, which loads a project, takes too long; the log says where it stood then."""
    seconds = LONGEST_LOAD

    def end() -> None:
        faulthandler.dump_traceback()
        log = home.root / "logs" / "scheduler" / f"{run or 'registrations'}.log"
        try:
            reason = f"its pipeline.py has not loaded within {seconds:g} s; {log} says where it stands"
            _record_failure(home, record, run, reason)
        finally:
            os._exit(1)

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()
    faulthandler.dump_traceback_later(seconds + 60.0, exit=True)  # where one holds the interpreter, no thread runs
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()
        timer.cancel()


def _refuse_edited(record: ScheduleRecord, pipeline: PipelineFunction[..., object]) -> None:
    """Refuse a pipeline that is no longer the one that was registered, where the schedule is pinned to that.

    Its own modules are those that were kept, unless an earlier release registered it; what it imports from outside of
    its folder is not kept.
    """
    if record.schedule.version == "pin" and pipeline.build().digest != record.digest:
        what = record.project if record.code is None else f"what {record.project} imports from elsewhere"
        raise InputError(
            f"{what} was edited since the schedule {record.name} was registered, which is pinned",
            fix=f"register it again: `drivetrain schedule register {record.project}`",
        )


if __name__ == "__main__":
    gc.enable()
    end_process(main())
