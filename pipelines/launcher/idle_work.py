"""Work folders that nobody went on with: a node that failed for good leaves its checkpoints there."""

from __future__ import annotations

import os
import shutil
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from .home import Home
from .pending_uploads import drop

UNUSED: Final = 7
"""Days without a change after which a work folder may go."""
_REMOVED: Final = ".removed"
"""What the name of a folder ends in that is being removed."""


@dataclass(frozen=True)
class IdleWork:
    """A work folder in which nothing has changed for `UNUSED` days and whose work nobody does.

    Attributes:
        folder: It.
        size: Bytes of its files.
    """

    folder: Path
    size: int


def idle_work(home: Home, now: float | None = None) -> list[IdleWork]:
    """The work folders of a root that may go; none is of work that an attempt holds, wherever it runs.

    Args:
        home: Of the root.
        now: Seconds since 1970; the clock's where None.
    """
    oldest = (time.time() if now is None else now) - UNUSED * 86400
    idle = []
    for folder in sorted(home.root.glob("work/nodes/*/")):
        changed, size = _newest_and_size(folder)
        if changed < oldest and not _is_held(home, folder):
            idle.append(IdleWork(folder, size))
    return idle


def remove_work(home: Home, idle: list[IdleWork]) -> list[IdleWork]:
    """Remove them, but for those whose work somebody took up meanwhile; gives what is gone."""
    gone = []
    for each in idle:
        aside = (
            each.folder if each.folder.name.endswith(_REMOVED) else each.folder.with_name(each.folder.name + _REMOVED)
        )
        with suppress(OSError):  # another collection removes it too, or an earlier one left its rest
            if _is_held(home, each.folder):
                continue
            each.folder.rename(aside)
            if _is_held(home, each.folder):  # an attempt that began in between looks for its checkpoints
                aside.rename(each.folder)
                continue
            if home.payloads.url is not None:
                drop(aside, home.payloads, home.store.artifact_by_uri)
            shutil.rmtree(aside)
            gone.append(each)
    return gone


def _is_held(home: Home, folder: Path) -> bool:
    """Whether an attempt holds the work of a folder, as long as its lease goes: who was killed still has a claim."""
    holder = home.store.claim_holder(folder.name)
    return holder is not None and not home.store.is_lease_over(folder.name, holder)


def _newest_and_size(folder: Path) -> tuple[float, int]:
    """When anything in a folder changed last, in seconds since 1970, and the bytes of its files."""
    newest, size = 0.0, 0
    for path, folders, files in os.walk(folder):
        for name in (".", *folders, *files):
            with suppress(OSError):  # it goes just now
                status = os.lstat(os.path.join(path, name))  # noqa: PTH118 - of thousands of files
                newest = max(newest, status.st_mtime)
                size += status.st_size if name in files else 0
    return newest, size
