"""The store's database, damaged by bytes and by SQL, and its log: every verb says so, or goes on rightly."""

from __future__ import annotations

import sqlite3
from contextlib import closing, suppress
from pathlib import Path
from random import Random

from drivetrain.tests.attack import shop
from drivetrain.tests.attack.attack import Attack, Case
from drivetrain.tests.attack.mutations import CELLS, change_cell, damage_bytes, draw_bytes, draw_cell
from drivetrain.tests.attack.verbs import verb

LOOKING = (
    ("runs",), ("runs", "--json"), ("show",), ("show", "--json"), ("why", "Sum"), ("lineage", "Sum"), ("logs",),
    ("tag",), ("diff",), ("fsck",), ("fsck", "--repair", "--dry-run"),
)  # fmt: skip


def _draw(dice: Random) -> Case:
    count = dice.choice((1, 1, 2, 5, 20))
    if dice.random() < 0.6:
        return [draw_cell(dice) for _ in range(count)]
    return [[dice.choice(("metadata.db", "metadata.db", "metadata.db-wal")), *draw_bytes(dice)] for _ in range(count)]


def _check(folder: Path, case: Case) -> None:
    root = shop.fresh(folder)
    if any(step[0] in CELLS for step in case):
        # What SQLite itself finds wrong is not changed any further.
        with closing(sqlite3.connect(root / "metadata.db")) as connection, suppress(sqlite3.Error):
            connection.execute("PRAGMA foreign_keys = OFF")
            for step in case:
                change_cell(connection, step)
    for step in case:
        if step[0] not in CELLS:
            file = root / step[0]
            file.write_bytes(damage_bytes(file.read_bytes(), step[1:]))
    for arguments in LOOKING:
        verb(*arguments, "--root", str(root))
    shop.run(root, 3)
    verb("fsck", "--repair", "--root", str(root))
    shop.run(root, 3)
    verb("show", "--root", str(root))


ATTACKS = {"database": Attack(shop.prepare, _draw, _check, fast=3, slow=63)}
