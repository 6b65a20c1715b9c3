"""Modules against the functions that they were made of: values, gradients by jax.grad, training, errors."""

from pathlib import Path
from typing import Any

import drivetrain as dt
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from drivetrain import hub
from drivetrain.errors import InputError

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def published(encoder: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    fn, params, x = encoder
    folder = tmp_path_factory.mktemp("hub") / "encoder"
    hub.save(hub.module(fn, params, x), folder)
    return folder


def named(params: Any) -> Any:
    """The params by the names that a module gives them: lists by place."""
    return {"dense": params["dense"], "blocks": {str(number): block for number, block in enumerate(params["blocks"])}}


def close(actual: Any, wanted: Any) -> None:
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-5), actual, wanted)


def test_it_is_the_function(encoder: Any, published: Path) -> None:
    fn, params, x = encoder
    loaded = dt.hub.load(published)
    close(loaded.params, named(params))
    for rows in (1, 7, 600):
        many = np.resize(x, (rows, 5))
        close(loaded(many), fn(params, many))
        close(jax.jit(loaded)(loaded.params, many), fn(params, many))
    assert "inputs: float32[b,5]) -> output: float32[b,3], 39 params, frozen" in repr(loaded)


def test_params_that_a_traced_function_asks_for_first_are_arrays(encoder: Any, published: Path) -> None:
    """As the `init` of a model does, which `fit` traces: a second training would see what the first had traced."""
    loaded = dt.hub.load(published)
    close(jax.jit(lambda: loaded.params)(), named(encoder[1]))
    close(loaded.params, named(encoder[1]))
    close(jax.jit(lambda scale: jax.tree.map(lambda leaf: leaf * scale, loaded.params))(1.0), named(encoder[1]))


def test_gradients_are_those_of_the_function(encoder: Any, published: Path) -> None:
    fn, params, x = encoder
    loaded = hub.load(published, trainable=True)

    def loss(call: Any) -> Any:
        return lambda params, x: jnp.sum(jnp.sin(call(params, x)))

    by_params, by_x = jax.jit(jax.grad(loss(loaded), (0, 1)))(loaded.params, x)
    wanted_params, wanted_x = jax.jit(jax.grad(loss(fn), (0, 1)))(params, x)
    close(by_params, named(wanted_params))
    close(by_x, wanted_x)


def test_frozen_params_get_no_gradient_and_inputs_do(encoder: Any, published: Path) -> None:
    fn, params, x = encoder
    frozen = hub.load(published)
    by_params, by_x = jax.jit(jax.grad(lambda p, x: jnp.sum(frozen(p, x) ** 2), (0, 1)))(frozen.params, x)
    assert not any(np.any(leaf) for leaf in jax.tree.leaves(by_params))
    close(by_x, jax.jit(jax.grad(lambda x: jnp.sum(fn(params, x) ** 2)))(x))


def test_training_through_a_module_is_training_the_original(encoder: Any, published: Path) -> None:
    fn, params, x = encoder
    loaded = hub.load(published, trainable=True)
    target = np.cos(x[:, :1])
    head = np.full((3, 1), 0.3, np.float32)

    def trained(call: Any, start: Any) -> tuple[Any, list[float]]:
        optimizer = optax.adam(0.05)

        def loss(both: Any) -> Any:
            return jnp.mean((call(both["base"], x) @ both["head"] - target) ** 2)

        @jax.jit
        def step(both: Any, state: Any) -> Any:
            value, gradient = jax.value_and_grad(loss)(both)
            updates, state = optimizer.update(gradient, state)
            return optax.apply_updates(both, updates), state, value

        both = {"base": start, "head": head}
        state, losses = optimizer.init(both), []
        for _ in range(30):
            both, state, value = step(both, state)
            losses.append(float(value))
        return both, losses

    ours, our_losses = trained(loaded, loaded.params)
    theirs, their_losses = trained(fn, params)
    np.testing.assert_allclose(our_losses, their_losses, rtol=1e-3)
    assert our_losses[-1] < our_losses[0] / 2
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-2, atol=1e-3), ours["base"], named(theirs["base"])
    )


def test_trained_params_are_published_without_the_code(encoder: Any, published: Path, tmp_path: Path) -> None:
    fn, params, x = encoder
    loaded = hub.load(published, trainable=True)
    doubled = jax.tree.map(lambda leaf: leaf * 2, loaded.params)
    hub.save(loaded.with_params(doubled), tmp_path / "tuned")
    close(hub.load(tmp_path / "tuned")(x), fn(jax.tree.map(lambda leaf: leaf * 2, params), x))
    close(loaded(x), fn(params, x))
    with pytest.raises(InputError, match=r"blocks/1 is missing; extra is unexpected"):
        loaded.with_params({**doubled, "blocks": {"0": doubled["blocks"]["0"]}, "extra": x})


def test_a_module_in_a_module(encoder: Any, published: Path, tmp_path: Path) -> None:
    fn, params, x = encoder
    base = hub.load(published, trainable=True)

    def whole(params: Any, x: Any) -> Any:
        return {"score": base(params["base"], x) @ params["head"], "code": base(x)}

    both = {"base": base.params, "head": np.ones(3, np.float32)}
    hub.save(hub.module(whole, both, x), tmp_path / "whole")
    loaded = hub.load(tmp_path / "whole", trainable=True)
    output = loaded(x)
    close(output, {"score": fn(params, x).sum(-1), "code": fn(params, x)})
    by_base = jax.jit(jax.grad(lambda p: jnp.sum(loaded(p, x)["score"] ** 2)))(loaded.params)["base"]
    close(by_base, named(jax.jit(jax.grad(lambda p: jnp.sum(fn(p, x).sum(-1) ** 2)))(params)))


