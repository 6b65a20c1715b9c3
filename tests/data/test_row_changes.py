"""Rows added and removed between two data sets: a multiset difference, as Counter has it."""

from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from drivetrain.data.examples import Manifest, Part
from drivetrain.data.row_changes import row_changes

BASE = [("a", 1), ("b", 2), ("b", 2), (None, 3)]
Rows = list[tuple[str | None, int]]


def content(folder: Path, splits: dict[str, Rows], **more: str) -> Path:
    listed = []
    for name, rows in splits.items():
        table = pa.table({"x": [x for x, _ in rows], "y": pa.array([y for _, y in rows], pa.int64())})
        for column, value in more.items():
            table = table.append_column(column, pa.array([value] * len(rows)))
        path = folder / f"split={name}" / "part-00000.parquet"
        path.parent.mkdir(parents=True)
        pq.write_table(table, path)
        listed.append((name, (Part(path.relative_to(folder).as_posix(), len(rows), 1, ""),)))
    Manifest(tuple(listed), tuple((field.name, str(field.type)) for field in table.schema)).write(folder)
    return folder


@pytest.mark.parametrize(
    ("rows", "kind"),
    [
        (BASE, "unchanged"),
        ([*BASE, ("c", 4)], "appended"),
        ([*BASE, ("a", 1)], "appended"),
        ([("c", 4), *BASE], "added"),
        (BASE[1:], "removed"),
        ([*BASE[:2], ("b", 5), BASE[3]], "edited"),
        ([("d", 9)], "replaced"),
        (BASE[::-1], "reordered"),
        ([], "removed"),
    ],
)
def test_rows_are_compared_as_multisets(tmp_path: Path, rows: Rows, kind: str) -> None:
    changes = row_changes(content(tmp_path / "old", {"all": BASE}), content(tmp_path / "new", {"all": rows}))
    before, after = Counter(BASE), Counter(rows)
    assert (changes.added, changes.removed) == ((after - before).total(), (before - after).total())
    assert (changes.kept, changes.kind) == ((before & after).total(), kind)


def test_splits_together_and_columns_apart(tmp_path: Path) -> None:
    old = content(tmp_path / "old", {"train": BASE[:2], "eval": BASE[2:]}, gone="g")
    new = content(tmp_path / "new", {"eval": BASE[:2], "train": BASE[2:]}, come="c")
    changes = row_changes(old, new)
    assert (changes.kind, changes.columns) == ("reordered", ("gone removed", "come added"))
