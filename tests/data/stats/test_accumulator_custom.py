"""A user's accumulators beside the statistics."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from drivetrain.data import merge_statistics, statistics
from drivetrain.data.stats.document import Statistics
from drivetrain.errors import InputError
from drivetrain.tests.data.customs import Longest

TABLE = pa.table({"word": ["a", "ccc", None, "bb"], "n": [1, 2, 3, 4]})


def test_it_sees_every_column_and_stands_under_custom() -> None:
    measured = statistics(TABLE, columns=["n"], custom={"longest": Longest})
    assert list(measured.features("data")) == ["n"]
    assert measured.document["datasets"][0]["custom"] == {"longest": {"rows": 4, "word": "ccc"}}


def test_slices_have_their_own() -> None:
    measured = statistics(TABLE, slices=[{"n": [1, 4]}], custom={"longest": Longest})
    parts = measured.document["datasets"][0]["slices"]
    assert [part["custom"]["longest"] for part in parts] == [{"rows": 1, "word": "a"}, {"rows": 1, "word": "bb"}]


def test_shards_merge_along_the_tree() -> None:
    rows = pa.concat_tables([TABLE] * 50_000).combine_chunks()  # of four shards
    measured = statistics(rows, custom={"longest": Longest})
    assert measured.document["datasets"][0]["custom"]["longest"] == {"rows": 200_000, "word": "ccc"}


def test_a_loaded_one_asks_for_its_factory(tmp_path: Path) -> None:
    statistics(TABLE, custom={"longest": Longest}).save(tmp_path)
    loaded = Statistics.load(tmp_path)
    assert loaded.document["datasets"][0]["custom"]["longest"]["word"] == "ccc"
    with pytest.raises(InputError, match="stored as bytes") as caught:
        loaded.merge(loaded)
    assert "custom={'longest': …}" in str(caught.value)
    merged = merge_statistics([loaded, loaded], custom={"longest": Longest})
    assert merged.document["datasets"][0]["custom"]["longest"] == {"rows": 8, "word": "ccc"}


class Odd(Longest):
    """Whose result is not JSON."""

    def result(self) -> dict[str, Any]:
        return {"share": math.nan}


def test_mistakes_are_told() -> None:
    with pytest.raises(InputError, match="result of the custom accumulator 'odd' is not JSON"):
        statistics(TABLE, custom={"odd": Odd})
    not_a_factory: Any = {"odd": 3}
    with pytest.raises(InputError, match="'odd': 3} is not a factory"):
        statistics(TABLE, custom=not_a_factory)
