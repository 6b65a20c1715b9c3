"""Statistics as a folder: saved where there is none, loaded without the rows."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from drivetrain.data import Statistics, infer_schema, statistics, validate
from drivetrain.errors import InputError


def test_statistics_are_saved_into_a_folder_that_is_made(tmp_path: Path) -> None:
    january = statistics(pa.table({"a": [1, 2, 3], "b": ["x", "y", "x"]}))
    folder = tmp_path / "statistics" / "2013-01"
    january.save(folder)
    january.save(folder)  # once more, over itself
    loaded = Statistics.load(folder)
    assert loaded.to_json() == january.to_json()
    assert validate(loaded, infer_schema(january)).passed


def test_statistics_are_not_saved_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"statistics cannot be saved in .*file: "):
        statistics(pa.table({"a": [1]})).save(tmp_path / "file")
