"""The house as a distribution: one copy of the package, a quick import, a whole wheel."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import drivetrain
import pytest

ROOT = Path(__file__).parent.parent
ROOMS = ("components", "console", "data", "engine", "metadata", "pipelines", "report")


def test_one_copy_of_the_package_is_loaded() -> None:
    files = {name: module.__file__ for name, module in sys.modules.items() if getattr(module, "__file__", None)}
    ours = [name for name, file in files.items() if file == str(ROOT / "__init__.py")]
    assert ours == ["drivetrain"], ours
    assert Path(drivetrain.__file__ or "").parent == ROOT


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


@pytest.mark.slow
def test_the_wheel_holds_every_module_and_data_file(tmp_path: Path) -> None:
    # A copy without what was built before: a stale build/ leaks deleted modules into the wheel.
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout.split(b"\0")
    source = tmp_path / "source"
    for name in filter(None, (item.decode() for item in tracked)):
        if (ROOT / name).is_file():
            target = source / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes((ROOT / name).read_bytes())
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(tmp_path), str(source)]
    subprocess.run(command, check=True, capture_output=True, timeout=300)
    (wheel,) = tmp_path.glob("*.whl")
    shipped = {name for name in zipfile.ZipFile(wheel).namelist() if name.startswith("drivetrain/")}
    wanted = {"drivetrain/py.typed", *(f"drivetrain/{path.name}" for path in source.glob("*.py"))}
    for room in ROOMS:
        files = [path for path in (source / room).rglob("*") if path.is_file()]
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
