"""From a node of the compiled form to what its component is called with, and to the key of that work."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from ...errors import BuildError, InputError
from ...metadata import ArtifactRecord, cache_key
from ...progress import Progress, no_progress
from ..dsl.component import Component
from ..ir.expressions import Bindings, evaluate
from ..ir.ir import (
    CANDIDATE,
    Edge,
    Json,
    Node,
    Query,
    UidSource,
)
from ..ir.tasks import Index, Task
from ..project import closure as source_code
from ..project.files import (
    FileSet,
    NoFileError,
    SqlQuery,
    find_span,
    lister,
    local,
    resolve_files,
    resolve_query,
    takes_spans,
    with_span,
)
from ..project.functions import FunctionRef, reference
from ..project.secret import Secret
from ..project.spans import SpanMatch, spans_of
from ..resolvers.answers import Answers
from ..resolvers.choosing import BoundQuery, choose
from ..resolvers.history import History
from .flow import Flow
from .home import Home
from .runs import Run


@dataclass(frozen=True)
class ResolvedTask:
    """A node, resolved.

    Attributes:
        component: What to call.
        parameters: With which values: JSON, `FunctionRef`s and resolved `FileSet`s.
        inputs: And with which artifacts.
        preimage: What the cache key is made of; equal preimages are the same work.
        modules: The user's source files that the key covers, by module.
    """

    component: Component[..., object]
    parameters: Mapping[str, object]
    inputs: Mapping[str, tuple[ArtifactRecord, ...]]
    preimage: Mapping[str, object]
    modules: Mapping[str, Path]

    @cached_property
    def key(self) -> str:
        """SHA-256 (hex) of the preimage: executions with equal keys did the same work."""
        return cache_key(self.preimage)


class Resolver:
    """Resolves the tasks of one run against the store."""

    def __init__(self, home: Home, run: Run) -> None:
        self.store = home.store
        self.run = run
        self.base = home.base
        self.flow = Flow(home.store, run)
        gates = [(node.id, node.gates) for node in run.pipeline.nodes if node.gates is not None]
        self.past = History(home.store, run.pipeline.name, run.context, home.payloads.present, gates)
        self.answers = Answers(home.store, run.context)
        self.fetched = home.root / "work" / "fetched"

    def resolve(
        self, task: Task, progress: Progress = no_progress, note: Callable[[str], None] = lambda _: None
    ) -> ResolvedTask:
        """Resolve a task whose upstream nodes have ended well.

        Args:
            task: The task.
            progress: Hears of what is fetched for it.
            note: Hears what the user should know of how it was resolved.

        Raises:
            Absent: Windows over spans lack some: it is to be skipped.
            InputError: Files or artifacts that it needs are not there.
            BuildError: Its code is not what was built.
        """
        node, index = task.node, task.index
        ref = FunctionRef(self.run.project if node.code else None, node.component)
        component = ref.load()
        if not isinstance(component, Component):
            raise BuildError(f"{node.component} is not a component", fix="put @dt.component above it")
        values = self.flow.values(self.run.pipeline.scope(node.id), index)
        inputs = self._inputs(node, index, values, note)
        parameters = {name: self._argument(component, name, value, values, progress) for name, value in node.parameters}
        code_of_component = source_code.closure(ref)
        self._check_code(node.id, code_of_component, node.code)
        codes = {
            name: source_code.closure(value) for name, value in parameters.items() if isinstance(value, FunctionRef)
        }
        for name, value in node.parameters:
            if name in codes and isinstance(value, dict) and "$fn" in value:
                self._check_code(node.id, codes[name], value["code"])
        every = (code_of_component, *codes.values())
        imports = {name for code in every for name in code.imports}
        preimage = {
            "component": node.component,
            "code": code_of_component.counted,
            "parameters": {
                name: {"$fn": value.name, "code": codes[name].counted}
                if isinstance(value, FunctionRef)
                else _plain(value)
                for name, value in parameters.items()
            },
            "inputs": {name: [record.fingerprint for record in records] for name, records in inputs.items()},
            "outputs": dict(node.outputs),
            "environment": source_code.environment(imports),
        }
        if node.options.env:  # it may change what the component makes; a secret counts by its name
            preimage["env"] = {
                name: value if isinstance(value, dict) and "$secret" in value else evaluate(value, values)
                for name, value in node.options.env
            }
        modules = {module: file for code in every for module, file in code.modules}
        return ResolvedTask(component, parameters, inputs, preimage, modules)

    def parameter(
        self, component: Component[..., object], name: str, value: Json, scope: tuple[str, ...], index: Index
    ) -> object:
        """The value of one parameter of a node before its time; files and secrets are not looked for."""
        if component.parameters[name].kind not in ("value", "function"):
            raise InputError(f"{name} is known only when its task is launched", fix="run the pipeline")
        return self._value(value, component.parameters[name].kind, self.flow.values(scope, index), no_progress)

    def _check_code(self, node: str, code: source_code.Code, built: str | None) -> None:
        if built is not None and not code.is_as_built(built):
            raise BuildError(
                f"the code that {node} uses was edited after the pipeline was built",
                fix="`drivetrain run` it: a new run builds it again, and what is unchanged comes from the cache",
            )

    def _inputs(
        self, node: Node, index: Index, values: Bindings, note: Callable[[str], None]
    ) -> dict[str, tuple[ArtifactRecord, ...]]:
        scope = self.run.pipeline.scope(node.id)
        inputs: dict[str, tuple[ArtifactRecord, ...]] = {}
        for name, sources in node.inputs:
            records: list[ArtifactRecord] = []
            taken: set[int] = set()
            for source in sources:
                if isinstance(source, Edge) and source.choice not in taken:
                    artifacts = self.flow.artifacts_along(source, index, scope)
                    taken |= {source.choice} if source.choice and artifacts else set()
                    records += artifacts
                elif isinstance(source, UidSource):
                    records += self._named(evaluate(source.uids, values))
            inputs[name] = tuple(records)
        # Queries come after all other inputs, since an answer may depend on what the component already gets.
        for name, sources in node.inputs:
            for source in sources:
                if isinstance(source, Query):
                    subjects = self.flow.artifacts_along(source.of, index, scope) if source.of else []
                    bound = self._bind_query(source, values, subjects, inputs)
                    inputs[name] = (*inputs[name], *choose(self.past, self.answers, bound, note))
        return inputs

    def _bind_query(
        self,
        source: Query,
        values: Bindings,
        subjects: list[ArtifactRecord],
        inputs: Mapping[str, tuple[ArtifactRecord, ...]],
    ) -> BoundQuery:
        """A query, now that what it depends on of this run is there."""
        output = ""
        if source.of is not None:
            outputs = self.run.pipeline[source.of.node].outputs
            if sum(kind == source.type for _, kind in outputs) > 1:
                output = source.of.output
        return BoundQuery(
            source,
            {name: evaluate(value, values) for name, value in source.arguments},
            subjects,
            output,
            frozenset(record.fingerprint for records in inputs.values() for record in records),
            frozenset(record.fingerprint for record in inputs.get(CANDIDATE, ())),
        )

    def _named(self, uids: Json) -> list[ArtifactRecord]:
        """The artifacts of an item of a loop: one, or a list of them."""
        records = []
        for uid in uids if isinstance(uids, list) else [uids]:
            if not isinstance(uid, str):
                raise InputError(f"{uid!r:.60} names no artifact", fix="go over outputs, or windows of them")
            record = self.store.artifact(uid)
            if record.state != "LIVE":
                raise InputError(f"{record.uri} has been deleted", fix="start a new run")
            records.append(record)
        return records

    def _argument(
        self, component: Component[..., object], name: str, value: Json, values: Bindings, progress: Progress
    ) -> object:
        """The value of a parameter; where its file is not there, the component knows what to do."""
        try:
            return self._value(value, component.parameters[name].kind, values, progress)
        except NoFileError as error:
            raise InputError(error.message, fix=error.likely_fix or component.absent or error.fix) from None

    def _value(self, value: Json, kind: str, values: Bindings, progress: Progress) -> object:
        if isinstance(value, dict):
            if "$fn" in value:
                return FunctionRef(self.run.project if value["code"] else None, value["$fn"])
            if "$secret" in value:
                Secret(value["$secret"]).reveal()  # see that it is there before the work begins
                return Secret(value["$secret"])
            if "$files" in value:
                named = value["$files"] if isinstance(value["$files"], list) else [value["$files"], None, None]
                pattern, span, version = evaluate(named, values)
                return self._files(pattern, span, version, progress)
            if "$spans" in value:
                return self._spans(evaluate(value["$spans"], values))
            if "$query" in value:
                fields = [self._value(item, "value", values, progress) for item in value["$query"]]
                sql, connection, parameters, watermark = fields[:4]
                query = SqlQuery(sql, connection, parameters, watermark, span=fields[4] if fields[4:] else None)  # type: ignore[arg-type]
                return resolve_query(query, self.run.folders(self.base, connection), self.fetched, progress)  # type: ignore[arg-type]
            if "$map" in value:
                if kind == "files":  # a map of files, which may be patterns as they are
                    return {
                        k: self._from_text(v, kind, progress)
                        if isinstance(v, str)
                        else self._value(v, kind, values, progress)
                        for k, v in value["$map"]
                    }
                return {key: self._value(item, "value", values, progress) for key, item in value["$map"]}
            return self._from_text(evaluate(value, values), kind, progress)
        return [self._value(item, "value", values, progress) for item in value] if isinstance(value, list) else value

    def _from_text(self, value: object, kind: str, progress: Progress) -> object:
        if kind == "files" and isinstance(value, str):
            return self._files(value, None, None, progress)
        if kind == "function" and isinstance(value, str):
            return reference(value, self.run.project)
        if value is not None and kind != "value":
            raise InputError(f"{value!r} names no {kind}", fix="give text")
        return value

    def _files(self, pattern: str, span: int | None, version: int | None, progress: Progress) -> FileSet:
        """The files of a pattern; of one with spans, those of the span that the run was given when it first asked."""
        folders = self.run.folders(self.base, pattern)
        wanted = FileSet(pattern, (), span, version)
        if not takes_spans(wanted):
            return resolve_files(wanted, folders, self.fetched, progress)
        question = ["files", pattern, span, version]
        match = SpanMatch(**self.answers.once(question, lambda: find_span(wanted, folders)._asdict()))
        return with_span(resolve_files(FileSet(match.pattern), folders, self.fetched, progress), match)

    def _spans(self, patterns: list[str]) -> list[int]:
        """The spans that all these patterns have."""

        def ask() -> list[int]:
            spans_of_each = [
                set(spans_of(local(pattern), lister(self.run.folders(self.base, pattern)))) for pattern in patterns
            ]
            return sorted(spans_of_each[0].intersection(*spans_of_each[1:]))

        spans: list[int] = self.answers.once(["spans", *patterns], ask)
        return spans


def _plain(value: object) -> Json:
    """A parameter's value as it enters the key: files by content, maps with their order."""
    if isinstance(value, FileSet):
        shared = Path(os.path.commonpath([file.path.parent for file in value.files]))
        named = ((file.name or file.path.relative_to(shared).as_posix(), file) for file in value.files)
        dated = {} if value.span is None else {"$span": [value.span, value.version]}
        return {"$files": [[name, file.size, file.sha256] for name, file in named]} | dated
    if isinstance(value, SqlQuery):
        asked = [value.sql, value.connection, value.parameters, value.watermark, value.seen]
        dated = {} if value.span is None else {"$span": [value.span, None]}
        return {"$query": [_plain(item) for item in asked]} | dated
    if isinstance(value, Secret):
        return {"$secret": value.name}
    if isinstance(value, Mapping):
        return {"$map": [[_plain(key), _plain(item)] for key, item in value.items()]}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value
