"""`schedule`: runs that begin by themselves, registered, listed, tried, paused, and started by a scheduler."""

from __future__ import annotations

import signal
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..errors import InputError
from ..pipelines import Home, PipelineFunction, load_pipeline
from ..pipelines.launcher.root import holds_runs
from .exit_codes import OK
from .notify import say_when
from .options import ConsoleSettings, pipeline_option, print_text, shared
from .terminal import echo
from .verbs import Verbs

if TYPE_CHECKING:
    from rich.console import Console

    from ..pipelines.scheduler import Firing, ScheduleRecord, Tick, UnreadableSchedule

_HISTORY = timedelta(days=30)


@click.group(
    cls=Verbs,
    epilog="\b\nExample:\n  drivetrain schedule register examples/flights\n  drivetrain schedule run\n"
    "  drivetrain schedule log flights\n",
)
def schedule() -> None:
    """Start runs automatically: by the clock, on new data, on drift, when a metric falls, after other runs."""


@schedule.command(epilog="\b\nExample:\n  drivetrain schedule register examples/flights\n")
@click.argument("project", type=click.Path(path_type=Path, exists=True, file_okay=False))
@pipeline_option
@click.option("--name", default="", help="What it is called; else the pipeline's name.")
@shared
def register(settings: ConsoleSettings, project: Path, which: str | None, name: str) -> int:
    """Tell the store of the schedule that the pipeline in PROJECT declares, or of how it has changed.

    Triggers watch from then on: what was there before starts no run. Runs begin where `schedule run` is at work.
    """
    from ..pipelines.scheduler import register_schedule

    pipeline = load_pipeline(project, which)
    with settings.of(project).home(readonly=False, create=True) as home:
        record, change = register_schedule(home, pipeline, name)
        settings.answer(
            {"change": change, **record.to_json()},
            lambda console: print_text(console, f"{change} {record.name}: {record.schedule.trigger}"),
        )
    return OK


@schedule.command(
    epilog="\b\nExample:\n  drivetrain schedule run\n  drivetrain schedule run --poll 1 --root /srv/runs\n"
)
@click.option(
    "--poll",
    type=click.FloatRange(min=0.1),
    default=5.0,
    show_default=True,
    metavar="SECONDS",
    help="How often to look.",
)
@click.option("--once", is_flag=True, help="Look once, and end when what was due has run.")
@click.option(
    "--notify",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Tell people what happens, as this notifications.yaml says: `notify run` beside it.",
)
@shared
def run(settings: ConsoleSettings, poll: float, once: bool, notify: Path | None) -> int:
    """Start the runs that are due, until Ctrl-C or SIGTERM; each in a process of its own, which goes on then.

    Of several schedulers on one store one works and the others wait; a run that is due begins once. With --once, cron
    or a timer of systemd can be the clock.
    """
    from ..pipelines.notifications import Notifier, read_notifications
    from ..pipelines.scheduler import Scheduler

    wanted = None if notify is None else read_notifications(notify)
    if wanted is not None:
        wanted.check()
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    with settings.home(readonly=False) as home:
        scheduler = Scheduler(home, report=say_when)
        notifier = None if wanted is None else Notifier(home, wanted, report=say_when)
        if once:
            if notifier is not None:
                notifier.look(at_once=True)  # so that it watches what begins now
            scheduler.look()
            scheduler.join()
            if notifier is not None:
                notifier.look(at_once=True)
            return OK
        echo(f"looking at the schedules in {home.root} every {poll:g} s", err=True)
        teller = None
        if notifier is not None:  # a thread of its own: a mail server that is slow keeps no run waiting
            teller = threading.Thread(target=notifier.run, args=[stop], kwargs={"poll": poll})
            teller.start()
        try:
            scheduler.run(stop, poll=poll)
        finally:
            stop.set()
            if teller is not None:
                teller.join()
    return OK


