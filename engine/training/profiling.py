"""A window of steps, recorded by JAX's profiler."""

from __future__ import annotations

from typing import TYPE_CHECKING

import jax

from ...errors import InputError
from .callbacks import Callback

if TYPE_CHECKING:
    from .callbacks import TrainingProgress


class Profile(Callback):
    """Records what host and devices do during some steps, into `progress.log_dir`.

    The PROFILE tab of TensorBoard (`pip install xprof`) shows it, and https://ui.perfetto.dev the file
    `perfetto_trace.json.gz`. Steps are dispatched many at once: the window begins and ends with a dispatch, so that it
    may hold some more steps than were asked for. A resumed training records those of them that it still runs.
    """

    def __init__(self, first: int = 100, last: int = 200) -> None:
        """Nothing is recorded yet.

        Args:
            first: Begin when this step has ended, counted from 1; the first steps compile.
            last: End when this step has ended.

        Raises:
            InputError: The last is not behind the first, or that is below 1.
        """
        if not 1 <= first < last:
            raise InputError(f"Profile of steps {first} to {last}", fix="give first >= 1 and a last behind it")
        self._first, self._last = first, last
        self._recording = False

    def on_train_begin(self, progress: TrainingProgress) -> None:
        """See that the window will come.

        Raises:
            InputError: The training has fewer steps.
        """
        steps = progress.epochs * progress.steps_per_epoch
        if self._first >= steps:
            raise InputError(
                f"Profile begins after step {self._first}, and the training has {steps}",
                fix=f"give a smaller one: Profile(first={max(1, steps // 2)}, last={steps})",
            )

    def on_step_end(self, progress: TrainingProgress, step: int, loss: float) -> None:
        """Begin and end the window.

        Raises:
            InputError: Another window is being recorded.
        """
        if not self._recording and self._first <= step < self._last:
            try:
                jax.profiler.start_trace(progress.log_dir, create_perfetto_trace=True)
            except RuntimeError as error:
                raise InputError(
                    f"Profile cannot begin at step {step}: {error}",
                    fix="record by one Profile, or jax.profiler, at a time",
                ) from error
            self._recording = True
        elif self._recording and step >= self._last:
            self.close()

    def close(self) -> None:
        """End the window where the training ended in it."""
        if self._recording:
            self._recording = False
            jax.profiler.stop_trace()  # type: ignore[no-untyped-call]
