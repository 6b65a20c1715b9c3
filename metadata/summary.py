"""What an artifact says of itself in a few lines, and of how it differs from the one before.

The first is recorded when it is published, and shown without its code.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import singledispatch
from typing import Any

from ..digest import canonical_json
from .errors import StoreDamaged
from .types import Artifact


@dataclass(frozen=True)
class Summary:
    """What is shown of an artifact in a terminal, in a notebook, on a page. One without text and rows is false.

    Attributes:
        text: Lines. The first one says the most: where there is room for one line, it is this.
        columns: The headings of a table that stands above the text. The first column holds text, the others numbers.
        rows: The cells of the table, as they are printed.
        numbers: What two runs are compared by, by name; None where there is no number.
        report: Whether the payload holds a page, `extra/report.html`.
    """

    text: str = ""
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    numbers: Mapping[str, float | None] = field(default_factory=dict)
    report: bool = False

    def __bool__(self) -> bool:
        return bool(self.text or self.rows)

    @property
    def headline(self) -> str:
        """The first line of the text."""
        return self.text.partition("\n")[0]

    def to_json(self) -> dict[str, Any]:
        """The fields as JSON values, which `from_json` reads."""
        return asdict(self)

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Summary:
        """The summary that `to_json` described.

        Raises:
            StoreDamaged: It is not a summary: a value of the store has changed.
        """
        try:
            rows = tuple(tuple(row) for row in body["rows"])
            return cls(body["text"], tuple(body["columns"]), rows, body["numbers"], body["report"])
        except (LookupError, TypeError) as error:
            raise StoreDamaged("the metadata store", f"an output's summary cannot be read ({error!r})") from error

    def _repr_html_(self) -> str:
        import html

        def line(cells: tuple[str, ...], tag: str) -> str:
            return "<tr>" + "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in cells) + "</tr>"

        table = line(self.columns, "th") + "".join(line(row, "td") for row in self.rows)
        text = f"<pre>{html.escape(self.text)}</pre>" if self.text else ""
        return (f"<table>{table}</table>" if self.columns else "") + text


@singledispatch
def summarize(artifact: Artifact) -> Summary | str:
    """What a type of artifact says of itself: its property `summary`, if there is one, unless a function is registered.

    A function is registered beside the type, or beside the component that makes it, by its annotation:

        @summarize.register
        def pages(report: Report) -> str:
            return f"{report.pages} pages"

    It is called when an artifact of the type (or of a subclass) is published. It may read the payload.
    """
    return str(artifact.properties.get("summary", ""))


def summary_of(artifact: Artifact) -> Summary:
    """What an artifact says of itself now; where its type's function fails, that it did and how."""
    try:
        words = summarize(artifact)
        summary = words if isinstance(words, Summary) else Summary(words)
        _check_cells(summary)
        summary = _without_nul(summary)
        canonical_json(summary.to_json())  # a NaN, half a character: what no store takes
    except (Exception, SystemExit) as error:  # the function may be a user's; no artifact is lost for want of words
        summary = Summary(f"no summary: {type(error).__name__}: {_text_of(error)}")
    report = bool(summary) and (artifact.path / "extra" / "report.html").is_file()
    return replace(summary, report=report)


@singledispatch
def compare(old: Artifact, new: Artifact) -> dict[str, Any]:  # Any: JSON
    """How an artifact differs from the one before, for `drivetrain why`; nothing, unless a function is registered.

    It is registered as one of `summarize` is, and asked where it is loaded. What it returns is a part of `why --json`.
    Of it a person is told `change`, `added` and `removed` (of rows), `columns` (a line each) and the lines that differ
    in `texts`, an old and a new one. It may read the payloads.
    """
    return {}


def compares_itself(kind: type[Artifact]) -> bool:
    """Whether a function is registered that says how artifacts of a type differ."""
    return compare.dispatch(kind) is not compare.dispatch(object)


def _check_cells(summary: Summary) -> None:
    """Raise where whoever shows the summary later would fail: for good, as it is recorded."""
    for cell in (summary.text, *summary.columns, *(cell for row in summary.rows for cell in row)):
        if not isinstance(cell, str):
            raise TypeError(f"{cell!r:.60} in a summary is not text")
    for row in summary.rows:
        if len(row) != len(summary.columns):
            raise ValueError(f"a row of a summary has {len(row)} cells for {len(summary.columns)} columns")
    for name, number in summary.numbers.items():
        if number is not None and (isinstance(number, bool) or not isinstance(number, (int, float))):
            raise TypeError(f"{name} of a summary is {number!r:.60}, which is not a number")


def _without_nul(summary: Summary) -> Summary:
    """The summary with each NUL written out: a value that it quotes may hold one, which no store takes."""

    def shown(cells: Sequence[str]) -> tuple[str, ...]:
        return tuple(cell.replace("\0", "\\x00") for cell in cells)

    (text,) = shown([summary.text])
    return replace(summary, text=text, columns=shown(summary.columns), rows=tuple(map(shown, summary.rows)))


def _text_of(error: BaseException) -> str:
    try:
        text = f"{error!s:.500}"
        canonical_json(text)
    except Exception as second:
        return f"its text cannot be read: {type(second).__name__}"
    return text


def summarizes_itself(artifact: Artifact) -> bool:
    """Whether a function is registered for the artifact's type, so that its summary is worth recording.

    What the others say stands in their properties, which the store has anyway.
    """
    return summarize.dispatch(type(artifact)) is not summarize.dispatch(object)
