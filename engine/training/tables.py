"""Sparse tables: embedding tables of which a training step reads and writes only the rows that its batch looks up.

A dense optimizer passes over whole tables in every step. Here a step takes the rows that the batch names, each once,
numbers the batch's ids anew as positions among them, and lets model, gradient and optimizer see these small tables;
then it writes the rows, and what the optimizer keeps of them, back where they came from. The state is given away to
the step, so nothing of a table is copied.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from ...errors import InputError, suggest
from ..ragged.ragged import Ragged
from .lookups import refuse_other_uses

if TYPE_CHECKING:
    from .model import Model
    from .training import Arrays

State = dict[str, Any]  # "params" and "optimizer" among others: pytrees

_SPARSE, _REST = "tables", "rest"


@dataclass(frozen=True)
class SparseTables:
    """Which parameters are tables that a training step changes by rows, and how.

    Attributes:
        ids: The parameter's path ("tables.user.embedding", an array [rows, ...]) and the feature whose ids name rows
            of it, integers or a `Ragged` of them; several features where they share the table. The model may use
            these features for nothing else. Two tables that have a feature in common must have all in common.
        optimizer: What changes the rows, from optax or one of this module. For each row it is as though there were only
            the steps in which the row is looked up; a gradient is the sum over all places in the batch that name the
            row. Numbers that are not of a row, such as Adam's count of steps, go on in each step. So SGD and Adagrad
            are exactly what they are on dense gradients. Adam is the lazy one of `torch.optim.SparseAdam`: the moments
            of a row rest while it is not looked up. Momentum and weight decay rest likewise.
    """

    ids: Mapping[str, str | Sequence[str]]
    optimizer: optax.GradientTransformation

    def features(self, table: str) -> tuple[str, ...]:
        """The features whose ids name rows of a table."""
        names = self.ids[table]
        return (names,) if isinstance(names, str) else tuple(names)


class LookedUp(NamedTuple):
    """What a step sees of the state.

    Attributes:
        state: With the rows that the batch names in place of each table, [k, ...], and of what is kept of it.
        features: With ids that are positions among these rows.
        rows: The ids of these rows for each table, int32 [k], ascending; behind them numbers of no row.
    """

    state: State
    features: Arrays
    rows: Mapping[str, jax.Array]


class RowUpdates:
    """Steps on the rows of tables, for one model."""

    def __init__(self, tables: SparseTables, rest: optax.GradientTransformation, model: Model, label: str) -> None:
        """Nothing is looked at yet.

        Args:
            tables: Which parameters, and what changes them.
            rest: What changes all other parameters.
            model: The model.
            label: The column that is no feature.

        Raises:
            InputError: No table; a feature that is the label; tables that have only some of their features in common.
        """
        self._tables, self._model = tables, model
        self._groups: dict[tuple[str, ...], list[str]] = {}
        for table in tables.ids:
            self._groups.setdefault(tables.features(table), []).append(table)
        if not self._groups:
            raise InputError("tables names no parameter", fix="leave it out, or name one: {'user.embedding': 'user'}")
        owner: dict[str, str] = {}
        for features, (first, *_) in self._groups.items():
            for feature in features:
                if feature == label:
                    raise InputError(f"the ids of table {first!r} are {label!r}, the label", fix="name a feature")
                if owner.setdefault(feature, first) != first:
                    raise InputError(
                        f"tables {owner[feature]!r} and {first!r} have the feature {feature!r} in common, not all",
                        fix="name the same features for both, in the same order",
                    )
        optimizers = {_SPARSE: tables.optimizer, _REST: rest}
        self.optimizer = optax.partition(optimizers, self._labels)
        """What the step uses, on the parameters that `look_up` gives."""

    def _labels(self, params: Any) -> Any:
        def label(path: Any, _: Any) -> str:
            return _SPARSE if _name(path) in self._tables.ids else _REST

        return jax.tree_util.tree_map_with_path(label, params)

    def check(self, state: State) -> None:
        """See that the tables are there, and that their optimizer changes rows.

        Args:
            state: The first one, or its shapes.

        Raises:
            InputError: A parameter that there is not, or that is no table; an optimizer whose state is not by rows.
        """
        params = {_name(path): leaf for path, leaf in jax.tree_util.tree_flatten_with_path(state["params"])[0]}
        for table in self._tables.ids:
            if table not in params:
                raise InputError(
                    f"the model has no parameter {table!r}", fix=suggest(table, list(params), "its parameters are")
                )
            if not params[table].shape:
                raise InputError(f"the parameter {table!r} is a number", fix="name an array of rows")
        inner = state["optimizer"].inner_states[_SPARSE]
        nodes = jax.tree.leaves(inner, is_leaf=lambda node: isinstance(node, optax.MultiStepsState))
        if any(isinstance(node, optax.MultiStepsState) for node in nodes):
            raise InputError(
                "optax.MultiSteps cannot change sparse tables: it would forget rows that only some of its steps name",
                fix="give the tables an optimizer without it, or a larger batch_size",
            )
        for path, leaf in jax.tree_util.tree_flatten_with_path(inner)[0]:
            kept_of = self._kept_of(_name(path))
            if leaf.shape and (kept_of is None or leaf.shape[:1] != params[kept_of].shape[:1]):
                raise InputError(
                    f"the optimizer of the tables keeps {_name(path)}, {list(leaf.shape)}, which is not by rows",
                    fix="use sgd, adagrad, adam, rowwise_adagrad or rowwise_adam",
                )

    def look_up(self, state: State, features: Arrays) -> LookedUp:
        """What a step sees of the state; call it while the step is traced.

        Raises:
            InputError: A feature that there is not, or whose values are no integers; or the model uses a table or its
                ids otherwise.
        """
        for names, tables in self._groups.items():
            for name in names:
                _refuse_no_ids(name, tables[0], features)
        self._refuse_other_uses(state, features)
        params = {_name(path): leaf for path, leaf in jax.tree_util.tree_flatten_with_path(state["params"])[0]}
        rows: dict[str, jax.Array] = {}
        most_of: dict[str, int] = {}
        numbered: dict[str, Any] = dict(features)
        for names, tables in self._groups.items():
            most = max(params[table].shape[0] for table in tables)
            ids = [_plain(features[name], most) for name in names]
            flat = jnp.concatenate([array.reshape(-1) for array in ids])
            size = min(flat.shape[0], most + 2)
            unique, positions = jnp.unique(flat, size=size, fill_value=most + 1, return_inverse=True)
            rows |= dict.fromkeys(tables, unique)
            most_of |= dict.fromkeys(tables, most)
            begin = 0
            for name, array in zip(names, ids, strict=True):
                part = positions[begin : begin + array.size].reshape(array.shape)
                begin += array.size
                feature: Any = features[name]
                numbered[name] = replace(feature, values=part) if isinstance(feature, Ragged) else part

        def looked_up(path: Any, leaf: Any) -> Any:
            table = self._table_at(_name(path))
            return leaf if table is None or not leaf.shape else _rows_of(leaf, rows[table], most_of[table])

        return LookedUp(jax.tree_util.tree_map_with_path(looked_up, state), numbered, rows)

    def write(self, state: State, after: State, rows: Mapping[str, jax.Array]) -> State:
        """The state with the rows that a step has changed.

        Args:
            state: Before the step.
            after: What the step made of what `look_up` gave.
            rows: As `look_up` gave them.
        """
        named = {_name(path): leaf for path, leaf in jax.tree_util.tree_flatten_with_path(state)[0]}

        def written(path: Any, leaf: Any) -> Any:
            table = self._table_at(name := _name(path))
            if table is None or not leaf.shape:
                return leaf
            whole = named[name].at[rows[table]]
            return whole.set(leaf, mode="drop", indices_are_sorted=True, wrap_negative_indices=False)

        changed: State = jax.tree_util.tree_map_with_path(written, after)
        return changed

    def _table_at(self, name: str) -> str | None:
        """The table whose rows an array of the state has, which is the table or kept of it; by its path."""
        part, _, rest = name.partition(".")
        if part == "params":
            return rest if rest in self._tables.ids else None
        begin = f"optimizer.inner_states.{_SPARSE}."
        return self._kept_of(name.removeprefix(begin)) if name.startswith(begin) else None

    def _kept_of(self, name: str) -> str | None:
        """The table of which an optimizer keeps an array at a path, which ends as that of the table."""
        fitting = [table for table in self._tables.ids if name.endswith(f".{table}")]
        return max(fitting, key=len, default=None)

    def _refuse_other_uses(self, state: State, features: Arrays) -> None:
        def step(params: Any, features: Arrays, model_state: Any, key: jax.Array) -> Any:
            return self._model.step(params, model_state, features, key)

        key = jax.eval_shape(jax.random.key, 0)
        used = jax.eval_shape(lambda *arguments: arguments, state["params"], features)
        groups = {table: names for names, tables in self._groups.items() for table in tables}
        refuse_other_uses(jax.make_jaxpr(step)(*used, state["model"], key), used, groups)


def _name(path: Any) -> str:
    return jax.tree_util.keystr(path, simple=True, separator=".")


def _refuse_no_ids(name: str, table: str, features: Arrays) -> None:
    if name not in features:
        raise InputError(
            f"table {table!r} has the ids of feature {name!r}, which there is not",
            fix=suggest(name, list(features), "the features are"),
        )
    feature: Any = features[name]
    dtype = feature.values.dtype if isinstance(feature, Ragged) else feature.dtype
    if not jnp.issubdtype(dtype, jnp.integer):
        raise InputError(
            f"table {table!r} has the ids of feature {name!r}, which is {dtype}", fix="name a feature of integers"
        )


def _plain(feature: Any, rows: int) -> jax.Array:
    """Ids, int32; `rows` for what is no row, `rows` + 1 in the empty slots of lists."""
    ids = jnp.asarray(feature.values if isinstance(feature, Ragged) else feature).astype(jnp.int32)
    ids = jnp.where((ids < 0) | (ids > rows), rows, ids)
    if isinstance(feature, Ragged):
        ids = jnp.where(feature.mask.reshape(-1, *(1,) * (ids.ndim - 1)), ids, rows + 1)
    return ids


def _rows_of(leaf: jax.Array, ids: jax.Array, most: int) -> jax.Array:
    """Rows of an array: NaN (0 for integers) for ids that it does not have, so that the fault shows; 0 behind them."""
    filler = jnp.nan if jnp.issubdtype(leaf.dtype, jnp.inexact) else 0
    rows = leaf.at[ids].get(mode="fill", fill_value=filler, indices_are_sorted=True, wrap_negative_indices=False)
    return jnp.where((ids <= most).reshape(-1, *(1,) * (leaf.ndim - 1)), rows, 0)


class RowwiseState(NamedTuple):
    """What `rowwise_adagrad` and `rowwise_adam` keep.

    Attributes:
        steps: So far, int32.
        mean: First moments, of the shapes of the parameters; None for Adagrad.
        squares: Of each row, float32 [rows]: the sum, or the moving average, of the mean square of its gradients.
    """

    steps: jax.Array
    mean: Any
    squares: Any


def rowwise_adagrad(learning_rate: optax.ScalarOrSchedule, eps: float = 1e-8) -> optax.GradientTransformation:
    """Adagrad with a single number for each row of a table, the sum of the mean squares of the row's gradients.

    FBGEMM's EXACT_ROWWISE_ADAGRAD, which torchrec trains with: row -= rate * gradient / (√sum + eps). For tables
    whose Adagrad, as large as the tables themselves, would be too much.

    Args:
        learning_rate: A number, or a schedule.
        eps: As in the formula.
    """

    def init(params: Any) -> RowwiseState:
        return RowwiseState(jnp.zeros((), jnp.int32), None, _zero_rows(params))

    def update(updates: Any, state: RowwiseState, params: Any = None) -> tuple[Any, RowwiseState]:
        squares = jax.tree.map(lambda gradient, total: total + _mean_square(gradient), updates, state.squares)
        scaled = jax.tree.map(lambda gradient, total: _divided(gradient, jnp.sqrt(total) + eps), updates, squares)
        return scaled, RowwiseState(state.steps + 1, None, squares)

    return optax.chain(
        optax.GradientTransformation(init, update),
        optax.scale_by_learning_rate(learning_rate),
    )


def rowwise_adam(
    learning_rate: optax.ScalarOrSchedule, b1: float = 0.9, b2: float = 0.999, eps: float = 1e-8
) -> optax.GradientTransformation:
    """Adam with a single second moment for each row of a table, that of the mean squares of the row's gradients.

    FBGEMM's PARTIAL_ROWWISE_ADAM. As a `SparseTables` optimizer it is lazy: the moments of a row rest while it is not
    looked up, and their bias is corrected by the number of all steps.

    Args:
        learning_rate: A number, or a schedule.
        b1: Decay of the first moments.
        b2: Decay of the second.
        eps: Added to the root of the second.
    """

    def init(params: Any) -> RowwiseState:
        return RowwiseState(jnp.zeros((), jnp.int32), optax.tree.zeros_like(params), _zero_rows(params))

    def update(updates: Any, state: RowwiseState, params: Any = None) -> tuple[Any, RowwiseState]:
        count = state.steps + 1
        mean = jax.tree.map(lambda gradient, before: b1 * before + (1 - b1) * gradient, updates, state.mean)
        squares = jax.tree.map(
            lambda gradient, before: b2 * before + (1 - b2) * _mean_square(gradient), updates, state.squares
        )
        first, second = 1 - b1**count, 1 - b2**count
        scaled = jax.tree.map(
            lambda moment, square: _divided(moment / first, jnp.sqrt(square / second) + eps), mean, squares
        )
        return scaled, RowwiseState(count, mean, squares)

    return optax.chain(
        optax.GradientTransformation(init, update),
        optax.scale_by_learning_rate(learning_rate),
    )


def _zero_rows(params: Any) -> Any:
    return jax.tree.map(lambda table: jnp.zeros(table.shape[:1], jnp.float32), params)


def _mean_square(gradient: jax.Array) -> jax.Array:
    return jnp.square(gradient).reshape(gradient.shape[0], -1).mean(axis=1)


def _divided(array: jax.Array, by_row: jax.Array) -> jax.Array:
    return array / by_row.reshape(-1, *(1,) * (array.ndim - 1))
