"""The loop of `TrainingRun.fit`: k steps per dispatch, losses watched, checkpoints taken between dispatches."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from ...errors import Canceled, InputError
from ...interrupts import deferred
from ..tracing.primitives import in_32_bits
from .callback_list import CallbackList
from .callbacks import Callback, EarlyStopping, Monitor, TrainingProgress
from .checkpoint import FRACTIONS, CheckpointPolicy, Checkpoints
from .evaluations import CheckpointEvaluation, EvaluationLog, unmeasured
from .evaluator import EvaluationWriter, SavedCheckpoints
from .input.dataset import Dataset, State, measured
from .input.stacks import LoaderInput, LoaderStacks, OnDevice, Stacks, TrainingInput
from .memory import explained_exhaustion, refuse_excess, state_bytes, step_bytes
from .nonfinite import broken_loss, exploded_state
from .program import Program, StepOptions
from .rollback import GoodState, RollbackRecord, copied
from .times import TrainingTimes
from .training import EpochRecord, Trained
from .warm_start import fitting
from .work_lock import locked

if TYPE_CHECKING:
    import optax

    from .model import Model, Variables
    from .training import Arrays, Loss, Predict, TrainingRun

    _Stack = tuple[tuple[Arrays, int], State]  # batches on the devices, how many of them are real, the state after them

_AHEAD = 1
"""Stacks of batches that wait on the devices for their turn: each holds many batches."""
_POINTS = 100  # of the loss curve
_MOST_SKIPPED = 50
"""Steps left out in a row after which a training is taken to be broken: a scaled loss finds its scale in 16."""

_NOTHING_LEFT = "lower the learning rate, clip gradients, or give Rollback(every=…) a number of steps below an epoch's"


@dataclass(frozen=True)
class FitOptions:
    """How `TrainingRun.fit` is to go about it; see there.

    Attributes:
        step: What each step does.
        callbacks: In the order in which they are called.
        keep_best: What tells the best epoch; None keeps the last.
        checkpoints: Which are kept.
        best_checkpoint: What tells the best of them; None where the policy asks for none.
    """

    step: StepOptions
    callbacks: Sequence[Callback] = ()
    keep_best: Monitor | None = None
    checkpoints: CheckpointPolicy = field(default_factory=CheckpointPolicy)
    best_checkpoint: Monitor | None = None


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
        options: FitOptions,
        data: TrainingInput | None = None,
        eval_data: Dataset | None = None,
    ) -> None:
        """Look at data and devices; nothing is compiled yet."""
        self._run, self._model, self._predict, self._label = run, model, predict, label
        self._options = options
        self._callbacks = CallbackList(options.callbacks)
        self._input = LoaderInput(run.train_data) if data is None else data
        self._placement = run.strategy.placement()
        if self._input.batch_size % self._placement.shards:
            raise InputError(
                f"batch_size {self._input.batch_size} cannot be split over {self._placement.shards} devices",
                fix=f"use a multiple of {self._placement.shards}",
            )
        self._program = Program(model, loss, optimizer, label, self._placement, options.step)
        self._steps = self._input.steps  # of an epoch
        self._total = run.epochs * self._steps
        self._depth = max(1, min(run.depth, self._total // FRACTIONS))  # so that a short run can be saved midway
        self._state: dict[str, Any] = {}  # on the devices, once it has begun
        self._step = self._first = 0  # steps whose losses are known; where this attempt began
        self._at: State = None  # of the input, after those
        self._last: tuple[State, int] = (None, 0)  # the state before the last dispatch, and its last batch
        self._epoch_losses = _Mean()
        self._stride = -(-self._total // _POINTS)
        self._curve = [_Mean() for _ in range(-(-self._total // self._stride))]
        self._skipped = 0  # steps in a row
        self._good: GoodState | None = None  # where a rollback leads to
        self._rollbacks: list[RollbackRecord] = []
        self._history: list[EpochRecord] = []
        self._best: tuple[float, Variables] | None = None
        self._best_saved: float | None = None  # the monitored value of the best checkpoint
        self._times = TrainingTimes(run.note)
        self._memory: Mapping[str, int] = {}
        self._undefined: set[str] = set()  # metrics of which it was noted that they have no value
        self._stopped = ""  # why the training ends after this epoch
        self._eval: Dataset | None = None
        if run.role == "trainer":
            self._refuse_late_monitors()
        elif eval_data is not None:
            self._eval = Stacks(eval_data, self._depth)
        elif (loader := run.eval_data(self._placement.shards)) is not None:
            self._eval = LoaderStacks(loader, self._depth)
        if run.role != "alone" and run.work_dir is None:
            raise InputError(f"a run in the role {run.role!r} has no work_dir", fix="give both processes the same")
        self._checkpoints: Checkpoints | None = None
        if run.work_dir is not None:
            folder = run.work_dir / "checkpoints"
            self._checkpoints = Checkpoints(
                folder,
                seconds=run.checkpoint_seconds,
                policy=options.checkpoints,
                note=run.note,
                awaited=unmeasured(run.log_dir) if run.role == "trainer" else None,
            )
        self._progress = TrainingProgress(
            epochs=run.epochs,
            steps_per_epoch=self._steps,
            monitored=("loss", *(["eval_loss", *options.step.metrics] if self._eval else [])),
            stop=self._stop,
            variables=lambda: jax.device_get(self._program.variables(self._state)),
            log_dir=run.log_dir,
            settings=self._settings,
            traced=self._traced,
        )
        for monitor in (options.keep_best, options.best_checkpoint):
            if monitor is not None:
                monitor.check(self._progress.monitored)

    def _refuse_late_monitors(self) -> None:
        """Refuse what goes by values of the eval split, which another process measures later."""
        monitors = {"keep_best": self._options.keep_best, "best of the checkpoints": self._options.best_checkpoint}
        for callback in self._options.callbacks:
            if isinstance(callback, EarlyStopping):
                monitors["EarlyStopping"] = callback.monitor
        for name, monitor in monitors.items():
            if monitor is not None and monitor.name != "loss":
                raise InputError(
                    f"{name} goes by {monitor.name!r}, which an evaluator measures in another process, later",
                    fix='let it go by "loss", or leave `evaluator` out: the training then measures it after each epoch',
                )

    @in_32_bits
    def follow(self) -> Trained:
        """Measure the checkpoints that another process saves; see the role "evaluator" of `TrainingRun`.

        Returns:
            The last of them.
        """
        run, log = self._run, EvaluationLog(self._run.log_dir)
        if self._eval is None or run.work_dir is None:
            raise InputError("there is nothing to evaluate on", fix="give Trainer an eval split, or fit eval_data")
        variables = self._program.variables(self._program.shapes(run.key()))
        with locked(run.work_dir, run.note, "evaluator"):
            known = log.new()
            saved = SavedCheckpoints(
                run.work_dir, self._saved_shapes(), self._total, self._steps, run.patience, run.note, self._report
            )
            writer = EvaluationWriter(run, log, tuple(self._options.callbacks))
            ended = any(evaluation.last for evaluation in known)
            for step, state, record in () if ended else saved.stream({evaluation.step for evaluation in known}):
                self._refuse_other_plan(record)
                self._step = step
                kept = {name: state[name] for name in ("params", "model", "ema") if name in state}
                variables = self._program.variables(self._program.put(kept))
                eval_loss, metrics = self._evaluated(self._eval, variables)
                writer.write(CheckpointEvaluation(step, eval_loss, metrics, saved.ended(step, record)))
        return Trained(jax.device_get(variables), self._model.apply, self._predict, self._label)

    @in_32_bits
    def run(self) -> Trained:
        """Train to the end; see `TrainingRun.fit`."""
        with ExitStack() as ending:  # each is closed, whatever another raises
            if self._run.work_dir is not None and self._placement.processes == 1:
                ending.enter_context(locked(self._run.work_dir, self._run.note))
            for callback in self._options.callbacks:
                ending.callback(callback.close)
            if self._checkpoints:
                ending.push(partial(self._note_checkpoint, self._checkpoints))
                ending.callback(self._checkpoints.close)
            with self._times.running(), explained_exhaustion(lambda: (self._step, self._memory)):
                checkpoint = self._restored()
                with closing(self._stacks()) as stacks:  # already at work while the model is traced
                    first = self._start(checkpoint, stacks)
                    self._times.started()
                    self._callbacks.call("on_train_begin", self._step, self._progress)
                    # Else a signal would end it in the middle of a step, where there is no state to save.
                    with deferred() as deliver_signal:
                        while not self._ended:
                            self._train_epoch(first, deliver_signal)
            if self._best is None and (error := self._exploded()) is not None:
                raise error
            if not self._history:
                raise InputError(f"{self._rollbacks[-1].reason}; nothing is left to train on", fix=_NOTHING_LEFT)
            checkpoints = self._checkpoints.kept() if self._checkpoints else {}
            self._callbacks.call("on_train_end", self._step, self._progress)
        ran = self._step - self._first
        self._times.ended()
        variables = self._program.variables(self._state) if self._best is None else self._best[1]
        kept = self._kept_epoch()
        return Trained(
            params=jax.device_get(variables),
            apply=self._model.apply,
            predict=self._predict,
            label=self._label,
            history=tuple(self._history),
            curve=tuple(self._points()),
            first_step=self._first,
            steps=ran,
            examples=ran * self._input.batch_size,
            stopped=self._stopped,
            kept_epoch=kept,
            seconds=dict(self._times.seconds),
            input_seconds=dict(self._times.of_input),
            memory=dict(self._memory),
            checkpoints=checkpoints,
            rollbacks=tuple(self._rollbacks),
        )

    @property
    def _ended(self) -> bool:
        """Whether no step is left; a training that is stopped amid an epoch goes on to its end."""
        return self._step == self._total or bool(self._stopped and self._step and self._step % self._steps == 0)

    def _note_checkpoint(self, checkpoints: Checkpoints, kind: type[BaseException] | None, *_: object) -> None:
        """Say from where a stopped training can go on; after an error, where that is: other code begins without it."""
        if kind is None or not self._step or (newest := checkpoints.newest()) is None:
            return
        if issubclass(kind, Canceled | KeyboardInterrupt):
            self._run.note(f"stopped at step {self._step} of {self._total}; it can go on from step {newest.name}")
        elif issubclass(kind, Exception):
            self._run.note(f"the checkpoint of step {newest.name} remains: {newest}")

    def _kept_epoch(self) -> int | None:
        """The epoch that `keep_best` kept, which is noted; None where the last step's variables are exported."""
        monitor = self._options.keep_best
        if monitor is None or self._best is None:
            return None
        best = self._best[0]
        epoch = next(record.epoch for record in self._history if monitor.value(record) == best)
        self._run.note(f"the parameters kept are those of epoch {epoch}: {monitor.name} {best:.5f}")
        return epoch

    def _restored(self) -> tuple[State, dict[str, Any]] | None:
        """The newest checkpoint's state, on the host, and its record; from now on `_step` is its step.

        The model is tried before a checkpoint is looked for.
        """
        self._key = self._run.key()
        shapes = self._program.shapes(self._key)
        variables = self._program.variables(shapes)
        self._run.rehearse(self._model.apply, variables, self._predict, self._label)
        refuse_excess({"state": state_bytes(shapes, self._placement), **self._good_bytes(shapes)}, self._placement)
        checkpoint = self._checkpoints.restore(self._saved_shapes()) if self._checkpoints else None
        if checkpoint is None:
            return None
        step, state, record = checkpoint
        self._refuse_other_plan(record)
        self._step = self._first = step
        self._at = record.get("data")
        return state, record

    def _saved_shapes(self) -> dict[str, Any]:
        """Structure, shapes and dtypes of the state in a checkpoint."""
        shapes = self._program.shapes(self._run.key())
        saved = shapes if self._options.keep_best is None else {**shapes, "best": self._program.variables(shapes)}
        return saved if self._options.step.rollback is None else {**saved, "good": shapes}

    def _refuse_other_plan(self, record: Mapping[str, Any]) -> None:
        """Refuse a checkpoint of another training, by its record."""
        saved, plan = dict(record["plan"]), self._plan()
        if self._run.role == "evaluator":  # it calls no callbacks
            del saved["callbacks"], plan["callbacks"]
        if saved != plan:
            raise InputError(
                f"the checkpoints in {self._run.work_dir} belong to another training: {saved}, here {plan}",
                fix="use another work_dir, or remove them",
            )

    def _start(self, checkpoint: tuple[State, dict[str, Any]] | None, stacks: Iterator[_Stack]) -> Iterator[_Stack]:
        """The first state, on the devices, or that of a checkpoint with all that went before.

        Returns:
            The stacks; the first, where any is wanted, was taken and what it calls for is compiled.
        """
        if checkpoint is not None:
            self._resume(*checkpoint)
            if self._ended:
                return stacks
            return self._planned(self._state, stacks)
        base = self._run.base_model
        if base is not None:
            base = fitting(base, jax.eval_shape(self._model.init, self._key), self._run.note)
        initial = self._program.initial(self._key, base)
        # XLA compiles both at once: each of them leaves a processor idle for half of its time.
        with ThreadPoolExecutor(1, "drivetrain-compile") as thread:
            compiled = thread.submit(in_32_bits(initial.compile))
            first = self._planned(self._program.placed(self._key), stacks, compiled)
        self._state = compiled.result()(self._key, base or {})
        self._keep_good()
        return first

    def _resume(self, state: dict[str, Any], record: dict[str, Any]) -> None:
        """Go on from a checkpoint's state and record."""
        best, good = state.pop("best", None), state.pop("good", None)
        if record["best"] is not None:
            self._best = (record["best"], best)
        self._state = self._program.put(state)
        self._history = [EpochRecord(**epoch) for epoch in record["history"]]
        self._best_saved = record["best_saved"]
        self._take_up(record)
        if good is not None:
            self._rollbacks = [RollbackRecord(**rollback) for rollback in record["rollbacks"]]
            self._good = GoodState(arrays=self._program.put(good), **record["good"])
        self._run.note(f"training resumed at step {self._step} of {self._total}")

    def _take_up(self, record: dict[str, Any]) -> None:
        """Go on with what `_under_way` gave."""
        self._epoch_losses = _Mean(**record["loss"])
        self._curve = [_Mean(**mean) for mean in record["curve"]]
        self._skipped, self._stopped = record["skipped"], record["stopped"]
        self._callbacks.load_state_dicts(record["callbacks"], self._step)

    def _under_way(self) -> dict[str, Any]:
        """What is known of the epoch under way, JSON values."""
        return {
            "loss": asdict(self._epoch_losses),
            "curve": [asdict(mean) for mean in self._curve],
            "skipped": self._skipped,
            "stopped": self._stopped,
            "callbacks": self._callbacks.state_dicts(self._step),
        }

    def _stacks(self) -> Any:  # a generator
        """The stacks from this step on, the next ones prepared and sent to the devices while one is computed."""
        feed = in_32_bits(self._program.feed)
        # Where processes train together, what they send is compared between them, in the order of the main threads.
        alone = self._placement.processes == 1
        stacks = self._input.stacks(self._depth, self._run.epochs)
        if alone:
            stacks = OnDevice(stacks, feed)
        stacks = stacks.prefetch(_AHEAD)
        if not alone:
            stacks = OnDevice(stacks, feed)
        return measured(stacks, 0, self._input.state(self._step, self._at))

    def _train_epoch(self, stacks: Iterator[_Stack], deliver_signal: Callable[[], None]) -> None:
        """What is left of the epoch under way."""
        epoch, batch = divmod(self._step, self._steps)
        rollback = self._options.step.rollback
        waiting: Callable[[], bool] = _nothing
        while batch < self._steps:
            with self._times.waiting(partial(self._heed, deliver_signal, waiting)):
                (stack, count), at = next(stacks)
            first = epoch * self._steps + batch
            batch += count
            self._state, losses = self._program.train(self._state, stack, count, first, self._key)
            # The losses of the dispatch before are read now, while the device computes this one: it never idles.
            if waiting():  # it began with a state that is gone
                self._state, losses = self._program.train(self._state, stack, count, first, self._key)
            del stack  # a dispatch keeps its batches itself, and no longer than it runs
            waiting = partial(self._settle, losses, count, at)
            ended = batch == self._steps
            due = self._checkpoints is not None and self._checkpoints.due(self._step + count, self._total)
            due = due or (ended and self._run.role == "trainer")  # for the evaluator
            good = rollback is not None and rollback.due(first, count)
            if self._placement.blocking or ended or due or good:
                rolled_back = waiting()
                waiting = _nothing
                if good and not ended and not rolled_back and not self._rolled_back_exploded():
                    self._keep_good()
            best = ended and self._end_epoch(epoch)
            if due or best:
                self._save(best)
            self._heed(deliver_signal, waiting)

    def _heed(self, deliver_signal: Callable[[], None], waiting: Callable[[], bool]) -> None:
        """Let what is to end the training end it, after a checkpoint; `waiting` takes in what is being computed."""
        try:
            deliver_signal()
            self._report()
        except BaseException:  # Canceled, or what the handler of a signal raises
            waiting()
            self._save()
            raise

    def _report(self) -> None:
        rows = self._input.batch_size
        self._run.progress(self._step * rows, self._total * rows, "examples")

    def _planned(self, state: State, stacks: Iterator[_Stack], beside: Future[Any] | None = None) -> Iterator[_Stack]:
        """See that the devices have the memory that the first dispatch is planned to take; the stacks, all of them.

        Args:
            state: That before the first step, or arrays' shapes with their shardings.
            stacks: The first is taken.
            beside: What is compiled meanwhile: as long as it is, nobody waits for the input.
        """
        begin = time.perf_counter()
        with self._times.looked_after(self._report):
            (stack, count), at = next(stacks)
        if beside is None or beside.done():
            self._times.seconds["input"] += time.perf_counter() - begin
        # The first call finds it compiled: JAX remembers what it lowers.
        compiled = self._program.compiled(state, stack)
        lowered = compiled.lower(state, stack, count, self._first, self._key)
        self._memory = step_bytes(lowered.compile(), stack, _AHEAD)
        if self._memory:
            self._memory = {**self._memory, **self._good_bytes(state)}
        refuse_excess(self._memory, self._placement)
        return chain([((stack, count), at)], stacks)

    def _good_bytes(self, state: State) -> dict[str, int]:
        """What a copy of a state takes on each device, where a rollback needs it."""
        return {} if self._options.step.rollback is None else {"good state": state_bytes(state, self._placement)}

    def _settle(self, losses: jax.Array, count: int, at: State) -> bool:
        """Wait for a dispatch and take in its losses; after it the input is at that state.

        Returns:
            Whether the training was rolled back: what was dispatched since is worth nothing.
        """
        with self._times.part("device"):
            values = np.asarray(losses)[:count].tolist()
        after, rolled_back = self._step + count, False
        for number, value in enumerate(values):
            if math.isfinite(value):
                self._epoch_losses.add(value)
                self._curve[self._step // self._stride].add(value)
                self._skipped = 0
            else:
                self._skipped += 1
                if not self._options.step.skips or self._skipped > _MOST_SKIPPED:
                    self._roll_back(self._broken(value, self._at, number), after)
                    rolled_back = True
                    break
            self._step += 1
            self._callbacks.call("on_step_end", self._step, self._progress, self._step, value)
        self._last, self._at = (self._at, count - 1), at
        return rolled_back

    def _keep_good(self) -> None:
        """Let this state be the one that a rollback leads to."""
        if self._options.step.rollback is not None:
            self._good = GoodState(self._step, copied(self._state), self._under_way())

    def _roll_back(self, error: InputError, after: int) -> None:
        """Return to the good state and go on behind the step under way.

        Args:
            error: What is wrong with that step.
            after: How many steps are then over.

        Raises:
            InputError: `error`, where no rollback is wanted, or there were as many as are allowed.
        """
        rollback, good = self._options.step.rollback, self._good
        if rollback is None or good is None:
            raise error
        if len(self._rollbacks) == rollback.times:
            times = "a rollback" if rollback.times == 1 else f"{rollback.times} rollbacks"
            raise InputError(f"{error.message}, after {times}", fix=error.fix)
        scale = rollback.factor ** (len(self._rollbacks) + 1)
        record = RollbackRecord(self._step + 1, good.step, after + 1, scale, error.message)
        self._rollbacks.append(record)
        self._state = copied(good.arrays) | self._program.put({"update_scale": np.float32(scale)})
        self._step = after
        self._take_up(good.record)
        self._skipped = 0
        begin = f"the state after step {good.step}" if good.step else "the initial state"
        self._run.note(
            f"{error.message}: back to {begin}, on with step {after + 1} of {self._total}, updates times {scale:g} "
            f"(rollback {len(self._rollbacks)} of {rollback.times}); {error.fix}"
        )
        self._callbacks.call("on_rollback", self._step, self._progress, record)
        good.record = self._under_way()  # so that callbacks know of this rollback after the next

    def _rolled_back_exploded(self) -> bool:
        """Whether parameters, or the model's state, were no numbers, and the training was rolled back for it.

        Only where the good state is taken: when a checkpoint is due is another moment in each attempt.
        """
        if self._options.step.rollback is None or (error := self._exploded()) is None:
            return False
        after = self._step
        self._step -= 1
        self._roll_back(error, after)
        return True

    def _end_epoch(self, epoch: int) -> bool:
        """Evaluate and record; whether a checkpoint of this epoch is the best so far."""
        steps = self._steps
        self._rolled_back_exploded()
        if not self._epoch_losses.count:
            if not self._rollbacks or self._rollbacks[-1].step <= epoch * steps:
                self._step -= 1
                self._roll_back(self._broken(math.nan, *self._last), self._step + 1)
            self._run.note(f"epoch {epoch + 1} of {self._run.epochs}: nothing of it is left")
            return False
        with self._times.waiting(_nothing, "evaluation"):  # a checkpoint amid it would lack this epoch
            eval_loss, metrics = None, dict[str, float]()
            if self._eval is not None:
                eval_loss, metrics = self._evaluated(self._eval, self._program.variables(self._state))
        skipped = steps - self._epoch_losses.count
        record = EpochRecord(epoch + 1, steps, self._epoch_losses.value, eval_loss, metrics, skipped)
        self._history.append(record)
        self._epoch_losses = _Mean()
        shown = [f"loss {record.loss:.5f}"]
        shown += [] if eval_loss is None else [f"eval loss {eval_loss:.5f}"]
        shown += [f"{name} {value:.5f}" for name, value in metrics.items()]
        shown += [f"{skipped} steps left out"] if skipped else []
        self._run.note(f"epoch {record.epoch} of {self._run.epochs}: {', '.join(shown)}")
        monitor = self._options.keep_best
        if monitor is not None and monitor.improves(value := monitor.value(record), self._best and self._best[0]):
            copy = jax.tree.map(jnp.copy, self._program.variables(self._state))  # the state is given away to the step
            self._best = (value, copy)
        self._callbacks.call("on_epoch_end", self._step, self._progress, record)
        self._keep_good()
        monitor = self._options.best_checkpoint
        if monitor is None or not monitor.improves(value := monitor.value(record), self._best_saved):
            return False
        self._best_saved = value
        return True

    def _evaluated(self, data: Dataset, variables: Variables) -> tuple[float, dict[str, float]]:
        """The mean eval loss over the batches of the eval split, and metrics."""
        totals = np.zeros(self._program.sums)
        batches = 0
        for (stack, count), _ in data.stream(0):
            totals += np.asarray(self._program.evaluate(variables, self._program.feed(stack), count), np.float64)
            batches += count
        if not batches:
            raise InputError("eval_data gave no batches", fix="make them smaller, or use drop_remainder=False")
        eval_loss, metrics = self._program.results(totals, batches)
        for name in sorted(name for name, value in metrics.items() if math.isnan(value)):
            reason = getattr(self._options.step.metrics[name], "undefined", "")
            if reason and name not in self._undefined:
                self._undefined.add(name)
                self._run.note(f"{name} has no value: {reason}")
        return eval_loss, metrics

    def _settings(self) -> dict[str, Any]:
        run = self._run
        settings = {"epochs": run.epochs, "batch_size": run.batch_size, "seed": run.seed}
        hyperparameters = run.hyperparameters
        if isinstance(hyperparameters, dict):  # a Tuner's notes what the function reads, which this is not
            hyperparameters = dict(dict.items(hyperparameters))
        return {**settings, "precision": self._options.step.precision.name, **hyperparameters}

    def _traced(self) -> tuple[Any, list[str]]:
        """What the model computes for a batch, and its inputs by name."""
        features = {name: array for name, array in self._run.example(2).items() if name != self._label}
        arguments = {"params": self._program.variables(self._state), "features": features}
        leaves = jax.tree_util.tree_flatten_with_path(arguments)[0]
        names = [jax.tree_util.keystr(path, simple=True, separator="/") for path, _ in leaves]
        traced = jax.make_jaxpr(lambda named: self._model.apply(named["params"], named["features"]))(arguments)
        return traced, names

    def _stop(self, reason: str) -> None:
        self._stopped = reason
        self._run.note(f"the training ends after this epoch: {reason}")

    def _save(self, best: bool = False) -> None:
        if self._checkpoints:
            with self._times.part("checkpoints"):
                self._save_to(self._checkpoints, best)

    def _save_to(self, checkpoints: Checkpoints, best: bool) -> None:
        if (error := self._exploded()) is not None:  # or a training that is broken would be gone on with
            if self._good is None:
                raise error
            return  # it is rolled back when its good state is next taken; an attempt before that begins further back
        state = dict(self._state)
        if self._options.keep_best is not None:
            state["best"] = self._program.variables(self._state) if self._best is None else self._best[1]
        record = {
            "plan": self._plan(),
            "history": [asdict(epoch) for epoch in self._history],
            "best": None if self._best is None else self._best[0],
            "best_saved": self._best_saved,
            **self._under_way(),
            **self._input.saved(self._at),
        }
        if self._good is not None:
            state["good"] = self._good.arrays
            record["good"] = {"step": self._good.step, "record": self._good.record}
            record["rollbacks"] = [asdict(rollback) for rollback in self._rollbacks]
        checkpoints.save(self._step, state, record, best=best)

    def _points(self) -> Iterator[tuple[int, float]]:
        for number, mean in enumerate(self._curve):
            if mean.count:
                yield min((number + 1) * self._stride, self._step), mean.value

    def _plan(self) -> dict[str, Any]:
        """What must be equal for a checkpoint to mean the same position in the same training."""
        step = self._options.step
        return {
            "seed": self._run.seed,
            "batch_size": self._input.batch_size,
            "rows": self._input.rows,
            "steps": self._total,
            "precision": step.precision.name,
            "ema": step.ema,
            "skip_nonfinite": step.skip_nonfinite,
            "callbacks": [type(callback).__name__ for callback in self._options.callbacks],
            **({"freeze": list(step.freezing.patterns)} if step.freezing.patterns else {}),
            **({} if step.rollback is None else {"rollback": asdict(step.rollback)}),
            **self._input.plan,
        }

    def _exploded(self) -> InputError | None:
        return exploded_state(self._state, self._spelled(self._step - 1))

    def _spelled(self, step: int) -> str:
        """A step, from 0, as a person counts."""
        epoch, number = divmod(step, self._steps)
        return f"step {step + 1} (epoch {epoch + 1}, batch {number + 1})"

    def _broken(self, value: float, before: State, after: int) -> InputError:
        """The error for the loss of this step.

        Args:
            value: The loss.
            before: A state of the input.
            after: Which batch it was after that.
        """
        what = f"the loss is {value} at"
        if self._options.step.skips:
            what = f"the loss or its gradients were not finite in {self._skipped} steps up to"
        elif self._options.step.rollback is not None:
            what = "the loss or a gradient is not finite at"
        return broken_loss(what, self._spelled(self._step), self._input.batch(self._step, before, after))


@dataclass
class _Mean:
    """A mean under way."""

    total: float = 0.0
    count: int = 0

    @property
    def value(self) -> float:
        return self.total / self.count

    def add(self, value: float) -> None:
        self.total += value
        self.count += 1


def _nothing() -> bool:
    return False
