"""Transform: analyse the training data, phase by phase, and freeze the preprocessing function into a bundle."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from ...data.base import Executor
from ...data.examples import Manifest, sinks
from ...data.local import LocalExecutor
from ...data.reading.source_of import source_of
from ...data.sources import Source
from ...digest import digest_file
from ...errors import InputError
from ...progress import Progress, no_progress, part_of
from ..analyzers.cache import AnalyzerCache
from ..analyzers.spans import Span
from ..bundles.batch_fn import BundleFn
from ..bundles.bundle import Bundle
from ..bundles.manifest import MANIFEST
from ..custom_ops.device import exporting
from ..host_ops.dates import time_of
from ..lowering.partition import Partition
from ..tracing.primitives import in_32_bits
from ..tracing.trace import trace
from .analyzer_results import AnalyzerResults
from .phase import run_phase
from .rowwise import check_rowwise

TRANSFORM = "transform"
"""The signature of a frozen preprocessing function."""


@in_32_bits
@exporting()
def analyze(
    fn: Callable[[Mapping[str, Any]], Mapping[str, Any]],
    sources: object,
    executor: Executor | None = None,
    progress: Progress = no_progress,
    *,
    schema: pa.Schema | None = None,
    check_floats: bool = False,
    cache: AnalyzerCache | None = None,
) -> Bundle:
    """Trace a preprocessing function, compute its analyzers over the source, and freeze it.

    Analyzers that depend on each other's results need one pass each; all others share a pass. Over several spans, each
    is analysed by itself and the states are merged in the order of the spans; with a cache, a span is read only for
    what the cache does not hold of it, and the result is the same to the bit.

    Args:
        fn: `preprocess(columns) -> columns`; see `engine.ops`.
        sources: The training data: a Source or what `data.source_of` makes one of, a DataFrame, an Arrow table, columns
            by name; or its spans, in order.
        executor: Who walks its shards; threads of this process where None.
        progress: Called with the rows done, over all passes.
        schema: The columns and their types, where they are not the source's: float for integers, or integers for floats
            that are all whole.
        check_floats: Whether a row fails whose float outputs are not all finite; each value is looked at then.
        cache: The states of analyzers by span, taken and kept where the span's digest is known.

    Returns:
        A bundle with the signature "transform".

    Raises:
        InputError: The function is wrong or lets rows of a batch look at each other (with the user's line), a column
            has values that an analyzer cannot use, or spans have columns that do not fit together.
    """
    spans = _spans(sources)
    executor = executor or LocalExecutor()
    if not spans:
        raise InputError("there is no span to analyse", fix="give at least one")
    columns = Span.joined(spans).schema if schema is None else schema
    traced = trace(fn, columns, check_floats=check_floats)
    check_rowwise(traced.jaxpr)
    partition = Partition(traced)
    analyzers = partition.analyzers()
    results = AnalyzerResults(partition)
    rows = sum(span.source.rows for span in spans)
    phases = max((analyzer.phase for analyzer in analyzers), default=0)
    for phase in range(1, phases + 1):
        wanted = [analyzer for analyzer in analyzers if analyzer.phase == phase]
        run_phase(results, wanted, spans, executor, part_of(progress, (phase - 1) * rows, phases * rows), cache)
    vocabularies = {value: len(results.assets[name]) for value, name in results.known.items() if name in results.assets}
    bundle = results.bundle(partition.outputs(vocabularies), TRANSFORM, "transform", partition.checks())
    times = {field.name: time for field in columns if (time := time_of(field.type))}
    return results.with_inverses(
        bundle.with_times({name: time for name, time in times.items() if name in bundle.graph.inputs})
    )


def _spans(sources: object) -> list[Span]:
    if isinstance(sources, Sequence) and all(isinstance(span, Span) for span in sources):
        return list(sources)
    return [Span(source_of(sources))]


def apply(
    graph: Path,
    sources: Mapping[str, Source],
    content: Path,
    executor: Executor,
    progress: Progress = no_progress,
    *,
    span: int | None = None,
) -> Manifest:
    """Write the transformed rows of each split as Examples.

    Args:
        graph: The folder of a bundle that `analyze` gave, readable by the executor's workers.
        sources: Split name → its raw rows, in order; a column with a default may be absent.
        content: Where `split=<name>/part-….parquet` and the manifest go.
        executor: Who walks the shards.
        progress: Called with the rows done, over all splits.
        span: Recorded in the manifest.

    Returns:
        The manifest as written. Vectors are fixed-size list columns.

    Raises:
        InputError: A row has a value that the graph cannot use.
    """
    signature = Bundle.load(graph).signatures[TRANSFORM]
    total = sum(source.rows for source in sources.values())
    before = 0
    written = []
    frozen = BundleFn(graph, TRANSFORM)  # for all splits, so that its programs are compiled once
    for name, source in sources.items():
        columns = source.select(signature.read_from(source.schema.names)).with_dictionaries()
        part = part_of(progress, before, total)
        written.append(executor.map(columns, frozen, sinks(content, [name]), progress=part))
        before += source.rows
    manifest = replace(Manifest.joined(written), graph=digest_file(graph / MANIFEST))
    return manifest.write(content, span=span)
