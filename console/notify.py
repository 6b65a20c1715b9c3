"""`notify`: people are told what happened: run beside a scheduler or by cron, tried, and what was sent."""

from __future__ import annotations

import signal
import threading
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..errors import DrivetrainError
from .exit_codes import OK
from .options import ConsoleSettings, print_text, shared
from .terminal import echo
from .verbs import Verbs

if TYPE_CHECKING:
    from rich.console import Console

    from ..pipelines.notifications import Outbox

_FILE = click.option(
    "--file",
    type=click.Path(path_type=Path, dir_okay=False),
    default="notifications.yaml",
    show_default=True,
    help="The channels and rules.",
)


@click.group(
    cls=Verbs,
    epilog="\b\nExample:\n  drivetrain notify test team\n  drivetrain notify run\n",
)
def notify() -> None:
    """Tell people of failures, recoveries, stops, questions and new champions, by chat, mail or webhook."""


@notify.command(epilog="\b\nExample:\n  drivetrain notify run --file notifications.yaml --root /srv/runs\n")
@_FILE
@click.option(
    "--poll",
    type=click.FloatRange(min=0.1),
    default=5.0,
    show_default=True,
    metavar="SECONDS",
    help="How often to look.",
)
@click.option("--once", is_flag=True, help="Look once, send what is due, and end.")
@shared
def run(settings: ConsoleSettings, file: Path, poll: float, once: bool) -> int:
    """Tell people what happens to the runs of this root, whoever starts them, until Ctrl-C or SIGTERM.

    It watches from its first start on. What happens while it does not run is told when it runs again. Several may be at
    work: each message is sent once. With --once, cron or a timer of systemd can be the clock.
    """
    from ..pipelines.notifications import Notifier, read_notifications

    wanted = read_notifications(file)
    wanted.check()
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    with settings.home(readonly=False) as home:
        notifier = Notifier(home, wanted, report=say_when)
        if once:
            notifier.look(at_once=True)
        else:
            echo(f"watching the runs in {home.root} every {poll:g} s", err=True)
            notifier.run(stop, poll=poll)
    return OK


@notify.command(epilog="\b\nExample:\n  drivetrain notify test team --file notifications.yaml\n")
@click.argument("channel")
@_FILE
@shared
def test(settings: ConsoleSettings, channel: str, file: Path) -> int:
    """Send a sample to CHANNEL at once, and say whether it was taken."""
    from ..pipelines.notifications import deliver, failure_of, read_notifications, sample

    answer = deliver(read_notifications(file).channel(channel), sample(channel))
    remark, failure = failure_of(answer)
    if failure is not None:
        fix = f"correct it in {file}" if failure.is_final else f"see that the server works; its address is in {file}"
        raise DrivetrainError(f"channel {channel}: {failure.message}", fix=fix)
    settings.answer(
        {"channel": channel, "sent": True, "remark": remark},
        lambda console: print_text(console, f"sent a sample to {channel}{f' ({remark})' if remark else ''}"),
    )
    return OK


@notify.command("list", epilog="\b\nExample:\n  drivetrain notify list -n 100 --json\n")
@click.option("--limit", "-n", type=click.IntRange(min=0), default=20, show_default=True, help="At most so many.")
@shared
def list_(settings: ConsoleSettings, limit: int) -> int:
    """List what was sent or given up, the newest first, and what has yet to be sent."""
    from ..pipelines.notifications import log, outboxes

    with settings.home() as home:
        records, entries = outboxes(home), [_dated(entry) for entry in log(home, limit)]
        answer = {"outboxes": [each.to_json() for each in records], "messages": entries}
        settings.answer(answer, lambda console: _list(console, records, entries))
    return OK


def say_when(line: str) -> None:
    """Print a line of a loop, with the time."""
    echo(f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC  {line}")


def _dated(entry: Mapping[str, Any]) -> dict[str, Any]:
    at = datetime.fromtimestamp(entry["at"] / 1e6, UTC)
    return {**entry, "at": at.isoformat(timespec="seconds")}


def _list(console: Console, records: list[Outbox], entries: list[dict[str, Any]]) -> None:
    if not records:
        print_text(console, "nobody has been told anything yet: `drivetrain notify run` does so")
    for record in records:
        facts = record.to_json()
        attempts = f", tried {facts['attempts']} times" if facts["attempts"] else ""
        print_text(console, f"{record.rule} to {record.channel}: {facts['waiting']} waiting{attempts}")
    for entry in entries:
        reason = f": {entry['reason']}" if entry["reason"] else ""
        what = f"sent{reason}" if entry["is_sent"] else f"given up{reason}"
        print_text(console, f"{entry['at']}  {entry['channel']}  {entry['subject']}  {what}")
