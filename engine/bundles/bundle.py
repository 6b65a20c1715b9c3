"""The bundle: a graph saved as a folder that loads without the code that made it, and refuses files that were changed.

    manifest.json            format, signatures, required extensions, export facts, every file's size and SHA-256
    graph.json               host nodes (executable), device stages by reference
    device/NAME.stablehlo    jax.export programs: StableHLO with a symbolic batch, weights as arguments
    device/NAME.mlirbc       the same as plain StableHLO bytecode, for readers beyond JAX's window; not loaded
    weights/GROUP.safetensors
    assets/NAME.arrow        vocabularies as Arrow IPC

Nothing in it depends on the time, the host or the folder: equal graphs give equal bytes. Loading parses JSON, Arrow,
safetensors and StableHLO; nothing is unpickled, and a bundle never chooses what is imported (`engine.custom_ops`).
"""

from __future__ import annotations

import json
import math
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property
from hashlib import sha256
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, overload

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ...digest import FileEntry, canonical_json, digest_file, sync_tree
from ...errors import InputError
from ...redaction import printable
from ..custom_ops.extensions import Requirement, requirements
from ..custom_ops.registry import (
    call_targets,
    check_node,
    host_kernels,
    require,
    requirements_of,
)
from ..graphs.graph import FieldSpec, Graph
from ..graphs.json import graph_json, graph_of_json
from ..graphs.nodes import DeviceStage, HostNode, Tensor
from ..host_ops.columns import ARROW, as_value
from ..host_ops.dates import time_type
from ..lowering.programs import BundleError, Payload, ProgramFacts, Programs, program_facts
from .assets import read_asset, write_asset
from .child import Limits
from .compatibility import check_window
from .manifest import GRAPH, MANIFEST, Signature, broken, described, host_ops, manifest, read_folder, verified
from .probing import probe, remember
from .runner import LARGE, REQUESTS, SMALL, Runner, as_batch, check_name, check_row, to_arrow, to_numpy
from .signing import check_signature
from .weights import read_weights

if TYPE_CHECKING:
    from ...data.schemas.schema import Schema
    from .isolation import IsolatedBundle

Rows: TypeAlias = pa.RecordBatch | pa.Table | Mapping[str, Any] | Any
"""Rows in memory: a record batch, an Arrow table, a mapping from column to values, a pandas DataFrame or anything with
`__arrow_c_stream__` (Any: neither pandas nor pyarrow ships types)."""

# What reading contents of the wrong form raises; Arrow reports a broken file as an OSError.
_UNFIT: Final = (
    LookupError, TypeError, ValueError, ArithmeticError, AttributeError, RecursionError, MemoryError, OSError,
    pa.ArrowException,
)  # fmt: skip


