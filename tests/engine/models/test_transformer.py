"""Encoder and decoder against transformers, Flax and NumPy; rows of several sequences; sizes by count."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from drivetrain.engine.models import (
    BERT_BASE,
    BERT_LARGE,
    Decoder,
    Encoder,
    MaskedLanguageModel,
    SequenceClassifier,
    TransformerSize,
    training_flops,
)
from drivetrain.engine.models.transformer import SelfAttention, rotated
from drivetrain.engine.training.input import from_arrays
from drivetrain.engine.training.model import nnx_model
from drivetrain.engine.training.random_streams import random_streams
from drivetrain.errors import InputError
from drivetrain.tests.golden.transformers_oracle import CLASSES, SIZES, weight
from flax import nnx

pytestmark = pytest.mark.engine
Lively = Callable[[Callable[[], Any]], Any]

GOLDEN = json.loads((Path(__file__).parents[2] / "golden" / "transformers.json").read_text("utf-8"))
SIZE = TransformerSize(**SIZES)  # type: ignore[arg-type]  # all of them are numbers
HEADS = (SIZE.heads, SIZE.width // SIZE.heads)
INPUTS = {name: jnp.asarray(values, jnp.int32) for name, values in GOLDEN["inputs"].items()}


def dense(path: str, kernel: tuple[int, ...], *, turned: bool = False, outputs: int = 1) -> dict[str, Any]:
    """Kernel and bias of a layer of transformers, in our shape, of which the last dimensions are outputs."""
    rows = int(np.prod(kernel[:-outputs]))
    columns = int(np.prod(kernel[-outputs:]))
    matrix = weight(f"{path}/kernel", (columns, rows)).T if turned else weight(f"{path}/kernel", (rows, columns))
    return {"kernel": matrix.reshape(kernel), "bias": weight(f"{path}/bias", (columns,)).reshape(kernel[-outputs:])}


def norm(path: str) -> dict[str, Any]:
    return {name: weight(f"{path}/{name}", (SIZE.width,)) for name in ("scale", "bias")}


def table(path: str, rows: int) -> dict[str, Any]:
    return {"embedding": weight(f"{path}/embedding", (rows, SIZE.width))}


def encoder_weights() -> dict[str, Any]:
    """BERT's in transformers, by the names of ours."""
    square, up = (SIZE.width, SIZE.width), (SIZE.width, SIZE.units)

    def block(path: str) -> dict[str, Any]:
        parts = [dense(f"{path}/attention/self/{name}", square) for name in ("query", "key", "value")]
        return {
            "attention": {
                "projection": {
                    "kernel": np.stack([part["kernel"].reshape(SIZE.width, *HEADS) for part in parts], axis=1),
                    "bias": np.stack([part["bias"].reshape(HEADS) for part in parts]),
                },
                "out": dense(f"{path}/attention/output/dense", (*HEADS, SIZE.width)),
            },
            "attention_norm": norm(f"{path}/attention/output/LayerNorm"),
            "up": dense(f"{path}/intermediate/dense", up),
            "down": dense(f"{path}/output/dense", up[::-1]),
            "down_norm": norm(f"{path}/output/LayerNorm"),
        }

    return {
        "tokens": table("bert/embeddings/word_embeddings", SIZE.vocabulary),
        "positions": table("bert/embeddings/position_embeddings", SIZE.length),
        "token_types": table("bert/embeddings/token_type_embeddings", 2),
        "norm": norm("bert/embeddings/LayerNorm"),
        "blocks": {layer: block(f"bert/encoder/layer/{layer}") for layer in range(SIZE.layers)},
    }


def decoder_weights() -> dict[str, Any]:
    """GPT-2's."""

    def block(path: str) -> dict[str, Any]:
        return {
            "attention": {
                "projection": dense(f"{path}/attn/c_attn", (SIZE.width, 3, *HEADS), turned=True, outputs=3),
                "out": dense(f"{path}/attn/c_proj", (*HEADS, SIZE.width), turned=True),
            },
            "attention_norm": norm(f"{path}/ln_1"),
            "up": dense(f"{path}/mlp/c_fc", (SIZE.width, SIZE.units), turned=True),
            "down": dense(f"{path}/mlp/c_proj", (SIZE.units, SIZE.width), turned=True),
            "down_norm": norm(f"{path}/ln_2"),
        }

    return {
        "tokens": table("transformer/wte", SIZE.vocabulary),
        "positions": table("transformer/wpe", SIZE.length),
        "blocks": {layer: block(f"transformer/h/{layer}") for layer in range(SIZE.layers)},
        "norm": norm("transformer/ln_f"),
    }


