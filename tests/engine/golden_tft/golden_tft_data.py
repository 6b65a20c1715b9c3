"""A TFT case's rows as Arrow columns, and what its feature_spec says of them."""

from __future__ import annotations

import ast
import math
import re
from typing import Any

import pyarrow as pa
from drivetrain.engine import ops
from drivetrain.errors import InputError
from golden_tft_calls import Feature  # type: ignore[import-not-found]  # conftest puts this folder on the path
from golden_tft_grammar import NotUnderstoodError, Statement  # type: ignore[import-not-found]  # as above

ARROW = {"float32": pa.float32(), "int64": pa.int64(), "string": pa.string()}
Row = dict[str, Any]

# Steps that take lists here where TFT takes vectors too.
_OF_LISTS = {"deduplicate_tensor_per_row", "sparse_tensor_left_align", "segment_indices"}
_OF_WORDS = {"compute_and_apply_vocabulary", "vocabulary", "apply_vocabulary", "hash_strings"}


def features_of(case: dict[str, Any], said: list[Statement]) -> dict[str, Feature]:
    """The columns of a case; without a feature_spec, as its values are."""
    spec = case["config"].get("feature_spec")
    if spec is None:
        rows = rows_of(case["input"])
        spec = {name: _guess(value) for name, value in rows[0].items()}
    found = {name: _feature(name, text) for name, text in spec.items()}
    steps = {one.name for statement in said for group in statement for one in group}
    for name, feature in found.items():
        vector = feature.width is not None and feature.dtype != "string"
        if vector and (steps & _OF_LISTS or (feature.dtype == "int64" and steps <= _OF_WORDS)):
            found[name] = Feature(name, feature.dtype, feature.width, True)
    return found


def _guess(value: Any) -> str:
    kind = {float: "float32", int: "int64", str: "string"}[type(value[0] if isinstance(value, list) else value)]
    return (
        f"VarLenFeature(dtype=tf.{kind})" if isinstance(value, list) else f"FixedLenFeature(shape=[], dtype=tf.{kind})"
    )


def _feature(name: str, text: str) -> Feature:
    dtype = re.search(r"dtype=(?:tf\.|<dtype: ')?(\w+)", text)
    if dtype is None or dtype[1] not in ARROW or re.search(r"partitions=\(.*\S.*\)|SparseFeature", text):
        raise NotUnderstoodError(f"the feature {name!r} is {text!r}")
    if not text.startswith("FixedLen"):
        return Feature(name, dtype[1], None, True)
    shape = re.search(r"shape=[\[(]([\d, ]*)[\])]", text)
    sizes = [int(size) for size in (shape[1] if shape else "").split(",") if size.strip()]
    if len(sizes) > 1:
        raise NotUnderstoodError(f"the feature {name!r} has the shape {sizes}")
    default = re.search(r"default_value=(.*?)\)?$", text)
    given = None if default is None or default[1] == "None" else ast.literal_eval(default[1])
    return Feature(name, dtype[1], sizes[0] if sizes else None, False, given)


def rows_of(given: Any) -> list[Row]:
    """Rows as they are, or those that "x = 1..100" means."""
    if isinstance(given, str):
        counted = re.fullmatch(r"(\w+) = (\d+)\.\.(\d+)", given)
        if counted is None:
            raise NotUnderstoodError(f"the input {given!r}")
        return [{counted[1]: float(x)} for x in range(int(counted[2]), int(counted[3]) + 1)]
    return [dict(row) for row in given]


def number(value: Any) -> Any:
    """JSON's spelling of NaN and the infinities as floats, inside lists too."""
    if isinstance(value, list):
        return [number(each) for each in value]
    return float(value) if value in ("nan", "inf", "-inf") else value


def plain(rows: list[Row], features: dict[str, Feature]) -> list[Row]:
    """Rows with every column: floats as floats, nothing as None, no list as an empty one."""
    found = []
    for row in rows:
        made: Row = {}
        for feature in features.values():
            value = row.get(feature.name)
            value = number(value) if feature.dtype == "float32" else value
            if feature.lists:
                value = [] if value is None else value if isinstance(value, list) else [value]
            made[feature.name] = value
        found.append(made)
    return found


def table_of(rows: list[Row], features: dict[str, Feature]) -> pa.Table:
    """Rows as a table."""
    columns = {}
    for name, feature in features.items():
        kind = ARROW[feature.dtype]
        if feature.lists or (feature.width is not None and feature.dtype == "string"):
            kind = pa.list_(kind)
        elif feature.width is not None:
            kind = pa.list_(kind, feature.width)
        values = [row[name] for row in rows]
        try:
            columns[name] = pa.array(values, kind)
        except (pa.ArrowInvalid, pa.ArrowTypeError):  # a case of a wrong type: such a column is text
            columns[name] = pa.array([None if value is None else str(value) for value in values])
    return pa.table(columns)


def flat(values: list[Any]) -> list[Any]:
    """All numbers or texts of a column, of lists too."""
    return [each for value in values for each in (flat(value) if isinstance(value, list) else [value])]


# --- what a case needs before it runs


def prepared(case: dict[str, Any], rows: list[Row], said: list[Statement]) -> list[Row]:
    """The rows; where the case makes sparse ones of a vector, without its zeros."""
    if any(one.name == "sparse_tensor_left_align" for statement in said for group in statement for one in group):
        return [
            {name: [x for x in value if x] if isinstance(value, list) else value for name, value in row.items()}
            for row in rows
        ]
    return rows


def weights_with_nan(rows: list[Row], said: list[Statement]) -> set[str]:
    """The columns of weights that have a NaN: an error here; TFT leaves such a row out."""
    steps = [one for statement in said for group in statement for one in group]
    names = {str(one.options["weights"]) for one in steps if "weights" in one.options}
    return {name for name in names if any(row.get(name) is None or math.isnan(row[name]) for row in rows)}


def nothing_known(case: dict[str, Any], error: InputError) -> bool:
    """Whether an error is right to say that a column of whole numbers, which has no NaN, has no value at all."""
    named = re.search(r"of column '(.*)': the data has no value of it", error.message)
    if named is None or "int64" not in case["config"]["feature_spec"].get(named[1], ""):
        return False
    return not flat([row.get(named[1]) or [] for row in rows_of(case["input"])])


def required(column: Any, feature: Feature, rows: list[Row], *, fill: bool) -> Any:
    """A raw column as the case's feature_spec wants it: with its default, or with a check that it is there."""
    if fill:
        return ops.fill_missing(column, 0.0)
    if feature.default is not None:
        return ops.fill_missing(column, feature.default)
    if not feature.lists and any(row[feature.name] is None for row in rows):
        ops.check(~ops.is_missing(column), f"{feature.name} must have a value")
    return column
