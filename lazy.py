"""What imports cost, spared: names are imported on first use, and processes of ours end with all that they imported."""

from __future__ import annotations

import atexit
import gc
import io
import os
import stat
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import NoReturn

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


def end_process(code: int, *, wait: bool = True) -> NoReturn:
    """End this process as Python does, threads, exit handlers and open files, but without taking modules apart.

    That takes half a second with JAX, and a sixth of a child process's time without, in vain: the system frees all
    that a process has at once.

    Args:
        code: The exit code.
        wait: Whether threads are waited for and exit handlers called.

    Raises:
        SystemExit: In a process that is profiled or debugged: who does that has something to do after it.
    """
    if sys.getprofile() or sys.gettrace():
        sys.exit(code)
    if wait:
        with suppress(BaseException):  # Ctrl-C once more
            threading._shutdown()  # type: ignore[attr-defined]  # waits for them, as Python does first
        with suppress(BaseException):  # they have printed what is wrong
            atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):  # nobody reads any more
            stream.flush()
    with suppress(BaseException):
        _flush_files()
    os._exit(code)


def _flush_files() -> None:
    """Have what was written to files reach them, where nobody has closed these. A pipe could block, so only files."""
    gc.unfreeze()  # what is frozen would not be listed
    kinds = {io.TextIOWrapper, io.BufferedWriter, io.BufferedRandom}
    opened = [each for each in gc.get_objects() if type(each) in kinds]
    for file in sorted(opened, key=lambda file: type(file) is not io.TextIOWrapper):  # it writes into one of the others
        with suppress(OSError, ValueError):  # it is closed, or the disk is full
            if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                file.flush()


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
