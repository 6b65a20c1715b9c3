"""MLMD files for tests: made by ml-metadata itself and kept as SQL, beside what its own client reads of them."""

from __future__ import annotations

import json
import sqlite3
from functools import cache
from pathlib import Path
from typing import Any

FIXTURES = Path(__file__).parents[2] / "fixtures" / "mlmd"
Json = dict[str, Any]


def make(folder: Path, name: str) -> Path:
    """The file of that name: "tfx", "odd", or "odd-v6" to "odd-v9"."""
    path = folder / f"{name}.sqlite"
    with sqlite3.connect(path) as connection:
        connection.executescript((FIXTURES / f"{name}.sql").read_text("utf-8"))
    connection.close()
    return path


@cache
def oracle(name: str) -> Json:
    """What ml-metadata reads of it."""
    values: Json = json.loads((FIXTURES / f"{name}.json").read_text("utf-8"))
    return values


def values(properties: Json) -> Json:
    """Properties as the client tells them, as plain JSON."""
    plain: Json = {}
    for name, typed in properties.items():
        kind, value = next(iter(typed.items())) if typed else ("none", None)
        plain[name] = int(str(value)) if kind == "int_value" else value
    return plain


def execute(path: Path, *statements: str) -> None:
    """Change a file by hand."""
    with sqlite3.connect(path) as connection:
        for statement in statements:
            connection.execute(statement)
    connection.close()
