"""The other process of `test_train_serve_equality`: knows the bundles and the raw rows, and none of the user's code."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from drivetrain.engine import Bundle

SIZES = (1, 3, 17, 511, 513, 1000, 2049)


def batches(table: pa.Table) -> Iterator[pa.RecordBatch]:
    """The rows in batches of odd sizes."""
    at, turn = 0, 0
    while at < table.num_rows:
        size = SIZES[turn % len(SIZES)]
        (batch,) = table.slice(at, size).combine_chunks().to_batches()
        yield batch
        at, turn = at + size, turn + 1


def main(folder: Path) -> None:
    """Write what each bundle gives for the rows, by batches and row by row."""
    rows = pq.read_table(folder / "raw.parquet")
    for name, signature in (("graph", "transform"), ("model", "predict")):
        bundle = Bundle.load(folder / name)
        by_batch = pa.Table.from_batches([bundle.run_arrow(signature, batch) for batch in batches(rows)])
        single = [bundle.run_row(signature, row) for row in rows.to_pylist()]
        by_row = {
            field.name: pa.array(
                [value.ravel() if hasattr(value := row[field.name], "ravel") else value for row in single],
                field.type,
                from_pandas=False,
            )
            for field in by_batch.schema
        }
        pq.write_table(by_batch, folder / f"{name}-batches.parquet")
        pq.write_table(pa.table(by_row), folder / f"{name}-rows.parquet")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
