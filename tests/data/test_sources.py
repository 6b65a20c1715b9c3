"""Sources: batches of a fixed size, whatever they are read from."""

from __future__ import annotations

import base64
import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from drivetrain.data import statistics
from drivetrain.data.sources import open_parquet, rebatch
from drivetrain.errors import InputError


def test_lists_of_more_than_2_31_items_are_all_there() -> None:
    items = 1_200_000_000
    lists = pa.ListArray.from_arrays(pa.array([0, items], pa.int32()), pa.nulls(items))  # nulls take no memory
    batches = [pa.record_batch({"clicks": lists, "n": pa.array([number])}) for number in range(3)]
    read = list(rebatch(iter(batches), 2))
    assert [row for batch in read for row in batch["n"].to_pylist()] == [0, 1, 2]
    assert {len(clicks) for batch in read for clicks in batch["clicks"]} == {items}


@pytest.mark.slow  # Arrow copies what it can join
def test_rows_of_more_than_2_gib_of_text_are_all_there() -> None:
    size = 1_080_000_000  # never written: pages of zeros that the system does not give before someone writes

    def value() -> pa.Array:
        offsets, zeros = np.array([0, size], np.int32), np.zeros(size, np.uint8)
        return pa.Array.from_buffers(pa.binary(), 1, [None, pa.py_buffer(offsets), pa.py_buffer(zeros)])

    batches = [pa.record_batch({"image": value(), "n": pa.array([number])}) for number in range(2)]
    read = list(rebatch(iter(batches), 1000))
    assert [batch["n"].to_pylist() for batch in read] == [[0], [1]]


def test_a_zone_whose_name_is_not_text_is_a_damaged_file(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"at": pa.array([0, 1], pa.timestamp("us", "Europe/Oslo"))}), path)
    spelled = (pq.read_metadata(path).metadata or {})[b"ARROW:schema"]
    other = base64.b64encode(base64.b64decode(spelled).replace(b"Europe/Oslo", b"E\xd4rope/Oslo"))
    path.write_bytes(path.read_bytes().replace(spelled, other))
    with pytest.raises(InputError, match="not a whole Parquet file"):
        open_parquet([path])


def test_a_column_whose_name_is_not_text_is_a_damaged_file(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"column": ["a", "b"]}), path, store_schema=False)
    whole = path.read_bytes()
    refused = 0
    for start in [match.start() for match in re.finditer(b"column", whole)]:  # in the schema, and in each row group
        path.write_bytes(whole[:start] + b"c\xfflumn" + whole[start + 6 :])
        try:
            statistics({"a": open_parquet([path])})
        except InputError as error:
            refused += "not a whole Parquet file" in error.message
    assert refused
