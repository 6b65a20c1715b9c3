"""A search for hyperparameters as a page: how the best value fell, what mattered, and every trial."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

from .html import (
    Html,
    TableColumn,
    badge,
    bars,
    clip,
    curves,
    details,
    figures,
    html,
    join,
    number,
    page,
    range_of,
    section,
    table,
)

_LINES: Final = 400  # trials that parallel coordinates draw, the best ones
_TONES: Final = {"COMPLETE": "good", "PRUNED": "warn", "FAILED": "bad"}
_WORDS: Final = {"COMPLETE": "complete", "PRUNED": "stopped early", "FAILED": "failed"}


def tuning_page(
    document: Mapping[str, Any],
    attempts: Sequence[Mapping[str, Any]],
    importances: Mapping[str, Any],
    *,
    title: str = "Tuning",
) -> str:
    """A self-contained page.

    Args:
        document: `objectives` (`name`, `mode`), `space`, `settings`, `trials` (`number`, `state`, `hyperparameters`,
            `values`, `curve`, `reason`), `pareto`, `best`.
        attempts: `trial`, `seconds`, `deaths`.
        importances: `method`, and `importances` by objective and hyperparameter.
        title: The heading.
    """
    trials, objectives = document["trials"], document["objectives"]
    best = next(trial for trial in trials if trial["number"] == document["best"])
    complete = [trial for trial in trials if trial["state"] == "COMPLETE"]
    head: dict[str, object] = {"trials": len(trials), "the best": f"trial {best['number']}"}
    head |= {f"best {each['name']}": number(best["values"][each["name"]]) for each in objectives}
    parts = [figures(head), section("The best hyperparameters", _values(document, best))]
    parts.append(section("Best so far", join(_best_so_far(each, complete) for each in objectives)))
    if len(objectives) > 1:
        parts.append(
            section(
                "Pareto front",
                _trials(document, [trial for trial in trials if trial["number"] in document["pareto"]], {}),
                note="No other trial is better in one of the objectives and as good in all.",
            )
        )
    measured = importances["importances"]
    if measured:
        note = f"How much of the objective's variation each explains ({importances['method']}), by completed trials."
        charts = [_importance(name, values) for name, values in measured.items()]
        parts.append(section("Importance", join(charts), note=note))
    if len(complete) > 1:
        note = "A line is a completed trial; the fainter, the worse; the best is orange."
        parts.append(section("Parallel coordinates", _parallel(document, complete), note=note))
        parts.append(section("Slices", _slices(document, complete), note="Each point is a completed trial."))
    if any(len(trial["curve"]) > 1 for trial in trials):
        note = f"{objectives[0]['name']} after each epoch."
        parts.append(section("Epochs", _epochs(objectives[0], trials), note=note))
    parts.append(section("Trials", _trials(document, trials, {each["trial"]: each for each in attempts})))
    settings = [
        (name.replace("_", " "), "–" if value is None else value) for name, value in document["settings"].items()
    ]
    parts.append(details("Settings", table(["Setting", "Value"], settings)))
    return page(title, join(parts), subtitle="hyperparameters that were tried, and what came of them")


def _values(document: Mapping[str, Any], best: Mapping[str, Any]) -> Html:
    searched = [(name, _text(value), "") for name, value in best["hyperparameters"].items()]
    fixed = [(name, _text(value), "not searched") for name, value in document["hyperparameters"].items()]
    return table(["Hyperparameter", "Value", ""], [*searched, *fixed])


def _text(value: object) -> str:
    if isinstance(value, float):
        return number(value)
    return value if isinstance(value, str) else json.dumps(value)


def _best_so_far(objective: Mapping[str, str], complete: Sequence[Mapping[str, Any]]) -> Html:
    choose = max if objective["mode"] == "max" else min
    steps: list[tuple[float, float]] = []
    for trial in complete:
        value = trial["values"][objective["name"]]
        steps.append((trial["number"], value if not steps else choose(value, steps[-1][1])))
    return curves({"best so far": steps}, x="trial", y=objective["name"], width=480)


def _importance(name: str, values: Mapping[str, float]) -> Html:
    ordered = sorted(values.items(), key=lambda pair: -pair[1])
    return join([Html('<div class="metric"><h3>'), name, Html("</h3>"), bars(ordered, limit=20), Html("</div>")])


class _Axis:
    """Where the values of a hyperparameter, or of an objective, stand on a line from 0 to 1."""

    def __init__(self, name: str, values: Sequence[Any], domain: Mapping[str, Any] | None) -> None:
        self.name = name
        self._part = "values" if domain is None else "hyperparameters"  # of a trial: names may be the same
        self._values: list[str] | None = None
        self._log = False
        self._low, self._high = 0.0, 1.0
        if domain is not None and domain["kind"] == "choice":
            self._values = [json.dumps(value, sort_keys=True) for value in domain["values"]]
            self.ends = (_text(domain["values"][0]), _text(domain["values"][-1]))
            return
        self._low, self._high = (domain["low"], domain["high"]) if domain is not None else range_of(values)
        self._log = bool(domain is not None and domain["log"])
        self.ends = (number(self._low), number(self._high))

    def is_of(self, trial: Mapping[str, Any]) -> bool:
        """Whether a trial has such a value: a hyperparameter may depend on another."""
        return self.name in trial[self._part]

    def of(self, trial: Mapping[str, Any]) -> Any:
        """A trial's value."""
        return trial[self._part][self.name]

    def at(self, trial: Mapping[str, Any]) -> float:
        """Where a trial stands, from 0 to 1."""
        value = self.of(trial)
        if self._values is not None:
            return self._values.index(json.dumps(value, sort_keys=True)) / max(1, len(self._values) - 1)
        if self._log:
            return (math.log(value) - math.log(self._low)) / (math.log(self._high) - math.log(self._low))
        return float((value - self._low) / (self._high - self._low))


