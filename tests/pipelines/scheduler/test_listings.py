"""Spans by listings that are kept: what glob says, at each look; and folders that have not changed are not read."""

from __future__ import annotations

import glob
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from drivetrain.errors import InputError
from drivetrain.pipelines.project.spans import SpanPattern, parse
from drivetrain.pipelines.scheduler.listings import SpanListings
from hypothesis import given
from hypothesis import strategies as st

PATTERNS = [parse(text) for text in (
    "data/{SPAN}.csv", "data/*/{SPAN}.csv", "*/[ab]/{SPAN}-{VERSION}.csv", "data/{YYYY}-{MM}-{DD}/*.csv",
    "data/{SPAN}/part.csv", "./data/{SPAN:2}.csv", "data/.hidden/{SPAN}.csv", "{SPAN}.csv",
)]  # fmt: skip
NAMES = ("1.csv", "2.csv", "11.csv", "1-1.csv", "1-2.csv", "x.csv", "part.csv", ".3.csv", "99999999999999999999.csv")
FOLDERS = (
    "",
    "data",
    "data/a",
    "data/b",
    "data/1",
    "data/7",
    "data/2026-11-28",
    "data/2026-99-01",
    "data/.hidden",
    "other/a",
)
operations = st.lists(
    st.tuples(
        st.sampled_from(("write", "remove", "drop", "link", "folder")), st.sampled_from(FOLDERS), st.sampled_from(NAMES)
    ),
    min_size=1,
    max_size=25,
)


def by_glob(pattern: SpanPattern, folder: Path) -> list[tuple[int, int | None]]:
    newest: dict[int, int | None] = {}
    for path in glob.glob(pattern.filled({}), root_dir=folder):  # noqa: PTH207 - as `dt.files` does
        try:
            read = pattern.read(path) if (folder / path).is_file() else None
        except InputError:
            continue
        if read is not None and read[0] < 1 << 63:
            span, version, _ = read
            newest[span] = max(newest.get(span) or 0, version) if version is not None else None
    return sorted(newest.items())


def change(folder: Path, operation: tuple[str, str, str]) -> None:
    what, below, name = operation
    path = folder / below / name
    if what == "write":
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.is_symlink() and not path.is_dir():
            path.write_text("")
    elif what == "folder" and not os.path.lexists(path):
        path.mkdir(parents=True)
    elif what == "remove" and path.is_dir() and not path.is_symlink():
        path.rmdir()
    elif what == "remove":
        path.unlink(missing_ok=True)
    elif what == "drop" and below:
        shutil.rmtree(folder / below, ignore_errors=True)
    elif what == "link" and path.parent.is_dir() and not os.path.lexists(path):
        path.symlink_to(folder / "target")


@given(operations, st.booleans())
def test_what_is_listed_is_what_glob_finds(steps: list[tuple[str, str, str]], has_target: bool) -> None:
    """Each change has a time of its own, long ago, as where a look comes seconds later."""
    with tempfile.TemporaryDirectory() as name:
        folder, listings = Path(name), SpanListings()
        moment = time.time_ns() - 3600 * 10**9
        times: dict[Path, int] = {}
        for number, step in enumerate(steps):
            change(folder, step)
            if has_target and number == len(steps) // 2:
                (folder / "target").write_text("")
            for path in [folder, *(each for each in folder.rglob("*") if each.is_dir() and not each.is_symlink())]:
                if times.get(path) != path.stat().st_mtime_ns:
                    times[path] = moment + number * 10**9
                    os.utime(path, ns=(times[path], times[path]))
            for pattern in PATTERNS:
                assert list(listings.newest(pattern, [folder])) == by_glob(pattern, folder), pattern.text


def test_the_first_folder_that_has_any_and_absolute_patterns(tmp_path: Path) -> None:
    listings = SpanListings()
    first, second = tmp_path / "first", tmp_path / "second"
    for folder in (first, second):
        (folder / "data").mkdir(parents=True)
    (second / "data" / "2.csv").write_text("")
    pattern = parse("data/{SPAN}.csv")
    assert listings.newest(pattern, [first, second]) == [(2, None)]
    (first / "data" / "1.csv").write_text("")
    assert listings.newest(pattern, [first, second]) == [(1, None)]
    assert listings.newest(parse(f"{second}/data/{{SPAN}}.csv"), [first]) == [(2, None)]
    assert listings.newest(parse(f"{tmp_path}/none/{{SPAN}}.csv"), [first]) == []


def test_a_folder_is_read_when_it_has_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    scandir: Callable[[str], object] = os.scandir

    def counted(path: str) -> object:
        read.append(Path(path).name)
        return scandir(path)

    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "1.csv").write_text("")
    long_ago = time.time_ns() - 3600 * 10**9
    for path in (tmp_path / "a", tmp_path / "b", tmp_path):
        os.utime(path, ns=(long_ago, long_ago))
    listings, pattern = SpanListings(), parse("*/{SPAN}.csv")
    with monkeypatch.context() as patched:  # not beyond: folders of tests are removed by it
        patched.setattr(os, "scandir", counted)
        for _ in range(3):
            listings.newest(pattern, [tmp_path])
        assert sorted(read) == sorted([tmp_path.name, "a", "b"])
        (tmp_path / "b" / "2.csv").write_text("")
        read.clear()
        assert listings.newest(pattern, [tmp_path]) == [(1, None), (2, None)]
        listings.newest(pattern, [tmp_path])  # another file may have come within the tick of its clock
        assert read == ["b", "b"]
