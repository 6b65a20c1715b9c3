"""Is the model good enough? Every threshold against every slice it is meant for, in numbers and in words."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from ...data.slices import title
from .confidence import Interval
from .config import EvaluationConfig, Judgement, Threshold
from .definitions import Metric
from .metrics import COUNTS, without_options
from .rows import Task

_ROUNDING: Final = 1e-12  # of the larger metric: a difference is inclusive to this, since 0.91 - 0.90 < 0.01 in floats
_VALUE: Final = "{0:.{1}g}"
NO_BASELINE: Final = "no baseline yet"
_HEADLINES: Final[Mapping[Task, tuple[str, ...]]] = {
    "binary": ("auc", "log_loss"),
    "regression": ("rmse", "r2"),
    "multiclass": ("accuracy", "macro_f1"),
    "multilabel": ("exact_match", "micro_f1"),
    "ranking": ("ndcg", "mean_reciprocal_rank"),
}
"""What a summary shows; where neither was measured, the first two metrics."""
_REFUSED: Final = f'{NO_BASELINE}, and first_run="refuse" blesses no model without one'


def validate(
    result: Mapping[str, Any],
    config: EvaluationConfig,
    *,
    baseline: bool,
    withheld: Sequence[tuple[Sequence[tuple[str, Any]], int]] = (),
) -> dict[str, Any]:
    """Judge the metrics.

    Args:
        result: What `MetricsAccumulator.result` gave.
        config: The thresholds.
        baseline: Whether the result holds a baseline's metrics.
        withheld: What `MetricsAccumulator.withheld` gave: slices that are too small to be shown, or judged.

    Returns:
        `blessed`; `baseline` ("compared" or "no baseline yet"); `thresholds`, a list of `slice`, `key`, `metric`,
        `n`, `value`, `baseline` (its value), `change`, `relative_change` (text "inf" where infinite), the bounds,
        `judge`, `interval` and `change_interval` (their two ends, None where there are none), `passed` (None where
        nothing of the threshold applies) and `text`; `missing_slices`, what was to be judged and has no examples;
        `confidence`, how intervals were computed, None without; `bins`, of each slice by bins where all but the
        first begin; `min_examples`, and `withheld`: how many slices and
        rows by slicing have fewer; `withheld_thresholds`, a list of `slice`, `metric`, `judged`, `withheld` (slices),
        `passed` (False where none is left to judge, else None) and `text`; `failures`, one line for each reason why
        the model is not blessed.
    """
    checks: list[dict[str, Any]] = []
    missing: dict[str, str] = {}
    unseen: list[dict[str, Any]] = []
    for threshold in config.thresholds:
        matching = [item for item in result["slices"] if matches(threshold, item["pairs"])]
        metric = config.measures[threshold.metric]
        small = sum(matches(threshold, pairs) for pairs, _ in withheld)
        if small:
            unseen.append(_not_judged(threshold, metric, len(matching), small, config.min_examples))
        elif not matching:
            missing[_named(threshold)] = _alike(threshold, result["slices"])
        directed = replace(threshold, direction=threshold.directed(metric.direction))
        checks += [_judge(directed, item, baseline, metric) for item in matching]
    failures = [check["text"] for check in checks if check["passed"] is False]
    failures += dict.fromkeys(item["text"] for item in unseen if item["passed"] is False)
    failures += [f"no examples in the slice {name}, which has a threshold{hint}" for name, hint in missing.items()]
    if not config.thresholds:
        failures.append("no thresholds are configured")
    if not baseline and config.first_run == "refuse":
        failures.append(_REFUSED)
    return {
        "blessed": not failures,
        "baseline": "compared" if baseline else NO_BASELINE,
        "examples": result["rows"],
        "thresholds": checks,
        "missing_slices": list(missing),
        "confidence": config.to_json()["confidence"],
        "bins": {name: list(each.bins) for name, each in config.expressions.items() if isinstance(each.bins, tuple)},
        "min_examples": config.min_examples,
        "withheld": [{**group, "text": _withheld(group, config.min_examples)} for group in result.get("withheld", ())],
        "withheld_thresholds": unseen,
        "missing_thresholds": not config.thresholds,
        "failures": failures,
    }


def summary(result: Mapping[str, Any], verdict: Mapping[str, Any]) -> str:
    """One line: the main metrics of the overall slice, and whether the model is blessed, else why not."""
    overall = result["slices"][0]["metrics"]["candidate"]
    names = [name for name in _HEADLINES[result.get("task", "binary")] if name in overall]
    names = names or [name for name in overall if name not in COUNTS][:2]
    parts = [f"{_inline(name)} {_number(overall[name])}" for name in names]
    said = ", ".join(parts) or f"{result['rows']:,} examples"
    if verdict["blessed"]:
        skipped = any(check["passed"] is None or check["skipped"] for check in verdict["thresholds"])
        small = sum(group["slices"] for group in verdict["withheld"])
        notes = [NO_BASELINE] if skipped else []
        notes += [f"{_counted(small, 'slice')} withheld"] if small else []
        return f"{said}; blessed" + (f" ({', '.join(notes)})" if notes else "")
    first, *more = verdict["failures"]
    return f"{said}; not blessed: {first}" + (f", and {len(more)} more" if more else "")


def _inline(name: str) -> str:
    metric = without_options(name)
    return name if metric is None else metric.inline


def matches(threshold: Threshold, pairs: Sequence[tuple[str, Any]]) -> bool:
    """Whether the threshold is meant for this slice."""
    slice_ = dict(pairs)
    if set(slice_) != set(threshold.columns):
        return False
    return all(slice_[name] == value and _same_kind(slice_[name], value) for name, value in threshold.pinned.items())


def _same_kind(left: object, right: object) -> bool:
    return isinstance(left, bool) == isinstance(right, bool)


def _alike(threshold: Threshold, slices: Sequence[Mapping[str, Any]]) -> str:
    """What to write where a slice reads alike, and its values are of another type or case: 2007 for "2007"."""
    pinned = threshold.pinned
    for values in (dict(item["pairs"]) for item in slices):
        if set(values) == set(threshold.columns) and all(_text(values[name]) == _text(pinned[name]) for name in pinned):
            written = {name: values[name] for name in pinned}
            return f": there is one that reads alike, write slice={written!r}"
    return ""


def _text(value: object) -> str:
    return str(value).casefold()


def _named(threshold: Threshold) -> str:
    pinned = threshold.pinned
    if not threshold.columns:
        return "overall"
    return ", ".join(title([(name, pinned[name])]) if name in pinned else f"{name}=*" for name in threshold.columns)


def _not_judged(threshold: Threshold, metric: Metric, judged: int, withheld: int, least: int) -> dict[str, Any]:
    """What a threshold cannot be held against. It fails where no slice is left, as where there are no examples."""
    name = _named(threshold)
    if judged:
        text = f"{metric.inline} of {name}: {_counted(judged, 'slice')} judged, {withheld} withheld"
    elif len(threshold.pinned) == len(threshold.columns):
        text = f"the slice {name}, which has a threshold, is withheld"
    else:
        text = f"the slices {name}, which have a threshold, are all withheld"
    return {
        "slice": name,
        "metric": threshold.metric,
        "judged": judged,
        "withheld": withheld,
        "passed": None if judged else False,
        "text": f"{text}, with fewer than {least:,} examples",
    }


def _withheld(group: Mapping[str, Any], least: int) -> str:
    slices, examples = _counted(group["slices"], "slice"), _counted(group["rows"], "example")
    each = "" if group["slices"] == 1 else "each "
    return f"{slices} by {', '.join(group['columns'])} withheld, {each}with fewer than {least:,} examples: {examples}"


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


def _judge(threshold: Threshold, item: Mapping[str, Any], baseline: bool, metric: Metric) -> dict[str, Any]:
    value = item["metrics"]["candidate"][threshold.metric]
    before = item["metrics"]["baseline"][threshold.metric] if baseline else None
    intervals = item.get("intervals") or {}
    change = relative = None
    if isinstance(value, float) and isinstance(before, float):
        change, relative = value - before, relative_change(value, before)
    name = f"{metric.inline} of {item['slice']}" if item["pairs"] else f"overall {metric.inline}"
    skipped = threshold.has_change and not baseline
    parts = (
        list(_value_parts(threshold, value, _interval(intervals, "candidate", threshold)))
        if threshold.has_value
        else []
    )
    if threshold.has_change and baseline:
        parts += _change_parts(threshold, value, before, change, relative, intervals)
    passed = all(passed for passed, _ in parts) if parts else None
    # Of what failed only the parts that failed are told; of what passed, all.
    shown = [text for ok, text in parts if ok is passed] + ([f"change not judged, {NO_BASELINE}"] if skipped else [])
    if passed and _bounds_the_better_side(threshold, metric):
        shown.append(f"though {metric.direction} is better: any worse model keeps this")
    return {
        "slice": item["slice"],
        "key": item["key"],
        "metric": threshold.metric,
        "n": item["n"],
        "value": _value(value),
        "baseline": _value(before),
        "change": change,
        "relative_change": relative if relative is None or math.isfinite(relative) else str(relative),
        "lower": threshold.lower,
        "upper": threshold.upper,
        "change_absolute": threshold.change_absolute,
        "change_relative": threshold.change_relative,
        "direction": threshold.direction,
        "judge": threshold.judge,
        "interval": _ends(_interval(intervals, "candidate", threshold)),
        "change_interval": _ends(_interval(intervals, "change", threshold)),
        "skipped": skipped,
        "passed": passed,
        "text": f"{name} {_number(value, threshold.lower, threshold.upper)}: {', '.join(dict.fromkeys(shown))}",
    }


def _bounds_the_better_side(threshold: Threshold, metric: Metric) -> bool:
    """Whether all that a threshold asks for is that a model is not too good, which is seldom meant."""
    if metric.direction is None or (threshold.has_change and threshold.direction == metric.direction):
        return False
    return (threshold.upper if metric.direction == "lower" else threshold.lower) is None


def _interval(intervals: Mapping[str, Any], kind: str, threshold: Threshold) -> Interval | None:
    interval: Interval | None = intervals.get(kind, {}).get(threshold.metric)
    return interval


def _ends(interval: Interval | None) -> list[float] | None:
    return list(interval) if isinstance(interval, tuple) else None


def _judged(
    value: float,
    interval: Interval | None,
    judge: Judgement,
    bound: float,
    form: str,
    *,
    digits: int,
    at_least: bool,
    slack: float = 0,
) -> tuple[bool, str]:
    """Whether a bound is kept, by the value or by the end of its interval that decides; and in words."""
    # As many digits as show on which side of the bound a number lies: 0.69998 rounded is 0.7, and not below it.
    ends = interval if isinstance(interval, tuple) and judge != "value" else ()
    digits = max(_digits(form, number, bound, slack, least=digits) for number in (value, *ends))
    limit = form.format(bound, digits)
    kept = value >= bound - slack if at_least else value <= bound + slack
    if judge == "value":
        return kept, f"{_sign(kept, at_least)} {limit}"
    if not isinstance(interval, tuple):
        kept = kept and judge != "strict"
        asks = (
            "a strict threshold asks for an interval, and there is none" if judge == "strict" else "without an interval"
        )
        bounded = (
            f"must be {_sign(True, at_least)} {limit}" if judge == "strict" else f"{_sign(kept, at_least)} {limit}"
        )
        return kept, f"{bounded} ({asks}: {interval})"
    lenient = judge == "lenient"
    # The better end for the lenient, the worse one for the strict.
    deciding = interval[1 if lenient is at_least else 0]
    kept = deciding >= bound - slack if at_least else deciding <= bound + slack
    between = f"its interval, {form.format(interval[0], digits)} to {form.format(interval[1], digits)},"
    side = _sign(True, at_least)
    if lenient:
        return (
            kept,
            f"{between} {'reaches' if kept else 'lies wholly beyond'} the bound {side} {limit} (judged leniently)",
        )
    return kept, f"{between} {'lies wholly' if kept else 'does not lie wholly'} {side} {limit} (judged strictly)"


def _value_parts(threshold: Threshold, value: float | str, interval: Interval | None) -> Iterator[tuple[bool, str]]:
    if isinstance(value, str):
        yield False, value
        return
    for bound, at_least in ((threshold.lower, True), (threshold.upper, False)):
        if bound is not None:
            yield _judged(value, interval, threshold.judge, bound, _VALUE, digits=6, at_least=at_least)


def _sign(passed: bool, at_least: bool) -> str:
    return ("≥" if at_least else "≤") if passed else ("<" if at_least else ">")


def _change_parts(
    threshold: Threshold,
    value: float | str,
    before: float | str | None,
    change: float | None,
    relative: float | None,
    intervals: Mapping[str, Any],
) -> Iterator[tuple[bool, str]]:
    if isinstance(value, str):
        yield False, value
        return
    if change is None or relative is None:
        yield False, f"the baseline's value is undefined: {before}"
        return
    assert isinstance(before, float)  # there is a change from it
    rounding = _ROUNDING * max(abs(value), abs(before))
    for bound, moved, form, kind, slack in (
        (threshold.change_absolute, change, "{0:+.{1}g}", "change", rounding),
        (
            threshold.change_relative,
            relative,
            "{0:+.{1}%}",
            "relative_change",
            rounding / abs(before) if before else 0.0,
        ),
    ):
        if bound is None:
            continue
        higher = threshold.direction == "higher"
        interval = _interval(intervals, kind, threshold)
        passed, said = _judged(moved, interval, threshold.judge, bound, form, digits=4, at_least=higher, slack=slack)
        shown = form.format(moved, _digits(form, moved, bound, slack))
        between = " " if threshold.judge == "value" else ", "
        yield passed, f"change {shown}{between}{said} (baseline {_number(before)})"


def relative_change(value: float, before: float) -> float:
    """(value − before) / |before|; over a baseline of 0: 0 for no change, else infinite with the change's sign."""
    change = value - before
    if before:
        return change / abs(before)
    return math.copysign(math.inf, change) if change else 0.0


def _value(value: float | str | None) -> float | None:
    return value if isinstance(value, float) else None


def _digits(form: str, number: float, bound: float, slack: float = 0, *, least: int = 4) -> int:
    """The fewest digits, `least` or more, with which a number and its bound read as they compare."""
    if abs(number - bound) <= slack:
        return least
    for digits in range(least, 17):
        left, right = (float(form.format(each, digits).rstrip("%")) for each in (number, bound))
        if (left < right) == (number < bound) and (left > right) == (number > bound):
            return digits
    return 17


def _number(value: float | str | None, *bounds: float | None) -> str:
    """The value with the digits that tell it from its bounds."""
    if not isinstance(value, float):
        return "undefined"
    return _VALUE.format(
        value, max((_digits(_VALUE, value, bound) for bound in bounds if bound is not None), default=4)
    )
