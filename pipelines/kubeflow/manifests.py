"""The interface between KFP's launcher and our container: parameters, and small manifests in place of artifacts."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...digest import canonical_json
from ...errors import InputError
from ...metadata import ArtifactRecord
from ..launcher.states import EndState, RunState

FORMAT = "drivetrain-manifest/1"
RUN = "drivetrain_run"
"""The parameter of a KFP run that holds the id of ours."""
STATUS = "status"
"""The parameter by which exit tasks learn how the work ended."""
ITEMS = "items"
"""The output parameter that holds the items of a loop."""
PASSED = "drivetrain-passed"
"""The output parameter that says whether a gate passed."""
_MOUNTS = ("gs", "s3", "minio", "oci")
"""Schemes whose artifacts KFP's launcher keeps in a folder: `s3://bucket/key` is `/s3/bucket/key` (`gs`: `/gcs`)."""


@dataclass(frozen=True)
class PodOutputs:
    """What a pod reports to KFP.

    Attributes:
        state: How the task ended.
        facts: The metadata of its artifacts, as KFP's pages show it: run, task, execution, store.
        address: Where a payload lies, for any program.
        outputs: The artifacts by output; empty where the task did not run.
        vetoed: Whether it is a gate that vetoed.
        items: The items of a loop, by number, where it opened one.
    """

    state: EndState | RunState
    facts: Mapping[str, str]
    address: Callable[[ArtifactRecord], str]
    outputs: Mapping[str, Sequence[ArtifactRecord]] = field(default_factory=dict)
    vetoed: bool = False
    items: Sequence[int] = ()


class ExecutorInput:
    """KFP's `{{$}}`: what the driver resolved for this container.

    Args:
        text: The JSON.

    Raises:
        InputError: It is not what KFP passes to a container.
    """

    def __init__(self, text: str) -> None:
        try:
            body: Mapping[str, Any] = json.loads(text)
            self.parameters: dict[str, Any] = dict(body.get("inputs", {}).get("parameterValues", {}))
            outputs: Mapping[str, Any] = body.get("outputs", {})
            self._file = Path(outputs["outputFile"])
            self._artifacts: Mapping[str, Any] = outputs.get("artifacts", {})
            self._parameters = tuple(outputs.get("parameters", {}))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise InputError(
                f"--executor-input is not what KFP gives a container ({type(error).__name__}: {error})",
                fix="compile the pipeline again: the argument after it is {{$}}",
            ) from None

    def index(self, loops: Sequence[str]) -> tuple[int, ...]:
        """The item of each of these loops that this container is for.

        Raises:
            InputError: KFP's input does not say it.
        """
        try:
            return tuple(int(self.parameters[f"loop--{loop}"]) for loop in loops)
        except (KeyError, ValueError, TypeError):
            raise InputError(
                f"KFP gave this container no item of the loops {', '.join(loops)}", fix="compile it again"
            ) from None

    def answer(self, outputs: PodOutputs) -> None:
        """Write KFP's outputs: a manifest for each artifact, and the parameters that conditions read."""
        artifacts = {key: {"artifacts": [self._manifest(key, outputs)]} for key in self._artifacts}
        values = {name: _value(name, outputs) for name in self._parameters}
        self._file.parent.mkdir(parents=True, exist_ok=True)
        self._file.write_text(json.dumps({"parameterValues": values, "artifacts": artifacts}), encoding="utf-8")

    def _manifest(self, key: str, outputs: PodOutputs) -> dict[str, object]:
        declared: Mapping[str, Any] = self._artifacts[key]["artifacts"][0]
        path = local_path(declared["uri"])
        records = [
            {
                "uid": record.uid,
                "type": record.type,
                "uri": record.uri,
                "address": outputs.address(record),
                "fingerprint": record.fingerprint,
                "size": record.size,
                "properties": record.properties,
            }
            for record in outputs.outputs.get(key, ())
        ]
        path.parent.mkdir(parents=True, exist_ok=True)
        body = {"format": FORMAT, "state": outputs.state, **outputs.facts, "output": key, "artifacts": records}
        path.write_bytes(canonical_json(body) + b"\n")
        shown: dict[str, object] = {f"drivetrain_{name}": value for name, value in outputs.facts.items()}
        shown["drivetrain_state"] = outputs.state
        for record in records[:1]:
            shown |= {name: record[name] for name in ("address", "fingerprint", "size")}
        return {"name": declared.get("name", key), "uri": declared["uri"], "metadata": shown}


def _value(name: str, outputs: PodOutputs) -> object:
    """An output parameter: a property as a list of one, of none where there is none, since KFP has no null."""
    if name == ITEMS:
        return list(outputs.items)
    if name == PASSED:
        return not outputs.vetoed
    output, dashes, property_ = name.partition("--")
    key = property_ if dashes else "value"
    return [record.properties[key] for record in outputs.outputs.get(output, ())[:1] if key in record.properties]


def local_path(uri: str) -> Path:
    """Where KFP's launcher looks for the file of an artifact that it has put at a URI."""
    scheme, separator, rest = uri.partition("://")
    if not separator:
        return Path(uri)
    if scheme == "file":
        return Path(f"/{rest.lstrip('/')}")
    if scheme not in _MOUNTS:
        raise InputError(f"KFP put an artifact at {scheme}://, where it takes none from", fix="use another root in KFP")
    return Path("/", "gcs" if scheme == "gs" else scheme, rest)
