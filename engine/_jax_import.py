"""JAX imported without a look into all that is installed.

To find a plugin for AMD's GPUs, JAX 0.10 parses the metadata of every installed distribution whenever it is imported
(https://github.com/jax-ml/jax/issues/37879): a third of the processor time of a server's start where 200 are. Where
nothing on the import path is named as such a plugin is, there is nothing to be found.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from importlib import metadata
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any, Final

LOOKS: Final = "jax._src.numpy.array_constructors"
"""The module of JAX that looks."""


def spare_the_look(module: str = LOOKS) -> None:
    """Have a module that is not imported yet see no distributions while it is, unless a plugin may be there."""
    if module not in sys.modules:
        sys.meta_path.insert(0, _SparesTheLook(module))


class _SparesTheLook(MetaPathFinder):
    def __init__(self, module: str) -> None:
        self._module = module

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name != self._module:
            return None
        sys.meta_path.remove(self)
        spec = PathFinder.find_spec(name, path, target)
        if spec is None or spec.loader is None or any(any(Path(folder).glob("jax[-_]rocm*")) for folder in sys.path):
            return spec
        execute, distributions = spec.loader.exec_module, metadata.distributions

        def seen(**context: Any) -> Iterable[metadata.Distribution]:  # Any: as the library types it
            # Another thread may ask meanwhile, and for something else.
            return () if sys._getframe(1).f_globals.get("__name__") == name else distributions(**context)

        def exec_module(module: ModuleType) -> None:
            metadata.distributions = seen
            try:
                execute(module)
            finally:
                metadata.distributions = distributions

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec
