"""Summaries: found by the type, passed on to subclasses, never an error; as JSON and as HTML."""

from __future__ import annotations

import json

import pytest
from drivetrain.metadata import Artifact, ExamplesDiff, Summary, summarize, summarizes_itself, summary_of


class Pages(Artifact):
    """A type with a summary of its own."""

    count: int = 0


class Chapters(Pages):
    """A type that has the summary of its base."""


class Words(Artifact):
    """A type that declares a property `summary`, and no function."""

    summary: str = ""


class Broken(Artifact):
    """A type whose function fails, or gives what no store takes."""

    how: str = ""


class Unreadable(Exception):
    """Cannot be told."""

    def __str__(self) -> str:
        raise RuntimeError


UNSHOWN: dict[str, Summary] = {
    "text": Summary("\ud800"),
    "nul": Summary("s=\0", ("a", "b"), (("s=\0", "1"),)),
    "no text": Summary(5),  # type: ignore[arg-type]
    "a cell": Summary("", ("a", "b"), (("x", 1),)),  # type: ignore[arg-type]
    "a heading": Summary("", (1,), (("x",),)),  # type: ignore[arg-type]
    "more cells": Summary("", ("a",), (("x", "y"),)),
    "less cells": Summary("", ("a", "b"), (("x",),)),
    "a number": Summary("", numbers={"a": "1"}),  # type: ignore[dict-item]
}


@summarize.register
def _pages(pages: Pages) -> str:
    return f"{pages.count} pages\nin {len(list(pages.content.iterdir()))} files"


@summarize.register
def _broken(broken: Broken) -> Summary:
    if broken.how == "raises":
        raise KeyError("page")
    if broken.how == "exits":
        raise SystemExit(3)
    if broken.how == "raises without text":
        raise Unreadable
    if broken.how == "raises half a character":
        raise ValueError("\ud800")
    return UNSHOWN.get(broken.how, Summary("half", numbers={"share": float("nan")}))


def test_a_function_is_found_by_the_type_and_by_that_of_a_base() -> None:
    pages = Pages.new(count=2)
    (pages.content / "one.txt").write_text("1")
    assert summary_of(pages) == Summary("2 pages\nin 1 files")
    assert summary_of(pages).headline == "2 pages"
    assert summary_of(Chapters.new(count=3)).headline == "3 pages"
    assert summarizes_itself(pages)


def test_without_a_function_it_is_the_property_of_that_name() -> None:
    assert summary_of(Words.new(summary="many")) == Summary("many")
    assert summary_of(ExamplesDiff.new(summary="3 of 9 differ")).text == "3 of 9 differ"
    assert not summary_of(Artifact.new())
    assert not summarizes_itself(Words.new())


def test_a_page_beside_the_content_is_known() -> None:
    words = Words.new(summary="many")
    (words.extra / "report.html").write_text("<p>words</p>")
    assert summary_of(words).report
    assert not summary_of(Pages.new()).report


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("raises", "KeyError: 'page'"),
        ("raises without text", "Unreadable: its text cannot be read: RuntimeError"),
        ("exits", "SystemExit: 3"),
        ("raises half a character", "ValueError: its text cannot be read: InputError"),
        ("nan", "InputError"),
        ("text", "InputError"),
        ("no text", "TypeError: 5 in a summary is not text"),
        ("a cell", "TypeError: 1 in a summary is not text"),
        ("a heading", "TypeError: 1 in a summary is not text"),
        ("more cells", "ValueError: a row of a summary has 2 cells for 1 columns"),
        ("less cells", "ValueError: a row of a summary has 1 cells for 2 columns"),
        ("a number", "TypeError: a of a summary is '1', which is not a number"),
    ],
)
def test_a_function_that_fails_is_said_and_loses_nothing(how: str, said: str) -> None:
    summary = summary_of(Broken.new(how=how))
    assert summary.text.startswith(f"no summary: {said}")
    json.dumps(summary.to_json(), allow_nan=False).encode()


def test_a_nul_of_the_data_is_written_out() -> None:
    assert summary_of(Broken.new(how="nul")) == Summary("s=\\x00", ("a", "b"), (("s=\\x00", "1"),))


def test_a_summary_is_the_same_after_json() -> None:
    summary = Summary("a\nb", ("slice", "auc"), (("all", "0.9"), ("<b>", "–")), {"auc": 0.9, "log_loss": None}, True)
    assert Summary.from_json(json.loads(json.dumps(summary.to_json()))) == summary
    assert "<td>&lt;b&gt;</td><td>–</td>" in summary._repr_html_()
    assert "<pre>a\nb</pre>" in summary._repr_html_()
