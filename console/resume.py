"""`resume`: finish a run that failed, was stopped or was killed."""

from __future__ import annotations

import click

from ..pipelines import open_run
from ..pipelines import resume as resume_run
from ..pipelines.launcher.states import RunState
from .exit_codes import EXIT_CODES
from .options import ConsoleSettings, shared
from .run import carry_out
from .terminal import echo


@click.command(
    epilog=f"{EXIT_CODES}\n\b\nExample:\n  drivetrain resume\n  drivetrain resume 20261121-093000-1a2b --json\n"
)
@click.argument("run_id", metavar="[RUN]", required=False)
@shared
def resume(settings: ConsoleSettings, run_id: str | None) -> int:
    """Finish a run that failed, was stopped or was killed (the newest one unless RUN is given).

    Nodes that ended well stay as they are; a Trainer goes on from its last checkpoint. Of a run on a cluster what did
    not end well is submitted again.
    """
    with settings.home(readonly=False) as home:
        if (run := open_run(home, run_id)).options.runner == "kubeflow":
            from .kubeflow.submit import resubmit

            return resubmit(settings, home, run)
        if run.state is RunState.COMPLETE:
            echo(f"run {run.id} is complete: there is nothing to resume", err=True)
    return carry_out(settings, lambda home, watched: resume_run(home, run_id, watched), new=False)
