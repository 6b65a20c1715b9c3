"""A bundle from a stranger, its digests in order: whatever it says, the worst that happens is an InputError."""

import copy
import json
import random
import shutil
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from drivetrain import data
from drivetrain.engine import Bundle, BundleError, analyze, ops
from drivetrain.errors import InputError
from drivetrain.tests.engine.bundles.resealing import reseal

pytestmark = pytest.mark.engine

ROWS = pa.table({"x": [1.0, None, 3.0], "n": pa.array([1, 2, None]), "s": ["a", None, "b"]})
STRUCT: Any = jax.ShapeDtypeStruct  # JAX leaves it untyped
FFI: Any = jax.ffi.ffi_call  # and this one typed for what it does not return
ODD: list[Any] = [None, True, -1, 0, 1e300, 10**30, "", "../x", [], {}, "b", ["b", 10**12], "string", "float32", 1.5]


def preprocess(columns: ops.Columns) -> ops.Columns:
    return {
        "z": ops.z_score(ops.fill_missing(columns["x"], 0.5)),
        "n": ops.fill_missing(ops.cast(columns["n"], "float32"), -1.0),
        "s": ops.vocabulary(columns["s"], oov_buckets=2),
        "h": ops.hash_buckets(columns["s"], 5),
        "a": ops.fill_missing(columns["s"] == "a", False),
    }


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("stranger")
    pq.write_table(ROWS, folder / "rows.parquet")
    analyze(preprocess, data.open_parquet([folder / "rows.parquet"]), data.LocalExecutor()).save(folder / "bundle")
    return folder / "bundle"


def edited(made: Path, folder: Path, name: str, content: bytes) -> Path:
    shutil.copytree(made, folder)
    (folder / name).write_bytes(content)
    reseal(folder)
    return folder


def use(path: Path) -> None:
    bundle = Bundle.load(path)
    bundle.run("transform", ROWS.to_batches()[0])
    bundle.run_row("transform", ROWS.to_pylist()[0])


