"""What corruption is found, as it is recorded: per kind never less, and the page says what the record says."""

from __future__ import annotations

import collections
import math
from itertools import islice

import pandas as pd
import pyarrow as pa
import pytest
from drivetrain.benchmarks import detection
from drivetrain.benchmarks.corruptions import KINDS, OWNERS, Case
from drivetrain.benchmarks.detection_data import DATA

RECORD = detection.Record.load()
SMALL = "airports"


def planted(name: str) -> dict[str, Case]:
    return {case.name: case for case in detection.trial(name).cases()}


def test_forty_kinds_are_planted_and_recorded() -> None:
    assert len({kind.name for kind in KINDS}) == len(KINDS) == 40
    assert {kind.owner for kind in KINDS} == set(OWNERS)
    cases = [case for table in RECORD.ours.values() for case in table["cases"]]
    assert {detection.kind_of(case) for case in cases} == {kind.name for kind in KINDS}
    assert list(RECORD.ours) == list(RECORD.tfdv) == list(DATA)
    large = {detection.share_of(case) for case in RECORD.ours["flights"]["cases"]}
    assert large == {0.001, 0.01, 0.1, None}


def test_the_recorded_answers_are_about_these_tables() -> None:
    assert detection.trial(SMALL).digest() == RECORD.digests[SMALL]


def test_a_case_damages_what_it_says() -> None:
    """By pandas: the chosen share of rows, and no other column."""
    trial = detection.trial(SMALL)
    clean = {row["faa"]: row for row in trial.rows.to_pylist()}
    for case in trial.cases():
        column = next(iter(case.touched))
        if case.share is None or case.touched != {column} or column not in case.rows.column_names:
            continue
        if case.kind.name.startswith("invalid UTF-8"):  # which pandas cannot hold as text
            broken = sum(
                b"\xff\xe9" in value for value in case.rows[column].combine_chunks().view("binary").to_pylist() if value
            )
            assert broken == round(case.share * case.rows.num_rows)
            continue
        frame = case.rows.to_pandas()
        others = [name for name in trial.rows.column_names if name not in (column, "faa")]
        known = frame[frame["faa"].isin(list(clean))] if column == "faa" else frame
        before = pd.DataFrame([clean[faa] for faa in known["faa"]])
        pd.testing.assert_frame_equal(known[others].reset_index(drop=True), before[others], check_dtype=False)
        if column != "faa":
            missing = frame[column].isna().to_numpy() & before[column].isna().to_numpy()
            changed = int(((frame[column].to_numpy() != before[column].to_numpy()) & ~missing).sum())
            if case.kind.name == "unit behind a number":  # then all are text
                changed = int(frame[column].str.endswith(" kg").sum())
            assert 0 < changed <= round(case.share * len(frame)), case.name


def test_whole_columns_are_damaged_as_they_are_named() -> None:
    cases = planted("diabetes")
    kinds = collections.Counter(case.kind.name for case in cases.values())
    assert kinds["column gone"] == kinds["another unit"] == 2
    for name, case in cases.items():
        column = name.split(", ")[1]
        if case.kind.name == "column gone":
            assert column not in case.rows.column_names
        if case.kind.name == "constant column":
            assert len(case.rows[column].unique()) == 1
        if case.kind.name == "column without values":
            assert case.rows[column].null_count == case.rows.num_rows
        if case.kind.name == "NaN" and case.share is not None:
            values = [value for value in case.rows[column].to_pylist() if math.isnan(value)]
            assert len(values) == round(case.share * case.rows.num_rows)


def test_the_inferred_schemas_find_what_is_recorded() -> None:
    trial = detection.trial(SMALL)
    gate = detection.Gate(trial.rows)
    recorded = RECORD.ours[SMALL]["cases"]
    for case in trial.cases():
        if case.share in (0.01, None):
            letters = gate.letters(case.rows, case.touched, "ab")
            assert set(recorded[case.name]) & set("ab") <= set(letters), case.name
    assert not any(gate.letters(span, asked="ab") for span in islice(trial.clean(), 3))


def test_no_kind_is_left_to_tfdv() -> None:
    for letter in "ac":
        assert not detection.behind(RECORD, letter)
    for name, table in RECORD.ours.items():
        peer = RECORD.tfdv[name]
        assert all(table["clean"][letter] <= max(1, peer["clean"][letter]) for letter in "ac"), name
        assert max(table["clean"].values()) <= 1, name
        assert table["unseen"]["a"] <= peer["unseen"]["a"], name


def test_a_gate_asks_drift_only_with_bounds() -> None:
    gate = detection.Gate(pa.table({"x": [1, 2, 3]}))
    with pytest.raises(AttributeError, match="call bound first"):
        gate.letters(pa.table({"x": [1]}))


def test_the_page_shows_the_record() -> None:
    text = detection.PAGE.read_text("utf-8")
    assert detection.page(RECORD, text) == text


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_no_kind_is_found_less_often_than_recorded() -> None:
    trials = [detection.trial(name) for name in DATA]
    assert {trial.name: trial.digest() for trial in trials} == RECORD.digests
    answers = {trial.name: detection.ours(trial) for trial in trials}
    measured = detection.Record(RECORD.version, RECORD.digests, answers, RECORD.tfdv)
    for kind in KINDS:
        for letter in "abc":
            for share in (*detection.SHARES, None):
                now, then = (side.share([kind.name], "ours", letter, (share,)) for side in (measured, RECORD))
                assert (now or 0) >= (then or 0), f"{kind.name} ({letter}, {share}): {now}, recorded {then}"
    for name, table in answers.items():
        assert max(table["clean"].values()) <= 1, name
