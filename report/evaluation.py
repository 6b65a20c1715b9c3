"""The evaluation as a page: verdict, thresholds, metrics by slice with bars, ROC and calibration."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from .decisions import SLIDER, decisions, precision_recall
from .forest import MOST, forest
from .groups import groups_table
from .html import (
    Html,
    TableColumn,
    aligned,
    badge,
    bar,
    curves,
    details,
    figures,
    html,
    join,
    number,
    page,
    section,
    table,
)
from .sortable import SORT

_RESIDUALS = "Overall slice: quantiles of the error for each twentieth of the examples, by prediction."
_ROWS = "Overall slice; a row for each label."
_MOST_CLASSES = 50
"""Classes whose confusion is shown one by one."""
_DECISIONS = "Overall slice: the candidate's scores by label, and what is decided above a threshold."


def render(
    evaluation: Mapping[str, Any],
    *,
    titles: Mapping[str, str],
    bars: Collection[str] = (),
    title: str = "Evaluation",
) -> str:
    """One HTML document.

    Args:
        evaluation: `metrics` (`rows`, `slices`, `plots`), `validation`, `summary` and perhaps `classes`, as an
            evaluation gives them.
        titles: Metric → its name for people.
        bars: The metrics that are drawn as bars: of values from 0 to 1.
        title: Of the page.
    """
    return _page({"": {**evaluation, "titles": titles, "bars": bars}}, title)


def render_outputs(evaluations: Mapping[str, Mapping[str, Any]], *, title: str = "Evaluation") -> str:
    """One HTML document of all outputs of a model.

    Args:
        evaluations: Output → its evaluation as `render` takes it, with its `titles` and `bars`.
        title: Of the page.
    """
    return _page(evaluations, title)


def _page(evaluations: Mapping[str, Mapping[str, Any]], title: str) -> str:
    verdicts = [evaluation["validation"] for evaluation in evaluations.values()]
    blessed = all(verdict["blessed"] for verdict in verdicts)
    badges = [badge("blessed", "good") if blessed else badge("not blessed", "bad")]
    if verdicts[0]["baseline"] != "compared":
        badges.append(badge(verdicts[0]["baseline"], "info"))
    parts = [part for output, evaluation in evaluations.items() for part in _parts(output, evaluation)]
    subtitle = evaluations[""]["summary"] if "" in evaluations else f"outputs: {', '.join(evaluations)}"
    script = SORT + (SLIDER if any("thresholds" in drawn for each in evaluations.values()
                                   for drawn in each["metrics"]["plots"].values()) else "")  # fmt: skip
    return page(title, join(parts), subtitle=subtitle, badges=badges, small_script=script)


def _parts(output: str, evaluation: Mapping[str, Any]) -> Iterable[Html]:
    """The sections of an output, whose name stands in their titles where there are several."""
    metrics, verdict, titles = evaluation["metrics"], evaluation["validation"], evaluation["titles"]
    overall = metrics["slices"][0]
    candidate = metrics["plots"].get("candidate", {})
    between = {name for part in candidate.get("groups", []) for name in part["metrics"]}
    values = _figures(evaluation, [name for name in overall["metrics"]["candidate"] if name not in between])

    def headed(title: str) -> str:
        return f"{output}: {title[:1].lower()}{title[1:]}" if output else title

    if output:
        mark = badge("good enough", "good") if verdict["blessed"] else badge("not good enough", "bad")
        yield section(output, join([mark, figures(values)]), note=evaluation["summary"])
    else:
        yield figures(values)
    yield section(headed("Thresholds"), _thresholds(verdict, titles), note=_why(verdict))
    for names, group in _by_columns(metrics["slices"]):
        if names or "baseline" in overall["metrics"]:  # else the figures above say it all
            by = headed(f"By {', '.join(names)}" if names else "Overall")
            yield section(by, _slices(group, titles, evaluation["bars"]), note=_notes(group))
            yield from _chart(group, evaluation)
    yield from _compared(evaluation, headed)
    yield from _withheld(verdict, headed)
    yield from _plots(metrics["plots"], titles, evaluation.get("classes"), headed)


def _figures(evaluation: Mapping[str, Any], names: Iterable[str]) -> dict[str, Html]:
    """Of all examples, the candidate's metrics with their intervals, by title."""
    overall = evaluation["metrics"]["slices"][0]
    values = overall["metrics"]["candidate"]
    return {evaluation["titles"].get(name, name): join([_value(values[name]), *_ends(overall, name)]) for name in names}


