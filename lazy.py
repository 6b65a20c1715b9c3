"""Public names that are imported on first use, so that importing a package costs next to nothing."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module

from .errors import missing_module


@contextmanager
def kept_imports() -> Iterator[None]:
    """Have the garbage collector rest within the block, and never look at what there is at its end.

    For a new process of ours that imports what it keeps: looking through all of JAX again and again costs it as much as
    half of the import.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if collects:
            gc.enable()


def lazy_names(
    package: str, homes: Mapping[str, str], submodules: Sequence[str] = ()
) -> tuple[Callable[[str], object], Callable[[], list[str]], list[str]]:
    """The `__getattr__`, `__dir__` and `__all__` of a package whose names load when they are first asked for.

    A type checker does not see them: the package imports the same names under `if TYPE_CHECKING` too, and a test
    compares the two.

    Args:
        package: Its `__name__`.
        homes: From a module, relative to the package ("graphs.graph"), to the names in it that are public, separated
            by spaces.
        submodules: Modules, relative to the package, that are public under the last part of their name.

    Raises:
        DrivetrainError: When a name is asked for whose module needs an extra that is not installed.
    """
    home_of = {name: module for module, names in homes.items() for name in names.split()}
    module_of = {path.rpartition(".")[2]: path for path in submodules}
    public = sorted([*home_of, *module_of])

    def load(name: str) -> object:
        if name not in public:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        try:
            module = import_module(f".{module_of.get(name) or home_of[name]}", package)
        except ModuleNotFoundError as error:
            if (missing := missing_module(error)) is not None:
                raise missing from error
            raise
        value: object = module if name in module_of else getattr(module, name)
        # The next use finds it without asking here.
        setattr(sys.modules[package], name, value)
        return value

    return load, lambda: public, public
