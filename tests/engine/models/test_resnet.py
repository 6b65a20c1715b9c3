"""Residual networks: sizes that are published, Keras's outputs from the same weights, what a precision changes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pyarrow as pa
import pytest
from drivetrain.engine import Model, TrainingRun, nnx_model
from drivetrain.engine.graphs.graph import FieldSpec
from drivetrain.engine.models import ResNet
from drivetrain.errors import InputError
from flax import nnx

pytestmark = pytest.mark.engine
PAGE = (Path(__file__).parents[3] / "docs" / "models.md").read_text("utf-8")


def model_of(depths: tuple[int, ...], classes: int = 1000, **options: Any) -> Model:
    class Images(nnx.Module):
        def __init__(self, rngs: nnx.Rngs) -> None:
            self.network = ResNet(depths, classes, rngs=rngs, **options)

        def __call__(self, features: Mapping[str, Any]) -> Any:
            return self.network(features["image"])

    return nnx_model(Images)


def images(*shape: int, dtype: Any = jnp.uint8) -> dict[str, Any]:
    return {"image": jax.ShapeDtypeStruct(shape, dtype)}  # type: ignore[no-untyped-call]


def count(tree: Any) -> int:
    return sum(leaf.size for leaf in jax.tree.leaves(tree))


@pytest.mark.parametrize(
    ("depths", "bottleneck", "parameters"),  # as torchvision's documentation says of resnet18, 34, 50 and 101
    [
        ((2, 2, 2, 2), False, 11_689_512),
        ((3, 4, 6, 3), False, 21_797_672),
        ((3, 4, 6, 3), True, 25_557_032),
        pytest.param((3, 4, 23, 3), True, 44_549_160, marks=pytest.mark.slow),
    ],
)
def test_sizes_are_those_published(depths: tuple[int, ...], bottleneck: bool, parameters: int) -> None:
    variables = jax.eval_shape(model_of(depths, bottleneck=bottleneck).init, jax.random.key(0))
    assert count(variables["params"]) == parameters
    assert re.search(
        rf"^\| `{re.escape(str(depths))}` \| `{bottleneck}` \| ResNet-\d+ \| {parameters:,} \|$", PAGE, re.M
    )


@pytest.mark.slow
def test_what_the_page_shows_is_resnet_50() -> None:
    (block,) = re.findall(r"^## ResNet.*?```python\n(.*?)```", PAGE, re.DOTALL | re.MULTILINE)
    defined: dict[str, Any] = {}
    exec(block, defined)
    variables = jax.eval_shape(defined["model"].init, jax.random.key(0))
    assert count(variables["params"]) == 25_557_032
    logits = jax.eval_shape(defined["model"].apply, variables, images(2, 224, 224, 3))
    assert (logits.shape, logits.dtype) == ((2, 1000), jnp.float32)


@pytest.mark.slow
def test_resnet_50_takes_4_billion_multiplications_and_additions() -> None:
    model = model_of((3, 4, 6, 3))
    variables = jax.eval_shape(model.init, jax.random.key(0))
    lowered = jax.jit(model.apply).lower(variables, images(1, 224, 224, 3))
    assert lowered.out_info.shape == (1, 1000)
    cost: Any = lowered.cost_analysis()
    # 4.09 as usually counted; XLA leaves out the products with a padded edge.
    assert 3.9e9 < cost["flops"] / 2 < 4.1e9


@pytest.mark.parametrize(("small", "first", "last"), [(True, 8, 4), (False, 4, 1)])
def test_each_stage_after_the_first_halves_the_image(small: bool, first: int, last: int) -> None:
    model = model_of((1, 2), 10, channels=1, width=8, bottleneck=False, small_images=small)
    variables = jax.eval_shape(model.init, jax.random.key(0))
    jaxpr = jax.make_jaxpr(model.apply)(variables, images(5, 8, 8, 1))
    shapes = [e.outvars[0].aval.shape for e in jaxpr.jaxpr.eqns if e.primitive.name == "conv_general_dilated"]
    assert shapes[0] == (5, first, first, 8)
    assert shapes[-1] == (5, last, last, 16)
    assert jaxpr.out_avals[0].shape == (5, 10)


@pytest.mark.slow
def test_a_block_begins_as_the_identity() -> None:
    @jax.jit
    def through(hidden: jax.Array) -> list[jax.Array]:
        network = ResNet((3,), 2, width=4, channels=4, bottleneck=False, small_images=True, rngs=nnx.Rngs(0))
        network.eval()  # type: ignore[no-untyped-call]
        return [block(hidden) for block in network.blocks]

    positive = np.random.default_rng(0).random((2, 6, 6, 4), np.float32)
    for hidden in through(positive):
        np.testing.assert_array_equal(hidden, positive)


def test_all_is_computed_in_the_dtype_of_the_parameters_and_statistics_in_float32() -> None:
    model = model_of((1, 1), 10, width=8)
    variables = jax.eval_shape(model.init, jax.random.key(0))
    half = jax.tree.map(lambda leaf: leaf.update(dtype=jnp.bfloat16), variables["params"])
    assert model.train is not None
    jaxpr, (_, state) = jax.make_jaxpr(model.train, return_shape=True)(
        half, variables["state"], images(2, 32, 32, 3), jax.random.key(0)
    )
    heavy = [e for e in jaxpr.jaxpr.eqns if e.primitive.name in ("conv_general_dilated", "dot_general")]
    assert len(heavy) == 1 + 3 + 1 + 3 + 1 + 1  # stem, two blocks with a projection each, head
    assert {str(each.outvars[0].aval.dtype) for each in heavy} == {"bfloat16"}
    assert {str(leaf.dtype) for leaf in jax.tree.leaves(state)} == {"float32"}


@pytest.mark.slow
def test_it_learns_with_batch_statistics_in_bfloat16(tmp_path: Path, problem: ModuleType) -> None:
    """Whether a bar lies or stands: by `fit`, and evaluated by the statistics that it kept."""
    random = np.random.default_rng(0)
    stands = random.integers(0, 2, 512).astype(np.int32)
    pixels = random.normal(0.0, 0.3, (512, 8, 8, 1)).astype(np.float32)
    for number in range(512):
        row, column = random.integers(1, 5, 2)
        pixels[number, row, column : column + 3] += 1
        if stands[number]:
            pixels[number] = pixels[number].transpose(1, 0, 2)
    rows = pa.table({"image": pa.FixedSizeListArray.from_arrays(pixels.ravel(), 64), "stands": stands})
    content = problem.write(tmp_path, {"train": rows.slice(0, 384), "eval": rows.slice(384)})

    class Bars(nnx.Module):
        def __init__(self, rngs: nnx.Rngs) -> None:
            self.network = ResNet((1, 1), 2, width=8, channels=1, bottleneck=False, small_images=True, rngs=rngs)

        def __call__(self, features: Mapping[str, Any]) -> Any:
            return self.network(features["image"].reshape(-1, 8, 8, 1))

    specs = {"image": FieldSpec("float32", (64,)), "stands": FieldSpec("int32")}
    trained = TrainingRun(specs, content, epochs=6, batch_size=32).fit(
        nnx_model(Bars),
        loss=lambda logits, batch: optax.softmax_cross_entropy_with_integer_labels(logits, batch["stands"]).mean(),
        predict=lambda logits: {"probabilities": jax.nn.softmax(logits)},
        optimizer=optax.adam(3e-3),
        label="stands",
        metrics={"accuracy": lambda logits, batch: (logits.argmax(-1) == batch["stands"]).mean()},
        precision="bfloat16",
    )
    assert trained.history[-1].metrics["accuracy"] > 0.97
    assert {str(leaf.dtype) for leaf in jax.tree.leaves(trained.params)} == {"float32"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"depths": ()}, r"depths is \(\)"),
        ({"depths": (2, 0)}, r"depths is \(2, 0\)"),
        ({"depths": (1,), "classes": 0}, "classes is 0"),
        ({"depths": (1,), "width": -1}, "width is -1"),
    ],
)
def test_a_network_of_nothing_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        ResNet(**{"classes": 10, **options}, rngs=nnx.Rngs(0))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy keyword:DeprecationWarning")  # Keras
def test_resnet_50_gives_what_keras_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keras's has the strides of 2015, so they are moved there to where v1.5 has them.

    Keras pads even sizes of an image on one side alone there. 65 pixels become 17, 9, 5 and 3, of which none is even.
    """
    monkeypatch.setenv("KERAS_BACKEND", "jax")
    keras = pytest.importorskip("keras")
    theirs = keras.applications.ResNet50(weights=None, input_shape=(65, 65, 3), classifier_activation=None)
    for stage in (3, 4, 5):
        theirs.get_layer(f"conv{stage}_block1_1_conv").strides = (1, 1)
        theirs.get_layer(f"conv{stage}_block1_2_conv").strides = (2, 2)
    random = np.random.default_rng(0)
    for layer in theirs.layers:
        if isinstance(layer, keras.layers.BatchNormalization):
            layer.epsilon = 1e-5
            scale, centre, mean, variance = (random.normal(0, 0.1, weight.shape) for weight in layer.weights)
            layer.set_weights([1 + scale, centre, mean, 1 + np.abs(variance)])

    def ours(conv: str, norm: str) -> tuple[dict[str, Any], dict[str, Any]]:
        kernel, bias = theirs.get_layer(conv).get_weights()
        assert not bias.any()  # without an effect before a batch normalisation
        scale, centre, mean, variance = theirs.get_layer(norm).get_weights()
        return {"conv": {"kernel": kernel}, "norm": {"scale": scale, "bias": centre}}, {
            "norm": {"mean": mean, "var": variance}
        }

    params: dict[str, Any] = {"blocks": {}}
    state: dict[str, Any] = {"blocks": {}}
    params["stem"], state["stem"] = ours("conv1_conv", "conv1_bn")
    names = [f"conv{stage + 2}_block{n + 1}" for stage, depth in enumerate((3, 4, 6, 3)) for n in range(depth)]
    for number, name in enumerate(names):
        params["blocks"][number], state["blocks"][number] = {"branch": {}}, {"branch": {}}
        for at in range(3):
            of_params, of_state = ours(f"{name}_{at + 1}_conv", f"{name}_{at + 1}_bn")
            params["blocks"][number]["branch"][at], state["blocks"][number]["branch"][at] = of_params, of_state
        if name.endswith("block1"):
            of_params, of_state = ours(f"{name}_0_conv", f"{name}_0_bn")
            params["blocks"][number]["shortcut"], state["blocks"][number]["shortcut"] = of_params, of_state
    kernel, bias = theirs.get_layer("predictions").get_weights()
    params["head"] = {"kernel": kernel, "bias": bias}
    model = model_of((3, 4, 6, 3))
    variables = {"params": {"network": params}, "state": {"network": state}}
    expected = jax.eval_shape(model.init, jax.random.key(0))
    assert jax.tree.map(jnp.shape, variables) == jax.tree.map(jnp.shape, expected)
    features = {"image": random.normal(size=(4, 65, 65, 3)).astype(np.float32)}
    logits = jax.jit(model.apply)(variables, features)
    np.testing.assert_allclose(logits, theirs(features["image"], training=False), rtol=1e-3, atol=1e-4)
    assert model.train is not None
    logits, _ = jax.jit(model.train)(variables["params"], variables["state"], features, jax.random.key(0))
    np.testing.assert_allclose(logits, theirs(features["image"], training=True), rtol=1e-2, atol=1e-3)
