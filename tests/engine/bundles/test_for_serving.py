"""Bundles that answer requests: the same results, and equal programs compiled once."""

from __future__ import annotations

import gc
import weakref
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from drivetrain.engine import Bundle
from drivetrain.tests.serving.bundles import rows_of, weights, write_network

pytestmark = pytest.mark.engine


@cache  # some tests compare thousands of answers
def expected(seed: int, hidden: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """The scores of `rows_of(9)` by NumPy."""
    params = weights(seed, hidden)
    x = np.array(rows_of(9)["x"].to_pylist(), dtype=np.float32)
    logits = np.tanh(np.tanh(x @ params["w0"]) @ params["w1"]) @ params["w2"]
    scores = 1 / (1 + np.exp(-logits[:, 0].astype(np.float64)))
    scores.flags.writeable = False
    return np.asarray(scores)


def test_rows_and_batches_of_every_size_are_those_of_numpy(tmp_path: Path) -> None:
    write_network(tmp_path / "model", 4, hidden=24)
    bundle = Bundle.load(tmp_path / "model").for_serving()
    table, scores = rows_of(9), expected(4, 24)
    for count in (1, 2, 63, 64, 65, 512):
        np.testing.assert_allclose(bundle.run("predict", table[:count])["score"], scores[:count], atol=1e-6)
    row = table.slice(3, 1).to_pylist()[0]
    assert bundle.run_row("predict", row)["score"] == pytest.approx(scores[3], abs=1e-6)


def test_a_second_version_compiles_nothing(tmp_path: Path) -> None:
    from jax import monitoring

    for seed in range(3):
        write_network(tmp_path / f"{seed}", seed, hidden=25)
    compiled: list[str] = []

    def count(event: str, duration_secs: float, **_: str | int) -> None:
        if event.endswith("backend_compile_duration"):
            compiled.append(event)

    monitoring.register_event_duration_secs_listener(count)
    try:
        kept, table = [], rows_of(9)
        for seed in range(3):
            bundle = Bundle.load(tmp_path / f"{seed}").for_serving()
            scores = bundle.run("predict", table[:8])["score"]
            np.testing.assert_allclose(scores, expected(seed, 25)[:8], atol=1e-6)
            row = bundle.run_row("predict", table.slice(0, 1).to_pylist()[0])
            assert row["score"] == pytest.approx(expected(seed, 25)[0], abs=1e-6)
            kept.append(bundle)  # a program goes with the last bundle that has it
            if seed == 0:
                assert len(compiled) == 2  # one row, and up to 64
        assert len(compiled) == 2
    finally:
        monitoring.unregister_event_duration_listener(count)


def test_a_bundle_that_ran_is_gone_with_its_last_reference(tmp_path: Path) -> None:
    """Without the garbage collector, which a server does not let look at what was loaded."""
    write_network(tmp_path / "model", 4, hidden=26)
    bundle = Bundle.load(tmp_path / "model").for_serving()
    bundle.run("predict", rows_of(9)[:3])
    bundle.run_row("predict", rows_of(9).to_pylist()[0])
    programs = weakref.ref(bundle._programs)
    gc.collect()  # what compiling leaves behind
    gc.disable()
    try:
        del bundle
        assert programs() is None
    finally:
        gc.enable()
