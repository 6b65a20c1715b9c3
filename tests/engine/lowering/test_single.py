"""One row through its own compiled form of a stage: the same as a batch of one through the general one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402
from drivetrain import data  # noqa: E402
from drivetrain.engine import analyze, ops  # noqa: E402
from drivetrain.engine.graphs.nodes import DeviceStage  # noqa: E402
from drivetrain.engine.lowering.single import SingleRow, _not_handed_over, fits  # noqa: E402
from jax.experimental.compilation_cache import compilation_cache  # noqa: E402

pytestmark = pytest.mark.engine


def learned(fn: Any, **columns: Any) -> Any:
    return analyze(fn, data.source_of(pa.table(columns)), data.executor("local"))


@pytest.mark.parametrize("large", [False, True])
def test_every_kind_of_word_comes_and_goes(large: bool) -> None:
    table = np.random.default_rng(0).normal(size=(2 << 20 if large else 8, 1)).astype(np.float32)  # over 4 MiB, or not

    def preprocess(columns: ops.Columns) -> ops.Columns:
        x = columns["x"]
        vector = jnp.stack([x, x * 2, jnp.full_like(x, 7)], -1)
        return {
            "float": x + jnp.asarray(table)[0, 0],
            "int": ops.fill_missing(columns["i"], -1) * 3,
            "bool": ops.fill_missing(columns["flag"], True),
            "unsigned": ops.cast(ops.fill_missing(columns["i"], 0), "uint32") + jnp.uint32(4_000_000_000),
            "matrix": vector[:, :, None] * jnp.ones((1, 1, 2)),
            "word": ops.vocabulary(columns["s"]),
        }

    bundle = learned(preprocess, x=[1.5, None, -0.0], i=[5, None, -7], flag=[True, False, None], s=["a", None, "b"])
    assert all(fits(node) for node in bundle.graph.nodes if isinstance(node, DeviceStage))
    rows = [
        {"x": 1.5, "i": 5, "flag": False, "s": "a"},
        {"x": None, "i": None, "flag": None, "s": None},
        {"x": float("inf"), "i": -(2**31), "flag": True, "s": "new"},
        {"x": 1e300, "i": 2**31 - 1, "flag": True, "s": ""},
    ]
    types = {"x": pa.float64(), "i": pa.int64(), "flag": pa.bool_(), "s": pa.string()}
    batch = pa.RecordBatch.from_pylist(rows, schema=pa.schema(types))
    whole = bundle.run("transform", batch)
    for place, row in enumerate(rows):
        row_outputs = bundle.run_row("transform", row)
        for name, values in whole.items():
            got = np.asarray(row_outputs[name], values.dtype)
            np.testing.assert_array_equal(got, values[place], err_msg=f"{name} of {row}")


@pytest.mark.filterwarnings("ignore:overflow encountered in cast")  # the runner turns it off around a row
@pytest.mark.parametrize(
    "value", [1, -2.5, 1e300, float("nan"), np.float32(0.1), np.float64(1e-46), np.int64(7), True, 0, np.array(3.25)]
)
def test_a_number_of_any_kind_becomes_the_word_that_numpy_makes_of_it(value: Any) -> None:
    bundle = learned(lambda c: {"y": c["x"] * 1.0, "flag": ops.fill_missing(c["b"], False)}, x=[1.5], b=[True])
    (stage,) = [node for node in bundle.graph.nodes if isinstance(node, DeviceStage)]
    names = [str(dtype) for dtype, _ in stage.slots]
    given = [value if name == "float32" else np.bool_(True) for name in names]
    made = bundle._programs.single(stage)(given)
    wanted = [np.float32(value) if tensor.dtype == "float32" else True for tensor in stage.outputs]
    np.testing.assert_array_equal(made, wanted)


@pytest.mark.parametrize("value", [3_000_000_000, "text", [1, 2, 3, 4]])
def test_what_is_no_such_word_is_refused(value: Any) -> None:
    bundle = learned(lambda c: {"y": ops.fill_missing(c["i"], 0) + 1}, i=[1, 2])
    (stage,) = [node for node in bundle.graph.nodes if isinstance(node, DeviceStage)]
    with pytest.raises((ValueError, OverflowError)):
        bundle._programs.single(stage)([value for _ in stage.slots])


def test_stages_of_other_widths_go_the_general_way() -> None:
    bundle = learned(lambda c: {"half": c["x"].astype(jnp.float16)}, x=[1.5, 2.5])
    assert not all(fits(node) for node in bundle.graph.nodes if isinstance(node, DeviceStage))
    assert bundle.run_row("transform", {"x": 1.5}) == {"half": 1.5}


@contextmanager
def compiled_kept_in(folder: str | None) -> Iterator[None]:
    before = jax.config.jax_compilation_cache_dir
    jax.config.update("jax_compilation_cache_dir", folder)
    try:
        yield
    finally:
        jax.config.update("jax_compilation_cache_dir", before)
        compilation_cache.reset_cache()  # JAX looks for its folder once: later tests would write to this one's


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="only processors hand programs over")
def test_a_row_is_computed_on_the_thread_that_calls_unless_executables_are_kept(tmp_path: Path) -> None:
    def long(columns: ops.Columns) -> ops.Columns:  # XLA counts one turn of a loop
        wide = columns["x"][:, None] * jnp.ones((1, 1_000))
        return {"y": jax.lax.fori_loop(0, 20_000, lambda _, x: jnp.sin(x) * 0.5 + 1, wide).sum(-1)}

    bundle = learned(long, x=[1.5])
    (stage,) = [node for node in bundle.graph.nodes if isinstance(node, DeviceStage)]

    def ready_at_once(row: SingleRow) -> bool:
        words = np.zeros(sum(size for _, size in row._slots) + 1, np.int32)
        row._run(words).block_until_ready()  # compiled
        return bool(row._run(words).is_ready())

    with compiled_kept_in(None):
        assert ready_at_once(bundle._programs.single(stage))
    bundle._programs._singles.clear()
    with compiled_kept_in(str(tmp_path)):
        assert not ready_at_once(bundle._programs.single(stage))


@pytest.mark.parametrize("spare", [0, 1])
def test_the_words_stay_what_they_are_should_the_callback_ever_run(spare: int) -> None:
    words = np.asarray([1, -(2**31), 2**31 - 1, 0x7FA00001], np.int32)  # the last a signalling NaN, were it a float
    found = jax.jit(_not_handed_over)(words, np.int32(spare))
    assert np.asarray(found).tobytes() == words.tobytes()
