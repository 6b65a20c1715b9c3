"""The metrics by name, and which of them a configuration means: ours, ours with options, and a user's own."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np

from ...errors import InputError, suggest
from ...pipelines.project.functions import FunctionRef, package_name, reference
from ...user_code import users_line
from .between_slices import BETWEEN_SLICES_METRICS
from .binary import BINARY_METRICS
from .classes import SEVERAL, for_several_classes
from .comparison import COMPARISON_METRICS
from .counts import COUNT_METRICS
from .definitions import Definition, Metric
from .means import MEAN_METRICS
from .multiclass import MULTICLASS_METRICS
from .multilabel import MULTILABEL_METRICS
from .ranking import RANKING_METRICS
from .regression import REGRESSION_METRICS
from .rows import TASKS, Task

_FAMILIES: Final = (
    COUNT_METRICS,
    BINARY_METRICS,
    REGRESSION_METRICS,
    MEAN_METRICS,
    MULTICLASS_METRICS,
    MULTILABEL_METRICS,
    RANKING_METRICS,
    COMPARISON_METRICS,
    BETWEEN_SLICES_METRICS,
)

METRICS: Mapping[str, tuple[Definition, ...]] = {
    name: tuple(family[name] for family in _FAMILIES if name in family)
    for name in dict.fromkeys(name for family in _FAMILIES for name in family)
}
"""Every metric of ours by name, in the order in which they are shown. Of those with one name, each judges other kinds
of model."""

_OF_CLASSES: Final[tuple[Task, ...]] = ("multiclass", "multilabel")

COUNTS = tuple(COUNT_METRICS)
"""Metrics that say how much was measured, not how good it is."""

DEFAULTS: Mapping[Task, tuple[str, ...]] = {
    task: tuple(
        name
        for name, definitions in METRICS.items()
        if any(definition.default and task in definition.tasks for definition in definitions)
    )
    for task in TASKS
}
"""What is measured of each kind of model where a configuration names no metrics."""


@dataclass(frozen=True)
class MetricConfig:
    """A metric with options, or a user's own: what `metric` returns.

    Attributes:
        metric: A name out of `METRICS`, or a user's function as "module:attribute".
        name: What the metric is called in thresholds, files and reports.
        options: Its keyword arguments.
        named: Whether the user chose the name, which is then its title as well.
    """

    metric: str
    name: str
    options: tuple[tuple[str, Any], ...] = ()
    named: bool = False


MetricLike: TypeAlias = str | MetricConfig | Callable[..., Metric]
"""What a configuration's `metrics` may hold: a name, what `metric` returns, or a user's own as "module:attribute" or as
the function itself."""


def metric(metric: str | Callable[..., Metric], /, *, name: str | None = None, **options: Any) -> MetricConfig:
    """Name a metric with options, such as `metric("precision", threshold=0.3)`.

    Args:
        metric: A name out of `METRICS`, or a user's own: a function that returns a `Metric`, or its "module:attribute".
            One of a notebook or script (`__main__`) judges in this process only.
        name: What to call it in thresholds, files and reports; by default, its name with the options.
        **options: Its keyword arguments: text, numbers, or lists of them; `of=` of a metric between slices also what
            this function returns, or a user's own.

    Raises:
        InputError: An option is neither, or the function cannot be named from another process.
    """
    if callable(metric):
        name_here = getattr(metric, "__qualname__", "") if metric.__module__ == "__main__" else ""
        metric = f"__main__:{name_here}" if name_here.isidentifier() else reference(metric, None).name
    short = metric.rpartition(":")[2]
    for key, value in options.items():
        if isinstance(value, (list, np.ndarray, np.generic)):
            plain = value if isinstance(value, list) else value.tolist()
            options[key] = tuple(map(_plain, plain)) if isinstance(plain, list) else plain
        if key == "of" and (isinstance(value, MetricConfig) or callable(value)):
            options[key] = configured(value)
            continue
        if not all(isinstance(part, (str, int, float, bool, type(None))) for part in _parts(options[key])):
            raise InputError(
                f"metric {short!r}: option {key!r} must be text, a number or a list of them, not {value!r}"
            )
    words = {key: name_of(value) if isinstance(value, MetricConfig) else value for key, value in options.items()}
    said = ", ".join(f"{key}={value}" for key, value in sorted(words.items()))
    called = name or (f"{short}({said})" if said else short)
    return MetricConfig(metric, called, tuple(sorted(options.items())), name is not None)


def _plain(value: object) -> object:
    return value.item() if isinstance(value, np.generic) else value


def _parts(value: object) -> Sequence[object]:
    return value if isinstance(value, tuple) else (value,)


def configured(item: object) -> str | MetricConfig:
    """What a configuration keeps of an item of `metrics`: the bare name of one of ours without options.

    Raises:
        InputError: There is no such metric.
    """
    if isinstance(item, Mapping):  # out of JSON
        options = tuple((key, _option(value)) for key, value in item["options"])
        return MetricConfig(item["metric"], item["name"], options, item["named"])
    if isinstance(item, MetricConfig):
        _known(item.metric)
        return item
    if isinstance(item, str):
        _known(item)
        return metric(item) if ":" in item else item
    if callable(item):
        return metric(item)
    if isinstance(item, Metric):
        raise InputError(
            f"metrics has the Metric {item.title!r}, not the function that returns it", fix="profit, not profit()"
        )
    raise InputError(f"{item!r} is not a metric", fix=f"one of {', '.join(METRICS)}, or your own function")


def _option(value: Any) -> Any:  # Any: out of JSON
    if isinstance(value, Mapping):
        return configured(value)
    return tuple(value) if isinstance(value, list) else value


def _known(name: str) -> None:
    if ":" not in name and name not in METRICS:
        near = suggest(name, list(METRICS), "there are")
        raise InputError(f"there is no metric {name!r}", fix=near, where=users_line())


def name_of(item: str | MetricConfig) -> str:
    """What a metric of a configuration is called."""
    return item if isinstance(item, str) else item.name


def is_users(item: str | MetricConfig) -> bool:
    """Whether it is a user's own, or compares slices in one."""
    return users_part(item) is not None