@nnx.jit
def outputs(module: Any, *inputs: Any, **named: Any) -> Any:
    """Compiled as a whole: one operation after the other takes a program each."""
    return module(*inputs, **named)


def filled(build: Callable[[nnx.Rngs], Any], weights: Mapping[str, Any]) -> Any:
    """A module with these parameters, all of them."""
    graph, state = nnx.split(nnx.eval_shape(lambda: build(random_streams(0))))
    shapes = jax.tree.map(jnp.shape, nnx.to_pure_dict(state))
    assert shapes == jax.tree.map(jnp.shape, dict(weights))
    nnx.replace_by_pure_dict(state, jax.tree.map(jnp.asarray, dict(weights)))
    return nnx.merge(graph, state)


@pytest.mark.slow
def test_the_encoder_predicts_masked_tokens_as_transformers_bert() -> None:
    head = {
        "dense": dense("cls/predictions/transform/dense", (SIZE.width, SIZE.width)),
        "norm": norm("cls/predictions/transform/LayerNorm"),
        "bias": weight("cls/predictions/bias", (SIZE.vocabulary,)),
    }
    model = filled(lambda rngs: MaskedLanguageModel(SIZE, rngs=rngs), {"encoder": encoder_weights(), **head})
    expected = np.asarray(GOLDEN["masked_language_model"])
    seen = np.asarray(INPUTS["segment_ids"]) == 1
    np.testing.assert_allclose(np.asarray(outputs(model, **INPUTS))[seen], expected[seen], rtol=1e-4, atol=1e-4)
    masked = jnp.array([[8, 2], [4, 0], [0, 0]])
    wanted = np.take_along_axis(expected, np.asarray(masked)[..., None], axis=1)
    np.testing.assert_allclose(outputs(model, **INPUTS, masked=masked), wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
def test_the_encoder_classifies_as_transformers_bert() -> None:
    head = {"pooler": dense("bert/pooler/dense", (SIZE.width, SIZE.width)),
            "out": dense("classifier", (SIZE.width, CLASSES))}  # fmt: skip
    model = filled(lambda rngs: SequenceClassifier(SIZE, CLASSES, rngs=rngs), {"encoder": encoder_weights(), **head})
    np.testing.assert_allclose(outputs(model, **INPUTS), GOLDEN["sequence_classifier"], rtol=1e-4, atol=1e-4)


def test_the_decoder_is_transformers_gpt_2() -> None:
    model = filled(lambda rngs: Decoder(SIZE, positions="learned", rngs=rngs), decoder_weights())
    np.testing.assert_allclose(outputs(model, INPUTS["tokens"]), GOLDEN["decoder"], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("causal", [False, True])
def test_attention_is_flaxs(lively: Lively, causal: bool) -> None:
    attention = lively(lambda: SelfAttention(SIZE, causal=causal, rotary=False, rngs=random_streams(0)))
    theirs = lively(lambda: nnx.MultiHeadAttention(SIZE.heads, SIZE.width, decode=False, rngs=nnx.Rngs(0)))
    kernel, bias = attention.projection.kernel[...], attention.projection.bias[...]
    for number, layer in enumerate((theirs.query, theirs.key, theirs.value)):
        layer.kernel[...], layer.bias[...] = kernel[:, number], bias[number]
    theirs.out.kernel[...], theirs.out.bias[...] = attention.out.kernel[...], attention.out.bias[...]
    random = np.random.default_rng(1)
    tokens = jnp.asarray(random.normal(size=(3, 7, SIZE.width)), jnp.float32)
    mask = jnp.asarray(random.random((3, 7, 7)) < 0.6) | jnp.eye(7, dtype=bool)
    whole = mask & jnp.tril(jnp.ones((7, 7), bool)) if causal else mask
    result, _ = outputs(attention, tokens, mask, jnp.zeros((3, 7), jnp.int32))
    np.testing.assert_allclose(result, outputs(theirs, tokens, mask=whole[:, None]), rtol=1e-5, atol=1e-5)


def test_rotary_positions_turn_complex_numbers() -> None:
    random = np.random.default_rng(2)
    vectors = random.normal(size=(2, 5, 3, 8)).astype(np.float32)
    positions = random.integers(0, 500, (2, 5))
    angles = positions[..., None, None] / 10_000 ** (np.arange(4) / 4)
    complexes = (vectors[..., :4] + 1j * vectors[..., 4:]) * np.exp(1j * angles)
    expected = np.concatenate([complexes.real, complexes.imag], axis=-1)
    np.testing.assert_allclose(rotated(jnp.asarray(vectors), jnp.asarray(positions)), expected, atol=2e-4)


def parameters(build: Callable[[], Any]) -> int:
    """How many a module has, which is not built."""
    return sum(leaf.size for leaf in jax.tree.leaves(nnx.state(nnx.eval_shape(build), nnx.Param)))


@pytest.mark.slow
def test_sizes_are_those_of_bert_and_gpt_2() -> None:
    # What transformers counts of bert-large-uncased, bert-base-uncased and gpt2.
    assert parameters(lambda: MaskedLanguageModel(BERT_LARGE, rngs=random_streams(0))) == 335_174_458
    assert parameters(lambda: MaskedLanguageModel(BERT_BASE, rngs=random_streams(0))) == 109_514_298
    small = TransformerSize(50_257, length=1024, width=768, layers=12, heads=12)
    assert parameters(lambda: Decoder(small, positions="learned", rngs=random_streams(0))) == 124_439_808


def packed() -> tuple[list[list[int]], dict[str, Any]]:
    """Sequences of several lengths, and the same in rows of 12."""
    random = np.random.default_rng(3)
    sequences = [random.integers(0, SIZE.vocabulary, length).tolist() for length in (7, 4, 12, 4, 4, 2, 7, 2)]
    dataset = from_arrays({"tokens": sequences}).pack("tokens", length=12).batch(4)
    (batch,) = list(dataset)
    assert np.asarray(batch["segment_ids"]).max() >= 3  # rows of several
    assert (np.asarray(batch["segment_ids"]) == 0).any()
    return sequences, {name: jnp.asarray(array) for name, array in batch.items()}


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind", ["rotary", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("encoder", "learned"))]
)
def test_packed_sequences_are_as_separate_ones(lively: Lively, kind: Any) -> None:
    build = partial(Encoder, SIZE) if kind == "encoder" else partial(Decoder, SIZE, positions=kind)
    model = lively(lambda: build(rngs=random_streams(0)))
    sequences, batch = packed()
    results = np.asarray(outputs(model, **batch))
    ids, tokens = np.asarray(batch["segment_ids"]), np.asarray(batch["tokens"])
    seen = []
    for row in range(len(ids)):
        for segment in range(1, ids[row].max() + 1):
            inside = ids[row] == segment
            seen.append(tokens[row][inside].tolist())
            alone = outputs(model, jnp.asarray([seen[-1]]))
            np.testing.assert_allclose(results[row][inside], alone[0], rtol=1e-4, atol=1e-4)
    assert sorted(seen) == sorted(sequences)
    mixed = outputs(model, batch["tokens"], positions=batch["positions"])
    assert np.abs(np.asarray(mixed) - results)[ids > 1].max() > 0.1  # it is the mask that keeps them apart


@pytest.mark.slow
def test_padding_changes_nothing(lively: Lively) -> None:
    model = lively(lambda: Encoder(SIZE, rngs=random_streams(0)))
    tokens, mask = INPUTS["tokens"], INPUTS["segment_ids"]
    results = outputs(model, tokens, segment_ids=mask)
    others = outputs(model, jnp.where(mask == 1, tokens, 5), segment_ids=mask)
    alone = outputs(model, tokens[1:2, :5])
    np.testing.assert_allclose(results[1, :5], alone[0], rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(results[mask == 1], others[mask == 1])


@pytest.mark.slow
def test_remat_gives_the_same_gradients_and_keeps_less() -> None:
    tokens = jax.random.randint(jax.random.key(1), (8, 16), 0, 11)

    def gradients_and_kept(remat: bool) -> tuple[Any, int]:
        """And the numbers that the backward pass takes over from the forward one."""
        size = TransformerSize(11, length=16, width=32, layers=2, heads=2, dropout=0.5, remat=remat)
        model = nnx_model(lambda rngs: _Ids(Decoder(size, rngs=rngs)))
        params, state = model.parts(jax.jit(model.init)(jax.random.key(0)))

        def loss(params: Any) -> jax.Array:
            outputs, _ = model.step(params, state, {"tokens": tokens}, jax.random.key(2))
            return jnp.square(outputs).mean()

        backward = jax.eval_shape(lambda params: jax.vjp(loss, params)[1], params)
        return jax.jit(jax.grad(loss))(params), sum(leaf.size for leaf in jax.tree.leaves(backward))

    (plain, kept), (again, small) = gradients_and_kept(remat=False), gradients_and_kept(remat=True)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-6), plain, again)
    assert small < 0.3 * kept


