"""What the analyses of a phase read: lowered, and named by what computes it, so that its states have keys."""

from __future__ import annotations

import io
import json
import secrets
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ..analyzers.analysis import Analysis
from ..bundles.bundle import Bundle
from ..bundles.manifest import export_facts
from ..custom_ops.registry import call_targets, find, requirements_of
from ..graphs.canonical import Contents, canonical, union
from ..graphs.graph import Graph
from ..graphs.nodes import DeviceOp, DeviceStage, HostNode
from ..lowering.lower import PLATFORMS
from ..lowering.programs import Payload, program_facts
from .analyzer_results import AnalyzerResults

_ANALYZE: Final = "analyze"
_STATES: Final = 1  # raise it when a kind of state changes its bytes or its meaning
_LIBRARIES: Final = ("drivetrain", "jax", "jaxlib", "numpy", "pyarrow")


@dataclass
class AnalysisInputs:
    """What a phase's analyses read, lowered, and named so that equal work has equal names.

    Device work that has nothing in common is in programs of its own: what XLA makes of a column does not depend on what
    else is analysed.
    """

    graph: Graph
    payload: Payload
    names: Mapping[str, str]
    _files: dict[tuple[Analysis, ...], FilesFn] = field(default_factory=dict)

    @classmethod
    def of(cls, results: AnalyzerResults, groups: Iterable[tuple[str, ...]]) -> AnalysisInputs:
        """Lower what the groups of values need, each group the columns of an analysis."""
        graphs, names = [], dict[str, str]()
        programs: dict[str, bytes] = {}
        weights: dict[str, NDArray[Any]] = {}
        assets: dict[str, pa.Table] = {}
        for values in _together(results, list(dict.fromkeys(groups))):
            part = results.bundle({value: (value, None) for value in values}, _ANALYZE, _ANALYZE)
            held = part.payload
            contents = Contents(
                {name: _program_digest(program) for name, program in held.programs.items()},
                {name: _array_digest(array) for name, array in held.weights.items()},
                {name: _table_digest(table) for name, table in held.assets.items()},
                _code_of,
            )
            graph, renamed = canonical(part.graph, contents)
            graphs.append(graph)
            names.update({value: renamed[value] for value in values})
            programs.update({contents.programs[name]: program for name, program in held.programs.items()})
            weights.update(held.weights)
            assets.update(held.assets)
        return cls(union(graphs, _ANALYZE), Payload(programs, weights, assets), names)

    def key(self, analysis: Analysis) -> str | None:
        """The key of an analysis's state among those of a span; None for a reducer that has no `cache_key`."""
        options: Any = analysis.options  # Any: a user's object may have anything there
        if analysis.reducer is not None:
            options = getattr(analysis.reducer, "cache_key", None)
            if not isinstance(options, str):
                return None
        columns = [[role, self.names[name]] for role, name in analysis.columns]
        body = json.dumps([_STATES, _versions(), analysis.kind, columns, options])
        return sha256(body.encode()).hexdigest()

    def files(self, analyses: tuple[Analysis, ...]) -> FilesFn:
        """What gives the analyses' columns, batch by batch."""
        if analyses not in self._files:
            wanted = {name for analysis in analyses for _, name in analysis.columns}
            every = self.graph.signatures[_ANALYZE]
            some = replace(self.graph, signatures={_ANALYZE: {k: out for k, out in every.items() if k in wanted}})
            graph = some.signature(_ANALYZE)
            used = {node.program for node in graph.nodes if isinstance(node, DeviceStage)}
            held = {name for node in graph.nodes if isinstance(node, DeviceStage) for name in node.weights}
            named = {name for node in graph.nodes if isinstance(node, HostNode) for name in node.assets}
            payload = Payload(
                {name: self.payload.programs[name] for name in sorted(used)},
                {name: self.payload.weights[name] for name in sorted(held)},
                {name: self.payload.assets[name] for name in sorted(named)},
            )
            files = Bundle(graph, payload, export_facts(PLATFORMS)).to_files()
            self._files[analyses] = FilesFn(files, _ANALYZE, tuple(graph.inputs))
        return self._files[analyses]


