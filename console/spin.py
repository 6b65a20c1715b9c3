"""`spin`: one node of an earlier run once more, with today's code; nothing is recorded."""

from __future__ import annotations

import pdb
import sys
import traceback
from typing import TYPE_CHECKING

import click

from ..pipelines import SpinResult, open_run
from ..pipelines import spin as spin_task
from .exit_codes import OK
from .options import ConsoleSettings, parameter, print_text, shared
from .rerun import kept_parameters, pipeline_today

if TYPE_CHECKING:
    from rich.console import Console


@click.command(
    epilog="\b\nExample:\n  drivetrain spin Trainer\n"
    "  drivetrain spin Trainer --run 20261121-093000-1a2b --param epochs=1 --pdb\n"
)
@click.argument("node")
@click.option("--run", "run_id", metavar="RUN", help="Whose inputs it gets; the newest run's unless given.")
@click.option("--param", "-p", "params", multiple=True, metavar="NAME=VALUE", help="Set a parameter of the component.")
@click.option("--pdb", "debug", is_flag=True, help="Open the debugger where it fails.")
@shared
def spin(settings: ConsoleSettings, node: str, run_id: str | None, params: tuple[str, ...], debug: bool) -> int:
    """Call one NODE (of a loop: NODE[3]) on an earlier run's inputs, with today's code. Records nothing.

    What it makes lies below the root's work/spin/NODE until the next spin of it. A breakpoint() in the component works.
    """
    with settings.home() as home:
        run = open_run(home, run_id)
        parameters = dict(parameter(text) for text in params)
        pipeline = pipeline_today(run)
        kept_parameters(run, pipeline)
        spun = spin_task(home, run, pipeline, node, parameters=parameters, trap=_debugger if debug else None)
        settings.answer(spun.to_json(), lambda shown: _show(shown, spun))
    return OK


def _debugger() -> None:
    traceback.print_exc()
    pdb.post_mortem(sys.exc_info()[2])


def _show(console: Console, spun: SpinResult) -> None:
    console.print(f"{spun.task} on the inputs of run {spun.run}: {spun.seconds:.2f} s", markup=False)
    for key, artifact in spun.outputs.items():
        same = "as in the run" if spun.before.get(key) == spun.fingerprints[key] else "another content than in the run"
        facts = "".join(f", {name}={value}" for name, value in artifact.properties.items())
        print_text(console, f"  {key}: {same}{facts if key in spun.before else ''}")
        print_text(console, f"    {artifact.path}")
