"""The bounded summaries of a column that has too many distinct values for an exact table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ..aggregates.sketches import DistinctSketch, FrequentSketch, QuantileSketch, TextSample
from ..aggregates.sums import ExactMoments
from ..aggregates.tables import (
    NumberTable,
    TextTable,
    invalid_utf8,
    merge_texts,
    text_lengths,
    text_offsets,
)
from ..aggregates.text_rows import hashes_of
from ..arrays import arrow_of, numpy_of
from ..states import array_bytes, bytes_array


class Sketches:
    """The summaries of a column with too many distinct values. Minimum, maximum, moments and lengths stay exact.

    Attributes:
        low: Smallest number, or None (text, nothing).
        high: Largest number, or None.
        zeros: Rows that are 0.
        length: Code points of all rows together; of text only.
        bytes: Bytes of all rows together; of text only.
        broken: Rows that are not valid UTF-8; of text only.
        whole: Whether all numbers are whole, see `whole_numbers`; False of states of releases that did not look.
    """

    def __init__(self, *, text: bool) -> None:
        self.text = text
        self.distinct = DistinctSketch()
        self.frequent = FrequentSketch()
        self.sample = TextSample()
        self.quantile = QuantileSketch()
        self.moments = ExactMoments()
        self.low: int | float | None = None
        self.high: int | float | None = None
        self.zeros = 0
        self.length = 0
        self.bytes = 0
        self.broken = 0
        self.whole = True

    def add(self, table: Any) -> None:
        """Add the values of a table, each as often as it counts."""
        self.frequent.add(table)
        if self.text:
            hashes = hashes_of(table)
            self.distinct.add_hashes(hashes)
            self.sample.add(table.values, table.counts, hashes)
            self.length += int((text_lengths(table.values) * table.counts).sum())
            self.bytes += int((np.diff(text_offsets(table.values)) * table.counts).sum())
            self.broken += invalid_utf8(table)
            return
        self.distinct.add(table)
        self.quantile.add(table)
        self.moments.add(table.values, table.counts)
        self.zeros += int(table.counts[table.values == 0].sum())
        self.whole = self.whole and whole_numbers(table.values)
        self._bound(table.values[0].item(), table.values[-1].item())

    def _bound(self, low: float, high: float) -> None:
        self.low = low if self.low is None else min(self.low, low)
        self.high = high if self.high is None else max(self.high, high)

    def merge(self, other: Sketches) -> None:
        """Take in the summaries of the rows that follow."""
        self.distinct.merge(other.distinct)
        self.frequent.merge(other.frequent)
        self.sample.merge(other.sample)
        self.quantile.merge(other.quantile)
        self.moments.merge(other.moments)
        self.zeros += other.zeros
        self.length += other.length
        self.bytes += other.bytes
        self.broken += other.broken
        self.whole = self.whole and other.whole
        if other.low is not None and other.high is not None:
            self._bound(other.low, other.high)

    def kept_texts(self, rows: int) -> tuple[TextTable, TextTable]:
        """The texts that were kept, frequent and sampled ones: each with its rows, and with the rows it stands for.

        A frequent value has at least its rows; a sampled one stands for its part of all other rows, and is only the
        beginning of a text of more than 512 bytes.

        Args:
            rows: Rows of the column that are not null.
        """
        frequent, sample = self.frequent.table, self.sample
        assert isinstance(frequent, TextTable)
        rare = numpy_of(pc.invert(pc.is_in(sample.values, value_set=frequent.values))).astype(np.bool_)
        others = TextTable(sample.values.take(arrow_of(np.flatnonzero(rare))), sample.counts[rare])
        share = (rows - frequent.total) / max(others.total, 1)
        standing = np.maximum(np.rint(others.counts * share).astype(np.int64), 1)
        return merge_texts([frequent, others]), merge_texts([frequent, TextTable(others.values, standing)])

    def to_parts(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """JSON-able scalars and named pyarrow arrays."""
        frequent = self.frequent.table
        assert frequent is not None
        head: dict[str, Any] = {
            "low": self.low, "high": self.high, "zeros": self.zeros, "length": self.length, "bytes": self.bytes,
            "broken": self.broken, "whole": self.whole,
            "frequent_error": self.frequent.error, "quantile_error": self.quantile.error, "odd": self.quantile.odd,
        }  # fmt: skip
        arrays = {
            "values": table_values(frequent.values),
            "counts": arrow_of(frequent.counts),
            "registers": arrow_of(self.distinct.registers),
            "moments": bytes_array(self.moments.to_bytes()),
        }
        if self.text:
            arrays |= {
                "sample_hashes": arrow_of(self.sample.hashes),
                "sample_values": self.sample.values,
                "sample_counts": arrow_of(self.sample.counts),
            }
        for level, values in enumerate(self.quantile.levels):
            arrays[f"level{level}"] = arrow_of(values)
        return head, arrays

    @classmethod
    def from_parts(cls, head: Mapping[str, Any], arrays: Mapping[str, Any], *, text: bool) -> Sketches:
        """The summaries that `to_parts` gave."""
        sketches = cls(text=text)
        for name in ("low", "high", "zeros", "length", "bytes", "broken"):
            setattr(sketches, name, head[name])
        sketches.whole = head.get("whole", False)
        sketches.frequent.table = table_of(arrays["values"], arrays["counts"])
        sketches.frequent.error = head["frequent_error"]
        sketches.distinct.registers = numpy_of(arrays["registers"]).copy()
        sketches.moments = ExactMoments.from_bytes(array_bytes(arrays["moments"]))
        if text:
            sketches.sample.hashes = numpy_of(arrays["sample_hashes"])
            sketches.sample.values = arrays["sample_values"]
            sketches.sample.counts = numpy_of(arrays["sample_counts"])
        sketches.quantile.error = head["quantile_error"]
        sketches.quantile.odd = list(head["odd"])
        sketches.quantile.levels = [numpy_of(arrays[f"level{level}"]) for level in range(len(head["odd"]))]
        return sketches


def whole_numbers(values: NDArray[Any]) -> bool:
    """Whether all numbers are integers; of floats those up to 2^53, beyond which some integers are not float64."""
    if values.dtype.kind != "f":
        return True
    # A few first: a continuous column is seen by them.
    return all(is_whole(part).all() for part in (values[:64], values))


def is_whole(values: NDArray[Any]) -> NDArray[np.bool_]:
    """Which numbers are integers, as far as a float64 can be sure of them."""
    sure: NDArray[np.bool_] = (values == np.floor(values)) & (np.abs(values) <= 2.0**53)
    return sure


def table_values(values: Any) -> Any:
    """A table's values as a pyarrow array."""
    return arrow_of(values) if isinstance(values, np.ndarray) else values


def table_of(values: Any, counts: Any) -> NumberTable | TextTable:
    """The table of pyarrow arrays, as `table_values` gave them."""
    if pa.types.is_large_binary(values.type):
        return TextTable(values, numpy_of(counts))
    return NumberTable(numpy_of(values), numpy_of(counts))
