"""Generation with the cache against computing everything again for each token; sampling against NumPy."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from drivetrain.engine.models import GREEDY, Decoder, Sampling, TransformerSize, generate
from drivetrain.engine.training.random_streams import random_streams
from drivetrain.engine.transform.rowwise import check_rowwise
from drivetrain.errors import InputError
from flax import nnx
from hypothesis import assume, given, settings
from hypothesis import strategies as st

pytestmark = pytest.mark.engine
Lively = Callable[[Callable[[], Any]], Any]

WIDTH, COUNT = 6, 5
SIZE = TransformerSize(17, length=WIDTH + COUNT - 1, width=16, layers=2, heads=2)
DRAWN = Sampling(temperature=0.7, top_k=9, top_p=0.95)


@pytest.fixture(scope="module")
def decoder(lively: Lively) -> Decoder:
    model: Decoder = lively(lambda: Decoder(SIZE, rngs=random_streams(0)))
    return model


@pytest.fixture(scope="module")
def prompts() -> tuple[jax.Array, jax.Array]:
    """Four of several lengths, padded by ids that are also tokens."""
    return jnp.asarray(np.random.default_rng(4).integers(0, 17, (4, WIDTH))), jnp.array([6, 3, 1, 4])


@nnx.jit
def logits_of(decoder: Decoder, tokens: Any) -> Any:
    return decoder(tokens)


def recomputed(
    decoder: Decoder, prompts: jax.Array, lengths: jax.Array, sampling: Sampling = GREEDY, keys: Any = None
) -> np.ndarray:
    """Every token from the logits of a whole row, which is computed anew for it."""
    results = []
    for row, (prompt, length) in enumerate(zip(np.asarray(prompts), np.asarray(lengths).tolist(), strict=True)):
        tokens = np.zeros(WIDTH + COUNT, int)
        tokens[:length] = prompt[:length]
        for step in range(COUNT):
            logits = logits_of(decoder, jnp.asarray(tokens[None, :-1]))[:, length + step - 1]
            key = None if keys is None else keys[row : row + 1]
            tokens[length + step] = sampling.next(logits, key, step)[0]
        results.append(tokens[length : length + COUNT])
    return np.array(results)


@pytest.mark.slow
@pytest.mark.parametrize("positions", ["rotary", pytest.param("learned", marks=pytest.mark.slow)])
def test_greedy_tokens_are_those_that_everything_computed_again_gives(
    lively: Lively, prompts: tuple[jax.Array, jax.Array], positions: Any
) -> None:
    decoder = lively(lambda: Decoder(SIZE, positions=positions, rngs=random_streams(0)))
    generated = generate(decoder, *prompts, COUNT)
    expected = recomputed(decoder, *prompts)
    np.testing.assert_array_equal(generated.tokens, expected)
    np.testing.assert_array_equal(generated.lengths, [COUNT] * 4)
    assert len(np.unique(expected)) > 3  # it does not repeat itself only


@pytest.mark.slow
def test_drawn_tokens_are_those_that_everything_computed_again_gives(
    decoder: Decoder, prompts: tuple[jax.Array, jax.Array]
) -> None:
    keys = jax.random.split(jax.random.key(5), 4)
    generated = generate(decoder, *prompts, COUNT, sampling=DRAWN, keys=keys)
    np.testing.assert_array_equal(generated.tokens, recomputed(decoder, *prompts, DRAWN, keys))
    same = generate(decoder, *prompts, COUNT, sampling=DRAWN, keys=jax.random.key(5))
    np.testing.assert_array_equal(generated.tokens, same.tokens)  # a key is split for the rows
    other = generate(decoder, *prompts, COUNT, sampling=DRAWN, keys=jax.random.key(6))
    assert (np.asarray(generated.tokens) != np.asarray(other.tokens)).any()


@pytest.mark.slow
def test_a_row_depends_neither_on_others_nor_on_its_padding(
    decoder: Decoder, prompts: tuple[jax.Array, jax.Array]
) -> None:
    keys = jax.random.split(jax.random.key(7), 4)
    tokens, lengths = prompts
    together = generate(decoder, tokens, lengths, COUNT, sampling=DRAWN, keys=keys)
    others = jnp.where(jnp.arange(WIDTH) < lengths[:, None], tokens, 16)
    turned = generate(decoder, others[::-1], lengths[::-1], COUNT, sampling=DRAWN, keys=keys[::-1])
    np.testing.assert_array_equal(together.tokens, turned.tokens[::-1])


@pytest.mark.slow
def test_a_stop_token_ends_a_row(decoder: Decoder, prompts: tuple[jax.Array, jax.Array]) -> None:
    expected = recomputed(decoder, *prompts)
    stop = int(expected[1, 2])
    generated = generate(decoder, *prompts, COUNT, stop_token=stop)
    for row, tokens in enumerate(expected):
        ends = np.flatnonzero(tokens == stop)
        length = ends[0] + 1 if len(ends) else COUNT
        assert generated.lengths[row] == length
        np.testing.assert_array_equal(generated.tokens[row], [*tokens[:length], *[stop] * (COUNT - length)])
    assert (np.asarray(generated.lengths) < COUNT).any()


@pytest.mark.slow
def test_it_ends_when_all_rows_have_stopped(decoder: Decoder, monkeypatch: pytest.MonkeyPatch) -> None:
    prompts, lengths = jnp.ones((2, 4), jnp.int32), jnp.array([4, 4])
    first = int(generate(decoder, prompts, lengths, 1).tokens[0, 0])
    calls: list[int] = []
    extend = Decoder.extend

    def counted(decoder: Decoder, *inputs: Any) -> Any:
        jax.debug.callback(lambda: calls.append(1))
        return extend(decoder, *inputs)

    monkeypatch.setattr(Decoder, "extend", counted)
    generated = generate(decoder, prompts, lengths, 100, stop_token=first)
    np.testing.assert_array_equal(generated.lengths, [1, 1])
    jax.effects_barrier()  # type: ignore[no-untyped-call]
    assert len(calls) == 1  # for the prompts


@pytest.mark.slow
def test_one_program_serves_all_lengths(
    decoder: Decoder, prompts: tuple[jax.Array, jax.Array], monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens = jnp.concatenate([prompts[0]] * 2)  # of a shape that no other test has
    traced: list[int] = []
    extend = Decoder.extend

    def counted(decoder: Decoder, *inputs: Any) -> Any:
        traced.append(1)
        return extend(decoder, *inputs)

    monkeypatch.setattr(Decoder, "extend", counted)
    for lengths in ([6, 3, 1, 4] * 2, [1] * 8, [6] * 8):
        generate(decoder, tokens, jnp.array(lengths), COUNT)
    assert len(traced) == 2  # of prompts, and of one token


@pytest.mark.slow
def test_nothing_is_dropped(prompts: tuple[jax.Array, jax.Array]) -> None:
    size = TransformerSize(17, length=SIZE.length, width=16, layers=1, heads=2, dropout=0.9)
    decoder = nnx.jit(lambda: Decoder(size, rngs=random_streams(0)))()
    first = generate(decoder, *prompts, COUNT)
    decoder.eval()  # type: ignore[no-untyped-call]
    np.testing.assert_array_equal(first.tokens, generate(decoder, *prompts, COUNT).tokens)


def test_the_cache_is_of_the_precision_of_the_model(decoder: Decoder) -> None:
    graph, params = nnx.split(decoder)
    half = nnx.merge(graph, jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), params))
    assert half.empty_cache(2, 3)[0].keys.dtype == jnp.bfloat16
    shapes = jax.eval_shape(partial(generate, half, count=COUNT), jnp.zeros((2, 4), jnp.int32), jnp.array([1, 2]))
    assert (shapes.tokens.shape, shapes.tokens.dtype) == ((2, COUNT), jnp.int32)


@given(
    seed=st.integers(0, 1000),
    temperature=st.sampled_from([0.5, 3.0]),
    top_k=st.sampled_from([None, 1, 3, 15]),
    top_p=st.none() | st.sampled_from([0.05, 0.4, 0.9, 0.99]),
)
@settings(max_examples=30, deadline=None)
def test_what_is_left_out_is_what_numpy_says(
    seed: int, temperature: float, top_k: int | None, top_p: float | None
) -> None:
    logits = np.random.default_rng(seed).normal(scale=2, size=12).astype(np.float32)
    scaled = logits.astype(np.float64) / temperature
    order = np.argsort(-scaled)[:top_k]
    shares = np.exp(scaled[order]) / np.exp(scaled[order]).sum()
    if top_p is not None:
        before = np.cumsum(shares) - shares
        assume(np.abs(before - top_p).min() > 1e-6)  # which side of it rounding decides
        order = order[before < top_p]
    adjusted = np.asarray(Sampling(temperature, top_k, top_p).adjusted(jnp.asarray(logits[None])))[0]
    assert set(np.flatnonzero(np.isfinite(adjusted))) == set(order)
    np.testing.assert_allclose(adjusted[order], scaled[order], rtol=1e-6)


def test_a_served_row_does_not_see_others(decoder: Decoder) -> None:
    (batch,) = jax.export.symbolic_shape("b")
    shapes = ((batch, WIDTH), (batch,))
    arrays = [jax.ShapeDtypeStruct(shape, jnp.int32) for shape in shapes]  # type: ignore[no-untyped-call]
    check_rowwise(jax.make_jaxpr(partial(generate, decoder, count=COUNT, stop_token=3))(*arrays), exported=True)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"temperature": -1.0}, "temperature is -1.0"),
        ({"temperature": float("nan")}, "temperature is nan"),
        ({"top_k": 0}, "top_k is 0"),
        ({"top_p": 0.0}, "top_p is 0.0"),
        ({"top_p": 1.5}, "top_p is 1.5"),
    ],
)
def test_samplings_that_cannot_be_are_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Sampling(**change)


def test_what_cannot_be_generated_is_refused(lively: Lively) -> None:
    decoder = lively(
        lambda: Decoder(
            TransformerSize(5, length=8, width=4, layers=1, heads=1), positions="learned", rngs=random_streams(0)
        )
    )
    prompts, lengths = jnp.zeros((1, 4), jnp.int32), jnp.array([4])
    with pytest.raises(InputError, match="count is 0"):
        generate(decoder, prompts, lengths, 0)
    with pytest.raises(InputError, match="there are no keys"):
        generate(decoder, prompts, lengths, 2, sampling=Sampling())
    with pytest.raises(InputError, match="rows of 9 tokens, and positions for 8"):
        generate(decoder, prompts, lengths, 6)
    assert generate(decoder, prompts, lengths, 5).tokens.shape == (1, 5)  # the last token needs no position
