"""A training's evaluator, seen from the training: described, started, heard, waited for."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from types import TracebackType
from typing import Final, Literal

from ..engine import Callback, EpochRecord, TrainingProgress
from ..engine.training.evaluations import CheckpointEvaluation, EvaluationLog
from ..engine.training.training import last_steps
from ..engine.training.work_lock import is_at_work
from ..pipelines import LaunchContext
from .evaluator_job import write_job
from .training_job import TrainingJob

_VERB: Final = "evaluate-checkpoints"
_LOOK: Final = 1.0
"""Seconds between two looks at what was measured, while the training is under way."""
_WAIT: Final = 0.2
"""Seconds between two looks, where the training has ended."""
_LAST: Final = 5.0
"""Seconds that the process has to end when all is measured."""
_PATIENCE: Final = 60.0
"""Seconds that a training which has ended waits for an evaluator that is not there."""
Kind = Literal["process", "elsewhere"]


class SideEvaluation(Callback):
    """Records what the evaluator of a training measures, as it comes. A context: at its end the process ends.

    An attempt that goes on from a checkpoint records the earlier checkpoints again, as `EpochMetrics` does.
    """

    def __init__(self, launch: LaunchContext, job: TrainingJob, kind: Kind) -> None:
        """Describe the training in its work folder; no process is started yet.

        Args:
            launch: Of the training.
            job: Its arguments; the function is a named one.
            kind: "process" for one on this machine; "elsewhere" where somebody else starts it.
        """
        self._launch, self._kind = launch, kind
        self._folder = launch.work_dir
        self._log = EvaluationLog(self._folder / "logs")
        self._process: subprocess.Popen[bytes] | None = None
        self._last_line = ""
        self._absent = False
        self._looked = 0.0
        self._fits = False  # whether `run.fit` was called
        self._evaluations: dict[int, CheckpointEvaluation] = {}
        write_job(self._folder, job)

    def __enter__(self) -> SideEvaluation:
        """Start the process, or say how it is started elsewhere."""
        if self._kind == "elsewhere":
            folder = shlex.quote(str(self._folder))
            self._launch.note(f"to evaluate its checkpoints elsewhere: drivetrain {_VERB} {folder}")
            return self
        self._process = subprocess.Popen(  # noqa: S603 - this Python, with our own arguments
            [sys.executable, "-P", "-m", "drivetrain", _VERB, str(self._folder), "--beside"],
            stdin=subprocess.PIPE,  # closed when this process is gone, by which that one knows
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # a terminal's Ctrl-C is for the run, which ends its processes
            env={
                **os.environ,
                "JAX_PLATFORMS": "cpu",  # the accelerator is the training's
                "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
                "PYTHONUNBUFFERED": "1",
            },
        )
        assert self._process.stdout is not None
        os.set_blocking(self._process.stdout.fileno(), False)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """End the process where it still lives."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            for stream in (self._process.stdin, self._process.stdout):
                with suppress(OSError):
                    stream.close()  # type: ignore[union-attr]

    def on_train_begin(self, progress: TrainingProgress) -> None:
        """There will be checkpoints."""
        self._fits = True

    def on_step_end(self, progress: TrainingProgress, step: int, loss: float) -> None:
        """Record what has come, each second."""
        if time.monotonic() - self._looked >= _LOOK:
            self._look()

    def finish(self, history: Sequence[EpochRecord]) -> tuple[EpochRecord, ...]:
        """Wait until the last checkpoint is measured, or nobody is there to do it, which is noted.

        Returns:
            The epochs, with what was measured after each.

        Raises:
            Canceled: The run is asked to stop.
        """
        idle_since = time.monotonic()
        waits = False
        while True:
            if not self._fits:
                self._launch.note(
                    "nothing was evaluated: an evaluator measures what `run.fit` saves, which did not run"
                )
                break
            # Asked before the look, so that what it wrote to the last is seen.
            ended = self._process is None or self._process.poll() is not None
            if self._kind == "elsewhere" and is_at_work(self._folder, "evaluator"):
                idle_since = time.monotonic()
            self._look()
            if any(evaluation.last for evaluation in self._evaluations.values()):
                break
            if ended and (self._process is not None or time.monotonic() - idle_since >= _PATIENCE):
                self._launch.note(f"the last checkpoint was not evaluated: no evaluator is at work in {self._folder}")
                self._absent = True
                break
            if not waits:
                waits = True
                self._launch.note("the training has ended; its evaluator measures the last checkpoints")
            self._launch.check()
            time.sleep(_WAIT)
        if self._process is not None and self._fits:
            with suppress(subprocess.TimeoutExpired):  # the user's function may do more, which nobody needs
                self._process.wait(_LAST)
            self._hear(self._process)
        return self._merged(history)

    def _merged(self, history: Sequence[EpochRecord]) -> tuple[EpochRecord, ...]:
        epochs, missing = [], []
        for step, epoch in zip(last_steps(history), history, strict=True):
            if (evaluation := self._evaluations.get(step)) is not None:
                epoch = replace(epoch, eval_loss=evaluation.eval_loss, metrics=evaluation.metrics)
            elif self._fits:
                missing.append(str(epoch.epoch))
            epochs.append(epoch)
        if missing:
            cause = (
                "with no evaluator at work"
                if self._absent
                else "whose checkpoint was gone before an evaluator came to it (CheckpointPolicy(max_to_keep=…) keeps "
                "more of them)"
            )
            self._launch.note(f"not evaluated: epoch {', '.join(missing)}, {cause}")
        return tuple(epochs)

    def _look(self) -> None:
        """Record what has come; say once that the process has ended before its time."""
        self._looked = time.monotonic()
        if self._process is not None:
            code = self._process.poll()
            self._hear(self._process)
            if code and not self._absent:
                self._absent = True
                self._launch.note(
                    f"the evaluator ended with code {code}, and evaluates no more; the training goes on: "
                    f"{self._last_line or 'it said nothing'}"
                )
        for evaluation in self._log.new():
            self._evaluations[evaluation.step] = evaluation
            values = {"eval_loss": evaluation.eval_loss, **evaluation.metrics}
            for name, value in values.items():
                self._launch.metric(name, value, step=evaluation.step)
            if self._kind == "elsewhere":
                shown = ", ".join(f"{name.replace('_', ' ')} {value:.5f}" for name, value in values.items())
                self._launch.note(f"evaluator: checkpoint of step {evaluation.step}: {shown}")

    def _hear(self, process: subprocess.Popen[bytes]) -> None:
        """Pass on what it has printed."""
        assert process.stdout is not None
        text = (process.stdout.read() or b"").decode(errors="replace").rstrip("\n")
        if text:
            *_, last = lines = text.splitlines()
            causes = [line for line in lines if line.startswith(("error: ", "unexpected error: "))]
            self._last_line = causes[-1] if causes else last  # a fix follows the cause
            self._launch.printed(text, last)
