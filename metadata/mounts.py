"""On which kind of file system a path lies: some cannot lock between hosts, some do not date every write."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path


def filesystem_of(path: Path) -> str:
    """The kind of file system that a path lies on, or will, as Linux calls it; "" where the system does not say."""
    with suppress(OSError):
        there = next((str(folder) for folder in (path, *path.parents) if folder.exists()), "/")
        there = str(Path(there).resolve())
        best, kind = "", ""
        for line in Path("/proc/self/mounts").read_text(encoding="utf-8", errors="surrogateescape").splitlines():
            mount, fstype = line.split(" ")[1:3]
            mount = mount.replace("\\040", " ")
            if len(mount) >= len(best) and (mount == "/" or there == mount or there.startswith(f"{mount}/")):
                best, kind = mount, fstype
        return kind
    return ""
