"""Transformers: an encoder as BERT's and a decoder that predicts the next token, of the same blocks.

Rows may hold several sequences (`Dataset.pack`): a token attends to tokens of its own segment alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx

from ...errors import InputError

_INITIAL = nnx.initializers.truncated_normal(0.02)
"""Devlin et al. 2018; GPT-2 takes the same deviation."""


@dataclass(frozen=True)
class TransformerSize:
    """How large a transformer is, and how it is computed.

    Attributes:
        vocabulary: How many ids there are; tokens are 0 … vocabulary − 1.
        length: The most positions that there are embeddings for; rotary positions have no end.
        width: Numbers of a token's vector between the blocks.
        layers: Blocks.
        heads: Of each attention; a divisor of the width.
        hidden: Units between the two layers of a feed-forward network; None: four times the width.
        dropout: The share of an embedding's, an attention's and a feed-forward network's outputs that is dropped in
            training. Attention weights are not dropped: fused kernels have no such thing.
        remat: Compute a block's activations again in the backward pass, rather than keep them: a third more to compute,
            and one vector per token and block in memory.
        kernel: Who computes attention: "xla"; or "cudnn", fused, on an NVIDIA GPU in half precision, which no bundle
            can hold. None is XLA.

    Raises:
        InputError: A number below 1, heads that do not divide the width, or a dropout that is no share.
    """

    vocabulary: int
    length: int
    width: int
    layers: int
    heads: int
    hidden: int | None = None
    dropout: float = 0.0
    remat: bool = False
    kernel: Literal["xla", "cudnn"] | None = None

    def __post_init__(self) -> None:
        for name in ("vocabulary", "length", "width", "layers", "heads", "hidden"):
            number = getattr(self, name)
            if number is not None and number < 1:
                raise InputError(f"{name} is {number}", fix="use 1 or more")
        if self.width % self.heads:
            raise InputError(f"{self.heads} heads do not divide a width of {self.width}", fix="use a divisor of it")
        if not 0 <= self.dropout < 1:
            raise InputError(f"dropout is {self.dropout}", fix="use 0 to less than 1")

    @property
    def units(self) -> int:
        """Between the two layers of a feed-forward network."""
        return self.hidden or 4 * self.width


BERT_BASE = TransformerSize(30_522, length=512, width=768, layers=12, heads=12, dropout=0.1)
BERT_LARGE = TransformerSize(30_522, length=512, width=1024, layers=24, heads=16, dropout=0.1)
"""Devlin et al. 2018, table 1 and section 3: 110M and 340M parameters, with the vocabulary of the uncased models."""


def training_flops(size: TransformerSize, length: int, *, predicted: int | None = None) -> int:
    """Floating-point operations of a training step for one sequence, as model FLOPs utilisation (MFU) counts them.

    6 per weight and token, and 12 · layers · width · length per token for attention (Chowdhery et al. 2022, PaLM,
    appendix B; Kaplan et al. 2020, table 1): forward once, backward twice. Weights are those of matrices that tokens
    are multiplied by, so embeddings count where they give the logits. What `remat` computes again is not counted.

    Args:
        size: Of the model.
        length: Tokens of the sequence.
        predicted: Tokens whose logits are computed, such as the masked ones; None: all.
    """
    weights = size.layers * (4 * size.width**2 + 2 * size.width * size.units)
    tokens = length * (6 * weights + 12 * size.layers * size.width * length)
    return tokens + (length if predicted is None else predicted) * 6 * size.width * size.vocabulary


class KeyValues(NamedTuple):
    """Keys and values of the tokens so far, of one block: float [batch, slots, heads, width / heads] each."""

    keys: jax.Array
    values: jax.Array


class SelfAttention(nnx.Module):
    """Every token looks at the others (Vaswani et al. 2017, section 3.2)."""

    def __init__(self, size: TransformerSize, *, causal: bool, rotary: bool, rngs: nnx.Rngs) -> None:
        self.causal, self.rotary, self.kernel = causal, rotary, size.kernel
        each = (size.heads, size.width // size.heads)
        self.projection = nnx.LinearGeneral(size.width, (3, *each), kernel_init=_INITIAL, rngs=rngs)
        self.out = nnx.LinearGeneral(each, size.width, axis=(-2, -1), kernel_init=_INITIAL, rngs=rngs)

    def __call__(
        self,
        tokens: jax.Array,
        mask: jax.Array | None,
        positions: jax.Array,
        cache: KeyValues | None = None,
        slot: jax.Array | int = 0,
    ) -> tuple[jax.Array, KeyValues | None]:
        """Outputs [batch, length, width], and the cache with the keys and values of these tokens from a slot on.

        Args:
            tokens: Float [batch, length, width].
            mask: Boolean [batch, length, keys], true where a token sees a key; None: all of them. Without a cache, a
                causal attention sees nothing that comes later, whatever the mask says.
            positions: Int [batch, length].
            cache: Of the tokens before, which are the keys then.
            slot: Where these tokens come in the cache.
        """
        query, key, value = jnp.moveaxis(self.projection(tokens), 2, 0)
        if self.rotary:
            query, key = rotated(query, positions), rotated(key, positions)
        if cache is not None:
            key, value = cache = KeyValues(
                *(
                    jax.lax.dynamic_update_slice_in_dim(held, new.astype(held.dtype), slot, axis=1)
                    for held, new in zip(cache, (key, value), strict=True)
                )
            )
        attended = jax.nn.dot_product_attention(
            query,
            key,
            value,
            mask=None if mask is None else mask[:, None],
            is_causal=self.causal and cache is None,
            implementation=self.kernel,
        )
        return self.out(attended), cache


def rotated(vectors: jax.Array, positions: jax.Array) -> jax.Array:
    """Queries or keys turned by their positions (Su et al. 2021, RoFormer, equation 34).

    Number i and number i + width / 2 are the two coordinates that are turned by position · 10000^(−2i / width), as in
    GPT-NeoX and Llama; the paper pairs neighbours, which is the same up to the order of weights.

    Args:
        vectors: Float [batch, length, heads, width], of an even width.
        positions: Int [batch, length].
    """
    half = vectors.shape[-1] // 2
    rates = 10_000.0 ** (-jnp.arange(half, dtype=jnp.float32) / half)
    angles = positions[..., None, None].astype(jnp.float32) * rates
    cos, sin = jnp.cos(angles), jnp.sin(angles)
    first, second = vectors[..., :half], vectors[..., half:]
    turned = jnp.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)
    return turned.astype(vectors.dtype)


class TransformerBlock(nnx.Module):
    """Attention, then a feed-forward network, each added to its input.

    The sum is normalised after each ("post", Vaswani et al. 2017 and BERT), or the input before ("pre", GPT-2; Xiong et
    al. 2020: it trains without a warm-up of the learning rate).
    """

    def __init__(
        self,
        size: TransformerSize,
        *,
        norm: Literal["pre", "post"],
        causal: bool,
        rotary: bool,
        rngs: nnx.Rngs,
    ) -> None:
        self.norm = norm
        self.attention = SelfAttention(size, causal=causal, rotary=rotary, rngs=rngs)
        self.attention_norm = _layer_norm(size, norm, rngs)
        self.up = nnx.Linear(size.width, size.units, kernel_init=_INITIAL, rngs=rngs)
        self.down = nnx.Linear(size.units, size.width, kernel_init=_INITIAL, rngs=rngs)
        self.down_norm = _layer_norm(size, norm, rngs)
        self.dropout = _dropout(size, rngs)

    def __call__(
        self,
        tokens: jax.Array,
        mask: jax.Array | None,
        positions: jax.Array,
        cache: KeyValues | None = None,
        slot: jax.Array | int = 0,
    ) -> tuple[jax.Array, KeyValues | None]:
        """As `SelfAttention`."""
        before = self.norm == "pre"
        attended, cache = self.attention(
            self.attention_norm(tokens) if before else tokens, mask, positions, cache, slot
        )
        tokens = tokens + self.dropout(attended)
        tokens = tokens if before else self.attention_norm(tokens)
        hidden = self.up(self.down_norm(tokens) if before else tokens)
        tokens = tokens + self.dropout(self.down(jax.nn.gelu(hidden, approximate=False)))
        return (tokens if before else self.down_norm(tokens)), cache


class Encoder(nnx.Module):
    """BERT without its heads (Devlin et al. 2018): a vector for each token, which has seen all of its segment."""

    def __init__(self, size: TransformerSize, *, token_types: int = 2, rngs: nnx.Rngs) -> None:
        self.size = size
        self.tokens = _embedding(size.vocabulary, size, rngs)
        self.positions = _embedding(size.length, size, rngs)
        self.token_types = _embedding(token_types, size, rngs)
        self.norm = _layer_norm(size, "post", rngs)
        self.dropout = _dropout(size, rngs)
        self.blocks = nnx.List(
            [TransformerBlock(size, norm="post", causal=False, rotary=False, rngs=rngs) for _ in range(size.layers)]
        )

    def __call__(
        self,
        tokens: jax.Array,
        *,
        segment_ids: jax.Array | None = None,
        positions: jax.Array | None = None,
        token_types: jax.Array | None = None,
    ) -> jax.Array:
        """A vector for each token, float [batch, length, width].

        Args:
            tokens: Int [batch, length].
            segment_ids: Int [batch, length]: a token sees those with the same id alone. Of one sequence in a row, 1,
                and 0 where it is padded; of several, what `Dataset.pack` gives. None: all belong together.
            positions: Int [batch, length], of each token in its sequence; None: 0, 1, …
            token_types: Int [batch, length], such as 0 in BERT's sentence A and 1 in its B; None: 0.

        Raises:
            InputError: There are more tokens than positions.
        """
        positions = _positions(tokens, positions)
        _check_length(tokens.shape[1], self.size)
        kinds = jnp.zeros_like(tokens) if token_types is None else token_types
        vectors = self.tokens(tokens) + self.positions(positions) + self.token_types(kinds)
        vectors = self.dropout(self.norm(vectors))
        return _through(self.blocks, vectors, segments_mask(segment_ids), positions, self.size)


class MaskedLanguageModel(nnx.Module):
    """Which token stood where BERT's input was masked; logits by the token embeddings themselves."""

    def __init__(self, size: TransformerSize, *, rngs: nnx.Rngs) -> None:
        self.encoder = Encoder(size, rngs=rngs)
        self.dense = nnx.Linear(size.width, size.width, kernel_init=_INITIAL, rngs=rngs)
        self.norm = _layer_norm(size, "post", rngs)
        self.bias = nnx.Param(jnp.zeros(size.vocabulary))

    def __call__(self, tokens: jax.Array, *, masked: jax.Array | None = None, **inputs: Any) -> jax.Array:
        """Logits, float [batch, masked tokens, vocabulary].

        Args:
            tokens: Int [batch, length].
            masked: Int [batch, masked tokens]: the places in the row whose token is predicted; None: every one.
            inputs: `segment_ids`, `positions` and `token_types`, as of `Encoder`.
        """
        vectors = self.encoder(tokens, **inputs)
        if masked is not None:
            vectors = jnp.take_along_axis(vectors, masked[..., None], axis=1)
        hidden = self.norm(jax.nn.gelu(self.dense(vectors), approximate=False))
        return self.encoder.tokens.attend(hidden) + self.bias


