"""The loop of `TrainingRun.fit`: k steps per dispatch, losses watched, checkpoints taken between dispatches."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from ...errors import Canceled, InputError
from ..tracing.primitives import in_32_bits
from .checkpoint import FRACTIONS, Checkpoints
from .training import EpochRecord, Trained

if TYPE_CHECKING:
    from .loader import Batch
    from .model import Model, Outputs
    from .strategy import Placement
    from .training import Arrays, Loss, Predict, TrainingRun

State = dict[str, Any]  # "params" and "optimizer": pytrees

# The initial state is computed once: compiling it well costs more than it saves (three quarters of the CPU seconds on
# flights), and so does compiling its parts apart (a quarter of the rest).
_RUN_ONCE: dict[str, bool | int] = {"xla_backend_optimization_level": 0, "xla_cpu_parallel_codegen_split_count": 1}
if jax.__version_info__ < (0, 11):  # which has no such option
    _RUN_ONCE["xla_cpu_use_fusion_emitters"] = False

# What makes a GPU give the same bits again: it adds up the gradient of an embedding in any order, and multiplies
# matrices by the algorithm that happened to be the fastest when the step was compiled.
_SAME_BITS = {"xla_gpu_deterministic_ops": True}

_POINTS = 100  # of the loss curve


def _shapes(jaxpr: Any) -> Iterator[tuple[int, ...]]:  # Any: jax leaves it untyped
    """The shapes of all that a traced function computes."""
    for equation in jaxpr.eqns:
        yield from (variable.aval.shape for variable in equation.outvars)
        for value in equation.params.values():
            if (inner := getattr(value, "jaxpr", value)) is not value:
                yield from _shapes(inner)


class Program:
    """The compiled parts of a training: initial state, k steps, loss without a step.

    The number of steps in a dispatch is an argument of the compiled loop, so that the last, shorter stack of an epoch
    runs the same code, and so that it makes no difference to the bits where a resumed run begins.
    """

    def __init__(
        self, model: Model, loss: Loss, optimizer: optax.GradientTransformation, label: str, placement: Placement
    ) -> None:
        """Wraps the functions in `jax.jit`; XLA compiles each when it is first called."""
        self._model, self._loss, self._optimizer, self._label = model, loss, optimizer, label
        self._placement = placement
        self._stacked = placement.batches(leading=1)
        # Losses are read by every process; a lone one has them wherever XLA leaves them.
        self._losses_sharding = placement.everywhere() if placement.processes > 1 else None
        self._options = _SAME_BITS if placement.mesh.devices.flat[0].platform == "gpu" else None
        self._evaluate = jax.jit(self._sum, out_shardings=self._losses_sharding, compiler_options=self._options)
        self._train: Any = None  # jitted when the state's structure is known

        def initial(key: jax.Array) -> State:
            params = model.init(key)
            return {"params": params, "optimizer": optimizer.init(params)}

        self._initial = initial  # one object, unlike a bound method: JAX remembers by it, and traces it once

    def shapes(self, key: jax.Array) -> State:
        """The state's structure, shapes and dtypes."""
        shapes: State = jax.eval_shape(self._initial, key)
        return shapes

    def init(self, key: jax.Array) -> State:
        """The state before the first step, on the devices."""
        sharding = self._placement.state(self.shapes(key))
        state: State = jax.jit(self._initial, out_shardings=sharding, compiler_options=_RUN_ONCE)(key)
        return state

    def put(self, state: State) -> State:
        """A state from the host on the devices."""
        placed: State = jax.device_put(state, self._placement.state(state))
        return placed

    def feed(self, stack: Batch) -> Arrays:
        """Stacked batches on the devices, [depth, batch, ...], split over the batch.

        The values of a `Ragged` are split too, wherever that falls: the segment ids say which row each belongs to,
        and XLA adds up what the devices have of it. A bucket that does not split evenly goes to every device.
        """
        shards = self._placement.shards
        whole = self._placement.everywhere()
        wanted = jax.tree.map(lambda array: whole if array.shape[1] % shards else self._stacked, stack)
        arrays: Arrays = jax.device_put(stack, wanted)
        return arrays

    def train(self, state: State, stack: Arrays, count: int) -> tuple[State, jax.Array]:
        """`count` steps on the first batches of a stack: the new state (the old one is gone) and the losses [depth]."""
        moved: tuple[State, jax.Array] = self.compiled(state)(state, stack, count)
        return moved

    def compiled(self, state: State) -> Any:
        """The jitted function behind `train`; compiled on its first call."""
        if self._train is None:
            sharding = self._placement.state(state)
            self._train = jax.jit(
                self._steps,
                donate_argnums=0,
                out_shardings=(sharding, self._losses_sharding),
                compiler_options=self._options,
            )
        return self._train

    def evaluate(self, params: Any, stack: Arrays, count: int) -> jax.Array:
        """The sum of the losses of the first `count` batches of a stack."""
        total: jax.Array = self._evaluate(params, stack, count)
        return total

    def _objective(self, params: Any, batch: Arrays) -> jax.Array:
        features = {name: array for name, array in batch.items() if name != self._label}
        outputs = self._model.apply(params, features)
        value = self._loss(outputs, batch)
        if jnp.shape(value) != ():
            raise InputError(f"the loss has shape {list(jnp.shape(value))}, not a scalar", fix="return its .mean()")
        self._refuse_pairs(outputs, batch)
        return jnp.asarray(value, jnp.float32)

    def _refuse_pairs(self, outputs: Outputs, batch: Arrays) -> None:
        """Logits [rows, 1] beside labels [rows] give a loss of every row with every label, which trains nothing."""
        rows = jnp.shape(batch[self._label])
        if len(rows) != 1 or rows == (1,) or (*rows, 1) not in map(jnp.shape, jax.tree.leaves(outputs)):
            return
        if (*rows, *rows) in _shapes(jax.make_jaxpr(self._loss)(outputs, batch).jaxpr):
            raise InputError(
                f"the model gives shape [rows, 1] and the label {self._label!r} has shape [rows]: the loss compares "
                "each row with every row",
                fix="take the last axis off: logits[:, 0]",
            )

    def _sum(self, params: Any, stack: Arrays, count: int) -> jax.Array:
        def add(index: jax.Array, total: jax.Array) -> jax.Array:
            return total + self._objective(params, _batch(stack, index))

        total: jax.Array = jax.lax.fori_loop(0, count, add, jnp.float32(0))
        return total

    def _steps(self, state: State, stack: Arrays, count: int) -> tuple[State, jax.Array]:
        def step(index: jax.Array, carry: tuple[State, jax.Array]) -> tuple[State, jax.Array]:
            state, losses = carry
            value, gradients = jax.value_and_grad(self._objective)(state["params"], _batch(stack, index))
            updates, optimizer = self._optimizer.update(gradients, state["optimizer"], state["params"])
            params = optax.apply_updates(state["params"], updates)
            return {"params": params, "optimizer": optimizer}, losses.at[index].set(value)

        depth = jax.tree.leaves(stack)[0].shape[0]
        start = (state, jnp.zeros(depth, jnp.float32))
        end: tuple[State, jax.Array] = jax.lax.fori_loop(0, count, step, start)
        return end


def _batch(stack: Arrays, index: jax.Array) -> Arrays:
    batch: Arrays = jax.tree.map(lambda array: jax.lax.dynamic_index_in_dim(array, index, keepdims=False), stack)
    return batch


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
                f"the checkpoints in {self._run.work_dir} belong to another training: {record['plan']}, "
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
