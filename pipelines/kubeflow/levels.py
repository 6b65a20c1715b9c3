"""How values come into a DAG of KFP: from a task beside, or from the DAG around it, which has to hand them on."""

from __future__ import annotations

from typing import Any, TypeAlias

Json: TypeAlias = dict[str, Any]  # a JSON object, as protobuf reads it


class Level:
    """One DAG that is being written: its tasks, and what comes into it from the one around.

    Args:
        above: The one around it; None for the root.

    Attributes:
        here: The names of its tasks.
        parameters: Of its component: name -> definition.
        artifacts: Of its component.
        given: The inputs of the task that it is where it is used.
    """

    def __init__(self, above: Level | None) -> None:
        self.above = above
        self.here: set[str] = set()
        self.parameters: dict[str, Json] = {}
        self.artifacts: dict[str, Json] = {}
        self.inputs: Json = {"parameters": {}, "artifacts": {}}

    def pass_on(self, name: str, body: Json) -> None:
        """Hand a parameter of the DAG around on to this one."""
        self.parameters[name] = body
        self.inputs["parameters"][name] = {"componentInputParameter": name}

    def parameter(self, task: str, key: str, kind: str) -> Json:
        """Where a task in this DAG has an output parameter from."""
        if task in self.here:
            return {"taskOutputParameter": {"producerTask": task, "outputParameterKey": key}}
        assert self.above is not None
        name = f"pipelinechannel--{task}--{key}"
        if name not in self.parameters:
            self.inputs["parameters"][name] = self.above.parameter(task, key, kind)
            self.parameters[name] = {"parameterType": kind}
        return {"componentInputParameter": name}

    def artifact(self, task: str, key: str, kind: str) -> Json | None:
        """Where a task in this DAG has an artifact from; None where it is gathered, or made for what runs before."""
        if task in self.here:
            return {"taskOutputArtifact": {"producerTask": task, "outputArtifactKey": key}}
        if self.above is None:
            return None
        name = f"{task}--{key}"
        if name not in self.artifacts:
            source = self.above.artifact(task, key, kind)
            if source is None:
                return None
            self.artifacts[name] = artifact_type(kind)
            self.inputs["artifacts"][name] = source
        return {"componentInputArtifact": name}


def artifact_type(kind: str) -> Json:
    """An artifact's definition, by our name of its type."""
    return {"artifactType": {"schemaTitle": f"drivetrain.{kind}", "schemaVersion": "0.0.1"}}
