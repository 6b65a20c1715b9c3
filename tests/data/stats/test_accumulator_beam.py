"""Statistics by the Beam executor: the bytes of the local one, tables and sketches alike."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from drivetrain.data import LocalExecutor, executor, open_parquet, statistics

pytestmark = pytest.mark.beam
pytest.importorskip("apache_beam")


@pytest.mark.parametrize("limit", [100_000, 700])
def test_states_and_documents_are_equal(tmp_path: Path, limit: int) -> None:
    random = np.random.default_rng(0)
    rows = 30_000
    table = pa.table(
        {
            "real": random.normal(size=rows),
            "whole": random.integers(0, 50, rows),
            "word": [None if i % 11 == 0 else f"w{i % 5_000}" for i in range(rows)],
            "time": pa.array(random.integers(0, 10**6, rows), pa.timestamp("ms", "UTC")),
        }
    )
    pq.write_table(table, tmp_path / "in.parquet", row_group_size=1_700)
    source = {"all": open_parquet([tmp_path / "in.parquet"])}
    local = statistics(source, LocalExecutor(2), limit=limit)
    beam = statistics(source, executor("beam"), limit=limit)
    assert beam.state("all").to_bytes() == local.state("all").to_bytes()
    assert beam.to_json() == local.to_json()
    assert local.features("all")["real"]["unique"]["exact"] is (limit == 100_000)
