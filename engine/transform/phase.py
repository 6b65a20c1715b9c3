"""One phase: analyzers that need no result of each other, computed in one pass over each span."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from ...data.base import Executor
from ...errors import InputError
from ...progress import Progress, part_of
from ..analyzers.analysis import Analysis, AnalyzerPass, analysis_of, finish
from ..analyzers.cache import AnalyzerCache, state_of
from ..analyzers.spans import Span
from ..analyzers.states import State
from ..lowering.partition import Analyzer
from ..tracing.objects import recall
from .analysis_inputs import AnalysisInputs
from .analyzer_results import AnalyzerResults


def run_phase(
    results: AnalyzerResults,
    analyzers: Sequence[Analyzer],
    spans: Sequence[Span],
    executor: Executor,
    progress: Progress,
    cache: AnalyzerCache | None,
) -> None:
    """Compute the analyzers of one phase and keep their results.

    A span is read once, for those analyses alone whose states of it are not in the cache; states are merged in the
    order of the spans. A state depends on its span and on what it reads, not on what else the phase computes.

    Args:
        results: Of the phases before; gets those of this one.
        analyzers: Several may read one state.
        spans: The training data.
        executor: Who walks the shards.
        progress: Told how many rows are done in this phase.
        cache: Where states are taken from and kept; or None.
    """
    partition = results.partition
    analysis_by_analyzer: list[Analysis] = []
    groups: dict[Analysis, tuple[str, ...]] = {}
    for analyzer in analyzers:
        names = [partition.tensor(value).id for value in analyzer.inputs]
        reducer = recall(analyzer.params["reducer"]) if "reducer" in analyzer.params else None
        analysis = analysis_of(analyzer.kind, analyzer.params, names, reducer, analyzer.where)
        analysis_by_analyzer.append(analysis)
        groups[analysis] = analyzer.inputs
    inputs = AnalysisInputs.of(results, groups.values())
    keys = {}
    if cache is not None:
        keys = {analysis: key for analysis in groups if (key := inputs.key(analysis)) is not None}
    whole, done = AnalyzerPass(tuple(groups)), 0
    for index, span in enumerate(spans):
        states = _states(span, tuple(groups), keys, inputs, executor, part_of(progress, done, None), cache)
        # In the order of the spans: a user's reducer need not commute.
        if index:
            whole.merge(states)
            whole.compact()
        else:
            whole = states
        done += span.source.rows
        progress(done, None, "rows")
    whole.compact()
    state_of_analysis = dict(zip(groups, whole.states, strict=True))
    for analyzer, analysis in zip(analyzers, analysis_by_analyzer, strict=True):
        results.take(analyzer, _finished(analyzer, state_of_analysis[analysis]))


def _states(
    span: Span,
    analyses: tuple[Analysis, ...],
    keys: Mapping[Analysis, str],
    inputs: AnalysisInputs,
    executor: Executor,
    progress: Progress,
    cache: AnalyzerCache | None,
) -> AnalyzerPass:
    """The states of one span: from the cache, and else from its rows."""
    keys = keys if span.digest else {}  # states of a span that cannot be recognized are not kept
    states: dict[Analysis, State] = {}
    for analysis in analyses if cache is not None else ():
        known = cache.get(span.digest, analysis, keys[analysis]) if cache is not None and analysis in keys else None
        if known is not None:
            states[analysis] = known
    missing = tuple(analysis for analysis in analyses if analysis not in states)
    if missing:
        via = inputs.files(missing)
        columns = span.source.select(via.columns).with_dictionaries()
        computed = executor.combine(columns, partial(AnalyzerPass, missing), via=via, progress=progress)
        computed.compact()
        states.update(zip(missing, computed.states, strict=True))
    if cache is not None and keys:
        data = {analysis: states[analysis].to_bytes() for analysis in keys}
        cache.put(
            span.digest,
            {keys[analysis]: data[analysis] for analysis in keys},
            sum(analysis in keys for analysis in missing),
        )
        # A computed state goes through its bytes as one from the cache does: what is read off it may not depend on
        # where it came from.
        for analysis in keys:
            again = state_of(analysis, data[analysis])
            states[analysis] = states[analysis] if again is None else again
    return AnalyzerPass(analyses, [states[analysis] for analysis in analyses])


def _finished(analyzer: Analyzer, state: Any) -> Any:
    key_fn = recall(analyzer.params["key_fn"]) if analyzer.params.get("key_fn") else None
    try:
        return finish(analyzer.kind, analyzer.params, state, key_fn)
    except InputError as error:
        raise InputError(error.message, fix=error.fix, where=analyzer.where) from error
