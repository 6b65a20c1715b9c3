"""What a schema demands beyond its own words: Great Expectations' expectations, and SQL over statistics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from .feature import Severity

GxSeverity = Literal["critical", "warning", "info"]
GX_SEVERITIES: Final[tuple[GxSeverity, ...]] = ("critical", "warning", "info")
# By the schema's word for it: a failed critical expectation blocks, as an ERROR does.
GX_SEVERITY: Final[Mapping[Severity, GxSeverity]] = {"ERROR": "critical", "WARNING": "warning", "INFO": "info"}
SQL_TYPE: Final = "unexpected_rows_expectation"  # GX's name of a query that must give no row


@dataclass(frozen=True)
class Expectation:
    """One expectation, as GX 1.x writes it.

    Attributes:
        type: GX's name of it, such as `expect_column_values_to_be_in_set`.
        kwargs: Its arguments, JSON-able.
        meta: What its author noted.
        severity: A failed critical one blocks; the others are only shown.
    """

    type: str
    kwargs: Mapping[str, Any]
    meta: Mapping[str, Any] = field(default_factory=dict)
    severity: GxSeverity = "critical"


@dataclass(frozen=True)
class Check:
    """An SQL expression over the statistics of a feature that must be true (TFDV's custom validation).

    Attributes:
        feature: Whose statistics; a field of a struct as `struct.field`.
        sql: The expression, in DuckDB's SQL over TFDV's field names: `feature.num_stats.max < 500`; with a `base` over
            `feature_test` and `feature_base`.
        base: The feature of the earlier span to compare with, often the same; "" for none.
        severity: Of the anomaly CUSTOM_VALIDATION where it is not true.
        description: What the anomaly says then; "" for the expression itself.
        environments: Where it is checked; () for everywhere.
        slice: Which slice of the data (or which split); "" for all rows of every split.
        base_slice: Which slice of the earlier span.
    """

    feature: str
    sql: str
    base: str = ""
    severity: Severity = "ERROR"
    description: str = ""
    environments: tuple[str, ...] = ()
    slice: str = ""
    base_slice: str = ""
