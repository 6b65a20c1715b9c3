"""Text from a decoder: token by token, the keys and values of what went before kept in a cache."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx

from ...errors import InputError

if TYPE_CHECKING:
    from .transformer import Decoder, KeyValues


@dataclass(frozen=True)
class Sampling:
    """How the next token is chosen.

    Attributes:
        temperature: What logits are divided by; 0 takes the likeliest token ("greedy").
        top_k: Only so many of the likeliest tokens are drawn from, and those as likely as the last of them.
        top_p: Only the likeliest tokens that together have this probability are drawn from, at least one (nucleus
            sampling; Holtzman et al. 2020), of those that `top_k` leaves.

    Raises:
        InputError: A temperature below 0, a top_k below 1, or a top_p that is no share above 0.
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.temperature < float("inf"):
            raise InputError(f"temperature is {self.temperature}", fix="use 0 for the likeliest token, or more")
        if self.top_k is not None and self.top_k < 1:
            raise InputError(f"top_k is {self.top_k}", fix="use 1 or more")
        if self.top_p is not None and not 0 < self.top_p <= 1:
            raise InputError(f"top_p is {self.top_p}", fix="use a share above 0, to 1")

    def adjusted(self, logits: jax.Array) -> jax.Array:
        """The logits that are drawn from, float32 [batch, vocabulary]: −infinity where a token is left out."""
        logits = logits.astype(jnp.float32) / self.temperature
        if self.top_k is not None:
            least = jax.lax.top_k(logits, min(self.top_k, logits.shape[-1]))[0][:, -1:]
            logits = jnp.where(logits < least, -jnp.inf, logits)
        if self.top_p is not None:
            descending = -jnp.sort(-logits, axis=-1)
            shares = jax.nn.softmax(descending, axis=-1)
            wanted = jnp.cumsum(shares, axis=-1) - shares < self.top_p  # what is likelier does not make it up yet
            least = jnp.min(jnp.where(wanted, descending, jnp.inf), axis=-1, keepdims=True)
            logits = jnp.where(logits < least, -jnp.inf, logits)
        return logits

    def next(self, logits: jax.Array, keys: jax.Array | None, step: jax.Array | int) -> jax.Array:
        """Tokens, int32 [batch], from logits [batch, vocabulary], a key per row, and how many tokens came before."""
        if keys is None:
            return jnp.argmax(logits, axis=-1).astype(jnp.int32)
        drawn: Any = jax.vmap(lambda key, row: jax.random.categorical(jax.random.fold_in(key, step), row))
        tokens: jax.Array = drawn(keys, self.adjusted(logits)).astype(jnp.int32)
        return tokens


GREEDY = Sampling(temperature=0.0)


class Generated(NamedTuple):
    """What `generate` returns.

    Attributes:
        tokens: Int32 [batch, count]; behind a stop token that token again.
        lengths: Int32 [batch], how many were generated, the stop token among them.
    """

    tokens: jax.Array
    lengths: jax.Array


def generate(
    decoder: Decoder,
    prompts: jax.Array,
    lengths: jax.Array,
    count: int,
    *,
    sampling: Sampling = GREEDY,
    keys: jax.Array | None = None,
    stop_token: int | None = None,
) -> Generated:
    """Tokens that follow prompts, up to `count` each.

    One program is compiled for a shape of prompts, whatever their lengths are. It ends when all rows have stopped. A
    row does not depend on the others, nor on how far it is padded, but for rounding.

    Args:
        decoder: Nothing is dropped, whatever its mode.
        prompts: Int [batch, width], padded behind with any id.
        lengths: Int [batch]: how many tokens of each row are its prompt, from 1 to the width.
        count: How many tokens are wanted, 1 or more.
        sampling: How they are chosen.
        keys: PRNG keys, [batch], each row's own; or one, from which they are split. Not for greedy sampling.
        stop_token: What ends a row.

    Raises:
        InputError: A count below 1; keys that are missing; more tokens than learned positions.
    """
    if count < 1:
        raise InputError(f"count is {count}", fix="generate 1 token or more")
    decoder.check_length(prompts.shape[1] + count - 1)
    if sampling.temperature == 0:
        keys = None
    elif keys is None:
        raise InputError("tokens are drawn at random, and there are no keys", fix="add keys=jax.random.key(seed)")
    elif keys.ndim == 0:
        keys = jax.random.split(keys, prompts.shape[0])
    graph, variables = nnx.split(nnx.view(decoder, deterministic=True))
    tokens, steps = _generate(graph, variables, prompts, lengths, keys, count, sampling, stop_token)
    return Generated(tokens, steps)


class _Loop(NamedTuple):
    """Between two tokens."""

    step: jax.Array  # of the newest tokens, from 0
    tokens: jax.Array  # [batch, count]
    lengths: jax.Array  # [batch]
    going: jax.Array  # [batch], boolean: rows that have not stopped
    cache: list[KeyValues]


@partial(jax.jit, static_argnums=(0, 5, 6, 7))
def _generate(
    graph: Any,
    variables: Any,
    prompts: jax.Array,
    lengths: jax.Array,
    keys: jax.Array | None,
    count: int,
    sampling: Sampling,
    stop_token: int | None,
) -> tuple[jax.Array, jax.Array]:
    decoder: Decoder = nnx.merge(graph, variables)
    batch, width = prompts.shape
    lengths = lengths.astype(jnp.int32)
    # Prompts are moved to the right, so that the next token has the same slot in all rows.
    slots = jnp.arange(width + count - 1, dtype=jnp.int32)
    positions = slots - (width - lengths)[:, None]  # [batch, slots], below 0 before a prompt
    prompts = jnp.take_along_axis(prompts, positions[:, :width] % width, axis=1)

    def extended(tokens: jax.Array, slot: jax.Array | int, cache: list[KeyValues]) -> tuple[jax.Array, list[KeyValues]]:
        columns = slot + jnp.arange(tokens.shape[1], dtype=jnp.int32)
        mask = (slots <= columns[:, None]) & (positions >= 0)[:, None, :]
        at = jax.lax.dynamic_slice_in_dim(positions, slot, tokens.shape[1], axis=1)
        return decoder.extend(tokens, jnp.maximum(at, 0), mask, cache, slot)

    def following(loop: _Loop) -> _Loop:
        newest = jax.lax.dynamic_slice_in_dim(loop.tokens, loop.step, 1, axis=1)
        logits, cache = extended(newest, width + loop.step, loop.cache)
        return added(logits, loop.step + 1, loop._replace(cache=cache))

    def added(logits: jax.Array, step: jax.Array | int, loop: _Loop) -> _Loop:
        tokens = sampling.next(logits, keys, step)
        if stop_token is not None:
            tokens = jnp.where(loop.going, tokens, stop_token)
        lengths = loop.lengths + loop.going
        going = loop.going if stop_token is None else loop.going & (tokens != stop_token)
        written = jax.lax.dynamic_update_slice_in_dim(loop.tokens, tokens[:, None], step, axis=1)
        return _Loop(jnp.asarray(step, jnp.int32), written, lengths, going, loop.cache)

    logits, cache = extended(prompts, 0, decoder.empty_cache(batch, width + count - 1))
    fill = 0 if stop_token is None else stop_token
    begin = _Loop(
        jnp.int32(0),
        jnp.full((batch, count), fill, jnp.int32),
        jnp.zeros(batch, jnp.int32),
        jnp.ones(batch, bool),
        cache,
    )
    end = jax.lax.while_loop(
        lambda loop: (loop.step < count - 1) & loop.going.any(), following, added(logits, 0, begin)
    )
    return end.tokens, end.lengths
