"""`kubeflow schedule`: runs that the cluster starts by itself, made, listed, paused, resumed and deleted."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from ...pipelines import load_pipeline
from ..exit_codes import OK
from ..options import ConsoleSettings, gather_parameters, parameter_options, pipeline_option, print_text, shared
from ..verbs import Verbs
from .cluster import client_of, cluster_of, cluster_options

if TYPE_CHECKING:
    from rich.console import Console

    from ...pipelines.kubeflow.client import RecurringRun


@click.group(
    cls=Verbs,
    epilog='\b\nExample:\n  drivetrain kubeflow schedule create examples/flights --cron "0 3 * * *" --tz Asia/Tokyo\n'
    "  drivetrain kubeflow schedule list examples/flights\n",
)
def schedule() -> None:
    """Schedules by which the cluster starts runs, by cron or at an interval."""


@schedule.command(
    epilog='\b\nExample:\n  drivetrain kubeflow schedule create examples/flights --cron "0 3 * * mon-fri" --tz +01:00\n'
    "  drivetrain kubeflow schedule create examples/flights --every 6h --no-catchup --replace\n"
)
@click.argument("project", type=click.Path(path_type=Path, exists=True, file_okay=False))
@pipeline_option
@click.option("--cron", default="", metavar="FIELDS", help="When: minute hour day month weekday, in --tz.")
@click.option("--tz", default="UTC", show_default=True, metavar="ZONE", help="A zone without summer time, or +05:30.")
@click.option("--every", default="", metavar="INTERVAL", help="When: at an interval, e.g. 6h or 1d12h.")
@click.option("--start", default="", metavar="MOMENT", help="Not before, e.g. 2026-12-01T03:00 (in --tz).")
@click.option("--end", default="", metavar="MOMENT", help="Not after.")
@click.option("--max-concurrency", type=int, default=1, show_default=True, help="How many runs at once, 1 to 10.")
@click.option("--no-catchup", is_flag=True, help="Do not make up for times that were missed.")
@parameter_options
@click.option("--name", default="", help="What it is called; else the pipeline's name.")
@click.option("--experiment", default="", metavar="NAME", help="KFP's experiment; else the pipeline's name.")
@click.option("--replace", is_flag=True, help="Replace another schedule of that name.")
@cluster_options
@shared
def create(
    settings: ConsoleSettings,
    project: Path,
    which: str | None,
    cron: str,
    tz: str,
    every: str,
    start: str,
    end: str,
    max_concurrency: int,
    no_catchup: bool,
    params: tuple[str, ...],
    file: Path | None,
    name: str,
    experiment: str,
    replace: bool,
    host: str | None,
    namespace: str | None,
) -> int:
    """Schedule the pipeline in PROJECT by cron or at an interval. An equal schedule that is there stays as it is.

    Without options that say when, the schedule is the one that the pipeline declares, with its parameters.

    KFP reads cron in UTC and knows no time zones, so times are moved by the zone's offset. A zone whose clocks change
    is refused, and so are times that six fields cannot express in UTC.
    """
    from ...pipelines.kubeflow.recurring import When, due
    from ...pipelines.kubeflow.recurring import create as create_schedule

    when = When(cron, tz, every, start, end, max_concurrency, not no_catchup)
    pipeline = load_pipeline(project, which)
    declared = pipeline.schedule if when == When() else None
    if declared is not None:
        when = When.of(declared)
    when.resolve()
    cluster = cluster_of(project, host, namespace)
    values = {**(declared.parameters if declared else {}), **gather_parameters(pipeline.parameters, params, file)}
    change = create_schedule(
        client_of(cluster), pipeline, cluster, when, values, name=name, experiment=experiment, replace=replace
    )

    def show(console: Console) -> None:
        recurring = change.schedule
        kfp = f" (KFP: {recurring.cron} in UTC)" if recurring.cron else ""
        print_text(console, f"{recurring.name}: {change.change}, due {due(recurring)}{kfp}")

    settings.answer(change.to_json(), show)
    return OK


@schedule.command(name="list", epilog="\b\nExample:\n  drivetrain kubeflow schedule list examples/flights\n")
@click.argument("project", type=click.Path(path_type=Path, exists=True))
@cluster_options
@shared
def list_(settings: ConsoleSettings, project: Path, host: str | None, namespace: str | None) -> int:
    """List the schedules on the cluster of PROJECT (its folder, or a kubeflow.yaml)."""
    from ...pipelines.kubeflow.recurring import to_json

    schedules = client_of(cluster_of(project, host, namespace)).schedules()
    settings.answer(
        {"schedules": [to_json(recurring) for recurring in schedules]}, lambda console: _list(console, schedules)
    )
    return OK


def _verb(name: str, to: str, words: str) -> click.Command:
    @click.argument("project", type=click.Path(path_type=Path, exists=True))
    @click.argument("which", metavar="NAME|ID")
    @cluster_options
    @shared
    def change(settings: ConsoleSettings, project: Path, which: str, host: str | None, namespace: str | None) -> int:
        from ...pipelines.kubeflow.recurring import named

        client = client_of(cluster_of(project, host, namespace))
        recurring = named(client, which)
        client.change_schedule(recurring.id, to)
        answer = {"id": recurring.id, "name": recurring.name, "change": to}
        settings.answer(answer, lambda console: console.print(f"{recurring.name}: {to}", markup=False))
        return OK

    epilog = f"\b\nExample:\n  drivetrain kubeflow schedule {name} examples/flights flights\n"
    return click.command(name=name, help=words, epilog=epilog)(change)


schedule.add_command(_verb("pause", "disabled", "Pause a schedule: it starts no runs until it is resumed."))
schedule.add_command(_verb("resume", "enabled", "Resume a paused schedule; it makes up for the runs that it missed."))
schedule.add_command(_verb("delete", "deleted", "Delete a schedule; the runs that it started stay."))


def _list(console: Console, schedules: list[RecurringRun]) -> None:
    from rich.table import Table

    from ...pipelines.kubeflow.recurring import due

    if not schedules:
        console.print("the cluster has no schedules", markup=False)
        return
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for title in ("name", "state", "due", "at once", "id"):
        table.add_column(title)
    for recurring in schedules:
        table.add_row(recurring.name, recurring.state, due(recurring), str(recurring.max_concurrency), recurring.id)
    console.print(table)
