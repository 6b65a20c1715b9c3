"""Single examples against a schema: requests to a server, one dict each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ...errors import InputError
from ..schemas.schema import (
    Feature,
    Presence,
    Schema,
    Semantic,
    Time,
    Values,
)
from .anomalies import Anomalies
from .anomalous_rows import anomalous_rows
from .validate import validate


def validate_instance(
    example: Mapping[str, Any] | Sequence[Mapping[str, Any]], schema: Schema, *, environment: str | None = None
) -> Anomalies:
    """The anomalies of an example, or of each of some; `rows` of an anomaly say which examples show it.

    What only holds of many rows is not demanded: numbers of rows and of distinct values, a share of rows below 1 (of
    those present, or of those within the domain). Drift and skew are not looked at.

    Args:
        example: Values by feature; None, or no such key, is missing.
        schema: What a person accepted.
        environment: As for `validate`, e.g. "SERVING".

    Raises:
        InputError: No example, or values of a feature that are of no one Arrow type; names the feature.
    """
    examples = [example] if isinstance(example, Mapping) else list(example)
    if not examples:
        raise InputError("there is no example to validate", fix="give a dict, or a list of them")
    single = replace(
        schema,
        features=tuple(map(_of_one, schema.features)),
        min_rows=None,
        max_rows=None,
        rows_drift=None,
        rows_version=None,
    )
    anomalies = validate({"examples": examples}, single, environment=environment)
    return anomalous_rows({"examples": examples}, anomalies, single, limit=len(examples))


def _of_one(feature: Feature) -> Feature:
    always = feature.presence.min_fraction == 1
    domain = feature.domain
    if isinstance(domain, Values | Time) and domain.min_mass < 1:
        domain = None
    if isinstance(domain, Semantic) and (domain.min_supported_fraction or 0) < 1:
        domain = replace(domain, min_supported_fraction=None)
    return replace(feature, presence=Presence(1.0, 1) if always else Presence(), domain=domain, unique=None,
                   fields=tuple(map(_of_one, feature.fields)))  # fmt: skip