def _thresholds(verdict: Mapping[str, Any], titles: Mapping[str, str]) -> Html:
    rows = [
        (
            _passed(check["passed"]),
            titles.get(check["metric"], check["metric"]),
            check["slice"],
            check["n"],
            check["value"],
            check["baseline"],
            check["text"].partition(": ")[2],
        )
        for check in sorted(verdict["thresholds"], key=lambda check: check["passed"] is not False)
    ]
    rows += [(_passed(False), "", name, 0, "", "", "no examples") for name in verdict["missing_slices"]]
    rows += [
        (_passed(item["passed"]), titles.get(item["metric"], item["metric"]), item["slice"], "", "", "", item["text"])
        for item in verdict["withheld_thresholds"]
    ]
    heads: list[TableColumn | str] = ["", "Metric", "Slice", _n("Examples"), _n("Value"), _n("Baseline"), "Why"]
    return table(heads, rows, empty="No thresholds are configured, so no model can be blessed.")


def _passed(passed: bool | None) -> Html:
    if passed is None:
        return badge("not judged", "info")
    return badge("pass", "good") if passed else badge("fail", "bad")


def _why(verdict: Mapping[str, Any]) -> str:
    failed, total = len(verdict["failures"]), len(verdict["thresholds"]) + len(verdict["missing_slices"])
    total += sum(item["passed"] is False for item in verdict["withheld_thresholds"])
    if not total:
        return ""
    if failed:
        return f"{failed} of {total} checks failed."
    judged = sum(check["passed"] is not None for check in verdict["thresholds"])
    return f"All {total} checks hold." if judged == total else f"{judged} of {total} checks were judged, and hold."


def _compared(evaluation: Mapping[str, Any], headed: Callable[[str], str]) -> Iterable[Html]:
    """What metrics between slices compare, for the columns of each."""
    plots = evaluation["metrics"]["plots"]
    for parts in zip(*(drawn.get("groups", []) for drawn in plots.values()), strict=True):
        groups = groups_table(parts[0]["by"], {name: part["groups"] for name, part in zip(plots, parts, strict=True)})
        body = join([figures(_figures(evaluation, parts[0]["metrics"])), groups])
        note = "Small figures: change against the baseline." if len(plots) > 1 else ""
        yield section(headed(f"Groups by {', '.join(parts[0]['by'])}"), body, note=note)


def _withheld(verdict: Mapping[str, Any], headed: Callable[[str], str]) -> Iterable[Html]:
    if verdict["withheld"]:
        rows = [(", ".join(group["columns"]), group["slices"], group["rows"]) for group in verdict["withheld"]]
        note = f"Slices with fewer than {verdict['min_examples']:,} examples are not shown."
        yield section(headed("Withheld"), table(["By", _n("Slices"), _n("Examples")], rows), note=note)


def _by_columns(slices: Sequence[Mapping[str, Any]]) -> Iterable[tuple[tuple[str, ...], list[Mapping[str, Any]]]]:
    groups: dict[tuple[str, ...], list[Mapping[str, Any]]] = {}
    for item in slices:
        groups.setdefault(tuple(name for name, _ in item["pairs"]), []).append(item)
    return groups.items()


def _slices(group: Sequence[Mapping[str, Any]], titles: Mapping[str, str], bars: Collection[str]) -> Html:
    names = [name for name in group[0]["metrics"]["candidate"] if name != "example_count"]
    most = max(item["n"] for item in group) or 1
    texts = {name: aligned([item["metrics"]["candidate"][name] for item in group]) for name in names}
    rows = [
        (
            item["slice"],
            join([number(item["n"]), Html("<div>"), bar(item["n"] / most, width=40), Html("</div>")]),
            *(_cell(name, item, texts[name][at], drawn=name in bars) for name in names),
        )
        for at, item in enumerate(group)
    ]
    return table(["Slice", _n("Examples"), *(_n(titles.get(name, name)) for name in names)], rows, tight=True)


