"""drivetrain: raw data to a served model and back, as one typed Python DAG on JAX.

The public face. Names are imported on first use, so that `import drivetrain` costs next to nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from .errors import BuildError, DrivetrainError, InputError

if TYPE_CHECKING:
    from .console.session import open  # noqa: A004 - it is `dt.open`
    from .engine import hub
    from .metadata import Artifact
    from .pipelines import (
        Secret,
        component,
        files,
        latest,
        latest_blessed,
        map_,
        not_,
        on_exit,
        one_of,
        optional,
        otherwise,
        pipeline,
        query,
        secret,
        unzip,
        when,
    )

_HOMES = {
    "secret": ".pipelines",
    "Secret": ".pipelines",
    "unzip": ".pipelines",
    "otherwise": ".pipelines",
    "optional": ".pipelines",
    "one_of": ".pipelines",
    "on_exit": ".pipelines",
    "not_": ".pipelines",
    "map_": ".pipelines",
    "Artifact": ".metadata",
    "component": ".pipelines",
    "files": ".pipelines",
    "hub": ".engine",
    "latest": ".pipelines",
    "latest_blessed": ".pipelines",
    "open": ".console.session",
    "pipeline": ".pipelines",
    "query": ".pipelines",
    "when": ".pipelines",
}

__all__ = [
    "Artifact",
    "BuildError",
    "DrivetrainError",
    "InputError",
    "Secret",
    "component",
    "files",
    "hub",
    "latest",
    "latest_blessed",
    "map_",
    "not_",
    "on_exit",
    "one_of",
    "open",
    "optional",
    "otherwise",
    "pipeline",
    "query",
    "secret",
    "unzip",
    "when",
]


def __getattr__(name: str) -> object:
    if name == "__version__":
        from importlib.metadata import version

        return version(__name__)
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(home, __name__), name)


def __dir__() -> list[str]:
    return sorted(__all__)
