"""Runs that are cut down at a given step, stopped, doubled, or find their disk full: nothing lost, nothing twice."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from drivetrain.pipelines import Home, PipelineFunction, resume, run_pipeline
from drivetrain.tests.pipelines import faulty


@pytest.fixture
def shop(tmp_path: Path) -> PipelineFunction[..., object]:
    return faulty.write(tmp_path)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """What each task of the pipeline makes, where nothing happens."""
    folder = tmp_path_factory.mktemp("undisturbed")
    home = Home(folder / "home" / ".drivetrain")
    try:
        result = run_pipeline(home, faulty.write(folder))
        assert result.state == "COMPLETE"
        assert (home.base / "lines.txt").read_text().splitlines()[-1] == "Last COMPLETE"
        return faulty.fingerprints(result)
    finally:
        home.close()


@pytest.fixture(autouse=True)
def nothing_runs_on(home: Home) -> Iterator[None]:
    yield
    faulty.waits(lambda: not faulty.left(home), 30)


CUTS = [
    "claimed/Make", "started/Both", "staged/Make", "first-renamed/Pair", "renamed/Sum", "moved/Join",
    "output-stored/Pair", "committed/Fresh", "before-finish/Flaky", "finished/Flaky", "inserted/Twin",
    "attached/Small", "recorded/Small", "claimed/Last", "renamed/Last", "committed/Last",
]  # fmt: skip


@pytest.mark.parametrize("cut", CUTS)
def test_a_run_that_is_killed_at_a_step_is_finished(
    home: Home, shop: PipelineFunction[..., object], undisturbed: dict[str, list[str]], cut: str
) -> None:
    process = faulty.start(home, shop.project, cut=cut)
    process.communicate(timeout=60)
    assert process.returncode == -9
    before = faulty.shown(home)
    assert before[""] == "INTERRUPTED"
    assert "RUNNING" not in before.values()
    faulty.settled(home, resume(home), undisturbed)
