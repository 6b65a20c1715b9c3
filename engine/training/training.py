"""Training: what a user's `train(run)` is given, and the loop that fits a model on it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...data import Manifest
from ...errors import InputError, missing_extra, suggest
from ...progress import Progress, no_progress
from ..graphs.graph import FieldSpec
from .loader import WINDOW_BYTES, Batch, Loader
from .strategy import STRATEGIES, Strategy

if TYPE_CHECKING:
    import jax
    import optax

    from .model import Model, Outputs, Params

    Arrays = Mapping[str, jax.Array]
    Loss = Callable[[Outputs, Arrays], jax.Array]
    Predict = Callable[[Outputs], Mapping[str, jax.Array]]


@dataclass(frozen=True)
class EpochRecord:
    """One epoch of a training.

    Attributes:
        epoch: 1 for the first.
        steps: Batches it trained on.
        loss: Mean of the losses of its batches, each taken before that batch's update.
        eval_loss: Mean loss over the full batches of the eval split after the epoch, None without that split.
    """

    epoch: int
    steps: int
    loss: float
    eval_loss: float | None = None


@dataclass(frozen=True)
class Trained:
    """What `train(run)` returns: all that an export needs, and how it went.

    Attributes:
        params: The parameters, numpy arrays where `run.fit` made them.
        apply: Outputs from parameters and features.
        predict: What a prediction shows, arrays [batch, ...] by name, from the outputs.
        label: Name of the label's column; never among the features of `apply`.
        history: One record per epoch.
        curve: The training loss as some hundred points (step, mean loss of the steps since the point before).
        first_step: The step of the checkpoint that this attempt went on from, 0 where it began anew.
        steps: Steps that this attempt ran.
        examples: Rows that this attempt trained on.
    """

    params: Params
    apply: Callable[[Params, Arrays], Outputs]
    predict: Predict
    label: str
    history: tuple[EpochRecord, ...] = ()
    curve: tuple[tuple[int, float], ...] = ()
    first_step: int = 0
    steps: int = 0
    examples: int = 0


def _no_note(text: str) -> None: ...


def _no_rehearsal(apply: Any, params: Params, predict: Predict, label: str) -> object: ...


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
        work_dir: Where checkpoints go and are looked for; None keeps none. It must belong to this configuration alone.
        checkpoint_seconds: Save at least this often, besides each eighth of the run where saving is cheap beside it.
        depth: Steps per dispatch to the device.
        window_bytes: Decoded data that is shuffled together and held in memory.
        progress: Called with the examples trained so far; what it raises (Canceled) ends the training after a
            checkpoint.
        note: Called with a line of text that a person should see.
        rehearse: Called by `fit` before anything is computed with apply, the shapes of the parameters
            (`jax.ShapeDtypeStruct`), predict and label: raises what would make the export fail in the end.
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
    work_dir: Path | None = None
    checkpoint_seconds: float = 30.0
    depth: int = 32
    window_bytes: int = WINDOW_BYTES
    progress: Progress = no_progress
    note: Callable[[str], None] = _no_note
    rehearse: Callable[[Callable[..., Outputs], Params, Predict, str], object] = _no_rehearsal

    def __post_init__(self) -> None:
        for name in ("epochs", "batch_size", "depth"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} is {getattr(self, name)}", fix="use 1 or more")
        if not 0 <= self.seed < 2**32:  # JAX would take a larger one for its low 32 bits
            raise InputError(f"seed is {self.seed}", fix="use 0 to 4294967295")

    def key(self) -> jax.Array:
        """A PRNG key from the seed."""
        try:
            import jax
        except ImportError as error:
            raise missing_extra("jax", "engine") from error
        return jax.random.key(self.seed)

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
            return self.train_data.epoch(epoch, start)
        return self._loader(split, self.batch_size, shuffle=False).epoch(epoch, start)

    def fit(
        self, model: Model, *, loss: Loss, predict: Predict, optimizer: optax.GradientTransformation, label: str
    ) -> Trained:
        """Train a model: `epochs` passes of `steps_per_epoch` steps, resumed from the newest checkpoint.

        A resumed training ends with the same bits as an uninterrupted one.

        Args:
            model: The functional core, e.g. from `nnx_model`.
            loss: A scalar from outputs and batch (all columns, [batch_size, ...], the label too), differentiable.
            predict: Arrays by name from outputs, for serving and evaluation.
            optimizer: From optax.
            label: The column that is kept from the model.

        Raises:
            InputError: The label is not a column; a batch cannot be split over the devices; the loss is not a scalar,
                or became NaN or infinite (named with its step); or `rehearse` refused the model.
            Canceled: `progress` raised it; a checkpoint of that moment is saved first.
        """
        from .fit import Fit

        if label not in self.features:
            raise InputError(
                f"the label {label!r} is not a column of the transformed examples",
                fix=suggest(label, list(self.features), "return it, as a number, from preprocess, which returns"),
            )
        return Fit(self, model, loss, predict, optimizer, label).run()

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
