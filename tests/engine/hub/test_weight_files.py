"""Weights of safetensors files that safetensors itself wrote, into trees of other names and shapes."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from drivetrain import hub
from drivetrain.engine import nnx_model
from drivetrain.errors import InputError
from flax import nnx
from safetensors.numpy import save_file

pytestmark = pytest.mark.engine

RNG = np.random.default_rng(0)
TORCH: dict[str, Any] = {  # as PyTorch names and turns them: weights are [out, in]
    "encoder.layer.0.linear.weight": RNG.normal(size=(6, 4)).astype(np.float32),
    "encoder.layer.0.linear.bias": RNG.normal(size=6).astype(np.float32),
    "encoder.layer.0.qkv.weight": RNG.normal(size=(9, 6)).astype(np.float32),
    "encoder.position_ids": np.arange(512),
}
LIKE = {
    "layers": [
        {
            "linear": {"kernel": np.zeros((4, 6), np.float32), "bias": np.zeros(6, np.float32)},
            **{name: {"kernel": np.zeros((6, 3), np.float32)} for name in ("q", "k", "v")},
        }
    ]
}
RULES: dict[str, Any] = {
    "names": {r"encoder\.layer\.(\d+)\.(\w+)\.weight": r"layers/\1/\2/kernel",
              r"encoder\.layer\.(\d+)\.(\w+)\.bias": r"layers/\1/\2/bias"},
    "transposes": {r".*/kernel": (1, 0)},
    "splits": {r"(.*)\.qkv\.weight": ([r"\1.q.weight", r"\1.k.weight", r"\1.v.weight"], 0)},
    "ignore": [r".*position_ids"],
}  # fmt: skip


@pytest.fixture
def file(tmp_path: Path) -> Path:
    save_file(TORCH, tmp_path / "model.safetensors")
    return tmp_path / "model.safetensors"


def test_names_transposes_and_splits(file: Path) -> None:
    (layer,) = hub.weights(file, LIKE, **RULES)["layers"]
    np.testing.assert_array_equal(layer["linear"]["kernel"], TORCH["encoder.layer.0.linear.weight"].T)
    np.testing.assert_array_equal(layer["linear"]["bias"], TORCH["encoder.layer.0.linear.bias"])
    for number, name in enumerate("qkv"):
        part = TORCH["encoder.layer.0.qkv.weight"][3 * number : 3 * number + 3]
        np.testing.assert_array_equal(layer[name]["kernel"], part.T)


def test_an_nnx_model_from_several_files_and_shapes_alone(tmp_path: Path) -> None:
    class Net(nnx.Module):
        def __init__(self, rngs: nnx.Rngs) -> None:
            self.first = nnx.Linear(4, 8, rngs=rngs)
            self.second = nnx.Linear(8, 2, rngs=rngs)

        def __call__(self, features: Any) -> Any:
            return self.second(nnx.relu(self.first(features["x"])))

    model = nnx_model(Net)
    first, second = RNG.normal(size=(4, 8)).astype(np.float32), RNG.normal(size=(8, 2)).astype(ml_dtypes.bfloat16)
    save_file({"first.kernel": first, "first.bias": np.ones(8, np.float16)}, tmp_path / "1.safetensors")
    save_file({"second.kernel": second, "second.bias": np.ones(2)}, tmp_path / "2.safetensors")
    like = jax.eval_shape(model.init, jax.random.key(0))
    params = hub.weights([tmp_path / "1.safetensors", tmp_path / "2.safetensors"], like)
    assert {str(leaf.dtype) for leaf in jax.tree.leaves(params)} == {"float32"}
    x = RNG.normal(size=(5, 4)).astype(np.float32)
    wanted = np.maximum(x @ first + 1, 0) @ second.astype(np.float32) + 1
    np.testing.assert_allclose(model.apply(params, {"x": jnp.asarray(x)}), wanted, rtol=1e-5)


def test_what_does_not_fit_is_listed(file: Path) -> None:
    with pytest.raises(InputError) as caught:
        hub.weights(file, {"a": {"b": np.zeros(3, np.float32)}}, ignore=[r"encoder\.layer.*"])
    said = caught.value.message
    assert "encoder.position_ids (encoder/position_ids) is unexpected" in said
    assert "a/b is missing" in said
    with pytest.raises(InputError, match=r"linear/kernel is \[6, 4\], not \[4, 6\].*q/kernel is \[3, 6\], not"):
        hub.weights(file, LIKE, **{**RULES, "transposes": {}})
    ids = {"encoder": {"position_ids": np.zeros(512, np.float32)}}
    with pytest.raises(InputError, match="position_ids is int64, not float32"):
        hub.weights(file, ids, ignore=[r"encoder\.layer.*"])
    same = {**RULES["names"], r"encoder\.layer\.0\.linear\.(weight|bias)": "layers/0/linear/kernel"}
    with pytest.raises(InputError, match="kernel is given twice, by encoder"):
        hub.weights(file, LIKE, **{**RULES, "names": dict(reversed(same.items())), "transposes": {}})


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"names": {"(": "x"}}, r"the pattern '\(' is not a regular expression"),
        ({"names": {r"encoder(.*)": r"\2"}}, r"'\\\\2' is not a name|'\\\\2' cannot be made"),
        ({"transposes": {r".*/kernel": (0, 2, 1)}}, r"cannot be transposed by \(0, 2, 1\)"),
        ({"splits": {r"(.*)\.qkv\.weight": (["a", "b"], 0)}}, r"\[9, 6\]: it has no 2 equal parts along axis 0"),
    ],
)
def test_rules_that_are_none(file: Path, change: Any, said: str) -> None:
    with pytest.raises(InputError, match=said):
        hub.weights(file, LIKE, **{**RULES, **change})


def test_files_that_are_none(tmp_path: Path, file: Path) -> None:
    with pytest.raises(InputError, match="does not exist"):
        hub.weights(tmp_path / "nothing", LIKE)
    file.write_bytes(file.read_bytes()[:-9])
    with pytest.raises(InputError, match="cannot be read as safetensors"):
        hub.weights(file, LIKE, **RULES)
    (tmp_path / "pickle").write_bytes(b"\x80\x04.")
    with pytest.raises(InputError, match="cannot be read as safetensors"):
        hub.weights(tmp_path / "pickle", LIKE)
