"""KFP's protobuf messages, without the two seconds that its whole SDK takes where that is installed too."""

from __future__ import annotations

import os
from typing import Any

from ...errors import missing_extra

SCHEMA = "2.1.0"
"""The only version of the PipelineSpec that Kubeflow takes."""
EXIT = 2
"""`ALL_UPSTREAM_TASKS_COMPLETED` of a trigger policy: the task is an exit hook of the one that it depends on."""
_LIGHT = "_KFP_RUNTIME"
"""What KFP sets in its own pods, so that `import kfp` brings neither its compiler nor its client."""


def pipeline_spec() -> Any:  # Any: the package ships no types
    """The module of PipelineSpec and PlatformSpec. The SDK's parts can still be imported afterwards, by their names.

    Raises:
        DrivetrainError: The extra kubeflow is not installed.
    """
    before = os.environ.get(_LIGHT)
    os.environ[_LIGHT] = "true"
    try:
        from kfp.pipeline_spec import pipeline_spec_pb2
    except ImportError as error:
        raise missing_extra("kfp-pipeline-spec", "kubeflow") from error
    finally:
        if before is None:
            del os.environ[_LIGHT]
        else:
            os.environ[_LIGHT] = before
    return pipeline_spec_pb2


def add_implied_dependencies(spec: Any) -> None:  # Any: protobuf messages, which have no types
    """Let each task of a PipelineSpec wait for those whose outputs it takes, as KFP's compiler does before all else."""
    for component in (spec.root, *spec.components.values()):
        for task in component.dag.tasks.values():
            producers = {each.task_output_parameter.producer_task for each in task.inputs.parameters.values()}
            producers |= {each.task_output_artifact.producer_task for each in task.inputs.artifacts.values()}
            implied = producers & component.dag.tasks.keys() - set(task.dependent_tasks)
            task.dependent_tasks[:] = sorted([*task.dependent_tasks, *implied])
