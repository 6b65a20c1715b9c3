"""Pages stand alone: nothing from the network, no script but ours, all text escaped."""

from __future__ import annotations

import itertools
import json
import math
import re
from html.parser import HTMLParser
from typing import Any

import pyarrow as pa
import pytest
from drivetrain import report
from drivetrain.data import Anomalies, Anomaly, StatisticsAccumulator, infer_schema
from drivetrain.data.stats.document import from_states
from drivetrain.report.evaluation import render
from drivetrain.report.tuning import tuning_page
from hypothesis import assume, given
from hypothesis import strategies as st

NASTY = "<script>alert('x')</script><img src=x onerror=alert(1)>&\"é😀\n\u2028\u202e<!--"


class Balanced(HTMLParser):
    """Refuses tags that do not close, other scripts than a page's two, and anything that loads."""

    void = frozenset({"meta", "br", "rect", "line", "input"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.scripts: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag not in ("link", "img", "iframe")
        if tag == "script":
            self.scripts.append("")
        assert not {name for name, _ in attrs} & {"src", "href", "onclick", "onload"}
        if tag not in self.void:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag not in ("script", "link", "img")

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "script":
            self.scripts[-1] += data

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def check(document: str, *, interactive: bool = False) -> dict[str, Any]:
    """The page's data, if it has any."""
    parser = Balanced()
    parser.feed(document)
    parser.close()
    assert parser.open == []
    assert not re.search(r"https?://|url\(|@import", document)
    assert "default-src 'none'" in document
    assert len(parser.scripts) == document.count("<script") == 2 * interactive
    found: dict[str, Any] = json.loads(parser.scripts[0]) if interactive else {}
    return found


def statistics_of(table: pa.Table, limit: int = 100_000) -> StatisticsAccumulator:
    state = StatisticsAccumulator(limit)
    for batch in table.to_batches():
        state.add_batch(batch)
    return state


TABLE = pa.table(
    {
        NASTY: [NASTY, "b", None],
        "number": [1.0, math.nan, math.inf],
        "time": pa.array([0, 10**9, None], pa.timestamp("ms", "UTC")),
        "flag": [True, None, False],
        "list": [[1], [], None],
        "none": pa.nulls(3),
        "struct": [{"a": 1}, None, {"a": 2}],
    }
)


def test_statistics_page() -> None:
    page = from_states({NASTY: statistics_of(TABLE), "empty": StatisticsAccumulator()}).to_html()
    data = check(page, interactive=True)
    assert data["sets"][0]["name"] == NASTY
    assert [feature["name"] for feature in data["features"][:2]] == [NASTY, "number"]
    assert data["features"][0]["sets"][0]["top"][0][0] in (NASTY, "b")
    assert data["features"][0]["sets"][1] is None
    rough = from_states({"train": statistics_of(pa.table({"x": list(range(50))}), limit=5)}).to_html()
    feature = check(rough, interactive=True)["features"][0]
    assert isinstance(feature["sets"][0]["unique"], list)
    assert "≈ distinct: standard error" in feature["sets"][0]["notes"][0]


def test_schema_page() -> None:
    check(infer_schema(from_states({"train": statistics_of(TABLE)})).to_html())


def test_anomalies_page() -> None:
    row = {"row": 3, "values": {NASTY: NASTY, "y": None}}
    anomaly = Anomaly(
        "UNEXPECTED_DATA_TYPE",
        "ERROR",
        NASTY,
        NASTY,
        NASTY,
        NASTY,
        NASTY,
        NASTY,
        ({"value": NASTY, "count": 2},),
        (row,),
    )
    check(Anomalies({NASTY: 4}, [anomaly]).to_html())
    check(Anomalies({"train": 4}, []).to_html())


def test_curves_and_bars() -> None:
    lines = {NASTY: [(0.0, 0.0), (0.5, math.nan), (1.0, 1.0)], "none": []}
    check(report.page(NASTY, report.curves(lines, x=NASTY, y="y", diagonal=True)))
    check(report.page("bars", report.join([report.bars([(NASTY, 3), ("b", 0)]), report.bar(math.nan)])))
    check(report.page("empty", report.table(["a"], []), subtitle=NASTY, badges=[report.badge("x", "good")]))
    check(report.page("histogram", report.histogram([(0, 1, 5), (1, 2, 0)], log=True)))


@given(st.floats(-1e9, 1e9), st.floats(1e-6, 1e9))
def test_an_axis_is_marked_at_round_numbers(low: float, span: float) -> None:
    high = low + span
    assume(span > 1e-6 * abs(low))
    x = report.curves({"a": [(low, 0.0), (high, 1.0)]}, x="x", y="y", x_range=(low, high), y_range=(0.0, 1.0))
    shown = re.findall(r'y="233" text-anchor="middle">([^<]*)<', x)
    assert 3 <= len(shown) <= 7
    assert re.findall(r'text-anchor="end">([^<]*)<', x) == ["0", "0.2", "0.4", "0.6", "0.8", "1"]


def test_an_axis_of_steps() -> None:
    drawn = report.curves({"loss": [(9, 0.6686), (874, 0.2447)]}, x="step", y="loss")
    assert re.findall(r'text-anchor="(?:middle|end)">([^<]*)<', drawn)[:8] == [
        "0.3", "0.4", "0.5", "0.6", "200", "400", "600", "800",
    ]  # fmt: skip


@pytest.mark.parametrize("value", [0.0, -3.0, 1e17, -1e150])
def test_an_axis_of_a_single_value(value: float) -> None:
    drawn = report.curves({"a": [(0.0, value), (1.0, value)]}, x="x", y="y", x_range=(0.0, 1.0))
    (points,) = re.findall(r'points="([^"]*)"', drawn)
    assert {point.partition(",")[2] for point in points.split()} == {"113.0"}  # the middle of 10 and 216


@pytest.mark.parametrize(
    "values", [(1e308, -1e308), (0.0, 5e-324), (-1.7e308,), (1e300, 1e308), (1.0, 1.0000000000000002)]
)
def test_an_axis_holds_any_numbers(values: tuple[float, ...]) -> None:
    drawn = report.curves({"loss": list(enumerate(values))}, x="step", y="loss")
    (points,) = re.findall(r'class="s0" points="([^"]*)"', drawn)
    assert all(math.isfinite(float(number)) for number in points.replace(" ", ",").split(","))


def test_framed_pages_are_attributes() -> None:
    framed = report.framed(report.page("x", "y"))
    assert framed.count("<") == 2
    assert 'sandbox=""' in framed
    # A script gets no origin: it reaches nothing of the notebook.
    drawn = report.framed(report.page("x", "y", data=[], script="0;"))
    assert drawn.count("<") == 2
    assert 'sandbox="allow-scripts"' in drawn
    # A page without our policy at its very beginning, say a component's own, gets no script.
    for other in ("<script>0;</script>", "<script>0;</script>" + report.page("x", "y", data=[], script="0;")):
        assert 'sandbox=""' in report.framed(other)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"), (1234567, "1,234,567"), (0.5, "0.5"), (1234.5678, "1,235"), (0.00012345, "0.0001234"),
        (1e-9, "1.000e-09"),
        (math.nan, "NaN"), (math.inf, "∞"), (-math.inf, "−∞"), (2.0, "2"), (None, ""), (1e300, "1.000e+300"),
    ],
)  # fmt: skip
def test_numbers_for_people(value: float | None, text: str) -> None:
    assert report.number(value) == text