def _chart(group: Sequence[Mapping[str, Any]], evaluation: Mapping[str, Any]) -> Iterable[Html]:
    """The slices' values of the first metric that is better one way, or nothing."""
    directions = evaluation.get("directions", {})
    names = [name for name in group[0]["metrics"]["candidate"] if directions.get(name)]
    if len(group) < 2 or not names:
        return
    title = evaluation["titles"].get(names[0], names[0])
    shown = [(item["slice"], _measured(item, names[0])) for item in group[:MOST]]
    note = f" (the first {MOST} of {len(group)} slices)" if len(group) > MOST else ""
    yield details(f"Chart of {title}{note}", forest([each for each in shown if each[1]], x=title))


def _measured(item: Mapping[str, Any], name: str) -> dict[str, tuple[float, tuple[float, float] | None]]:
    values = {model: metrics[name] for model, metrics in item["metrics"].items()}
    return {model: (value, _interval(item, model, name)) for model, value in values.items() if isinstance(value, float)}


def _cell(name: str, item: Mapping[str, Any], text: object, *, drawn: bool) -> Html:
    value = item["metrics"]["candidate"][name]
    parts: list[object] = [_value(value) if isinstance(value, str) else text]
    if drawn and isinstance(value, float) and not item.get("intervals"):  # which leave no room for a bar
        parts = [bar(value, width=36), " ", *parts]
    parts += [join([Html("<div>"), margin, Html("</div>")]) for margin in _margin(item, "candidate", name)]
    before = item["metrics"].get("baseline", {}).get(name)
    if isinstance(value, float) and isinstance(before, float):
        parts += [Html('<div class="soft">'), f"{value - before:+.4f}", *_margin(item, "change", name), Html("</div>")]
    return join(parts)


def _interval(item: Mapping[str, Any], kind: str, name: str) -> tuple[float, float] | None:
    interval = item.get("intervals", {}).get(kind, {}).get(name)
    return interval if isinstance(interval, tuple) else None


def _margin(item: Mapping[str, Any], kind: str, name: str) -> Iterable[Html]:
    """Half the interval of a metric, or nothing."""
    interval = _interval(item, kind, name)
    if interval is not None:
        yield join([Html(' <span class="soft">'), f"±{(interval[1] - interval[0]) / 2:.2g}", Html("</span>")])


def _ends(item: Mapping[str, Any], name: str) -> Iterable[Html]:
    """The two ends of a metric's interval, or nothing."""
    interval = _interval(item, "candidate", name)
    if interval is not None:
        low, high = aligned(interval)
        yield join([Html(' <span class="soft">('), low, " to ", high, Html(")</span>")])


def _value(value: float | str | None) -> Html:
    if isinstance(value, str):
        return join([Html('<span class="soft" title="'), value, Html('">undefined</span>')])
    return html(number(value))


def _notes(group: Sequence[Mapping[str, Any]]) -> str:
    rough = [item for item in group if not item["exact"]]
    compared = any("baseline" in item["metrics"] for item in group)
    said = ["Small figures: change against the baseline."] if compared else []
    if any(item.get("intervals") for item in group):
        said.append("±: half the interval of confidence.")
    if rough:
        most = max(item["auc_error"] for item in rough)
        said.append(f"{len(rough)} large slices are measured from histograms of scores: AUC to within {most:.1e}.")
    return " ".join(said)


def _plots(
    plots: Mapping[str, Any],
    titles: Mapping[str, str],
    classes: Sequence[object] | None,
    headed: Callable[[str], str],
) -> Iterable[Html]:
    names = dict.fromkeys(name for drawn in plots.values() for name in drawn)
    if "roc" in names:
        yield section(headed("Curves"), _curves(plots), note="Overall slice.")
    if "thresholds" in names:
        drawn = decisions({model: drawn["thresholds"] for model, drawn in plots.items()})
        yield section(headed("Decisions"), drawn, note=_DECISIONS)
    if "residuals" in names:
        for model, drawn in plots.items():
            title = "Residuals" if len(plots) == 1 else f"Residuals of the {model}"
            yield section(headed(title), _residuals(drawn["residuals"]), note=_RESIDUALS)
    if "confusion" in names:
        for model, drawn in plots.items():
            title = "Confusion" if len(plots) == 1 else f"Confusion of the {model}"
            yield section(headed(title), _confusion(drawn["confusion"], classes), note=_rows(drawn["confusion"]))
    for name in names:
        if name not in ("roc", "calibration", "thresholds", "residuals", "confusion", "groups"):
            yield section(headed(titles.get(name, name)), _drawn(name, plots), note="Overall slice.")