@dataclass(frozen=True)
class Bundle:
    """A graph with its programs, weights and vocabularies, in memory. `load` and `save` tie it to a folder."""

    graph: Graph
    payload: Payload
    export: Mapping[str, Any] = field(default_factory=dict)  # Any: JSON: what the device programs were exported with
    defaults: Mapping[str, Any] = field(default_factory=dict)  # Any: str, int, float, bool or None, by raw column
    request_log: Mapping[str, str] = field(default_factory=dict)  # by raw column: see `Signature`
    times: Mapping[str, str] = field(default_factory=dict)  # by raw column: see `Signature`
    required: tuple[Requirement, ...] | None = None  # what its manifest said; None where it was made here
    serving: bool = False  # whether it is one of many that answer requests: see `for_serving`

    @cached_property
    def signatures(self) -> Mapping[str, Signature]:
        """The signatures by name."""
        tensors = self.graph.tensors()
        signatures = {}
        for name, outputs in self.graph.signatures.items():
            tensors_read = self.graph.signature(name).inputs.items()
            inputs = {key: FieldSpec(t.dtype, _row(t)) for key, t in tensors_read}
            tensors_and_sizes = {key: (tensors[out.tensor], out.size) for key, out in outputs.items()}
            specs = {key: FieldSpec(t.dtype, _row(t), size) for key, (t, size) in tensors_and_sizes.items()}
            defaults = {key: self.defaults[key] for key in inputs if key in self.defaults}
            rules = {key: self.request_log[key] for key in inputs if key in self.request_log}
            times = {key: self.times[key] for key in inputs if key in self.times}
            signatures[name] = Signature(*map(MappingProxyType, (inputs, specs, defaults, rules, times)))
        return MappingProxyType(signatures)

    def with_defaults(self, defaults: Mapping[str, object]) -> Bundle:
        """The same bundle, to which rows and batches may come without these columns.

        Args:
            defaults: Raw column → the value that it has where it is absent; None is missing. A column that is there
                keeps its values, also the missing ones.

        Raises:
            InputError: No signature reads the column, or the value is of another type.
        """
        for name, value in defaults.items():
            if name not in self.graph.inputs:
                known = ", ".join(self.graph.inputs)
                raise InputError(f"a default for {name!r}, which nothing reads", fix=f"the columns are {known:.200}")
            as_value(value, self.graph.inputs[name].dtype, name)
        return replace(self, defaults=MappingProxyType({**self.defaults, **defaults}))

    def with_request_log(self, rules: Mapping[str, str]) -> Bundle:
        """The same bundle, of which a server's request log leaves columns out, or logs a hash.

        Args:
            rules: Raw column → "deny" or "hash".

        Raises:
            InputError: No signature reads the column, or there is no such rule.
        """
        for name, rule in rules.items():
            if name not in self.graph.inputs:
                known = ", ".join(self.graph.inputs)
                raise InputError(f"a rule for {name!r}, which nothing reads", fix=f"the columns are {known:.200}")
            if rule not in ("deny", "hash"):
                raise InputError(f"the request log has no rule {rule!r:.40} for {name!r}", fix="use deny or hash")
        return replace(self, request_log=MappingProxyType({**self.request_log, **rules}))

    def with_times(self, times: Mapping[str, str]) -> Bundle:
        """The same bundle, which says that whole numbers are times: milliseconds since 1970 (UTC).

        Args:
            times: Raw column → what the training data has there, "date" or "timestamp[us, tz=UTC]", say; "timestamp"
                where its unit is not known.

        Raises:
            InputError: No signature reads the column, it has no whole numbers, or there is no such time.
        """
        for name, time in times.items():
            if name not in self.graph.inputs or "int64" not in self.graph.inputs[name].dtype:
                known = ", ".join(name for name, tensor in self.graph.inputs.items() if "int64" in tensor.dtype)
                raise InputError(f"{name!r} is no column of times", fix=f"those of whole numbers are {known:.200}")
            try:
                time_type(time)
            except InputError:
                raise InputError(
                    f"{name!r} is to be a {time!r:.40}, which is no time", fix="say date, or timestamp[us], say"
                ) from None
        return replace(self, times=MappingProxyType({**self.times, **times}))

    def for_serving(self) -> Bundle:
        """The same bundle for a process that answers small requests, with many bundles one after the other.

        Equal programs are compiled once for all such bundles: a new version of a model with new weights compiles
        nothing. Batches of up to 64 rows come in this size, whose results may differ in the last bits.
        """
        return replace(self, serving=True)

    def describe(self) -> dict[str, Any]:  # Any: JSON
        """The manifest as `save` would write it, and the `weights` and `assets` by name with shapes and row counts."""
        return {**json.loads(self.to_files()[MANIFEST]), **contents(self.payload)}

    def __repr__(self) -> str:
        lines = [f"Bundle({', '.join(self.signatures)})"]
        lines += [f"  {name}{signature}" for name, signature in self.signatures.items()]
        held = contents(self.payload)
        words = sum(rows for _, rows in held["assets"])
        numbers = sum(math.prod(shape) for _, _, shape in held["weights"])
        ops = ", ".join(f"{count} × {op}" for op, count in host_ops(self.graph).items())
        lines.append(f"  host: {ops or 'nothing'}; {len(held['assets'])} vocabularies of {words:,} values")
        programs = ", ".join(self.payload.programs) or "nothing"
        lines.append(f"  device: {programs}; {len(held['weights'])} weights of {numbers:,} numbers")
        return printable("\n".join(lines))

    def to_html(self) -> str:
        """A page that works offline: the drawing, the signatures, every node with its cost."""
        from .page import bundle_page

        return bundle_page(self.graph, self.payload, self.signatures)

    def _repr_html_(self) -> str:
        from ...report.html import framed

        return framed(self.to_html())

    def output_schema(self, signature: str = "transform") -> Schema:
        """The schema of a signature's outputs: names, types, shapes, the ids of categories, what may be missing.

        Of a category the domain is 0 … size − 1 (from −1 where unknown words have that id), and the evidence says so
        and names the vocabulary. An array has a value in every row, though a float may be NaN; columns may miss some.

        Raises:
            InputError: There is no such signature.
        """
        from .output_schema import output_schema  # late: serving needs no schemas

        check_name(signature, self.signatures)
        return output_schema(self.graph, signature, self.signatures[signature].outputs)

    @cached_property
    def extensions(self) -> tuple[Requirement, ...]:
        """The ops from outside drivetrain that it needs, each with its distribution."""
        if self.required is not None:
            return self.required
        used = set(host_ops(self.graph))
        if call_targets():
            used.update(*(program_facts(program).calls for program in self.payload.programs.values()))
        return requirements_of(used)

    @cached_property
    def _programs(self) -> Programs:
        return Programs(self.payload, call_targets(self.extensions), common=self.serving)

    @cached_property
    def _runners(self) -> dict[str, Runner]:
        return {}

    def _runner(self, name: str) -> Runner:
        check_name(name, self.graph.signatures)
        if name not in self._runners:
            sizes = (REQUESTS, SMALL, LARGE) if self.serving else (SMALL, LARGE)
            self._runners[name] = Runner(self.graph, name, self._programs, sizes)
        return self._runners[name]

    def run(self, name: str, batch: Rows) -> dict[str, NDArray[Any]]:
        """Evaluate a signature on a batch.

        Args:
            name: Which signature.
            batch: A record batch; or a table, a DataFrame, or a mapping from column to values. Columns may be in any
                order; those that it does not read are ignored. Numbers are cast where no value changes: whole floats to
                int64, integers to float64.

        Returns:
            Output name → array of `batch.num_rows` (and the output's shape); text as objects, None where missing.

        Raises:
            InputError: No such signature; no rows in memory; a column is missing, there twice or of another type; a
                value cannot be used, or would change by a cast.
        """
        return {key: to_numpy(value) for key, value in self._runner(name).batch(self._completed(name, batch)).items()}

    def _completed(self, name: str, rows: Rows) -> pa.RecordBatch:
        """The rows as a batch, with the columns that they may lack."""
        batch = as_batch(rows)
        if self.defaults and name in self.signatures:
            signature = self.signatures[name]
            for column in signature.defaults.keys() - set(batch.schema.names):
                value = pa.scalar(signature.defaults[column], ARROW[signature.inputs[column].dtype])
                batch = batch.append_column(column, pa.repeat(value, batch.num_rows))
        return batch

    def run_arrow(self, name: str, batch: Rows) -> pa.RecordBatch:
        """`run`, as Arrow: vectors are fixed-size lists."""
        outputs = {
            key: to_arrow(value) for key, value in self._runner(name).batch(self._completed(name, batch)).items()
        }
        return pa.RecordBatch.from_arrays(list(outputs.values()), names=list(outputs))

    def run_each(
        self, name: str, batch: Rows
    ) -> tuple[dict[str, NDArray[Any]], NDArray[np.int64], dict[int, InputError]]:
        """`run` for a batch of rows from different callers: a row that is unusable, or fails a check, fails alone.

        Returns:
            The outputs of the rows that could be used; which rows these are; the error of each other row.

        Raises:
            InputError: No such signature; a column is missing or of another type.
        """
        outputs, kept, errors = self._runner(name).each(self._completed(name, batch))
        return {key: to_numpy(value) for key, value in outputs.items()}, kept, errors

    def run_stream(self, name: str, batches: Iterable[Rows], *, ahead: int = 2) -> Iterator[dict[str, NDArray[Any]]]:
        """`run` for one batch after the other, in order: while one is on the device, the next is on the host.

        Args:
            name: Which signature.
            batches: Taken as they are needed, `ahead` at once.
            ahead: Batches at work at the same time; each takes its memory.

        Raises:
            InputError: As `run`, when the batch's turn comes.
        """
        self._runner(name)  # an unknown name raises before the first batch is taken
        waiting: deque[Future[dict[str, NDArray[Any]]]] = deque()
        with ThreadPoolExecutor(ahead, thread_name_prefix="drivetrain-batch") as pool:
            try:
                for batch in batches:
                    waiting.append(pool.submit(self.run, name, batch))
                    if len(waiting) == ahead:
                        yield waiting.popleft().result()
                while waiting:
                    yield waiting.popleft().result()
            finally:
                for left in waiting:
                    left.cancel()

    def run_row(self, name: str, row: Mapping[str, object]) -> dict[str, object]:
        """Evaluate a signature on one row of Python values (None is missing); scalars come back as Python values.

        Raises:
            InputError: No such signature; no mapping from column to value; a column is missing; a value cannot be used.
        """
        runner = self._runner(name)
        if type(row) is not dict:  # most are, and this is the hot path
            check_row(row, runner.graph.inputs)
        outputs = runner.row({**self.defaults, **row} if self.defaults else row)
        return {key: value.item() if isinstance(value, np.generic) else value for key, value in outputs.items()}

    def takes_columns(self, name: str) -> bool:
        """Whether `run_columns` answers a signature: not where its rows are checked, or Arrow makes its outputs."""
        return self._runner(name).takes_columns

    def run_columns(
        self, name: str, columns: Mapping[str, Sequence[object] | NDArray[Any]], rows: int
    ) -> dict[str, NDArray[Any]]:
        """`run` for a few rows of Python values, where `takes_columns`; up to some dozens it is quicker.

        Args:
            name: Which signature.
            columns: By name, a value for each row, None where missing; or an array, of lists one of (rows, length).
            rows: How many they are.

        Raises:
            InputError: As `run`, though it does not say which row is meant.
        """
        if self.defaults:
            columns = {**{key: [default] * rows for key, default in self.defaults.items()}, **columns}
        return self._runner(name).columns(columns, rows)

    # --- bytes ---

    @cached_property
    def _facts(self) -> dict[str, ProgramFacts]:
        return {name: program_facts(program) for name, program in sorted(self.payload.programs.items())}

    def _contents(self) -> Iterator[tuple[str, bytes | dict[str, NDArray[Any]]]]:
        """Every file but the manifest: its name, and its bytes or the weights that it holds."""
        if any(self.graph.updates.values()):
            raise InputError("the graph has updates, which a bundle does not hold", fix="save it by export_stateful")
        yield GRAPH, canonical_json(graph_json(self.graph)) + b"\n"
        for name, facts in self._facts.items():
            yield f"device/{name}.stablehlo", self.payload.programs[name]
            yield f"device/{name}.mlirbc", facts.portable
        groups: dict[str, dict[str, NDArray[Any]]] = {}
        for name, array in sorted(self.payload.weights.items()):
            groups.setdefault(name.split("/", 1)[0], {})[name] = np.asarray(array, order="C")
        for group, arrays in groups.items():
            yield f"weights/{group}.safetensors", arrays
        for name, table in sorted(self.payload.assets.items()):
            yield f"assets/{name}.arrow", write_asset(table)

    def _manifest(self, entries: Sequence[FileEntry]) -> bytes:
        return manifest(self.graph, self.signatures, self.extensions, self.export, self._facts, entries)

    def to_files(self) -> dict[str, bytes]:
        """The folder's files, path → bytes, manifest last."""
        from safetensors.numpy import save

        files = {name: save(held) if isinstance(held, dict) else held for name, held in self._contents()}
        entries = [FileEntry(name, len(data), sha256(data).hexdigest()) for name, data in files.items()]
        return {**files, MANIFEST: self._manifest(entries)}

    @classmethod
    def from_files(cls, files: Mapping[str, bytes | memoryview], where: str = "the bundle") -> Bundle:
        """The bundle of `to_files`' bytes, whose programs are taken for sound; raises as `load`."""
        body = verified(files, where)
        try:
            required = requirements(body["required_extensions"])
            require(required)
            graph = graph_of_json(json.loads(bytes(files[GRAPH])))
            export = MappingProxyType(dict(body["export"]))
            bundle = cls(graph, _payload(files, body), export, required=required)
            bundle = bundle.with_defaults(_of_inputs(body, "default")).with_request_log(_of_inputs(body, "request_log"))
            bundle = bundle.with_times(_of_inputs(body, "time"))
            _check(bundle, body)
        except InputError as error:
            raise BundleError(f"{where}: {error.message}", fix=error.fix) from error
        except _UNFIT as error:
            raise broken(where, f"its contents do not fit together ({error!r:.120})") from error
        return bundle

    def save(self, path: Path | str) -> None:
        """Write the folder (which may exist, if empty) durably, manifest last.

        Raises:
            InputError: The folder holds something already.
        """
        root = Path(path)
        if root.exists() and any(root.iterdir()):
            raise InputError(f"{root} is not empty", fix="save a bundle in a folder of its own")
        from safetensors.numpy import save_file

        entries = []
        for name, held in self._contents():
            target = root / name
            target.parent.mkdir(parents=True, exist_ok=True)
            if isinstance(held, dict):
                save_file(held, target)  # array by array: their bytes are never together in memory
            else:
                target.write_bytes(held)
            entries.append(FileEntry(name, target.stat().st_size, digest_file(target)))
        (root / MANIFEST).write_bytes(self._manifest(entries))
        sync_tree(root)
        remember(self.payload.programs.values())

    @overload
    @classmethod
    def load(
        cls,
        path: Path | str,
        *,
        isolated: Literal[False] = False,
        public_key: Path | str | None = None,
        signature: bytes | None = None,
    ) -> Bundle: ...

    @overload
    @classmethod
    def load(
        cls,
        path: Path | str,
        *,
        isolated: Literal[True],
        limits: Limits | None = None,
        public_key: Path | str | None = None,
        signature: bytes | None = None,
    ) -> IsolatedBundle: ...

    @classmethod
    def load(
        cls,
        path: Path | str,
        *,
        isolated: bool = False,
        limits: Limits | None = None,
        public_key: Path | str | None = None,
        signature: bytes | None = None,
    ) -> Bundle | IsolatedBundle:
        """Read a folder that `save` wrote, checking every file against its digest. Files it does not list are ignored.

        Programs that this user's processes neither wrote nor read before are read and compiled in a child process
        first. What they then compute is not bounded, unless they are isolated. Weights stay in their files, mapped,
        until they are used: a folder may be removed or replaced meanwhile, but nothing must write into its files.

        Args:
            path: The folder.
            isolated: Whether to read and run everything in a child process: needed for an untrusted bundle.
            limits: What that child may take; by default 600 seconds for each call and half of the machine's memory.
            public_key: A file with a public key in PEM, of which the bundle must have a signature (`sign_bundle`).
            signature: The bytes of that signature where it does not lie beside the folder.

        Warns:
            FutureWarning: A newer JAX will refuse its programs; `drivetrain bundle refresh` exports them again.

        Raises:
            BundleError: A file is missing or was changed, the manifest is not such a manifest, the bundle is of a newer
                format, its programs are older or newer than this JAX reads, reading one ends the process, or there is
                no signature of that key.
            InputError: The folder holds no bundle, or the key cannot be read.
        """
        root = Path(path)
        sealed = None if public_key is None else check_signature(root, Path(public_key), signature)
        if limits is not None and not isinstance(limits, Limits):
            raise InputError(
                f"limits are drivetrain.engine.Limits, not {type(limits).__name__}", fix="Limits(seconds=60)"
            )
        if isolated:
            from .isolation import IsolatedBundle  # late: it imports this module's neighbours

            return IsolatedBundle(root, limits or Limits(), sealed)
        files = files_of(root, sealed)
        bundle = cls.from_files(files, str(root))
        probe(bundle.payload.programs, str(root))
        check_window_of(files, str(root))
        return bundle


