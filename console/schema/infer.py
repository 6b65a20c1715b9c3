"""`schema infer`: the schema that data, or a run's statistics, propose."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import click

from ...errors import InputError
from ...pipelines import Home, Run, open_run
from ..exit_codes import OK
from ..options import RUN, ConsoleSettings, print_text, shared
from ..session import RunView, view

if TYPE_CHECKING:
    from ...data import Statistics


@click.command(
    epilog="\b\nExample:\n  drivetrain schema infer\n  drivetrain schema infer --slack 0.1 > schema.yaml\n"
    "  drivetrain schema infer --split eval --max-values 500 --no-shapes --semantics\n"
    "  drivetrain schema infer data/2013-01.parquet\n"
)
@click.argument("data_path", metavar="[DATA]", required=False)
@RUN
@click.option("--split", metavar="NAME", help="From which split; the first that has rows unless given.")
@click.option(
    "--max-values",
    type=click.IntRange(0),
    help="Text with more distinct values than this gets no list of values; 100 unless given, and up to 400 that come "
    "again get a list that most rows must satisfy.",
)
@click.option(
    "--shapes/--no-shapes",
    default=True,
    show_default=True,
    help="Give a shape to lists of one length that are never missing; else value counts to every column.",
)
@click.option(
    "--slack",
    type=click.FloatRange(0, math.inf, max_open=True),
    metavar="SHARE",
    help="Propose ranges of numbers, wider by this share of their span at both ends, and shares of missing rows.",
)
@click.option(
    "--semantics/--no-semantics",
    default=None,
    help="Recognise times in text and in integers, natural language and images, or none of them; all but days since "
    "1970 as integers unless given.",
)
@shared
def infer(settings: ConsoleSettings, data_path: str | None, run_id: str | None, **options: Any) -> int:
    """Print a proposed schema: types, presence, small domains, each with its evidence.

    It is what DATA proposes (a file, a folder or a pattern, read with the default options), else a run's statistics.
    """
    if data_path is not None:
        if run_id is not None:
            raise click.UsageError("name either DATA or a --run")
        from ... import data

        text = data.schema_to_yaml(data.infer_schema(data_path, **options))
        settings.answer({"data": data_path, "schema": text}, lambda console: print_text(console, text))
        return OK
    with settings.home() as home:
        run_view = view(home, open_run(home, run_id))
        text = inferred_schema(run_view, **options)
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
    return inferred_schema(run_view)


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


def inferred_schema(run_view: RunView, **options: Any) -> str:
    """The schema that a run's statistics propose, by the options of `infer_schema`."""
    from ... import data

    return data.schema_to_yaml(data.infer_schema(statistics_in(run_view), **options))
