"""What reads or writes a file takes its path as text too."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pytest
from drivetrain import data
from drivetrain.errors import InputError


class Saved(Protocol):
    def save(self, path: Path | str) -> None: ...


TABLE = pa.table({"id": [1, 2, 3], "fare": [2.5, 9.0, 400.0]})
SCHEMA = data.infer_schema(TABLE, slack=0.0)
OTHER = pa.table({"id": [1, 2, 3], "fare": [2.5, 9.0, 900.0]})


def test_what_a_person_wrote_is_read(tmp_path: Path) -> None:
    (tmp_path / "schema.yaml").write_text(data.schema_to_yaml(SCHEMA))
    assert data.load_schema(str(tmp_path / "schema.yaml")) == data.load_schema(tmp_path / "schema.yaml")
    (tmp_path / "schema.pbtxt").write_text('feature { name: "fare" type: FLOAT }')
    assert [feature.name for feature in data.load_pbtxt(str(tmp_path / "schema.pbtxt")).schema.features] == ["fare"]
    (tmp_path / "checks.pbtxt").write_text(
        'feature_validations { feature_path { step: "fare" } '
        'validations { sql_expression: "feature.num_stats.max < 500" severity: ERROR } }'
    )
    (check,) = data.load_checks(str(tmp_path / "checks.pbtxt"))
    assert check.sql == "feature.num_stats.max < 500"


@pytest.mark.parametrize(
    ("made", "written"),
    [
        (data.statistics(TABLE), ""),
        (data.diff_examples(TABLE, OTHER, key="id"), ""),
        (data.validate(OTHER, SCHEMA), "anomalies.json"),
        (data.update_schema(SCHEMA, OTHER), "patch.yaml"),
        (
            data.check_expectations(
                data.statistics(TABLE),
                data.read_suite({"name": "s", "expectations": [
                    {"type": "expect_column_mean_to_be_between", "kwargs": {"column": "fare", "max_value": 15}}
                ]}),
            ),
            "results.json",
        ),
    ],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_what_was_made_is_saved_and_loaded(tmp_path: Path, made: Saved, written: str) -> None:
    place = str(tmp_path / written)
    kind: Any = type(made)  # Any: five classes with one way
    made.save(place)
    asked, told = kind.load(place), kind.load(Path(place))
    assert asked.to_html() == told.to_html() if hasattr(made, "to_html") else repr(asked) == repr(told)


def test_a_single_file_needs_no_list(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("a\n1\n2\n")
    assert data.open_files(str(tmp_path / "x.csv")).rows == data.open_files(tmp_path / "x.csv").rows == 2


def test_a_path_that_leads_nowhere_says_where_it_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=r"^gone\.csv does not exist") as relative:
        data.statistics("gone.csv")
    assert str(tmp_path) in (relative.value.fix or "")
    with pytest.raises(InputError, match="does not exist") as absolute:
        data.statistics(str(tmp_path / "gone.csv"))
    assert absolute.value.fix == "check the path"
