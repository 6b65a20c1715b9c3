"""`schema infer`: the schema that a run's statistics propose."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ...errors import InputError
from ...pipelines import Home, Run, open_run
from ..options import OK, RUN, Settings, print_text, shared
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
def infer(settings: Settings, run_id: str | None, split: str | None, slack: float | None) -> int:
    """Print the schema that a run's statistics propose: types, presence, small domains, each with its evidence."""
    with settings.home() as home:
        found = view(home, open_run(home, run_id))
        text = inferred(found, split, slack)
        settings.answer({"run": found.id, "schema": text}, lambda console: print_text(console, text))
    return OK


def proposed(home: Home, run: Run) -> str:
    """The schema that a run proposes: SchemaGen's, else what its statistics propose.

    Raises:
        InputError: It has neither.
    """
    found = view(home, run)
    for node in run.pipeline.nodes:
        made = [artifact.content / "schema.yaml" for artifact in found[node.id].outputs.values()]
        if node.component.endswith(":SchemaGen") and made and made[0].is_file():
            return made[0].read_text(encoding="utf-8")
    return inferred(found, None)


def statistics_in(found: RunView) -> Statistics:
    """The statistics that a run made.

    Raises:
        InputError: It has none.
    """
    from ... import data

    for node in found:
        for artifact, record in zip(node.outputs.values(), node.records.values(), strict=True):
            if record.type == "Statistics" and (artifact.content / "statistics.json").is_file():
                return data.Statistics.load(artifact.content)
    raise InputError(
        f"run {found.id} has no statistics", fix="add StatisticsGen to the pipeline, or name another --run"
    )


def inferred(found: RunView, split: str | None, slack: float | None = None) -> str:
    """The schema that a run's statistics propose."""
    from ... import data

    return data.schema_to_yaml(data.infer_schema(statistics_in(found), split=split, slack=slack))