def _axes(document: Mapping[str, Any], complete: Sequence[Mapping[str, Any]]) -> list[_Axis]:
    axes = [_Axis(name, (), domain) for name, domain in document["space"].items()]
    for each in document["objectives"]:
        axes.append(_Axis(each["name"], [trial["values"][each["name"]] for trial in complete], None))
    return axes


def _parallel(document: Mapping[str, Any], complete: Sequence[Mapping[str, Any]]) -> Html:
    axes = _axes(document, complete)
    first = document["objectives"][0]
    ordered = sorted(complete, key=lambda t: t["values"][first["name"]], reverse=first["mode"] == "max")[:_LINES]
    width, height, side, top, bottom = max(480, 130 * len(axes)), 300, 60, 34, 24
    step, tall = (width - 2 * side) / max(1, len(axes) - 1), height - top - bottom
    lines = []
    for rank, trial in reversed(list(enumerate(ordered))):  # the best last, above the others
        points = " ".join(
            f"{side + at * step:.1f},{top + (1 - axis.at(trial)) * tall:.1f}"
            for at, axis in enumerate(axes)
            if axis.is_of(trial)
        )
        strength = 1.0 - 0.85 * rank / max(1, len(ordered) - 1)
        words = [f"{axis.name} {_text(axis.of(trial))}" for axis in axes if axis.is_of(trial)]
        said = f"trial {trial['number']}: {', '.join(words)}"
        lines.append(
            f'<polyline class="{"s1" if rank == 0 else "s0"}" points="{points}" stroke-opacity="{strength:.2f}">'
            f"<title>{html(said)}</title></polyline>"
        )
    marks = []
    for at, axis in enumerate(axes):
        x = side + at * step
        marks.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{top}" y2="{top + tall}"/>')
        marks.append(f'<text x="{x:.1f}" y="14" text-anchor="middle">{html(clip(axis.name, 18))}</text>')
        for y, end in ((top - 6, axis.ends[1]), (height - 8, axis.ends[0])):
            marks.append(f'<text x="{x:.1f}" y="{y}" text-anchor="middle">{html(clip(end, 16))}</text>')
    return Html(
        f'<div class="scroll"><figure class="curves"><svg viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" role="img">{"".join(marks)}{"".join(lines)}</svg></figure></div>'
    )


