"""The page of an evaluation in a real browser: tables that sort, a threshold that moves, nothing out of sight."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import drivetrain as dt
import numpy as np
import pandas as pd
import pytest
from drivetrain.components.evaluation import Threshold, metric
from drivetrain.components.evaluation.run import write
from drivetrain.tests.report.browser import Browser
from sklearn import metrics as sk

pytestmark = [pytest.mark.slow, pytest.mark.browser, pytest.mark.usefixtures("silent")]
TEN = [
    "auc", "pr_auc", "accuracy", "precision", "recall", "f1", "log_loss", "brier_score", "expected_calibration_error",
    "matthews_correlation",
]  # fmt: skip


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    generator = np.random.default_rng(1)
    z = generator.normal(size=6_000)
    return pd.DataFrame(
        {
            "y": (generator.random(6_000) < 1 / (1 + np.exp(-1.5 * z))).astype(int),
            "p": 1 / (1 + np.exp(-1.5 * z + generator.normal(size=6_000) / 2)),
            "q": 1 / (1 + np.exp(-0.8 * z)),
            "sex": generator.choice(["f", "m"], 6_000),
            "carrier": generator.choice(["AA", "B6", "UA", "DL", "WN"], 6_000, p=[0.1, 0.15, 0.2, 0.25, 0.3]),
        }
    )


@pytest.fixture(scope="module")
def page(frame: pd.DataFrame, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("evaluation")
    result = dt.evaluate(
        frame, label="y", predictions=["p", "q"], baseline="q", slices=[["carrier"]], metrics=TEN,
        thresholds=[Threshold("auc", lower=0.5, slice=["carrier"])], confidence="jackknife",
    )  # fmt: skip
    write({"": result.models["p"]}, folder, folder)
    return folder / "report.html"


def rows(tab: Browser, table: str) -> list[list[str]]:
    cells = "[...row.cells].map(cell => cell.innerText.trim())"
    texts: list[list[str]] = tab.ask(f"[...document.querySelector('{table}').tBodies[0].rows].map(row => {cells})")
    return texts


def test_ten_metrics_with_intervals_fit_a_desk_and_a_phone(tab: Browser, page: Path) -> None:
    for width, dark in ((1300, False), (390, True)):
        tab.open(page, width=width, dark=dark)
        assert tab.ask("document.documentElement.scrollWidth <= innerWidth")
    tab.open(page, width=1300)
    wide = "[...document.querySelectorAll('.scroll')].filter(it => it.scrollWidth > it.clientWidth).length"
    assert tab.ask("document.querySelectorAll('.scroll').length") >= 4
    widths = "[...document.querySelectorAll('.scroll')].map(it => [it.scrollWidth, it.clientWidth])"
    assert tab.ask(wide) == 0, tab.ask(widths)


def test_groups_are_shown_with_what_lies_between_them(tab: Browser, frame: pd.DataFrame, tmp_path: Path) -> None:
    names = ("equalized_odds_difference", "equalized_odds_ratio", "predictive_parity_ratio", "demographic_parity_ratio")
    metrics: list[Any] = ["auc", *(metric(name, by="sex") for name in names)]
    result = dt.evaluate(frame, label="y", predictions=["p", "q"], baseline="q", metrics=metrics, confidence="delong")
    write({"": result.models["p"]}, tmp_path, tmp_path)
    for width in (390, 1300):
        tab.open(tmp_path / "report.html", width=width)
        assert tab.ask("document.documentElement.scrollWidth <= innerWidth")
    assert tab.ask("[...document.querySelectorAll('.scroll')].every(it => it.scrollWidth <= it.clientWidth)")
    groups = tab.ask(
        "[...document.querySelectorAll('section')].find(it => it.textContent.startsWith('Groups by sex')).innerText"
    )
    for group, part in frame.groupby("sex"):
        assert f"{group} {len(part):,}" in " ".join(groups.split())
        for column, measure in (("p", sk.recall_score), ("p", sk.precision_score)):
            assert f"{measure(part.y, part[column] > 0.5):.4f}" in groups
    assert all(metric(name, by="sex").name not in groups for name in names)  # titles, not names
    assert "Equalized odds difference by sex" in groups


def test_a_heading_sorts_by_click_and_by_key(tab: Browser, page: Path) -> None:
    tab.open(page)
    table = ".tight:has(tr:nth-child(2) td)"
    before = rows(tab, table)
    assert [row[0] for row in before] == [f"carrier={name}" for name in ("AA", "B6", "DL", "UA", "WN")]
    head = f"document.querySelector('{table}').tHead.rows[0].cells[1]"
    tab.ask(f"{head}.querySelector('button').click()")
    counts = [int(row[1].replace(",", "")) for row in rows(tab, table)]
    assert counts == sorted(counts)
    assert len(counts) == 5
    assert tab.ask(f"{head}.getAttribute('aria-sort')") == "ascending"
    tab.ask(f"{head}.querySelector('button').focus()")
    tab.press("Enter", 13)
    assert [int(row[1].replace(",", "")) for row in rows(tab, table)] == counts[::-1]
    tab.ask(f"document.querySelector('{table}').tHead.rows[0].cells[0].querySelector('button').click()")
    assert rows(tab, table) == before


def test_the_threshold_moves(tab: Browser, page: Path, frame: pd.DataFrame) -> None:
    tab.open(page)
    slider = "document.querySelector('.decisions input')"
    assert tab.ask("!document.querySelector('.slider').hidden")
    for threshold in (0.5, 0.31, 1.0):
        tab.ask(f"{slider}.value = {round(threshold * 100)}; {slider}.dispatchEvent(new Event('input'))")
        assert tab.ask("document.querySelector('.decisions output').textContent") == f"{threshold:.2f}"
        shown = {row[0]: row[1:] for row in rows(tab, ".decisions table")}
        for at, name in enumerate(("p", "q")):
            called = frame[name] > threshold
            (tn, fp), (fn, tp) = sk.confusion_matrix(frame["y"], called)
            counts = ["True positives", "False positives", "True negatives", "False negatives"]
            assert [int(shown[each][at].replace(",", "")) for each in counts] == [tp, fp, tn, fn]
            if tp + fp:
                assert float(shown["Precision"][at]) == pytest.approx(sk.precision_score(frame["y"], called), abs=1e-4)
                assert float(shown["F1"][at]) == pytest.approx(sk.f1_score(frame["y"], called), abs=1e-4)
            else:
                assert shown["Precision"][at] == "–"
            assert float(shown["Recall"][at]) == pytest.approx(sk.recall_score(frame["y"], called), abs=1e-4)
    tab.ask(f"{slider}.focus()")
    tab.press("ArrowLeft", 37)
    assert tab.ask("document.querySelector('.decisions output').textContent") == "0.99"


def test_the_slices_are_drawn(tab: Browser, page: Path) -> None:
    tab.open(page)
    tab.ask("document.querySelector('details').open = true")
    marks: Any = tab.ask("[...document.querySelectorAll('.forest circle title')].map(title => title.textContent)")
    assert len(marks) == 10
    assert marks[0].startswith("carrier=AA, candidate: 0.")
    assert " to " in marks[0]
    assert tab.ask("getComputedStyle(document.querySelector('.forest circle')).fill") == "rgb(59, 111, 212)"
