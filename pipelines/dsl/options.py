"""Options of a node, read as users write them and checked."""

from __future__ import annotations

import math
import re
from dataclasses import fields
from typing import Any

from ...errors import BuildError
from ..ir.options import NodeOptions
from ..project.functions import user_line

_DECIMAL = {"B": 1, "kB": 10**3, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}
_UNITS = {"": 1, **_DECIMAL, **_BINARY, **{f"{unit}B": size for unit, size in _BINARY.items()}}
_AT_LEAST = {
    "retries": 0,
    "priority": -math.inf,
    "backoff": 0,
    "backoff_factor": 1,
    "backoff_max": 0,
    "cpus": 0,
    "memory": 0,
    "accelerators": 0,
    "replicas": 1,
}
_WHOLE = ("retries", "priority", "memory", "accelerators", "replicas")


def node_options(**given: Any) -> NodeOptions:  # Any: whatever the user wrote
    """Options of a node.

    Raises:
        BuildError: A value that makes no sense.
    """
    given["memory"] = parse_bytes(given["memory"])
    for name, least in _AT_LEAST.items():
        value = given[name]
        if not _is_number(value) or not value >= least:
            raise BuildError(f"{name}={value!r:.60} makes no sense", where=user_line(), fix=f"give {least} or more")
        if name in _WHOLE and not float(value).is_integer():
            raise BuildError(f"{name}={value!r} makes no sense", where=user_line(), fix="give a whole number")
        given[name] = int(value) if name in _WHOLE else float(value)
    timeout = given["timeout"]
    if timeout is not None and (not _is_number(timeout) or timeout <= 0):
        raise BuildError(f"timeout={timeout!r} makes no sense", where=user_line(), fix="give seconds above 0, or None")
    for name, value in given["env"]:
        if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            raise BuildError(
                f"{name!r} is no name of an environment variable", where=user_line(), fix="use A-Z, 0-9, _"
            )
        if isinstance(value, (int, float, list, dict)) or value is None or (isinstance(value, str) and "\0" in value):
            raise BuildError(f"the environment variable {name} is {value!r:.60}", where=user_line(), fix="give text")
    return NodeOptions(**{field.name: given[field.name] for field in fields(NodeOptions)})


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def parse_bytes(value: int | str) -> int:
    """Bytes from a number or from text such as "512MB" or "4GiB".

    Raises:
        BuildError: It is no amount of memory.
    """
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", str(value))
    if not found or found[2] not in _UNITS:
        raise BuildError(f"{value!r} is no amount of memory", where=user_line(), fix='write e.g. "512MB" or "4GiB"')
    return int(float(found[1]) * _UNITS[found[2]])
