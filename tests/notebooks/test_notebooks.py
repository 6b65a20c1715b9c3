"""Every notebook runs from top to bottom in a fresh kernel, and shows what it promises."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"


@pytest.mark.parametrize("path", sorted(NOTEBOOKS.glob("*.ipynb")), ids=lambda path: path.name)
def test_a_committed_notebook_is_valid_and_holds_no_outputs(path: Path) -> None:
    import nbformat

    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    assert all(not cell.outputs and cell.execution_count is None for cell in notebook.cells if cell.cell_type == "code")


@pytest.mark.slow
@pytest.mark.engine
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # the kernel's client, not ours
@pytest.mark.filterwarnings("ignore::ResourceWarning")  # zmq leaves its sockets to the collector
def test_the_flights_notebook_runs_and_shows_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import nbformat
    from nbclient import NotebookClient

    monkeypatch.setenv("DRIVETRAIN_ROOT", str(tmp_path / ".drivetrain"))
    notebook = nbformat.read(NOTEBOOKS / "flights.ipynb", as_version=4)
    NotebookClient(
        notebook, timeout=240, kernel_name="python3", resources={"metadata": {"path": str(NOTEBOOKS)}}
    ).execute(env={**os.environ})
    shown = [_shown(cell) for cell in notebook.cells if cell.cell_type == "code"]
    assert "flights, run" in shown[0]["text"]
    assert "COMPLETE" in shown[0]["text"]
    run, statistics, anomalies, evaluation = (cell["html"] for cell in shown[1:5])
    assert all(node in run for node in ("ExampleGen", "ExampleValidator", "Transform", "Evaluator"))
    assert all(name in statistics for name in ("dep_delay", "carrier", "iframe"))
    assert "True -" in shown[3]["text"]
    assert "iframe" in anomalies
    assert "AUC" in shown[4]["text"]
    assert "carrier=EV" in evaluation
    assert shown[5]["text"].count("AUC") == 5
    assert shown[6]["text"].count("arrives late with probability") == 3
    assert "first run" in shown[7]["text"]
    assert "ExampleGen" in shown[7]["text"]
    assert (tmp_path / "serving" / "flights" / "1").is_dir()


def _shown(cell: Any) -> dict[str, str]:
    """What a cell printed and displayed."""
    text = "".join(output.text for output in cell.outputs if output.output_type == "stream")
    html = "".join(output.data.get("text/html", "") for output in cell.outputs if "data" in output)
    return {"text": text, "html": html}
