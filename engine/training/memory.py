"""The memory that a training takes on each device, predicted before its first step."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp

from ...errors import InputError
from ...machine import spell_bytes, total_memory

if TYPE_CHECKING:
    from .strategy import Placement

_FIX = "lower batch_size, use precision='bfloat16' or jax.checkpoint, or a device with more memory"


def state_bytes(state: Any, placement: Placement) -> int:
    """What a training state takes on each device, from its shapes (`jax.eval_shape` gives them) and its sharding."""

    def part(leaf: Any, sharding: Any) -> int:
        if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            leaf = jax.eval_shape(jax.random.key_data, leaf)
            return int(math.prod(leaf.shape)) * int(leaf.dtype.itemsize)
        return int(math.prod(sharding.shard_shape(leaf.shape))) * int(leaf.dtype.itemsize)

    return sum(jax.tree.leaves(jax.tree.map(part, state, placement.state_shardings(state))))


def step_bytes(compiled: Any, stack: Any, ahead: int) -> dict[str, int]:
    """What one dispatch of steps takes on each device, by part, as XLA has planned it.

    Args:
        compiled: The dispatch's program, of `jax.stages.Compiled`.
        stack: Its batches, on the devices.
        ahead: How many further stacks lie there, prepared.

    Returns:
        "state", "batches" (with those that wait), and "intermediate" (activations and gradients, the losses); {} where
        the backend does not say.
    """
    plan = compiled.memory_analysis()
    if plan is None:
        return {}
    batches = sum(leaf.addressable_shards[0].data.nbytes for leaf in jax.tree.leaves(stack))
    intermediate = plan.temp_size_in_bytes + plan.output_size_in_bytes - plan.alias_size_in_bytes
    return {
        "state": max(0, plan.argument_size_in_bytes - batches),
        "batches": batches * (1 + ahead),
        "intermediate": intermediate,
    }


def refuse_excess(parts: Mapping[str, int], placement: Placement) -> None:
    """Refuse a training that a device has no memory for.

    Args:
        parts: Bytes on each device, by what they are for.
        placement: The devices. On a GPU the limit is what XLA may take there, on a CPU the memory of the machine for
            all of its devices.

    Raises:
        InputError: It takes more, with each part.
    """
    devices = [device for device in placement.mesh.devices.flat if device.process_index == jax.process_index()]
    device = devices[0]
    on_cpu = device.platform == "cpu"
    limit = total_memory() if on_cpu else int((device.memory_stats() or {}).get("bytes_limit", 0))
    wanted = sum(parts.values()) * (len(devices) if on_cpu else 1)
    if not limit or wanted <= limit:
        return
    each = f" on each of {len(devices)} devices" if on_cpu and len(devices) > 1 else ""
    raise InputError(
        f"a step of this training needs {spell_bytes(wanted)} ({_spelled(parts)}{each}), "
        f"and {device} has {spell_bytes(limit)}",
        fix=_FIX,
    )


@contextmanager
def explained_exhaustion(at: Callable[[], tuple[int, Mapping[str, int]]]) -> Iterator[None]:
    """What is raised where a device runs out of memory although it seemed to have enough, as an error of the user's.

    Args:
        at: Gives the number of the step, from 0, and what was planned, by part.
    """
    try:
        yield
    except (RuntimeError, MemoryError) as error:  # XLA's errors are RuntimeErrors
        if not isinstance(error, MemoryError) and "RESOURCE_EXHAUSTED" not in str(error):
            raise
        step, parts = at()
        cause = (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
        planned = f"; planned were {_spelled(parts)}" if parts else ""
        raise InputError(f"the device ran out of memory at step {step + 1} ({cause}){planned}", fix=_FIX) from error


def _spelled(parts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {spell_bytes(size)}" for name, size in parts.items())
