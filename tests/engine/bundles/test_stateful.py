"""Functions with state, saved: the state goes in and comes out by name, here and in a process without the function."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from drivetrain.engine import (
    Bundle,
    TensorSpec,
    export_stateful,
    function,
    initial_state,
    refresh_bundle,
    stateful,
    step,
    verify_bundle,
)
from drivetrain.errors import InputError

pytestmark = pytest.mark.engine

STATE = {"count": jnp.float32(0), "mean": jnp.zeros(2, jnp.float32)}
SCALE = np.array([1.0, 10.0], np.float32)  # captured


@function
def running_mean(state: Any, x: Any) -> Any:
    count = state["count"] + x.shape[0]
    mean = state["mean"] + ((x - state["mean"]) * SCALE).sum(axis=0) / (SCALE * count)
    return {"count": count, "mean": mean}, x - mean


def batches() -> list[Any]:
    dice = np.random.default_rng(3)
    return [dice.normal(5, 2, (rows, 2)).astype(np.float32) for rows in (3, 1, 40)]


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rows = TensorSpec(("b", 2), "float32")
    graph = stateful(running_mean.get_concrete_function(STATE, rows), "state")
    export_stateful(graph, {"state": STATE}, tmp_path_factory.mktemp("stateful") / "bundle")
    return next(iter(tmp_path_factory.getbasetemp().glob("stateful*"))) / "bundle"


FRESH = """
import json, sys
import numpy as np
from drivetrain.engine import Bundle, step
bundle, state = Bundle.load(sys.argv[1]), None
for x in json.loads(sys.stdin.read()):
    out, state = step(bundle, {"x": np.array(x, np.float32)}, state)
    last = next(iter(out.values()))
