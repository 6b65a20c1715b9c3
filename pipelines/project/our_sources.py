"""What is known of one of drivetrain's own modules: its digest, and its imports, found without a parser.

To parse the 300 of them that a pipeline reaches took a tenth of a cold run. They are formatted alike, so that an
expression finds what a parser would, which a test holds them to.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Final, NamedTuple

_IMPORT: Final = r"(?m)^[ \t]*(?:from (\.*)([\w.]*) import (\([^)]*\)|.+)|import ([\w.]+)(?: as \w+)?(?: *#.*)?$)"


class OurSource(NamedTuple):
    """A module as its text says.

    Attributes:
        digest: SHA-256 of the text.
        imports: (relative level, module, ((name, bound as), ...)) of each import statement.
    """

    digest: str
    imports: tuple[tuple[int, str, tuple[tuple[str, str], ...]], ...]


@lru_cache(4096)
def read_ours(path: Path) -> OurSource:
    """What is known of a module of ours, remembered: they do not change while a process runs.

    Raises:
        OSError: It cannot be read.
    """
    text = path.read_bytes()
    imports = [
        (0, plain, ()) if plain else (len(dots), module, tuple(_aliases(names)))
        for dots, module, names, plain in re.findall(_IMPORT, text.decode())
    ]
    return OurSource(hashlib.sha256(text).hexdigest(), tuple(imports))


def _aliases(names: str) -> Iterator[tuple[str, str]]:
    """Of `(a, b as c)` each name and what it is bound as."""
    for alias in re.sub("#.*", "", names).strip("() \n").split(","):
        name, _, bound = alias.strip().partition(" as ")
        if name:
            yield name, bound or name