def test_digits_stand_below_one_another() -> None:
    shown = report.table(
        [report.TableColumn("value", numeric=True)], [(0.903,), (0.665,), (0.03859,), (12_345,), (None,)]
    )
    assert re.findall(r'<td class="n">([^<]*)<', shown) == ["0.90300", "0.66500", "0.03859", "12,345", ""]


def test_the_marks_of_an_axis_have_room() -> None:
    drawn = report.curves({"loss": [(0, 1.0), (6_000_000, 0.5)]}, x="step", y="loss")
    marks = re.findall(r'<text x="([\d.]+)" y="233" text-anchor="middle">([^<]*)<', drawn)
    assert len(marks) >= 3
    for (left, text), (right, following) in itertools.pairwise(marks):
        assert float(right) - float(left) > 6 * (len(text) + len(following)) / 2


@pytest.mark.parametrize(
    ("value", "text"), [(0.0, "0 %"), (1.0, "100 %"), (0.00001, "<0.01 %"), (0.99999, ">99.99 %"), (0.1234, "12.34 %")]
)
def test_percentages_for_people(value: float, text: str) -> None:
    assert report.percent(value) == text


def test_an_evaluation_says_how_many_thresholds_were_judged() -> None:
    def said(*passed: bool | None) -> str:
        checks = [
            {"metric": "auc", "slice": "overall", "n": 4, "value": 0.9, "baseline": None, "passed": one, "text": "x"}
            for one in passed
        ]
        failures = ["auc"] * passed.count(False)
        verdict = {
            "blessed": True, "baseline": "no baseline yet", "failures": failures, "thresholds": checks,
            "missing_slices": [], "withheld": [], "withheld_thresholds": [],
        }  # fmt: skip
        overall = {"pairs": (), "slice": "overall", "n": 4, "exact": True, "metrics": {"candidate": {"auc": 0.9}}}
        metrics = {"slices": [overall], "plots": {}}
        return render({"metrics": metrics, "validation": verdict, "summary": ""}, titles={})

    assert "All 2 checks hold." in said(True, True)
    assert "1 of 2 checks were judged, and hold." in said(True, None)
    assert "1 of 2 checks failed." in said(True, False)