def _drawn(name: str, plots: Mapping[str, Any]) -> Html:
    """What a metric draws: points, or buckets with their means."""
    if any(isinstance(each, Mapping) for drawn in plots.values() for each in drawn[name]):
        means = {model: [(each["prediction"], each["label"]) for each in drawn[name]] for model, drawn in plots.items()}
        return curves(means, x="mean prediction", y="mean label")
    return curves({model: [(x, y) for x, y in drawn[name]] for model, drawn in plots.items()}, x="", y="")


def _residuals(groups: Sequence[Mapping[str, float]]) -> Html:
    lines = {"90 %": "high", "median": "middle", "10 %": "low"}
    series = {name: [(group["prediction"], group[key]) for group in groups] for name, key in lines.items()}
    return curves(series, x="prediction", y="prediction − label")


def _rows(matrix: Sequence[Sequence[float]]) -> str:
    """What the rows of a confusion are, and how many classes are left out of it."""
    if len(matrix) <= _MOST_CLASSES:
        return _ROWS
    return (
        f"{_ROWS} Of {len(matrix):,} classes the {_MOST_CLASSES} with the most mistakes; the other "
        f"{len(matrix) - _MOST_CLASSES:,} are put together, and plots.json has each."
    )


def _confusion(matrix: Sequence[Sequence[float]], classes: Sequence[object] | None) -> Html:
    names = [str(name) for name in classes or range(len(matrix))]
    if len(matrix) > _MOST_CLASSES:
        names, matrix = _worst_confused(names, matrix)
    rows = [(name, *(number(weight) for weight in row)) for name, row in zip(names, matrix, strict=True)]
    return table(["Label", *(_n(f"predicted {name}") for name in names)], rows)


def _worst_confused(
    names: Sequence[str], matrix: Sequence[Sequence[float]]
) -> tuple[list[str], list[tuple[float, ...]]]:
    """The classes of the most mistakes, in their order, and all others as one more class."""
    predicted = [sum(column) for column in zip(*matrix, strict=True)]
    wrong = [sum(row) + column - 2 * row[at] for at, (row, column) in enumerate(zip(matrix, predicted, strict=True))]
    chosen = sorted(sorted(range(len(names)), key=lambda at: (-wrong[at], -sum(matrix[at])))[:_MOST_CLASSES])
    others = sorted(set(range(len(names))) - set(chosen))
    kept = [(*(row[at] for at in chosen), sum(row[at] for at in others)) for row in (matrix[at] for at in chosen)]
    rest = [sum(matrix[at][column] for at in others) for column in chosen]
    last = (*rest, sum(predicted) - sum(map(sum, kept)) - sum(rest))
    return [*(names[at] for at in chosen), f"other ({len(others):,})"], [*kept, last]


def _curves(plots: Mapping[str, Any]) -> Html:
    roc = {model: [(point[0], point[1]) for point in drawn["roc"]] for model, drawn in plots.items()}
    calibration = {
        model: [(bucket["prediction"], bucket["label"]) for bucket in drawn["calibration"]]
        for model, drawn in plots.items()
    }
    unit = (0.0, 1.0)
    precision = {model: precision_recall(drawn["thresholds"]) for model, drawn in plots.items()}
    return join(
        [
            curves(roc, x="false positive rate", y="true positive rate", x_range=unit, y_range=unit, diagonal=True),
            curves(precision, x="recall", y="precision", x_range=unit, y_range=unit),
            curves(calibration, x="mean prediction", y="mean label", x_range=unit, y_range=unit, diagonal=True),
        ]
    )


def _n(title: str) -> TableColumn:
    return TableColumn(title, numeric=True)
