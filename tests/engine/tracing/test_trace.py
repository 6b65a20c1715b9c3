"""What a preprocessing function may call: JAX in all its forms, NumPy where JAX has a twin, host ops for the rest."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pyarrow as pa
import pytest
from drivetrain.engine import ops
from drivetrain.errors import InputError
from flax import linen, nnx

pytestmark = pytest.mark.engine

X = np.array([0.5, 2.0, -1.0, 4.0])
N = pa.array([3, None, -2, 8])


@jax.jit
def squashed(x: Any) -> Any:
    return jnp.tanh(x) * 2


@pytest.mark.slow
def test_every_form_of_jax(learn: Any) -> None:
    head = linen.Dense(3)
    params: Any = head.init(jax.random.key(0), jnp.ones((1, 2)))
    layer: Any = nnx.Linear(2, 2, rngs=nnx.Rngs(0))
    table = np.arange(12, dtype=np.float32).reshape(4, 3)

    def fn(c: Any) -> Any:
        x, both = c["x"], jnp.stack([c["x"], c["y"]], -1)
        gradient: Any = jax.grad(squashed)
        return {
            "jnp": jnp.log1p(jnp.abs(x)), "lax": jax.lax.select(x > 1, x, -x), "jit": squashed(x),
            "vmap": jax.vmap(lambda row: jnp.outer(row, row).sum())(both),
            "scan": jax.lax.scan(lambda a, b: (a + b, a), jnp.zeros_like(x), both.T)[0],
            "loop": jax.lax.fori_loop(0, 3, lambda _, v: v * 0.5, x), "grad": jax.vmap(gradient)(x),
            "linen": head.apply(params, both), "nnx": layer(both),
            "gather": jnp.asarray(table)[jnp.clip(c["y"].astype(jnp.int32), 0, 3)],
        }  # fmt: skip

    y = np.array([0.0, 1.0, 2.0, 3.0])
    _, out = learn(fn, x=X, y=y)
    both = np.stack([X, y], -1)
    dense = {name: np.asarray(value, np.float64) for name, value in params["params"].items()}
    wanted = {
        "jnp": np.log1p(np.abs(X)), "lax": np.where(X > 1, X, -X), "jit": 2 * np.tanh(X), "vmap": both.sum(1) ** 2,
        "scan": X + y, "loop": X / 8, "grad": 2 / np.cosh(X) ** 2, "gather": table[y.astype(int)],
        "linen": both @ dense["kernel"] + dense["bias"], "nnx": both @ np.asarray(layer.kernel[...]),
    }  # fmt: skip
    assert wanted.keys() == out.keys()
    for name, values in wanted.items():
        np.testing.assert_allclose(out[name], values, rtol=2e-5, atol=1e-6, err_msg=name)


@pytest.mark.parametrize("name", ["log1p", "exp", "sqrt", "abs", "sign", "square", "negative", "arctan", "floor"])
def test_ufuncs_of_columns_are_numpys(learn: Any, name: str) -> None:
    def fn(c: Any) -> Any:
        given = abs(c["n"]) if name in ("log1p", "sqrt") else c["n"]
        return {"y": ops.cast(getattr(np, name)(given), "float32")}

    _, out = learn(fn, n=N)
    numbers = np.array([3, np.nan, -2, 8])
    wanted = getattr(np, name)(np.abs(numbers) if name in ("log1p", "sqrt") else numbers)
    np.testing.assert_allclose(out["y"], wanted, rtol=1e-6)


def test_more_of_numpy(learn: Any) -> None:
    def fn(c: Any) -> Any:
        n = c["n"]
        return {
            "max": ops.cast(np.maximum(n, 1), "float32"), "add": ops.cast(np.add(2, n), "float32"),
            "is": ops.fill_missing(np.greater(n, 2), False), "word": ops.fill_missing(np.equal(c["s"], "a"), False),
            "stack": np.stack([n, n * 2], axis=-1), "where": np.where(ops.is_missing(n), 0.0, n),
            "clip": np.clip(n, 0, 5), "power": ops.cast(np.power(n, 2), "float32"),
        }  # fmt: skip

    _, out = learn(fn, n=N, s=["a", None, "b", "a"])
    n = np.array([3, np.nan, -2, 8])
    np.testing.assert_array_equal(out["max"], np.maximum(n, 1))
    np.testing.assert_array_equal(out["add"], n + 2)
    assert out["is"].tolist() == [True, False, False, True]
    assert out["word"].tolist() == [True, False, False, True]
    np.testing.assert_array_equal(out["stack"], np.stack([n, n * 2], -1))
    np.testing.assert_array_equal(out["where"], [3, 0, -2, 8])
    np.testing.assert_array_equal(out["clip"], np.clip(n, 0, 5))
    np.testing.assert_array_equal(out["power"], n**2)


@pytest.mark.parametrize(
    "fn",
    [
        lambda c: {"y": np.log1p(c["x"])},  # a JAX array: NumPy asks it for its values
        lambda c: {"y": np.add.reduce(c["n"])},
        lambda c: {"y": np.frompyfunc(lambda v: v, 1, 1)(c["n"])},
        lambda c: {"y": np.busday_count(c["n"], c["n"])},
        lambda c: {"y": np.asarray(c["n"])},
    ],
)
def test_what_cannot_be_traced_says_what_to_do(learn: Any, fn: Any) -> None:
    with pytest.raises(InputError, match=r"engine\.custom_ops\.host_op") as caught:
        learn(fn, x=X, n=N)
    assert "test_trace.py" in str(caught.value)


def test_text_in_numpy_names_the_column(learn: Any) -> None:
    with pytest.raises(InputError, match="column 's' is text"):
        learn(lambda c: {"y": np.log(c["s"])}, s=["a"])
