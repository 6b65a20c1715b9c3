"""The journal of a study in Optuna's own format, for the one process that writes it.

Optuna's backend takes a lock for each line, and reads the file again for each question that it is asked, since others
may have written: several times the work of all the rest. Here nobody else writes, so neither is needed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any


class StudyJournal:
    """A backend of Optuna's `JournalStorage`: a JSON object a line, on the disk before the next is begun."""

    def __init__(self, path: Path) -> None:
        """Open, or begin, a journal.

        What a killed process left half done goes: its lock, for which Optuna's own backend would wait, and half a line
        at the end.

        Args:
            path: The file. Only who goes on with the study opens it: whoever held a lock is dead.
        """
        self._path = path
        for lock in path.parent.glob(f"{path.name}.lock*"):
            lock.unlink(missing_ok=True)
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab+") as file:
            file.seek(0)
            body = file.read()
            whole = body.rfind(b"\n") + 1
            if whole < len(body):
                file.truncate(whole)
        self._lines = body[:whole].split(b"\n")[:-1]

    def read_logs(self, log_number_from: int) -> Iterator[dict[str, Any]]:
        """The entries from a number on, which counts from 0.

        Raises:
            ValueError: A line is no JSON.
        """
        return map(json.loads, self._lines[log_number_from:])

    def append_logs(self, logs: Sequence[dict[str, Any]]) -> None:
        """Add entries at the end; they are on the disk when this returns."""
        lines = [json.dumps(log, separators=(",", ":")).encode() for log in logs]
        with self._path.open("ab") as file:
            file.write(b"".join(line + b"\n" for line in lines))
            file.flush()
            os.fsync(file.fileno())
        self._lines += lines
