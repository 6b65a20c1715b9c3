"""An evaluation whose files were damaged is named as such: it has no verdict, and ends in no traceback."""

import json
from pathlib import Path
from typing import Any

import drivetrain as dt
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from drivetrain.components.evaluation import read_slices, read_validation
from drivetrain.components.evaluation.outputs import ONLY
from drivetrain.components.evaluation.run import write
from drivetrain.errors import InputError

ROWS = {"late": [0, 1, 1, 0] * 50, "p": [0.1, 0.8, 0.4, 0.6] * 50, "carrier": ["AA", "UA"] * 100}


@pytest.fixture
def content(tmp_path: Path) -> Path:
    result = dt.evaluate(ROWS, label="late", predictions="p", slices=[(), ("carrier",)])
    for name in ("content", "extra"):
        (tmp_path / name).mkdir()
    write({ONLY: result.models["p"]}, tmp_path / "content", tmp_path / "extra")
    return tmp_path / "content"


def replaced(table: pa.Table, column: str, values: pa.Array) -> pa.Table:
    return table.set_column(table.schema.get_field_index(column), column, values)


@pytest.mark.parametrize("key", ["{", "7", '"abc"', "[1]", "[" * 100_000, None])
def test_a_slice_that_is_none(content: Path, key: str | None) -> None:
    path = content / "metrics.parquet"
    assert [each.title for each in read_slices(content)] == ["overall", "carrier=AA", "carrier=UA"]
    table = pq.read_table(path)
    pq.write_table(replaced(table, "slice_key", pa.array([key] * len(table), pa.string())), path)
    with pytest.raises(InputError, match="holds no evaluation"):
        read_slices(content)


@pytest.mark.parametrize("column", ["slice", "slice_key", "n", "metric", "value", "undefined"])
def test_a_column_that_is_missing(content: Path, column: str) -> None:
    path = content / "metrics.parquet"
    pq.write_table(pq.read_table(path).drop_columns([column]), path)
    with pytest.raises(InputError, match=f"holds no evaluation: '{column}' is missing"):
        read_slices(content)


def test_text_that_is_no_text(content: Path) -> None:
    path = content / "metrics.parquet"
    table = pq.read_table(path)
    broken = pa.array([b"\xff\xfe"] * len(table)).view(pa.string())
    pq.write_table(replaced(table, "metric", broken), path)
    with pytest.raises(InputError, match="holds no evaluation"):
        read_slices(content)


@pytest.mark.parametrize("verdict", ["[]", "7", "null", "{}", '{"blessed": 1}', "[" * 100_000, "\udcff"])
def test_a_verdict_that_is_none(content: Path, verdict: Any) -> None:
    assert read_validation(content)["blessed"] is False
    (content / "validation.json").write_bytes(verdict.encode("utf-8", "surrogateescape"))
    with pytest.raises(InputError, match="holds no evaluation"):
        read_validation(content)
    (content / "validation.json").write_text(json.dumps({"blessed": True}))
    assert read_validation(content) == {"blessed": True}
