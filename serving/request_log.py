"""A log of sampled requests and their answers as Parquet, written beside the event loop, at no request's cost.

An answered request is put into a queue; a thread makes rows of it, and whole files of the rows, under a temporary name
until they are complete. Where the queue is full, the disk is, or the folder is gone, rows are dropped and counted.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from pathlib import Path
from typing import Final, Literal, NamedTuple, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from ..digest import write_durably
from ..errors import InputError, suggest
from ..redaction import mark_secret
from .api import Described, InferenceAnswer, InferenceRequest, RequestError
from .batching import Done
from .log_files import FOOTER, PREDICTION, day_folder, file_name, files_before, is_half, path_part
from .logged_rows import AnsweredRequest, RowSchema, bytes_of

SALT: Final = "DRIVETRAIN_REQUEST_LOG_SALT"
"""The environment variable that holds the key of hashed columns, unless the configuration names another."""

_LOG: Final = logging.getLogger("drivetrain.serving")
_QUEUE: Final = 256 << 20  # bytes that may wait to be written
_FILE: Final = 64 << 20  # bytes, as they lie in the queue, that make a file before its time
_LOOK: Final = 0.2  # seconds between two looks at the queue
_TURN: Final = 64  # requests that become rows before other threads have their turn
_SAY: Final = 60.0  # seconds between two messages about dropped rows
_CLEAN: Final = 3600.0  # seconds between two looks for files that are too old
_SALT_LENGTH: Final = 16
_MOST_DAYS: Final = 36_500
_OVERHEAD: Final = 400  # bytes of a request beside its values
_DAY: Final = 86_400_000_000

Dropped: TypeAlias = Literal["queue", "disk", "value"]
"""Why rows are not in the log: too much waited, the file could not be written, a value is not of its column's type."""


@dataclass(frozen=True)
class RequestLogOptions:
    """What is logged of a model's requests.

    Attributes:
        folder: Where; the model's name, its version and the day are folders below it.
        sample: The share of the requests, above 0 and at most 1. A hash of a request's id decides, so that a retry is
            decided on equally.
        deny: Columns that are not logged, beside those that the model's own schema leaves out.
        hash: Likewise columns of which an HMAC-SHA-256 is logged in place of the value.
        salt_from: The environment variable that holds the key of the HMAC.
        keep_days: After how many days a file is deleted; None: never.
        write_seconds: How long a row waits, at most, for others to be written with.
    """

    folder: str
    sample: float = 1.0
    deny: tuple[str, ...] = ()
    hash: tuple[str, ...] = ()
    salt_from: str = SALT
    keep_days: int | None = None
    write_seconds: float = 60.0

    def __post_init__(self) -> None:
        if "://" in self.folder:
            raise InputError(
                "the request log is a folder of this machine, not a URL", fix="write it here, and copy whole files"
            )
        if not 0 < self.sample <= 1:
            raise InputError(f"the request log has a sample of {self.sample!r}", fix="write a share: 0.1, say")
        if self.keep_days is not None and not 1 <= self.keep_days <= _MOST_DAYS:
            raise InputError(
                f"keep_days is {self.keep_days}", fix=f"keep them for 1 to {_MOST_DAYS:,} days, or leave it out"
            )
        if not 0 < self.write_seconds < math.inf:
            raise InputError(f"write_seconds is {self.write_seconds!r}", fix="write 60, say")
        if both := sorted({*self.deny} & {*self.hash}):
            raise InputError(f"the column {both[0]!r} is both denied and hashed", fix="name it once")

    def key(self) -> bytes | None:
        """The key of the HMAC; None where there is none. From now on this process redacts it.

        Raises:
            InputError: Something is hashed, and the environment has no key, or one that is too short.
        """
        salt = os.environ.get(self.salt_from, "")
        if len(salt) < _SALT_LENGTH and not self.hash:
            return None  # what a model's own schema has hashed is left out
        if len(salt) < _SALT_LENGTH:
            problem = f"has fewer than {_SALT_LENGTH} characters" if salt else "is not set"
            raise InputError(
                f"columns of the request log are hashed with a salt, and {self.salt_from} {problem}",
                fix=f"set {self.salt_from} to a long random text, the same for every server",
            )
        mark_secret(salt)
        return salt.encode()


def is_sampled(request_id: str, share: float) -> bool:
    """Whether a request is among this share of all: the same for equal ids, and where the share grows none leaves."""
    if share >= 1:
        return True
    digest = blake2b(request_id.encode("utf-8", "surrogatepass"), digest_size=8, person=b"request-log").digest()
    return int.from_bytes(digest, "little") < share * 2**64


class _Kind(NamedTuple):
    """What the rows of one file have in common."""

    model: str
    version: int
    bundle: str
    signature: str
    day: int  # since 1970


@dataclass(slots=True)
class _OpenFile:
    """Rows that wait for others of their kind."""

    due: float
    tables: list[pa.Table] = field(default_factory=list)
    first: int = 0  # microseconds
    size: int = 0
    rows: int = 0