class _Ids(nnx.Module):
    """A decoder behind a mapping of features."""

    def __init__(self, decoder: Decoder) -> None:
        self.decoder = decoder

    def __call__(self, features: Mapping[str, jax.Array]) -> jax.Array:
        return self.decoder(features["tokens"])


@pytest.mark.slow
def test_dropout_is_of_training_alone() -> None:
    size = TransformerSize(11, length=8, width=8, layers=1, heads=1, dropout=0.5)
    model = nnx_model(lambda rngs: _Ids(Decoder(size, rngs=rngs)))
    variables = jax.jit(model.init)(jax.random.key(0))
    features = {"tokens": jnp.arange(8)[None]}
    step = jax.jit(lambda seed: model.step(*model.parts(variables), features, jax.random.key(seed))[0])
    steps = [np.asarray(step(seed)) for seed in (1, 1, 2)]
    np.testing.assert_array_equal(steps[0], steps[1])
    assert np.abs(steps[0] - steps[2]).max() > 0
    size = TransformerSize(11, length=8, width=8, layers=1, heads=1)
    plain = nnx_model(lambda rngs: _Ids(Decoder(size, rngs=rngs)))
    applied = [jax.jit(model.apply)(variables, features), jax.jit(plain.apply)(variables["params"], features)]
    np.testing.assert_array_equal(*applied)


