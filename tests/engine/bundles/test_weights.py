"""Weights as views of their file: what safetensors wrote, and what it refuses, and how little is in memory."""

from __future__ import annotations

import json
import shutil
import tracemalloc
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from drivetrain import hub
from drivetrain.engine import Bundle
from drivetrain.engine.bundles.weights import mapped, read_weights
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import SafetensorError, deserialize
from safetensors.numpy import save

pytestmark = pytest.mark.engine

DTYPES = [np.float32, np.float16, ml_dtypes.bfloat16, np.bool_, np.int32, np.int16, np.int8, np.uint32, np.uint8]
SHAPES = st.lists(st.integers(0, 3), max_size=3)
ARRAYS = st.dictionaries(st.text(max_size=5), st.tuples(st.sampled_from(DTYPES), SHAPES), max_size=5)


@given(ARRAYS)
def test_arrays_come_back_as_safetensors_wrote_them(specs: dict[str, Any]) -> None:
    rng = np.random.default_rng(0)
    arrays = {name: rng.integers(0, 2, shape).astype(dtype) for name, (dtype, shape) in specs.items()}
    back = read_weights(save(arrays))
    assert list(back) == sorted(arrays)
    for name, array in arrays.items():
        assert (back[name].dtype, back[name].shape) == (array.dtype, array.shape)
        assert back[name].tobytes() == array.tobytes()
        assert not back[name].flags.writeable


def parsed(read: Any, data: bytes) -> bool:
    try:
        read(data)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError, SafetensorError, OverflowError):
        return False
    return True


ODD = st.sampled_from([-1, 0, 1, 4, 8, 16, 24, 1 << 40, 1 << 63, 1.0, "4", None, True])


@settings(max_examples=300)
@given(st.lists(st.tuples(ODD, ODD), min_size=2, max_size=2), st.lists(ODD, max_size=2), st.integers(-8, 8))
def test_what_safetensors_refuses_is_refused(offsets: list[Any], shape: list[Any], more: int) -> None:
    header = {
        name: {"dtype": "F32", "shape": shape, "data_offsets": list(pair)}
        for name, pair in zip("ab", offsets, strict=True)
    }
    text = json.dumps(header).encode()
    data = len(text).to_bytes(8, "little") + text + bytes(max(0, 16 + more))
    assert not parsed(read_weights, data) or parsed(deserialize, data)


@pytest.mark.parametrize("size", range(0, 104, 7))
def test_a_file_that_was_cut_is_refused(size: int) -> None:
    whole = save({"a": np.zeros(10, np.float32)})
    assert not parsed(read_weights, whole[:size])
    assert not parsed(read_weights, whole + bytes(size + 1))


def test_an_empty_file_cannot_be_mapped_and_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    assert not parsed(read_weights, mapped(tmp_path / "a"))  # type: ignore[arg-type]


@pytest.mark.slow
def test_a_bundle_is_saved_and_loaded_without_a_copy_of_its_weights(tmp_path: Path) -> None:
    weights = np.zeros(50 << 18, np.float32)  # 50 MiB
    weights[[0, -1]] = 1, 2
    module = hub.module(lambda params, x: x * params["w"][-1], {"w": weights}, np.zeros((2, 3), np.float32))
    tracemalloc.start()
    module.bundle.save(tmp_path / "bundle")
    saved = tracemalloc.get_traced_memory()[1]
    tracemalloc.reset_peak()
    bundle = Bundle.load(tmp_path / "bundle")
    loaded = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert max(saved, loaded) < 10 << 20
    (name,) = bundle.payload.weights
    np.testing.assert_array_equal(bundle.payload.weights[name], weights)
    assert {file.name: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()} == {
        Path(file).name: data for file, data in module.bundle.to_files().items()
    }


def test_the_folder_of_a_loaded_bundle_may_be_removed(tmp_path: Path) -> None:
    """As Pusher's `keep` does under a server that has not read the weights yet; one in its place changes nothing."""
    weights = np.arange(1 << 18, dtype=np.float32)
    module = hub.module(lambda params, x: x * params["w"][-1], {"w": weights}, np.zeros((2, 3), np.float32))
    module.bundle.save(tmp_path / "bundle")
    bundle = Bundle.load(tmp_path / "bundle")
    shutil.rmtree(tmp_path / "bundle")
    other = hub.module(lambda params, x: x * params["w"][-1], {"w": -weights}, np.zeros((2, 3), np.float32))
    other.bundle.save(tmp_path / "bundle")
    (name,) = bundle.payload.weights
    np.testing.assert_array_equal(bundle.payload.weights[name], weights)
