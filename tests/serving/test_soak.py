"""The soak of soak.py, short: every kind of event once at least."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("httptools")
pytest.importorskip("grpc")

from drivetrain.tests.serving.soak import soak


@pytest.mark.slow
@pytest.mark.engine
def test_nothing_is_lost_or_wrong_while_versions_come_and_go(tmp_path: Path) -> None:
    report = soak(tmp_path, 20, swaps=6, rollbacks=2, ramps=1, kills=1, connections=8, seed=1, pause=0.005)
    assert (len(report.swaps), len(report.rollbacks), len(report.ramps), len(report.kills)) == (6, 2, 1, 1)
    assert report.problems() == []
    assert set(report.by_door) == {"rows", "columns", "oip", "binary", "grpc"}
    assert min(report.by_door.values()) > 50
    assert {answer.version for answer in report.answers} >= {2, 3, 4}
