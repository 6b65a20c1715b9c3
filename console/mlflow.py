"""`mlflow`: runs mirrored into an MLflow tracking server."""

from __future__ import annotations

import time

import click

from ..pipelines import open_run
from .exit_codes import OK
from .options import ConsoleSettings, print_text, shared


@click.command(
    epilog="\b\nExample:\n  drivetrain mlflow --to http://localhost:5000\n"
    "  MLFLOW_TRACKING_URI=https://mlflow.example drivetrain mlflow --follow\n"
    "  drivetrain mlflow 20261121-093000-1a2b --to http://localhost:5000\n"
)
@click.argument("run_id", metavar="[RUN]", required=False)
@click.option(
    "--to", "address", envvar="MLFLOW_TRACKING_URI", show_envvar=True, required=True, help="The server's URL."
)
@click.option("--prefix", default="", metavar="TEXT", help="What stands before a pipeline's name as an experiment's.")
@click.option("--follow", is_flag=True, help="Go on: mirror what runs from now on, too.")
@click.option(
    "--poll", type=click.FloatRange(min=0.1), default=5.0, show_default=True, help="Seconds between looks of --follow."
)
@shared
def mlflow(settings: ConsoleSettings, run_id: str | None, address: str, prefix: str, follow: bool, poll: float) -> int:
    """Mirror runs into an MLflow tracking server: parameters, metrics with their steps, tags, how they ended.

    A pipeline is an experiment there. Without RUN all runs are mirrored that have changed since the last time. Who you
    are stands in MLFLOW_TRACKING_TOKEN, or in MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD.
    """
    from ..pipelines.mlflow_mirror import MlflowMirror, MlflowServer

    if follow and run_id is not None:
        raise click.UsageError("--follow does not go with RUN")
    server = MlflowServer(address)
    with settings.home(readonly=run_id is not None) as home:
        mirror = MlflowMirror(home, server, prefix)
        while True:
            if run_id is not None:
                mirror.put(open_run(home, run_id))
                count = 1
            else:
                count = mirror.mirror()
            if count or not follow:
                _say(settings, count, server.address)
            if not follow:
                return OK
            time.sleep(poll)


def _say(settings: ConsoleSettings, count: int, address: str) -> None:
    text = f"mirrored {count} {'run' if count == 1 else 'runs'} into {address}"
    settings.answer({"mirrored": count, "server": address}, lambda console: print_text(console, text))
