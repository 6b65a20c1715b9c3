"""The house as a distribution: one copy of the package, a quick import, a whole wheel."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import drivetrain
import pytest
from drivetrain.console.new import TEMPLATES

ROOT = Path(__file__).parent.parent
ROOMS = ("components", "console", "data", "engine", "metadata", "pipelines", "report", "serving")


def test_one_copy_of_the_package_is_loaded() -> None:
    files = {name: getattr(module, "__file__", None) or "" for name, module in list(sys.modules.items())}
    ours = [name for name, file in files.items() if file and Path(file).resolve() == ROOT / "__init__.py"]
    assert ours == ["drivetrain"], ours
    assert Path(drivetrain.__file__ or "").parent.samefile(ROOT)


def test_import_is_light_and_lazy_names_resolve() -> None:
    script = (
        "import sys, drivetrain as dt\n"
        "heavy = {'jax', 'flax', 'apache_beam', 'great_expectations', 'pandas', 'numpy', 'pyarrow', 'rich', 'click'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
        "light = {'drivetrain.errors', 'drivetrain.lazy'}\n"
        "assert not [n for n in sys.modules if n.startswith('drivetrain.') and n not in light]\n"
        "[getattr(dt, name) for name in dt.__all__]\n"
        "assert not {'jax', 'apache_beam', 'great_expectations', 'pandas'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)


@pytest.fixture(scope="session")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clone without what was built before: a stale build/ leaks deleted modules into the wheel."""
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout.split(b"\0")
    source = tmp_path_factory.mktemp("clone") / "my-drivetrain"  # a folder's name that no import could have
    for name in filter(None, (item.decode() for item in tracked)):
        target = source / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / name).is_symlink():
            target.symlink_to((ROOT / name).readlink())
        elif (ROOT / name).is_file():
            target.write_bytes((ROOT / name).read_bytes())
    return source


@pytest.fixture(scope="session")
def wheel(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(source)]
    subprocess.run(command, check=True, capture_output=True, timeout=300)
    (wheel,) = folder.glob("*.whl")
    return wheel


@pytest.mark.slow
def test_the_wheel_holds_every_module_and_data_file(source: Path, wheel: Path, tmp_path: Path) -> None:
    shipped = {name for name in zipfile.ZipFile(wheel).namelist() if name.startswith("drivetrain/")}
    wanted = {"drivetrain/py.typed", *(f"drivetrain/{path.name}" for path in source.glob("*.py"))}
    for room in ROOMS:
        files = [path for path in (source / room).rglob("*") if path.is_file()]
        wanted |= {f"drivetrain/{path.relative_to(source).as_posix()}" for path in files}
    for example in TEMPLATES.values():  # `drivetrain new` copies them
        files = [path for path in (source / "examples" / example).rglob("*") if path.suffix in (".py", ".yaml")]
        wanted |= {f"drivetrain/{path.relative_to(source).as_posix()}" for path in files}
    assert shipped == wanted
    installed = tmp_path / "installed"
    zipfile.ZipFile(wheel).extractall(installed)
    script = "import drivetrain, drivetrain.components as c; print(drivetrain.__file__, c.ExampleGen.name)"
    out = subprocess.run(
        [sys.executable, "-c", script], env={"PYTHONPATH": str(installed)}, cwd=tmp_path,
        capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    assert str(installed) in out.stdout
    command = [sys.executable, "-m", "drivetrain", "new", "shop"]
    subprocess.run(command, env={"PYTHONPATH": str(installed)}, cwd=tmp_path, check=True, timeout=60)
    assert (tmp_path / "shop" / "tests" / "test_features.py").is_file()


@pytest.fixture
def editable(source: Path, tmp_path: Path) -> Path:
    """The wheel that `pip install --editable` asks the build backend for."""
    script = f"import setuptools.build_meta as backend; print(backend.build_editable({str(tmp_path)!r}))"
    subprocess.run([sys.executable, "-c", script], cwd=source, check=True, capture_output=True, timeout=300)
    (wheel,) = tmp_path.glob("*.whl")
    return wheel


@pytest.mark.slow
@pytest.mark.parametrize("install", ["wheel", "editable"])
def test_mypy_strict_follows_drivetrain_into_a_users_project(
    install: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    environment = _environment(tmp_path / "environment", request.getfixturevalue(install))
    project = tmp_path / "shop"
    shutil.copytree(ROOT / "examples" / "flights", project, ignore=shutil.ignore_patterns("served", ".drivetrain"))
    (settings,) = re.findall(r"```toml\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    (project / "pyproject.toml").write_text(settings)
    assert _mypy(environment, project) == (0, [])
    (project / "swapped.py").write_text(SWAPPED)
    assert _mypy(environment, project) == (1, [
        'swapped.py:6: error: Argument 1 to "__call__" of "Component" has incompatible type "Statistics"; '
        'expected "Examples"  [arg-type]',
        'swapped.py:6: error: Argument 2 to "__call__" of "Component" has incompatible type "Examples"; '
        'expected "Statistics"  [arg-type]',
        'swapped.py:7: error: Argument 1 to "__call__" of "Component" has incompatible type "Examples"; '
        'expected "Model"  [arg-type]',
        'swapped.py:8: error: Argument 2 to "validate" has incompatible type "str"; expected "Schema"  [arg-type]',
    ])  # fmt: skip


SWAPPED = """from drivetrain import data
from drivetrain.components import ExampleValidator, Pusher
from drivetrain.metadata import Examples, Schema, Statistics

def wire(examples: Examples, statistics: Statistics, schema: Schema) -> None:
    ExampleValidator(statistics, examples, schema)
    Pusher(examples, destination="serving")
    data.validate(data.load_schema("schema.yaml"), "january.csv")
"""


def _environment(folder: Path, wheel: Path) -> Path:
    """The Python of a new environment that has this wheel, and borrows its libraries from the tests' environment."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True, timeout=60)
    python = folder / "bin" / "python"
    command = [sys.executable, "-m", "pip", "--python", str(python), "install", "--no-deps", "--no-index", str(wheel)]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    (libraries,) = folder.glob("lib/python*/site-packages")
    (libraries / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return python


def _mypy(python: Path, project: Path) -> tuple[int, list[str]]:
    command = [sys.executable, "-m", "mypy", "--no-error-summary", "--no-pretty", "--python-executable", str(python)]
    # What it finds in the libraries, which are the same however drivetrain is installed, is kept.
    result = subprocess.run(
        [*command, "--cache-dir", f"{os.environ['XDG_CACHE_HOME']}/mypy", "."],
        cwd=project, capture_output=True, text=True, timeout=280,
    )  # fmt: skip
    assert not result.stderr, result.stderr
    return result.returncode, result.stdout.splitlines()


def test_no_example_pushes_into_a_package() -> None:
    """`serving/flights` lies in the package `serving` of a checkout."""
    destinations = {
        path.parent.name: re.findall(r'destination[^"\n]*"([^"/]+)/', path.read_text("utf-8"))
        for path in (ROOT / "examples").glob("*/pipeline.py")
    }
    assert {"flights", "penguins", "weather"} <= {name for name, folders in destinations.items() if folders}
    assert {folder for folders in destinations.values() for folder in folders}.isdisjoint(ROOMS)
