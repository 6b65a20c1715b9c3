"""Reports in a real browser: nothing on the console, nothing from the network, every control does what it says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from drivetrain.data import Schema, drift, infer_schema, statistics, validate
from drivetrain.report import framed
from drivetrain.tests.data.flights import corrupted, month
from drivetrain.tests.report.browser import Browser

pytestmark = [pytest.mark.slow, pytest.mark.browser, pytest.mark.usefixtures("silent")]
NASTY = "</script><img src=x onerror=alert(1)>\"'\n\u2028é😀\u202eabc"
NAMES = "[...document.querySelectorAll('.card:not([hidden]) h3')].map(head => head.textContent)"
FITS = "document.documentElement.scrollWidth <= innerWidth"


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("reports")
    january, june = month(1), month(6)
    both = statistics({"January": january, "June": june}, correlations=True)
    before, after = statistics({"data": january}), statistics({"data": june})
    schema = infer_schema(before)
    bad = validate(statistics({"June": corrupted(june)[0]}), schema)
    documents: dict[str, Any] = {"statistics": both, "drift": drift(after, before), "schema": schema, "anomalies": bad}
    for name, shown in documents.items():
        (folder / f"{name}.html").write_text(shown.to_html(), "utf-8")
    table = pa.table({NASTY: [NASTY, "b", None], "lists": [[1, 2], [], None]})
    (folder / "nasty.html").write_text(statistics({NASTY: table, "other": table}).to_html(), "utf-8")
    return folder


@pytest.mark.parametrize("name", ["statistics", "drift", "schema", "anomalies", "nasty"])
def test_a_phone_shows_a_page_without_scrolling_sideways(tab: Browser, pages: Path, name: str) -> None:
    tab.open(pages / f"{name}.html", width=390, height=800, dark=True)
    assert tab.ask("innerWidth") == 390
    assert tab.ask(FITS)
    assert tab.ask("getComputedStyle(document.body).backgroundColor") == "rgb(18, 22, 28)"


def test_the_shares_of_a_drift_can_be_read(tab: Browser, pages: Path) -> None:
    tab.open(pages / "drift.html", "search=time_hour")
    card = "document.querySelector('.card:not([hidden])')"
    labels = f"[...{card}.querySelectorAll('.hbar .label')]"
    assert tab.ask(f"{labels}.length") >= 4
    assert tab.ask(f"{labels}.every(label => label.scrollWidth <= label.clientWidth)")
    shares = tab.ask(f"[...{card}.querySelectorAll('.hbar .n span')].map(share => share.textContent)")
    assert {len(share.partition(".")[2]) for share in shares} == {len("00 %")}
    assert tab.ask("document.querySelector('summary').textContent") == "What the columns say"
    tab.open(pages / "drift.html", width=400)  # a figure is 120 pixels wide
    assert tab.ask("[...document.querySelectorAll('.figure b')].every(text => text.scrollWidth <= text.clientWidth)")


@pytest.mark.parametrize("name", ["statistics", "drift"])
@pytest.mark.parametrize("width", [800, 1000, 1060, 1280])  # a notebook's cell is as wide as its window lets it
def test_all_figures_are_in_sight(tab: Browser, pages: Path, name: str, width: int) -> None:
    tab.open(pages / f"{name}.html", width=width)
    tables = "[...document.querySelectorAll('.two .figuretable')]"
    assert tab.ask(f"{tables}.length") > 0
    assert tab.ask(f"{tables}.filter(it => it.scrollWidth > it.parentElement.clientWidth).length") == 0


@pytest.mark.parametrize("weight", [None, "distance"])
def test_one_data_set_alone_is_drawn(tab: Browser, tmp_path: Path, weight: str | None) -> None:
    found = statistics(month(1).select(["dep_delay", "carrier", "distance"]), weight=weight)
    (tmp_path / "one.html").write_text(found.to_html(), "utf-8")
    tab.open(tmp_path / "one.html")
    card = "document.querySelector('.card')"
    assert tab.ask(f"{card}.querySelector('tbody').textContent.includes('26,483')")  # of 27,004 rows
    assert tab.ask(f"{card}.querySelectorAll('.chart rect').length") > 3


def test_the_address_holds_the_view(tab: Browser, pages: Path) -> None:
    page = pages / "statistics.html"
    tab.open(page)
    names = tab.ask(NAMES)
    assert names[:3] == ["year", "month", "day"]
    assert len(names) == 19
    tab.open(page, "search=delay")
    assert tab.ask(NAMES) == ["dep_delay", "arr_delay"]
    assert tab.ask("document.querySelector('#shown').textContent") == "2 of 19 features shown"
    numeric = "[...document.querySelectorAll('[data-group=numeric] h3')].map(head => head.textContent)"
    firsts = {"name": "air_time", "missing": "arr_delay", "drift": "month", "zeros": "minute"}
    for order, first in firsts.items():
        tab.open(page, f"sort={order}")
        assert tab.ask(numeric)[0] == first
    tab.open(page, "sort=nonsense")
    assert tab.ask(NAMES) == names


def test_whole_numbers_have_whole_buckets_which_all_data_sets_share(tab: Browser, pages: Path) -> None:
    tab.open(pages / "statistics.html", "search=day")
    card = "document.querySelector('.card:not([hidden])')"
    bars = tab.ask(f"[...{card}.querySelectorAll('.chart rect title')].map(title => title.textContent)")
    ranges = {name: [bar.split(": ")[1] for bar in bars if bar.startswith(name)] for name in ("January", "June")}
    whole = ["1 … 4", "5 … 8", "9 … 12", "13 … 16", "17 … 20", "21 … 24", "25 … 28"]
    assert ranges == {"January": [*whole, "29 … 31"], "June": [*whole, "29 … 31"]}
    assert tab.ask(f"{card}.querySelector('.edges').textContent") == "131"
    assert tab.ask("document.querySelector('.note').textContent.includes('Distance: how far')")
    # Digits stand below one another: as many decimals in a column, on a phone in a row.
    cells = f"[...{card}.querySelectorAll('tbody tr')].map(row => row.cells[3].textContent)"
    assert {len(mean.partition(".")[2]) for mean in tab.ask(cells)} == {2}
    assert tab.ask(f"getComputedStyle({card}.querySelector('td.n')).fontVariantNumeric") == "tabular-nums"
    tab.open(pages / "statistics.html", "search=day", width=390)
    assert tab.ask(f"{card}.querySelector('tbody td').textContent") == "27,004"


def test_long_numbers_are_not_printed_over_their_neighbours(tab: Browser, tmp_path: Path) -> None:
    rows = {"n": [-123456789012.25, 987654321098.75, 3.0], "t": ["a", "b", "c"]}
    tables = {name: pa.table(rows) for name in ("train", "eval")}
    (tmp_path / "long.html").write_text(statistics(tables).to_html(), "utf-8")
    for width in (1280, 800, 390):
        tab.open(tmp_path / "long.html", width=width)
        cells = "[...document.querySelectorAll('.figuretable td, .figuretable th')]"
        assert tab.ask(f"{cells}.length") > 20
        assert (
            tab.ask(f"{cells}.filter(cell => cell.scrollWidth > cell.clientWidth + 1).map(cell => cell.textContent)")
            == []
        )


def test_toggles_redraw(tab: Browser, pages: Path) -> None:
    chart = "document.querySelector('.card:not([hidden]) .chartbox').innerHTML"
    drawn = {}
    for state in ("", "log=1", "chart=quantiles", "unit=counts&log=1", "set1=0"):
        tab.open(pages / "statistics.html", f"search=dep_delay&{state}")
        drawn[state] = tab.ask(chart)
        assert "<rect" in drawn[state]
    assert len(set(drawn.values())) == len(drawn)
    assert "June" not in drawn["set1=0"]
    tab.open(pages / "statistics.html", "search=carrier&unit=counts")
    united = (f"{month(number)['carrier'].to_pylist().count('UA'):,}" for number in (1, 6))
    assert tab.ask("document.querySelector('.hbar .n').textContent") == "".join(united)


def test_without_a_mouse(tab: Browser, pages: Path) -> None:
    """Every control has a name, and keys alone search and unfold."""
    tab.open(pages / "statistics.html")
    assert tab.ask("[...document.querySelectorAll('#controls [name]')].every(one => one.labels[0].textContent.trim())")
    assert tab.ask("[...document.querySelectorAll('svg')].every(one => one.getAttribute('aria-label'))")
    tab.press("Tab", 9)
    assert tab.ask("document.activeElement.name") == "search"
    for letter in "dist":
        tab.press(letter, ord(letter.upper()))
    assert tab.ask(NAMES) == ["distance"]
    assert tab.ask("location.hash") == "#search=dist"
    assert tab.ask("document.querySelector('#shown').getAttribute('aria-live')") == "polite"
    tab.ask("document.querySelector('.card:not([hidden]) summary').focus()")
    tab.press("Enter", 13)
    assert tab.ask("document.querySelectorAll('.card:not([hidden]) details table').length") >= 4


def test_hostile_names_are_text(tab: Browser, pages: Path) -> None:
    tab.open(pages / "nasty.html")
    assert tab.ask("document.querySelectorAll('img').length") == 0
    assert tab.ask(f"{NAMES}.sort()") == sorted([NASTY, "lists"])
    tab.open(pages / "nasty.html", "search=lists&chart=lengths")
    assert "list lengths" in tab.ask("document.querySelector('.card:not([hidden]) svg').getAttribute('aria-label')")


def test_drift_shows_only_what_drifted(tab: Browser, pages: Path) -> None:
    tab.open(pages / "drift.html")
    names = tab.ask(NAMES)
    assert len(names) == 19
    tab.open(pages / "drift.html", "drifted=1")
    assert tab.ask(NAMES) == names[:7]


def test_frames_of_a_notebook_do_not_clash(tab: Browser, pages: Path, tmp_path: Path) -> None:
    """Two reports in one document run side by side, each in its frame, and reach nothing outside."""
    reports = [framed((pages / f"{name}.html").read_text("utf-8")) for name in ("statistics", "statistics", "drift")]
    (tmp_path / "notebook.html").write_text("<!doctype html><title>n</title>" + "".join(reports), "utf-8")
    tab.open(tmp_path / "notebook.html", height=2200)
    assert tab.ask("document.querySelectorAll('iframe').length") == 3
    assert tab.ask("[...document.querySelectorAll('iframe')].every(one => one.contentDocument === null)")


def test_five_thousand_columns(tab: Browser, tmp_path: Path) -> None:
    """A wide table's page stays small, and draws what is seen."""
    random = np.random.default_rng(1)
    table = pa.table({f"column {number}": random.normal(size=24) for number in range(5_000)})
    both = statistics({"train": table, "eval": table.slice(1)})
    page = tmp_path / "wide.html"
    page.write_text(both.to_html(), "utf-8")
    assert page.stat().st_size < 10_000_000
    tab.open(page, "sort=drift")
    assert tab.ask("document.querySelectorAll('.card').length") == 5_000
    assert 0 < tab.ask("document.querySelectorAll('.card svg').length") < 100
    tab.ask("scrollTo(0, document.documentElement.scrollHeight)")
    tab.settle()
    assert tab.ask("document.querySelectorAll('.card:last-child svg').length") == 1
    report = tmp_path / "drift.html"
    report.write_text(drift(statistics({"data": table}), statistics({"data": table.slice(1)})).to_html(), "utf-8")
    assert report.stat().st_size < 10_000_000
    tab.open(report, "search=column 4999")
    assert tab.ask(NAMES) == ["column 4999"]


