"""Damaged copies of a SQLite database, as disks and careless copies leave them: from a seed, to come again."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Final

_PAGE: Final = 4096
_WAYS: Final = ("flip bits", "many bytes", "header", "truncate", "insert", "zero page", "random page", "swap pages")


def damage(folder: Path, seed: object) -> str:
    """Damage `metadata.db`, or the log beside it, in one way; gives what was done to which."""
    chance = random.Random(str(seed))
    path = folder / chance.choice(("metadata.db", "metadata.db", "metadata.db-wal"))
    data = bytearray(path.read_bytes())
    pages = max(1, len(data) // _PAGE)
    start, other = chance.randrange(pages) * _PAGE, chance.randrange(pages) * _PAGE
    page, other_page = data[start : start + _PAGE], data[other : other + _PAGE]
    match how := chance.choice(_WAYS):
        case "flip bits":
            for _ in range(chance.choice([1, 1, 3, 10])):
                data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        case "many bytes":
            for _ in range(len(data) // 500):
                data[chance.randrange(len(data))] = chance.randrange(256)
        case "header":
            data[chance.randrange(min(100, len(data)))] = chance.randrange(256)
        case "truncate":
            del data[chance.choice([0, 1, 16, 100, _PAGE, chance.randrange(len(data)), start]) :]
        case "insert":
            data[start:start] = chance.randbytes(chance.choice([1, 7, 100]))
        case "zero page":
            data[start : start + len(page)] = bytes(len(page))
        case "random page":
            data[start : start + len(page)] = chance.randbytes(len(page))
        case "swap pages" if len(page) == len(other_page):
            data[start : start + len(page)], data[other : other + len(page)] = other_page, page
    path.write_bytes(data)
    return f"{how} {path.name}"