def _together(results: AnalyzerResults, groups: list[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Groups of values, where those that share device work on rows are one: they are lowered into one program.

    Work that two groups share would otherwise be computed twice; work of unrelated groups stays apart, so that neither
    program, and neither key of a state, changes with the other.
    """
    # By tensor, the device ops (by index) that it takes to compute it from the rows, within this phase.
    work: dict[str, frozenset[int]] = {}
    rows = {tensor.id for tensor in results.partition.graph.inputs.values()}
    for index, node in enumerate(results.partition.graph.nodes):
        read = [name for name in node.inputs if name is not None]
        if any(name in rows for name in read) and not any(tensor.id in results.known for tensor in node.outputs):
            mine = frozenset({index}) if isinstance(node, DeviceOp) else frozenset()
            device_work = mine.union(*(work.get(name, frozenset()) for name in read))
            rows.update(tensor.id for tensor in node.outputs)
            work.update((tensor.id, device_work) for tensor in node.outputs)
    parts: list[tuple[dict[str, None], set[int]]] = []
    for values in groups:
        names = dict.fromkeys(values)
        shared = set().union(*(work.get(value, frozenset()) for value in values))
        for other in [part for part in parts if part[1] & shared]:
            parts.remove(other)
            names, shared = {**other[0], **names}, shared | other[1]
        parts.append((names, shared))
    return [tuple(names) for names, _ in parts]


def _versions() -> list[list[str]]:
    """Name and version of the libraries that the bytes of a state may depend on, beside the graph."""
    versions = []
    for name in _LIBRARIES:
        try:
            versions.append([name, version(name)])
        except PackageNotFoundError:
            versions.append([name, ""])
    return versions


def _code_of(op: str) -> str:
    """What identifies the code of a host op: for one from outside drivetrain, its distribution and its module's file.

    Where there is no such file, the code cannot be compared: a random text makes each one differ from all others.
    """
    registered = find(op)
    if registered is None:
        return ""
    file = getattr(sys.modules.get(registered.defined.partition(":")[0]), "__file__", None)
    if file is None or not Path(file).is_file():
        return secrets.token_hex(16)
    return json.dumps([_required([op]), sha256(Path(file).read_bytes()).hexdigest()])


def _required(ops: Iterable[str]) -> list[Any]:  # Any: JSON
    return [requirement.to_json() for requirement in requirements_of(ops)]


def _program_digest(program: bytes) -> str:
    checksum = sha256(program)
    # A program names the registered code that it calls; which release of it that is does not stand in its bytes.
    if call_targets():
        checksum.update(json.dumps(_required(program_facts(program).calls)).encode())
    return checksum.hexdigest()


def _array_digest(array: NDArray[Any]) -> str:
    contiguous = np.asarray(array, order="C")
    return sha256(f"{contiguous.dtype} {contiguous.shape} ".encode() + contiguous.tobytes()).hexdigest()


def _table_digest(table: pa.Table) -> str:
    sink = io.BytesIO()
    whole = table.replace_schema_metadata(None).combine_chunks()
    with pa.ipc.new_stream(sink, whole.schema) as writer:
        writer.write_table(whole)
    return sha256(sink.getvalue()).hexdigest()


@dataclass
class FilesFn:
    """A `data.BatchFn` over a bundle that lies in no folder: it travels as the bytes of its files."""

    files: dict[str, bytes]
    signature: str
    columns: tuple[str, ...]
    _bundle: Bundle | None = field(default=None, init=False, repr=False, compare=False)

    def __reduce__(self) -> tuple[object, ...]:
        return FilesFn, (self.files, self.signature, self.columns)

    def setup(self) -> None:
        """Load the bundle from its files, once per process."""
        if self._bundle is None:
            self._bundle = Bundle.from_files(self.files)

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The signature's outputs for the batch."""
        self.setup()
        assert self._bundle is not None
        return self._bundle.run_arrow(self.signature, batch)
