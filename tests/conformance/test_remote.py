"""What the suite's pipelines make does not depend on where their artifacts lie."""

from __future__ import annotations

from pathlib import Path

import pytest
from drivetrain.metadata import LocalPayloads
from drivetrain.pipelines import Home
from drivetrain.tests.conformance import control_cases, table_cases
from drivetrain.tests.conformance import test_conformance as suite
from drivetrain.tests.s3 import bucket, s3, s3_server

__all__ = ["bucket", "s3", "s3_server"]

pytest.importorskip("fsspec")
NAMED = {
    case.pipeline.partition("/")[2]: case for case in (*control_cases.CASES, *table_cases.CASES) if not case.refused
}
QUICK = ["orders:gate", "branches:joined", "loops:in_each_other", "others:on_exit", "others:retried"]
SLOW = [
    ("loops:in_each_other", "file", "process"),
    ("others:on_exit", "file", "process"),
    ("flights:by_month", "file", "inline"),
    ("flights:windows", "file", "process"),
    ("loops:in_each_other", "s3", "inline"),
    ("orders:gate", "s3", "process"),
    ("flights:by_month", "s3", "inline"),
    ("penguins:trained", "s3", "inline"),
]


def _parameters() -> list[object]:
    found: list[object] = [(name, "memory", "inline") for name in QUICK]
    for name, where, runner in SLOW:
        marks = [pytest.mark.slow, *([pytest.mark.s3] if where == "s3" else [])]
        marks += [pytest.mark.engine] if NAMED[name].engine else []
        found.append(pytest.param(name, where, runner, marks=marks))
    return found


@pytest.mark.parametrize(("name", "where", "runner"), _parameters())
def test_conformance(
    name: str, where: str, runner: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    case = NAMED[name]
    urls = {"memory": f"memory://bucket/{tmp_path.name}", "file": f"file://{tmp_path}/share"}
    url = request.getfixturevalue("bucket") + "/runs" if where == "s3" else urls[where]
    here, there = Home(tmp_path / "here" / ".drivetrain"), Home(tmp_path / "there" / ".drivetrain", artifacts=url)
    try:
        assert isinstance(here.payloads, LocalPayloads)
        expected = suite._carry_out(case, "inline", here, monkeypatch)
        assert suite._carry_out(case, runner, there, monkeypatch) == expected
        assert not (there.root / "artifacts").exists()
        lying = there.payloads.published()
        assert all(each.whole for each in lying)
        assert len(lying) == len(here.payloads.published()) > 0
    finally:
        here.close()
        there.close()