@pytest.mark.slow
def test_half_precision_is_kept_throughout(lively: Lively) -> None:
    builds = (MaskedLanguageModel, partial(SequenceClassifier, classes=2), Decoder)
    for build in builds:
        model = nnx.eval_shape(lambda build=build: build(SIZE, rngs=random_streams(0)))
        assert jax.eval_shape(outputs, _halved(model), INPUTS["tokens"]).dtype == jnp.bfloat16
    model = lively(lambda: Decoder(SIZE, rngs=random_streams(0)))
    whole, half = (np.asarray(outputs(each, INPUTS["tokens"]), np.float32) for each in (model, _halved(model)))
    assert 0 < np.abs(half - whole).mean() < 0.05 * np.abs(whole).mean()


def _halved(model: Any) -> Any:
    graph, params = nnx.split(model)

    def half(leaf: Any) -> Any:
        if isinstance(leaf, jax.Array):
            return leaf.astype(jnp.bfloat16)
        return jax.ShapeDtypeStruct(leaf.shape, jnp.bfloat16)  # type: ignore[no-untyped-call]

    return nnx.merge(graph, jax.tree.map(half, params))


@pytest.mark.parametrize("length", [16, 512])
def test_flops_are_those_that_xla_counts(length: int) -> None:
    size = TransformerSize(2000, length=length, width=512, layers=2, heads=4)
    graph, params = nnx.split(nnx.eval_shape(lambda: Decoder(size, positions="learned", rngs=random_streams(0))))
    tokens = jax.ShapeDtypeStruct((1, length), jnp.int32)  # type: ignore[no-untyped-call]
    lowered = jax.jit(lambda params, tokens: nnx.merge(graph, params)(tokens)).lower(params, tokens)
    analysis = lowered.compile().cost_analysis()
    assert analysis is not None
    # Norms, activations and softmax are counted too there.
    assert training_flops(size, length) / 3 == pytest.approx(analysis["flops"], rel=0.05)


def test_flops_of_bert_large_are_those_of_the_papers_formula() -> None:
    # 24 · 12 · 1024² weights of matrices; PaLM's 12 · L · H · Q · T with 16 heads of 64; 76 masked tokens of 512.
    weights = 24 * 12 * 1024**2
    expected = 512 * (6 * weights + 12 * 24 * 16 * 64 * 512) + 76 * 6 * 1024 * 30_522
    assert training_flops(BERT_LARGE, 512, predicted=76) == expected


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"layers": 0}, "layers is 0"),
        ({"hidden": -1}, "hidden is -1"),
        ({"heads": 3}, "3 heads do not divide a width of 16"),
        ({"dropout": 1.0}, "dropout is 1.0"),
    ],
)
def test_sizes_that_cannot_be_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        TransformerSize(**{**SIZES, **changes})


def test_what_no_position_is_for_is_refused() -> None:
    tokens = jnp.zeros((1, SIZE.length + 1), jnp.int32)
    for build in (Encoder, partial(Decoder, positions="learned")):
        model = nnx.eval_shape(lambda build=build: build(SIZE, rngs=random_streams(0)))
        with pytest.raises(InputError, match="rows of 13 tokens, and positions for 12"):
            model(tokens)
    with pytest.raises(InputError, match="heads are 3 wide"):
        Decoder(TransformerSize(5, length=4, width=6, layers=1, heads=2), rngs=nnx.Rngs(0))
