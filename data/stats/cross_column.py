"""The protocol of statistics about several columns together, such as correlations, beside those of each by itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import pyarrow as pa


class CrossColumnState(Protocol):
    """A mergeable state over whole rows; equal rows give equal parts, however they are split."""

    def add(self, rows: pa.RecordBatch, features: Mapping[str, pa.Array]) -> None:
        """Take in a batch.

        Args:
            rows: Every column that was read.
            features: The columns that are described, by name.
        """
        ...

    def merge(self, other: Any) -> None:  # Any: of the same class
        """Take in the state of the rows that follow."""
        ...

    def result(self, names: Sequence[str]) -> dict[str, Any]:
        """What the document says, as JSON-able values.

        Args:
            names: The described columns, in the data's order.
        """
        ...

    def to_parts(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """The state as JSON-able scalars and named pyarrow arrays."""
        ...

    def load_parts(self, head: Mapping[str, Any], arrays: Mapping[str, Any]) -> None:
        """Become the state whose parts these are; called on an empty one with the same options."""
        ...
