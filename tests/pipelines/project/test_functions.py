"""A project's folder is a package: whatever it is called, wherever one stands, however often it is edited."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from drivetrain.errors import BuildError
from drivetrain.pipelines import FunctionRef, Home, PipelineFunction, load_pipeline, run_pipeline

PARTS = """import drivetrain as dt
class Thing(dt.Artifact):
    value: int = 0

@dt.component
def Make(*, fn: "dt.pipelines.Fn" = None) -> Thing:
    return Thing.new(value=1)
"""
LAZY = """import drivetrain as dt
class Thing(dt.Artifact):
    value: int = 0

@dt.component
def Make() -> Thing:
    from .helper import VALUE
    thing = Thing.new(value=VALUE)
    (thing.content / "value.txt").write_text(str(VALUE))
    return thing
"""
PIPELINE = "import drivetrain as dt\nfrom .parts import Make\n\n@dt.pipeline\ndef p() -> None:\n    Make()\n"


def write(folder: Path, **modules: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in {"pipeline": PIPELINE, "parts": LAZY, "helper": "VALUE = 1\n", **modules}.items():
        (folder / f"{name}.py").write_text(text)
    return folder


def value(home: Home, function: PipelineFunction[..., object]) -> object:
    result = run_pipeline(home, function)
    assert result.state == "COMPLETE", result.nodes["Make"].reason
    return result.nodes["Make"].outputs["thing"][0].properties["value"]


def test_folders_of_projects_that_were_imported_before_are_not_looked_at(tmp_path: Path) -> None:
    """Python keeps the listing of each folder that it ever imported from, and each import of a project renews all."""
    for number in range(3):
        load_pipeline(write(tmp_path / str(number) / "shop"))
    kept = [path for path in sys.path_importer_cache if path.startswith(str(tmp_path))]
    assert kept == [str(tmp_path / "2" / "shop")]


@pytest.mark.parametrize("name", ["with space", "with-dash", "2013", "größe", "docs", "a.b", "class"])
def test_odd_folder_names_work(home: Home, tmp_path: Path, name: str) -> None:
    assert value(home, load_pipeline(write(tmp_path / name))) == 1


@pytest.mark.parametrize("name", ["json", "numpy", "jax", "pytest", "drivetrain", "test"])
def test_a_folder_named_as_a_package_is_refused_and_the_package_unharmed(tmp_path: Path, name: str) -> None:
    before = sys.modules.get(name)
    with pytest.raises(BuildError, match="has the name of a Python package"):
        load_pipeline(write(tmp_path / name))
    assert sys.modules.get(name) is before


def test_two_projects_of_one_name_in_one_process(home: Home, tmp_path: Path) -> None:
    one, two = (write(tmp_path / place / "shop", helper=f"VALUE = {n}\n") for place, n in (("a", 1), ("b", 2)))
    for folder, expected in ((one, 1), (two, 2), (one, 1)):
        assert value(home, load_pipeline(folder)) == expected


def test_an_edit_between_two_runs_in_one_process_is_seen_even_where_the_import_is_lazy(
    home: Home, tmp_path: Path
) -> None:
    folder = write(tmp_path / "shop")
    for number in range(1, 5):  # faster than a clock of seconds, and of the same length
        (folder / "helper.py").write_text(f"VALUE = {number}\n")
        assert value(home, load_pipeline(folder)) == number


def test_no_bytecode_is_left_in_a_project_nor_kept_from_others(home: Home, tmp_path: Path) -> None:
    folder = write(tmp_path / "shop", helper="import outside_of_it\nVALUE = outside_of_it.VALUE\n")
    outside = tmp_path / "lib"
    outside.mkdir()
    (outside / "outside_of_it.py").write_text("VALUE = 5\n")
    sys.path.append(str(outside))
    try:
        assert value(home, load_pipeline(folder)) == 5
    finally:
        sys.path.remove(str(outside))
        del sys.modules["outside_of_it"]
    assert not list(folder.rglob("*.pyc"))
    assert sys.dont_write_bytecode or list(outside.rglob("*.pyc"))


def test_an_import_that_fails_names_the_users_line(tmp_path: Path) -> None:
    broken = {
        "import": "import drivetrain\nimport no_such_thing\n",
        "raise": "x = 1\ny = x / 0\n",
        "syntax": "\ndef (\n",
    }
    for index, text in enumerate(broken.values()):
        folder = write(tmp_path / f"broken{index}", pipeline=text)
        with pytest.raises(BuildError) as caught:
            load_pipeline(folder)
        assert caught.value.where == f"{folder / 'pipeline.py'}:2"
    nested = write(tmp_path / "nested", parts="raise RuntimeError('no')\n")
    with pytest.raises(BuildError, match="RuntimeError: no") as caught:
        load_pipeline(nested)
    assert caught.value.where == f"{nested / 'parts.py'}:1"


SCRIPT = """
import sys
from pathlib import Path
from drivetrain.pipelines import Home, run_pipeline
from pipeline import p
built = p.build()
assert built["Make"].code, built["Make"]
result = run_pipeline(Home(Path("root/.drivetrain")), p)
print(result.state, [str(node.state) for node in result.nodes.values()], result.nodes["Make"].reason)
"""


def test_a_pipeline_imported_as_a_plain_module_is_fingerprinted_too(tmp_path: Path) -> None:
    plain = PIPELINE.replace("from .parts", "from parts")
    lazy = LAZY.replace("from .helper", "from helper").replace(" helper", " helper")
    folder = write(tmp_path / "shop", pipeline=plain, parts=lazy, script=SCRIPT, random="boom = 1 / 0\n")
    (folder / "random.py").unlink()

    def run() -> str:
        done = subprocess.run(
            [sys.executable, "script.py"], cwd=folder, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert "['COMPLETE'] first run" in run()
    assert "['CACHED']" in run()
    (folder / "helper.py").write_text("VALUE = 2\n")
    again = run()
    assert "['COMPLETE']" in again
    assert "helper.py" in again


def test_a_function_object_of_the_project_is_named(tmp_path: Path) -> None:
    from drivetrain.pipelines.project.functions import import_project_module, reference

    folder = write(tmp_path / "shop", parts="def f():\n    return 1\n")
    module = import_project_module(folder, "shop.parts")
    assert reference(module.f, folder) == FunctionRef(folder, "parts:f")


@pytest.mark.slow
@pytest.mark.beam
def test_a_project_with_a_module_named_as_one_of_pythons_runs_from_its_own_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write(tmp_path / "shop", random="raise RuntimeError('the wrong random')\n")
    script = (
        "import sys; from pathlib import Path; from drivetrain.pipelines import *\n"
        "home = Home(Path('../home/.drivetrain'))\n"
        "result = run_pipeline(home, load_pipeline(Path('.')), options=RunOptions(runner='beam'))\n"
        "print(result.state)"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", script],
        cwd=folder, capture_output=True, text=True, timeout=120, check=False, env={**os.environ},
    )  # fmt: skip
    assert done.stdout.endswith("COMPLETE\n"), done.stderr


def test_a_missing_project_is_named(project: Callable[..., Path]) -> None:
    folder = project("shop", parts="def f():\n    return 1\n")
    ref = FunctionRef(folder, "parts:f")
    assert ref() == 1
    folder.rename(folder.parent / "moved")
    with pytest.raises(BuildError, match="is gone"):
        ref()


def test_a_project_has_not_read_what_another_of_its_name_did(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from drivetrain.pipelines.project.functions import files_read

    beside = write(tmp_path / "beside", before="VALUE = 1\n")
    lazy = LAZY.replace("import drivetrain as dt\n", "import drivetrain as dt\nimport before\n")
    monkeypatch.syspath_prepend(str(beside))
    load_pipeline(write(tmp_path / "first" / "shop", parts=lazy))
    assert beside / "before.py" in files_read("shop")
    load_pipeline(write(tmp_path / "second" / "shop", parts=LAZY))
    assert beside / "before.py" not in files_read("shop")


def test_what_a_project_imports_from_outside_is_imported_anew_where_it_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And stays loaded where only the project did."""
    beside, text = (
        tmp_path / "beside",
        LAZY.replace("import drivetrain as dt\n", "import drivetrain as dt\nimport outer\n"),
    )
    write(beside, outer="VALUE = 1\n")
    project = write(tmp_path / "shop", parts=text)
    monkeypatch.syspath_prepend(str(beside))
    load_pipeline(project)
    before = sys.modules["outer"]
    for _ in range(2):  # what is remembered of it outlives a change of the project
        (project / "parts.py").write_text((project / "parts.py").read_text() + "# edited\n")
        load_pipeline(project)
        assert sys.modules["outer"] is before
    write(beside, outer="VALUE = 22\n")
    load_pipeline(project)
    assert sys.modules["outer"].VALUE == 22
