"""The metrics of one node's artifacts, one after the other: how a model's quality goes over its runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .html import Html, TableColumn, badge, curves, details, join, section, table

_MOST = 20  # artifacts that are shown, the last ones
_CHARTS = 6


@dataclass(frozen=True)
class Measured:
    """One artifact.

    Attributes:
        created: When, for people.
        blessed: Its verdict; None where it gives none.
        metrics: Its metrics that have a value, by name.
    """

    created: str
    blessed: bool | None
    metrics: dict[str, float]


def over_runs(history: Sequence[Measured]) -> Html:
    """A chart of each of the first metrics, and a table of all; nothing where there is nothing to compare.

    Args:
        history: The oldest first; the last one is the one whose page it is.
    """
    shown = history[-_MOST:]
    names = list(dict.fromkeys(name for each in shown for name in each.metrics))
    if len(shown) < 2 or not names:
        return Html("")
    charts = [
        curves({name: [(at, each.metrics[name]) for at, each in enumerate(shown, 1) if name in each.metrics]},
               x="evaluation", y=name, width=300, height=200)
        for name in names[:_CHARTS]
    ]  # fmt: skip
    heads: list[TableColumn | str] = ["", "Created", "", *(TableColumn(name, numeric=True) for name in names)]
    rows = [
        (at, each.created, _verdict(each.blessed), *(each.metrics.get(name, "–") for name in names))
        for at, each in reversed(list(enumerate(shown, 1)))
    ]
    of = f"The last {len(shown)} of {len(history):,} evaluations" if len(history) > _MOST else "All evaluations"
    body = join([*charts, details("As a table", table(heads, rows, tight=True))])
    return section("Over runs", body, note=f"{of} of this node, the oldest first; 1 is the oldest that is shown.")


def _verdict(blessed: bool | None) -> Html:
    if blessed is None:
        return Html("")
    return badge("blessed", "good") if blessed else badge("not blessed", "bad")
