"""Bundles that lie, all of whose digests are right: their files, and the text of their StableHLO programs.

A process runs a stranger's bundle, and must end in a result or an `InputError`.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import re
import shutil
import sys
import types
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from drivetrain.errors import InputError
from drivetrain.tests.attack.attack import Attack, Case
from drivetrain.tests.attack.mutations import at, place

FUZZ = Path(__file__).parents[1] / "engine" / "bundles" / "bundle_fuzz.py"
Files = dict[str, bytes]


def _fuzz() -> types.ModuleType:
    """The mutations of bundles that the tests of bundles count through."""
    spec = importlib.util.spec_from_file_location("drivetrain_bundle_fuzz", FUZZ)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules.setdefault(spec.name, importlib.util.module_from_spec(spec))
    if not hasattr(module, "mutated"):
        spec.loader.exec_module(module)
    return module


def _prepare(folder: Path) -> tuple[Path, Files]:
    from drivetrain.tests.fixtures.bundles.make import build

    build(folder / "honest")
    return folder, _fuzz().read(folder / "honest" / "model")


def _use(folder: Path, files: Files) -> None:
    """Load the bundle as a stranger's, verify it, and run each signature."""
    from drivetrain.engine import Bundle, verify_bundle
    from drivetrain.tests.fixtures.bundles.make import flights

    shutil.rmtree(folder / "attacked", ignore_errors=True)
    for name, data in files.items():
        path = folder / "attacked" / name
        if "\x00" in name or len(name) > 200 or not path.resolve().is_relative_to(folder.resolve()):
            continue  # no file system holds it
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.is_dir():
            path.write_bytes(data)
    bundle = Bundle.load(folder / "attacked", isolated=True)
    table = flights(3, 1)
    (batch,) = table.combine_chunks().to_batches()
    for name in bundle.signatures:
        bundle.run(name, batch)
        bundle.run_row(name, table.to_pylist()[0])
    repr(bundle)
    verify_bundle(folder / "attacked")


# --- the files


def _draw_files(dice: Random) -> Case:
    return [["mutation", dice.randrange(10**9)] for _ in range(dice.choice((1, 1, 1, 2)))]


def _check_files(target: tuple[Path, Files], case: Case) -> None:
    folder, files = target
    for _, number in case:
        try:
            files = _fuzz().mutated(files, number)
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
            break  # what the mutation before left is not to be read any more
    _use(folder, files)


# --- the programs

OPERATIONS = (
    "stablehlo.add", "stablehlo.multiply", "stablehlo.divide", "stablehlo.maximum", "stablehlo.compare",
    "stablehlo.negate", "stablehlo.sqrt", "stablehlo.tanh", "stablehlo.transpose", "stablehlo.reshape",
    "stablehlo.broadcast_in_dim",
    "stablehlo.dot_general", "stablehlo.gather", "stablehlo.dynamic_slice", "stablehlo.reduce", "stablehlo.sort",
)  # fmt: skip
WORDS = (
    "0", "1", "-1", "2", "3", "5", "100000", "4294967296", "9223372036854775807", "true", "false", "LT", "GE",
    "NE", "EQ", "TOTALORDER", "f32", "f64", "i32", "i64", "i1", "ui8", "?", "@lapack_spotrf_ffi", "@lapack_ssyevd_ffi",
    "@xla_python_cpu_callback",
    "@cu_threefry2x32", "@Sharding", "@unknown", "is_stable = false",
)  # fmt: skip


def _numerical(params: Any, features: Any) -> Any:
    """Kernels in native code, a loop, a sort with a comparator of its own, a gather: what may go wrong beyond XLA."""
    import jax
    import jax.numpy as jnp
    from jax.scipy.linalg import solve_triangular

    x = jnp.stack([features["dep_delay"], features["distance"], features["night"]], -1).astype(jnp.float32)
    square = x[:, :, None] * x[:, None, :] + params["eye"]
    lower = jnp.linalg.cholesky(square)
    values, vectors = jnp.linalg.eigh(square)
    q, _ = jnp.linalg.qr(square)
    ordered, moved = jax.lax.sort((x, x[:, ::-1]), dimension=1, num_keys=2, is_stable=False)
    count = jax.lax.while_loop(lambda state: jnp.max(state) < 9.0, lambda state: state + jnp.abs(state) + 1.0, x)
    solved = solve_triangular(lower, x[:, :, None], lower=True)
    singular = jnp.linalg.svd(square, compute_uv=False)
    parts = (lower, values, vectors, q, ordered, moved, count, solved, singular)
    return sum(jnp.sum(part.reshape(x.shape[0], -1), -1) for part in parts) + params["words"][features["carrier"]]