@schedule.command("list", epilog="\b\nExample:\n  drivetrain schedule list --json\n")
@shared
def list_(settings: ConsoleSettings) -> int:
    """List the schedules: when they run, what they said last, whether they are paused."""
    from ..pipelines.scheduler import ScheduleRecord, recorded_schedules

    with settings.home() as home:
        records = recorded_schedules(home)
        answer = {
            "schedules": [each.to_json() for each in records if isinstance(each, ScheduleRecord)],
            "unreadable": {each.name: each.error.message for each in records if not isinstance(each, ScheduleRecord)},
        }
        settings.answer(answer, lambda console: _list(console, home, records))
    return OK


@schedule.command(epilog="\b\nExample:\n  drivetrain schedule log flights -n 100\n")
@click.argument("name")
@click.option("--limit", "-n", type=click.IntRange(min=0), default=20, show_default=True, help="At most so many.")
@shared
def log(settings: ConsoleSettings, name: str, limit: int) -> int:
    """Say what the schedule NAME decided, and why, the newest first: runs it started, and what it waited for."""
    from ..pipelines.scheduler import ticks

    with settings.home() as home:
        decided = ticks(home, name, limit)
        settings.answer({"ticks": [each.to_json() for each in decided]}, lambda console: _log(console, decided))
    return OK


@schedule.command(epilog="\b\nExample:\n  drivetrain schedule pause flights\n")
@click.argument("name")
@shared
def pause(settings: ConsoleSettings, name: str) -> int:
    """Have the schedule NAME start no runs; what becomes due is due when it is resumed."""
    return _pause(settings, name, paused=True)


@schedule.command(epilog="\b\nExample:\n  drivetrain schedule resume flights\n")
@click.argument("name")
@shared
def resume(settings: ConsoleSettings, name: str) -> int:
    """Have the schedule NAME start runs again."""
    return _pause(settings, name, paused=False)


@schedule.command(epilog="\b\nExample:\n  drivetrain schedule remove flights\n")
@click.argument("name")
@shared
def remove(settings: ConsoleSettings, name: str) -> int:
    """Forget the schedule NAME; its runs and its log stay."""
    from ..pipelines.scheduler import remove_schedule

    with settings.home(readonly=False) as home:
        remove_schedule(home, name)
        settings.answer({"removed": name}, lambda console: print_text(console, f"removed {name}"))
    return OK


@schedule.command(
    epilog="\b\nExample:\n  drivetrain schedule test examples/flights --at 2026-12-24T18:00\n"
    "  drivetrain schedule test examples/flights --with-history --since 2026-01-01\n"
)
@click.argument("project", type=click.Path(path_type=Path, exists=True, file_okay=False))
@pipeline_option
@click.option("--at", default="", metavar="TIME", help="Up to when; else a week from now, with history now.")
@click.option("--with-history", is_flag=True, help="Over what the store recorded, as if it had been registered before.")
@click.option("--since", default="", metavar="TIME", help="From when, with history; else 30 days before --at.")
@click.option(
    "--limit", "-n", type=click.IntRange(min=1), default=1000, show_default=True, help="At most so many runs."
)
@shared
def test(
    settings: ConsoleSettings,
    project: Path,
    which: str | None,
    at: str,
    with_history: bool,
    since: str,
    limit: int,
) -> int:
    """Say which runs the schedule of PROJECT would start, and why, without starting any.

    Without history: from now on, by what its triggers remember where it is registered; what has yet to happen in the
    store is not known. With history: artifacts and runs as they came, files as they are now. Times are in UTC where
    they name no offset.
    """
    if since and not with_history:
        raise click.UsageError("--since is for --with-history")
    pipeline = load_pipeline(project, which)
    answering = settings.of(project)
    is_there = answering.location.store is not None or holds_runs(answering.location.root)
    with answering.home(readonly=is_there, create=True) as home:
        firings, said, begin, end = _tried(
            home, pipeline, _moment(at), _moment(since), limit, with_history=with_history
        )
        answer = {
            "from": begin.isoformat(),
            "to": end.isoformat(),
            "runs": [each.to_json() for each in firings],
            "said": said,
            "is_cut": len(firings) == limit,
        }
        settings.answer(answer, lambda console: _show_tried(console, firings, said, begin, end, limit))
    return OK


