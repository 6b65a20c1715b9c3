"""Stores of ML Metadata, damaged by bytes and by SQL, taken in and looked at."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from random import Random

from drivetrain.tests.attack.attack import Attack, Case
from drivetrain.tests.attack.mutations import change_cell, damage_bytes, draw_bytes, draw_cell

FIXTURES = Path(__file__).parents[1] / "fixtures" / "mlmd"
NAMES = ("tfx", "odd", "odd-v7")


def _prepare(folder: Path) -> Path:
    for name in NAMES:
        with closing(sqlite3.connect(folder / f"{name}.sqlite")) as connection:
            connection.executescript((FIXTURES / f"{name}.sql").read_text("utf-8"))
    return folder


def _draw(dice: Random) -> Case:
    draw = draw_cell if dice.random() < 0.7 else draw_bytes
    return [["file", dice.choice(NAMES)], *[draw(dice) for _ in range(dice.choice((1, 1, 2, 5, 20)))]]


def _check(folder: Path, case: Case) -> None:
    from drivetrain.console.import_mlmd import import_runs
    from drivetrain.pipelines import Home
    from drivetrain.tests.attack.verbs import verb

    name = case[0][1] if case and case[0][0] == "file" else NAMES[0]
    path, root = folder / "attacked.sqlite", folder / "root"
    shutil.copy(folder / f"{name}.sqlite", path)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA foreign_keys = OFF")
        for step in case:
            change_cell(connection, step)
    for step in case:
        path.write_bytes(damage_bytes(path.read_bytes(), step))
    shutil.rmtree(root, ignore_errors=True)
    home = Home(root, readonly=False)
    try:
        import_runs(home, path)
        runs = [context.name for context in home.store.contexts("run")]
    finally:
        home.close()
    verb("runs", "--root", str(root))
    for run in runs[:2]:
        verb("show", run, "--root", str(root))
    verb("runs", "--json", "--root", str(root))


ATTACKS = {"mlmd": Attack(_prepare, _draw, _check, fast=12, slow=113)}
