"""The loop of `TrainingRun.fit`: k steps per dispatch, losses watched, checkpoints taken between dispatches."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING

import jax
import numpy as np

from ...errors import Canceled, InputError
from ..tracing.primitives import in_32_bits
from .checkpoint import FRACTIONS, Checkpoints
from .program import Program
from .training import EpochRecord, Trained

if TYPE_CHECKING:
    import optax

    from .model import Model
    from .training import Loss, Predict, TrainingRun

_POINTS = 100  # of the loss curve


class Fit:
    """One training under way: state on the devices, position in the data, history so far."""

    def __init__(
        self,
        run: TrainingRun,
        model: Model,
        loss: Loss,
        predict: Predict,
        optimizer: optax.GradientTransformation,
        label: str,
    ) -> None:
        """Look at data and devices; nothing is compiled yet."""
        self._run, self._model, self._predict, self._label = run, model, predict, label
        self._data = run.train_data
        self._placement = run.strategy.placement()
        if run.batch_size % self._placement.shards:
            raise InputError(
                f"batch_size {run.batch_size} cannot be split over {self._placement.shards} devices",
                fix=f"use a multiple of {self._placement.shards}",
            )
        self._program = Program(model, loss, optimizer, label, self._placement)
        self._total = run.epochs * run.steps_per_epoch
        self._depth = max(1, min(run.depth, self._total // FRACTIONS))  # so that a short run can be saved midway
        self._step = self._first = 0  # steps whose losses are known; where this attempt began
        self._loss = 0.0  # sum over the epoch under way
        self._stride = -(-self._total // _POINTS)
        self._sums = [0.0] * -(-self._total // self._stride)  # of the losses, for the curve
        self._history: list[EpochRecord] = []
        self._eval = run.eval_data(self._placement.shards)
        self._checkpoints: Checkpoints | None = None
        if run.work_dir is not None:
            folder = run.work_dir / "checkpoints"
            self._checkpoints = Checkpoints(folder, seconds=run.checkpoint_seconds, note=run.note)

    @in_32_bits
    def run(self) -> Trained:
        """Train to the end; see `TrainingRun.fit`."""
        self._start()
        try:
            while self._step < self._total:
                self._train_epoch()
        finally:
            if self._checkpoints:
                self._checkpoints.close()
        ran = self._step - self._first
        return Trained(
            params=jax.device_get(self._state["params"]),
            apply=self._model.apply,
            predict=self._predict,
            label=self._label,
            history=tuple(self._history),
            curve=tuple(self._curve()),
            first_step=self._first,
            steps=ran,
            examples=ran * self._run.batch_size,
        )

    def _start(self) -> None:
        key = self._run.key()
        shapes = self._program.shapes(key)
        self._run.rehearse(self._model.apply, shapes["params"], self._predict, self._label)
        checkpoint = self._checkpoints.restore(shapes) if self._checkpoints else None
        if checkpoint is None:
            self._state = self._program.init(key)
            return
        self._step, state, record = checkpoint
        if record["plan"] != self._plan():
            raise InputError(
                f"the checkpoints in {self._run.work_dir} are of another training: {record['plan']}, "
                f"here {self._plan()}",
                fix="use another work_dir, or remove them",
            )
        self._first = self._step
        self._state = self._program.put(state)
        self._history = [EpochRecord(**epoch) for epoch in record["history"]]
        self._loss, self._sums = record["loss"], record["sums"]
        self._run.note(f"training resumed at step {self._step} of {self._total}")

    def _train_epoch(self) -> None:
        """What is left of the epoch under way."""
        epoch, batch = divmod(self._step, self._data.batches)
        waiting: Callable[[], None] = _nothing
        for stack, count in self._data.stacks(epoch, batch, self._depth):
            batch += count
            self._state, losses = self._program.train(self._state, self._program.feed(stack), count)
            # The losses of the dispatch before are read now, while the device computes this one: it never idles.
            waiting()
            waiting = partial(self._settle, losses, count)
            ended = batch == self._data.batches
            due = self._checkpoints is not None and self._checkpoints.due(self._step + count, self._total)
            if self._placement.blocking or ended or due:
                waiting()
                waiting = _nothing
            if ended:
                self._end_epoch(epoch)
            if due:
                self._save()
            try:
                self._run.progress(self._step * self._run.batch_size, self._total * self._run.batch_size, "examples")
            except Canceled:
                waiting()
                self._save()
                raise

    def _settle(self, losses: jax.Array, count: int) -> None:
        """Wait for a dispatch and take in its losses."""
        for offset, value in enumerate(np.asarray(losses)[:count].tolist()):
            if not math.isfinite(value):
                raise self._broken(self._step + offset, value)
            self._loss += value
            self._sums[(self._step + offset) // self._stride] += value
        self._step += count

    def _end_epoch(self, epoch: int) -> None:
        steps = self._data.batches
        record = EpochRecord(epoch + 1, steps, self._loss / steps, self._eval_loss())
        self._history.append(record)
        self._loss = 0.0
        shown = "" if record.eval_loss is None else f", eval loss {record.eval_loss:.5f}"
        self._run.note(f"epoch {record.epoch} of {self._run.epochs}: loss {record.loss:.5f}{shown}")

    def _eval_loss(self) -> float | None:
        if self._eval is None:
            return None
        total = 0.0
        for stack, count in self._eval.stacks(0, 0, self._depth):
            total += float(self._program.evaluate(self._state["params"], self._program.feed(stack), count))
        return total / self._eval.batches

    def _save(self) -> None:
        if self._checkpoints:
            history = [asdict(epoch) for epoch in self._history]
            self._checkpoints.save(
                self._step,
                self._state,
                {"plan": self._plan(), "history": history, "loss": self._loss, "sums": self._sums},
            )

    def _curve(self) -> Iterator[tuple[int, float]]:
        for number, total in enumerate(self._sums):
            begin = number * self._stride
            end = min(begin + self._stride, self._total)
            yield end, total / (end - begin)

    def _plan(self) -> dict[str, int]:
        """What must be equal for a checkpoint to mean the same place in the same data."""
        return {
            "seed": self._run.seed,
            "batch_size": self._run.batch_size,
            "rows": self._data.rows,
            "steps": self._total,
        }

    def _broken(self, step: int, value: float) -> InputError:
        """The error for a loss that is not a number: names the step, and the column where the data is to blame."""
        epoch, number = divmod(step, self._data.batches)
        batch = next(self._data.epoch(epoch, number))
        arrays = {name: array.values if self._run.features[name].ragged else array for name, array in batch.items()}
        bad = [name for name, array in arrays.items() if array.dtype.kind == "f" and not np.isfinite(array).all()]
        if bad:
            fix = f"column {', '.join(map(repr, bad))} of that batch holds NaN or infinity: clean it in preprocess"
        else:
            fix = "its batch is finite: lower the learning rate, clip gradients, or look for log(0) or 0/0 in the loss"
        return InputError(f"the loss is {value} at step {step + 1} (epoch {epoch + 1}, batch {number + 1})", fix=fix)


def _nothing() -> None: ...