def test_an_evaluation_draws_the_named_metrics_as_bars() -> None:
    def bars(*names: str) -> int:
        measured = {"candidate": {"f1": 0.25, "loss": 0.75}, "baseline": {"f1": 0.5, "loss": 0.5}}
        overall = {"pairs": (), "slice": "overall", "n": 4, "exact": True, "metrics": measured}
        verdict = {
            "blessed": True, "baseline": "compared", "failures": [], "thresholds": [], "missing_slices": [],
            "withheld": [], "withheld_thresholds": [],
        }  # fmt: skip
        evaluation = {"metrics": {"slices": [overall], "plots": {}}, "validation": verdict, "summary": ""}
        return render(evaluation, titles={}, bars=names).count('<svg class="bar ')

    assert bars("f1") - bars() == 1
    assert bars("f1", "loss") - bars() == 2


@pytest.mark.parametrize("objectives", [1, 2])
def test_a_tuning_page_says_what_trials_came_to(objectives: int) -> None:
    names = [NASTY, "accuracy"][:objectives]
    trials = [
        {
            "number": number,
            "state": state,
            "hyperparameters": {"rate": 0.1 / (number + 1), NASTY: [NASTY, 1], **({"momentum": 0.5} if number else {})},
            "values": {} if state == "FAILED" else {name: float(number) for name in names},
            "curve": []
            if state == "FAILED"
            else [[number + 1.0] * objectives, [None] * objectives, [1.0] * objectives],
            "reason": "" if state == "COMPLETE" else NASTY,
        }
        for number, state in enumerate(["COMPLETE", "COMPLETE", "PRUNED", "FAILED", "COMPLETE"])
    ]
    document = {
        "objectives": [{"name": name, "mode": "max"} for name in names],
        "space": {
            "rate": {"kind": "float", "low": 1e-4, "high": 0.1, "step": None, "log": True},
            "momentum": {"kind": "float", "low": 0.0, "high": 1.0, "step": None, "log": False},
            NASTY: {"kind": "choice", "values": [[NASTY, 1], None]},
        },
        "settings": {"sampler": "tpe", "seconds": None},
        "hyperparameters": {"fixed": NASTY},
        "trials": trials,
        "pareto": [4],
        "best": 4,
    }
    attempts: list[Any] = [{"trial": 0, "seconds": 1.5, "deaths": [NASTY]}, {"trial": 3, "seconds": None, "deaths": []}]
    page = tuning_page(document, attempts, {"method": "fANOVA", "importances": {NASTY: {"rate": 0.75, NASTY: 0.25}}})
    check(page)
    parallel = page.partition("Parallel coordinates")[2].partition("</section>")[0]
    assert parallel.count("<polyline") == 3  # those that completed
    slices = page.partition("<h2>Slices")[2].partition("</section>")[0]
    assert slices.count("<circle") == 3 + 2 + 3
    best = page.partition("<h2>Best so far")[2].partition("</section>")[0]
    assert best.count("<polyline") == objectives
    assert ("<h2>Pareto front" in page) == (objectives > 1)
    assert page.count(">failed<") == 1
    assert page.count(">stopped early<") == 1
