"""`schema update`: a patch that relaxes a schema to what was observed, anomaly by anomaly."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from ...errors import InputError
from ...pipelines import Home, Run, open_run
from ...pipelines.launcher.flow import Flow
from ..exit_codes import OK
from ..options import RUN, ConsoleSettings, print_text, shared
from ..session import view
from ..terminal import echo
from .infer import statistics_in

if TYPE_CHECKING:
    from ...data import Schema, Statistics


class ValidatorInputs(NamedTuple):
    """What a run's ExampleValidator looked at.

    Attributes:
        statistics: Of the examples.
        controls: Those they were compared with: "previous", "serving", "previous_version".
        environment: The one that its ExampleValidator was given.
    """

    statistics: Statistics
    controls: Mapping[str, Statistics]
    environment: str | None = None


def validator_inputs(home: Home, run: Run) -> ValidatorInputs:
    """What a run's ExampleValidator looked at; of a run without one, its statistics.

    Raises:
        InputError: It has no statistics.
    """
    from ... import data

    flow = Flow(home.store, run)
    for node in run.pipeline.nodes:
        execution = flow.execution(node.id)
        inputs = {} if execution is None else home.store.inputs(execution)
        if node.component.endswith(":ExampleValidator") and "statistics" in inputs:
            loaded = {
                name: data.Statistics.load(home.payloads.local(inputs[name][0].uri) / "content")
                for name in ("statistics", "previous", "serving", "previous_version")
                if inputs.get(name)
            }
            environment: Any = dict(node.parameters).get("environment")
            if isinstance(environment, dict):  # a parameter of the pipeline
                environment = run.parameters[environment["$param"]]
            return ValidatorInputs(loaded.pop("statistics"), loaded, environment)
    return ValidatorInputs(statistics_in(view(home, run)), {})


_FILE = click.Path(path_type=Path, dir_okay=False)


PATCH = "schema.patch.yaml"


@click.command(
    epilog="\b\nExample:\n  drivetrain schema update\n  drivetrain schema accept schema.patch.yaml --only 1,3\n"
    "  drivetrain schema update --data data/2013-06.parquet --previous data/2013-01.parquet\n"
)
@RUN
@click.option("--data", "path", metavar="PATH", help="Data that does not pass, in place of a run's statistics.")
@click.option("--schema", "file", type=_FILE, help="Which schema; the project's schema.yaml unless given.")
@click.option(
    "--previous",
    metavar="PATH",
    help="Data of an earlier span, for bounds on drift; that of the run's ExampleValidator unless given.",
)
@click.option("--environment", metavar="NAME", help="Which of the schema's environments the data is of; likewise.")
@click.option("--to", type=_FILE, metavar="FILE", help=f"The patch to write; {PATCH} beside the schema unless given.")
@click.option("--replace", is_flag=True, help="Also where there is a patch already.")
@shared
def update(
    settings: ConsoleSettings,
    run_id: str | None,
    path: str | None,
    file: Path | None,
    previous: str | None,
    environment: str | None,
    to: Path | None,
    replace: bool,
) -> int:
    """Write a patch of the schema: each anomaly of the data, relaxed to what was observed.

    Read it, cut it down, and `drivetrain schema accept` it. The schema itself is not touched.
    """
    from ... import data

    if path is not None:
        file = file or Path("schema.yaml")
        measured: object = path
        controls: Mapping[str, object] = {}
    else:
        with settings.home() as home:
            run = open_run(home, run_id)
            measured, controls, run_environment = validator_inputs(home, run)
        environment = environment or run_environment
        file = file or run.project / "schema.yaml"
    schema = data.load_schema(file)
    patch = data.update_schema(
        schema,
        measured,
        environment=environment,
        previous=previous or controls.get("previous"),
        serving=controls.get("serving"),
        previous_version=controls.get("previous_version"),
    )
    target = to or file.parent / PATCH
    if patch.changes:
        if target.exists() and not replace and not _is_accepted(target, schema):
            raise InputError(f"there is a patch at {target}", fix="accept or delete it, or give --replace")
        patch.save(target)
    for anomaly in patch.unresolved:
        echo(f"note: no change of the schema does away with {anomaly.type}: {anomaly.message}", err=True)
    message = "nothing to change in the schema" if patch.unresolved else "the data passes: nothing to change"
    if patch.changes:
        number = f"{len(patch.changes)} change{'s' * (len(patch.changes) > 1)}"
        message = f"{patch.diff}\nwrote {target}: {number}; `drivetrain schema accept {target}` makes them"
    answer = {"file": str(target) if patch.changes else None, **patch.to_dict()}
    settings.answer(answer, lambda console: print_text(console, message))
    return OK


def _is_accepted(patch: Path, schema: Schema) -> bool:
    """Whether there is nothing in an earlier patch that the schema does not have already."""
    from ... import data

    try:
        return data.SchemaPatch.load(patch).apply(schema) == schema
    except InputError:  # it is for another schema, or none
        return False