def _prepare_program(folder: Path) -> tuple[Path, Files]:
    import numpy as np
    from drivetrain.engine import export_model
    from drivetrain.tests.fixtures.bundles.make import build

    build(folder / "honest")
    params = {"eye": 4 * np.eye(3, dtype=np.float32), "words": np.ones(64, np.float32)}
    export_model(
        folder / "honest" / "graph", _numerical, params, lambda y: {"score": y}, label="late", out=folder / "numerical"
    )
    return folder, _fuzz().read(folder / "numerical")


def _draw_program(dice: Random) -> Case:
    return [
        dice.choice([
            ["word", place(dice), dice.choice(WORDS)],
            ["word", place(dice), dice.choice(WORDS)],
            ["shape", place(dice), place(dice), dice.choice(("0", "1", "4", "6", "500", "1000000000", "?"))],
            ["call", place(dice), place(dice), dice.choice(("0", "1", "6", "50", "1000000"))],
            ["operation", place(dice), dice.choice(OPERATIONS)],
            ["operand", place(dice), place(dice)],
            ["constant", place(dice), dice.choice(("0", "-1", "2147483647", "0x7FC00000"))],
        ])
        for _ in range(dice.choice((1, 1, 2, 3)))
    ]  # fmt: skip


def _check_program(target: tuple[Path, Files], case: Case) -> None:
    """Edit the text of the largest program; what MLIR still takes is sealed, and used."""
    import jax
    from jax._src.interpreters import mlir
    from jaxlib.mlir import ir
    from jaxlib.mlir.dialects import stablehlo

    folder, files = target
    name = max((name for name in files if name.endswith(".stablehlo")), key=lambda name: len(files[name]))
    exported = jax.export.deserialize(bytearray(files[name]))
    with mlir.make_ir_context():
        try:
            module = ir.Module.parse(_edited(exported.mlir_module(), case))
            program = stablehlo.serialize_portable_artifact(module, stablehlo.get_current_version())
        except (ir.MLIRError, ValueError, RuntimeError) as error:
            raise InputError(f"MLIR does not take it: {error!s:.200}") from None
    lying = dataclasses.replace(exported, mlir_module_serialized=program).serialize()
    _use(folder, _fuzz().resealed({**files, name: bytes(lying)}))


def _edited(text: str, case: Case) -> str:
    for step in case:
        match step:
            case ["word", where, word]:
                text = _replaced(text, r"(?<=[ x<\[(=])(-?\d+|[A-Z]{2,}|[fi]\d+|true|false|@\w+)\b", where, word)
            case ["shape", where, dim, size]:
                text = _replaced(text, r"tensor<(\d+x)+\w+>", where, partial(_resized, dim=dim, size=size))
            case ["call", where, dim, size]:  # of what a native kernel takes or gives
                calls = list(re.finditer(r"stablehlo\.custom_call.*", text))
                if calls:
                    call = calls[at(where, len(calls))]
                    line = _replaced(call.group(), r"tensor<(\d+x)+\w+>", dim, partial(_resized, dim=dim, size=size))
                    text = text[: call.start()] + line + text[call.end() :]
            case ["operation", where, operation]:
                text = _replaced(text, r"stablehlo\.\w+", where, operation)
            case ["operand", where, source]:
                names = re.findall(r"%\w+", text)
                name = names[at(source, len(names))]
                text = _replaced(text, r"%\w+", where, name)
            case ["constant", where, value]:
                text = _replaced(text, r"dense<[^>]*>", where, f"dense<{value}>")
    return text


def _replaced(text: str, pattern: str, where: float, change: str | Callable[[str], str]) -> str:
    matches = list(re.finditer(pattern, text))
    if not matches:
        return text
    match = matches[at(where, len(matches))]
    return text[: match.start()] + (change if isinstance(change, str) else change(match.group())) + text[match.end() :]


def _resized(tensor: str, dim: float, size: str) -> str:
    *sizes, dtype = tensor.removeprefix("tensor<").removesuffix(">").split("x")
    sizes[at(dim, len(sizes))] = size
    return f"tensor<{'x'.join([*sizes, dtype])}>"


ATTACKS = {
    "bundle": Attack(_prepare, _draw_files, _check_files, slow=12, seconds=120, gibibytes=24),
    "program": Attack(_prepare_program, _draw_program, _check_program, slow=12, seconds=120, gibibytes=24),
}
