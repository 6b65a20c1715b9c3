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
        all_spans,
        artifact,
        component,
        files,
        latest,
        latest_blessed,
        latest_model,
        map_,
        newest_model_not_trained_on,
        not_,
        on_exit,
        one_of,
        optional,
        otherwise,
        paired,
        pipeline,
        previous,
        query,
        rolling,
        secret,
        sequential,
        sliding,
        spans,
        splits,
        static_range,
        unzip,
        when,
    )
    from .pipelines.external import (
        container_component,
        file_path,
        if_present,
        input_path,
        kfp_component,
        notebook_component,
        output_path,
        parameter,
        properties_path,
        shell_component,
    )

_HOMES = {
    "container_component": ".pipelines.external",
    "file_path": ".pipelines.external",
    "if_present": ".pipelines.external",
    "input_path": ".pipelines.external",
    "kfp_component": ".pipelines.external",
    "notebook_component": ".pipelines.external",
    "output_path": ".pipelines.external",
    "parameter": ".pipelines.external",
    "properties_path": ".pipelines.external",
    "shell_component": ".pipelines.external",
    "all_spans": ".pipelines",
    "artifact": ".pipelines",
    "latest_model": ".pipelines",
    "newest_model_not_trained_on": ".pipelines",
    "previous": ".pipelines",
    "rolling": ".pipelines",
    "static_range": ".pipelines",
    "paired": ".pipelines",
    "sequential": ".pipelines",
    "sliding": ".pipelines",
    "spans": ".pipelines",
    "splits": ".pipelines",
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
    "all_spans",
    "artifact",
    "component",
    "container_component",
    "file_path",
    "files",
    "hub",
    "if_present",
    "input_path",
    "kfp_component",
    "latest",
    "latest_blessed",
    "latest_model",
    "map_",
    "newest_model_not_trained_on",
    "not_",
    "notebook_component",
    "on_exit",
    "one_of",
    "open",
    "optional",
    "otherwise",
    "output_path",
    "paired",
    "parameter",
    "pipeline",
    "previous",
    "properties_path",
    "query",
    "rolling",
    "secret",
    "sequential",
    "shell_component",
    "sliding",
    "spans",
    "splits",
    "static_range",
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
