"""Models applied to batches of raw rows; a row that a model cannot use is set aside with the reason.

A batch is tried whole, since nearly all have no such row. Where it fails, its halves are tried, down to the rows that
fail by themselves. Batches of any size give the other rows the same bits (`engine.bundles.runner`), so what is
predicted of a row does not depend on its neighbours, nor on how often the batch was halved.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ..data.arrays import arrow_of, texts
from ..engine import Bundle, BundleError
from ..errors import InputError

REASON: Final = "reason"
"""The column that says why a row was set aside."""


@dataclass(frozen=True)
class ModelCall:
    """One signature of one model.

    Attributes:
        path: The bundle's folder, readable by every worker.
        signature: Which signature.
        outputs: The output's name → what its column is called.
        name: Before a reason, where there are several calls; else empty.
    """

    path: Path
    signature: str
    outputs: Mapping[str, str]
    name: str = ""


@dataclass
class Inference:
    """A `data.BatchFn`: batch → kept columns, then the outputs of every call, of the rows that all of them can use.

    Pickles as paths and names only; each worker loads each bundle once.

    Attributes:
        calls: What to run, in order.
        keep: Columns put before the outputs.
        most: More rows of a batch than this that cannot be used are an error.
        bundles: The bundles that are loaded already, by folder.
    """

    calls: tuple[ModelCall, ...]
    keep: tuple[str, ...]
    most: int
    bundles: dict[Path, Bundle] = field(default_factory=dict, repr=False, compare=False)

    def __reduce__(self) -> tuple[object, ...]:
        return Inference, (self.calls, self.keep, self.most)

    def setup(self) -> None:
        """Load and verify the bundles, each once."""
        for call in self.calls:
            if call.path not in self.bundles:
                self.bundles[call.path] = Bundle.load(call.path)

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The predictions.

        Raises:
            InputError: More than `most` rows cannot be used, or a model does not give one row for each row.
            BundleError: A bundle cannot be run, whatever the rows.
        """
        columns, rows, reasons = self.run(batch)
        kept = batch.select(self.keep)
        if reasons:
            kept = kept.take(arrow_of(rows))
        return pa.RecordBatch.from_arrays([*kept.columns, *columns.values()], names=[*self.keep, *columns])

    def run(self, batch: pa.RecordBatch) -> tuple[dict[str, pa.Array], NDArray[np.int64], dict[int, str]]:
        """The outputs by column, the rows that they are of (rising), and the reason of each other row (rising).

        Raises:
            InputError: See `__call__`.
        """
        self.setup()
        rows = np.arange(batch.num_rows)
        columns: dict[str, pa.Array] = {}
        reasons: dict[int, str] = {}
        for call in self.calls:
            outputs, unusable = self._outputs(call, batch)
            if unusable:
                reasons |= {int(rows[row]): reason for row, reason in unusable.items()}
                if len(reasons) > self.most:
                    raise too_many(self.most, next(iter(reasons.values())))
                usable = np.setdiff1d(np.arange(batch.num_rows), list(unusable))
                indices = arrow_of(usable)
                batch, rows = batch.take(indices), rows[usable]
                columns = {name: column.take(indices) for name, column in columns.items()}
            columns |= {call.outputs[name]: outputs.column(name) for name in call.outputs}
        return columns, rows, dict(sorted(reasons.items()))

    def _outputs(self, call: ModelCall, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, dict[int, str]]:
        """A call's outputs for the rows that it can use, and the reason of each other row, by its number."""
        outputs: list[pa.RecordBatch] = []
        reasons: dict[int, str] = {}
        self._halve(call, batch, 0, outputs, reasons)
        if not outputs:
            outputs = [self.bundles[call.path].run_arrow(call.signature, batch.slice(0, 0))]
        return pa.concat_batches(outputs) if len(outputs) > 1 else outputs[0], reasons

    def _halve(
        self, call: ModelCall, batch: pa.RecordBatch, first: int, outputs: list[pa.RecordBatch], reasons: dict[int, str]
    ) -> None:
        """Append the outputs of a part of a batch, which begins at the row `first`: whole, or half by half."""
        bundle = self.bundles[call.path]
        try:
            outputs.append(_one_for_each(call, bundle, batch))
        except BundleError:
            raise
        except InputError:
            if batch.num_rows == 0:
                raise
            if batch.num_rows == 1:
                reasons[first] = f"{call.name}: {_reason(call, bundle, batch)}".removeprefix(": ")
                if len(reasons) > self.most:
                    raise too_many(self.most, next(iter(reasons.values()))) from None
                return
            middle = batch.num_rows // 2
            self._halve(call, batch.slice(0, middle), first, outputs, reasons)
            self._halve(call, batch.slice(middle), first + middle, outputs, reasons)


@dataclass(frozen=True)
class Rejections:
    """A `data.BatchFn` beside an `Inference`: batch → the rows that it leaves out, with the reason of each.

    Attributes:
        inference: Whose.
        reason: What the column of reasons is called.
    """

    inference: Inference
    reason: str = REASON

    def setup(self) -> None:
        """Load the bundles of the inference, once in each process."""
        self.inference.setup()

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """All columns of the rows, and the reasons; raises as the inference."""
        _, _, reasons = self.inference.run(batch)
        rows = batch.take(arrow_of(np.fromiter(reasons, np.int64, len(reasons))))
        return rows.append_column(self.reason, texts(list(reasons.values())))


def too_many(most: int, reason: str) -> InputError:
    """The error for more rows that cannot be used than may be."""
    return InputError(
        f"more than max_rejected={most:,} rows cannot be used; the first: {reason}",
        fix="correct the rows or the preprocessing function, or allow more by max_rejected=",
    )


def _one_for_each(call: ModelCall, bundle: Bundle, batch: pa.RecordBatch) -> pa.RecordBatch:
    outputs = bundle.run_arrow(call.signature, batch)
    if outputs.num_rows != batch.num_rows:
        raise BundleError(
            f"{call.name or 'the model'} gave {outputs.num_rows} rows for {batch.num_rows}",
            fix="preprocessing must keep one row for each example",
        )
    return outputs


def _reason(call: ModelCall, bundle: Bundle, row: pa.RecordBatch) -> str:
    """Why a row fails, as one that fails alone says it: a batch says also in which of its rows it was."""
    try:
        _, _, errors = bundle.run_each(call.signature, row)
    except InputError as error:
        return error.message
    return errors[0].message
