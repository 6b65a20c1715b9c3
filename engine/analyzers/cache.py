r"""The analyzer cache: states of analyzers by span, kept on disk, so that a span is analysed once.

A state is kept under the digest of its span's content and a key of what computes it. A file holds one span's:

    drivetrain-states-1\n, then per state: its key (32 bytes), the SHA-256 of key and state (32), its length (8, little
    endian), the state

A state that does not match its digest is treated as absent, and computed again.
"""

from __future__ import annotations

import io
import os
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Final

import pyarrow as pa

from ...digest import write_durably
from ...errors import InputError
from .analysis import Analysis
from .states import State

_MAGIC: Final = b"drivetrain-states-1\n"
_HEAD: Final = 32 + 32 + 8


class AnalyzerCache:
    """States of analyzers that earlier runs left, in a folder that may be deleted at any time.

    Attributes:
        used: States taken from it.
        added: States that were not there, and are now.
        damaged: States, or ends of files, that did not match their digest.
    """

    def __init__(self, folder: Path, *, earlier: Path | None = None) -> None:
        """`folder` is where states are written, and `earlier` another folder to take them from; else `folder` is."""
        self.folder = folder
        self._earlier = folder if earlier is None else earlier
        self._offsets: dict[str, dict[bytes, tuple[int, int]]] = {}
        self.used = self.added = self.damaged = 0

    def get(self, span: str, analysis: Analysis, key: str) -> State | None:
        """The state of an analysis of a span, or None."""
        data = self._read(span, bytes.fromhex(key))
        state = None if data is None else state_of(analysis, data)
        self.used += state is not None
        self.damaged += data is not None and state is None
        return state

    def put(self, span: str, states: Mapping[str, bytes], new: int) -> None:
        """Keep the states of a span by key, `new` of which were just computed."""
        self.added += new
        path = self.folder / f"{span}.states"
        if not states or (self._earlier == self.folder and not new):
            return
        wanted = {bytes.fromhex(key): data for key, data in states.items()}
        known = self._scan(path)
        # States of other analyzers stay: a changed preprocessing function may be changed back.
        kept = {key: self._verified(path, key, where) for key, where in known.items() if key not in wanted}
        sink = io.BytesIO()
        sink.write(_MAGIC)
        for key, data in sorted({**wanted, **{key: data for key, data in kept.items() if data is not None}}.items()):
            sink.write(key + _checksum(key, data) + len(data).to_bytes(8, "little") + data)
        self.folder.mkdir(parents=True, exist_ok=True)
        write_durably(path, sink.getvalue())
        self._offsets.pop(span, None)

    def _read(self, span: str, key: bytes) -> bytes | None:
        path = self._earlier / f"{span}.states"
        if span not in self._offsets:
            self._offsets[span] = self._scan(path)
        offset_and_length = self._offsets[span].get(key)
        return None if offset_and_length is None else self._verified(path, key, offset_and_length)

    def _scan(self, path: Path) -> dict[bytes, tuple[int, int]]:
        """Key → (offset, length) of each state of a file, up to where it is damaged."""
        offsets: dict[bytes, tuple[int, int]] = {}
        try:
            with path.open("rb") as file:
                size = os.fstat(file.fileno()).st_size
                at = len(_MAGIC)
                whole = file.read(at) == _MAGIC
                while whole and at < size:
                    head = file.read(_HEAD)
                    length = int.from_bytes(head[64:], "little")
                    whole = len(head) == _HEAD and at + _HEAD + length <= size
                    if whole:
                        offsets[head[:32]] = (at, length)
                        at += _HEAD + length
                        file.seek(at)
        except FileNotFoundError:
            return {}
        self.damaged += not whole
        return offsets

    def _verified(self, path: Path, key: bytes, offset_and_length: tuple[int, int]) -> bytes | None:
        at, length = offset_and_length
        with path.open("rb") as file:
            file.seek(at + 32)
            checksum, _ = file.read(32), file.read(8)
            data = file.read(length)
        if checksum != _checksum(key, data):
            self.damaged += 1
            return None
        return data


def state_of(analysis: Analysis, data: bytes) -> State | None:
    """The state that its `to_bytes` wrote; None where the bytes are not a state of this analysis."""
    state = analysis.new()
    try:
        state.load(data)
    except (LookupError, ValueError, TypeError, AttributeError, InputError, pa.ArrowException, OSError):
        return None
    return state


def _checksum(key: bytes, data: bytes) -> bytes:
    return sha256(key + data).digest()
