"""StatisticsGen: what the examples look like, every split, every column, one pass."""

from __future__ import annotations

from ..metadata import Examples, Statistics
from ..pipelines import component, current


@component
def StatisticsGen(examples: Examples) -> Statistics:
    """Statistics of every split of the examples.

    Args:
        examples: From ExampleGen, or transformed.

    Returns:
        Statistics: `content/statistics.json` for people and programs, `content/states/split=<name>.bin` with the
        mergeable states (whole value tables), and a report.

    Raises:
        InputError: The examples are damaged.
    """
    from ..data import executor, open_examples, splits, statistics

    context = current()
    sources = {name: open_examples(examples.content, name) for name in splits(examples.content)}
    walk = executor(context.executor, context.executor_options)
    found = statistics(sources, walk, progress=context.progress)
    made = Statistics.new(span=examples.span)
    found.save(made.content)
    (made.extra / "report.html").write_text(found.to_html(), "utf-8")
    return made
