"""What ML Metadata and TFX call things, and what we call them: types, states, kinds of events."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ..records import ArtifactState, ExecutionState

TYPES: Final[Mapping[str, str]] = {
    "ExampleStatistics": "Statistics",
    "ExampleAnomalies": "Anomalies",
    "ModelEvaluation": "Evaluation",
    "TransformCache": "AnalyzerCache",
}
"""Artifact types of TFX that have another name here. The others keep theirs, known to us or not."""

SHARED: Final = ("pipeline", "node")
"""Context types that mean the same here: what has the same name is the same."""
RUNS: Final = ("pipeline_run", "run")
"""Context types of runs: of TFX today, and before 0.22."""

INPUTS: Final = (2, 3, 5)  # DECLARED_INPUT, INPUT, INTERNAL_INPUT
OUTPUTS: Final = (1, 4, 6, 7)  # DECLARED_OUTPUT, OUTPUT, INTERNAL_OUTPUT, PENDING_OUTPUT

# The payload is not ours to check or to delete: what lives there is a reference here.
_ARTIFACT: Final[Mapping[int, tuple[str, ArtifactState]]] = {
    0: ("UNKNOWN", "REFERENCE"),
    1: ("PENDING", "PENDING"),
    2: ("LIVE", "REFERENCE"),
    3: ("MARKED_FOR_DELETION", "REFERENCE"),
    4: ("DELETED", "DELETED"),
    5: ("ABANDONED", "ABANDONED"),
    6: ("REFERENCE", "REFERENCE"),
}
# What has not ended is nothing that anybody here could wait for or end.
_EXECUTION: Final[Mapping[int, tuple[str, ExecutionState]]] = {
    0: ("UNKNOWN", "ABANDONED"),
    1: ("NEW", "ABANDONED"),
    2: ("RUNNING", "ABANDONED"),
    3: ("COMPLETE", "COMPLETE"),
    4: ("FAILED", "FAILED"),
    5: ("CACHED", "CACHED"),
    6: ("CANCELED", "CANCELED"),
}


def artifact_state(number: int | None) -> tuple[str, ArtifactState]:
    """An artifact's state as it is called there, and what it is here; a state that came later is a reference."""
    return _ARTIFACT.get(number or 0, (str(number), "REFERENCE"))


def execution_state(number: int | None) -> tuple[str, ExecutionState]:
    """An execution's state as it is called there, and what it is here."""
    return _EXECUTION.get(number or 0, (str(number), "ABANDONED"))


def properties(kind: str, known: Mapping[str, Any]) -> dict[str, Any]:
    """The properties that a type has here, from what TFX keeps of it there.

    Args:
        kind: The type, by our name.
        known: All its properties there, declared and custom ones.
    """
    mapped: dict[str, Any] = {}
    for name in {"Examples": ("span", "version"), "Statistics": ("span",)}.get(kind, ()):
        if (number := _whole(known.get(name))) is not None:
            mapped[name] = number
    if kind == "Anomalies" and isinstance(blessed := known.get("blessed"), Mapping):
        bad = sorted(split for split, passed in blessed.items() if not passed)
        mapped = {"passed": not bad, "summary": f"anomalies in {', '.join(bad)}" if bad else ""}
    if kind == "PushedModel" and isinstance(where := known.get("pushed_destination"), str):
        version = _whole(known.get("pushed_version"))
        mapped = {"destination": where} | ({} if version is None else {"version": version})
    return mapped


def _whole(value: object) -> int | None:
    """A whole number, also one that is written as text: TFX did so for spans until 0.22."""
    if isinstance(value, str) and value.strip().lstrip("-").isdecimal():
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None
