"""The compiled parts of a training: the first state, k steps of one dispatch, and losses without a step."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import optax

from ...errors import InputError

if TYPE_CHECKING:
    from .loader import Batch
    from .model import Model, Outputs
    from .strategy import Placement
    from .training import Arrays, Loss


State = dict[str, Any]  # "params" and "optimizer": pytrees

# The initial state is computed once: compiling it well costs more than it saves (three quarters of the CPU seconds on
# flights), and so does compiling its parts apart (a quarter of the rest).
_RUN_ONCE: dict[str, bool | int] = {"xla_backend_optimization_level": 0, "xla_cpu_parallel_codegen_split_count": 1}
if jax.__version_info__ < (0, 11):  # which has no such option
    _RUN_ONCE["xla_cpu_use_fusion_emitters"] = False

# What makes a GPU give the same bits again: it adds up the gradient of an embedding in any order, and multiplies
# matrices by the algorithm that happened to be the fastest when the step was compiled.
_SAME_BITS = {"xla_gpu_deterministic_ops": True}


def _shapes(jaxpr: Any) -> Iterator[tuple[int, ...]]:  # Any: jax leaves it untyped
    """The shapes of all that a traced function computes."""
    for equation in jaxpr.eqns:
        yield from (variable.aval.shape for variable in equation.outvars)
        for value in equation.params.values():
            if (inner := getattr(value, "jaxpr", value)) is not value:
                yield from _shapes(inner)


class Program:
    """The compiled parts of a training: initial state, k steps, loss without a step.

    The number of steps in a dispatch is an argument of the compiled loop, so that the last, shorter stack of an epoch
    runs the same code, and so that it makes no difference to the bits where a resumed run begins.
    """

    def __init__(
        self, model: Model, loss: Loss, optimizer: optax.GradientTransformation, label: str, placement: Placement
    ) -> None:
        """Wraps the functions in `jax.jit`; XLA compiles each when it is first called."""
        self._model, self._loss, self._optimizer, self._label = model, loss, optimizer, label
        self._placement = placement
        self._stacked = placement.batches(leading=1)
        # Losses are read by every process; a lone one has them wherever XLA leaves them.
        self._losses_sharding = placement.everywhere() if placement.processes > 1 else None
        self._options = _SAME_BITS if placement.mesh.devices.flat[0].platform == "gpu" else None
        self._evaluate = jax.jit(self._sum, out_shardings=self._losses_sharding, compiler_options=self._options)
        self._train: Any = None  # jitted when the state's structure is known

        def initial(key: jax.Array) -> State:
            params = model.init(key)
            return {"params": params, "optimizer": optimizer.init(params)}

        self._initial = initial  # one object, unlike a bound method: JAX remembers by it, and traces it once

    def shapes(self, key: jax.Array) -> State:
        """The state's structure, shapes and dtypes."""
        shapes: State = jax.eval_shape(self._initial, key)
        return shapes

    def init(self, key: jax.Array) -> State:
        """The state before the first step, on the devices."""
        sharding = self._placement.state(self.shapes(key))
        state: State = jax.jit(self._initial, out_shardings=sharding, compiler_options=_RUN_ONCE)(key)
        return state

    def put(self, state: State) -> State:
        """A state from the host on the devices."""
        placed: State = jax.device_put(state, self._placement.state(state))
        return placed

    def feed(self, stack: Batch) -> Arrays:
        """Stacked batches on the devices, [depth, batch, ...], split over the batch.

        The values of a `Ragged` are split too, wherever that falls: the segment ids say which row each belongs to,
        and XLA adds up what the devices have of it. A bucket that does not split evenly goes to every device.
        """
        shards = self._placement.shards
        whole = self._placement.everywhere()
        wanted = jax.tree.map(lambda array: whole if array.shape[1] % shards else self._stacked, stack)
        arrays: Arrays = jax.device_put(stack, wanted)
        return arrays

    def train(self, state: State, stack: Arrays, count: int) -> tuple[State, jax.Array]:
        """`count` steps on the first batches of a stack: the new state (the old one is gone) and the losses [depth]."""
        moved: tuple[State, jax.Array] = self.compiled(state)(state, stack, count)
        return moved

    def compiled(self, state: State) -> Any:
        """The jitted function behind `train`; compiled on its first call."""
        if self._train is None:
            sharding = self._placement.state(state)
            self._train = jax.jit(
                self._steps,
                donate_argnums=0,
                out_shardings=(sharding, self._losses_sharding),
                compiler_options=self._options,
            )
        return self._train

    def evaluate(self, params: Any, stack: Arrays, count: int) -> jax.Array:
        """The sum of the losses of the first `count` batches of a stack."""
        total: jax.Array = self._evaluate(params, stack, count)
        return total

    def _objective(self, params: Any, batch: Arrays) -> jax.Array:
        features = {name: array for name, array in batch.items() if name != self._label}
        outputs = self._model.apply(params, features)
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
        if (*rows, *rows) in _shapes(jax.make_jaxpr(self._loss)(outputs, batch).jaxpr):
            raise InputError(
                f"the model gives shape [rows, 1] and the label {self._label!r} has shape [rows]: the loss compares "
                "each row with every row",
                fix="take the last axis off: logits[:, 0]",
            )

    def _sum(self, params: Any, stack: Arrays, count: int) -> jax.Array:
        def add(index: jax.Array, total: jax.Array) -> jax.Array:
            return total + self._objective(params, _batch(stack, index))

        total: jax.Array = jax.lax.fori_loop(0, count, add, jnp.float32(0))
        return total

    def _steps(self, state: State, stack: Arrays, count: int) -> tuple[State, jax.Array]:
        def step(index: jax.Array, carry: tuple[State, jax.Array]) -> tuple[State, jax.Array]:
            state, losses = carry
            value, gradients = jax.value_and_grad(self._objective)(state["params"], _batch(stack, index))
            updates, optimizer = self._optimizer.update(gradients, state["optimizer"], state["params"])
            params = optax.apply_updates(state["params"], updates)
            return {"params": params, "optimizer": optimizer}, losses.at[index].set(value)

        depth = jax.tree.leaves(stack)[0].shape[0]
        start = (state, jnp.zeros(depth, jnp.float32))
        end: tuple[State, jax.Array] = jax.lax.fori_loop(0, count, step, start)
        return end


def _batch(stack: Arrays, index: jax.Array) -> Arrays:
    batch: Arrays = jax.tree.map(lambda array: jax.lax.dynamic_index_in_dim(array, index, keepdims=False), stack)
    return batch
