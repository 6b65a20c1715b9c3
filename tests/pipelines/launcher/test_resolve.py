"""The resolver works with the home that it is given."""

from __future__ import annotations

from pathlib import Path

import pytest
from drivetrain.metadata import LocalPayloads, Payloads
from drivetrain.pipelines import Home, RunOptions, run_pipeline
from drivetrain.pipelines.launcher.launcher import Launcher
from drivetrain.pipelines.launcher.runs import open_run
from drivetrain.tests.pipelines.processes import Pipe


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[Payloads]:
    payloads: list[Payloads] = []
    begin = LocalPayloads.__init__  # a protocol is never called itself

    def count(self: LocalPayloads, root: Path) -> None:
        payloads.append(self)
        begin(self, root)

    monkeypatch.setattr(LocalPayloads, "__init__", count)
    return payloads


def test_a_launcher_opens_no_payloads_beside_those_of_its_home(home: Home, pipe: Pipe, opened: list[Payloads]) -> None:
    run = open_run(home, run_pipeline(home, pipe("Make()"), options=RunOptions()).run)
    launcher = Launcher(home, run)
    assert launcher.resolver.past.present == home.payloads.present
    assert not opened  # whoever opened one would have to close it
