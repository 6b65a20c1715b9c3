"""What ran as OpenLineage events: a run and each of its executions, with their datasets.

A run is a run of the job `pipeline`, an execution one of `pipeline.node` whose parent it is. A dataset is an output of
a node, `pipeline.node.output`, so that catalogs draw one thing over all runs; its version is the fingerprint of the
content. Files that a component read are datasets too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID, uuid5

from ..errors import missing_extra
from ..metadata import ArtifactRecord, ExecutionRecord
from .launcher.files_read import files_read
from .launcher.following import follow_runs
from .launcher.home import Home
from .launcher.runs import Run, UnreadableRun
from .launcher.states import RunState

if TYPE_CHECKING:
    from openlineage.client.event_v2 import InputDataset, Job, OutputDataset, RunEvent

_RUNS: Final = UUID("3c0a7a9e-27a5-4bd4-9a1c-5d7f0f6f6d4e")  # of this package alone: runs have ids that are no UUIDs
_PRODUCER: Final = "https://pypi.org/project/drivetrain/"
_ENDS: Final = {
    "COMPLETE": "COMPLETE", "CACHED": "COMPLETE", "FAILED": "FAIL", "CANCELED": "ABORT", "ABANDONED": "ABORT",
    "BLOCKED": "ABORT", "STOPPED": "ABORT", "INTERRUPTED": "ABORT",
}  # fmt: skip
"""How the states of executions and runs are called there; an execution that was skipped is no run of a job."""
SENT: Final = "openlineage"
"""The type of the contexts that remember, by namespace, what was sent."""


class LineageEvents:
    """The events of a root's runs.

    Args:
        home: The root.
        namespace: What jobs and datasets are named in.

    Raises:
        DrivetrainError: The client of OpenLineage is not installed.
    """

    def __init__(self, home: Home, namespace: str) -> None:
        try:
            from openlineage.client import event_v2, facet_v2
        except ModuleNotFoundError:
            raise missing_extra("openlineage-python", "openlineage") from None
        self._events, self._facets = event_v2, facet_v2
        event_v2.set_producer(_PRODUCER)
        self._home = home
        self._namespace = namespace
        self._origins: dict[int, str] = {}

    def of(self, run: Run | UnreadableRun) -> Iterator[RunEvent]:
        """The events of a run so far: its start, those of its executions, its end if it has one."""
        facets = self._facets
        context = run.context
        pipeline = str(context.properties.get("pipeline") or "unknown")
        run_id = str(uuid5(_RUNS, f"{context.uid}"))
        job = self._job(pipeline, "DAG")
        about: dict[str, Any] = {
            "processing_engine": facets.processing_engine_run.ProcessingEngineRunFacet(
                version=version("drivetrain"), name="drivetrain"
            ),
        }
        fields = facets.tags_run.TagsRunFacetFields
        tags = [fields(name, text or "true", "USER") for name, text in context.properties.get("tags", {}).items()]
        tags.append(fields("run", run.id, "DRIVETRAIN"))
        about["tags"] = facets.tags_run.TagsRunFacet(tags)
        yield self._event("START", context.created_at, run_id, job, about)
        for execution in reversed(self._home.store.executions(context=context)):
            yield from self._of_execution(execution, pipeline, run_id, job)
        if str(run.state) != RunState.RUNNING and str(run.state) in _ENDS:
            ended = context.properties.get("finished")
            at = datetime.fromisoformat(ended) if ended else context.updated_at
            yield self._event(_ENDS[str(run.state)], at, run_id, job, about)

    def _of_execution(
        self, execution: ExecutionRecord, pipeline: str, run_id: str, parent_job: Job
    ) -> Iterator[RunEvent]:
        if execution.state == "SKIPPED":
            return
        facets = self._facets
        node = str(execution.properties.get("node") or execution.component)
        job = self._job(f"{pipeline}.{node.partition('[')[0]}", "TASK")
        parent = facets.parent_run
        about: dict[str, Any] = {
            "parent": parent.ParentRunFacet(
                run=parent.Run(run_id), job=parent.Job(parent_job.namespace, parent_job.name)
            )
        }
        inputs = [*self._files(execution), *self._inputs(execution)]
        yield self._event(
            "START", execution.started_at or execution.created_at, execution.uid, job, about, inputs=inputs
        )
        if execution.state not in _ENDS:
            return
        if execution.state == "CACHED":
            source = self._home.store.execution(execution.cached_from or execution.id)
            fields = facets.tags_run.TagsRunFacetFields
            about["tags"] = facets.tags_run.TagsRunFacet([fields("cached_from", source.uid, "DRIVETRAIN")])
        if execution.error is not None:
            message, _, trace = execution.error.partition("\n")
            about["errorMessage"] = facets.error_message_run.ErrorMessageRunFacet(
                message=str(execution.properties.get("reason") or message),
                programmingLanguage="PYTHON",
                stackTrace=execution.error if trace else None,
            )
        outputs = [self._output(artifact) for each in self._home.store.outputs(execution).values() for artifact in each]
        end = execution.finished_at or execution.updated_at
        yield self._event(_ENDS[execution.state], end, execution.uid, job, about, inputs=inputs, outputs=outputs)

    def _event(
        self,
        kind: str,
        at: datetime,
        run_id: str,
        job: Job,
        about: dict[str, Any],
        *,
        inputs: list[InputDataset] | None = None,
        outputs: list[OutputDataset] | None = None,
    ) -> RunEvent:
        events = self._events
        event: RunEvent = events.RunEvent(
            eventTime=at.isoformat(),
            producer=_PRODUCER,
            run=events.Run(run_id, dict(about)),
            job=job,
            eventType=events.RunState[kind],
            inputs=inputs or [],
            outputs=outputs or [],
        )
        return event

    def _job(self, name: str, kind: str) -> Job:
        job_type = self._facets.job_type_job.JobTypeJobFacet(
            processingType="BATCH", integration="DRIVETRAIN", jobType=kind
        )
        return self._events.Job(self._namespace, name, {"jobType": job_type})

    def _files(self, execution: ExecutionRecord) -> Iterator[InputDataset]:
        for file in files_read(self._home, execution):
            facets: dict[str, Any] = {}
            if file["sha256"]:
                of_version = self._facets.dataset_version_dataset.DatasetVersionDatasetFacet
                facets["version"] = of_version(datasetVersion=file["sha256"])
            yield self._events.InputDataset("file", str(file["name"]), facets=facets)

    def _inputs(self, execution: ExecutionRecord) -> Iterator[InputDataset]:
        for several in self._home.store.inputs(execution).values():
            for artifact in several:
                yield self._events.InputDataset(self._namespace, self._origin(artifact), facets=self._dataset(artifact))

    def _output(self, artifact: ArtifactRecord) -> OutputDataset:
        rows = artifact.properties.get("rows")
        total = sum(rows.values()) if isinstance(rows, dict) and all(map(_is_count, rows.values())) else None
        statistics = self._facets.output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(
            rowCount=total, size=artifact.size
        )
        return self._events.OutputDataset(
            self._namespace,
            self._origin(artifact),
            facets=self._dataset(artifact),
            outputFacets={"outputStatistics": statistics},
        )

    def _dataset(self, artifact: ArtifactRecord) -> dict[str, Any]:
        facets = self._facets
        root = self._home.payloads.url or f"file://{self._home.root}"
        symlinks = facets.symlinks_dataset
        identifier = symlinks.Identifier(namespace=root, name=artifact.external or artifact.uri, type=artifact.type)
        return {
            "version": facets.dataset_version_dataset.DatasetVersionDatasetFacet(
                datasetVersion=artifact.fingerprint or artifact.uid
            ),
            "symlinks": symlinks.SymlinksDatasetFacet([identifier]),
        }

    def _origin(self, artifact: ArtifactRecord) -> str:
        """The output that an artifact is, as the node that made it names it."""
        if artifact.id not in self._origins:
            name = artifact.external or artifact.uri
            if artifact.producer is not None:
                producer = self._home.store.execution(artifact.producer)
                nodes = [each.name for each in self._home.store.contexts_of(producer) if each.type == "node"]
                outputs = self._home.store.outputs(producer)
                keys = [key for key, several in outputs.items() if artifact.id in {each.id for each in several}]
                if nodes and keys:
                    name = f"{nodes[0]}.{keys[0]}"
            self._origins[artifact.id] = name
        return self._origins[artifact.id]


class LineageSender:
    """Sends the events of runs that were not sent before, and remembers in the store which were.

    An event is remembered after it was sent: after a crash in between it is sent again, and receivers take an event
    twice.

    Args:
        home: The root, open to write.
        namespace: What jobs and datasets are named in; what was sent is remembered for each.
        emit: Sends an event; raises where it cannot.
    """

    def __init__(self, home: Home, namespace: str, emit: Callable[[RunEvent], None]) -> None:
        self._home = home
        self._events = LineageEvents(home, namespace)
        self._namespace = namespace
        self._emit = emit

    def send(self) -> int:
        """Send what was not sent yet of all runs; gives how many events that were."""
        count = 0

        def handle(run: Run | UnreadableRun, before: list[str] | None) -> list[str]:
            nonlocal count
            known = set(before or ())
            for event in self._events.of(run):
                if (key := _key(event)) not in known:
                    self._emit(event)
                    known.add(key)
                    count += 1
            return sorted(known)

        follow_runs(self._home, SENT, self._namespace, handle)
        return count


def _key(event: RunEvent) -> str:
    """What tells an event from the others of its run."""
    return f"{event.run.runId} {event.eventType.value if event.eventType else ''}"


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
