"""Importing JAX by way of the engine looks into no distribution, and finds a plugin that is there all the same."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module, metadata
from pathlib import Path

import pytest
from drivetrain.engine._jax_import import spare_the_look

# As JAX 0.10 looks, and what others see meanwhile.
LOOKING = """
from importlib.metadata import distributions, entry_points
names = [each.metadata["Name"] for each in distributions()]
others = len(entry_points())
"""
OPENED = """
import sys
opened = []
sys.addaudithook(lambda event, of: opened.append(str(of[0])) if event == "open" else None)
import drivetrain.engine.hub.modules
assert "jax._src.numpy.array_constructors" in sys.modules
print(sum(path.endswith("METADATA") for path in opened))
"""


@pytest.mark.engine
def test_jax_reads_no_metadata() -> None:
    ran = subprocess.run([sys.executable, "-c", OPENED], capture_output=True, text=True, check=True)
    assert int(ran.stdout) < 5, "all that are installed were read"


@pytest.mark.parametrize("plugin", ["", "jax_rocm7_plugin-1.0.dist-info", "jax-rocm60-plugin.egg-info"])
def test_a_plugin_is_found_where_it_may_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, plugin: str) -> None:
    name = f"looking_{len(plugin)}"
    (tmp_path / f"{name}.py").write_text(LOOKING)
    if plugin:
        (tmp_path / plugin).mkdir()
        (tmp_path / plugin / "METADATA").write_text("Name: jax-rocm-plugin\n")
        (tmp_path / plugin / "PKG-INFO").write_text("Name: jax-rocm-plugin\n")
    monkeypatch.syspath_prepend(tmp_path)
    before, real = list(sys.meta_path), metadata.distributions
    spare_the_look(name)
    module = import_module(name)
    monkeypatch.delitem(sys.modules, name)
    assert ("jax-rocm-plugin" in module.names) == bool(plugin)
    assert bool(module.names) == bool(plugin)
    assert module.others > 0
    assert (sys.meta_path, metadata.distributions) == (before, real)
