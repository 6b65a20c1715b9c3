"""docs/from-tfx.md: every public name of TFX and its libraries is on it, every name of ours exists, its code runs."""

from __future__ import annotations

import inspect
import json
import random
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner
from drivetrain.console.cli import cli
from drivetrain.pipelines import load_pipeline

PAGE = (Path(__file__).parents[1] / "docs" / "from-tfx.md").read_text("utf-8")
# Read from the wheels of tfx 1.21, tensorflow-data-validation 1.16.1, tensorflow-transform 1.21,
# tensorflow-model-analysis 0.52 and struct2tensor 0.48.1: what their __init__ files export.
THEIRS: dict[str, str] = json.loads((Path(__file__).parent / "fixtures" / "tfx_names.json").read_text("utf-8"))
ROOMS = (
    "drivetrain.components", "drivetrain.components.evaluation", "drivetrain.metadata", "drivetrain.data",
    "drivetrain.engine", "drivetrain.pipelines",
)  # fmt: skip
PREFIXES = {
    "dt": "drivetrain",
    "ops": "drivetrain.engine.ops",
    "data": "drivetrain.data",
    "engine": "drivetrain.engine",
    "serving": "drivetrain.serving",
}
# What is not a name: words of the standard library and of file names.
PLAIN = {
    "NamedTuple",
    "pathlib",
    "JSON",
    "list[Examples]",
    "int",
    "blessed",
    "evaluation.blessed",
    "size + 1",
    "size > 1",
}


def tables() -> Iterator[list[str]]:
    """The rows of the page's tables whose last columns are ours."""
    for section in PAGE.split("\n## ")[3:]:
        for line in section.splitlines():
            if line.startswith("| ") and not line.startswith("|---"):
                yield [cell.strip() for cell in line.strip("|").split(" | ")]


def ours() -> list[str]:
    """The names of ours that the page gives."""
    found = [name for row in tables() for cell in row[1:] for name in re.findall(r"`([^`]+)`", cell)]
    intro = PAGE.partition("## What TFX recorded")[2].partition("## Components")[0]
    found += re.findall(r"`(drivetrain [^`]+)`", PAGE) + re.findall(r"`(ops\.\w+|dt\.\w+)`", intro)
    return sorted({name for name in found if name not in PLAIN})


@pytest.mark.parametrize("module", sorted(THEIRS))
def test_every_public_name_of_theirs_is_on_the_page(module: str) -> None:
    words = set(re.findall(r"\w+", re.sub(r"```python.*?```", "", PAGE, flags=re.S)))
    # Keys of Vertex settings, and a function of tests, are told together.
    names = [name for name in THEIRS[module].split() if not name.endswith("_KEY")]
    assert [name for name in names if name not in words] == []


def test_the_inventory_is_what_the_wheels_export() -> None:
    """Guards against a list that was emptied: the names that everybody knows are in it."""
    assert {"CsvExampleGen", "Transform", "Tuner"} <= set(THEIRS["tfx.v1.components"].split())
    assert "scale_to_z_score" in THEIRS["tensorflow_transform"].split()
    assert sum(len(names.split()) for names in THEIRS.values()) > 300


@pytest.mark.engine
@pytest.mark.parametrize("name", ours())
def test_every_name_of_ours_exists(name: str) -> None:
    if name.startswith("drivetrain "):
        verb(name.split()[1:])
        return
    call = re.fullmatch(r"([\w.]+)\((.*)\)", name)
    path, arguments = (call[1], re.findall(r"(\w+)=", call[2])) if call else (name, [])
    if "/" in path or re.search(r"\.(json|yaml|parquet)$", path) or path.startswith(("artifact.", "mlmd", "split=")):
        return
    found = resolved(path)
    if arguments and not path.endswith(".options"):
        function = getattr(found, "fn", found)
        assert set(arguments) <= inspect.signature(function).parameters.keys(), name
    elif arguments:
        options = import_module("drivetrain.pipelines.ir.options").NodeOptions.__dataclass_fields__
        assert set(arguments) <= {*options, "id", "cache", "after"}, name


def resolved(path: str) -> Any:
    """What a dotted name stands for."""
    first, *rest = path.split(".")
    if first in PREFIXES:
        found: Any = import_module(PREFIXES[first])
    else:
        rooms = [room for room in ROOMS if hasattr(import_module(room), first)]
        assert rooms, f"there is no {path}"
        found = getattr(import_module(rooms[0]), first)
    for part in rest:
        assert hasattr(found, part) or part in getattr(found, "__dataclass_fields__", {}), f"there is no {path}"
        found = getattr(found, part, None)
    return found


def verb(words: list[str]) -> None:
    """Check that the shell has a verb, and the options named with it."""
    command: click.Command = cli
    for word in words:
        if word.startswith("--"):
            assert word in [option for each in command.params for option in each.opts], words
        elif isinstance(command, click.Group):
            assert word in command.commands, words
            command = command.commands[word]


@pytest.fixture
def taxi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The project that the page shows, beside some rows."""
    blocks = re.findall(r"```python\n(.*?)```", PAGE, re.S)
    folder = tmp_path / "taxi"
    folder.mkdir()
    signs = {
        "pipeline.py": "@dt.pipeline", "features.py": "def preprocess", "model.py": "def train",
        "evaluation.py": "config = EvaluationConfig",
    }  # fmt: skip
    for file, sign in signs.items():
        (block,) = (block for block in blocks if sign in block)
        (folder / file).write_text(block)
    (folder / "schema.pbtxt").write_text(
        "".join(
            f'feature {{ name: "{name}" type: {kind} presence {{ min_fraction: 1 }} }}\n'
            for name, kind in (("fare", "FLOAT"), ("trip_start_hour", "INT"), ("company", "BYTES"), ("tips", "FLOAT"))
        )
    )
    monkeypatch.chdir(tmp_path)
    return folder


@pytest.mark.engine
def test_the_pipeline_of_the_page_builds(taxi: Path) -> None:
    built = load_pipeline(taxi).build()
    assert built.ids[-1] == "Pusher"
    assert built.name == "taxi"


@pytest.mark.slow
@pytest.mark.engine
def test_the_pipeline_of_the_page_runs(taxi: Path) -> None:
    rows = random.Random(7)
    (taxi.parent / "data").mkdir()
    lines = ["fare,trip_start_hour,company,tips"]
    for _ in range(9000):
        fare, company = rows.uniform(3, 60), rows.choice(["Blue", "Yellow", "Checker"])
        tips = fare * (0.3 if company == "Blue" else 0.1)
        lines.append(f"{fare:.2f},{rows.randrange(24)},{company},{tips:.2f}")
    (taxi.parent / "data" / "trips.csv").write_text("\n".join(lines) + "\n")
    schema = taxi / "schema.pbtxt"
    schema.rename(taxi.parent / "schema.pbtxt")  # relative paths mean the folder that the root lies in
    found = CliRunner().invoke(cli, ["run", "taxi", "--json"])
    assert found.exit_code == 0, found.output
    told = json.loads(found.stdout.splitlines()[-1])
    assert {name: node["state"] for name, node in told["nodes"].items()} == dict.fromkeys(told["nodes"], "COMPLETE")
    assert (taxi.parent / "served" / "taxi" / "1").is_dir()
