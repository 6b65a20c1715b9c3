"""Device programs: read from a bundle, checked before they may run, compiled when first called.

A program comes with a bundle, perhaps an untrusted one. It computes on arrays and must do nothing else: custom calls
other than the numerical kernels that JAX keeps stable (LAPACK and the like) and the ops that its manifest requires are
refused, since one of them could call back into this process, and so are transfers, which would wait for ever. What it
declares of a kernel's results is not believed (`custom_calls`). How long it computes is not bounded here: see
`Bundle.load(…, isolated=True)`.
"""

from __future__ import annotations

import re
import threading
import weakref
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import sha256
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ...errors import InputError, missing_extra
from ..graphs.nodes import BATCH, DeviceStage
from .custom_calls import FalseTypesError, admitted, check_types, to_check
from .lapack import load_lapack
from .placement import device_of
from .single import SingleRow, row_program

_CALLS: Final = re.compile(r"""custom_call\s+@(?:([\w.$-]+)|"([^"]*)")|call_target_name\s*=\s*"([^"]*)\"""")
_OPS: Final = re.compile(r"\b((?:stablehlo|chlo)\.\w+)")
_STABLEHLO: Final = re.compile(rb"StableHLO_v(\d+\.\d+\.\d+)")
_TRANSFERS: Final = re.compile(r"\bstablehlo\.(infeed|outfeed|send|recv)\b")
_SMALL: Final = 4 << 20  # bytes of weights that are compiled into a stage
_FACTS: Final = 16  # programs whose facts are remembered


class BundleError(InputError):
    """A bundle that cannot be used, whatever the rows: damaged, too old or too new, or saying what cannot be."""


@dataclass(frozen=True)
class Payload:
    """What a graph's nodes refer to: serialized programs, weights and vocabularies, by name."""

    programs: Mapping[str, bytes]
    weights: Mapping[str, NDArray[Any]]
    assets: Mapping[str, pa.Table]


@dataclass(frozen=True)
class _Bound:
    """What to call with a stage's inputs, then with these weights, on this device (None: JAX's default)."""

    call: Callable[..., Any]  # Any: JAX arrays
    weights: tuple[Any, ...]
    device: Any


@dataclass(eq=False)
class _Compiled:
    """A program that was read and checked, with what was compiled of it.

    Attributes:
        exported: The program: a `jax.export.Exported`, which has no types of its own here.
        call: Takes inputs, then weights.
        rows: By device, what `row_program` made of it for one row.
    """

    exported: Any
    call: Callable[..., Any]  # Any: JAX arrays
    rows: dict[Any, Callable[..., Any]] = field(default_factory=dict)  # Any: as in _Bound


_common: weakref.WeakValueDictionary[tuple[str, frozenset[str]], _Compiled] = weakref.WeakValueDictionary()
"""Programs of bundles that share them, by digest and the custom calls that they may make; gone with the last bundle."""

_RECENT: Final = 8
_recent: dict[Hashable, Any] = {}  # by what it was made of, the last used last
_recent_lock = threading.Lock()


def _recently(key: Hashable, make: Callable[[], Any]) -> Any:  # Any: whatever `make` gives
    """What was made of the same a short while ago: a process may load a bundle again for each of its tasks."""
    with _recent_lock:
        known = _recent.pop(key, None)
        value = _recent[key] = make() if known is None else known
        while len(_recent) > _RECENT:
            del _recent[next(iter(_recent))]
    return value