def files_of(root: Path, sealed: str | None) -> dict[str, bytes | memoryview]:
    """A bundle's files, path → bytes.

    Args:
        root: The folder.
        sealed: The SHA-256 of the manifest that a signature was checked of; None for any.

    Raises:
        InputError: There is none, a file is missing or of another size, or the manifest is another one.
    """
    files = read_folder(root)
    if sealed is not None and sha256(files[MANIFEST]).hexdigest() != sealed:
        raise broken(str(root), f"{MANIFEST} changed after its signature was checked")
    return files


def check_window_of(files: Mapping[str, bytes | memoryview], where: str) -> None:
    """`check_window` for a bundle's files."""
    check_window(json.loads(bytes(files[MANIFEST])), where)


def _row(tensor: Tensor) -> tuple[int, ...]:
    """The shape of one row's value; of what has no rows, its shape."""
    return tuple(int(dim) for dim in (tensor.shape[1:] if tensor.batched or tensor.column else tensor.shape))


def _payload(files: Mapping[str, bytes | memoryview], body: Mapping[str, Any]) -> Payload:
    programs: dict[str, bytes] = {}
    weights: dict[str, NDArray[Any]] = {}
    assets: dict[str, pa.Table] = {}
    for name, _, _ in body["files"]:
        path = PurePosixPath(name)
        if path.suffix == ".stablehlo":
            programs[path.stem] = bytes(files[name])
        elif path.suffix == ".safetensors":
            weights |= read_weights(files[name])
        elif path.suffix == ".arrow":
            assets[path.stem] = read_asset(files[name])
    return Payload(programs, weights, assets)


