"""Positions that are saved: they follow from what Python runs, not from where a line happens to stand."""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("jax")

from drivetrain import data
from drivetrain.engine import analyze
from drivetrain.errors import InputError
from drivetrain.positions import line_of, saved_position

pytestmark = pytest.mark.engine

SOURCE = '''"""Module."""
import os

LIMIT = 3

def first(a):
    """Doc."""
    b = a
    if b:
        c = b
    else:
        c = (
            b + 1
        )
    try:
        d = c
    except ValueError:
        d = 0
    def inner(x):
        return x
    return inner(d)

class Net:
    rate = 1

    @staticmethod
    def loss(
        a=LIMIT,
    ):
        return a
'''
AT = {
    4: "m.py:+2", 6: "m.py:first", 8: "m.py:first+1", 9: "m.py:first+2", 10: "m.py:first+3", 12: "m.py:first+4",
    13: "m.py:first+4", 16: "m.py:first+6", 18: "m.py:first+7", 19: "m.py:first.inner", 20: "m.py:first.inner+1",
    21: "m.py:first+9", 23: "m.py:Net", 24: "m.py:Net+1", 26: "m.py:Net.loss", 28: "m.py:Net.loss",
    30: "m.py:Net.loss+1",
}  # fmt: skip


@pytest.mark.parametrize("line", AT)
def test_a_position_is_a_definition_and_a_statement(tmp_path: Path, line: int) -> None:
    (tmp_path / "m.py").write_text(SOURCE)
    assert saved_position(f"{tmp_path / 'm.py'}:{line}") == AT[line]


@pytest.mark.parametrize("line", AT)
def test_a_position_leads_back_to_its_statement(tmp_path: Path, line: int) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "m.py").write_text(SOURCE)
    (tmp_path / ".old").mkdir()
    (tmp_path / ".old" / "m.py").write_text(SOURCE)
    at = line_of(AT[line], tmp_path)
    assert at is not None
    assert saved_position(at) == AT[line]
    assert at.startswith(f"{tmp_path}/sub/m.py:")


def test_what_leads_nowhere(tmp_path: Path) -> None:
    (tmp_path / "m.py").write_text(SOURCE)
    for position in (
        "m.py:3",
        "m.py:gone+1",
        "m.py:first+99",
        "other.py:first",
        "m.py:first.x",
        "/a/m.py:first",
        "",
        "**.py:f",
        "m.py:first+0",
    ):
        assert line_of(position, tmp_path) is None
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "m.py").write_text("")  # which of the two?
    assert line_of("m.py:first", tmp_path) is None


def test_comments_and_layout_move_nothing(tmp_path: Path) -> None:
    """Every statement has one position, and the same one in Python's own rendering of the module."""
    for name, text in (("one", SOURCE), ("two", ast.unparse(ast.parse(SOURCE)))):
        (tmp_path / name).mkdir()
        (tmp_path / name / "m.py").write_text(text)
    trees = [ast.parse((tmp_path / name / "m.py").read_text()) for name in ("one", "two")]
    lines = [[node.lineno for node in ast.walk(tree) if isinstance(node, ast.stmt)] for tree in trees]
    for first, second in zip(*lines, strict=True):
        positions = {saved_position(f"{tmp_path / n / 'm.py'}:{at}") for n, at in (("one", first), ("two", second))}
        assert len(positions) == 1


def test_a_file_that_was_edited_in_this_process_is_read_anew(tmp_path: Path) -> None:
    file = tmp_path / "m.py"
    file.write_text(SOURCE)
    assert saved_position(f"{file}:8") == AT[8]
    file.write_text(f"# above\n{SOURCE}")
    assert saved_position(f"{file}:9") == AT[8]


def test_without_source_the_line_stays(tmp_path: Path) -> None:
    assert saved_position(None) is None
    assert saved_position(f"{tmp_path}/gone.py:7") == "gone.py:7"
    (tmp_path / "broken.py").write_text("def f(:\n")
    assert saved_position(f"{tmp_path}/broken.py:1") == "broken.py:1"


FEATURES = """
from drivetrain.engine import ops

def preprocess(columns):
    fare = ops.fill_missing(columns["fare"], 0.0)
    ops.check(fare >= 0.0, "no negative fare")
    return {"fare": ops.z_score(fare), "kind": ops.vocabulary(columns["kind"])}
"""


def _function(file: Path, text: str) -> Callable[[Mapping[str, Any]], Mapping[str, Any]]:
    file.write_text(text)
    spec = importlib.util.spec_from_file_location("features", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    function: Callable[[Mapping[str, Any]], Mapping[str, Any]] = module.preprocess
    return function


def test_a_comment_changes_no_byte_of_what_is_saved(tmp_path: Path) -> None:
    table = pa.table({"fare": [1.0, None, 3.0], "kind": ["a", "b", "a"]})
    saved = []
    for number, text in enumerate((FEATURES, f"# above\n\n{FEATURES}".replace("    ops", "    # why\n\n    ops"))):
        (tmp_path / str(number)).mkdir()
        fn = _function(tmp_path / str(number) / "features.py", text)
        bundle = analyze(fn, data.source_of(table), data.executor("local"))
        folder = tmp_path / str(number) / "bundle"
        bundle.save(folder)
        saved.append({f.relative_to(folder): f.read_bytes() for f in sorted(folder.rglob("*")) if f.is_file()})
    assert saved[0] == saved[1]
    assert b"features.py:preprocess+2" in saved[0][Path("graph.json")]
    with pytest.raises(InputError, match="no negative fare") as caught:
        bundle.run("transform", pa.RecordBatch.from_pydict({"fare": [-1.0], "kind": ["a"]}))
    assert caught.value.where == "features.py:preprocess+2"


@pytest.mark.slow
def test_a_failing_check_of_a_run_names_the_line(tmp_path: Path) -> None:
    """The graph says which statement; who has the source reads the line."""
    from drivetrain.pipelines import Home, load_pipeline, run_pipeline

    folder = tmp_path / "shop"
    folder.mkdir()
    (folder / "features.py").write_text(FEATURES)
    (folder / "pipeline.py").write_text(
        "import drivetrain as dt\n"
        "from drivetrain.components import ExampleGen, SchemaGen, StatisticsGen, Transform\n\n"
        "@dt.pipeline\ndef shop():\n    examples = ExampleGen('rows.csv')\n"
        "    Transform(examples, SchemaGen(StatisticsGen(examples)), fn='features:preprocess')\n"
    )
    (folder / "rows.csv").write_text("fare,kind\n" + "1.5,a\n2.5,b\n" * 50 + "-1.5,a\n" * 20)
    home = Home(tmp_path / "root")
    result = run_pipeline(home, load_pipeline(folder))
    home.close()
    line = FEATURES.splitlines().index('    ops.check(fare >= 0.0, "no negative fare")') + 1
    assert result.nodes["Transform"].reason.startswith(f"{folder / 'features.py'}:{line}: ")
