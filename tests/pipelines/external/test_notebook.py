"""Notebooks as components, and the page on all that are not Python functions."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import drivetrain as dt
import pytest
from drivetrain.errors import BuildError, InputError
from drivetrain.pipelines import Home, external, load_pipeline, run_pipeline
from drivetrain.pipelines.launcher.observers import NullObserver
from drivetrain.tests.pipelines.external.test_shell import HEAD


def notebook(*cells: str, kernel: str = "python3") -> str:
    """A notebook of a heading and code cells, the first of them with the tag "parameters"."""
    body: list[dict[str, Any]] = [{"cell_type": "markdown", "id": "h", "metadata": {}, "source": ["# Train"]}]
    for number, source in enumerate(cells):
        tags = {} if number else {"tags": ["parameters"]}
        code: dict[str, Any] = {"cell_type": "code", "metadata": tags, "source": source}
        body.append({**code, "id": f"c{number}", "outputs": [], "execution_count": None})
    spec = {"kernelspec": {"name": kernel, "display_name": "Python", "language": "python"}}
    return json.dumps({"nbformat": 4, "nbformat_minor": 5, "metadata": spec, "cells": body})


CELLS = (
    "epochs = 1",
    "import json, pathlib\nfrom helpers import twice\nprint('epochs', epochs)\nassert epochs < 5, 'too many'",
    "rows = pathlib.Path(rows_path, 'rows.txt').read_text().split()\n"
    "pathlib.Path(model_path, 'weights.json').write_text(json.dumps(twice(len(rows) * epochs)))\n"
    "pathlib.Path(score_path).write_text(json.dumps(len(rows) / 10))",
)
TRAIN = """
    train = dt.notebook_component(
        "train.ipynb", inputs={"rows": Rows}, outputs={"model": dt.Artifact, "score": float}, parameters={"epochs": 2}
    )

    @dt.pipeline
    def shop(epochs: int = 2) -> None:
        train(make(), epochs=epochs)
"""


@pytest.mark.slow
@pytest.mark.notebook
def test_a_notebook_in_a_pipeline(home: Home, project: Callable[..., Path]) -> None:
    folder = project("shop", pipeline=HEAD + TRAIN, helpers="def twice(x):\n    return 2 * x\n")
    (folder / "train.ipynb").write_text(notebook(*CELLS))

    heard: list[tuple[int, int | None, str]] = []

    class Listening(NullObserver):
        def progress(self, node: str, done: int, total: int | None, unit: str) -> None:
            heard.append((done, total, unit))

    def run(epochs: int = 2) -> Any:
        pipeline = load_pipeline(folder)
        return run_pipeline(home, pipeline, {"epochs": epochs}, observer=lambda run: Listening()).nodes["Train"]

    first = run()
    assert first.state == "COMPLETE", first.reason
    assert heard[-1] == (5, 5, "cells")  # a heading, three of code and the parameters
    model = home.root / first.outputs["model"][0].uri
    assert json.loads((model / "content" / "weights.json").read_text()) == 12
    assert first.outputs["score"][0].properties["value"] == 0.3
    import nbformat

    executed = nbformat.read(model / "extra" / "train.ipynb", as_version=4)  # type: ignore[no-untyped-call]
    nbformat.validate(executed)
    assert executed.cells[0].source == "# Train"
    assert any("injected-parameters" in cell.metadata.get("tags", []) for cell in executed.cells)
    assert "epochs 2" in str([cell.get("outputs") for cell in executed.cells])
    assert run().state == "CACHED"
    # What it printed and what it says in words do not count; code does, that of its modules too.
    old = '"outputs": [{"output_type": "stream", "name": "stdout", "text": "old"}]'
    text = notebook(*CELLS).replace("# Train", "# Training").replace('"outputs": []', old)
    (folder / "train.ipynb").write_text(text)
    assert run().state == "CACHED"
    (folder / "helpers.py").write_text("def twice(x):\n    return 2 * x + 1\n")
    changed = run()
    assert (changed.state, "helpers.py" in changed.reason) == ("COMPLETE", True)
    failed = run(epochs=9)
    assert failed.state == "FAILED"
    assert failed.reason.startswith("Train: cell 3 of train.ipynb, line 4: AssertionError: too many\n  fix: ")
    kept = Path(failed.reason.rpartition(" is ")[2])
    assert "too many" in kept.read_text()


@pytest.mark.notebook
def test_a_kernel_that_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "a.ipynb").write_text(notebook("x = 1", kernel="fortran77"))
    with pytest.raises(InputError, match=r"names the kernel 'fortran77', which is not here; there is .*python3"):
        dt.notebook_component(tmp_path / "a.ipynb")()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{}", "is not a notebook"),
        ("x", "is not a notebook"),
        ('{"nbformat": 3, "worksheets": []}', "the notebook format 3"),
    ],
)
def test_what_is_no_notebook(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "a.ipynb").write_text(text)
    with pytest.raises(BuildError, match=message):
        dt.notebook_component(tmp_path / "a.ipynb")
    with pytest.raises(BuildError, match="cannot be read"):
        dt.notebook_component(tmp_path / "b.ipynb")


PAGE = (Path(__file__).parents[3] / "docs" / "other-components.md").read_text("utf-8")


def test_the_page(home: Home, project: Callable[..., Path]) -> None:
    code = "".join(re.findall(r"```python\n(.*?)```", PAGE, flags=re.S))
    folder = project("commands", pipeline="")
    (folder / "pipeline.py").write_text(code)
    (folder / "train.ipynb").write_text(notebook(*CELLS))
    result = run_pipeline(home, load_pipeline(folder))
    assert result.nodes["Count"].outputs["different"][0].properties["value"] == 2
    assert result.nodes["Again"].state == "SKIPPED"
    table = PAGE.partition("| placeholder |")[2].partition("\n\n")[0]
    assert set(re.findall(r"dt\.external\.(\w+)", table)) == {
        n for n in external.__all__ if not n.endswith("component")
    }
    assert {name for name in external.__all__ if not re.search(rf"dt\.(external\.)?{name}\(", PAGE)} == set()
