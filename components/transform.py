"""Transform: learns the user's preprocessing from training data, saves it as a graph and applies it to all splits."""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ..errors import InputError
from ..metadata import AnalyzerCache, Examples, Schema, TransformGraph
from ..pipelines import Fn, component, current, load
from .schema_gen import write_schema

if TYPE_CHECKING:
    import pyarrow as pa

    from .. import engine
    from ..data.schemas.schema import Schema as DataSchema


class TransformOutputs(NamedTuple):
    """The transformed rows, the graph that makes them in training and serving, their schema, and a cache."""

    examples: Examples
    graph: TransformGraph
    schema: Schema
    cache: AnalyzerCache


@component
def Transform(
    examples: Examples,
    schema: Schema,
    *,
    history: list[Examples] | None = None,
    cache: AnalyzerCache | None = None,
    fn: Fn,
    analyze: Sequence[str] = ("train",),
    transform: Sequence[str] | None = None,
    check_floats: bool = False,
) -> TransformOutputs:
    """Transform examples with a preprocessing function, traced once into a graph.

    Args:
        examples: The raw rows.
        schema: What their columns must be.
        history: Earlier spans that belong to the same data: learnt from and transformed together with `examples`, in
            the order of their span numbers.
        cache: What an earlier run learnt of each span, e.g. `dt.latest(AnalyzerCache)`: such a span is not read again
            to learn from it, unless the function changed. It changes no result.
        fn: The user's `preprocess(columns) -> columns`, e.g. "features:preprocess"; see `drivetrain.engine.ops`.
        analyze: The splits that means, quantiles and vocabularies are learnt from.
        transform: The splits to write; by default all.
        check_floats: Whether a row fails whose float outputs are not all finite, here and where the graph is served.

    Returns:
        The splits, transformed; a bundle with the signature `transform`; the schema of the transformed rows, which also
        lies beside the bundle; and what was learnt of each span, for the next run.

    Raises:
        InputError: The function is wrong or lets rows look at each other (with file and line), a split is unknown or
            empty, a column is not of the schema's type, or a row has a value that the function cannot use.
    """
    # Late, so that building a pipeline and a cached run import neither JAX nor Arrow.
    from .. import data, engine
    from ..data.schemas.yaml_read import load_schema
    from ..data.schemas.yaml_write import schema_to_yaml

    launch = current()
    executor = data.executor(launch.executor, launch.executor_options)
    every = [each.content for each in sorted([*(history or ()), examples], key=lambda each: each.span)]
    known = [name for name in data.splits(examples.content) if all(name in data.splits(each) for each in every)]
    learnt_from = _splits("analyze", analyze, known)
    written = known if transform is None else _splits("transform", transform, known)
    spans = [engine.Span.of(content, learnt_from) for content in every]
    if not sum(span.source.rows for span in spans):
        raise InputError(f"there are no rows in {', '.join(learnt_from)}", fix="analyze another split")
    sources = {name: engine.Span.joined(engine.Span.of(content, [name]) for content in every) for name in written}
    accepted = load_schema(schema.content / "schema.yaml")
    types = _types(engine.Span.joined(spans).schema, accepted, engine.Span.empty(spans))

    transformed = Examples.new(span=examples.span)
    outputs = TransformOutputs(transformed, TransformGraph.new(), Schema.new(), AnalyzerCache.new())
    later, done = sum(source.rows for source in sources.values()), 0

    def learning(rows: int, total: int | None, unit: str) -> None:
        nonlocal done
        done = rows
        launch.progress(rows, None if total is None else total + later, unit)

    states = engine.AnalyzerCache(outputs.cache.extra, earlier=None if cache is None else cache.extra)
    bundle = engine.analyze(load(fn), spans, executor, learning, schema=types, check_floats=check_floats, cache=states)
    rules = {each.name: each.request_log for each in accepted.features if each.request_log}
    bundle = bundle.with_request_log({name: rule for name, rule in rules.items() if name in bundle.graph.inputs})
    bundle.save(outputs.graph.content)
    _note(states, launch.note)
    outputs.cache.states = states.used + states.added
    before = done

    def applying(rows: int, total: int | None, unit: str) -> None:
        launch.progress(before + rows, None if total is None else total + before, unit)

    manifest = engine.apply(outputs.graph.content, sources, transformed.content, executor, applying, span=examples.span)
    transformed.rows = manifest.rows
    output_schema = bundle.output_schema()
    write_schema(output_schema, outputs.schema.content, outputs.schema.extra)
    (outputs.graph.content / "schema.yaml").write_text(schema_to_yaml(output_schema), "utf-8")
    return outputs


def _splits(parameter: str, asked: Sequence[str], known: Sequence[str]) -> list[str]:
    """The splits that a parameter names, each once."""
    unknown = [split for split in asked if split not in known]
    if unknown or not asked:
        names = ", ".join(map(repr, unknown))
        what = f"{parameter} names {names}, which is not a split" if unknown else f"{parameter} is empty"
        raise InputError(f"{what} of all examples", fix=f"name some of {', '.join(known)}")
    return list(dict.fromkeys(asked))


def _note(states: engine.AnalyzerCache, note: Callable[[str], None]) -> None:
    """Pass on one line: how many analyzer states came from earlier runs, were made now, or were damaged."""
    if states.used or states.damaged:
        damaged = f", {states.damaged} damaged" if states.damaged else ""
        note(f"analyzers: {states.used} states of earlier runs used, {states.added} made{damaged}")


def _types(raw: pa.Schema, schema: DataSchema, empty: Container[str]) -> pa.Schema:
    """The columns' types as the schema has them: float where it says so, even if this span holds only integers.

    And int where it says so, even if they came as floats, which pandas makes of integers with gaps. A column without a
    value is whatever the schema says. Lists of which it knows the shape are of that width: in the function they are
    arrays.
    """
    import pyarrow as pa

    fields = []
    for field in raw:
        expected = schema.find_feature(field.name)
        wanted = "any" if expected is None else expected.type
        if field.name in empty and wanted in ("int", "float", "bool"):
            field = pa.field(field.name, {"int": pa.int64(), "float": pa.float64(), "bool": pa.bool_()}[wanted])
        if wanted == "float" and pa.types.is_integer(field.type):
            field = pa.field(field.name, pa.float64())
        if wanted == "int" and pa.types.is_floating(field.type):  # whole numbers, as ExampleValidator has it
            field = pa.field(field.name, pa.int64())
        if expected is not None and expected.shape and pa.types.is_list(field.type):
            field = pa.field(field.name, pa.list_(field.type.value_type, math.prod(expected.shape)))
        column_kind = _kind(field.type)
        if wanted not in ("any", column_kind) and column_kind is not None:
            raise InputError(
                f"column {field.name!r} is {column_kind}, the schema says {wanted}",
                fix="run ExampleValidator to see the rows, then correct the data or the schema",
            )
        fields.append(field)
    return pa.schema(fields)


def _kind(kind: pa.DataType) -> str | None:
    """The schema's name of an Arrow type; None where it does not matter here."""
    import pyarrow as pa

    from ..engine.host_ops.columns import column_dtype

    if pa.types.is_temporal(kind) or pa.types.is_decimal(kind):
        return None
    return {"string": "string", "int64": "int", "float64": "float", "bool": "bool"}.get(column_dtype(kind) or "")