def places(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [at, *(place for key, item in items for place in places(item, (*at, key)))]


@pytest.mark.slow
def test_any_graph_is_refused_or_runs(made: Path, tmp_path: Path) -> None:
    original = json.loads((made / "graph.json").read_bytes())
    dice = random.Random(7)
    refused = 0
    for number in range(200):
        graph = copy.deepcopy(original)
        *way, last = dice.choice(places(graph)[1:])
        holder = graph
        for key in way:
            holder = holder[key]
        if dice.random() < 0.3:
            del holder[last]
        else:
            holder[last] = dice.choice(ODD)
        folder = edited(made, tmp_path / str(number), "graph.json", json.dumps(graph).encode())
        try:
            use(folder)
        except InputError:
            refused += 1
    assert refused > 100


def test_a_program_that_calls_back_is_refused(made: Path, tmp_path: Path) -> None:
    name = "xla_ffi_python_cpu_callback"  # run unchecked, this call ends the process
    (program,) = made.glob("device/*.stablehlo")
    honest: Any = jax.export.deserialize(bytearray(program.read_bytes()))

    def call(*arrays: Any) -> Any:
        run: Any = jax.ffi.ffi_call(name, STRUCT(arrays[0].shape, jnp.float32))
        outputs = run(arrays[0], index=np.uint64(5))
        return [outputs, *honest.call(*arrays)[1:]]

    allowed = [jax.export.DisabledSafetyCheck.custom_call(name)]
    shapes = [STRUCT(aval.shape, aval.dtype) for aval in honest.in_avals]
    evil = jax.export.export(jax.jit(call), platforms=["cpu"], disabled_checks=allowed)(*shapes)
    folder = edited(made, tmp_path / "evil", f"device/{program.name}", bytes(evil.serialize()))
    with pytest.raises(InputError, match=f"device/{program.name}.*calls '{name}'"):
        use(folder)


def test_a_gradient_that_calls_back_is_refused(made: Path, tmp_path: Path) -> None:
    name = "xla_ffi_python_cpu_callback"
    (program,) = made.glob("device/*.stablehlo")
    honest: Any = jax.export.deserialize(bytearray(program.read_bytes()))

    @jax.custom_vjp
    def call(*arrays: Any) -> Any:
        return honest.call(*arrays)

    def backward(arrays: Any, _: Any) -> Any:
        run: Any = jax.ffi.ffi_call(name, STRUCT((), jnp.float32))
        return tuple(
            run(index=np.uint64(5)) + jnp.zeros_like(a)
            if a.dtype == jnp.float32
            else np.zeros(a.shape, jax.dtypes.float0)
            for a in arrays
        )

    call.defvjp(lambda *arrays: (call(*arrays), arrays), backward)
    allowed = [jax.export.DisabledSafetyCheck.custom_call(name)]
    shapes = [STRUCT(aval.shape, aval.dtype) for aval in honest.in_avals]
    evil = jax.export.export(jax.jit(call), platforms=["cpu"], disabled_checks=allowed)(*shapes)
    assert name not in evil.mlir_module()
    folder = edited(made, tmp_path / "evil", f"device/{program.name}", bytes(evil.serialize(vjp_order=1)))
    with pytest.raises(InputError, match=f"device/{program.name}.*calls '{name}'"):
        use(folder)


@pytest.mark.slow
def test_a_program_of_other_shapes_or_no_program_is_refused(made: Path, tmp_path: Path) -> None:
    (program,) = made.glob("device/*.stablehlo")
    other = jax.export.export(jax.jit(lambda x: x + 1))(STRUCT((4,), jnp.float32))
    folder = edited(made, tmp_path / "other", f"device/{program.name}", bytes(other.serialize()))
    with pytest.raises(InputError, match=r"takes float32\[4\], which is not what the graph says"):
        use(folder)
    torn = edited(made, tmp_path / "torn", f"device/{program.name}", program.read_bytes()[:1000])
    with pytest.raises(InputError, match=f"device/{program.name} cannot be used"):
        use(torn)


def test_linear_algebra_is_no_stranger(tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": [1.0, 2.0]}), tmp_path / "rows.parquet")

    def solved(columns: ops.Columns) -> ops.Columns:
        x = columns["x"]
        matrix = jnp.stack([x, jnp.zeros_like(x), jnp.ones_like(x), x], -1).reshape(-1, 2, 2)
        return {"y": jnp.linalg.qr(matrix)[1].reshape(-1, 4)}

    bundle = analyze(solved, data.open_parquet([tmp_path / "rows.parquet"]), data.LocalExecutor())
    assert bundle.run("transform", pa.record_batch({"x": [1.0, 2.0]}))["y"].shape == (2, 4)


def test_files_are_not_read_beyond_what_the_manifest_says(made: Path, tmp_path: Path) -> None:
    shutil.copytree(made, tmp_path / "bomb")
    with (tmp_path / "bomb" / "graph.json").open("ab") as file:
        file.truncate(1 << 40)  # sparse: a terabyte of zeros
    with pytest.raises(InputError, match=r"graph\.json does not match its digest"):
        Bundle.load(tmp_path / "bomb")
    shutil.copytree(made, tmp_path / "heavy")
    with (tmp_path / "heavy" / "manifest.json").open("ab") as file:
        file.truncate(1 << 40)
    with pytest.raises(InputError, match=r"manifest\.json is larger than"):
        Bundle.load(tmp_path / "heavy")


def matrices(x: Any) -> Any:
    """[b, 2, 2] of [b]."""
    return jnp.stack([x, jnp.zeros_like(x), jnp.ones_like(x), x], -1).reshape(-1, 2, 2)


def potrf(x: Any, *results: Any, uplo: object = np.uint8(ord("L"))) -> Any:
    """LAPACK's Cholesky, declared to give these."""
    return FFI("lapack_spotrf_ffi", results)(matrices(x), uplo=uplo)[0].sum() + jnp.zeros_like(x)


LIES: dict[str, Any] = {
    "a larger matrix": lambda x: potrf(x, STRUCT((x.shape[0], 64, 64), jnp.float32), STRUCT(x.shape, jnp.int32)),
    "a smaller matrix": lambda x: potrf(x, STRUCT((x.shape[0], 1, 1), jnp.float32), STRUCT(x.shape, jnp.int32)),
    "more rows": lambda x: potrf(x, STRUCT((3 * x.shape[0], 2, 2), jnp.float32), STRUCT(x.shape, jnp.int32)),
    "one info": lambda x: potrf(x, STRUCT((x.shape[0], 2, 2), jnp.float32), STRUCT((), jnp.int32)),
    "another dtype": lambda x: potrf(x, STRUCT((x.shape[0], 2, 2), jnp.int8), STRUCT(x.shape, jnp.int32)),
    "a setting": lambda x: potrf(
        x, STRUCT((x.shape[0], 2, 2), jnp.float32), STRUCT(x.shape, jnp.int32), uplo=np.uint8(7)
    ),
    "memory as it lies": lambda x: FFI("AllocateBuffer", STRUCT((4,), jnp.float32))().sum() + x,
}


@pytest.mark.slow
@pytest.mark.parametrize("lie", LIES)
def test_a_kernel_with_types_that_lie_is_refused(made: Path, tmp_path: Path, lie: str) -> None:
    """Run unchecked, most of these end the process."""
    (program,) = made.glob("device/*.stablehlo")
    honest: Any = jax.export.deserialize(bytearray(program.read_bytes()))

    def call(*arrays: Any) -> Any:
        (first, *others) = honest.call(*arrays)
        return [LIES[lie](first), *others]

    shapes = [STRUCT(aval.shape, aval.dtype) for aval in honest.in_avals]
    allowed = [jax.export.DisabledSafetyCheck.custom_call("lapack_spotrf_ffi")]
    evil = jax.export.export(jax.jit(call), platforms=["cpu"], disabled_checks=allowed)(*shapes)
    folder = edited(made, tmp_path / "evil", f"device/{program.name}", bytes(evil.serialize()))
    bundle = Bundle.load(folder)
    for run in (
        lambda: bundle.run("transform", ROWS.to_batches()[0]),
        lambda: bundle.run_row("transform", ROWS.to_pylist()[0]),
    ):
        with pytest.raises(
            BundleError, match=rf"device/{program.name} cannot be used: (lapack_spotrf_ffi|Alloc)"
        ) as refusal:
            run()
        if lie in ("a larger matrix", "more rows"):
            assert "is declared to give (tensor<" in refusal.value.message
            assert "but its operands imply (tensor<" in refusal.value.message
