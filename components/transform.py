"""Transform: learns the user's preprocessing from training data, saves it as a graph and applies it to all splits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from ..errors import InputError
from ..metadata import Examples, Schema, TransformGraph
from ..pipelines import Fn, component, current, load

if TYPE_CHECKING:
    import pyarrow as pa

    from ..data import Source
    from ..data.schemas.schema import Schema as DataSchema


class TransformOutputs(NamedTuple):
    """The transformed rows, and the graph that makes them, in training and in serving."""

    examples: Examples
    graph: TransformGraph


@component
def Transform(examples: Examples, schema: Schema, *, fn: Fn, analyze: Sequence[str] = ("train",)) -> TransformOutputs:
    """Transform examples with a preprocessing function, traced once into a graph.

    Args:
        examples: The raw rows.
        schema: What their columns must be.
        fn: The user's `preprocess(columns) -> columns`, e.g. "features:preprocess"; see `drivetrain.engine.ops`.
        analyze: The splits that means, quantiles and vocabularies are learnt from.

    Returns:
        All splits, transformed; and a bundle with the signature `transform`.

    Raises:
        InputError: The function is wrong (with its file and line), a split is unknown or empty, a column is not of
            the schema's type, or a row has a value that the function cannot use.
    """
    # Late, so that building a pipeline and a cached run import neither JAX nor Arrow.
    from .. import data, engine
    from ..data.schemas.yaml_read import load_schema

    launch = current()
    executor = data.executor(launch.executor, launch.executor_options)
    sources = {split: data.open_examples(examples.content, split) for split in data.splits(examples.content)}
    training = _joined(sources, analyze)
    types = _types(training.schema, load_schema(schema.content / "schema.yaml"))
    graph = TransformGraph.new()
    learnt = engine.analyze(load(fn), training, executor, launch.progress, schema=types)
    learnt.save(graph.content)
    made = Examples.new(span=examples.span)
    written = engine.apply(graph.content, sources, made.content, executor, launch.progress, span=examples.span)
    made.rows = written.rows
    return TransformOutputs(made, graph)


def _joined(sources: Mapping[str, Source], analyze: Sequence[str]) -> Source:
    """The splits to learn from, as one source: their shards one after the other."""
    unknown = [split for split in analyze if split not in sources]
    if unknown or not analyze:
        raise InputError(
            f"Transform: analyze names {unknown[0]!r}, which is no split" if unknown else "Transform: analyze is empty",
            fix=f"name one of {', '.join(sources)}",
        )
    chosen = [sources[split] for split in dict.fromkeys(analyze)]
    joined = replace(chosen[0], shards=tuple(shard for source in chosen for shard in source.shards))
    if not joined.rows:
        raise InputError(f"Transform: there are no rows in {', '.join(analyze)}", fix="analyze another split")
    return joined


def _types(raw: pa.Schema, schema: DataSchema) -> pa.Schema:
    """The columns' types as the schema has them: float where it says so, even if this span holds only integers."""
    import pyarrow as pa

    fields = []
    for field in raw:
        expected = schema.feature(field.name)
        wanted = "any" if expected is None else expected.type
        if wanted == "float" and pa.types.is_integer(field.type):
            field = pa.field(field.name, pa.float64())
        found = _kind(field.type)
        if wanted not in ("any", found) and found is not None:
            raise InputError(
                f"Transform: column {field.name!r} is {found}, the schema says {wanted}",
                fix="run ExampleValidator to see the rows, then mend the data or the schema",
            )
        fields.append(field)
    return pa.schema(fields)


def _kind(kind: pa.DataType) -> str | None:
    """The schema's name of an Arrow type; None where it does not matter here."""
    from ..engine.host.columns import column_dtype

    return {"string": "string", "int64": "int", "float64": "float", "bool": "bool"}.get(column_dtype(kind) or "")
