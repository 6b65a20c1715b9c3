"""The schema: what every span of the data must look like. Values that a person reads, edits and accepts.

On disk it is `schema.yaml` (`yaml_read`, `yaml_write`); the same is a Great Expectations suite
(`expectations.from_schema`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from ...errors import InputError, suggest
from ..sources import Source
from .checks import Check, Expectation
from .feature import (
    ANOMALIES,
    CHANGES,
    SEMANTICS,
    SEVERITIES,
    STAGES,
    TYPES,
    UNCHECKED,
    Bool,
    Count,
    Domain,
    Feature,
    Presence,
    Range,
    Ratio,
    Semantic,
    Severity,
    Time,
    Values,
)
from .problems import raise_problems, schema_problems
from .weighted_feature import WeightedFeature, with_weighted

__all__ = [
    "ANOMALIES", "CHANGES", "SEMANTICS", "SEVERITIES", "STAGES", "TYPES", "UNCHECKED", "Bool", "Count", "Domain",
    "Feature", "Presence", "Range", "Ratio", "Schema", "Semantic", "Severity", "Time", "Values",
]  # fmt: skip


@dataclass(frozen=True)
class Schema:
    """What every data set (split) must look like.

    Attributes:
        features: In the data's order.
        min_rows: Fewest rows of a data set; None: one.
        max_rows: Most rows of a data set; None: no limit.
        severity: Severities by anomaly name, for all features; else `ANOMALIES` says.
        rows_drift: Rows in proportion to those of an earlier span.
        rows_version: Rows in proportion to those of an earlier version of the same span.
        environments: Environments that every feature belongs to unless it says otherwise, such as TRAINING, SERVING.
        checks: SQL over statistics that must be true.
        expectations: Great Expectations' that the schema cannot express; `check_expectations` decides them.
        weighted: Values and weights that must go together in every row.

    Raises:
        SchemaError: It contradicts itself; the message names the feature.
    """

    features: tuple[Feature, ...] = ()
    min_rows: int | None = None
    max_rows: int | None = None
    severity: Mapping[str, Severity] = field(default_factory=dict)
    environments: tuple[str, ...] = ()
    rows_drift: Ratio | None = None
    rows_version: Ratio | None = None
    checks: tuple[Check, ...] = ()
    expectations: tuple[Expectation, ...] = ()
    weighted: tuple[WeightedFeature, ...] = ()

    def __post_init__(self) -> None:
        raise_problems(schema_problems(self))

    def feature(self, name: str) -> Feature:
        """The feature of that name.

        Raises:
            InputError: There is none.
        """
        feature = self.find_feature(name)
        if feature is None:
            names = [feature.name for feature in self.features]
            raise InputError(f"the schema has no feature {name!r}", fix=suggest(str(name), names))
        return feature

    def find_feature(self, name: str) -> Feature | None:
        """The feature of that name, or None."""
        return next((feature for feature in self.features if feature.name == name), None)

    def measured(self, source: Source) -> tuple[Source, dict[str, str]]:
        """The source with the columns that its weighted features are decided from, and from what each is computed."""
        return with_weighted(source, self.weighted)

    def with_feature(self, feature: Feature) -> Schema:
        """The schema with a feature in the place of the one of its name, or at the end.

        Raises:
            SchemaError: The feature contradicts itself.
        """
        if self.find_feature(feature.name) is None:
            return replace(self, features=(*self.features, feature))
        return replace(
            self, features=tuple(feature if other.name == feature.name else other for other in self.features)
        )

    def in_environment(self, feature: Feature, environment: str | None) -> bool:
        """Whether a feature belongs to an environment; None: all do."""
        if environment is None or environment in feature.in_environments:
            return True
        return environment in self.environments and environment not in feature.not_in_environments

    def to_dict(self) -> dict[str, Any]:
        """The schema as JSON-able values; a domain says which `kind` it is."""
        document = asdict(self)
        _name_domains(self.features, document["features"])
        return document

    def to_json(self) -> str:
        """`to_dict` as indented JSON; equal schemas give equal text."""
        return json.dumps(self.to_dict(), indent=1, ensure_ascii=False, allow_nan=False) + "\n"

    def to_pandas(self) -> Any:  # a pandas.DataFrame: pandas ships no types
        """One row per feature, and per field of a struct by its path.

        Columns: name, type, min_fraction, min_count, domain, values, severity, bounds, evidence.

        Raises:
            DrivetrainError: pandas is not installed.
        """
        from ..frames import frame
        from .describe import described

        rows = described(self.features)
        columns = ("name", "type", "min_fraction", "min_count", "domain", "values", "severity", "bounds", "evidence")
        return frame(columns, ([row[column] for column in columns] for row in rows))

    def to_html(self) -> str:
        """A self-contained page."""
        from ...report.schema import schema_page
        from .describe import described

        return schema_page({**asdict(self), "features": described(self.features)})

    def _repr_html_(self) -> str:
        from ...report.html import framed

        return framed(self.to_html())

    def severity_of(self, anomaly: str, feature: str | None = None) -> Severity:
        """The severity of an anomaly: the feature's own, else the schema's, else the default."""
        spec = self.find_feature(feature) if feature is not None else None
        if spec is not None and anomaly in spec.severity:
            return spec.severity[anomaly]
        return self.severity.get(anomaly, ANOMALIES[anomaly])


def check_is_schema(schema: object, call: str, data: object = None) -> None:
    """Refuse what is not a schema, with the way to read one.

    Args:
        schema: What stands in a schema's place.
        call: The call as it is written right, for arguments that are exchanged.
        data: What stands in the place of the data.

    Raises:
        InputError: It is not a schema.
    """
    if isinstance(schema, Schema):
        return
    name = call.partition("(")[0]
    if isinstance(data, Schema):
        raise InputError("the schema is given where the data belong", fix=f"write {call}")
    kind, fix = f"a {type(schema).__name__}", "give what load_schema reads"
    if isinstance(schema, str | Path):
        fix = f"read it: load_schema({str(schema)!r})"
    elif isinstance(getattr(schema, "content", None), Path):
        kind, fix = "an artifact", 'read it: load_schema(artifact.content / "schema.yaml")'
    raise InputError(f"{name} takes a Schema, not {kind}", fix=fix)


def _name_domains(features: Iterable[Feature], items: Iterable[dict[str, Any]]) -> None:
    for feature, item in zip(features, items, strict=True):
        if feature.domain is not None:
            item["domain"] = {"kind": type(feature.domain).__name__.lower(), **item["domain"]}
        _name_domains(feature.fields, item["fields"])