def _slices(document: Mapping[str, Any], complete: Sequence[Mapping[str, Any]]) -> Html:
    *axes, objective = _axes(document, complete)[: len(document["space"]) + 1]
    return join(_slice(axis, objective, complete) for axis in axes)


def _slice(axis: _Axis, objective: _Axis, complete: Sequence[Mapping[str, Any]]) -> Html:
    width, height, left, top, bottom = 260, 200, 20, 24, 34
    wide, tall = width - 2 * left, height - top - bottom
    points = []
    for trial in complete:
        if not axis.is_of(trial):
            continue
        x, y = left + axis.at(trial) * wide, top + (1 - objective.at(trial)) * tall
        values = f"{axis.name} {_text(axis.of(trial))}, {objective.name} {number(objective.of(trial))}"
        said = f"trial {trial['number']}: {values}"
        points.append(f'<circle class="s0" cx="{x:.1f}" cy="{y:.1f}" r="3"><title>{html(said)}</title></circle>')
    base = top + tall
    return Html(
        f'<figure class="curves"><svg viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img">'
        f'<line class="grid" x1="{left}" x2="{width - left}" y1="{base}" y2="{base}"/>'
        f'<line class="grid" x1="{left}" x2="{left}" y1="{top}" y2="{base}"/>'
        f'<text x="{left}" y="14">{html(f"{objective.name} {objective.ends[0]} to {objective.ends[1]}")}</text>'
        f'<text x="{left}" y="{base + 15}">{html(clip(axis.ends[0], 14))}</text>'
        f'<text x="{width - left}" y="{base + 15}" text-anchor="end">{html(clip(axis.ends[1], 14))}</text>'
        f'<text x="{width / 2:.0f}" y="{height - 5}" text-anchor="middle">{html(clip(axis.name))}</text>'
        f"{''.join(points)}</svg></figure>"
    )


def _epochs(objective: Mapping[str, str], trials: Sequence[Mapping[str, Any]]) -> Html:
    """The curves of the six best trials by their last value, and of no more: nobody tells more colours apart."""
    sign = -1.0 if objective["mode"] == "max" else 1.0
    series = {
        f"trial {trial['number']}": [
            (at, values[0]) for at, values in enumerate(trial["curve"], 1) if values[0] is not None
        ]
        for trial in trials
    }
    drawn = sorted((name for name in series if series[name]), key=lambda name: sign * series[name][-1][1])[:6]
    return curves({name: series[name] for name in drawn}, x="epoch", y=objective["name"], width=480)


def _trials(
    document: Mapping[str, Any], trials: Sequence[Mapping[str, Any]], attempts: Mapping[int, Mapping[str, Any]]
) -> Html:
    names, objectives = list(document["space"]), [each["name"] for each in document["objectives"]]
    times: list[TableColumn | str] = [TableColumn("seconds", numeric=True)] if attempts else []
    heads = [
        TableColumn("Trial", numeric=True), "", *(TableColumn(name, numeric=True) for name in objectives),
        *names, TableColumn("epochs", numeric=True), *times, "Why",
    ]  # fmt: skip
    rows = []
    for trial in trials:
        values = [trial["values"].get(name) for name in objectives]
        attempt = attempts.get(trial["number"], {"seconds": None, "deaths": []})
        deaths = [f"repeated, as its process died: {each}" for each in attempt["deaths"]]
        rows.append(
            (
                trial["number"],
                badge("best", "info") if trial["number"] == document["best"] else _state(trial["state"]),
                *("–" if value is None else value for value in values),
                *(_text(trial["hyperparameters"][n]) if n in trial["hyperparameters"] else "–" for n in names),
                len(trial["curve"]),
                *(["–" if attempt["seconds"] is None else attempt["seconds"]] if attempts else []),
                "; ".join([*([trial["reason"]] if trial["reason"] else []), *deaths]),
            )
        )
    return table(heads, rows, tight=True)


def _state(state: str) -> Html:
    return badge(_WORDS[state], _TONES[state])  # type: ignore[arg-type]  # they are tones
