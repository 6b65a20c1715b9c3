"""The registry of analyzers: it has every module that declares one, and no name twice."""

from importlib import import_module
from pkgutil import iter_modules

from drivetrain.engine import analyzers
from drivetrain.engine.analyzers import registry

_READERS = (registry.__name__, f"{analyzers.__name__}.analysis")  # they import the tables


def test_every_module_that_declares_analyzers_is_registered() -> None:
    names = {f"{analyzers.__name__}.{module.name}" for module in iter_modules(analyzers.__path__)}
    modules = [import_module(name) for name in sorted(names.difference(_READERS))]
    for table in ("STATES", "ANALYZERS"):
        declared = [name for module in modules for name in getattr(module, table, {})]
        assert sorted(declared) == sorted(getattr(registry, table))  # a list: none twice


def test_every_analyzer_reads_a_state_that_is_registered() -> None:
    for plain in ({}, {"width": 2}, {"weight": "w"}, {"label": "l"}):
        for name, kind in registry.ANALYZERS.items():
            state, options = kind.need(plain)
            assert state in registry.STATES, name
            assert all(isinstance(option, str) for option in options)
