"""Fields of structs in a schema: their paths, and the schema and the states of what is one level below.

A path is the column's name and those of the fields below it; the lists between are not steps, as in TFDV.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from ..stats.column import ColumnState
from .feature import UNCHECKED, Feature

if TYPE_CHECKING:
    from .schema import Schema

Path = tuple[str, ...]


def path_name(path: Path) -> str:
    """A path for people, as TFDV spells it: "a.b", and "'a.b'.c" where a name has a dot; a column is its bare name."""
    return path[0] if len(path) == 1 else ".".join(map(_step, path))


def _step(name: str) -> str:
    plain = name and not set(name) & set(".'()")
    return name if plain else "'" + name.replace("'", "''") + "'"


def below(schema: Schema, path: Path, fields: tuple[Feature, ...]) -> tuple[Schema, dict[str, Path]]:
    """A struct's fields as a schema of features that are named by their paths, and the path of each of these names."""
    paths = {path_name((*path, field.name)): (*path, field.name) for field in fields}
    named = (replace(field, name=name) for name, field in zip(paths, fields, strict=True))
    return replace(schema, features=tuple(named), weighted=()), paths


def with_fields(
    features: Iterable[Feature], above: Path = (), *, checked: bool = False
) -> Iterator[tuple[Path, Feature]]:
    """Features and the fields of structs within them by path, each behind its struct.

    With `checked` only those in stages that validation looks at.
    """
    for feature in features:
        if not (checked and feature.stage in UNCHECKED):
            path = (*above, feature.name)
            yield path, feature
            yield from with_fields(feature.fields, path, checked=checked)


def states_below(path: Path, column: ColumnState) -> dict[str, ColumnState]:
    """The states of a struct's fields by the names of their paths; none where it is not a struct."""
    return {path_name((*path, name)): inner for name, inner in column.levels[-1].fields.items()}


def state_at(columns: Mapping[str, ColumnState], path: Path) -> ColumnState | None:
    """The state of a column, or of a field within; None where there is none."""
    state = columns.get(path[0])
    for name in path[1:]:
        state = None if state is None else state.levels[-1].fields.get(name)
    return state


def feature_at(schema: Schema, path: Path) -> Feature | None:
    """The feature at a path, or None."""
    feature = schema.find_feature(path[0])
    for name in path[1:]:
        feature = next((field for field in feature.fields if field.name == name), None) if feature is not None else None
    return feature


def with_feature_at(top: Feature, path: Path, feature: Feature) -> Feature:
    """A column's feature with another one at a path, or with one more field at its end.

    Args:
        top: The column's.
        path: From the column on; all but its end is there.
        feature: What is to stand there.
    """
    if len(path) == 1:
        return feature
    # A dict keeps the place of a name that is there, and puts a new one at the end.
    fields = {field.name: field for field in top.fields}
    fields[path[1]] = with_feature_at(fields.get(path[1], feature), path[1:], feature)
    return replace(top, fields=tuple(fields.values()))