def test_several_inputs_of_several_dtypes(tmp_path: Path) -> None:
    table = np.random.default_rng(1).normal(size=(10, 4)).astype(np.float32)

    def fn(params: Any, inputs: Any) -> Any:
        return params["table"][inputs["ids"]] * inputs["scale"][:, None]

    inputs = {"ids": np.array([1, 9, 3], np.int32), "scale": np.array([1.0, 2.0, 0.5], np.float32)}
    module = hub.module(fn, {"table": table}, inputs)
    wanted = table[[1, 9, 3]] * inputs["scale"][:, None]
    np.testing.assert_allclose(module(inputs), wanted, rtol=1e-6)
    grads = jax.grad(lambda p: jnp.sum(module(p, inputs)))(module.params)
    np.testing.assert_allclose(grads["table"].sum(), inputs["scale"].sum() * 4, rtol=1e-6)
    with pytest.raises(InputError, match=r"differ in their batch: \{'ids': 3, 'scale': 2\}"):
        module({**inputs, "scale": inputs["scale"][:2]})
    with pytest.raises(InputError, match=r"takes 2 inputs: \(ids: int32\[b\], scale: float32\[b\]\)"):
        module(inputs["ids"])


@pytest.mark.parametrize(
    ("inputs", "said"),
    [
        (np.zeros((2, 4), np.float32), r"input 'inputs' is float32\[2,4\]: encoder@1 is \(inputs: float32\[b,5\]\)"),
        (np.zeros((2, 5), np.int32), r"input 'inputs' is int32\[2,5\]"),
        (np.zeros(5, np.float32), r"input 'inputs' is float32\[5\]"),
        (np.zeros((0, 5), np.float32), r"input 'inputs' is float32\[0,5\]"),
        ({"x": np.zeros((2, 5), np.float32)}, "input 'inputs' is missing"),
    ],
)
def test_errors_name_the_inputs(encoder: Any, tmp_path: Path, inputs: Any, said: str) -> None:
    fn, params, x = encoder
    hub.save(hub.module(fn, params, x), tmp_path / "e", card=hub.ModelCard(name="encoder"))
    with pytest.raises(InputError, match=said) as caught:
        hub.load(tmp_path / "e")(inputs)
    assert caught.value.where is not None
    assert caught.value.where.startswith(__file__)


def test_second_gradients_are_refused(encoder: Any, published: Path) -> None:
    x = encoder[2]
    loaded = hub.load(published, trainable=True)

    def loss(x: Any) -> Any:
        return jnp.sum(loaded(x) ** 2)

    twice = jax.grad(lambda x: jnp.sum(jax.grad(loss)(x) ** 2))
    for call in (twice, jax.hessian(loss), jax.jit(twice)):
        with pytest.raises(InputError, match="was differentiated twice, and its program is saved with its first"):
            call(x)


def test_what_has_no_gradient_is_not_trained(encoder: Any, tmp_path: Path) -> None:
    from drivetrain.engine.bundles.bundle import Bundle
    from drivetrain.engine.lowering.lower import export_program
    from drivetrain.engine.lowering.programs import Payload
    from drivetrain.engine.tracing.primitives import shaped

    fn, params, x = encoder
    bundle = hub.module(fn, params, x).bundle
    exported = jax.export.deserialize(bytearray(bundle.payload.programs["module-0"]))
    shapes = [shaped(aval.shape, aval.dtype) for aval in exported.in_avals]
    program = export_program(exported.call, shapes)
    bare = Bundle(bundle.graph, Payload({"module-0": program}, bundle.payload.weights, {}), bundle.export)
    hub.save(bare, tmp_path / "bare")
    with pytest.raises(InputError, match="saved without its gradient, so it cannot be trained"):
        hub.load(tmp_path / "bare", trainable=True)
    frozen = hub.load(tmp_path / "bare")
    head = jax.grad(lambda w: jnp.sum(frozen(frozen.params, x) @ w))(np.ones(3, np.float32))
    np.testing.assert_allclose(head, np.asarray(fn(params, x)).sum(0), rtol=1e-4)
    with pytest.raises(InputError, match="saved without its gradient, and was differentiated"):
        jax.grad(lambda x: jnp.sum(frozen(x)))(x)


@pytest.mark.parametrize(
    ("fn", "inputs", "said"),
    [
        (lambda p, x: x.reshape(-1), np.zeros((2, 3), np.float32), r"output 'output' is float32\['3\*b'\]"),
        (lambda p, x: "text", np.zeros((2, 3), np.float32), "the function gave 'output': 'text'"),
        (lambda p, x: x if x.shape[0] == 2 else 1 / 0, np.zeros((2, 3), np.float32), "cannot be saved: ZeroDivision"),
        (lambda p, x: x, 3.0, "input 'inputs' is float"),
        (lambda p, x: x, {}, "the inputs are named"),
    ],
)
def test_what_cannot_be_saved(fn: Any, inputs: Any, said: str) -> None:
    with pytest.raises(InputError, match=said):
        hub.module(fn, {}, inputs)


def test_params_with_one_path_are_refused() -> None:
    with pytest.raises(InputError, match="have the same path"):
        hub.module(lambda p, x: x, {"a/b": np.ones(1), "a": {"b": np.ones(1)}}, np.zeros((2, 3), np.float32))


def test_equal_functions_give_equal_bytes(encoder: Any) -> None:
    fn, params, x = encoder
    assert hub.module(fn, params, x).bundle.to_files() == hub.module(fn, params, x[:2]).bundle.to_files()
