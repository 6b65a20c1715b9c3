"""StatisticsGen: what the examples look like, every split, every column, one pass."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import InputError
from ..metadata import Examples, Schema, Statistics
from ..pipelines import Fn, FunctionRef, component, current, load
from .derived_columns import with_derived


@component
def StatisticsGen(
    examples: Examples,
    *,
    schema: Schema | None = None,
    columns: Sequence[str] | None = None,
    weight: str | None = None,
    slices: Sequence[str | Sequence[str] | Mapping[str, Sequence[str | int | float | bool] | None]] = (),
    label: str | None = None,
    lift: bool | Mapping[str, int | Sequence[float]] = False,
    correlations: bool = False,
    sample_rate: float = 1.0,
    seed: int = 0,
    custom: Fn | None = None,
    derive: Fn | None = None,
) -> Statistics:
    """Statistics of every split of the examples.

    Args:
        examples: From ExampleGen, or transformed.
        schema: From ImportSchema: what its weighted features are decided from is measured too.
        columns: The columns to describe; by default all.
        weight: The column with each row's weight; the statistics then have a weighted twin.
        slices: Rows to describe apart as well: "carrier", ["carrier", "month"] or {"carrier": ["AA"], "month": None}.
        label: The column that every other one's mutual information is with; needs the extra `analysis`.
        lift: Whether to find the lift of every category's values for each of the label's; or how:
            {"boundaries": [0, 15], "min_x_count": 10, "top": 5, "bottom": 5}.
        correlations: Whether to correlate every two numeric columns.
        sample_rate: The share of rows to look at, chosen by a hash of their values.
        seed: Another seed, another sample.
        custom: A mapping of names to factories of accumulators (`drivetrain.data.Accumulator`) that the project
            defines, e.g. "statistics:CUSTOM"; their results stand under "custom".
        derive: A function of the project, e.g. "checks:derived", from a record batch to more columns by name, which are
            described like the data's own (see `drivetrain.data.derived`).

    Returns:
        Statistics: `content/statistics.json` for people and programs, `content/states/split=<name>.bin` with the
        mergeable states (whole value tables), and a report.

    Raises:
        InputError: The examples are damaged, or an option does not fit them.
    """
    # Late, so that building a pipeline and a cached run import no Arrow.
    from ..data import executor, load_schema, open_examples, splits, statistics
    from ..data.examples import examples_digest

    context = current()
    sources = {name: open_examples(examples.content, name) for name in splits(examples.content)}
    sources = with_derived(sources, derive)
    walk = executor(context.executor, context.executor_options)
    measured = statistics(
        sources, walk, columns=columns, weight=weight, slices=slices, label=label, lift=lift,
        correlations=correlations, sample_rate=sample_rate, seed=seed, custom=_factories(custom),
        schema=None if schema is None else load_schema(schema.content / "schema.yaml"), progress=context.progress,
    )  # fmt: skip
    # In the content, since statistics that look alike but are of other examples are others to ExampleValidator.
    measured.document = {**measured.document, "examples": examples_digest(examples.content)}
    for split, rows in measured.sampled.items():
        context.note(f"{split}: statistics of a sample, {measured.splits[split]:,} of {rows:,} rows")
    artifact = Statistics.new(span=examples.span)
    measured.save(artifact.content)
    (artifact.extra / "report.html").write_text(measured.to_html(), "utf-8")
    return artifact


@dataclass(frozen=True)
class _Factory:
    """One of a project's factories by name, so that a worker elsewhere loads the project before it makes anything."""

    reference: FunctionRef
    name: str

    def __call__(self) -> Any:
        return self.reference.load()[self.name]()


def _factories(custom: Fn | None) -> dict[str, Callable[[], Any]]:
    if custom is None:
        return {}
    known: Any = load(custom)  # Any: whatever the user's attribute is
    if not isinstance(known, Mapping) or not all(isinstance(name, str) and callable(known[name]) for name in known):
        raise InputError(
            f"StatisticsGen: custom={getattr(custom, 'name', custom)!r} is not a mapping of names to factories",
            fix='define e.g. CUSTOM = {"longest": Longest} and give "module:CUSTOM"',
        )
    if isinstance(custom, FunctionRef):
        return {name: _Factory(custom, name) for name in known}
    return dict(known)
