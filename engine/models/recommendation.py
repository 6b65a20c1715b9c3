"""Recommendation: networks over many categories, each with an embedding table that may be larger than all the rest."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import jax
import jax.numpy as jnp
from flax import nnx

from ...errors import InputError
from ..ragged import Ragged, embedding_bag

if TYPE_CHECKING:
    from ..training.strategy import Axes

Features = Mapping[str, Any]  # arrays [batch], or Ragged

ROWS_OVER_DEVICES: Final[tuple[tuple[str, Axes], ...]] = ((r"(^|\.)(tables|wide)\.[^.]+\.embedding$", ("data",)),)
"""Rules of a `Strategy` whose mesh has the axis "data": the rows of all tables, and what an optimizer keeps of each,
are split over the devices. Give the model `multiple`, the number of devices."""

_BLOCK: Final = 1 << 16
"""Rows of a table that are drawn together."""


def table_ids(names: Iterable[str], part: str = "tables") -> dict[str, str]:
    """The parameter that is the table of each category, and the category: `ids` of `SparseTables`.

    Args:
        names: Categories of a DLRM or a WideAndDeep.
        part: "tables" for those of either, "wide" for the weights of a WideAndDeep.
    """
    return {f"{part}.{name}.embedding": name for name in names}


class WideAndDeep(nnx.Module):
    """A linear model that remembers and a network that generalises, added up and trained together.

    Cheng et al., "Wide & Deep Learning for Recommender Systems" (2016). Crossed categories are columns that
    preprocessing makes; they go into the wide part.
    """

    def __init__(
        self,
        wide: Mapping[str, int],
        deep: Mapping[str, int],
        numbers: Sequence[str] = (),
        *,
        width: int = 16,
        hidden: Sequence[int] = (128, 64),
        multiple: int = 1,
        rngs: nnx.Rngs,
    ) -> None:
        """Random tables of the deep part; the weights of the wide part are 0.

        Args:
            wide: Categories with a weight for each id: name → how many ids.
            deep: Categories with an embedding of `width` for each id. A category may be in both.
            numbers: Columns of scalars, for both parts.
            width: Of the embeddings.
            hidden: Widths of the network's layers.
            multiple: The rows of each table are rounded up to a multiple of it, so that so many devices can have
                equal parts; no id names the further rows.
            rngs: Of the tables and the network.

        Raises:
            InputError: There is no feature.
        """
        _refuse_none({**wide, **deep}, numbers)
        # The order of the features is that of the caller: a module that is merged has its own.
        self.numbers, self.wide_names, self.deep_names = tuple(numbers), tuple(wide), tuple(deep)
        self.wide = nnx.Dict(
            {name: _table(rows, 1, multiple, nnx.initializers.zeros_init(), rngs) for name, rows in wide.items()}
        )
        self.tables = _tables(deep, width, multiple, rngs)
        inputs = len(self.numbers) + width * len(deep)
        self.hidden = _layers((inputs, *hidden), rngs) if inputs else nnx.List([])
        self.out = nnx.Linear(hidden[-1] if hidden else inputs, 1, rngs=rngs) if inputs else None
        self.linear = nnx.Linear(len(self.numbers), 1, use_bias=False, rngs=rngs) if numbers else None

    def __call__(self, features: Features) -> jax.Array:
        """Logits, float32 [batch]."""
        parts = [_looked_up(self.wide, name, features) for name in self.wide_names]
        columns = [_stacked(features, self.numbers)] if self.numbers else []
        if self.linear is not None:
            parts.append(self.linear(columns[0]))
        if self.out is not None:
            columns += [_looked_up(self.tables, name, features) for name in self.deep_names]
            parts.append(self.out(_through(self.hidden, jnp.concatenate(columns, axis=-1))))
        return sum(parts[1:], parts[0])[:, 0]


class DLRM(nnx.Module):
    """Dot products between the embeddings of all categories, and a vector of the numbers, read by a network.

    Naumov et al., "Deep Learning Recommendation Model for Personalization and Recommendation Systems" (2019).
    """

    def __init__(
        self,
        categories: Mapping[str, int],
        numbers: Sequence[str] = (),
        *,
        width: int = 16,
        bottom: Sequence[int] = (64, 32),
        top: Sequence[int] = (64, 32),
        multiple: int = 1,
        rngs: nnx.Rngs,
    ) -> None:
        """Random parameters: tables uniform in ±1/√rows, layers as the paper's program has them.

        Args:
            categories: Name → how many ids. A feature that is a list of ids per row, a `Ragged`, is the sum of its
                embeddings.
            numbers: Columns of scalars.
            width: Of the embeddings, and of the vector that the bottom network makes of the numbers.
            bottom: Widths of the bottom network's layers before that vector.
            top: Widths of the top network's layers before the logit.
            multiple: The rows of each table are rounded up to a multiple of it, so that so many devices can have
                equal parts; no id names the further rows.
            rngs: Of tables and layers.

        Raises:
            InputError: There is no feature.
        """
        _refuse_none(categories, numbers)
        self.numbers, self.categories = tuple(numbers), tuple(categories)
        self.tables = _tables(categories, width, multiple, rngs)
        self.bottom = _layers((len(self.numbers), *bottom, width), rngs) if numbers else nnx.List([])
        vectors = len(categories) + bool(numbers)
        dense = width if numbers else 0
        inputs = dense + vectors * (vectors - 1) // 2
        if not inputs:
            raise InputError("one category alone has no interactions", fix="add a category or a number")
        self.top = _layers((inputs, *top), rngs)
        self.out = nnx.Linear(top[-1] if top else inputs, 1, rngs=rngs)

    def __call__(self, features: Features) -> jax.Array:
        """Logits, float32 [batch]."""
        dense = [_through(self.bottom, _stacked(features, self.numbers))] if self.numbers else []
        vectors = jnp.stack([*dense, *(_looked_up(self.tables, name, features) for name in self.categories)], axis=1)
        products = jnp.einsum("bik,bjk->bij", vectors, vectors)
        first, second = jnp.tril_indices(vectors.shape[1], -1)
        read = jnp.concatenate([*dense, products[:, first, second]], axis=-1)
        return self.out(_through(self.top, read))[:, 0]


def _refuse_none(categories: Mapping[str, int], numbers: Sequence[str]) -> None:
    if not categories and not numbers:
        raise InputError("the model has no feature", fix="name categories, with how many ids each has, or numbers")


def _tables(categories: Mapping[str, int], width: int, multiple: int, rngs: nnx.Rngs) -> Any:  # nnx.Dict is untyped
    init = partial(_uniform, parts=multiple)
    return nnx.Dict({name: _table(rows, width, multiple, init, rngs) for name, rows in categories.items()})


def _uniform(
    key: jax.Array, shape: tuple[int, int], dtype: Any, out_sharding: Any = None, *, parts: int = 1
) -> jax.Array:
    """Uniform in ±1/√rows, block by block: drawn at once, a table takes four times its memory while it is made.

    Each of the equal parts of the rows has blocks of its own, so that a device makes its part alone.
    """
    rows, width = shape
    bound, part = rows**-0.5, rows // parts
    block = min(part, _BLOCK)

    def fill(number: Any, table: jax.Array) -> jax.Array:
        drawn = jax.random.uniform(jax.random.fold_in(key, number), (parts, block, width), dtype, -bound, bound)
        return jax.lax.dynamic_update_slice(table, drawn, (0, jnp.minimum(number * block, part - block), 0))

    empty = jnp.zeros((parts, part, width), dtype)
    table: jax.Array = jax.lax.fori_loop(0, -(-part // block), fill, empty)
    return table.reshape(shape)


def _table(rows: int, width: int, multiple: int, init: Any, rngs: nnx.Rngs) -> nnx.Embed:
    return nnx.Embed(-(-rows // multiple) * multiple, width, embedding_init=init, rngs=rngs)


def _layers(widths: Sequence[int], rngs: nnx.Rngs) -> Any:  # nnx.List is untyped
    """Layers of normal weights of variance 2 / (inputs + outputs), biases of 1 / outputs."""

    def bias(key: jax.Array, shape: Sequence[int], dtype: Any, out_sharding: Any = None) -> jax.Array:
        return jax.random.normal(key, shape, dtype) / jnp.sqrt(shape[0])

    kernel = nnx.initializers.glorot_normal()
    pairs = pairwise(widths)
    return nnx.List([nnx.Linear(a, b, kernel_init=kernel, bias_init=bias, rngs=rngs) for a, b in pairs])


def _through(layers: Any, values: jax.Array) -> jax.Array:
    for layer in layers:
        values = nnx.relu(layer(values))
    return values


def _stacked(features: Features, names: Sequence[str]) -> jax.Array:
    return jnp.stack([features[name] for name in names], axis=-1)


def _looked_up(tables: Any, name: str, features: Features) -> jax.Array:
    """The embedding of a row's id, or the sum of those of its ids: [batch, width]."""
    table, ids = tables[name], features[name]
    pooled = isinstance(ids, Ragged)
    rows: jax.Array = embedding_bag(table.embedding[...], ids, combiner="sum") if pooled else table(ids)
    return rows