def _tried(
    home: Home,
    pipeline: PipelineFunction[..., object],
    at: datetime | None,
    since: datetime | None,
    limit: int,
    *,
    with_history: bool,
) -> tuple[list[Firing], str, datetime, datetime]:
    from ..pipelines.scheduler import replay, schedules
    from ..pipelines.scheduler.view import StoreView, moments_of

    if pipeline.schedule is None:
        raise InputError(f"the pipeline {pipeline.name} has no schedule", fix="declare one: @dt.pipeline(schedule=...)")
    now = datetime.now(UTC)
    end = at or (now if with_history else now + timedelta(days=7))
    begin = (since or end - _HISTORY) if with_history else now
    if begin >= end:
        raise InputError(f"{end:%Y-%m-%d %H:%M} UTC is not after {begin:%Y-%m-%d %H:%M} UTC", fix="give a later --at")
    known = [each for each in schedules(home) if (each.project, each.pipeline) == (pipeline.project, pipeline.name)]
    firings, said = replay(
        pipeline.schedule.trigger,
        lambda moment: StoreView(home, pipeline.project, moment),
        begin,
        end,
        moments_of(home) if with_history else (),
        known[0].marks if known and not with_history else None,
        limit,
    )
    return firings, said, begin, end


def _moment(text: str) -> datetime | None:
    from ..pipelines.triggers.zones import moment_of

    return moment_of(text) if text else None


def _pause(settings: ConsoleSettings, name: str, *, paused: bool) -> int:
    from ..pipelines.scheduler import pause_schedule

    with settings.home(readonly=False) as home:
        record = pause_schedule(home, name, paused=paused)
        word = "paused" if paused else "resumed"
        settings.answer(record.to_json(), lambda console: print_text(console, f"{word} {name}"))
    return OK


def _list(console: Console, home: Home, records: list[ScheduleRecord | UnreadableSchedule]) -> None:
    from ..pipelines.scheduler import UnreadableSchedule

    if not records:
        print_text(console, f"no schedules in {home.root}; register one with `drivetrain schedule register PROJECT`")
    for record in records:
        if isinstance(record, UnreadableSchedule):
            print_text(console, f"{record.name}\n  {record.error.message}\n  fix: {record.error.fix}")
            continue
        print_text(console, f"{record.name}{' (paused)' if record.paused else ''}  {record.schedule.trigger}")
        print_text(console, f"  {record.project}")
        print_text(console, f"  {record.said or 'not looked at yet: `drivetrain schedule run` is the scheduler'}")


def _log(console: Console, decided: list[Tick]) -> None:
    if not decided:
        print_text(console, "it has decided nothing yet: `drivetrain schedule run` is the scheduler")
    for tick in decided:
        what = f"run {tick.run}: " if tick.run else ""
        print_text(console, f"{tick.at:%Y-%m-%d %H:%M:%S} UTC  {what}{tick.reason}")


def _show_tried(console: Console, firings: list[Firing], said: str, begin: datetime, end: datetime, limit: int) -> None:
    for firing in firings:
        print_text(console, f"{firing.at:%Y-%m-%d %H:%M:%S} UTC  {firing.reason}")
    if len(firings) == limit:
        print_text(
            console, f"the first {limit} runs after {begin:%Y-%m-%d %H:%M} UTC; --limit asks for more, --at for fewer"
        )
        return
    count = f"{len(firings)} run{'' if len(firings) == 1 else 's'}" if firings else "no run"
    print_text(console, f"{count} from {begin:%Y-%m-%d %H:%M} to {end:%Y-%m-%d %H:%M} UTC; then: {said}")
