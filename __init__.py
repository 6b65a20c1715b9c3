"""drivetrain: raw data to a served model and back, as one typed Python DAG on JAX.

What most pipelines need stands here. Windows over earlier spans and other rarer choices of artifacts are in
`dt.resolvers`, what loops go over in `dt.loops`, when a pipeline runs by itself in `dt.triggers`, the placeholders of
commands and containers in `dt.external`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .errors import BuildError, DrivetrainError, InputError
from .lazy import lazy_names

if TYPE_CHECKING:
    from .components.evaluation.ab_test import ab_test
    from .components.evaluation.estimation import PerformanceEstimate, estimate
    from .components.evaluation.series import MetricSeries
    from .components.evaluation.slice_finder import find_slices
    from .components.evaluation.standalone import evaluate
    from .components.explanation.counterfactual import counterfactual_flips
    from .components.explanation.explain import explain
    from .components.tuning.space import choice, integers, log_uniform, uniform
    from .console.cost import costs
    from .console.record_table import find
    from .console.run_table import runs
    from .console.session import open  # noqa: A004 - it is `dt.open`
    from .engine import hub
    from .metadata import Artifact
    from .pipelines import (
        Secret,
        artifact,
        component,
        external,
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
        registered,
        resolvers,
        secret,
        triggers,
        when,
    )
    from .pipelines.external import container_component, kfp_component, notebook_component, shell_component
    from .pipelines.resolvers import loops

    __version__: str

__all__ = [
    "Artifact",
    "BuildError",
    "DrivetrainError",
    "InputError",
    "MetricSeries",
    "PerformanceEstimate",
    "Secret",
    "ab_test",
    "artifact",
    "choice",
    "component",
    "container_component",
    "costs",
    "counterfactual_flips",
    "estimate",
    "evaluate",
    "explain",
    "external",
    "files",
    "find",
    "find_slices",
    "hub",
    "integers",
    "kfp_component",
    "latest",
    "latest_blessed",
    "log_uniform",
    "loops",
    "map_",
    "not_",
    "notebook_component",
    "on_exit",
    "one_of",
    "open",
    "optional",
    "otherwise",
    "pipeline",
    "query",
    "registered",
    "resolvers",
    "runs",
    "secret",
    "shell_component",
    "triggers",
    "uniform",
    "when",
]

_load = lazy_names(
    __name__,
    {
        "components.evaluation.ab_test": "ab_test",
        "components.evaluation.estimation": "PerformanceEstimate estimate",
        "components.evaluation.series": "MetricSeries",
        "components.evaluation.slice_finder": "find_slices",
        "components.evaluation.standalone": "evaluate",
        "components.explanation.counterfactual": "counterfactual_flips",
        "components.explanation.explain": "explain",
        "components.tuning.space": "choice integers log_uniform uniform",
        "console.cost": "costs",
        "console.record_table": "find",
        "console.run_table": "runs",
        "console.session": "open",
        "metadata": "Artifact",
        "pipelines": (
            "Secret artifact component files latest latest_blessed map_ not_ on_exit one_of optional "
            "otherwise pipeline query registered secret when"
        ),
        "pipelines.external": "container_component kfp_component notebook_component shell_component",
    },
    submodules=(
        "engine.hub",
        "pipelines.external",
        "pipelines.resolvers",
        "pipelines.resolvers.loops",
        "pipelines.triggers",
    ),
)[0]


def __getattr__(name: str) -> object:
    if name == "__version__":
        from importlib.metadata import version

        return version(__name__)
    return _load(name)


def __dir__() -> list[str]:
    return __all__