print(json.dumps([{name: np.asarray(value).tolist() for name, value in state.items()}, last.tolist()]))
assert not any("test_bundle_stateful" in name for name in sys.modules)
"""


@pytest.mark.slow
def test_a_running_mean_goes_on_in_a_fresh_process(saved: Path) -> None:
    given = json.dumps([batch.tolist() for batch in batches()])
    command = [sys.executable, "-c", FRESH, str(saved)]
    done = subprocess.run(command, input=given, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    found, last = json.loads(done.stdout)
    state = STATE
    for batch in batches():
        state, moved = running_mean.python_function(state, batch)
    rows = np.concatenate(batches())
    assert found["state['count']"] == len(rows)
    np.testing.assert_allclose(found["state['mean']"], rows.mean(axis=0), rtol=1e-5)
    np.testing.assert_allclose(found["state['mean']"], state["mean"], rtol=1e-6)
    np.testing.assert_allclose(last, moved, atol=1e-5)


def test_what_is_saved_does_not_change(saved: Path) -> None:
    bundle = Bundle.load(saved)
    assert {name: array.tolist() for name, array in initial_state(bundle).items()} == {
        "state['count']": 0.0,
        "state['mean']": [0.0, 0.0],
    }
    one = step(bundle, {"x": batches()[0]})
    again = step(bundle, {"x": batches()[0]})
    np.testing.assert_array_equal(one[1]["state['mean']"], again[1]["state['mean']"])
    signature = bundle.signatures["call"]
    assert signature.inputs["state['mean']"].shape == (2,)
    assert signature.inputs["state['count']"].shape == ()
    assert signature.inputs["x"].shape == (2,)
    assert all(check.ok for check in verify_bundle(saved))


def test_refreshed_it_steps_as_before(saved: Path, tmp_path: Path) -> None:
    body = json.loads((saved / "manifest.json").read_text())
    assert body["signatures"][0][0] == "call"
    new = refresh_bundle(saved, tmp_path / "new").bundle
    for old, made in zip(step(Bundle.load(saved), {"x": batches()[2]}), step(new, {"x": batches()[2]}), strict=True):
        assert old.keys() == made.keys()
        for name, value in old.items():
            np.testing.assert_array_equal(value, made[name])


def test_a_counter_without_a_batch(tmp_path: Path) -> None:
    @function
    def count(total: Any, by: Any) -> Any:
        return total + by

    graph = stateful(count.get_concrete_function(jnp.int32(0), jnp.int32(1)), "total")
    bundle = export_stateful(graph, {"total": jnp.int32(40)}, tmp_path / "counter")
    out, state = step(bundle, {"by": 2})
    assert (out, {name: int(value) for name, value in state.items()}) == ({}, {"total": 42})
    assert int(step(bundle, {"by": 2}, state)[1]["total"]) == 44


def test_a_step_of_training_is_a_bundle(tmp_path: Path) -> None:
    """Params as state: ten saved steps of gradient descent against the closed form of least squares."""

    @function
    def train(params: Any, x: Any, y: Any) -> Any:
        loss, slope = jax.value_and_grad(lambda p: jnp.mean((x @ p["w"] - y) ** 2))(params)
        return {"w": params["w"] - 0.3 * slope["w"]}, loss

    dice = np.random.default_rng(0)
    x = dice.normal(size=(200, 3)).astype(np.float32)
    y = x @ np.array([1.0, -2.0, 0.5], np.float32)
    params = {"w": jnp.zeros(3)}
    graph = stateful(train.get_concrete_function(params, x, y), "params")
    export_stateful(graph, {"params": params}, tmp_path / "step")
    bundle, state = Bundle.load(tmp_path / "step"), None
    for _ in range(40):
        out, state = step(bundle, {"x": x, "y": y}, state)
    assert next(iter(out.values())) < 1e-3  # the loss
    wanted = np.linalg.lstsq(x, y, rcond=None)[0]
    np.testing.assert_allclose(state["params['w']"], wanted, atol=1e-4)  # type: ignore[index]  # it has run


def test_what_does_not_fit_is_refused(saved: Path, tmp_path: Path) -> None:
    concrete = running_mean.get_concrete_function(STATE, TensorSpec(("b", 2), "float32"))
    graph = stateful(concrete, "state")
    for wrong, says in (
        ({}, r"state\['count'\], state\['mean'\] is missing"),
        ({"state": {**STATE, "more": 1.0}}, r"state\['more'\] is missing, or none of it"),
        ({"state": {**STATE, "mean": jnp.zeros(3)}}, r"is float32\[3\], not float32\[2\]"),
    ):
        with pytest.raises(InputError, match=says):
            export_stateful(graph, wrong, tmp_path / "no")

    @function
    def drawn(key: Any) -> Any:
        return jax.random.split(key)[0]

    keyed = stateful(drawn.get_concrete_function(jax.random.key(0)), "key")
    with pytest.raises(InputError, match=r"key is key<fry>\[\], which no bundle holds"):
        export_stateful(keyed, {"key": jax.random.key(0)}, tmp_path / "no")
    with pytest.raises(InputError, match="not a function with updates"):
        export_stateful(concrete.graph, {"state": STATE}, tmp_path / "no")
    assert not (tmp_path / "no").exists()
    bundle = Bundle.load(saved)
    for given, state, says in (
        ({}, None, "'call' needs 'x'"),
        ({"x": batches()[0]}, {"state['mean']": np.zeros(2)}, r"needs \"state\['count'\]\""),
        ({"x": batches()[0][:, :1]}, None, r"'x' is float32\[3, 1\], not float32\[b,2\]"),
        ({"x": np.array([["a", "b"]])}, None, "'x' is <U1"),
    ):
        with pytest.raises(InputError, match=says):
            step(bundle, given, state)
    with pytest.raises(InputError, match="no signature 'nope'"):
        step(bundle, {}, signature="nope")


def test_a_graph_with_updates_is_not_saved_without_them(saved: Path) -> None:
    from dataclasses import replace

    bundle = Bundle.load(saved)
    (first, *_) = bundle.graph.nodes[0].outputs
    lossy = replace(bundle, graph=replace(bundle.graph, updates={"call": {"x": first.id}}))
    with pytest.raises(InputError, match="has updates, which a bundle does not hold"):
        lossy.to_files()