class Programs:
    """The device programs, deserialized and jitted when first called; shared by all signatures of a bundle.

    Args:
        payload: The bundle's programs, weights and vocabularies.
        calls: Targets of custom calls that extensions have registered and the bundle requires.
        common: Whether equal programs of several bundles are compiled once for all of them. No weight is then compiled
            into a program, whose calls take a little longer.
    """

    def __init__(self, payload: Payload, calls: Collection[str] = (), *, common: bool = False) -> None:
        self.payload = payload
        self._calls = calls
        self._common = common
        self._ready: dict[str, _Compiled] = {}
        self._weights: dict[tuple[str, Any], Any] = {}  # large ones, by name and device
        self._bound: dict[tuple[str, tuple[str, ...], Any], _Bound] = {}  # by program, weights and device
        self._chosen: dict[tuple[str, tuple[str, ...], int], _Bound] = {}  # by program, weights and rows
        self._singles: dict[tuple[str, tuple[str, ...]], SingleRow] = {}
        self._lock = threading.Lock()

    def __call__(self, stage: DeviceStage, arrays: list[NDArray[Any]]) -> list[Any]:
        """Call a stage with inputs of one batch size; raises as `prepare`."""
        if stage.program not in self._ready:
            self.prepare(stage)
        rows = next((len(array) for array, slot in zip(arrays, stage.slots, strict=True) if BATCH in slot[1]), 1)
        key = stage.program, stage.weights, rows  # several stages may share a program, each with weights of its own
        bound = self._chosen[key] if key in self._chosen else self._choose(key, stage)
        placed = arrays if bound.device is None else [_put(array, bound.device) for array in arrays]
        return list(bound.call(*placed, *bound.weights))

    def single(self, stage: DeviceStage) -> SingleRow:
        """A stage for which `fits` holds, prepared for one row at a time; raises as `prepare`."""
        key = stage.program, stage.weights
        if key not in self._singles:
            if stage.program not in self._ready:
                self.prepare(stage)
            bound = self._choose((*key, 1), stage)
            # Equal programs have equal slots (`_check_shapes`), so that stages may share what is compiled of one.
            rows = self._ready[stage.program].rows if self._common else {}
            if bound.device not in rows:
                rows[bound.device] = row_program(stage, bound.call, bound.device)
            self._singles[key] = SingleRow(stage, rows[bound.device], bound.weights, bound.device)
        return self._singles[key]

    def _choose(self, key: tuple[str, tuple[str, ...], int], stage: DeviceStage) -> _Bound:
        import jax

        default = jax.local_devices()
        other = [] if default[0].platform == "cpu" else _processors()
        platforms = self._ready[stage.program].exported.platforms
        devices = [device for device in (*default, *other) if set(_platforms_of(device)) & set(platforms)]
        device = device_of(stage, key[-1], devices)
        if device is None and devices and devices[0] != default[0]:  # it was exported for others than JAX's default
            device = devices[0]
        with self._lock:
            bound_key = stage.program, stage.weights, device
            if bound_key not in self._bound:
                self._bound[bound_key] = self._bind(stage, device)
            self._chosen[key] = self._bound[bound_key]
        return self._chosen[key]

    def _bind(self, stage: DeviceStage, device: Any) -> _Bound:  # Any: jax.Device, None for the default
        """The stage's program with its weights; XLA works out beforehand what it can of those that stand in it."""
        import jax

        call, weights = self._ready[stage.program].call, [self.payload.weights[name] for name in stage.weights]
        if not self._common and sum(weight.nbytes for weight in weights) <= _SMALL:

            def with_weights() -> Any:  # a JAX function
                copies = [np.array(weight) for weight in weights]  # which keep no file's bytes in memory
                return jax.jit(lambda *arrays: call(*arrays, *copies))

            if self._calls:  # what a custom call is may change
                return _Bound(with_weights(), (), device)
            digests = tuple((str(w.dtype), w.shape, sha256(w.tobytes()).digest()) for w in weights)
            program = sha256(self.payload.programs[stage.program]).digest()
            return _Bound(_recently((program, digests, device), with_weights), (), device)
        for name, weight in zip(stage.weights, weights, strict=True):
            if (name, device) not in self._weights:
                self._weights[name, device] = _put(weight, device)
        return _Bound(call, tuple(self._weights[name, device] for name in stage.weights), device)

    def prepare(self, stage: DeviceStage) -> None:
        """Read and check a stage's program; it is compiled when first called.

        Raises:
            BundleError: The program is damaged, is not what the graph says, or would do more than compute.
        """
        try:
            import jax  # noqa: F401 - late: a graph of host nodes alone runs without it
        except ImportError as error:
            raise missing_extra("jax", "engine") from error
        with self._lock:
            if stage.program not in self._ready:
                self._ready[stage.program] = self._read(stage)

    def _read(self, stage: DeviceStage) -> _Compiled:
        import jax

        key = sha256(self.payload.programs[stage.program]).hexdigest(), frozenset(self._calls)

        def read() -> _Compiled:
            try:
                exported = jax.export.deserialize(bytearray(self.payload.programs[stage.program]))
                facts = program_facts(self.payload.programs[stage.program])
            except Exception as error:  # flatbuffers and MLIR raise many kinds, asserts among them
                raise _unusable(stage.program, f"it cannot be read ({type(error).__name__})") from error
            _check_calls(stage, facts, self._calls)
            return _Compiled(exported, checked_call(exported, facts.calls, stage.program))

        known = _common.get(key) if self._common else None
        compiled = known or (read() if self._common or self._calls else _recently((stage.program, key), read))
        self._check_shapes(stage, compiled.exported)
        if self._common:
            _common[key] = compiled
        return compiled

    def _check_shapes(self, stage: DeviceStage, exported: Any) -> None:  # Any: jax.export.Exported
        weights = [self.payload.weights[name] for name in stage.weights]
        inputs = [*stage.slots, *((str(weight.dtype), weight.shape) for weight in weights)]
        outputs = [(tensor.dtype, tensor.shape) for tensor in stage.outputs]
        for what, wanted, avals in (("takes", inputs, exported.in_avals), ("gives", outputs, exported.out_avals)):
            shown = [_shown(str(aval.dtype), aval.shape) for aval in avals]
            if [_shown(dtype, shape) for dtype, shape in wanted] != shown:
                raise _unusable(stage.program, f"it {what} {', '.join(shown)[:200]}, which is not what the graph says")


