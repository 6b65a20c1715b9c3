"""What JAX finds on this machine: devices, plugins that bring more, and distributions that bring ops."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
from collections.abc import Iterator
from typing import Any, Final, Literal

PLUGINS: Final = "jax_plugins"
"""The group of entry points by which PJRT plugins offer devices to JAX."""

OPS: Final = "drivetrain.ops"
"""The group by which distributions offer ops to the engine (`engine.custom_ops`)."""


def devices() -> Iterator[tuple[str, Literal["ok", "bad"], str]]:
    """(what, "ok" or "bad", text) of JAX, each device, each PJRT plugin and each distribution of ops.

    Nothing where JAX is not installed.
    """
    if importlib.util.find_spec("jax") is None:
        return
    import jax
    from jax.extend.backend import backends

    window = (
        jax.export.minimum_supported_calling_convention_version,
        jax.export.maximum_supported_calling_convention_version,
    )
    jaxlib = importlib.metadata.version("jaxlib")
    versions = f"{jaxlib} under jax {jax.__version__}; reads exports of calling convention {window[0]} to {window[1]}"
    yield "jaxlib", "ok", versions
    try:
        default = jax.default_backend()
        platforms = sorted(backends(), key=lambda platform: platform != default)
        found = [device for platform in platforms for device in jax.devices(platform)]
    except RuntimeError as error:  # a backend was asked for (JAX_PLATFORMS) that is not there
        yield "devices", "bad", str(error).partition("\n")[0]
        found = []
    for device in found:
        said = [str(device.device_kind), _memory(device), "" if device.platform == default else "not the default"]
        yield f"device {device.platform}:{device.id}", "ok", ", ".join(filter(None, said))
    for group, kind in ((PLUGINS, "PJRT plugin"), (OPS, "ops of")):
        for point in sorted(importlib.metadata.entry_points(group=group)):
            by = f"{point.dist.name} {point.dist.version}" if point.dist is not None else point.value
            there = importlib.util.find_spec(point.module.partition(".")[0]) is not None
            yield f"{kind} {point.name}", "ok" if there else "bad", by if there else f"{by}: its module is missing"


def _memory(device: Any) -> str:  # Any: jax.Device, whose statistics JAX does not type
    stats = device.memory_stats() or {}
    if "bytes_limit" in stats:
        return f"{stats.get('bytes_in_use', 0) / 2**30:.1f} of {stats['bytes_limit'] / 2**30:.1f} GiB in use"
    if device.platform == "cpu" and hasattr(os, "sysconf"):
        return f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.1f} GiB of the machine"
    return ""
