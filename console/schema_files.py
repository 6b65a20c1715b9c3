"""Where a run's schema and statistics lie, what they propose, and how a schema's file is written."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ..digest import write_durably
from ..errors import InputError
from ..pipelines import Home, Run
from ..pipelines.launcher.flow import Flow
from .session import RunView, view

if TYPE_CHECKING:
    from ..data import Statistics


def proposed(home: Home, run: Run) -> str:
    """The schema that a run proposes: SchemaGen's, else what its statistics propose.

    Raises:
        InputError: It has neither.
    """
    found = view(home, run)
    for node in run.pipeline.nodes:
        made = [artifact.content / "schema.yaml" for artifact in found[node.id].outputs.values()]
        if node.component.endswith(":SchemaGen") and made and made[0].is_file():
            return made[0].read_text(encoding="utf-8")
    return inferred(found, None)


def statistics_in(found: RunView) -> Statistics:
    """The statistics that a run made.

    Raises:
        InputError: It has none.
    """
    from .. import data

    for node in found:
        for artifact, record in zip(node.outputs.values(), node.records.values(), strict=True):
            if record.type == "Statistics" and (artifact.content / "statistics.json").is_file():
                return data.Statistics.load(artifact.content)
    raise InputError(
        f"run {found.id} has no statistics", fix="add StatisticsGen to the pipeline, or name another --run"
    )


class Compared(NamedTuple):
    """What a run's ExampleValidator looked at.

    Attributes:
        statistics: Of the examples.
        controls: Those they were compared with: "previous", "serving", "previous_version".
        environment: As it was told.
    """

    statistics: Statistics
    controls: Mapping[str, Statistics]
    environment: str | None = None


def compared(home: Home, run: Run) -> Compared:
    """What a run's ExampleValidator looked at; of a run without one, its statistics.

    Raises:
        InputError: It has no statistics.
    """
    from .. import data

    flow = Flow(home.store, run)
    for node in run.pipeline.nodes:
        execution = flow.execution(node.id)
        inputs = {} if execution is None else home.store.inputs(execution)
        if node.component.endswith(":ExampleValidator") and "statistics" in inputs:
            loaded = {
                name: data.Statistics.load(home.payloads.local(inputs[name][0].uri) / "content")
                for name in ("statistics", "previous", "serving", "previous_version")
                if inputs.get(name)
            }
            told: Any = dict(node.parameters).get("environment")
            if isinstance(told, dict):  # a parameter of the pipeline
                told = run.parameters[told["$param"]]
            return Compared(loaded.pop("statistics"), loaded, told)
    return Compared(statistics_in(view(home, run)), {})


def inferred(found: RunView, split: str | None, slack: float | None = None) -> str:
    """The schema that a run's statistics propose."""
    from .. import data

    return data.schema_to_yaml(data.infer_schema(statistics_in(found), split=split, slack=slack))


def write_text(target: Path, text: str, option: str) -> None:
    """Write a file of the user's; `option` names it on the command line.

    Raises:
        InputError: It cannot be written.
    """
    try:
        write_durably(target, text.encode())
    except OSError as error:
        raise InputError(
            f"{target} cannot be written: {error.strerror}", fix=f"name another file with {option}"
        ) from None