def checked_call(exported: Any, calls: Collection[str], program: str) -> Callable[..., Any]:
    """A program as a function of arrays that raises BundleError before it calls a kernel with types that lie.

    The types are known once the sizes of the arrays are, so they are checked when a call is traced or, of a program
    that calls no kernel, never. With symbolic sizes nothing is run, and nothing checked.

    Args:
        exported: The program, a `jax.export.Exported`.
        calls: Targets of its custom calls (`ProgramFacts`).
        program: Its name in errors.
    """
    import jax
    import jax.numpy as jnp
    from jax.interpreters.mlir import module_to_bytecode

    load_lapack()
    call = jax.jit(exported.call)
    if not any(map(to_check, calls)):
        return call
    checked: set[tuple[tuple[int, ...], ...]] = set()

    def with_gradient(*arrays: Any) -> Any:
        results, pull = jax.vjp(exported.call, *arrays)
        leaves, tree = jax.tree.flatten(results)
        cotangents = [
            jnp.zeros_like(leaf) if jnp.issubdtype(leaf.dtype, jnp.inexact) else np.zeros(leaf.shape, jax.dtypes.float0)
            for leaf in leaves
        ]
        return results, pull(jax.tree.unflatten(tree, cotangents))

    def checking(*arrays: Any) -> Any:
        sizes = tuple(tuple(array.shape) for array in arrays)
        if sizes not in checked and all(isinstance(size, int) for shape in sizes for size in shape):
            avals = [jax.ShapeDtypeStruct(array.shape, array.dtype) for array in arrays]  # type: ignore[no-untyped-call]
            traced = jax.jit(with_gradient if exported.has_vjp() else exported.call).trace(*avals)
            for platform in set(exported.platforms) & _platforms():
                module = module_to_bytecode(traced.lower(lowering_platforms=(platform,)).compiler_ir())
                try:
                    check_types(module)
                except FalseTypesError as error:
                    raise _unusable(program, str(error)) from error
            checked.add(sizes)
        return call(*arrays)

    return checking


def _platforms() -> set[str]:
    """What this process can run programs of, as `jax.export` calls it."""
    import jax

    return {name for device in jax.local_devices() for name in _platforms_of(device)} | {"cpu"}


