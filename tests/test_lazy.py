"""Packages whose names load on first use: what a type checker sees is what there is."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
from drivetrain.lazy import lazy_names

PACKAGES = [
    "drivetrain",
    "drivetrain.pipelines",
    *(f"drivetrain.engine{name}" for name in ("", ".hub", ".ragged", ".custom_ops")),
]


def imported_for_types(file: str) -> set[str]:
    """The names that a module imports under `if TYPE_CHECKING`."""
    guards = [
        node
        for node in ast.parse(Path(file).read_text(encoding="utf-8")).body
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
    ]
    imports = [node for guard in guards for node in guard.body if isinstance(node, ast.ImportFrom)]
    return {alias.asname or alias.name for node in imports for alias in node.names}


@pytest.mark.parametrize("name", PACKAGES)
def test_what_a_type_checker_sees_is_what_there_is(name: str) -> None:
    package = import_module(name)
    eager = {"BuildError", "DrivetrainError", "InputError"} if name == "drivetrain" else set()
    assert imported_for_types(package.__file__ or "") | eager == set(package.__all__)
    assert set(dir(package)) == set(package.__all__)


LOADING = """
import importlib, sys

for name in sys.argv[1:]:
    # JAX stays, ours is read anew: no package's names load only because another's were loaded before.
    for module in [module for module in sys.modules if module.partition(".")[0] == "drivetrain"]:
        del sys.modules[module]
    names = {}
    exec(f"from {name} import *", names)
    missing = set(importlib.import_module(name).__all__) - set(names)
    assert not missing, (name, missing)
"""


@pytest.mark.engine
def test_every_name_loads() -> None:
    done = subprocess.run([sys.executable, "-c", LOADING, *PACKAGES], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def test_what_is_not_there_is_named() -> None:
    load, _, public = lazy_names("drivetrain", {"digest": "digest canonical_json"}, submodules=["data.stats"])
    assert public == ["canonical_json", "digest", "stats"]
    with pytest.raises(AttributeError, match="module 'drivetrain' has no attribute 'digets'"):
        load("digets")


ENDING = """
import atexit, gc, sys, threading, time
from drivetrain.lazy import end_process

frozen = open(sys.argv[1], "w")
gc.freeze()
binary = open(sys.argv[2], "wb")
frozen.write("text"), binary.write(b"bytes")
atexit.register(print, "exit handler")
threading.Thread(target=lambda: (time.sleep(0.2), print("thread"))).start()


class Last:
    def __del__(self):
        print("taken apart")


last = Last()
print("printed")
end_process(3, wait=len(sys.argv) < 4)
"""


def test_a_process_that_ends_leaves_nothing_behind(tmp_path: Path) -> None:
    for more, printed in ([], "printed\nthread\nexit handler\n"), (["at once"], "printed\n"):
        texts = [tmp_path / "text", tmp_path / "bytes"]
        done = subprocess.run([sys.executable, "-c", ENDING, *texts, *more], capture_output=True, text=True)
        assert (done.returncode, done.stdout, done.stderr) == (3, printed, "")
        assert [text.read_text() for text in texts] == ["text", "bytes"]


IMPORTING = """
import importlib.metadata, sys
from pathlib import Path

from drivetrain.lazy import kept_imports

opened = []
sys.addaudithook(lambda event, args: opened.append(Path(str(args[0]))) if event == "open" else None)
with kept_imports():
    import jax
names = {path.parent.name for path in opened if path.name == "METADATA"}
assert "jax_rocm9_plugin-1.0.dist-info" in names, "JAX looks for its plugins in another way"
assert all(name.startswith("jax") for name in names), names
assert "jax_rocm9_plugin.rocm_plugin_extension" in sys.modules
assert {"numpy", "pytest"} <= {each.metadata["Name"] for each in importlib.metadata.distributions()}
assert jax.numpy.arange(3).sum() == 3
"""


@pytest.mark.engine
def test_jax_finds_its_plugin_without_reading_of_all_packages(tmp_path: Path) -> None:
    for name in ("jax_rocm9_plugin", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "rocm_plugin_extension.py").touch()
        (tmp_path / f"{name}-1.0.dist-info").mkdir()
        metadata = f"Metadata-Version: 2.1\nName: {name.replace('_', '-')}\nVersion: 1.0\n"
        (tmp_path / f"{name}-1.0.dist-info" / "METADATA").write_text(metadata)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    command = [sys.executable, "-c", IMPORTING]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
