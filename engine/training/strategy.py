"""Strategies: how parameters and batches lie on the devices, written as sharding rules on a mesh."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...errors import InputError, suggest

if TYPE_CHECKING:
    import jax
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

Axes = tuple[str | None, ...]  # one entry per array dimension: the mesh axis it is split on, or None; may be shorter


@dataclass(frozen=True)
class Strategy:
    """Sharding rules as data; XLA inserts the collectives that they imply.

    Attributes:
        name: What a pipeline calls it.
        axes: The mesh: axis names and sizes; -1 (once) takes all devices that are left.
        batch: The mesh axes that split the batch dimension of every feature.
        rules: (pattern, axes) for the training state, the first pattern found in an array's path
            ("params.dense.kernel", "optimizer.0.mu.dense.kernel") wins; replicated where none is found.
    """

    name: str
    axes: tuple[tuple[str, int], ...]
    batch: tuple[str, ...] = ()
    rules: tuple[tuple[str, Axes], ...] = ()

    def __post_init__(self) -> None:
        """Check the axes.

        Raises:
            InputError: A size is neither -1 nor 1 or more, or two are -1.
        """
        sizes = [size for _, size in self.axes]
        if any(size < 1 and size != -1 for size in sizes) or sizes.count(-1) > 1:
            raise InputError(
                f"strategy {self.name!r} has axes of the sizes {', '.join(map(str, sizes))}",
                fix="give each 1 or more; one may be -1, and takes all devices that are left",
            )

    def placement(self, devices: Sequence[jax.Device] | None = None) -> Placement:
        """The strategy on devices (by default all of this process, or of all processes that train together).

        Raises:
            InputError: The mesh needs more devices than there are, leaves a process without any, or has an axis of size
                -1 that cannot take all that are left.
        """
        import jax
        import numpy as np
        from jax.sharding import AxisType, Mesh

        devices = list(jax.devices() if devices is None else devices)
        fixed = math.prod(size for _, size in self.axes if size != -1)
        shape = tuple(len(devices) // fixed if size == -1 else size for _, size in self.axes)
        count = math.prod(shape)
        if not 0 < count <= len(devices):
            raise InputError(
                f"strategy {self.name!r} needs {max(count, fixed)} devices, here are {len(devices)}",
                fix="choose a smaller mesh",
            )
        if count < len(devices) and any(size == -1 for _, size in self.axes):
            raise InputError(
                f"strategy {self.name!r} has {len(devices)} devices, no multiple of the {fixed} of its other axes",
                fix=f"use {count} devices, or other sizes",
            )
        idle = {device.process_index for device in devices} - {device.process_index for device in devices[:count]}
        if idle:
            raise InputError(
                f"strategy {self.name!r} takes {count} of {len(devices)} devices, and leaves "
                f"{len(idle)} of the processes nothing to do",
                fix="use data_parallel, or one process",
            )
        grid = np.array(devices[:count]).reshape(shape)
        # Auto: with explicit axes a plain embedding lookup is a type error.
        mesh = Mesh(grid, tuple(name for name, _ in self.axes), axis_types=(AxisType.Auto,) * len(shape))
        return Placement(self, mesh)


@dataclass(frozen=True)
class Placement:
    """A strategy on a mesh of devices: the shardings that its rules give."""

    strategy: Strategy
    mesh: Mesh

    @property
    def shards(self) -> int:
        """Into how many parts a batch is split; the batch size must be a multiple of it."""
        return math.prod(self.mesh.shape[axis] for axis in self.strategy.batch)

    @property
    def blocking(self) -> bool:
        """Whether one dispatch must end before the next starts.

        Several devices of one CPU share a thread pool; collectives of two programs in flight can wait for each other
        until XLA aborts the process.
        """
        return self.mesh.size > 1 and self.mesh.devices.flat[0].platform == "cpu"

    def batch_sharding(self, leading: int) -> NamedSharding:
        """The sharding of feature arrays whose batch dimension comes after `leading` others."""
        from jax.sharding import NamedSharding

        split = self.strategy.batch
        return NamedSharding(self.mesh, _spec(*(None,) * leading, split or None))

    @property
    def processes(self) -> int:
        """How many processes have a part of it."""
        return len({device.process_index for device in self.mesh.devices.flat})

    def replicated(self) -> NamedSharding:
        """The sharding of what every device has a copy of."""
        from jax.sharding import NamedSharding

        return NamedSharding(self.mesh, _spec())

    def state_shardings(self, tree: Any) -> Any:  # Any: pytrees have no type
        """The sharding of every array of a training state, as a tree of the same structure."""
        import jax
        from jax.sharding import NamedSharding

        def rule(path: Any, _: Any) -> NamedSharding:
            name = jax.tree_util.keystr(path, simple=True, separator=".")
            axes = next((axes for pattern, axes in self.strategy.rules if re.search(pattern, name)), ())
            return NamedSharding(self.mesh, _spec(*axes))

        return jax.tree_util.tree_map_with_path(rule, tree)


def _spec(*axes: str | tuple[str, ...] | None) -> PartitionSpec:
    from jax.sharding import PartitionSpec

    return PartitionSpec(*axes)  # type: ignore[no-untyped-call]  # jax leaves it untyped


STRATEGIES: Mapping[str, Strategy] = {
    "single": Strategy("single", axes=(("data", 1),)),
    "data_parallel": Strategy("data_parallel", axes=(("data", -1),), batch=("data",)),
}


def strategy(name: str) -> Strategy:
    """A strategy by its name.

    Raises:
        InputError: There is none of that name.
    """
    if name not in STRATEGIES:
        raise InputError(f"there is no strategy {name!r}", fix=suggest(name, list(STRATEGIES), "there are"))
    return STRATEGIES[name]