def users_part(item: str | MetricConfig) -> str | None:
    """The "module:attribute" of a user's own that a metric is, or that it compares slices in; else None."""
    if isinstance(item, str):
        return item if ":" in item else None
    compared = dict(item.options).get("of")
    if ":" in item.metric:
        return item.metric
    return users_part(compared) if isinstance(compared, (str, MetricConfig)) else None


def columns_compared(item: str | MetricConfig) -> tuple[str, ...]:
    """Of a metric between slices, the columns whose slices it compares."""
    if isinstance(item, str) or item.metric not in BETWEEN_SLICES_METRICS:
        return ()
    by = dict(item.options).get("by", ())
    return (by,) if isinstance(by, str) else tuple(by)


def users_function(item: str | MetricConfig, project: Path | None) -> FunctionRef:
    """Where a user's own metric is; `project` is the folder that names without a package are relative to."""
    written = users_part(item) or name_of(item)
    # A function that the project's modules import is known by the name of the project's package.
    return reference(written if project is None else written.removeprefix(f"{package_name(project)}."), project)


def tasks_of(item: str | MetricConfig) -> tuple[Task, ...]:
    """The kinds of model that a metric can judge; of a user's own all, until it is loaded."""
    if not isinstance(item, str) and ":" in item.metric:
        return TASKS
    name, options = (item, {}) if isinstance(item, str) else (item.metric, dict(item.options))
    definitions = METRICS[name]
    if SEVERAL & options.keys():
        binary = any("binary" in definition.tasks for definition in definitions)
        return ("multiclass", "multilabel") if binary else ()
    return tuple(task for task in TASKS if any(task in definition.tasks for definition in definitions))


def task_of(items: Sequence[str | MetricConfig], wanted: Sequence[Task] = TASKS) -> Task:
    """The first kind of model, of those `wanted`, that all these metrics can judge.

    Raises:
        InputError: There is none.
    """
    fitting = tuple(wanted)
    before = "the metrics before it" if fitting == TASKS else "this configuration"
    for item in items:
        remaining = tuple(task for task in fitting if task in tasks_of(item))
        if not remaining:
            raise InputError(
                f"EvaluationConfig: {name_of(item)!r} judges {_either(tasks_of(item))} models, "
                f"{before} {_either(fitting)} ones",
                fix=_for_several(item, items, fitting) or "judge one kind of model in a configuration",
            )
        fitting = remaining
    return fitting[0]


def _for_several(item: str | MetricConfig, items: Sequence[str | MetricConfig], fitting: Sequence[Task]) -> str:
    """What makes a metric of yes or no one of several classes, where that is what keeps metrics apart; else nothing."""
    if not set(_OF_CLASSES) & {*fitting, *tasks_of(item)}:
        return ""
    return averages(items)


