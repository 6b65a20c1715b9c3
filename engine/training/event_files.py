"""Event files of TensorBoard, written by the thread that has something to write, which so hears of a full disk.

tensorboardX writes in a thread of its own. That ends at the first error, and who hands it more events waits for ever.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from tensorboardX import SummaryWriter
from tensorboardX.proto.event_pb2 import Event, SessionLog
from tensorboardX.record_writer import masked_crc32c
from tensorboardX.writer import FileWriter

from ...errors import DrivetrainError

_FLUSH_SECONDS: Final = 5.0


class EventFile(SummaryWriter):  # type: ignore[misc]  # of no types
    """A `SummaryWriter`, whose methods raise a DrivetrainError where the file cannot be written.

    What is written lies in the file at the latest some seconds later, when the next event or `flush_late` comes.
    """

    file_writer: Any  # `_FileWriter`, None where it is closed

    def flush_late(self) -> None:
        """Flush what is late."""
        if self.file_writer is not None:
            self.file_writer.event_writer.flush_late()

    def _get_file_writer(self) -> FileWriter:
        """The file, opened when it is first asked for: all that `SummaryWriter` does goes through it."""
        if self.file_writer is None:
            self.file_writer = _FileWriter(Path(self.logdir), self._filename_suffix)
            self.all_writers = {self.logdir: self.file_writer}
            if self.purge_step is not None:  # TensorBoard forgets what other files have from this step on
                start = SessionLog(status=SessionLog.START)
                self.file_writer.add_event(Event(step=self.purge_step, session_log=start))
        return self.file_writer


class _FileWriter(FileWriter):  # type: ignore[misc]  # as above
    """tensorboardX's, which gives events their times and steps, without its thread."""

    def __init__(self, folder: Path, suffix: str) -> None:
        self.event_writer = _EventWriter(folder, suffix)
        self._default_metadata: dict[str, Any] = {}


class _EventWriter:
    """Where a `FileWriter` leaves its events: TFRecords of protocol buffers."""

    def __init__(self, folder: Path, suffix: str) -> None:
        self._folder, self._flushed = folder, -_FLUSH_SECONDS
        with self._named():
            folder.mkdir(parents=True, exist_ok=True)
            self._file = (folder / f"events.out.tfevents.{time.time():.0f}.{socket.gethostname()}{suffix}").open("wb")
        self.add_event(Event(wall_time=time.time(), file_version="brain.Event:2"))

    def get_logdir(self) -> str:
        """The folder."""
        return str(self._folder)

    def add_event(self, event: Event) -> None:
        """Write an event: its length and itself, each with a checksum behind it."""
        data = event.SerializeToString()
        length = struct.pack("<Q", len(data))
        with self._named():
            for part in (length, data):
                self._file.write(part + struct.pack("<I", masked_crc32c(part)))
        self.flush_late()

    def flush_late(self) -> None:
        """Flush where that was done some time ago."""
        if time.monotonic() - self._flushed >= _FLUSH_SECONDS:
            self.flush()

    def flush(self) -> None:
        """See that all of it can be read by others."""
        if not self._file.closed:
            with self._named():
                self._file.flush()
            self._flushed = time.monotonic()

    def close(self) -> None:
        """Flush and close."""
        with self._named():
            self._file.close()

    @contextmanager
    def _named(self) -> Iterator[None]:
        """What the system refuses, as an error with the folder; nothing is tried again then."""
        try:
            yield
        except OSError as error:
            if hasattr(self, "_file"):
                with suppress(OSError):
                    self._file.close()
            raise DrivetrainError(
                f"TensorBoard's events could not be written to {self._folder}: {error.strerror or error}",
                fix="make room there, and start again: a training goes on from its last checkpoint",
            ) from error
