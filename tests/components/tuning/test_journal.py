"""The journal: what Optuna's own backend writes and reads, line by line."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from drivetrain.components.tuning.journal import StudyJournal
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("optuna")

TEXTS = st.text(max_size=5)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=5,
)
ENTRIES = st.lists(st.lists(st.dictionaries(TEXTS, VALUES, max_size=3), min_size=1, max_size=3), max_size=5)


@settings(max_examples=20)
@given(entries=ENTRIES)
def test_optunas_own_backend_writes_the_same_bytes_and_reads_them(
    entries: list[list[dict[str, Any]]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    from optuna.storages.journal import JournalFileBackend

    folder = tmp_path_factory.mktemp("journals")
    ours, theirs = StudyJournal(folder / "ours"), JournalFileBackend(str(folder / "theirs"))
    for logs in entries:
        ours.append_logs(logs)
        theirs.append_logs(logs)
    assert (folder / "ours").read_bytes() == (folder / "theirs").read_bytes()
    read = list(JournalFileBackend(str(folder / "ours")).read_logs(0))
    for number in range(len(read) + 2):
        for journal in (ours, StudyJournal(folder / "ours")):
            assert list(journal.read_logs(number)) == read[number:]


def test_what_is_no_number_is_read_as_such(tmp_path: Path) -> None:
    """Optuna writes NaN and infinities as Python's JSON does."""
    StudyJournal(tmp_path / "journal").append_logs([{"values": [math.nan, math.inf]}])
    (entry,) = StudyJournal(tmp_path / "journal").read_logs(0)
    assert math.isnan(entry["values"][0])
    assert entry["values"][1] == math.inf


def test_half_a_line_and_a_lock_go(tmp_path: Path) -> None:
    journal = tmp_path / "search" / "journal.log"
    StudyJournal(journal).append_logs([{"a": 1}])
    for half in (b'{"b', b"\xff", b'{"b": 2}'):
        with journal.open("ab") as file:
            file.write(half)
        (journal.parent / "journal.log.lock").symlink_to(journal)
        assert list(StudyJournal(journal).read_logs(0)) == [{"a": 1}]
    assert journal.read_bytes() == b'{"a":1}\n'
    assert [path.name for path in journal.parent.iterdir()] == ["journal.log"]
