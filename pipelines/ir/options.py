"""How a node is carried out: retries, limits, what it needs of a machine, its environment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from .expressions import Json


@dataclass(frozen=True)
class NodeOptions:
    """How a node is carried out; but for `env` nothing of it changes what its artifacts hold.

    Attributes:
        retries: How often it is tried again after a failure that is not the user's to mend.
        backoff: Seconds before the first retry.
        backoff_factor: By what they grow for each further one.
        backoff_max: Seconds at most.
        retry_on: Names of exception types, or one predicate as "module:function"; any where empty.
        timeout: Seconds after which an attempt is ended; None for never.
        priority: Among ready nodes, the highest goes first.
        cpus: Cores that it needs.
        memory: Bytes that it needs.
        accelerators: Devices that it needs for itself.
        replicas: How many processes do its work together.
        env: Environment variables of its process.
    """

    retries: int = 0
    backoff: float = 1.0
    backoff_factor: float = 2.0
    backoff_max: float = 3600.0
    retry_on: tuple[str, ...] = ()
    timeout: float | None = None
    priority: int = 0
    cpus: float = 0.0
    memory: int = 0
    accelerators: int = 0
    replicas: int = 1
    env: tuple[tuple[str, Json], ...] = ()

    def to_json(self) -> Json:
        """What differs from the default, as IR."""
        return {f.name: value for f in fields(self) if (value := getattr(self, f.name)) != f.default}

    @classmethod
    def from_json(cls, body: Mapping[str, Json]) -> NodeOptions:
        """Read the IR."""
        values: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in body.items()
        }
        if "env" in values:
            values["env"] = tuple((name, value) for name, value in values["env"])
        return cls(**values)
