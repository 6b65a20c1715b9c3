"""One row on the device: its inputs in one buffer, its results in another, computed on the thread that calls.

A call of a jitted function costs per argument. Thirty arguments cost more than what a small model computes, so for
single rows a stage is compiled a second time: all inputs come as 32-bit words of one array, all outputs leave as such.
Waiting for another thread costs more than either, so that processors get a program which XLA does not hand over.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from ..graphs.nodes import BATCH, DeviceStage

_WORDS: Final = {"float32": np.float32, "int32": np.int32, "uint32": np.uint32, "bool": np.int32}
_CODES: Final = {"float32": "f", "int32": "i", "uint32": "I", "bool": "?3x"}  # for `struct`, as wide
_SPARE: Final = "4x"  # a last word, always zero

Shape = tuple[str | int, ...]


class SingleRow:
    """A stage for one row: values in, arrays out."""

    def __init__(self, stage: DeviceStage, run: Callable[..., Any], weights: Sequence[Any], device: Any) -> None:
        """Prepare.

        Args:
            stage: One for which `fits` holds.
            run: What `row_program` made of it.
            weights: Those that do not stand in the program, on the device.
            device: Where to run it: a `jax.Device`, or None for the default.
        """
        self._device = device
        inputs = _layout(stage.slots)
        self._slots = [(_WORDS[dtype], math.prod(shape)) for _, dtype, shape in inputs]
        self._arrays = [position for position, (_, dims) in enumerate(stage.slots) if dims not in ((), (BATCH,))]
        codes = [_CODES[dtype] for _, dtype, _ in inputs]
        for position in self._arrays:
            codes[position] = f"{4 * self._slots[position][1]}s"
        self._pack = struct.Struct("=" + "".join(codes) + _SPARE).pack
        outputs = _layout([(tensor.dtype, tensor.shape) for tensor in stage.outputs])
        self._outputs = [
            (dtype == "float32", *_reading(at, dtype, shape[1:] if tensor.batched else shape))
            for (at, dtype, shape), tensor in zip(outputs, stage.outputs, strict=True)
        ]
        self._weights = weights
        self._run = run

    def __call__(self, values: Sequence[Any]) -> list[Any]:
        """Each output's array, or scalar where it has one value per row.

        Args:
            values: Of each input: a number or an array; 0 where nothing that is read depends on it.
        """
        inputs = list(values)
        for position in self._arrays:
            inputs[position] = _words(values[position], *self._slots[position])
        try:
            packed = self._pack(*inputs)  # a fifth of the time that numpy takes
        except (struct.error, OverflowError):  # beyond float32, say: numpy has rules for that
            packed = b"".join(_words(value, *slot) for value, slot in zip(values, self._slots, strict=True)) + bytes(4)
        words = np.frombuffer(packed, np.int32)
        if self._device is not None:
            import jax

            words = jax.device_put(words, self._device)
        result = np.asarray(self._run(words, *self._weights))
        floats = result.view(np.float32)
        outputs = []
        for is_float, at, finish in self._outputs:
            value = floats[at] if is_float else result[at]
            outputs.append(value if finish is None else finish(value))
        return outputs


def row_program(stage: DeviceStage, call: Callable[..., Any], device: Any) -> Callable[..., Any]:
    """What `SingleRow` runs: one array of words and the weights in, one array of words out; compiled when first called.

    Args:
        stage: One for which `fits` holds.
        call: Its program: inputs, then weights.
        device: As `SingleRow` has it.
    """
    import jax
    import jax.numpy as jnp

    inputs = _layout(stage.slots)
    on_processor = (device or jax.local_devices()[0]).platform == "cpu"
    waits = on_processor and not jax.config.jax_compilation_cache_dir  # type: ignore[attr-defined]  # untyped

    def run(words: Any, *weights: Any) -> Any:
        arrays = [_unpack(words[at], dtype, shape) for at, dtype, shape in inputs]
        results = call(*arrays, *weights)
        packed = jnp.concatenate([_pack(array) for array in results])
        return _not_handed_over(packed, words[-1]) if waits else packed

    def _unpack(words: Any, dtype: str, shape: tuple[int, ...]) -> Any:
        array = words != 0 if dtype == "bool" else jax.lax.bitcast_convert_type(words, _WORDS[dtype])
        return array.reshape(shape)

    def _pack(array: Any) -> Any:
        flat = array.reshape(-1)
        return flat.astype(jnp.int32) if flat.dtype == bool else jax.lax.bitcast_convert_type(flat, jnp.int32)

    return jax.jit(run)


def fits(stage: DeviceStage) -> bool:
    """Whether one row of a stage is made of a fixed number of 32-bit words."""
    every = [*stage.slots, *((tensor.dtype, tensor.shape) for tensor in stage.outputs)]
    return all(
        dtype in _WORDS and all(isinstance(dim, int) or (dim == BATCH and axis == 0) for axis, dim in enumerate(shape))
        for dtype, shape in every
    )


def _not_handed_over(words: Any, spare: Any) -> Any:  # traced arrays
    """The words, in a program that runs on the thread that calls it.

    On a processor XLA hands every program of more than a thousand operations to another thread, which takes longer than
    a small model. It does not do so where a program may call back into Python, as the two threads could then wait for
    each other. So this program contains a callback, which never runs, since the spare word is zero. JAX's persistent
    cache keeps no program with a callback: where that cache is on, a quick start counts for more, and rows are handed
    over.
    """
    import jax

    same = jax.eval_shape(_as_it_is, words)
    return jax.lax.cond(spare != 0, lambda array: jax.pure_callback(_as_it_is, same, array), _as_it_is, words)


def _as_it_is(array: Any) -> Any:  # an array
    return array


def _words(value: Any, dtype: Any, size: int) -> bytes:  # Any: a number or an array; a numpy type
    """The bytes of a value as `size` numbers of a dtype; a scalar is one."""
    words = np.empty(size, dtype)
    words[:] = value if size == 1 else np.ravel(value)
    return words.tobytes()


def _layout(slots: Sequence[tuple[str, Shape]]) -> list[tuple[slice, str, tuple[int, ...]]]:
    """Where in the buffer each array of one row stands."""
    layout, start = [], 0
    for dtype, dims in slots:
        shape = tuple(1 if isinstance(dim, str) else dim for dim in dims)
        stop = start + math.prod(shape)
        layout.append((slice(start, stop), dtype, shape))
        start = stop
    return layout


def _reading(at: slice, dtype: str, shape: tuple[int, ...]) -> tuple[slice | int, Callable[[Any], Any] | None]:
    """Where an output stands among the words, and what makes it of them; None: nothing is left to do."""
    if dtype in ("float32", "int32") and not shape:
        return at.start, None

    def finish(array: Any) -> Any:
        if dtype == "bool":
            array = array != 0
        elif dtype == "uint32":
            array = array.view(np.uint32)
        return array.reshape(shape) if shape else array

    return at if shape else at.start, finish
