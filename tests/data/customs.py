"""A user's accumulators, importable by name, because workers unpickle by reference."""

from __future__ import annotations

import json
from typing import Any, Self

import pyarrow as pa
import pyarrow.compute as pc


class Longest:
    """The longest text of the column `word`, and how many batches' rows were seen."""

    def __init__(self) -> None:
        self.rows = 0
        self.word = ""

    def add_batch(self, batch: pa.RecordBatch) -> None:
        self.rows += batch.num_rows
        column = batch.column("word")
        if pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        self._take([word for word in pc.unique(column).to_pylist() if word is not None])

    def _take(self, words: list[str]) -> None:
        self.word = max([self.word, *words], key=lambda word: (len(word), word))

    def merge(self, other: Self) -> None:
        self.rows += other.rows
        self._take([other.word])

    def compact(self) -> None:
        pass

    def result(self) -> dict[str, Any]:
        return {"rows": self.rows, "word": self.word}

    def to_bytes(self) -> bytes:
        return json.dumps([self.rows, self.word]).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        made = cls()
        made.rows, made.word = json.loads(data)
        return made


CUSTOM = {"longest": Longest}


def parity(batch: pa.RecordBatch) -> dict[str, Any]:
    """Whether `size` is even or odd, as text."""
    odd = pc.equal(pc.bit_wise_and(batch.column("size"), 1), 1)
    return {"parity": pc.if_else(odd, "odd", "even")}