def _platforms_of(device: Any) -> tuple[str, ...]:  # Any: jax.Device
    """What `jax.export` may call the platform of a device."""
    return ("cuda", "rocm") if device.platform == "gpu" else (device.platform,)


def _processors() -> Sequence[Any]:  # jax.Device
    """The processor as a device; nothing where JAX_PLATFORMS names accelerators alone."""
    import jax

    try:
        processors: Sequence[Any] = jax.local_devices(backend="cpu")
    except RuntimeError:
        return ()
    return processors


def _put(array: Any, device: Any) -> Any:  # Any: numpy or JAX arrays; jax.Device, None for the default
    import jax

    return jax.device_put(array, device)


@dataclass(frozen=True)
class ProgramFacts:
    """What a serialized program says of itself.

    Attributes:
        calling_convention: How JAX calls it; each JAX reads a window of them.
        stablehlo: The version of StableHLO it is written in, e.g. "1.15.0".
        platforms: What it was lowered for: cpu, cuda, tpu.
        ops: StableHLO op → how often it stands in the program.
        calls: Targets of its custom calls, those of its gradient too.
        nameless: Whether it or its gradient has a custom call without a plain name.
        transfers: Which ops in it or its gradient would wait for a transfer.
        portable: The same as plain StableHLO bytecode.
    """

    calling_convention: int
    stablehlo: str
    platforms: tuple[str, ...]
    ops: Mapping[str, int]
    calls: frozenset[str]
    nameless: bool
    transfers: frozenset[str]
    portable: bytes


@lru_cache(_FACTS)  # JAX writes a program as text for each: it is asked when a bundle is saved, loaded and called
def program_facts(program: bytes) -> ProgramFacts:
    """Read a serialized program's facts; raises whatever JAX raises of bytes that are not a program."""
    import jax

    exported = jax.export.deserialize(bytearray(program))
    portable = bytes(exported.mlir_module_serialized)
    written = _STABLEHLO.search(portable[:64])
    texts = [exported.mlir_module(), *([exported.vjp().mlir_module()] if exported.has_vjp() else [])]
    called = [["".join(groups) for groups in _CALLS.findall(text)] for text in texts]
    return ProgramFacts(
        exported.calling_convention_version,
        written[1].decode() if written else "",
        tuple(exported.platforms),
        MappingProxyType(dict(sorted(Counter(_OPS.findall(texts[0])).items()))),
        frozenset(name for names in called for name in names),
        any(len(names) < text.count("custom_call") for names, text in zip(called, texts, strict=True)),
        frozenset(name for text in texts for name in _TRANSFERS.findall(text)),
        portable,
    )


def _check_calls(stage: DeviceStage, facts: ProgramFacts, allowed: Collection[str]) -> None:
    for name in sorted(facts.calls):
        if not admitted(name) and name not in allowed:
            raise _unusable(
                stage.program,
                f"it calls {name!r:.80}, neither a numerical kernel of JAX nor an op that its manifest requires",
            )
    if facts.nameless:
        raise _unusable(stage.program, "it has a custom call without a plain name")
    if facts.transfers:
        raise _unusable(stage.program, f"it waits for a transfer ({min(facts.transfers)})")


def _shown(dtype: str, shape: Sequence[Any]) -> str:  # Any: int, "b" or a symbolic dimension
    return f"{dtype}[{','.join(map(str, shape))}]"


def _unusable(program: str, why: str) -> BundleError:
    return BundleError(
        f"the program device/{program}.stablehlo cannot be used: {why}",
        fix="fetch the bundle again, or run the step that made it",
    )


def node_failed(node: object, error: Exception) -> BundleError:
    """The error for a node that could not be run for a reason of its own: a bundle that says what cannot be.

    Args:
        node: A node of the graph.
        error: What running it raised.
    """
    what = f"device/{node.program}.stablehlo" if isinstance(node, DeviceStage) else f"graph.json: {node!s:.100}"
    cause = str(error).strip().splitlines()[0][:160] if str(error).strip() else "no message"
    return BundleError(
        f"{what} cannot be run: {type(error).__name__}: {cause}",
        fix="fetch the bundle again, or run the step that made it",
    )
