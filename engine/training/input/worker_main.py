"""The process of a worker: reads blocks of rows, calls a function of the user's, writes what it gives."""

from __future__ import annotations

import importlib
import importlib.util
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from ....errors import DrivetrainError
from .dataset import Dataset
from .maps import Mapped
from .workers import read_message, write_message


def main() -> None:
    """Answer until nobody asks any more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that asks, which ends this one
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what the function prints must not stand among the answers
    mapped: Mapped | None = None
    while True:
        try:
            head, block = read_message(sys.stdin.buffer)
        except EOFError:
            return
        try:
            if mapped is None:
                mapped = Mapped(Dataset(), _function(head["fn"]), head["by_row"], head["seed"])
            result, answer = mapped.apply(block, head["epoch"], head["row"]), {}
        except DrivetrainError as error:
            result, answer = {}, {"error": error.message, "fix": error.fix, "where": error.where}
        write_message(answers, answer, result)


def _function(reference: dict[str, Any]) -> Callable[..., Any]:
    """The function of a reference: by its module's name, or out of its file where the name leads elsewhere."""
    name, file = reference["module"], reference["file"]
    for package, path in reference["packages"]:
        try:
            importlib.import_module(package)
        except ModuleNotFoundError:  # a project is a package that its runner makes of a folder
            folder: Any = ModuleType(package)
            folder.__path__ = path
            sys.modules[package] = folder
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError:
        module = None
    if file is not None and (module is None or Path(module.__file__ or "") != Path(file)):
        spec = importlib.util.spec_from_file_location(name, file)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
    fn: Any = getattr(module, reference["name"])
    return fn if reference["fields"] is None else fn(**reference["fields"])  # type: ignore[no-any-return]


if __name__ == "__main__":
    main()