def _check(bundle: Bundle, body: Mapping[str, Any]) -> None:
    """Everything the graph refers to is there, before anything runs."""
    tensors = bundle.graph.tensors()
    for node in bundle.graph.nodes:
        if isinstance(node, HostNode):
            check_node(node, tensors, bundle.extensions)
            host_kernels(node.op).row(node.params, tuple(bundle.payload.assets[name] for name in node.assets))
        elif isinstance(node, DeviceStage):
            bundle.payload.programs[node.program]  # a KeyError where it is not there, as below
            for name in node.weights:
                bundle.payload.weights[name]
    if canonical_json(described(bundle.signatures)) != canonical_json(body["signatures"]):
        raise ValueError("manifest and graph differ on the signatures")
    if canonical_json(host_ops(bundle.graph)) != canonical_json(body["host_ops"]):
        raise ValueError("manifest and graph differ on the host ops")
    if body["programs"].keys() != bundle.payload.programs.keys():
        raise ValueError("manifest and files differ on the programs")


def _of_inputs(body: Mapping[str, Any], key: str) -> dict[str, Any]:  # Any: JSON
    """What a manifest says of raw columns under a key, of those of which it says something."""
    return {
        column: spec[key] for _, signature in body["signatures"] for column, spec in signature["inputs"] if key in spec
    }


def contents(payload: Payload) -> dict[str, Any]:  # Any: JSON
    """Weights as (name, dtype, shape), assets as (name, rows)."""
    return {
        "weights": [[name, str(array.dtype), list(array.shape)] for name, array in sorted(payload.weights.items())],
        "assets": [[name, table.num_rows] for name, table in sorted(payload.assets.items())],
    }
