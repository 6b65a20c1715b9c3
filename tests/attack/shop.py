"""A small project and its runs, to be attacked: three nodes, whose last result is known beforehand."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

from drivetrain.tests.attack.attack import Finding
from drivetrain.tests.attack.verbs import Printed, verb

PIPELINE = '''
import drivetrain as dt
from drivetrain.metadata import Examples, Model


@dt.component
def Make(rows: int) -> Examples:
    examples = Examples.new(rows={"train": rows})
    (examples.content / "rows").write_text(str(rows))
    (examples.content / "deep").mkdir()
    (examples.content / "deep" / "words").write_text("a\\nb\\n")
    (examples.extra / "report.html").write_text("<p>made</p>")
    return examples


@dt.component
def Multiply(examples: Examples, *, factor: int) -> Examples:
    rows = int((examples.content / "rows").read_text()) * factor
    multiplied = Examples.new(rows={"train": rows})
    (multiplied.content / "rows").write_text(str(rows))
    return multiplied


@dt.component
def Sum(examples: Examples, multiplied: Examples) -> Model:
    model = Model.new()
    total = sum(int((each.content / "rows").read_text()) for each in (examples, multiplied))
    (model.content / "total").write_text(f"{total} {(examples.content / 'deep' / 'words').read_text()!r}")
    return model


@dt.pipeline
def shop(rows: int = 3, factor: int = 2, name: str = "") -> None:
    """Sell."""
    examples = Make(rows)
    Sum(examples, Multiply(examples, factor=factor))
'''
ROWS = 3


def expected(factor: int) -> str:
    """What the last node must come to."""
    return f"{ROWS + ROWS * factor} {'a' + chr(10) + 'b' + chr(10)!r}"


def prepare(folder: Path) -> Path:
    """The project and a root with two runs, whose last writes still lie in the write-ahead log; gives the folder."""
    project, root = folder / "shop", folder / "root"
    project.mkdir()
    (project / "pipeline.py").write_text(PIPELINE)
    os.chdir(folder)
    run(root, 2)
    with closing(sqlite3.connect(root / "metadata.db")) as held:
        held.execute("SELECT count(*) FROM sqlite_master").fetchone()  # a connection that is open keeps the log
        run(root, 4)
        shutil.copytree(root, folder / "honest", symlinks=True)
    (folder / "honest" / "metadata.db-shm").unlink(missing_ok=True)
    return folder


def fresh(folder: Path) -> Path:
    """A copy of the honest root."""
    root = folder / "root"
    if root.is_symlink():
        root.unlink()
    shutil.rmtree(root, ignore_errors=True)
    shutil.copytree(folder / "honest", root, symlinks=True)
    return root


def run(root: Path, factor: int) -> Printed:
    """Run the pipeline.

    Raises:
        Finding: It says that it is complete, and its result is wrong.
    """
    printed = verb("run", str(root.parent / "shop"), "-p", f"factor={factor}", "--root", str(root), "--json")
    if printed.code == 0:
        body = json.loads(printed.stdout.splitlines()[-1])
        (model,) = body["nodes"]["Sum"]["outputs"]["model"]
        file = root / model["uri"] / "content" / "total"
        total = file.read_text() if file.is_file() else "nothing"
        if total != expected(factor):
            raise Finding(f"a run is complete with a wrong result\n{total} instead of {expected(factor)}")
    return printed