LISTS = "[...document.querySelectorAll('{}')].filter(item => item.checkVisibility()).length"


def test_long_lists_are_searched(tab: Browser, tmp_path: Path) -> None:
    table = pa.table({f"c{place}": [["p", "q"][place % 2] + str(place // 1000)] for place in range(5000)})
    schema = infer_schema(statistics(table))
    bad = validate(table, Schema())
    for name, page, items in (("schema", schema, "tbody tr"), ("anomalies", bad, "article")):
        (tmp_path / f"{name}.html").write_text(page.to_html(), "utf-8")
        tab.open(tmp_path / f"{name}.html", width=390, height=800)
        shown = LISTS.format(items)
        assert tab.ask(shown) == 5000
        assert tab.ask(FITS)
        for text, found in (("c4999 ", 1), ("C1234 string", 1), ("no such word", 0), ("", 5000)):
            tab.ask(f"field.value = {text!r}; field.dispatchEvent(new Event('input'))")
            assert tab.ask(shown) == found, (name, text)
            assert tab.ask("counter.textContent") == (f"{found} found" if text else "")
    (tmp_path / "few.html").write_text(infer_schema(statistics(pa.table({"x": [1]}))).to_html(), "utf-8")
    tab.open(tmp_path / "few.html")
    assert tab.ask("document.scripts.length") == 0


def test_a_page_loads_and_sends_nothing(tab: Browser, pages: Path) -> None:
    """Whatever stands in it: its own policy refuses each way out."""
    tab.open(pages / "nasty.html")
    ways = {
        "fetch": "fetch('https://example.com/').then(() => 'sent', () => 'refused')",
        "image": "new Promise(done => { const it = new Image(); it.onload = () => done('sent');"
        " it.onerror = () => done('refused'); it.src = 'https://example.com/a.png'; })",
        "script": "new Promise(done => { const it = document.createElement('script'); it.onload = () => done('sent');"
        " it.onerror = () => done('refused'); it.src = 'https://example.com/a.js'; document.body.append(it); })",
        "frame": "new Promise(done => { addEventListener('securitypolicyviolation', () => done('refused'));"
        " const it = document.createElement('iframe'); it.src = 'https://example.com/'; document.body.append(it); })",
        "form": "new Promise(done => { addEventListener('securitypolicyviolation', () => done('refused'));"
        " const it = document.createElement('form'); it.action = 'https://example.com/'; document.body.append(it);"
        " it.submit(); })",
    }
    assert {name: tab.ask(way) for name, way in ways.items()} == dict.fromkeys(ways, "refused")
    complaints = " ".join(tab.complaints)
    tab.complaints.clear()
    tab.requests.clear()  # which the policy ended before they left
    assert complaints.count("Content Security Policy") >= len(ways)
