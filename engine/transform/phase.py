"""One phase: analyzers that need no result of each other, computed in one pass over each span."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from ...data.base import Executor
from ...errors import InputError
from ...progress import Progress
from ..analyzers.analysis import Analysis, AnalyzerPass, analysis, finish
from ..analyzers.spans import AnalyzerCache, Span, state_of
from ..analyzers.states import State
from ..lowering.partition import Analyzer
from ..tracing.objects import recall
from .analysis_inputs import Work
from .frozen import Frozen


def run_phase(
    frozen: Frozen,
    analyzers: Sequence[Analyzer],
    spans: Sequence[Span],
    executor: Executor,
    tell: Callable[[int], None],
    cache: AnalyzerCache | None,
) -> None:
    """Compute the analyzers of one phase and keep their results.

    A span is read once, for those analyses alone whose states of it are not in the cache; states are merged in the
    order of the spans. A state depends on its span and on what it reads, not on what else the phase computes.

    Args:
        frozen: The results of the phases before; gets those of this one.
        analyzers: Several may read one state.
        spans: The training data.
        executor: Who walks the shards.
        tell: Told the rows done in this phase.
        cache: Where states are taken from and kept; or None.
    """
    partition = frozen.partition
    of: list[Analysis] = []
    groups: dict[Analysis, tuple[str, ...]] = {}
    for analyzer in analyzers:
        names = [partition.tensor(value).id for value in analyzer.inputs]
        reducer = recall(analyzer.params["reducer"]) if "reducer" in analyzer.params else None
        of.append(analysis(analyzer.kind, analyzer.params, names, reducer, analyzer.where))
        groups[of[-1]] = analyzer.inputs
    work = Work.of(frozen, groups.values())
    keys = {one: key for one in groups if (key := work.key(one)) is not None} if cache is not None else {}
    whole, done = AnalyzerPass(tuple(groups)), 0
    for place, span in enumerate(spans):
        states = _states(span, tuple(groups), keys, work, executor, partial(_shifted, tell, done), cache)
        if place:
            whole.merge(states)
            whole.compact()
        else:
            whole = states
        done += span.source.rows
        tell(done)
    found = whole.result()
    places = {one: str(place) for place, one in enumerate(groups)}
    for analyzer, read in zip(analyzers, of, strict=True):
        frozen.take(analyzer, _finished(analyzer, found[places[read]]))


def _shifted(tell: Callable[[int], None], before: int, done: int, _total: int | None, _unit: str) -> None:
    tell(before + done)


def _states(
    span: Span,
    analyses: tuple[Analysis, ...],
    keys: Mapping[Analysis, str],
    work: Work,
    executor: Executor,
    progress: Progress,
    cache: AnalyzerCache | None,
) -> AnalyzerPass:
    """The states of one span: from the cache, and else from its rows."""
    keys = keys if span.digest else {}
    found: dict[Analysis, State] = {}
    for one in analyses if cache is not None else ():
        known = cache.get(span.digest, one, keys[one]) if cache is not None and one in keys else None
        if known is not None:
            found[one] = known
    missing = tuple(one for one in analyses if one not in found)
    if missing:
        via = work.files(missing)
        columns = span.source.select(via.columns).with_dictionaries()
        made = executor.combine(columns, partial(AnalyzerPass, missing), via=via, progress=progress)
        made.compact()
        found.update(zip(missing, made.states, strict=True))
    if cache is not None and keys:
        data = {one: found[one].to_bytes() for one in keys}
        cache.put(span.digest, {keys[one]: data[one] for one in keys}, sum(one in keys for one in missing))
        for one in keys:  # what was just computed goes the way of what is found: through its bytes
            again = state_of(one, data[one])
            found[one] = found[one] if again is None else again
    return AnalyzerPass(analyses, [found[one] for one in analyses])


def _finished(analyzer: Analyzer, state: Any) -> Any:
    key_fn = recall(analyzer.params["key_fn"]) if analyzer.params.get("key_fn") else None
    try:
        return finish(analyzer.kind, analyzer.params, state, key_fn)
    except InputError as error:
        raise InputError(error.message, fix=error.fix, where=analyzer.where) from error
