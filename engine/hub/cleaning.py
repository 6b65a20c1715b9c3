"""Clean a hub of what publishers left that were killed: folders that no record names, records half written."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from .publishing import OBJECTS, STAMP, VERSIONS, numbers, record
from .stores import store_of

_FOLDER: Final = re.compile(r"[0-9a-f]{64}-([0-9]{8}T[0-9]{6}Z)-[0-9a-f]{16}")


def clean(
    address: str | Path,
    *,
    older_than: timedelta = timedelta(days=1),
    now: datetime | None = None,
    dry_run: bool = False,
) -> tuple[str, ...]:
    """Remove the files of publications that never became a version.

    A publication that is going on has no record either: what was begun within `older_than` stays, by the time in the
    folder's name, of a record that never got its name by the file's. Anything that is not named like that stays.

    Args:
        address: The folder or URL prefix, as in `save`.
        older_than: How long a publication may take at most.
        now: The time, with its zone; by default the clock's.
        dry_run: Whether nothing is removed.

    Returns:
        The folders and files that were removed, or would be, below the address.

    Raises:
        InputError: A record is damaged (then nothing is removed), or the address cannot be listed or written.
    """
    store = store_of(address)
    found = store.names(OBJECTS)  # before the records: a publication that ends meanwhile is named by one
    named = {record(store, number).folder for number in numbers(store)}
    before = (now or datetime.now(UTC)) - older_than
    gone = []
    for name in found:
        begun = _FOLDER.fullmatch(name)
        folder = f"{OBJECTS}/{name}"
        if begun is None or folder in named:
            continue
        if datetime.strptime(begun[1], STAMP).replace(tzinfo=UTC) < before:
            if not dry_run:
                store.remove(folder)
            gone.append(folder)
    gone += [f"{VERSIONS}/{name}" for name in store.unfinished(VERSIONS, before, remove=not dry_run)]
    return tuple(gone)
