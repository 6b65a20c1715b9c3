"""`rerun`: an earlier run once more, with today's code."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..errors import InputError
from ..pipelines import Home, Run, RunResult, Selection, load_pipeline, open_run, run_pipeline
from ..pipelines.dsl.pipeline import load_pipelines
from ..pipelines.launcher.runs import refuse_imported
from .exit_codes import EXIT_CODES
from .options import ConsoleSettings, Labels, parameter, shared, tag_options
from .run import carry_out
from .terminal import echo

if TYPE_CHECKING:
    from ..pipelines import PipelineFunction


@click.command(
    epilog=f"{EXIT_CODES}\n\b\nExample:\n  drivetrain rerun\n"
    "  drivetrain rerun 20261121-093000-1a2b --from Trainer --param epochs=5\n"
)
@click.argument("run_id", metavar="[RUN]", required=False)
@click.option("--from", "first", multiple=True, metavar="NODE", help="Run this node again, and what follows.")
@click.option("--param", "-p", "params", multiple=True, metavar="NAME=VALUE", help="Change a parameter of that run.")
@click.option("--no-cache", is_flag=True, help="Run every node, whatever ran before.")
@tag_options
@shared
def rerun(
    settings: ConsoleSettings,
    run_id: str | None,
    first: tuple[str, ...],
    params: tuple[str, ...],
    no_cache: bool,
    labels: Labels,
) -> int:
    """Run the pipeline of a run again (of the newest unless RUN is given): its parameters, today's code.

    It is a new run. With --from, what comes before that node is taken from RUN, and it and what follows run whatever
    the cache holds; without, what has not changed comes from the cache.
    """

    def go(home: Home, watched: object) -> RunResult:
        old = open_run(home, run_id)
        pipeline = pipeline_today(old)
        changed = dict(parameter(text) for text in params)
        parameters = kept_parameters(old, pipeline) | changed
        directories = {name: folder for name, folder in old.directories.items() if name in parameters}
        directories |= dict.fromkeys(changed, str(Path.cwd()))
        options = replace(old.options, only=(), base="", cache=not (no_cache or first), over_budget=False)
        part = Selection(first, base=old.id if first else "")
        return run_pipeline(home, pipeline, parameters, options, watched, part, directories, **labels)  # type: ignore[arg-type]

    return carry_out(settings, go, new=False)


def pipeline_today(run: Run) -> PipelineFunction[..., object]:
    """The pipeline of a run, as its project has it now."""
    refuse_imported(run)
    if not Path(run.project).is_dir():
        raise InputError(f"the project of run {run.id} is gone: {run.project}", fix="put it back where it was")
    name = run.pipeline.name  # one that has another name by now is the project's, where that has a single one
    return load_pipeline(run.project, name if name in load_pipelines(run.project) else None)


def kept_parameters(run: Run, pipeline: PipelineFunction[..., object]) -> dict[str, object]:
    """The parameters of a run that the pipeline still has; says which it has no more."""
    for name, value in run.parameters.items():
        if name not in pipeline.parameters:
            echo(f"note: the pipeline has no parameter {name!r} any more: {value!r:.60} is left out", err=True)
    return {name: value for name, value in run.parameters.items() if name in pipeline.parameters}
