"""The evaluator of a training with `Trainer(evaluator=…)`, in a process of its own: `drivetrain evaluate-checkpoints`.

It calls the function that the training calls, whose `run.fit` then measures each checkpoint. The work folder is on this
machine, or on another that sees it at the same path.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final

from ..addresses import scheme_in_path
from ..errors import InputError
from .evaluator_job import read_job
from .training_job import TrainingJob

_POLL: Final = 0.5
"""Seconds between two looks for a training that has not begun."""


def evaluate_checkpoints(folder: Path, patience: float, note: Callable[[str], None]) -> None:
    """Measure each checkpoint of the training in a work folder, until its last.

    Args:
        folder: The work folder.
        patience: Seconds that it waits where no training is at work there.
        note: Called with a line about each checkpoint, and where it has to wait for a training to begin.

    Raises:
        InputError: No training with an evaluator has begun there in that time; or what `run.fit` raises.
        DrivetrainError: The training ended before its last step.
    """
    from ..engine.bundles.compile_cache import compiled_kept
    from ..pipelines import LaunchContext
    from ..pipelines.project.context import enter
    from .trainer import call_train

    if (scheme := scheme_in_path(folder)) is not None:
        raise InputError(
            f"{scheme}://… is not a folder of this machine, which a training's work folder is",
            fix='name the folder that Trainer(evaluator="elsewhere") prints; the root has it, not the store',
        )
    folder = folder.absolute()
    job = _awaited_job(folder, patience, note)
    logs = folder / "logs"
    run = replace(job.run(), work_dir=folder, log_dir=logs, note=note, role="evaluator", patience=patience)
    leave = enter(replace(LaunchContext(), note=note))
    try:
        with compiled_kept():
            call_train(job.fn, run)
    finally:
        leave()


def _awaited_job(folder: Path, patience: float, note: Callable[[str], None]) -> TrainingJob:
    """What the training left there, once it has begun."""
    begin, waits = time.monotonic(), False
    while (job := read_job(folder)) is None:
        if time.monotonic() - begin >= patience:
            raise InputError(
                f"no training with an evaluator has begun in {folder} for {patience:.0f} s",
                fix='name the folder that Trainer(evaluator="elsewhere") prints; this machine must see it at that path',
            )
        if not waits:
            waits = True
            missing = "" if folder.is_dir() else ", which does not exist yet"
            note(f"waiting {patience:.0f} s at most for a training in {folder}{missing}")
        time.sleep(_POLL)
    return job
