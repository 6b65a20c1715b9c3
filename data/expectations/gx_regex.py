"""GX's conditions with regular expressions, in time linear in the texts: `re` tries one way after another.

Importing it registers them in GX in place of its own; what they say of each value is the same.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any

import jsonschema
import pandas as pd
import pyarrow as pa
from great_expectations.execution_engine.pandas_execution_engine import PandasExecutionEngine
from great_expectations.expectations.metrics.map_metric_provider.column_condition_partial import (
    column_condition_partial,
)
from great_expectations.expectations.metrics.map_metric_provider.column_map_metric_provider import (
    ColumnMapMetricProvider,
)

from .regex import automaton_of, search_mask

_automaton_of = lru_cache(256)(automaton_of)


def _mask(column: Any, regex: Any) -> Any:  # pandas ships no types
    texts = pa.array([str(value).encode() for value in column], pa.large_binary())
    return pd.Series(search_mask(texts, regex), index=column.index)


def _mask_of_each(column: Any, regexes: Iterable[Any]) -> Any:
    return pd.concat([_mask(column, regex) for regex in regexes], axis=1, ignore_index=True)


def _pattern(validator: Any, pattern: str, instance: Any, schema: Any) -> Iterator[jsonschema.ValidationError]:
    if validator.is_type(instance, "string") and not _automaton_of(pattern).search(instance):
        yield jsonschema.ValidationError("the pattern is not found")


def _pattern_properties(
    validator: Any, patterns: Mapping[str, Any], instance: Any, schema: Any
) -> Iterator[jsonschema.ValidationError]:
    if validator.is_type(instance, "object"):
        for pattern, inner in patterns.items():
            for name, value in instance.items():
                if _automaton_of(pattern).search(name):
                    yield from validator.descend(value, inner)


def _additional_properties(
    validator: Any, allowed: Any, instance: Any, schema: Mapping[str, Any]
) -> Iterator[jsonschema.ValidationError]:
    if validator.is_type(instance, "object"):
        patterns = schema.get("patternProperties", ())
        for name, value in instance.items():
            known = name in schema.get("properties", ()) or any(_automaton_of(each).search(name) for each in patterns)
            if not known:
                yield from validator.descend(value, allowed)


_LINEAR = {
    "pattern": _pattern, "patternProperties": _pattern_properties, "additionalProperties": _additional_properties,
}  # fmt: skip
"""The keywords by which jsonschema searches with `re`, but for `unevaluatedProperties`: see `check`."""


def _register() -> None:
    class MatchRegex(ColumnMapMetricProvider):
        condition_metric_name = "column_values.match_regex"
        condition_value_keys = ("regex",)

        @column_condition_partial(engine=PandasExecutionEngine)
        def _pandas(self, column: Any, regex: Any, **kwargs: Any) -> Any:
            return _mask(column, regex)

    class NotMatchRegex(ColumnMapMetricProvider):
        condition_metric_name = "column_values.not_match_regex"
        condition_value_keys = ("regex",)

        @column_condition_partial(engine=PandasExecutionEngine)
        def _pandas(self, column: Any, regex: Any, **kwargs: Any) -> Any:
            return ~_mask(column, regex)

    class MatchRegexList(ColumnMapMetricProvider):
        condition_metric_name = "column_values.match_regex_list"
        condition_value_keys = ("regex_list", "match_on")
        default_kwarg_values = {"match_on": "any"}  # noqa: RUF012 - as GX declares it

        @column_condition_partial(engine=PandasExecutionEngine)
        def _pandas(self, column: Any, regex_list: Any, match_on: str, **kwargs: Any) -> Any:
            masks = _mask_of_each(column, regex_list)
            return masks.all(axis="columns") if match_on == "all" else masks.any(axis="columns")

    class NotMatchRegexList(ColumnMapMetricProvider):
        condition_metric_name = "column_values.not_match_regex_list"
        condition_value_keys = ("regex_list",)

        @column_condition_partial(engine=PandasExecutionEngine)
        def _pandas(self, column: Any, regex_list: Any, **kwargs: Any) -> Any:
            return ~_mask_of_each(column, regex_list).any(axis="columns")

    class MatchJsonSchema(ColumnMapMetricProvider):
        condition_metric_name = "column_values.match_json_schema"
        condition_value_keys = ("json_schema",)

        @column_condition_partial(engine=PandasExecutionEngine)
        def _pandas(self, column: Any, json_schema: Any, **kwargs: Any) -> Any:
            draft = jsonschema.validators.validator_for(json_schema)
            draft.check_schema(json_schema)
            validator = jsonschema.validators.extend(draft, _LINEAR)(json_schema)
            return column.map(lambda text: validator.is_valid(json.loads(text)))


_registry = logging.getLogger("great_expectations.expectations.registry")
_level = _registry.level
_registry.setLevel(logging.ERROR)  # it warns of what takes the place of another, which is the purpose
try:
    _register()
finally:
    _registry.setLevel(_level)
