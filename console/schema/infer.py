"""`schema infer`: the schema that a run's statistics propose."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ...errors import InputError
from ...pipelines import Home, Run, open_run
from ..exit_codes import OK
from ..options import RUN, ConsoleSettings, print_text, shared
from ..session import RunView, view

if TYPE_CHECKING:
    from ...data import Statistics


@click.command(epilog="\b\nExample:\n  drivetrain schema infer\n  drivetrain schema infer --slack 0.1 > schema.yaml\n")
@RUN
@click.option("--split", help="From which split; the first that has rows unless given.")
@click.option(
    "--slack",
    type=float,
    metavar="SHARE",
    help="Propose ranges of numbers, wider by this share of their span at both ends, and shares of missing rows.",
)
@shared
def infer(settings: ConsoleSettings, run_id: str | None, split: str | None, slack: float | None) -> int:
    """Print the schema that a run's statistics propose: types, presence, small domains, each with its evidence."""
    with settings.home() as home:
        run_view = view(home, open_run(home, run_id))
        text = inferred_schema(run_view, split, slack)
        settings.answer({"run": run_view.id, "schema": text}, lambda console: print_text(console, text))
    return OK


def proposed_schema(home: Home, run: Run) -> str:
    """The schema that a run proposes: SchemaGen's, else what its statistics propose.

    Raises:
        InputError: It has neither.
    """
    run_view = view(home, run)
    for node in run.pipeline.nodes:
        schemas = [artifact.content / "schema.yaml" for artifact in run_view[node.id].outputs.values()]
        if node.component.endswith(":SchemaGen") and schemas and schemas[0].is_file():
            return schemas[0].read_text(encoding="utf-8")
    return inferred_schema(run_view, None)


def statistics_in(run_view: RunView) -> Statistics:
    """The statistics that a run made.

    Raises:
        InputError: It has none.
    """
    from ... import data

    for node in run_view:
        for artifact, record in zip(node.outputs.values(), node.records.values(), strict=True):
            if record.type == "Statistics" and (artifact.content / "statistics.json").is_file():
                return data.Statistics.load(artifact.content)
    raise InputError(
        f"run {run_view.id} has no statistics", fix="add StatisticsGen to the pipeline, or name another --run"
    )


def inferred_schema(run_view: RunView, split: str | None, slack: float | None = None) -> str:
    """The schema that a run's statistics propose."""
    from ... import data

    return data.schema_to_yaml(data.infer_schema(statistics_in(run_view), split=split, slack=slack))
