"""`openlineage`: what ran, as events for a catalog."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from ..errors import InputError, missing_extra
from ..pipelines import Home, Run, UnreadableRun, open_run, recorded_runs
from .exit_codes import OK
from .options import ConsoleSettings, print_text, shared
from .terminal import echo

if TYPE_CHECKING:
    from openlineage.client import OpenLineageClient
    from openlineage.client.event_v2 import RunEvent


@click.command(
    epilog="\b\nExample:\n  OPENLINEAGE_URL=https://catalog drivetrain openlineage --follow\n"
    "  drivetrain openlineage 20261121-093000-1a2b --dry-run\n"
    "  drivetrain openlineage --namespace risk\n"
)
@click.argument("run_id", metavar="[RUN]", required=False)
@click.option("--namespace", default="drivetrain", show_default=True, help="What jobs and datasets are named in.")
@click.option("--follow", is_flag=True, help="Go on: send what runs from now on, too.")
@click.option(
    "--poll", type=click.FloatRange(min=0.1), default=5.0, show_default=True, help="Seconds between looks of --follow."
)
@click.option("--dry-run", is_flag=True, help="Print the events, a line each, and send nothing.")
@shared
def openlineage(
    settings: ConsoleSettings, run_id: str | None, namespace: str, follow: bool, poll: float, dry_run: bool
) -> int:
    """Send what ran as OpenLineage events, to where that client's settings say.

    Those are OPENLINEAGE_URL and OPENLINEAGE_API_KEY, or openlineage.yml. Without RUN all runs are sent of which
    something was not sent before, with RUN all events of that one. Each execution is a run of the job pipeline.node,
    each output a dataset whose version is its fingerprint.
    """
    from ..pipelines.openlineage import LineageEvents, LineageSender

    if follow and (run_id is not None or dry_run):
        raise click.UsageError("--follow goes with neither RUN nor --dry-run")
    with settings.home(readonly=run_id is not None or dry_run) as home:
        if run_id is not None or dry_run:
            events = [event for run in _runs(home, run_id) for event in LineageEvents(home, namespace).of(run)]
            if dry_run:
                from openlineage.client.serde import Serde

                for event in events:
                    echo(Serde.to_json(event))
                return OK
            client = _client()
            for event in events:
                _emit(client, event)
            _say(settings, len(events))
            client.close(60)
            return OK
        client = _client()
        sender = LineageSender(home, namespace, lambda event: _emit(client, event))
        while True:
            sent = sender.send()
            if sent or not follow:
                _say(settings, sent)
            if not follow:
                client.close(60)
                return OK
            time.sleep(poll)


def _runs(home: Home, run_id: str | None) -> list[Run | UnreadableRun]:
    return [open_run(home, run_id)] if run_id is not None else recorded_runs(home, None)[::-1]


def _client() -> OpenLineageClient:
    try:
        from openlineage.client import OpenLineageClient
        from openlineage.client.transport.console import ConsoleTransport
    except ModuleNotFoundError:
        raise missing_extra("openlineage-python", "openlineage") from None
    client = OpenLineageClient()
    if isinstance(client.transport, ConsoleTransport):  # what it takes where nothing is set
        raise InputError(
            "nothing says where events are sent to", fix="set OPENLINEAGE_URL, or write openlineage.yml; see --dry-run"
        )
    return client


def _emit(client: OpenLineageClient, event: RunEvent) -> None:
    """Send an event.

    Raises:
        InputError: It was not taken.
    """
    try:
        client.emit(event)
    except Exception as error:  # whatever its transports raise
        raise InputError(
            f"an event was not taken: {type(error).__name__}: {error!s:.300}",
            fix="see that the catalog answers; what was sent is remembered, so the next call goes on from here",
        ) from error


def _say(settings: ConsoleSettings, sent: int) -> None:
    settings.answer({"sent": sent}, lambda console: print_text(console, f"sent {sent} events"))
