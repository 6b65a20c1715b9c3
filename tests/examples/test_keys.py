"""Edits of an example's modules change the keys of the nodes whose code they are, and no others.

Those that leave a node's key as it was leave the fingerprint of what it makes, too.
"""

from __future__ import annotations

import ast
import json
import re
import shutil
from pathlib import Path
from typing import Final

import pytest
from click.testing import CliRunner
from drivetrain.console.cli import cli
from drivetrain.pipelines import FunctionRef
from drivetrain.tests.examples import flights_job as job
from drivetrain.tests.pipelines.project.generated_modules import edits
from drivetrain.tests.pipelines.project.test_oracle import key_of, write

pytestmark = [pytest.mark.engine, pytest.mark.timeout(900)]

EXAMPLES: Final = job.REPOSITORY / "examples"
FUNCTIONS: Final = ("features:preprocess", "model:train", "evaluation:config")
NODES: Final = {
    **dict.fromkeys(("aircraft", "flights", "months", "penguins"), FUNCTIONS),
    "messages": ("messages:Messages", *FUNCTIONS),
    "trips": ("trips:Trips", *FUNCTIONS),
}
"""What the nodes of each project call: its functions, and components of its own."""


EVERY: Final = 30
"""Of so many mutations one is tried: there are hundreds, and `test_oracle` has the ways in which code reaches code."""


def syntax(text: str) -> str:
    """A module without what Python does not run: comments, layout, docstrings."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.FunctionDef | ast.ClassDef) and ast.get_docstring(node) is not None:
            del node.body[0]
    return ast.dump(tree)


def reached(project: Path, module: str) -> set[str]:
    """The modules of a project that one of them imports, itself included."""
    names = set(re.findall(r"^from \.(\w+) import", (project / f"{module}.py").read_text(), re.M))
    return {module}.union(*(reached(project, name) for name in names))


@pytest.mark.parametrize("name", NODES)
def test_an_edit_changes_the_keys_of_what_runs_it_and_no_others(tmp_path: Path, name: str) -> None:
    project = tmp_path / name
    shutil.copytree(EXAMPLES / name, project)
    refs = {function: FunctionRef(project, function) for function in NODES[name]}
    keys = {function: key_of(ref) for function, ref in refs.items()}
    modules = {function: reached(project, function.partition(":")[0]) for function in refs}
    for module in ("pipeline", *dict.fromkeys(function.partition(":")[0] for function in refs)):
        file = project / f"{module}.py"
        text = file.read_text()
        everything, ran = list(edits(text)), syntax(text)
        for edited in [*everything[:3], *everything[3::EVERY]]:
            write(file, edited)
            changed = {function for function, ref in refs.items() if key_of(ref) != keys[function]}
            runs = {function for function in refs if module in modules[function]}
            assert changed == (set() if syntax(edited) == ran else runs), (module, edited)
        write(file, text)


def fingerprints(project: Path, *options: str) -> dict[str, list[str]]:
    """Of what each node made, by node and output."""
    arguments = ["run", str(project), "--param", "epochs=1", "--root", str(project.parent / "root"), "--json", *options]
    result = CliRunner().invoke(cli, arguments, prog_name="drivetrain")
    assert result.exit_code in (0, 1), result.output  # one epoch blesses nothing
    return job.Done(0, json.loads(result.stdout.splitlines()[-1]), 0, 0, 0, "").fingerprints


@pytest.mark.slow
@pytest.mark.parametrize(
    ("function", "node"),
    [("features:preprocess", "Transform"), ("model:train", "Trainer"), ("evaluation:config", "Evaluator")],
)
def test_where_the_key_stays_the_bytes_stay(tmp_path: Path, function: str, node: str) -> None:
    project = tmp_path / "penguins"
    shutil.copytree(job.REPOSITORY / "examples" / "penguins", project)
    ref = FunctionRef(project, function)
    before, key = fingerprints(project), key_of(ref)
    file = project / f"{function.partition(':')[0]}.py"
    text = file.read_text()
    kept = changed = 0
    for edited in edits(text):
        write(file, edited)
        if key_of(ref) != key:
            changed += 1
        elif edited != text:
            kept += 1
            after = fingerprints(project, "--no-cache", "--only", node)
            assert {name: before[name] for name in after} == after, edited
            assert any(name.startswith(f"{node}.") for name in after)
    assert kept > 5
    assert changed > 15


@pytest.mark.slow
@pytest.mark.parametrize("name", ["aircraft", "trips"])
def test_another_layout_runs_nothing_and_would_make_the_same(tmp_path: Path, name: str) -> None:
    """All modules at once, comments and docstrings too; flights and messages take longer."""
    project = tmp_path / name
    shutil.copytree(EXAMPLES / name, project)
    before = fingerprints(project)
    for function in NODES[name]:
        file = project / f"{function.partition(':')[0]}.py"
        write(file, "# new\n" + ast.unparse(ast.parse(file.read_text().replace('"""', '"""More: ', 1))))
    assert fingerprints(project, "--no-cache") == before
    result = CliRunner().invoke(
        cli, ["run", str(project), "-p", "epochs=1", "--root", str(tmp_path / "root"), "--json"]
    )
    nodes = json.loads(result.stdout.splitlines()[-1])["nodes"]
    assert {node["state"] for node in nodes.values()} <= {"CACHED", "SKIPPED"}
