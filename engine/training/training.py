"""Training: what a user's `train(run)` is given, and the loop that fits a model on it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ...addresses import scheme_in_path
from ...data import Manifest, open_examples
from ...errors import InputError, missing_extra, suggest
from ...progress import Progress, no_progress
from ..graphs.graph import FieldSpec
from .loader import WINDOW_BYTES, Batch, Loader, zeros
from .strategy import STRATEGIES, Strategy

if TYPE_CHECKING:
    import jax
    import optax

    from .callbacks import Callback
    from .checkpoint import CheckpointPolicy
    from .custom_step import Gradients
    from .input.dataset import Dataset
    from .model import Model, Outputs, Variables
    from .rollback import Rollback, RollbackRecord
    from .tables import SparseTables

    Arrays = Mapping[str, jax.Array]
    Loss = Callable[[Outputs, Arrays], jax.Array]
    Metric = Callable[[Outputs, Arrays], jax.Array]
    Predict = Callable[[Outputs], Mapping[str, jax.Array]]


@dataclass(frozen=True)
class EpochRecord:
    """One epoch of a training.

    Attributes:
        epoch: 1 for the first.
        steps: Batches it trained on.
        loss: Mean of the losses of its batches, each taken before that batch's update; of steps left out none is.
        eval_loss: Mean loss over the full batches of the eval split after the epoch, None without that split.
        metrics: Further metrics of the same batches, by name.
        skipped: How many of the steps were left out, their loss or gradients not being finite, or were rolled back.
    """

    epoch: int
    steps: int
    loss: float
    eval_loss: float | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)
    skipped: int = 0


def last_steps(history: Sequence[EpochRecord]) -> list[int]:
    """The number of the last step of each epoch; one that was rolled back as a whole is not there, and counts too."""
    steps, ends, before = 0, [], 0
    for record in history:
        steps += record.steps * max(1, record.epoch - before)
        before = record.epoch
        ends.append(steps)
    return ends


@dataclass(frozen=True)
class Trained:
    """What `train(run)` returns: all that an export needs, and how it went.

    Attributes:
        params: What `apply` takes, a pytree: the parameters, with the state of a model that has one; numpy arrays where
            `run.fit` made them.
        apply: Outputs from those and features.
        predict: What a prediction shows, arrays [batch, ...] by name, from the outputs.
        label: Name of the label's column; never among the features of `apply`.
        history: One record per epoch.
        curve: The training loss as some hundred points (step, mean loss of the steps since the point before).
        first_step: The step of the checkpoint that this attempt went on from, 0 where it began anew.
        steps: Steps that this attempt ran.
        examples: Rows that this attempt trained on.
        stopped: Why the training ended before its last epoch, "" where it did not.
        kept_epoch: The epoch whose parameters `keep_best` kept; None where they are those after the last step.
        seconds: Where the time of this attempt went, by part: "start" (looking at the model, compiling, initial state
            or restored one), "input" (waiting for batches), "device" (waiting for steps), "evaluation", "checkpoints",
            and "host", all else, such as callbacks.
        memory: Bytes that a step takes on each device, by part: "state" (parameters, optimizer and what else is kept),
            "batches" and "intermediate" (activations, gradients), "good state" (of a rollback); empty where the backend
            does not say.
        input_seconds: How long each step of the input worked, by its name, beside all that in a thread.
        checkpoints: The folders of those that the policy keeps beyond the training, by step.
        rollbacks: In their order. An epoch of which nothing is left has no record in the history.
    """

    params: Variables
    apply: Callable[[Variables, Arrays], Outputs]
    predict: Predict
    label: str
    history: tuple[EpochRecord, ...] = ()
    curve: tuple[tuple[int, float], ...] = ()
    first_step: int = 0
    steps: int = 0
    examples: int = 0
    stopped: str = ""
    kept_epoch: int | None = None
    seconds: Mapping[str, float] = field(default_factory=dict)
    memory: Mapping[str, int] = field(default_factory=dict)
    input_seconds: Mapping[str, float] = field(default_factory=dict)
    checkpoints: Mapping[int, Path] = field(default_factory=dict)
    rollbacks: tuple[RollbackRecord, ...] = ()


def _no_note(text: str) -> None: ...


def _no_rehearsal(apply: Any, params: Variables, predict: Predict, label: str) -> object: ...


@dataclass(frozen=True)
class TrainingRun:
    """The data, the settings and the surroundings of one training.

    Attributes:
        features: Every column of the transformed examples, the label too.
        examples: Content folder of the transformed examples.
        epochs: Passes over the train split.
        batch_size: Rows per step.
        seed: Of parameters and order; equal seeds give equal parameters, bit by bit, on one kind of machine.
        hyperparameters: The user's own settings, JSON values.
        strategy: How state and batches lie on the devices.
        train_split: The split to train on.
        eval_split: The split whose loss is measured after each epoch, None for none.
        base_model: Arrays by name that `fit` begins with, where they have the same path, shape and dtype (see
            `warm_start.read_variables`); None: it begins with `Model.init` alone.
        work_dir: Where checkpoints go and are looked for; None keeps none. It must belong to this configuration alone.
        log_dir: Where callbacks leave files, such as TensorBoard's.
        checkpoint_seconds: Save at least this often, besides each eighth of the run where saving is cheap beside it.
        depth: Steps per dispatch to the device.
        window_bytes: Decoded data that is shuffled together and held in memory.
        progress: Called with the examples trained so far; what it raises (Canceled) ends the training after a
            checkpoint.
        note: Called with a line of text that a person should see.
        rehearse: Called by `fit` before anything is computed with apply, the shapes of the parameters
            (`jax.ShapeDtypeStruct`), predict and label: raises what would make the export fail in the end.
        callbacks: Called by `fit` after those that it is given: of who runs the user's function.
        role: "alone" trains, and evaluates after each epoch. "trainer" leaves that to another process, and saves a
            checkpoint after each epoch for it. That process is "evaluator": its `fit` trains nothing, but measures each
            checkpoint in the same `work_dir`, until the training's last, and calls no callbacks; it appends to
            `log_dir/eval/evaluations.jsonl`, and to event files there where a `TensorBoard` is among the callbacks.
        patience: Seconds that an evaluator waits where no training is at work in that folder, before an error ends it.
    """

    features: Mapping[str, FieldSpec]
    examples: Path
    epochs: int = 1
    batch_size: int = 512
    seed: int = 0
    hyperparameters: Mapping[str, Any] = field(default_factory=dict)  # Any: JSON
    strategy: Strategy = STRATEGIES["single"]
    train_split: str = "train"
    eval_split: str | None = "eval"
    base_model: Mapping[str, Any] | None = None  # Any: NumPy arrays of several dtypes
    work_dir: Path | None = None
    log_dir: Path = Path("logs")
    checkpoint_seconds: float = 30.0
    depth: int = 32
    window_bytes: int = WINDOW_BYTES
    progress: Progress = no_progress
    note: Callable[[str], None] = _no_note
    rehearse: Callable[[Callable[..., Outputs], Variables, Predict, str], object] = _no_rehearsal
    callbacks: Sequence[Callback] = ()
    role: Literal["alone", "trainer", "evaluator"] = "alone"
    patience: float = 600.0

    def __post_init__(self) -> None:
        for name in ("epochs", "batch_size", "depth"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} is {getattr(self, name)}", fix="use 1 or more")
        if not 0 <= self.seed < 2**32:  # JAX would take a larger one for its low 32 bits
            raise InputError(f"seed is {self.seed}", fix="use 0 to 4294967295")
        for name in ("work_dir", "log_dir"):
            if (scheme := scheme_in_path(getattr(self, name) or "")) is not None:
                raise InputError(
                    f"{name} is {scheme}://…, which is not a folder of this machine",
                    fix="give a folder, and copy what is to stay from there to the store",
                )

    def key(self) -> jax.Array:
        """A PRNG key from the seed."""
        try:
            import jax
        except ImportError as error:
            raise missing_extra("jax", "engine") from error
        return jax.random.key(self.seed)

    def example(self, rows: int = 1) -> Batch:
        """A batch of zeros, of the shapes and dtypes of this run's: for libraries that build a model from one."""
        return zeros(self.features, rows)

    @cached_property
    def train_data(self) -> Loader:
        """The train split in this run's order."""
        return self._loader(self.train_split, self.batch_size, shuffle=True)

    def eval_data(self, multiple: int = 1) -> Loader | None:
        """The eval split in stored order, None where there is none or it has no rows.

        Args:
            multiple: The batch size is the run's, or less where the split has fewer rows, rounded down to this.
        """
        if self.eval_split is None:
            return None
        rows = sum(part.rows for part in Manifest.read(self.examples).parts(self.eval_split))
        size = min(self.batch_size, rows) // multiple * multiple
        if size == 0:
            self.note(f"split {self.eval_split!r} has {rows} rows: no eval loss")
            return None
        return self._loader(self.eval_split, size, shuffle=False)

    @property
    def steps_per_epoch(self) -> int:
        """Full batches in the train split."""
        return self.train_data.batches

    def batches(self, split: str = "train", epoch: int = 0, start: int = 0) -> Iterator[Batch]:
        """Batches for your own training loop: numpy arrays [batch_size, *feature shape] by column.

        A column of lists is a `Ragged` of batch_size rows.

        Args:
            split: "train" for the train split, shuffled by seed and epoch; another split's name gives its rows in
                stored order.
            epoch: Which pass, from 0.
            start: The first batch wanted: a loop resumes exactly from (epoch, start).

        Raises:
            InputError: There is no such split, or it has less than a batch.
        """
        if split in ("train", self.train_split):
            if self.role == "evaluator":
                raise InputError(
                    "an evaluator trains nothing, and there is no `run.fit` before this loop",
                    fix="leave `evaluator` out of Trainer: it is for checkpoints that `run.fit` saves",
                )
            return self.train_data.epoch(epoch, start)
        return self._loader(split, self.batch_size, shuffle=False).epoch(epoch, start)

    def dataset(self, split: str | None = None) -> Dataset:
        """The rows of a split in stored order, by column, for an input pipeline of your own.

        Args:
            split: Its name; None for the train split.

        Raises:
            InputError: There is no such split.
        """
        from .input.sources import FileRows

        source = open_examples(self.examples, split or self.train_split, self.features)
        return FileRows(source, {name: spec for name, spec in self.features.items() if spec.shape})

    def fit(
        self,
        model: Model,
        *,
        loss: Loss,
        predict: Predict,
        optimizer: optax.GradientTransformation,
        label: str,
        metrics: Mapping[str, Metric] | None = None,
        callbacks: Sequence[Callback] = (),
        keep_best: str | tuple[str, Literal["min", "max"]] | None = None,
        checkpoints: CheckpointPolicy | None = None,
        precision: Literal["float32", "bfloat16", "float16"] = "float32",
        ema: float | None = None,
        skip_nonfinite: bool = False,
        rollback: Rollback | None = None,
        freeze: Sequence[str] = (),
        tables: SparseTables | None = None,
        gradients: Gradients | None = None,
        data: Dataset | None = None,
        eval_data: Dataset | None = None,
        steps_per_epoch: int | None = None,
    ) -> Trained:
        """Train a model: `epochs` passes of `steps_per_epoch` steps, resumed from the newest checkpoint.

        A resumed training ends with the same bits as an uninterrupted one, with all that the options add.

        Args:
            model: The functional core, e.g. from `nnx_model`.
            loss: A scalar from outputs and batch (all columns, [batch_size, ...], the label too), differentiable.
            predict: Arrays by name from outputs, for serving and evaluation.
            optimizer: From optax. One that looks at the loss (`optax.contrib.reduce_on_plateau`) is given it.
            label: The column that is kept from the model.
            metrics: By name, scalars from outputs and batch, as the loss, whose means over the eval split are recorded
                after each epoch; or metrics of all its rows, such as `engine.metrics.auc`.
            callbacks: Called in this order, such as `EarlyStopping`.
            keep_best: "loss" or "eval_loss", for the parameters of the epoch where it was smallest; or a metric's name
                with "min" or "max". None: those after the last step.
            checkpoints: Which are kept beside the newest two, such as `CheckpointPolicy(keep_period=10_000)`.
            precision: What the model computes in while it is trained: "bfloat16", or "float16" with a loss scale that
                adapts itself. Parameters, losses, evaluation and the exported model are of float32 in each.
            ema: The decay, 0 to 1, of a moving average of the parameters, which is evaluated and exported.
            skip_nonfinite: Leave out a step whose loss or gradients are NaN or infinite, and go on from the parameters
                before it, up to 50 times in a row.
            rollback: Where a loss, a gradient or a parameter is NaN or infinite, return to the last good state, of the
                begin or of the end of an epoch, and go on behind that batch with smaller updates: so many times as
                `Rollback(times=3, factor=0.5)` says. Steps that `skip_nonfinite` or "float16" leave out are none, until
                there are 50 in a row.
            freeze: Patterns of names of parameters, such as "encoder.*", that keep their initial values (those of the
                base model, where there is one), and of arrays of the model's own state. The optimizer sees and
                remembers nothing of them.
            tables: Embedding tables of which a step reads and writes only the rows that its batch looks up; `optimizer`
                changes all other parameters.
            gradients: A training step of your own: (loss, gradients, next state of the model) from (parameters, state,
                batch, PRNG key of the step), in place of `jax.grad` of `loss`, which is then of the evaluation alone.
            data: Batches to train on in place of those of the train split, such as
                `run.dataset().shuffle(run.seed, window=100_000).map(augment, seed=run.seed).batch(run.batch_size)`.
                Checkpoints hold its state.
            eval_data: Batches to evaluate on, in place of those of the eval split.
            steps_per_epoch: Batches of `data` that are called an epoch, after which the model is evaluated; None for
                one pass, where its number of rows is known.

        Raises:
            InputError: The label is not a column; a batch cannot be split over the devices; the loss is not a scalar,
                or became NaN or infinite (named with its step) once more than `rollback` allows; an option that cannot
                be; a callback raised something; or `rehearse` refused the model.
            DrivetrainError: Another training uses `work_dir`, or a checkpoint cannot be read or written; in the role
                "evaluator", the training ended before its last step.
            Canceled: `progress` raised it; a checkpoint of that moment is saved first.
            KeyboardInterrupt: SIGINT or SIGTERM came, or what the handler of either raises; likewise, after the step.
        """
        from .arguments import (
            check_callbacks,
            check_datasets,
            check_functions,
            check_metrics,
            check_rollback,
            monitor_of,
        )
        from .checkpoint import CheckpointPolicy
        from .fit import Fit, FitOptions
        from .freezing import Freezing
        from .input.stacks import DatasetInput
        from .precision import precision as find_precision
        from .program import StepOptions

        if label not in self.features:
            raise InputError(
                f"the label {label!r} is not a column of the transformed examples",
                fix=suggest(label, list(self.features), "return it, as a number, from preprocess, which returns"),
            )
        functions = {"loss": loss, "predict": predict} | ({} if gradients is None else {"gradients": gradients})
        check_functions(model, optimizer, functions)
        check_metrics(metrics or {})
        check_callbacks(callbacks)
        check_rollback(rollback)
        check_datasets({"data": data, "eval_data": eval_data})
        if ema is not None and not 0 <= ema < 1:
            raise InputError(f"ema is {ema}", fix="use a decay from 0 to less than 1, such as 0.999")
        if isinstance(freeze, str):
            raise InputError(f"freeze is the text {freeze!r}", fix=f"give a list: freeze=[{freeze!r}]")
        if gradients is not None and (tables is not None or precision == "float16"):
            raise InputError(
                f"gradients= does not go with {'tables=' if tables is not None else 'precision=' + repr(precision)}",
                fix="leave one of them out" + ("" if tables is not None else ", or use 'bfloat16'"),
            )
        step = StepOptions(
            dict(metrics or {}),
            find_precision(precision),
            ema,
            skip_nonfinite,
            Freezing(tuple(freeze)),
            tables,
            gradients,
            rollback,
        )
        policy = checkpoints or CheckpointPolicy()
        options = FitOptions(
            step,
            (*callbacks, *self.callbacks),
            monitor_of("keep_best", keep_best, list(metrics or ())),
            policy,
            monitor_of("best", policy.best, list(metrics or ())),
        )
        if data is None and steps_per_epoch is not None:
            raise InputError("steps_per_epoch is of data, which is not there", fix="add data=run.dataset()…")
        training_input = None if data is None else DatasetInput.of(data, steps_per_epoch)
        fit = Fit(self, model, loss, predict, optimizer, label, options, training_input, eval_data)
        return fit.follow() if self.role == "evaluator" else fit.run()

    def _loader(self, split: str, batch_size: int, *, shuffle: bool) -> Loader:
        return Loader(
            self.examples,
            split,
            self.features,
            batch_size=batch_size,
            seed=self.seed,
            shuffle=shuffle,
            window_bytes=self.window_bytes,
        )
