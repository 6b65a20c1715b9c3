"""The file in a work folder by which the evaluator of a training knows what is trained there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from ..digest import write_durably
from ..errors import InputError
from .training_job import TrainingJob

_FILE: Final = "evaluator.json"


def write_job(folder: Path, job: TrainingJob) -> None:
    """Leave a training's arguments in its work folder."""
    write_durably(folder / _FILE, json.dumps(job.to_json()).encode())


def read_job(folder: Path) -> TrainingJob | None:
    """What `write_job` left in a work folder; None where there is nothing yet.

    Raises:
        InputError: The file is damaged, or of another version.
    """
    try:
        body = (folder / _FILE).read_bytes()
    except FileNotFoundError:
        return None
    try:
        return TrainingJob.from_json(json.loads(body))
    except (ValueError, LookupError, TypeError) as error:
        raise InputError(
            f"{folder / _FILE} describes no training: {type(error).__name__}: {error}",
            fix="use the version of drivetrain that trains there; the training writes the file anew when it is resumed",
        ) from error
