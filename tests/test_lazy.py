"""Packages whose names load on first use: what a type checker sees is what there is."""

from __future__ import annotations

import ast
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
from drivetrain.lazy import lazy_names

PACKAGES = [
    "drivetrain",
    "drivetrain.pipelines",
    "drivetrain.pipelines.scheduler",
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
import gc, importlib, sys

gc.disable()  # it would look through all of JAX again and again
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
