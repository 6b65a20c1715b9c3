"""Draw the pictures of docs/reports.md and docs/graph.md: `python -m drivetrain.tests.report.screenshots [folder]`."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from drivetrain.data import drift, infer_schema, statistics, validate
from drivetrain.engine import Bundle
from drivetrain.tests.data.flights import corrupted, month
from drivetrain.tests.report.browser import browser

DESKTOP, PHONE = (1280, 1000), (390, 844)
SEARCHED = "search=delay"


def pages() -> dict[str, str]:
    """The flights' reports as HTML: January and June, and June corrupted."""
    january, june = month(1), month(6)
    before = statistics({"data": january})
    schema = infer_schema(before)
    shown: dict[str, Any] = {
        "statistics": statistics({"January": january, "June": june}, correlations=True),
        "drift": drift(statistics({"June": june}), statistics({"January": january})),
        "schema": schema,
        "anomalies": validate(statistics({"June": corrupted(june)[0]}), schema),
    }
    return {name: one.to_html() for name, one in shown.items()}


def draw(folder: Path) -> None:
    """Write each page as a desktop shows it, and as a phone does at night."""
    with browser() as tab, tempfile.TemporaryDirectory() as scratch:
        for name, text in pages().items():
            page = Path(scratch) / f"{name}.html"
            page.write_text(text, "utf-8")
            tab.open(page, "sort=drift" if name == "statistics" else "", width=DESKTOP[0], height=DESKTOP[1])
            tab.picture(folder / f"{name}.png")
            tab.open(page, SEARCHED if name == "statistics" else "", width=PHONE[0], height=PHONE[1], dark=True)
            if name == "statistics":
                tab.ask("document.querySelector('.card:not([hidden])').scrollIntoView()")
                tab.settle()
            tab.picture(folder / f"{name}-phone.png")
        tab.open(Path(scratch) / "statistics.html", width=DESKTOP[0], height=DESKTOP[1])
        tab.ask("document.querySelector('.heat').closest('section').scrollIntoView()")
        tab.settle()
        tab.picture(folder / "statistics-correlations.png")


def draw_graph(folder: Path) -> None:
    """Write the drawing of the model that the flights' pipeline pushes."""
    with browser() as tab, tempfile.TemporaryDirectory() as scratch:
        project, pushed = Path(__file__).parents[2] / "examples" / "flights", Path(scratch) / "serving"
        run = [sys.executable, "-m", "drivetrain", "run", str(project), "--root", str(Path(scratch) / "root")]
        subprocess.run([*run, "--param", "epochs=1", "--param", f"destination={pushed}"], check=True)
        page = Path(scratch) / "graph.html"
        page.write_text(Bundle.load(pushed / "1").to_html(), "utf-8")
        tab.open(page, width=960, height=DESKTOP[1])
        bottom = tab.ask("document.querySelector('svg.graph').getBoundingClientRect().bottom")
        tab.open(page, width=960, height=round(bottom) + 16)
        tab.picture(folder / "graph.png")


if __name__ == "__main__":
    images = Path(sys.argv[1] if len(sys.argv) > 1 else "docs/images")
    draw(images)
    draw_graph(images)
