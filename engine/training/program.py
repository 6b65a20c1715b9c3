"""The compiled parts of a training: the first state, k steps of one dispatch, and losses without a step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from ...errors import InputError
from .custom_step import checked_gradients
from .freezing import Freezing
from .metrics import SplitMetric
from .precision import PRECISIONS, Precision, in_float32
from .rollback import Rollback
from .tables import RowUpdates, SparseTables
from .warm_start import replaced

if TYPE_CHECKING:
    from .custom_step import Gradients
    from .loader import Batch
    from .model import Model, Outputs, Variables
    from .strategy import Placement
    from .training import Arrays, Loss, Metric


State = dict[str, Any]
"""What a training step changes, pytrees: "params", "optimizer", "model" (the model's own state), and by option
"ema" (averaged parameters), "scale" (of the loss) and "update_scale" (smaller after each rollback)."""

# The initial state is computed once: compiling it well costs more than it saves (three quarters of the CPU seconds on
# flights), and so does compiling its parts apart (a quarter of the rest).
_RUN_ONCE: dict[str, bool | int] = {"xla_backend_optimization_level": 0, "xla_cpu_parallel_codegen_split_count": 1}
if jax.__version_info__ < (0, 11):  # which has no such option
    _RUN_ONCE["xla_cpu_use_fusion_emitters"] = False

_STEPS_KEY = 1
"""Folded into the run's key for that of the steps."""

# What makes a GPU give the same bits again: it adds up the gradient of an embedding in any order, and multiplies
# matrices by the algorithm that happened to be the fastest when the step was compiled.
_SAME_BITS = {"xla_gpu_deterministic_ops": True}

# For a processor XLA copies what a loop changes unless it looks closer at who still reads it. That takes a tenth of the
# CPU seconds from a step on flights, with the same bits; it compiles as long (decoder, DLRM, BERT: -3 to +6 %).
_IN_PLACE = {"xla_cpu_copy_insertion_use_region_analysis": True}


def _equations(jaxpr: Any) -> Iterator[Any]:  # Any: jax leaves them untyped
    """All that a traced function computes, also within the functions that it calls."""
    for equation in jaxpr.eqns:
        yield equation
        for value in equation.params.values():
            if (inner := getattr(value, "jaxpr", value)) is not value:
                yield from _equations(inner)


def _convolves(jaxpr: Any) -> bool:
    return any(equation.primitive.name == "conv_general_dilated" for equation in _equations(jaxpr))


@dataclass(frozen=True)
class StepOptions:
    """What a training step does beyond a gradient and an update.

    Attributes:
        metrics: Scalars of a batch, or `SplitMetric`s, by name, taken beside the eval loss.
        precision: The policy of types.
        ema: The decay of an exponential moving average of the parameters, which is evaluated and exported in their
            stead: average = ema * average + (1 - ema) * parameters after each step, the first being the initial ones.
        skip_nonfinite: Whether a step whose loss or gradients are not finite changes nothing.
        freezing: Which parameters, and arrays of the model's own state, no step changes.
        tables: Parameters of which a step changes the rows that its batch looks up, alone.
        gradients: What computes them in place of `jax.grad` of the loss.
        rollback: What is done where loss or gradients are not finite; None: nothing looks at the gradients.
    """

    metrics: Mapping[str, Metric] = field(default_factory=dict)
    precision: Precision = PRECISIONS["float32"]
    ema: float | None = None
    skip_nonfinite: bool = False
    freezing: Freezing = field(default_factory=Freezing)
    tables: SparseTables | None = None
    gradients: Gradients | None = None
    rollback: Rollback | None = None

    @property
    def skips(self) -> bool:
        """Whether a step can be left out: scaled losses overflow now and then, which is no fault."""
        return self.skip_nonfinite or self.precision.scaled


class Program:
    """The compiled parts of a training: initial state, k steps, loss without a step.

    The number of steps in a dispatch is an argument of the compiled loop, so that the last, shorter stack of an epoch
    runs the same code, and so that it makes no difference to the bits where a resumed run begins. Each step has a PRNG
    key of its own, from the run's key and the step's number, for the same reason.

    Steps with convolutions are dispatched one by one to a processor: within a loop XLA computes those by its slowest
    way there (jax-ml/jax#12868), which takes four to ten times as long.
    """

    def __init__(
        self,
        model: Model,
        loss: Loss,
        optimizer: optax.GradientTransformation,
        label: str,
        placement: Placement,
        options: StepOptions | None = None,
    ) -> None:
        """Wraps the functions in `jax.jit`; XLA compiles each when it is first called."""
        self._model, self._loss, self._label = model, loss, label
        self._step_options = step_options = options or StepOptions()
        self._row_updates: RowUpdates | None = None
        if step_options.tables is not None:
            self._row_updates = RowUpdates(step_options.tables, optimizer, model, label)
            optimizer = self._row_updates.optimizer
        self._optimizer = optax.with_extra_args_support(optimizer)  # some look at the loss (reduce_on_plateau)
        self._placement = placement
        self._stacked = placement.batch_sharding(leading=1)
        # Losses are read by every process; a lone one has them wherever XLA leaves them.
        self._losses_sharding = placement.replicated() if placement.processes > 1 else None
        self._options = {"gpu": _SAME_BITS, "cpu": _IN_PLACE}.get(placement.mesh.devices.flat[0].platform)
        self._train: Any = None  # jitted when the state's structure is known
        self._evaluate: Any = None
        self._loops = True  # whether steps of a dispatch are a loop of XLA's

        def initial(key: jax.Array, base: Mapping[str, jax.Array]) -> State:
            params, model_state = model.parts(replaced(model.init(key), base))
            step_options.freezing.check(params, model_state)
            trained = step_options.freezing.trained(params)
            state = {"params": params, "optimizer": optimizer.init(trained), "model": model_state}
            if step_options.ema is not None:
                state["ema"] = jax.tree.map(jnp.copy, trained)  # the arrays of a state are given away one by one
            if step_options.precision.scaled:
                state["scale"] = step_options.precision.first_scale()
            if step_options.rollback is not None:
                state["update_scale"] = jnp.float32(1)
            typed: State = jax.tree.map(_strongly_typed, state)
            return typed

        self._initial = initial  # one object, unlike a bound method: JAX remembers by it, and traces it once

    def shapes(self, key: jax.Array) -> State:
        """The state's structure, shapes and dtypes."""
        shapes: State = jax.eval_shape(self._initial, key, {})
        if self._row_updates is not None:
            self._row_updates.check(shapes)
        return shapes

    def placed(self, key: jax.Array) -> State:
        """The shapes with the shardings on the devices: for what the steps are compiled before there is a state."""
        shapes = self.shapes(key)
        placed: State = jax.tree.map(
            lambda leaf, sharding: leaf.update(sharding=sharding), shapes, self._placement.state_shardings(shapes)
        )
        return placed

    def initial(self, key: jax.Array, base: Mapping[str, Any] | None = None) -> jax.stages.Lowered:
        """What computes, from key and base, the state before the first step, on the devices.

        Args:
            key: The run's.
            base: Variables of another model, by name.
        """
        sharding = self._placement.state_shardings(self.shapes(key))
        return jax.jit(self._initial, out_shardings=sharding, compiler_options=_RUN_ONCE).lower(key, base or {})

    def put(self, state: State) -> State:
        """A state from the host on the devices."""
        placed: State = jax.device_put(state, self._placement.state_shardings(state))
        return placed

    def feed(self, stack: Batch) -> Arrays:
        """Stacked batches on the devices, [depth, batch, ...], split over the batch.

        The values of a `Ragged` are split too, wherever that falls: the segment ids say which row each belongs to,
        and XLA adds up what the devices have of it. A bucket that does not split evenly goes to every device.
        """
        shards = self._placement.shards
        whole = self._placement.replicated()
        wanted = jax.tree.map(lambda array: whole if array.shape[1] % shards else self._stacked, stack)
        arrays: Arrays = jax.device_put(stack, wanted)
        return arrays

    def train(self, state: State, stack: Arrays, count: int, first: int, key: jax.Array) -> tuple[State, jax.Array]:
        """`count` steps on the first batches of a stack: the new state (the old one is gone) and the losses [depth].

        Args:
            state: Before them.
            stack: Batches, [depth, batch, ...].
            count: How many of them.
            first: The number of the first step, from 0.
            key: The run's.

        Returns:
            The loss of a step that was left out is NaN; with rollback, so is that of a step with such a gradient.
        """
        move = self.compiled(state, stack)
        if self._loops:
            moved: tuple[State, jax.Array] = move(state, stack, count, first, key)
            return moved
        losses = []
        for index in range(count):
            state, loss = move(state, stack, index, first, key)
            losses.append(loss)
        return state, jnp.stack(losses)

    def compiled(self, state: State, stack: Arrays) -> Any:
        """The jitted function behind `train`; compiled on its first call."""
        if self._train is None:
            jitted = partial(
                jax.jit,
                donate_argnums=0,
                out_shardings=(self._placement.state_shardings(state), self._losses_sharding),
                compiler_options=self._options,
            )
            self._train = jitted(self._steps)
            if self._placement.mesh.devices.flat[0].platform == "cpu":
                traced = self._train.trace(state, stack, 1, 0, jax.random.key(0))  # JAX remembers it for the call
                self._loops = not _convolves(traced.jaxpr)
            if not self._loops:
                self._train = jitted(self._step)
        return self._train

    def variables(self, state: State) -> Variables:
        """What of a state is evaluated and served."""
        params = state["params"]
        if "ema" in state:
            params = self._step_options.freezing.merged(state["ema"], params)
        return self._model.variables(params, state["model"])

    def evaluate(self, variables: Variables, stack: Arrays, count: int) -> jax.Array:
        """The sums of loss and metrics of the first `count` batches of a stack, [`sums`]."""
        if self._evaluate is None:
            sums = self._sums if self._loops else self._values
            self._evaluate = jax.jit(sums, out_shardings=self._losses_sharding, compiler_options=self._options)
        totals: jax.Array
        if self._loops:
            totals = self._evaluate(variables, stack, count)
        else:
            totals = sum((self._evaluate(variables, stack, index) for index in range(count)), start=jnp.float32(0))
        return totals

    def _features(self, batch: Arrays) -> Arrays:
        return {name: array for name, array in batch.items() if name != self._label}

    def _value(self, outputs: Outputs, batch: Arrays) -> jax.Array:
        """The loss of a batch, float32."""
        value = self._loss(outputs, batch)
        if jnp.shape(value) != ():
            raise InputError(f"the loss has shape {list(jnp.shape(value))}, not a scalar", fix="return its .mean()")
        self._refuse_pairs(outputs, batch)
        return jnp.asarray(value, jnp.float32)

    def _refuse_pairs(self, outputs: Outputs, batch: Arrays) -> None:
        """Logits [rows, 1] beside labels [rows] give a loss of every row with every label, which trains nothing."""
        rows = jnp.shape(batch[self._label])
        if len(rows) != 1 or rows == (1,) or (*rows, 1) not in map(jnp.shape, jax.tree.leaves(outputs)):
            return
        equations = _equations(jax.make_jaxpr(self._loss)(outputs, batch).jaxpr)
        if any((*rows, *rows) == variable.aval.shape for each in equations for variable in each.outvars):
            raise InputError(
                f"the model gives shape [rows, 1] and the label {self._label!r} has shape [rows]: the loss compares "
                "each row with every row",
                fix="take the last axis off: logits[:, 0]",
            )

    def _values(self, variables: Variables, stack: Arrays, index: jax.Array | int) -> jax.Array:
        """Loss and metrics of one batch."""
        batch = _batch(stack, index)
        outputs = self._model.apply(variables, self._features(batch))
        values = [self._value(outputs, batch)[None]]
        for name, metric in self._step_options.metrics.items():
            value = metric(outputs, batch)
            values.append(value if isinstance(metric, SplitMetric) else _scalar(name, value)[None])
        return jnp.concatenate(values)

    @property
    def sums(self) -> int:
        """How many numbers of a batch are summed up in an evaluation: its loss, and for each metric one or several."""
        metrics = self._step_options.metrics.values()
        return 1 + sum(metric.size if isinstance(metric, SplitMetric) else 1 for metric in metrics)

    def results(self, totals: np.ndarray[Any, np.dtype[np.float64]], batches: int) -> tuple[float, dict[str, float]]:
        """The mean loss, and the metrics by name, from what `evaluate` gave for all batches."""
        metrics, at = {}, 1
        for name, metric in self._step_options.metrics.items():
            if isinstance(metric, SplitMetric):
                metrics[name] = metric.value(totals[at : at + metric.size])
                at += metric.size
            else:
                metrics[name] = float(totals[at]) / batches
                at += 1
        return float(totals[0]) / batches, metrics

    def _sums(self, variables: Variables, stack: Arrays, count: int) -> jax.Array:
        def add(index: jax.Array, totals: jax.Array) -> jax.Array:
            return totals + self._values(variables, stack, index)

        start = jnp.zeros(self.sums, jnp.float32)
        totals: jax.Array = jax.lax.fori_loop(0, count, add, start)
        return totals

    def _step(
        self, state: State, stack: Arrays, index: jax.Array | int, first: int, key: jax.Array
    ) -> tuple[State, jax.Array]:
        if self._model.train is not None or self._step_options.gradients is not None:
            # Else nobody draws from it, and the key of a step is half of what JAX has to lower of a small model's.
            key = jax.random.fold_in(jax.random.fold_in(key, _STEPS_KEY), first + index)
        return self._next(state, _batch(stack, index), key)

    def _steps(self, state: State, stack: Arrays, count: int, first: int, key: jax.Array) -> tuple[State, jax.Array]:
        def step(index: jax.Array, carry: tuple[State, jax.Array]) -> tuple[State, jax.Array]:
            state, losses = carry
            state, value = self._step(state, stack, index, first, key)
            return state, jax.lax.dynamic_update_index_in_dim(losses, value, index, 0, allow_negative_indices=False)

        depth = jax.tree.leaves(stack)[0].shape[0]
        start = (state, jnp.zeros(depth, jnp.float32))
        end: tuple[State, jax.Array] = jax.lax.fori_loop(0, count, step, start)
        return end

    def _next(self, state: State, batch: Arrays, key: jax.Array) -> tuple[State, jax.Array]:
        """The state after one step, and its loss."""
        options = self._step_options
        types = options.precision
        factor = state["scale"]["factor"] if types.scaled else None
        whole, features = state, self._features(batch)
        rows: Mapping[str, jax.Array] = {}
        if self._row_updates is not None:
            state, features, rows = self._row_updates.look_up(whole, features)

        freezing = options.freezing

        def objective(trained: Any) -> tuple[jax.Array, tuple[jax.Array, Any]]:
            params = freezing.merged(trained, state["params"])
            model_state = state["model"]
            if types.name == "float32":
                outputs, model_state = self._model.step(params, model_state, features, key)
            else:
                outputs, model_state = self._model.step(types.cast(params), model_state, types.cast(features), key)
                outputs, model_state = in_float32(outputs), _like(model_state, state["model"])
            value = self._value(outputs, batch)
            return value if factor is None else value * factor, (value, model_state)

        trained = freezing.trained(state["params"])
        if options.gradients is not None:
            batch = {**types.cast(features), self._label: batch[self._label]}
            results = options.gradients(types.cast(state["params"]), state["model"], batch, key)
            value, gradients, model_state = checked_gradients(results, state["params"], state["model"])
            gradients = freezing.trained(gradients)
        else:
            (_, (value, model_state)), gradients = jax.value_and_grad(objective, has_aux=True)(trained)
        if factor is not None:
            gradients = jax.tree.map(lambda gradient: gradient / factor, gradients)
        updates, optimizer = self._optimizer.update(gradients, state["optimizer"], trained, value=value)
        if options.rollback is not None:
            scale = state["update_scale"]
            updates = jax.tree.map(lambda update: update * scale.astype(update.dtype), updates)
        after = {
            "params": freezing.merged(optax.apply_updates(trained, updates), state["params"]),
            "optimizer": optimizer,
            "model": freezing.merged(freezing.trained(model_state), state["model"]),
        }
        finite = jnp.isfinite(value) & _all_finite(gradients) if options.skips or options.rollback else None
        if finite is not None:
            value = jnp.where(finite, value, jnp.nan)
        if finite is not None and options.skips:
            after = {name: _where(finite, part, state[name]) for name, part in after.items()}
        if self._row_updates is not None:
            after = self._row_updates.write(whole, after, rows)
        if options.ema is not None:
            average = optax.incremental_update(freezing.trained(after["params"]), state["ema"], 1 - options.ema)
            after["ema"] = _where(finite, average, state["ema"]) if finite is not None and options.skips else average
        if finite is not None and types.scaled:
            after["scale"] = types.next_scale(state["scale"], finite)
        if options.rollback is not None:
            after["update_scale"] = state["update_scale"]
        return after, value


def _strongly_typed(value: Any) -> jax.Array:  # Any: a Python number too
    """Without the weak type that JAX gives jnp.full(2, 0.5), and no state after a step: both would be compiled for."""
    array = jnp.asarray(value)
    return jax.lax.convert_element_type(array, array.dtype) if getattr(array, "weak_type", False) else array  # or a key


def _at(stacked: jax.Array, index: jax.Array | int) -> jax.Array:
    """An array of a stack; the index is never negative, which would be code of its own for each array."""
    array: jax.Array = jax.lax.dynamic_index_in_dim(stacked, index, keepdims=False, allow_negative_indices=False)
    return array


def _batch(stack: Arrays, index: jax.Array | int) -> Arrays:
    batch: Arrays = jax.tree.map(partial(_at, index=index), stack)
    return batch


def _scalar(name: str, value: Any) -> jax.Array:
    if jnp.shape(value) != ():
        raise InputError(
            f"the metric {name!r} has shape {list(jnp.shape(value))}, not a scalar", fix="return its .mean()"
        )
    return jnp.asarray(value, jnp.float32)


def _like(tree: Any, template: Any) -> Any:
    """A pytree with the dtypes of another: statistics of a batch in half precision are kept in float32."""
    return jax.tree.map(lambda leaf, before: leaf.astype(before.dtype), tree, template)


def _where(condition: jax.Array, after: Any, before: Any) -> Any:
    """One of two pytrees; PRNG keys in an optimizer's state too."""
    return jax.tree.map(lambda new, old: jnp.where(condition, new, old), after, before)


def _all_finite(tree: Any) -> jax.Array:
    return jnp.stack([jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(tree)]).all()
