"""The mean of each output of models, computed while the outputs are written."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, Self

import numpy as np
import pyarrow as pa

from ..data import ExactSum
from ..data.arrays import numpy_of
from ..data.states import StateFormat

_STATE: Final = StateFormat("means of outputs", b"DTOM", 1, "", "apply the models again")


class OutputMeans:
    """A `data.Accumulator`: for each column its mean, and how many of its values are missing, NaN or infinite.

    Batches are the same on every executor, and their sums are added exactly.

    Args:
        widths: The columns, with how many numbers a row has: None for a scalar.
    """

    def __init__(self, widths: Mapping[str, int | None]) -> None:
        self._widths = dict(widths)
        self._sums = {name: [ExactSum() for _ in range(width or 1)] for name, width in widths.items()}
        self._counts = {name: [0] * (width or 1) for name, width in widths.items()}
        self._undefined = dict.fromkeys(widths, 0)

    def add_batch(self, batch: pa.RecordBatch) -> None:
        """Take in the rows of one batch, which may have other columns as well."""
        for name, width in self._widths.items():
            column = batch.column(name) if width is None else batch.column(name).flatten()
            self._undefined[name] += column.null_count
            values = numpy_of(column.drop_null() if column.null_count else column).reshape(-1, width or 1)
            for position, total in enumerate(self._sums[name]):
                numbers = values[:, position]
                if numbers.dtype == np.float64:
                    numbers = numbers[np.isfinite(numbers)]
                    total.add(numbers)
                else:
                    # What is narrower cannot leave float64's range, and one sum of a batch is quicker.
                    batch_sum = numbers.sum(dtype=np.float64, keepdims=True)
                    if not np.isfinite(batch_sum[0]):
                        numbers = numbers[np.isfinite(numbers)]
                        batch_sum = numbers.sum(dtype=np.float64, keepdims=True)
                    total.add(batch_sum)
                self._counts[name][position] += len(numbers)
                self._undefined[name] += len(values) - len(numbers)

    def merge(self, other: Self) -> None:
        """Take in the means of further rows."""
        for name, sums in self._sums.items():
            self._undefined[name] += other._undefined[name]
            self._counts[name] = [sum(pair) for pair in zip(self._counts[name], other._counts[name], strict=True)]
            for mine, theirs in zip(sums, other._sums[name], strict=True):
                mine.merge(theirs)

    def compact(self) -> None:
        """Its size does not depend on the rows."""

    def result(self) -> dict[str, dict[str, Any]]:
        """By column the `mean`, a list for vectors, None without values, and how many values are `undefined`."""
        described: dict[str, dict[str, Any]] = {}  # Any: JSON
        for name, width in self._widths.items():
            pairs = zip(self._sums[name], self._counts[name], strict=True)
            means = [float(total.fraction() / count) if count else None for total, count in pairs]
            described[name] = {"mean": means[0] if width is None else means, "undefined": self._undefined[name]}
        return described

    def to_bytes(self) -> bytes:
        """The sums and counts as bytes, which `from_bytes` reads; equal rows give equal bytes."""
        sums = {name: [total.to_bytes().hex() for total in totals] for name, totals in self._sums.items()}
        return _STATE.pack(json.dumps([self._widths, sums, self._counts, self._undefined]).encode())

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """The state that `to_bytes` wrote.

        Raises:
            InputError: The bytes are not such a state.
        """
        with _STATE.unpack(data) as (body,):
            widths, sums, counts, undefined = json.loads(bytes(body))
            restored = cls(widths)
            for name, totals in sums.items():
                restored._sums[name] = [ExactSum.from_bytes(bytes.fromhex(total)) for total in totals]
            restored._counts, restored._undefined = counts, undefined
        return restored
