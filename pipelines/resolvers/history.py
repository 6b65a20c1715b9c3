"""What earlier runs of a pipeline made, as one run may see it: nothing from after its start, nothing deleted."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from ...metadata import ArtifactRecord, ContextRecord, ExecutionRecord, MetadataStore
from ..ir.ir import CANDIDATE


class History(NamedTuple):
    """The history of a pipeline before one of its runs began.

    It holds nothing that this run made: what a query finds would depend on which branch ends first, and on whether the
    run was interrupted. Nor does it hold what other runs publish while this one is under way.

    Attributes:
        store: Where it is kept.
        pipeline: The pipeline's name.
        run: The run's record.
        present: Whether the payload at a URI is still on the disk.
        gates: The pipeline's gates: the id of each one's node, and the input that it may veto.
    """

    store: MetadataStore
    pipeline: str
    run: ContextRecord
    present: Callable[[str], bool]
    gates: Sequence[tuple[str, str]] = ()

    def artifacts(
        self, kind: str, by: str = "", *, output: str = "", where: Mapping[str, object] | None = None
    ) -> Iterator[ArtifactRecord]:
        """The live artifacts of a type, the newest first.

        Args:
            kind: The type's name.
            by: The node that made them; any where empty.
            output: Under this key of its outputs; any where empty.
            where: With these properties.
        """
        maker = self._maker(by)
        if maker is None:
            return
        for record in self.store.artifacts(type=kind, where=where, context=maker):
            if (
                self._is_before(record)
                and self._known(record, maker)
                and (not output or self._is_output(record, output))
                and self.present(record.uri)
            ):
                yield record

    def passed(self, kind: str, by: str = "", *, output: str = "") -> Iterator[ArtifactRecord]:
        """What runs made, or took from the cache, that ended COMPLETE; the newest run's first."""
        maker = self._maker(by)
        if maker is None:
            return
        for run in self.store.contexts("run", limit=None):
            if run.id < self.run.id and run.properties.get("state") == "COMPLETE":
                for execution in self.store.executions(contexts=[run, maker]):
                    for key, records in self.store.outputs(execution).items():
                        if not output or key == output:
                            yield from (
                                record
                                for record in records
                                if record.type == kind
                                and record.state == "LIVE"
                                and self._is_before(record)
                                and self.present(record.uri)
                            )

    def vetoed(self, record: ArtifactRecord) -> bool:
        """Whether a gate objected to an artifact, or to what of its span it was made of: statistics, of examples."""
        if not self.gates:
            return False
        span = record.properties.get("span")
        sources = [] if span is None else self.ancestors(record)
        return any(map(self._objected, (record, *(each for each in sources if each.properties.get("span") == span))))

    def _objected(self, record: ArtifactRecord) -> bool:
        """Whether a gate objected to an artifact, and to that alone, when it last judged it before this run."""
        graph = self.store.lineage(record, "downstream", max_hops=1)
        return any(
            self._objects(maker, [graph.executions[edge.execution] for edge in graph.edges if edge.key == key], key)
            for gate, key in self.gates
            if (maker := self._maker(gate)) is not None
        )

    def _objects(self, gate: ContextRecord, takers: Sequence[ExecutionRecord], key: str) -> bool:
        """Whether the last judgement of a gate is a veto, of all executions that took an artifact as its input."""
        for execution in sorted(takers, key=lambda each: each.id, reverse=True):
            contexts = self.store.contexts_of(execution)
            earlier = any(context.type == "run" and context.id < self.run.id for context in contexts)
            if gate not in contexts or not earlier or len(self.store.inputs(execution)[key]) > 1:
                continue
            verdicts = [each for records in self.store.outputs(execution).values() for each in records]
            if verdicts:
                return any(each.properties.get("passed") is False for each in verdicts)
        return False

    def judged(self, verdict: ArtifactRecord) -> list[ArtifactRecord]:
        """The models that an `Evaluation` or a `PushedModel` is about, unless they were deleted.

        They are those that came by the input "model" into the execution that made it.
        """
        if verdict.producer is None:
            return []
        models = self.store.inputs(self.store.execution(verdict.producer)).get(CANDIDATE, [])
        return [model for model in models if model.state == "LIVE" and self.present(model.uri)]

    def ancestors(self, record: ArtifactRecord) -> list[ArtifactRecord]:
        """All that an artifact was made from, however far back, except what came only through an analyzer cache."""
        graph = self.store.lineage(record, "upstream", of_data=True)
        return [each for each in graph.artifacts.values() if each.id != record.id]

    def _is_before(self, record: ArtifactRecord) -> bool:
        """Whether an artifact was there when the run began.

        Runs record the largest artifact id of their start, since a clock may be set back. Runs of the first release
        recorded only the time.
        """
        newest = self.run.properties.get("newest")
        return record.created_at < self.run.created_at if newest is None else record.id <= newest

    def _known(self, record: ArtifactRecord, maker: ContextRecord) -> bool:
        """Whether an artifact was already the maker's when this run began.

        An artifact counts for the node whose execution made it. A node that takes another node's artifact from the
        cache has it as an output too; where only this run did so, it is not a part of the history.
        """
        if record.producer is not None and maker in self.store.contexts_of(self.store.execution(record.producer)):
            return True
        runs = (context for context in self.store.contexts_of(record) if context.type == "run")
        return any(
            record in outputs
            for run in runs
            if run.id < self.run.id
            for execution in self.store.executions(contexts=[run, maker])
            for outputs in self.store.outputs(execution).values()
        )

    def _is_output(self, record: ArtifactRecord, key: str) -> bool:
        if record.producer is None:
            return False
        return record in self.store.outputs(self.store.execution(record.producer)).get(key, [])

    def _maker(self, node: str) -> ContextRecord | None:
        """The context whose artifacts may be chosen: the pipeline's or one of its nodes'; None where it never ran."""
        if node:
            return self.store.find_context("node", f"{self.pipeline}.{node}")
        return self.store.find_context("pipeline", self.pipeline)
