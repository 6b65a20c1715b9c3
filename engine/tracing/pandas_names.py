"""What a column is asked for by its name in pandas, and what does that here."""

from __future__ import annotations

from typing import Final

HOW_MANY: Final = (
    "ops.size(column) is how many rows the training data has, ops.count(column) how many values; "
    "ops.length and ops.word_count are of a row's text and list"
)
"""What to do about `len`."""

_TEXT: Final = "ops take the column: ops.lower(column), ops.strip, ops.split, ops.substr, ops.regex_replace, …"
_MISSING: Final = "use ops.is_missing(column)"
_MAPPED: Final = "write it for the whole column: operators, jax.numpy, ops.where; or make engine.custom_ops.host_op"

PANDAS: Final = {
    "apply": _MAPPED,
    "astype": 'use ops.cast(column, "float32")',
    "dropna": "no row can be left out here; use ops.fill_missing(column, value)",
    "dt": 'use ops.timestamp_part(column, "hour")',
    "fillna": "use ops.fill_missing(column, value)",
    "isin": "use ops.is_in(column, values)",
    "isna": _MISSING,
    "isnull": _MISSING,
    "map": _MAPPED,
    "notna": f"{_MISSING}, and ~ of it",
    "notnull": f"{_MISSING}, and ~ of it",
    "str": _TEXT,
    **{name: f"use ops.{name}(column)" for name in ("lower", "strip", "upper")},
    "value_counts": "use ops.count_per_key(column)",
    **{name: f"use ops.{name}(column), of the whole training data" for name in (
        "count", "max", "mean", "median", "min", "mode", "std", "sum", "var",
    )},
}  # fmt: skip
"""Attribute → what to write."""
