"""From a node of the compiled form to what its component is called with, and to the key of that work."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from ...errors import BuildError, InputError
from ...metadata import ArtifactRecord, ContextRecord, MetadataStore, cache_key
from ..dsl.component import Component
from ..form.expressions import Values, evaluate
from ..form.ir import CANDIDATE, Chosen, Edge, Json, Node, Query
from ..form.tasks import Index
from ..sources import closure as source_code
from ..sources.context import silent
from ..sources.files import FileSet, SqlQuery, resolve_files, resolve_query
from ..sources.functions import FunctionRef, reference
from ..sources.secret import Secret
from .flow import Flow
from .home import Run

_Progress: TypeAlias = Callable[[int, int | None, str], None]


@dataclass(frozen=True)
class Work:
    """A node, resolved.

    Attributes:
        component: What to call.
        parameters: With which values: JSON, `FunctionRef`s and resolved `FileSet`s.
        inputs: And with which artifacts.
        preimage: What the cache key is made of; equal preimages are the same work.
    """

    component: Component[..., object]
    parameters: Mapping[str, object]
    inputs: Mapping[str, tuple[ArtifactRecord, ...]]
    preimage: Mapping[str, object]

    @property
    def key(self) -> str:
        """The cache key."""
        return cache_key(self.preimage)


class Resolver:
    """Resolves the tasks of one run against the store."""

    def __init__(self, store: MetadataStore, run: Run, base: Path, work: Path | None = None) -> None:
        self.store = store
        self.run = run
        self.base = base
        self.flow = Flow(store, run)
        self.fetched = (work or base / ".drivetrain" / "work") / "fetched"

    def work(self, node: Node, index: Index = (), progress: _Progress = silent) -> Work:
        """Resolve a task whose upstream nodes have ended well; `progress` hears of what is fetched for it.

        Raises:
            InputError: Files or artifacts that it needs are not there.
            BuildError: Its code is not what was built.
        """
        ref = FunctionRef(self.run.project if node.code else None, node.component)
        component = ref.load()
        if not isinstance(component, Component):
            raise BuildError(f"{node.component} is no component", fix="put @dt.component above it")
        values = self.flow.values(self.run.pipeline.scope(node.id), index)
        inputs = self._inputs(node, index, values)
        parameters = {
            name: self._value(value, component.parameters[name].kind, values, progress)
            for name, value in node.parameters
        }
        own = source_code.closure(ref)
        self._same(node.id, own, node.code)
        codes = {
            name: source_code.closure(value) for name, value in parameters.items() if isinstance(value, FunctionRef)
        }
        for name, value in node.parameters:
            if name in codes and isinstance(value, dict) and "$fn" in value:
                self._same(node.id, codes[name], value["code"])
        imports = {name for code in (own, *codes.values()) for name in code.imports}
        preimage = {
            "component": node.component,
            "code": dict(own.files),
            "parameters": {
                name: {"$fn": value.name, "code": dict(codes[name].files)}
                if isinstance(value, FunctionRef)
                else _plain(value)
                for name, value in parameters.items()
            },
            "inputs": {name: [record.fingerprint for record in records] for name, records in inputs.items()},
            "outputs": dict(node.outputs),
            "environment": source_code.environment(imports),
        }
        return Work(component, parameters, inputs, preimage)

    def _same(self, node: str, code: source_code.Code, built: str | None) -> None:
        if built is not None and code.digest != built:
            raise BuildError(
                f"the code that {node} uses was edited after the pipeline was built",
                fix="`drivetrain run` it: a new run builds it again, and what is unchanged comes from the cache",
            )

    def _inputs(self, node: Node, index: Index, values: Values) -> dict[str, tuple[ArtifactRecord, ...]]:
        scope = self.run.pipeline.scope(node.id)
        found: dict[str, tuple[ArtifactRecord, ...]] = {}
        for name, sources in node.inputs:
            records: list[ArtifactRecord] = []
            taken: set[int] = set()
            for source in sources:
                if isinstance(source, Edge) and source.choice not in taken:
                    given = self.flow.given_by(source, index, scope)
                    taken |= {source.choice} if source.choice and given else set()
                    records += given
                elif isinstance(source, Chosen):
                    uids = evaluate(source.uids, values)
                    records += [self.store.artifact(uid) for uid in (uids if isinstance(uids, list) else [uids])]
            found[name] = tuple(records)
        for name, sources in node.inputs:
            for source in sources:
                if isinstance(source, Query):
                    chosen = self._choose(source, found)
                    found[name] = (*found[name], *([chosen] if chosen else []))
        return found

    def _choose(self, query: Query, inputs: Mapping[str, tuple[ArtifactRecord, ...]]) -> ArtifactRecord | None:
        """The newest that fits of what earlier runs of this pipeline made.

        Not of what this run makes: that would depend on which branch ends first, and on whether it was interrupted.
        """
        if query.strategy in ("latest", "latest_passed"):
            taken = {record.fingerprint for records in inputs.values() for record in records}
            found = self._earlier(query) if query.strategy == "latest" else self._passed(query)
            return next((record for record in found if record.fingerprint not in taken), None)
        candidates = {record.fingerprint for record in inputs[CANDIDATE]}
        for blessing in self._earlier(Query("latest", "Evaluation"), {"blessed": True}):
            if blessing.producer is not None:
                evaluated = self.store.inputs(self.store.execution(blessing.producer)).get(CANDIDATE, [])
                for model in evaluated:
                    if model.state == "LIVE" and model.fingerprint not in candidates:
                        return model
        return None

    def _earlier(self, query: Query, where: Mapping[str, object] | None = None) -> Iterator[ArtifactRecord]:
        maker = self._maker(query)
        if maker is None:
            return
        for record in self.store.artifacts(type=query.type, where=where, context=maker):
            if record.created_at < self.run.context.created_at and self._known(record, maker):
                yield record

    def _known(self, record: ArtifactRecord, maker: ContextRecord) -> bool:
        """Whether it was the maker's before this run, which may only now have taken it from the cache of another."""
        if record.producer is not None and maker in self.store.contexts_of(self.store.execution(record.producer)):
            return True
        runs = (one for one in self.store.contexts_of(record) if one.type == "run")
        return any(
            record in outputs
            for run in runs
            if run.created_at < self.run.context.created_at
            for execution in self.store.executions(contexts=[run, maker])
            for outputs in self.store.outputs(execution).values()
        )

    def _passed(self, query: Query) -> Iterator[ArtifactRecord]:
        """What runs of this pipeline made, or took from the cache, that ended COMPLETE; the newest run's first."""
        maker = self._maker(query)
        if maker is None:
            return
        for run in self.store.contexts("run", limit=None):
            if run.created_at < self.run.context.created_at and run.properties.get("state") == "COMPLETE":
                for execution in self.store.executions(contexts=[run, maker]):
                    for records in self.store.outputs(execution).values():
                        yield from (one for one in records if one.type == query.type and one.state == "LIVE")

    def _maker(self, query: Query) -> ContextRecord | None:
        """The context of what may be chosen: this pipeline's, or that of one of its nodes."""
        name = self.run.pipeline.name
        if query.made_by:
            return self.store.find_context("node", f"{name}.{query.made_by}")
        return self.store.find_context("pipeline", name)

    def _value(self, value: Json, kind: str, values: Values, progress: _Progress) -> object:
        if isinstance(value, dict):
            if "$fn" in value:
                return FunctionRef(self.run.project if value["code"] else None, value["$fn"])
            if "$secret" in value:
                Secret(value["$secret"]).reveal()  # see that it is there before the work begins
                return Secret(value["$secret"])
            if "$files" in value:
                return self._given(value["$files"], "files", progress)
            if "$query" in value:
                sql, connection, parameters, watermark = (
                    self._value(item, "value", values, progress) for item in value["$query"]
                )
                query = SqlQuery(sql, connection, parameters, watermark)  # type: ignore[arg-type]
                return resolve_query(query, (self.run.project, self.base), self.fetched, progress)
            if "$map" in value:
                if kind == "files":  # a map of files, which may be patterns as they are
                    return {
                        k: self._given(v, kind, progress)
                        if isinstance(v, str)
                        else self._value(v, kind, values, progress)
                        for k, v in value["$map"]
                    }
                return {key: self._value(item, "value", values, progress) for key, item in value["$map"]}
            return self._given(evaluate(value, values), kind, progress)
        return [self._value(item, "value", values, progress) for item in value] if isinstance(value, list) else value

    def _given(self, value: object, kind: str, progress: _Progress) -> object:
        if kind == "files" and isinstance(value, str):
            return resolve_files(FileSet(value), (self.run.project, self.base), self.fetched, progress)
        if kind == "function" and isinstance(value, str):
            return reference(value, self.run.project)
        if value is not None and kind != "value":
            raise InputError(f"{value!r} names no {kind}", fix="give text")
        return value


def _plain(value: object) -> Json:
    """A parameter's value as it enters the key: files by content, maps with their order."""
    if isinstance(value, FileSet):
        shared = Path(os.path.commonpath([file.path.parent for file in value.files]))
        named = ((file.name or file.path.relative_to(shared).as_posix(), file) for file in value.files)
        return {"$files": [[name, file.size, file.sha256] for name, file in named]}
    if isinstance(value, SqlQuery):
        asked = [value.sql, value.connection, value.parameters, value.watermark, value.seen]
        return {"$query": [_plain(item) for item in asked]}
    if isinstance(value, Secret):
        return {"$secret": value.name}
    if isinstance(value, Mapping):
        return {"$map": [[_plain(key), _plain(item)] for key, item in value.items()]}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value
