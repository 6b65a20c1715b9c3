"""Transform: analyse the training data, phase by phase, and freeze the preprocessing function into a bundle."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ..data.base import Executor, Progress, no_progress
from ..data.examples import Manifest, sinks
from ..data.sources import Source
from ..errors import InputError
from .analyzing.analyzers import Analysis, AnalyzerPass, analysis, finish
from .bundles.bundle import Bundle, BundleFn
from .bundles.inverse import INVERSES, inverse_table
from .bundles.manifest import export_facts
from .extending.device import exporting
from .graphs.graph import Check
from .lowering.lower import PLATFORMS
from .lowering.partition import Analyzer, Partition
from .lowering.programs import Payload
from .tracing.objects import recall
from .tracing.primitives import in_32_bits
from .tracing.trace import trace

TRANSFORM = "transform"
"""The signature of a frozen preprocessing function."""


@in_32_bits
@exporting()
def analyze(
    fn: Callable[[Mapping[str, Any]], Mapping[str, Any]],
    source: Source,
    executor: Executor,
    progress: Progress = no_progress,
    *,
    schema: pa.Schema | None = None,
    check_floats: bool = False,
) -> Bundle:
    """Trace a preprocessing function, compute its analyzers over the source, and freeze it.

    Analyzers that depend on each other's results need one pass each; all others share a pass.

    Args:
        fn: `preprocess(columns) -> columns`; see `engine.ops`.
        source: The training data.
        executor: Who walks its shards.
        progress: Told the rows done.
        schema: The columns and their types, where they are wider than the source's: float for integers.
        check_floats: Whether a row fails whose float outputs are not all finite; each value is looked at then.

    Returns:
        A bundle with the signature "transform".

    Raises:
        InputError: The function is wrong (with the user's line), or a column has values that an analyzer cannot use.
    """
    partition = Partition(trace(fn, source.schema if schema is None else schema, check_floats=check_floats))
    analyzers = partition.analyzers()
    frozen = _Frozen(partition)
    for phase in range(1, max((analyzer.phase for analyzer in analyzers), default=0) + 1):
        wanted = [analyzer for analyzer in analyzers if analyzer.phase == phase]
        _run_phase(frozen, wanted, source, executor, progress)
    vocabularies = {value: len(frozen.assets[name]) for value, name in frozen.known.items() if name in frozen.assets}
    return frozen.with_inverses(
        frozen.bundle(partition.outputs(vocabularies), TRANSFORM, "transform", partition.checks())
    )


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
        sources: Split name → its raw rows, in order.
        content: Where `split=<name>/part-….parquet` and the manifest go.
        executor: Who walks the shards.
        progress: Told the rows done, over all splits.
        span: Recorded in the manifest.

    Returns:
        The manifest as written. Vectors are fixed-size list columns.

    Raises:
        InputError: A row has a value that the graph cannot use.
    """
    inputs = list(Bundle.load(graph).signatures[TRANSFORM].inputs)
    total = sum(source.rows for source in sources.values())
    before = 0
    written = []
    for name, source in sources.items():

        def tell(done: int, _: int | None, unit: str, before: int = before) -> None:
            progress(before + done, total, unit)

        columns = source.select(inputs).with_dictionaries()
        written.append(executor.map(columns, BundleFn(graph, TRANSFORM), sinks(content, [name]), progress=tell))
        before += source.rows
    return Manifest.joined(written).write(content, span=span)


@dataclass
class _Frozen:
    """The analyzer results so far: names by value, and what the names stand for."""

    partition: Partition
    known: dict[str, str] = field(default_factory=dict)
    weights: dict[str, NDArray[Any]] = field(default_factory=dict)
    assets: dict[str, pa.Table] = field(default_factory=dict)

    def take(self, analyzer: Analyzer, value: Any) -> None:
        """Keep one analyzer's result."""
        column = str(analyzer.params["column"])
        if isinstance(value, pa.Table):
            name = str(analyzer.params.get("name") or f"{analyzer.kind.replace('_', '-')}-{len(self.assets)}")
            fields = [pa.field(f.name, f.type, nullable=False) for f in value.schema]
            self.assets[name] = pa.table(value.columns, schema=pa.schema(fields, metadata={"column": column}))
        else:
            label = base = f"transform/{column}/{analyzer.kind}"
            while label in self.weights:
                label = f"{base}#{len(self.weights)}"
            name = label
            self.weights[name] = _as_array(analyzer, value)
        self.known[analyzer.value] = name

    def bundle(
        self,
        wanted: Mapping[str, tuple[str, int | None]],
        signature: str,
        prefix: str,
        checks: tuple[Check, ...] = (),
    ) -> Bundle:
        """The part of the graph that computes some values, with all it needs."""
        graph, programs = self.partition.lower(wanted, self.known, signature, prefix, checks)
        held = {**self.weights, **self.partition.constants}
        used = {name for node in graph.nodes for name in getattr(node, "weights", ())}
        named = {name for node in graph.nodes for name in getattr(node, "assets", ())}
        weights = {name: held[name] for name in sorted(used)}
        assets = {name: self.assets[name] for name in sorted(named)}
        return Bundle(graph, Payload(programs, weights, assets), export_facts(PLATFORMS))

    def with_inverses(self, bundle: Bundle) -> Bundle:
        """The bundle, with an asset that says how scaled outputs are turned back, if there are any."""
        rules = {
            output: (how.rule, how.settings, [self.weights[self.known[tensor]].tolist() for tensor in tensors])
            for output, (how, tensors) in self.partition.inverses().items()
        }
        if not rules:
            return bundle
        assets = {**bundle.payload.assets, INVERSES: inverse_table(rules)}
        return replace(bundle, payload=replace(bundle.payload, assets=assets))


def _as_array(analyzer: Analyzer, value: Any) -> NDArray[Any]:
    dtype = np.dtype(analyzer.dtype)
    numbers = np.asarray(value, np.float64 if dtype.kind == "f" else object)
    if dtype.kind == "i":
        column = analyzer.params["column"]
        for number in np.ravel(numbers):
            if isinstance(number, float) and math.isnan(number):
                raise InputError(
                    f"{analyzer.kind} of column {column!r}: the data has no value of it",
                    fix="drop the column, or fill_missing first",
                    where=analyzer.where,
                )
            if not -(2**31) <= number < 2**31:
                raise InputError(
                    f"{analyzer.kind} of column {column!r} is {number}, which does not fit in int32 on the device",
                    fix="ops.cast it to float32 first",
                    where=analyzer.where,
                )
    with np.errstate(over="ignore"):
        return numbers.astype(dtype).reshape(analyzer.shape)


def _run_phase(
    frozen: _Frozen, analyzers: list[Analyzer], source: Source, executor: Executor, progress: Progress
) -> None:
    """One pass: all analyzers of a phase, several of them from one state where they look at the same values."""
    partition = frozen.partition
    analyses: dict[Analysis, None] = {}
    of: list[Analysis] = []
    for analyzer in analyzers:
        names = [partition.tensor(value).id for value in analyzer.inputs]
        reducer = recall(analyzer.params["reducer"]) if "reducer" in analyzer.params else None
        of.append(analysis(analyzer.kind, analyzer.params, names, reducer, analyzer.where))
        analyses[of[-1]] = None
    values = {partition.tensor(value).id: (value, None) for analyzer in analyzers for value in analyzer.inputs}
    bundle = frozen.bundle(values, "analyze", "analyze")
    columns = source.select(list(bundle.graph.inputs)).with_dictionaries()
    make = partial(AnalyzerPass, tuple(analyses))
    state = executor.combine(columns, make, via=FilesFn(bundle.to_files(), "analyze"), progress=progress).result()
    places = {analysis: str(place) for place, analysis in enumerate(analyses)}
    for analyzer, read in zip(analyzers, of, strict=True):
        frozen.take(analyzer, _finished(analyzer, state[places[read]]))


def _finished(analyzer: Analyzer, state: Any) -> Any:
    key_fn = recall(analyzer.params["key_fn"]) if analyzer.params.get("key_fn") else None
    try:
        return finish(analyzer.kind, analyzer.params, state, key_fn)
    except InputError as error:
        raise InputError(error.message, fix=error.fix, where=analyzer.where) from error


@dataclass
class FilesFn:
    """A `data.BatchFn` over a bundle that lies in no folder: it travels as the bytes of its files."""

    files: dict[str, bytes]
    signature: str
    _bundle: Bundle | None = field(default=None, init=False, repr=False, compare=False)

    def __reduce__(self) -> tuple[object, ...]:
        return FilesFn, (self.files, self.signature)

    def setup(self) -> None:
        """Read the files, once."""
        if self._bundle is None:
            self._bundle = Bundle.from_files(self.files)

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The signature's outputs for the batch."""
        self.setup()
        assert self._bundle is not None
        return self._bundle.run_arrow(self.signature, batch)
