"""Which device runs a stage: the one that was hinted, or the one on which it is done first."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from ..graphs.nodes import DeviceStage

CPU_FLOPS: Final = 2e10  # per second, one core with vectors: what small matrices reach
ACCELERATOR_FLOPS: Final = 2e12  # per second, small matrices, far from any data sheet
TRANSFER_BYTES: Final = 1e10  # per second to or from an accelerator
LAUNCH_SECONDS: Final = 5e-5  # to start work on an accelerator and to hear that it is done


def device_of(stage: DeviceStage, rows: int, devices: Sequence[Any]) -> Any | None:  # Any: jax.Device
    """The device that runs a stage on so many rows; None for JAX's default.

    Without a hint, a stage goes to the accelerator unless a core is done before the accelerator has its inputs: small
    models on single rows, lookups, sums. The estimate is coarse on purpose; a hint of `on(...)` overrules it.

    Args:
        stage: What is to run.
        rows: How many rows at once.
        devices: Those of this process, JAX's default first; then the processor's.
    """
    if stage.device is not None:
        hinted = _named(stage.device, devices)
        if hinted is None:
            have = list(dict.fromkeys(device.platform for device in devices))
            warnings.warn(
                f"stage {stage.program} wants {stage.device!r} and runs on {have[0]}: there is only {', '.join(have)}",
                RuntimeWarning,
                stacklevel=2,
            )
        return hinted
    processor = next((device for device in devices if device.platform == "cpu"), None)
    if processor is None or not devices or devices[0].platform == "cpu":
        return None
    moved = _bytes(stage, rows)
    here = stage.flops * rows / CPU_FLOPS
    there = LAUNCH_SECONDS + moved / TRANSFER_BYTES + stage.flops * rows / ACCELERATOR_FLOPS
    return processor if here < there else None


def _named(name: str, devices: Sequence[Any]) -> Any | None:
    platform, _, number = name.partition(":")
    alike = [device for device in devices if platform in _names(device)]
    index = int(number or 0)
    return alike[index] if index < len(alike) else None


def _names(device: Any) -> tuple[str, ...]:
    return (device.platform, "cuda") if device.platform == "gpu" else (device.platform,)


def _bytes(stage: DeviceStage, rows: int) -> int:
    shapes = [*stage.slots, *((tensor.dtype, tensor.shape) for tensor in stage.outputs)]
    return sum(
        math.prod(rows if isinstance(dim, str) else dim for dim in shape) * np.dtype(dtype).itemsize
        for dtype, shape in shapes
    )
