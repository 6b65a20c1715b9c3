"""Carries out a run that a schedule decided to start, in a process of its own.

The scheduler imports nothing of a project, so that each run has the code of its day, and no project can end it.
"""

from __future__ import annotations

import argparse
import os
import sys
from datetime import UTC, datetime
from pathlib import Path

from ...errors import DrivetrainError, InputError
from ...metadata import AlreadyExists
from ...redaction import redact
from ..dsl.pipeline import PipelineFunction, load_pipeline
from ..launcher.home import STORE, Home
from ..launcher.runs import RunOptions
from ..run import run_pipeline
from .records import TAG, ScheduleRecord, Tick, find_schedule, record_tick, register_schedule
from .snapshot import lay_out
from .tick import give_up


def main() -> int:
    """Run what is pending; gives 0 where it has begun, however it ended then, and 1 where it could not begin."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--root", type=Path, required=True)
    parser.add_argument("schedule")
    parser.add_argument("run", help="the pending run; where it is empty, the schedule is registered")
    arguments = parser.parse_args()
    home = Home(arguments.root, store=os.environ.get(STORE), create=False)
    try:
        return _start(home, arguments.schedule, arguments.run)
    finally:
        home.close()


def _start(home: Home, name: str, run: str) -> int:
    record = find_schedule(home, name)
    if run and (record.pending is None or record.pending.run != run):
        return 0  # another process was faster
    try:
        pinned = record.code if run else None
        project = record.project if pinned is None else lay_out(home, record.project, pinned)
        pipeline = load_pipeline(project, record.pipeline)
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
        now = datetime.now(UTC)
        if not run:
            record_tick(home, name, Tick(now, "", f"its edited pipeline.py could not be registered: {reason}"))
        elif record.pending is not None and home.store.find_context("run", run) is None:
            give_up(home, record, record.pending, reason, now)
        if isinstance(error, Exception):
            return 1
        raise
    return 0


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
    sys.exit(main())
