"""`rerun` and `spin`: an earlier run, or one node of it, once more with today's code."""

from __future__ import annotations

import pdb
import sys
import traceback
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..errors import InputError
from ..pipelines import Home, Run, Selection, Spun, load_pipeline, open_run, run_pipeline
from ..pipelines import spin as spin_task
from ..pipelines.launcher.home import refuse_imported
from .parameters import parameter
from .run import carry_out
from .settings import EXIT_CODES, OK, Settings, shared

if TYPE_CHECKING:
    from rich.console import Console

    from ..pipelines import PipelineFunction, RunResult


@click.command(
    epilog=f"{EXIT_CODES}\n\b\nExample:\n  drivetrain rerun\n"
    "  drivetrain rerun 20261121-093000-1a2b --from Trainer --param epochs=5\n"
)
@click.argument("run_id", metavar="[RUN]", required=False)
@click.option("--from", "first", multiple=True, metavar="NODE", help="Run this node and what follows anew.")
@click.option("--param", "-p", "params", multiple=True, metavar="NAME=VALUE", help="Change a parameter of that run.")
@click.option("--no-cache", is_flag=True, help="Run every node, whatever ran before.")
@shared
def rerun(
    settings: Settings, run_id: str | None, first: tuple[str, ...], params: tuple[str, ...], no_cache: bool
) -> int:
    """Run the pipeline of a run again (of the newest unless RUN is given): its parameters, today's code.

    It is a new run. With --from, what comes before that node is taken from RUN, and it and what follows run whatever
    the cache holds; without, what has not changed comes from the cache.
    """

    def go(home: Home, watched: object) -> RunResult:
        old = open_run(home, run_id)
        pipeline = _pipeline(old)
        given = _kept(old, pipeline) | dict(parameter(text) for text in params)
        options = replace(old.options, only=(), base="", cache=not (no_cache or first))
        part = Selection(first, base=old.id if first else "")
        return run_pipeline(home, pipeline, given, options, watched, part)  # type: ignore[arg-type]

    return carry_out(settings, go, new=False)


@click.command(
    epilog="\b\nExample:\n  drivetrain spin Trainer\n"
    "  drivetrain spin Trainer --run 20261121-093000-1a2b --param epochs=1 --pdb\n"
)
@click.argument("node")
@click.option("--run", "run_id", metavar="RUN", help="Whose inputs it gets; the newest run's unless given.")
@click.option("--param", "-p", "params", multiple=True, metavar="NAME=VALUE", help="Set a parameter of the component.")
@click.option("--pdb", "debug", is_flag=True, help="Open the debugger where it fails.")
@shared
def spin(settings: Settings, node: str, run_id: str | None, params: tuple[str, ...], debug: bool) -> int:
    """Call one NODE (of a loop: NODE[3]) on an earlier run's inputs, with today's code. Records nothing.

    What it makes lies below the root's work/spin/NODE until the next spin of it. A breakpoint() in the component works.
    """
    with settings.home() as home:
        run = open_run(home, run_id)
        given = dict(parameter(text) for text in params)
        pipeline = _pipeline(run)
        _kept(run, pipeline)
        spun = spin_task(home, run, pipeline, node, parameters=given, trap=_debugger if debug else None)
        settings.answer(spun.to_json(), lambda shown: _show(shown, spun))
    return OK


def _pipeline(run: Run) -> PipelineFunction[..., object]:
    """The pipeline of a run, as its project has it now."""
    refuse_imported(run)
    if not Path(run.project).is_dir():
        raise InputError(f"the project of run {run.id} is gone: {run.project}", fix="put it back where it was")
    return load_pipeline(run.project)


def _kept(run: Run, pipeline: PipelineFunction[..., object]) -> dict[str, object]:
    """The parameters of a run that the pipeline still has; says which it has no more."""
    for name, value in run.parameters.items():
        if name not in pipeline.parameters:
            click.echo(f"note: the pipeline has no parameter {name!r} any more: {value!r:.60} is left out", err=True)
    return {name: value for name, value in run.parameters.items() if name in pipeline.parameters}


def _debugger() -> None:
    traceback.print_exc()
    pdb.post_mortem(sys.exc_info()[2])


def _show(console: Console, spun: Spun) -> None:
    console.print(f"{spun.task} on the inputs of run {spun.run}: {spun.seconds:.2f} s", markup=False)
    for key, artifact in spun.outputs.items():
        same = "as in the run" if spun.before.get(key) == spun.fingerprints[key] else "another content than in the run"
        facts = "".join(f", {name}={value}" for name, value in artifact.properties.items())
        console.print(f"  {key}: {same}{facts if key in spun.before else ''}", markup=False, soft_wrap=True)
        console.print(f"    {artifact.path}", markup=False, soft_wrap=True)