class SequenceClassifier(nnx.Module):
    """A class for each row, from the vector of its first token ("[CLS]")."""

    def __init__(self, size: TransformerSize, classes: int, *, rngs: nnx.Rngs) -> None:
        self.encoder = Encoder(size, rngs=rngs)
        self.pooler = nnx.Linear(size.width, size.width, kernel_init=_INITIAL, rngs=rngs)
        self.dropout = _dropout(size, rngs)
        self.out = nnx.Linear(size.width, classes, kernel_init=_INITIAL, rngs=rngs)

    def __call__(self, tokens: jax.Array, **inputs: Any) -> jax.Array:
        """Logits, float [batch, classes]; the arguments are those of `Encoder`."""
        first = self.encoder(tokens, **inputs)[:, 0]
        return self.out(self.dropout(jnp.tanh(self.pooler(first))))


class Decoder(nnx.Module):
    """Logits of the token after each one, which has seen those before it (as GPT-2; Radford et al. 2019).

    The embedding of tokens gives the logits too (Press and Wolf 2017). Positions are "rotary", or "learned" as GPT-2's.
    """

    def __init__(
        self, size: TransformerSize, *, positions: Literal["rotary", "learned"] = "rotary", rngs: nnx.Rngs
    ) -> None:
        """Its parameters are drawn.

        Raises:
            InputError: Rotary positions with heads of an odd width.
        """
        rotary = positions == "rotary"
        if rotary and size.width // size.heads % 2:
            raise InputError(
                f"heads are {size.width // size.heads} wide, and rotary positions turn pairs of numbers",
                fix="make width / heads even, or use learned positions",
            )
        self.size = size
        self.tokens = _embedding(size.vocabulary, size, rngs)
        self.positions = None if rotary else _embedding(size.length, size, rngs)
        self.dropout = _dropout(size, rngs)
        self.blocks = nnx.List(
            [TransformerBlock(size, norm="pre", causal=True, rotary=rotary, rngs=rngs) for _ in range(size.layers)]
        )
        self.norm = _layer_norm(size, "pre", rngs)

    def __call__(
        self, tokens: jax.Array, *, segment_ids: jax.Array | None = None, positions: jax.Array | None = None
    ) -> jax.Array:
        """Logits of the next token after each, float [batch, length, vocabulary].

        Args:
            tokens: Int [batch, length].
            segment_ids: As of `Encoder`. Padding behind a sequence needs none: what comes later is not seen.
            positions: Int [batch, length], of each token in its sequence; None: 0, 1, …

        Raises:
            InputError: There are more tokens than learned positions.
        """
        positions = _positions(tokens, positions)
        self.check_length(tokens.shape[1])
        vectors = _through(
            self.blocks, self._embedded(tokens, positions), segments_mask(segment_ids), positions, self.size
        )
        return self.tokens.attend(self.norm(vectors))

    def extend(
        self, tokens: jax.Array, positions: jax.Array, mask: jax.Array, cache: list[KeyValues], slot: jax.Array | int
    ) -> tuple[jax.Array, list[KeyValues]]:
        """Logits after the last of these tokens, [batch, vocabulary], and the cache with them.

        Args:
            tokens: Int [batch, length], new ones.
            positions: Int [batch, length], theirs.
            mask: Boolean [batch, length, slots]: which slots of the cache each of them sees.
            cache: Of all blocks, from `empty_cache` or from here.
            slot: Where the first of these tokens comes.
        """
        vectors = self._embedded(tokens, positions)
        after = []
        for block, held in zip(self.blocks, cache, strict=True):
            vectors, later = block(vectors, mask, positions, held, slot)
            assert later is not None  # as there was one before
            after.append(later)
        return self.tokens.attend(self.norm(vectors[:, -1])), after

    def empty_cache(self, batch: int, slots: int) -> list[KeyValues]:
        """Of all blocks, for so many tokens per row; in the dtype that the model computes in."""
        shape = (batch, slots, self.size.heads, self.size.width // self.size.heads)
        zeros = jnp.zeros(shape, self.tokens.embedding[...].dtype)
        return [KeyValues(zeros, zeros) for _ in self.blocks]

    def check_length(self, length: int) -> None:
        """Refuse more tokens than there are positions.

        Raises:
            InputError: There are.
        """
        if self.positions is not None:
            _check_length(length, self.size)

    def _embedded(self, tokens: jax.Array, positions: jax.Array) -> jax.Array:
        vectors = self.tokens(tokens)
        return self.dropout(vectors if self.positions is None else vectors + self.positions(positions))


def segments_mask(segment_ids: jax.Array | None) -> jax.Array | None:
    """Which tokens see which, boolean [batch, length, length]: those of equal ids, padding (0) itself alone."""
    return None if segment_ids is None else segment_ids[:, :, None] == segment_ids[:, None, :]


def _through(
    blocks: Any, vectors: jax.Array, mask: jax.Array | None, positions: jax.Array, size: TransformerSize
) -> jax.Array:
    """What the blocks make of vectors, one after the other."""
    call = nnx.remat(TransformerBlock.__call__) if size.remat else TransformerBlock.__call__
    for block in blocks:
        vectors, _ = call(block, vectors, mask, positions)
    return vectors


def _positions(tokens: jax.Array, positions: jax.Array | None) -> jax.Array:
    return jnp.broadcast_to(jnp.arange(tokens.shape[1]), tokens.shape) if positions is None else positions


def _check_length(length: int, size: TransformerSize) -> None:
    if length > size.length:
        raise InputError(f"rows of {length} tokens, and positions for {size.length}", fix="make the size's length so")


def _embedding(count: int, size: TransformerSize, rngs: nnx.Rngs) -> nnx.Embed:
    # Flax takes the dtype that the parameters were drawn in; None follows what a training casts them to.
    embedding = nnx.Embed(count, size.width, embedding_init=_INITIAL, rngs=rngs)
    embedding.dtype = None
    return embedding


def _layer_norm(size: TransformerSize, norm: Literal["pre", "post"], rngs: nnx.Rngs) -> nnx.LayerNorm:
    """Of a small constant as BERT's, or as GPT-2's."""
    return nnx.LayerNorm(size.width, epsilon=1e-12 if norm == "post" else 1e-5, rngs=rngs)


def _dropout(size: TransformerSize, rngs: nnx.Rngs) -> nnx.Dropout:
    """Without a random stream where nothing is dropped: such a model has no state."""
    return nnx.Dropout(size.dropout, rngs=rngs if size.dropout else None)
