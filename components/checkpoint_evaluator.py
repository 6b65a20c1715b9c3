"""The process of an evaluator: `python -m drivetrain.components.checkpoint_evaluator FOLDER [--timeout SECONDS]`.

FOLDER is the work folder of a training with `Trainer(evaluator=…)`, on this machine or on another that sees it at the
same path. It calls the function that the training calls, whose `run.fit` then measures each checkpoint. Exit codes: 0
after the training's last checkpoint; 2 where the training ended before, or there is none; 1 where something crashed.
"""

from __future__ import annotations

import sys
import threading
import time
from argparse import ArgumentParser
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from ..errors import DrivetrainError, InputError
from ..lazy import end_process, kept_imports

_POLL: Final = 0.5
"""Seconds between two looks for a training that has not begun."""


def evaluate_checkpoints(folder: Path, patience: float) -> None:
    """Measure each checkpoint of the training in a work folder, until its last.

    Args:
        folder: The work folder.
        patience: Seconds that it waits where no training is at work there.

    Raises:
        InputError: No training with an evaluator has begun there in that time; or what `run.fit` raises.
        DrivetrainError: The training ended before its last step.
    """
    from .. import engine
    from ..engine.bundles.compile_cache import compiled_kept
    from ..engine.training.strategy import strategy as find_strategy
    from ..engine.training.warm_start import read_variables
    from ..pipelines import LaunchContext
    from ..pipelines.project.context import enter
    from .side_evaluation import read_job
    from .trainer import call_train, device_features

    begin = time.monotonic()
    while (training := read_job(folder)) is None:
        if time.monotonic() - begin >= patience:
            raise InputError(
                f"no training with an evaluator has begun in {folder} for {patience:.0f} s",
                fix='name the folder that Trainer(evaluator="elsewhere") prints; this machine must see it at that path',
            )
        time.sleep(_POLL)
    run = engine.TrainingRun(
        features=device_features(training.graph, lambda text: None),
        examples=training.examples,
        epochs=training.epochs,
        batch_size=training.batch_size,
        seed=training.seed,
        hyperparameters=training.hyperparameters,
        strategy=find_strategy(training.strategy),
        train_split=training.train_split,
        eval_split=training.eval_split,
        base_model=None if training.base_model is None else read_variables(*training.base_model),
        work_dir=folder,
        log_dir=folder / "logs",
        note=_note,
        role="evaluator",
        patience=patience,
    )
    leave = enter(replace(LaunchContext(), note=_note))
    try:
        with compiled_kept():
            call_train(training.fn, run)
    finally:
        leave()


def _note(text: str) -> None:
    print(f"evaluator: {text}", flush=True)


def main(arguments: Sequence[str]) -> int:
    """Evaluate, and give the exit code."""
    parser = ArgumentParser(prog=f"python -m {__spec__.name}", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path, help="work folder of the training, which Trainer prints")
    parser.add_argument("--timeout", type=float, default=600.0, help="seconds that it waits for a training (600)")
    parser.add_argument("--beside", action="store_true", help="end when standard input is closed")
    options = parser.parse_args(arguments)
    if options.beside:
        from .tuning.worker import end_with_parent

        threading.Thread(target=end_with_parent, daemon=True).start()
    try:
        with kept_imports():
            from .. import engine  # noqa: F401
        evaluate_checkpoints(options.folder.absolute(), options.timeout)
    except DrivetrainError as error:
        print(f"error: {error}", file=sys.stderr, flush=True)
        return 2
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    end_process(main(sys.argv[1:]))
