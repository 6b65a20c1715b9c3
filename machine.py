"""What this machine has, as far as this process may use it."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path


def total_memory() -> int:
    """Bytes of memory: those of the machine, or fewer where a control group (a container) has a limit."""
    import psutil  # late: few processes ask

    total = psutil.virtual_memory().total
    for name in ("memory.max", "memory/memory.limit_in_bytes"):
        with suppress(OSError, ValueError):
            total = min(total, int(Path("/sys/fs/cgroup", name).read_text()))
    return total


def spell_bytes(size: int) -> str:
    """A size for people, e.g. "1.5 GiB"."""
    for unit, power in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if size >= power:
            return f"{size / power:.4g} {unit}"
    return f"{size} bytes"
