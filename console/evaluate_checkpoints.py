"""`evaluate-checkpoints`: the evaluator of a training that goes on, here or on another machine."""

from __future__ import annotations

import threading
from pathlib import Path

import click

from ..lazy import kept_imports
from .exit_codes import OK
from .options import ConsoleSettings, shared
from .terminal import echo


@click.command(
    "evaluate-checkpoints",
    epilog="\b\nExample:\n  drivetrain evaluate-checkpoints /data/.drivetrain/work/nodes/5f0c41d7 --timeout 60\n",
)
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
@click.option(
    "--timeout", type=click.FloatRange(0), default=600.0, show_default=True, metavar="SECONDS",
    help="How long it waits where no training is at work.",
)  # fmt: skip
@click.option("--beside", is_flag=True, hidden=True, help="End when standard input is closed.")
@shared
def evaluate_checkpoints(settings: ConsoleSettings, folder: Path, timeout: float, beside: bool) -> int:
    """Measure each checkpoint of a training as it comes: FOLDER is what Trainer(evaluator="elsewhere") prints.

    It ends after the last checkpoint. This machine must see the folder, the examples and the project at the same paths
    as the training's, and have the same versions installed.
    """
    if beside:
        from ..components.tuning.worker import end_with_parent

        threading.Thread(target=end_with_parent, daemon=True).start()
    with kept_imports():
        from .. import engine  # noqa: F401
    from ..components import checkpoint_evaluator
    from ..engine.training.evaluations import CheckpointEvaluation, EvaluationLog

    log, evaluations = EvaluationLog(folder.absolute() / "logs"), list[CheckpointEvaluation]()

    def note(text: str) -> None:
        echo(f"evaluator: {text}", err=settings.json)
        evaluations.extend(log.new())  # now, since the training removes its work folder when it has the last

    checkpoint_evaluator.evaluate_checkpoints(folder, timeout, note)
    settings.answer({"evaluations": [each.to_json() for each in evaluations]}, lambda console: None)
    return OK