def averages(items: Sequence[str | MetricConfig]) -> str:
    """How the metrics of yes or no among these judge several classes, as a fix; nothing where there are none."""
    for item in items:
        if "binary" in tasks_of(item) and "multiclass" not in tasks_of(item):
            name = item if isinstance(item, str) else item.metric
            several = [each for each in METRICS if each.rpartition("_")[2] == name != each]
            known = f"; or {', '.join(several)}" if several else ""
            return (
                f'of several classes write metric({name!r}, average="macro"), or average="micro" or "weighted", or of '
                f"one class, class_id=…{known}"
            )
    return ""


def _either(tasks: Sequence[Task]) -> str:
    return " or ".join(tasks) or "no"


def build(item: str | MetricConfig, task: Task, context: Mapping[str, Any], project: Path | None) -> Metric:
    """The metric that an item of a configuration means.

    Args:
        item: As `configured` gave it.
        task: The kind of model.
        context: Options that the configuration sets for all metrics that know them: `threshold`, `classes`. What the
            item says itself, or a definition that is a `partial`, goes before.
        project: The user's project, where a metric of his is looked for.

    Raises:
        InputError: Options that the metric does not have, or a user's metric that is none or judges other models.
    """
    if isinstance(item, str):
        item = MetricConfig(item, item)
    options = dict(item.options)
    if ":" in item.metric:
        return _users(item, options, task, project)
    several = {key: options.pop(key) for key in SEVERAL & options.keys()}
    wanted: Task = "binary" if several else task
    definition = next(each for each in METRICS[item.metric] if wanted in each.tasks)
    known = _parameters(definition.build)
    for key in options:
        if key not in known:
            raise InputError(f"metric {item.metric!r} has no option {key!r}", fix=suggest(key, sorted(known), "it has"))
    fixed = definition.build.keywords if isinstance(definition.build, partial) else {}
    options = {key: value for key, value in context.items() if key in known and key not in fixed} | options
    needed = [key for key, option in known.items() if option.default is option.empty and key not in options]
    if needed:
        said = ", ".join(f"{key}=…" for key in needed)
        raise InputError(
            f"metric {item.metric!r} needs the option {needed[0]!r}", fix=f"metric({item.metric!r}, {said})"
        )
    if "of" in known:
        options["of"] = build(_compared(item, options["of"], task), task, context, project)
        if options["of"].by:
            raise InputError(f"metric {item.metric!r}: of compares slices itself", fix='name another: of="auc"')
    built = definition.build(**options)
    if several:
        built = for_several_classes(built, item.metric, context["classes"], **several)
    return _titled(built, item)


def _compared(item: MetricConfig, of: Any, task: Task) -> str | MetricConfig:  # Any: what a user wrote
    """The metric that one between slices is of."""
    if not isinstance(of, (str, MetricConfig)):
        raise InputError(
            f"metric {item.metric!r}: of must be a metric, not {of!r}",
            fix='name one: of="auc", of=metric("f1", threshold=0.3) or of="metrics:profit"',
        )
    compared = configured(of)
    task_of((compared,), (task,))
    return compared


def without_options(name: str) -> Metric | None:
    """The metric of ours that a bare name means; None where there is none, or it needs options."""
    for definition in METRICS.get(name, ()):
        if all(option.default is not option.empty for option in _parameters(definition.build).values()):
            return definition.build()
    return None


@cache  # of METRICS alone
def _parameters(build: Callable[..., Metric]) -> Mapping[str, inspect.Parameter]:
    """What a definition may be called with."""
    return inspect.signature(build).parameters


def _titled(built: Metric, item: MetricConfig) -> Metric:
    if item.named:
        return built.titled(item.name)
    titled = ("by", "of") if built.by else ()  # which the title of a metric between slices says
    said = ", ".join(f"{key} {_text(value)}" for key, value in item.options if key not in titled)
    return built.titled(f"{built.title} ({said})") if said else built


def _text(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _users(item: MetricConfig, options: Mapping[str, Any], task: Task, project: Path | None) -> Metric:
    built = users_function(item, project).load()
    if callable(built) and not isinstance(built, Metric):
        built = built(**options)
    if not isinstance(built, Metric):
        raise InputError(
            f"{item.metric} gives a {type(built).__name__}, not a Metric",
            fix='return Metric.of_rows("Profit", function_of_rows) or Metric.reduce(…)',
        )
    if task not in built.tasks:
        raise InputError(
            f"metric {item.name!r} judges {_either(built.tasks)} models, the other metrics {task} ones",
            fix=f'judge one kind of model in a configuration, such as with task="{built.tasks[0]}"',
        )
    return _titled(built, item)