class RequestLog:
    """The log of a server.

    Args:
        options: By model; other models are not logged.

    Raises:
        InputError: Columns are to be hashed, and there is no salt.
    """

    def __init__(self, options: Mapping[str, RequestLogOptions]) -> None:
        self._options = dict(options)
        self._keys = {model: each.key() for model, each in options.items()}
        self._folders = {model: Path(each.folder) / path_part(model) for model, each in options.items()}
        self._schemas: dict[tuple[str, int, str, str], RowSchema] = {}
        self._guard = threading.Lock()
        self._queue: list[tuple[_Kind, AnsweredRequest]] = []
        self._size = 0  # bytes that wait, in the queue or for others of their file
        self._files: dict[_Kind, _OpenFile] = {}
        self._written: Counter[str] = Counter()
        self._dropped: Counter[tuple[str, Dropped]] = Counter()
        self._unsaid: Counter[tuple[str, str]] = Counter()
        self._said = -math.inf
        self._cleaned = -math.inf
        self._ending = threading.Event()
        self._thread: threading.Thread | None = None

    # --- in the event loop ---

    def start(self) -> None:
        """Make the folders, and begin to write.

        Raises:
            InputError: A folder cannot be made.
        """
        for folder in self._folders.values():
            try:
                folder.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise InputError(
                    f"the request log cannot be written to {folder}: {error.strerror}", fix="choose another folder"
                ) from error
        self._thread = threading.Thread(target=self._run, name="drivetrain-request-log", daemon=True)
        self._thread.start()

    def wants(self, model: str, request_id: str) -> bool:
        """Whether a request is to be logged."""
        options = self._options.get(model)
        return options is not None and is_sampled(request_id, options.sample)

    def recording(self, described: Described, signature: str, request: InferenceRequest, done: Done) -> Done:
        """What is to be called in place of `done`: it calls that first, then logs the request if it was answered.

        Args:
            described: The version that is asked.
            signature: What it is asked, by its full name.
            request: The request, which came just now; its columns are not to be changed any more.
            done: What is called with the answer.
        """
        microseconds = time.time_ns() // 1000

        def answered(result: InferenceAnswer | RequestError) -> None:
            done(result)
            if isinstance(result, RequestError):
                return
            try:
                self._add(described, signature, request, result, microseconds)
            except Exception as error:  # whatever it is, others of the batch still wait for their answers
                self._drop(described.name, "value", request.rows, f"they are unusual ({type(error).__name__})")

        return answered

    def _add(
        self,
        described: Described,
        signature: str,
        request: InferenceRequest,
        answer: InferenceAnswer,
        microseconds: int,
    ) -> None:
        columns = {name: request.columns[name] for name in described.signatures[signature].inputs
                   if name in request.columns}  # fmt: skip
        size = _OVERHEAD + sum(map(bytes_of, columns.values())) + sum(map(bytes_of, answer.outputs.values()))
        kind = _Kind(described.name, described.version, described.digest, signature, microseconds // _DAY)
        if kind[:4] not in self._schemas:
            options = self._options[described.name]
            self._schemas[kind[:4]] = RowSchema(
                described.name, described.version, described.digest, signature, described.signatures[signature],
                deny=options.deny, hashed=options.hash, key=self._keys[described.name],
            )  # fmt: skip
        kept = AnsweredRequest(request.request_id, microseconds, columns, request.rows, answer.outputs, size)
        with self._guard:
            full = self._size + size > _QUEUE
            if not full:
                self._size += size
                self._queue.append((kind, kept))
        if full:
            self._drop(kind.model, "queue", request.rows, "they come faster than they can be written")

    def counts(self) -> tuple[Counter[str], Counter[tuple[str, Dropped]]]:
        """Rows in complete files, by model; and those that are in none, by model and reason."""
        with self._guard:
            return self._written.copy(), self._dropped.copy()

    def check(self, described: Described) -> None:
        """Warn of columns to be left out or hashed that a version does not have, and of those to hash without a key."""
        options = self._options.get(described.name)
        if options is None:
            return
        rules = {
            name: rule for signature in described.signatures.values() for name, rule in signature.request_log.items()
        }
        if self._keys[described.name] is None and (
            unhashed := sorted(n for n, rule in rules.items() if rule == "hash")
        ):
            _LOG.warning(
                "the request log of model %s leaves out %s, which the model's schema has hashed: %s holds no key",
                described.name, ", ".join(unhashed), options.salt_from,
            )  # fmt: skip
        columns = {name: None for signature in described.signatures.values() for name in signature.inputs}
        columns |= {
            PREDICTION + name: None for signature in described.signatures.values() for name in signature.outputs
        }
        for name in (*options.deny, *options.hash):
            if name not in columns:
                hint = suggest(name, [*columns], "it has")
                _LOG.warning(
                    "the request log of model %s is to %s %r, which version %d does not have: %s",
                    described.name, "leave out" if name in options.deny else "hash", name, described.version, hint,
                )  # fmt: skip

    def close(self, seconds: float = 30.0) -> None:
        """Write what waits, and end; a disk that does not answer is waited for some seconds only."""
        self._ending.set()
        if self._thread is not None:
            self._thread.join(seconds)

    # --- in its thread ---

    def _run(self) -> None:
        ending = False
        while not ending:
            ending = self._ending.wait(_LOOK)
            try:
                self._make_rows(ending)
                self._write_files(ending)
                self._delete_old()
                self._say(ending)
            except Exception:  # whatever it is, requests are answered, and later ones are logged
                _LOG.exception("the request log failed")

    def _make_rows(self, ending: bool) -> None:
        """Make rows of what waits in the queue."""
        with self._guard:
            waiting, self._queue = self._queue, []
        by_kind: dict[_Kind, list[AnsweredRequest]] = {}
        for kind, request in waiting:
            by_kind.setdefault(kind, []).append(request)
        for kind, requests in by_kind.items():
            for start in range(0, len(requests), _TURN):
                part = requests[start : start + _TURN]
                try:
                    self._hold(kind, part, self._schemas[kind[:4]].table(part))
                except (pa.ArrowException, InputError, TypeError, ValueError, OverflowError):
                    self._hold_each(kind, part)
                if not ending:
                    time.sleep(0.001)  # Python runs one thread at a time: the event loop is not to wait for this one

    def _hold_each(self, kind: _Kind, requests: Sequence[AnsweredRequest]) -> None:
        """Requests among which there is one that has no rows."""
        for request in requests:
            try:
                self._hold(kind, [request], self._schemas[kind[:4]].table([request]))
            except (pa.ArrowException, InputError, TypeError, ValueError, OverflowError) as error:
                self._let_go(request.size)
                self._drop(kind.model, "value", request.rows, f"a value has no column ({type(error).__name__})")

    def _hold(self, kind: _Kind, requests: Sequence[AnsweredRequest], rows: pa.Table) -> None:
        file = self._files.get(kind)
        if file is None:
            due = time.monotonic() + self._options[kind.model].write_seconds
            file = self._files[kind] = _OpenFile(due, first=requests[0].microseconds)
        file.tables.append(rows)
        file.first = min(file.first, *(request.microseconds for request in requests))
        file.size += sum(request.size for request in requests)
        file.rows += rows.num_rows

    def _write_files(self, ending: bool) -> None:
        """Write the files that are due, or large."""
        now = time.monotonic()
        for kind, file in [*self._files.items()]:
            if not (ending or file.due <= now or file.size >= _FILE):
                continue
            del self._files[kind]
            try:
                self._write(kind, file)
                with self._guard:
                    self._written[kind.model] += file.rows
            except (OSError, pa.ArrowException) as error:
                cause = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else str(error)
                self._drop(kind.model, "disk", file.rows, f"{self._folders[kind.model]} cannot be written to: {cause}")
            finally:
                self._let_go(file.size)

    def _write(self, kind: _Kind, file: _OpenFile) -> None:
        sink = pa.BufferOutputStream()
        pq.write_table(self._schemas[kind[:4]].whole(file.tables), sink, compression="zstd")
        folder = day_folder(self._folders[kind.model], kind.version, file.first)
        for each in (folder.parent, folder):  # not the model's: where that is gone, a disk may not be mounted
            each.mkdir(exist_ok=True)
        write_durably(folder / file_name(kind.signature, file.first), sink.getvalue())

    def _let_go(self, size: int) -> None:
        with self._guard:
            self._size -= size

    def _drop(self, model: str, reason: Dropped, rows: int, cause: str) -> None:
        with self._guard:
            self._dropped[model, reason] += rows
            self._unsaid[model, cause] += rows

    def _say(self, ending: bool) -> None:
        """Say what was dropped, once a minute at most."""
        if not self._unsaid or not (ending or time.monotonic() >= self._said + _SAY):
            return
        self._said = time.monotonic()
        with self._guard:
            unsaid, self._unsaid = self._unsaid, Counter()
        for (model, cause), rows in unsaid.items():
            _LOG.warning("the request log of model %s lost %d rows: %s", model, rows, cause)

    def _delete_old(self) -> None:
        """Delete files of days that are long past, and what was never written to its end."""
        if time.monotonic() < self._cleaned + _CLEAN:
            return
        self._cleaned = time.monotonic()
        today = datetime.now(UTC).date()
        for model, options in self._options.items():
            last = "" if options.keep_days is None else str(today - timedelta(days=options.keep_days))
            with contextlib.suppress(OSError):  # the folder is gone; it may come back
                # Until yesterday: what another server is writing just now is of later days.
                for path in files_before(self._folders[model], today - timedelta(days=1)):
                    if is_half(path) or (path.parent.name < last and is_logged(path)):
                        path.unlink(missing_ok=True)
                        with contextlib.suppress(OSError):  # it holds others
                            path.parent.rmdir()


def is_logged(path: Path) -> bool:
    """Whether a file is of a request log, whatever it is called."""
    try:
        return FOOTER in (pq.read_metadata(path).metadata or {})
    except (OSError, pa.ArrowException, UnicodeDecodeError):  # the last: of a column's name
        return False
