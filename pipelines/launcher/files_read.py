"""The files that executions read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ...metadata import ExecutionRecord
from .home import Home


def files_read(home: Home, execution: ExecutionRecord) -> Iterator[dict[str, Any]]:
    """The files that an execution read: those that its parameters name, by parameter, and those that its code opened.

    Yields:
        `parameter` (None of what code opened), `name`, `size` in bytes and `sha256`, as far as they are known.
    """
    preimage = home.store.preimage(execution.cache_key) if execution.cache_key else None
    for parameter, value in (preimage or {}).get("parameters", {}).items():
        for name, size, digest in _files_in(value):
            yield {"parameter": parameter, "name": name, "size": size, "sha256": digest}
    for name, stamp, digest in execution.properties.get("reads", ()):
        # Neither what was not there, nor a folder, nor the second name of a file beside the project.
        if stamp is not None and stamp[0] >= 0 and not str(name).startswith("../"):
            yield {"parameter": None, "name": str(name), "size": stamp[0], "sha256": digest or None}


def _files_in(value: object) -> Iterator[list[Any]]:
    if isinstance(value, dict) and "$files" in value:
        yield from value["$files"]
    elif isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _files_in(item)
