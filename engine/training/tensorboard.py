"""Curves, histograms, the graph and more of a training, as event files that TensorBoard opens."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from ...errors import InputError, missing_extra, suggest
from .callbacks import Callback

if TYPE_CHECKING:
    from pathlib import Path

    from tensorboardX import SummaryWriter

    from .callbacks import Json, TrainingProgress
    from .event_files import EventFile
    from .rollback import RollbackRecord
    from .training import EpochRecord

_POINTS = 1000
"""Of the loss curve, where `every` does not say otherwise: writing a point takes some 200 microseconds."""
_FAR = 9e19
"""Where the bins of a histogram end; one that holds none is an error of tensorboardX."""
_PROJECTED = 10_000
"""Rows of an embedding: as many as the projector of TensorBoard works with."""


Labels = Sequence[object] | Mapping[str, Sequence[object]]
"""Of the rows of an embedding: one for each, or several columns of them by name."""


class TensorBoard(Callback):
    """Writes event files for TensorBoard while a model is fitted.

    They lie in `progress.log_dir`: in the node's work folder while the training is under way, and in `extra/logs` of
    the model that comes out. `tensorboard --logdir` of a folder above shows all that lie there. Written are:

    - scalars: `step/loss`; of each epoch `epoch/loss`, `epoch/eval_loss` and the metrics of `fit`, at its last step;
    - histograms of all parameters, after each epoch;
    - text: the settings of the training, as a table; each rollback, at the step that it returned from;
    - hyperparameters, beside losses and metrics, for the HPARAMS tab;
    - the graph of what the model computes for a batch, by operation of JAX;
    - embeddings that are named, with a label for each row, for the projector.

    A training that goes on from a checkpoint writes a further file, and TensorBoard forgets what the interrupted one
    had written after that checkpoint.
    """

    def __init__(
        self,
        *,
        every: int | None = None,
        histograms: bool = True,
        graph: bool = True,
        embeddings: Mapping[str, Labels | None] | None = None,
    ) -> None:
        """Nothing is written yet.

        Args:
            every: Steps between two points of `step/loss`; None: so many that there are about a thousand points.
            histograms: Whether parameters are written after each epoch.
            graph: Whether the model's operations are written.
            embeddings: Parameters of shape [rows, size] by their path, such as "cut.embedding", and a label for each
                row, columns of such labels by name, or None; written when the training ends, at most the first 10,000
                rows.

        Raises:
            InputError: `every` is below 1, or tensorboardX is not installed.
        """
        if every is not None and every < 1:
            raise InputError(f"every is {every}", fix="use 1 or more")
        try:
            import tensorboardX  # noqa: F401 # so that a training that cannot write says so before it begins
        except ImportError as error:
            raise missing_extra("tensorboardX", "tensorboard") from error
        self._every, self._histograms, self._graph = every, histograms, graph
        self._embeddings = embeddings or {}
        self._writer: EventFile | None = None
        self._step = 0

    @property
    def writer(self) -> SummaryWriter:
        """What the files are written with, for images, audio or text of your own: `writer.add_image(…)`.

        Raises:
            InputError: The training has not begun.
        """
        if self._writer is None:
            raise InputError(
                "TensorBoard has no writer yet: the training has not begun",
                fix="use it in on_epoch_end, say, of a callback that stands behind TensorBoard in the list",
            )
        return self._writer

    def on_train_begin(self, progress: TrainingProgress) -> None:
        """Open a file; in the first attempt, write what is known before the first step."""
        from .event_files import EventFile

        variables = named_arrays(progress.variables())
        for name, labels in self._embeddings.items():
            _check_labels(name, labels, _embedding(name, variables))
        if self._every is None:
            self._every = max(1, progress.epochs * progress.steps_per_epoch // _POINTS)
        self._writer = EventFile(
            str(progress.log_dir),
            purge_step=self._step + 1 if self._step else None,
            filename_suffix=f".{self._step:012}",  # or an attempt begun in the same second overwrites the one before
        )
        if self._step:
            return
        rows = "".join(f"| {_cell(name)} | {_cell(value)} |\n" for name, value in progress.settings().items())
        self._writer.add_text("settings", f"| setting | value |\n|---|---|\n{rows}", 0)
        self._add_hyperparameters(self._writer, progress)
        if self._graph:
            from .graph_events import graph_event

            self._writer.file_writer.add_event(graph_event(*progress.traced()))

    def on_step_end(self, progress: TrainingProgress, step: int, loss: float) -> None:
        """Write a point of the loss curve now and then."""
        assert self._every is not None  # since on_train_begin
        self._step = step
        if step % self._every == 0:
            add_scalar(self.writer, "step/loss", loss, step)
        elif self._writer is not None:
            self._writer.flush_late()

    def on_epoch_end(self, progress: TrainingProgress, record: EpochRecord) -> None:
        """Write losses, metrics and histograms."""
        values = {"loss": record.loss, "eval_loss": record.eval_loss, **record.metrics}
        for name, value in values.items():
            if value is not None:
                add_scalar(self.writer, f"epoch/{name}", value, self._step)
        if self._histograms:
            for name, array in named_arrays(progress.variables()).items():
                if np.isfinite(array).all():  # tensorboardX gives up on others
                    shown = array if np.abs(array).max() < _FAR else np.clip(array.astype(np.float64), -_FAR, _FAR)
                    self.writer.add_histogram(f"parameters/{name}".replace(".", "/"), shown, self._step)

    def on_rollback(self, progress: TrainingProgress, record: RollbackRecord) -> None:
        """Write what was not finite, and where the training went back to."""
        self._step = record.step  # what is written of the steps before stays
        text = f"{record.reason}: back to step {record.restored_step}, on with step {record.resumed_step}, "
        self.writer.add_text("rollback", f"{text}updates times {record.scale:g}", record.step)

    def on_train_end(self, progress: TrainingProgress) -> None:
        """Write the embeddings and close the file."""
        variables = named_arrays(progress.variables()) if self._embeddings else {}
        (progress.log_dir / "projector_config.pbtxt").unlink(missing_ok=True)  # of an attempt that ended here
        _remove(progress.log_dir / f"{self._step:05}")
        for name, labels in self._embeddings.items():
            rows = _embedding(name, variables)[:_PROJECTED]
            texts, header = _metadata(labels, len(rows))
            self.writer.add_embedding(rows, texts, metadata_header=header, global_step=self._step, tag=name)

    def close(self) -> None:
        """Write out what is waiting."""
        if self._writer is not None:
            self._writer.close()

    def state_dict(self) -> Mapping[str, Json]:
        """The last step that was written."""
        return {"step": self._step}

    def load_state_dict(self, state: Mapping[str, Json]) -> None:
        """Go on from there."""
        self._step = state["step"]

    def _add_hyperparameters(self, writer: SummaryWriter, progress: TrainingProgress) -> None:
        from tensorboardX.summary import hparams

        values = {
            name: value if isinstance(value, (bool, float, str)) or _is_int64(value) else str(value)
            for name, value in progress.settings().items()
        }
        results = dict.fromkeys((f"epoch/{name}" for name in progress.monitored), 0)
        for summary in hparams(values, results):
            writer.file_writer.add_summary(summary)


def add_scalar(writer: SummaryWriter, name: str, value: float, step: int) -> None:
    """Write a point, as `writer.add_scalar` does; that logs a warning of what is not finite, which names nothing."""
    from tensorboardX.summary import scalar

    summary = scalar(name, 0.0)
    summary.value[0].simple_value = value
    writer.file_writer.add_summary(summary, step)


def named_arrays(variables: Any) -> dict[str, np.ndarray[Any, np.dtype[Any]]]:
    """The arrays of numbers in a pytree by their path, such as "hidden.kernel"; without those of no elements."""
    leaves = [
        (path, leaf)
        for path, leaf in jax.tree_util.tree_flatten_with_path(variables)[0]
        if not jnp.issubdtype(getattr(leaf, "dtype", np.float32), jax.dtypes.prng_key)  # they are no numbers
    ]
    arrays = {jax.tree_util.keystr(path, simple=True, separator="."): np.asarray(leaf) for path, leaf in leaves}
    return {
        name: array if array.dtype.kind in "iuf" else array.astype(np.float32)  # bfloat16 is of kind V
        for name, array in arrays.items()
        if array.size
    }


def _embedding(name: str, variables: Mapping[str, Any]) -> Any:
    """The rows of an embedding by its name, which is that of a parameter; of a model with a state there are others."""
    array = variables.get(name, variables.get(f"params.{name}"))
    if array is None:
        matrices = [path.removeprefix("params.") for path, value in variables.items() if value.ndim == 2]
        raise InputError(f"there is no parameter {name!r} to project", fix=suggest(name, matrices, "there are"))
    if array.ndim != 2:
        raise InputError(f"the parameter {name!r} has shape {list(array.shape)}", fix="name one of shape [rows, size]")
    return array


def _check_labels(name: str, labels: Labels | None, rows: Any) -> None:
    columns = labels.values() if isinstance(labels, Mapping) else () if labels is None else (labels,)
    for column in columns:
        if len(column) != len(rows):
            raise InputError(
                f"the embedding {name!r} has {len(rows)} rows, and {len(column)} labels are given",
                fix="give one label for each row, those of unknown and missing values too",
            )


def _metadata(labels: Labels | None, rows: int) -> tuple[list[Any] | None, list[str] | None]:
    """What tensorboardX takes for the labels of the first rows: a text for each, or several, and the columns' names."""
    if labels is None:
        return None, None
    if not isinstance(labels, Mapping):
        return [_line(label) for label in labels[:rows]], None
    if len(labels) == 1:  # TensorBoard expects no header above a single column
        return [_line(label) for label in next(iter(labels.values()))[:rows]], None
    columns = [[_line(label) for label in column[:rows]] for column in labels.values()]
    return [list(row) for row in zip(*columns, strict=True)], [_line(name) for name in labels]


def _is_int64(value: object) -> bool:
    """Whether tensorboardX takes a value for a whole number: it has NumPy look at it."""
    return isinstance(value, int) and -(2**63) <= value < 2**63


def _cell(value: object) -> str:
    """A value in a table of Markdown."""
    return " ".join(str(value).split()).replace("|", "\\|")


def _line(label: object) -> str:
    """A label as one line of a file of tab-separated values."""
    return " ".join(str(label).split()) or "(empty)"


def _remove(folder: Path) -> None:
    if folder.exists():
        shutil.rmtree(folder)
