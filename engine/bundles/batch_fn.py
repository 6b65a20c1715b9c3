"""A saved bundle as what an executor applies to batches, in this process or in workers."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from .bundle import Bundle


@dataclass
class BundleFn:
    """A `data.BatchFn` over a saved bundle: batch → the signature's outputs, with some raw columns passed along.

    Pickles as path and names only; each worker loads the bundle once.

    Attributes:
        path: The bundle's folder, readable by every worker.
        signature: Which signature.
        keep: Raw columns put before the outputs; an output of the same name replaces one.
    """

    path: Path
    signature: str
    keep: tuple[str, ...] = ()
    _bundle: Bundle | None = field(default=None, init=False, repr=False, compare=False)

    def __reduce__(self) -> tuple[object, ...]:
        return BundleFn, (self.path, self.signature, self.keep)

    @property
    def bundle(self) -> Bundle:
        """The bundle, loaded and verified once."""
        if self._bundle is None:
            self._bundle = Bundle.load(self.path)
        return self._bundle

    def setup(self) -> None:
        """Load and verify the bundle, once."""
        _ = self.bundle

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The outputs for the batch; raises as `Bundle.run`."""
        return with_columns(batch, self.keep, self.bundle.run_arrow(self.signature, batch))


def with_columns(batch: pa.RecordBatch, keep: tuple[str, ...], outputs: pa.RecordBatch) -> pa.RecordBatch:
    """Some of a batch's columns, then those made from it."""
    columns = {name: batch.column(name) for name in keep if name not in outputs.schema.names}
    columns.update(zip(outputs.schema.names, outputs.columns, strict=True))
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
