"""One feature of a schema: its type, presence, domain and bounds, and the names that these are written with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from .comparators import COMPARATORS, CONTROL_MISSING

Severity = Literal["ERROR", "WARNING", "INFO"]
SEVERITIES: Final[tuple[Severity, ...]] = ("ERROR", "WARNING", "INFO")

CHANGES: Final = ("drift", "skew")  # against an earlier span; between training and serving

TYPES: Final = (
    "any", "bool", "int", "float", "string", "bytes", "timestamp", "date", "time", "duration", "list", "struct",
)  # fmt: skip

# Names are TFDV's (anomalies.md), so that its users know what they read; the values are the default severities.
ANOMALIES: Final[Mapping[str, Severity]] = {
    "DATA_MISSING": "ERROR",
    "DATASET_LOW_NUM_EXAMPLES": "ERROR",
    "DATASET_HIGH_NUM_EXAMPLES": "ERROR",
    "COMPARATOR_LOW_NUM_EXAMPLES": "ERROR",
    "COMPARATOR_HIGH_NUM_EXAMPLES": "ERROR",
    "SCHEMA_MISSING_COLUMN": "ERROR",
    "SCHEMA_NEW_COLUMN": "ERROR",
    "UNEXPECTED_DATA_TYPE": "ERROR",
    "FEATURE_TYPE_NOT_PRESENT": "ERROR",
    "FEATURE_TYPE_LOW_FRACTION_PRESENT": "ERROR",
    "FEATURE_TYPE_LOW_NUMBER_PRESENT": "ERROR",
    "FEATURE_TYPE_LOW_NUMBER_VALUES": "ERROR",
    "FEATURE_TYPE_HIGH_NUMBER_VALUES": "ERROR",
    "VALUE_NESTEDNESS_MISMATCH": "ERROR",
    "INVALID_FEATURE_SHAPE": "ERROR",
    "FEATURE_TYPE_LOW_UNIQUE": "ERROR",
    "FEATURE_TYPE_HIGH_UNIQUE": "ERROR",
    "ENUM_TYPE_UNEXPECTED_STRING_VALUES": "ERROR",
    "ENUM_TYPE_INVALID_UTF8": "ERROR",
    "BOOL_TYPE_SMALL_INT": "ERROR",
    "BOOL_TYPE_BIG_INT": "ERROR",
    "BOOL_TYPE_UNEXPECTED_FLOAT": "ERROR",
    "BOOL_TYPE_UNEXPECTED_STRING": "ERROR",
    "INT_TYPE_SMALL_INT": "ERROR",
    "INT_TYPE_BIG_INT": "ERROR",
    "INT_TYPE_NOT_INT_STRING": "ERROR",
    "FLOAT_TYPE_SMALL_FLOAT": "ERROR",
    "FLOAT_TYPE_BIG_FLOAT": "ERROR",
    "FLOAT_TYPE_STRING_NOT_FLOAT": "ERROR",
    "FLOAT_TYPE_HAS_NAN": "ERROR",
    "FLOAT_TYPE_HAS_INF": "ERROR",
    "LOW_SUPPORTED_IMAGE_FRACTION": "ERROR",
    "MAX_IMAGE_BYTE_SIZE_EXCEEDED": "ERROR",
    "TIME_TYPE_UNEXPECTED_VALUES": "ERROR",  # ours: TFDV does not look at times
    "WEIGHTED_FEATURE_MISSING_VALUE": "ERROR",
    "WEIGHTED_FEATURE_MISSING_WEIGHT": "ERROR",
    "WEIGHTED_FEATURE_LENGTH_MISMATCH": "ERROR",
    "STATS_NOT_AVAILABLE": "WARNING",
    "CUSTOM_VALIDATION": "ERROR",  # each check has its own severity
    CONTROL_MISSING: "ERROR",
    **{comparator.anomaly: "ERROR" for comparator in COMPARATORS.values()},
}

# A feature in one of the first is not looked at; names are TFDV's.
UNCHECKED: Final = ("PLANNED", "ALPHA", "DEPRECATED", "DEBUG_ONLY", "DISABLED")
STAGES: Final = (*UNCHECKED, "BETA", "PRODUCTION", "VALIDATION_DERIVED")

LOG_RULES: Final = ("deny", "hash")
"""What a server's request log does with a column: it is left out, or a hash of it is logged."""
LOG_TAG: Final = "drivetrain:request_log:"
"""Stands before a rule, as a tag of a feature's annotation in TFX's `schema.pbtxt`."""


@dataclass(frozen=True)
class Presence:
    """How often a feature must be there (not null).

    Attributes:
        min_fraction: Smallest share of rows, 0 to 1; None: none demanded.
        min_count: Smallest number of rows; None: none demanded.
    """

    min_fraction: float | None = None
    min_count: int | None = None

    @property
    def required(self) -> bool:
        """Whether the column must exist: a fraction or a count above 0 is asked for."""
        return bool(self.min_fraction) or bool(self.min_count)


@dataclass(frozen=True)
class Count:
    """How many there may be; both ends belong to it, None is open.

    Attributes:
        min: Fewest.
        max: Most.
    """

    min: int | None = None
    max: int | None = None


@dataclass(frozen=True)
class Ratio:
    """How many times as many there may be; both ends belong to it, None is open.

    Attributes:
        min: Smallest ratio.
        max: Largest ratio.
    """

    min: float | None = None
    max: float | None = None


@dataclass(frozen=True)
class Values:
    """The texts a feature may take.

    Attributes:
        values: All of them, no two equal.
        min_mass: Share of the rows present that must be among them; 1: all.
    """

    values: tuple[str, ...]
    min_mass: float = 1.0


@dataclass(frozen=True)
class Range:
    """The numbers a feature may take; ends belong to it, None is open.

    Attributes:
        min: Smallest value.
        max: Largest value.
        disallow_nan: Whether NaN is an anomaly (floats).
        disallow_inf: Whether ±Inf is an anomaly of its own (floats); it breaks `min` and `max` in any case.
        parse: "int" or "float": the column is text, and every value must read as such a number; "" for numbers.
    """

    min: float | None = None
    max: float | None = None
    disallow_nan: bool = False
    disallow_inf: bool = False
    parse: Literal["", "int", "float"] = ""


@dataclass(frozen=True)
class Bool:
    """A feature of two values: 0 and 1 for numbers, or two texts.

    Attributes:
        true_value: The text that means true; None for numbers, or where no text does.
        false_value: The text that means false; None for numbers, or where no text does.
    """

    true_value: str | None = None
    false_value: str | None = None

    @property
    def texts(self) -> tuple[str, ...]:
        """The texts it takes; none for numbers."""
        return tuple(text for text in (self.true_value, self.false_value) if text is not None)


@dataclass(frozen=True)
class Time:
    """Text or integers that stand for a time; Arrow's own timestamps and dates have types of their own.

    Attributes:
        format: Of text: directives of strptime, as "%Y-%m-%d %H:%M"; names are English, `%z` takes a Z as well. Of
            integers: UNIX_DAYS, _SECONDS, _MILLISECONDS, _MICROSECONDS or _NANOSECONDS since 1970, which must lie in
            1990 to 2029.
        min_mass: Share of the rows present that must read so; 1: all.
        years: Of text with `%Y`: the first and the last year that a time may have; None: any.
    """

    format: str
    min_mass: float = 1.0
    years: Count | None = None

    @property
    def year_ends(self) -> tuple[int, int] | None:
        """The first and the last year of four digits that it may have; None: any."""
        if self.years is None:
            return None
        return self.years.min or 0, 9999 if self.years.max is None else self.years.max

    @property
    def reading(self) -> str:
        """For people: the format, and the years."""
        return self.format + (f" in {self.year_ends[0]} to {self.year_ends[1]}" if self.year_ends else "")


@dataclass(frozen=True)
class Semantic:
    """What values are for people and models; of images what they must be.

    Attributes:
        kind: "natural_language" (text), or "image" (files' bytes).
        min_supported_fraction: Of images: share of the values that must begin as BMP, GIF, JPEG or PNG; None: any.
        max_bytes: Of images: bytes of the largest value allowed; None: any.
    """

    kind: Literal["natural_language", "image"]
    min_supported_fraction: float | None = None
    max_bytes: int | None = None


Domain = Values | Range | Bool | Time | Semantic
SEMANTICS: Final = ("natural_language", "image")


@dataclass(frozen=True)
class Feature:
    """What is expected of one column.

    Attributes:
        name: The column's name.
        type: One of `TYPES`; "any" checks none. A "float" also takes integers. With a shape or value counts it is the
            type of the values in the lists.
        presence: How often it must be there.
        domain: What values it may take; None: any.
        shape: Sizes of the dimensions of every row's values, which are one flat list of their product; no row may be
            missing. None: no shape.
        value_counts: Values per row, then per value of that, and so on: one for each level of nesting. () where not
            said: then one plain value per row, unless there is a shape or the type is list.
        unique: Distinct values.
        in_environments: Environments it belongs to beside the schema's default ones.
        not_in_environments: Environments it does not belong to.
        stage: One of `STAGES`, or ""; a feature in a stage of `UNCHECKED` is not looked at.
        severity: Severities by anomaly name, before the schema's own.
        request_log: What a server's request log does with the column, one of `LOG_RULES`; "": it is logged.
        drift: Largest change against an earlier span, by comparator (one of `COMPARATORS`).
        skew: The same between training and serving.
        fields: What the fields of a struct, or of the structs in lists, must look like; presence is of the structs that
            are there, and a field that is not among these is new. (): they are not checked.
        evidence: Why the lines were proposed; comments in the file, no part of the schema's meaning. Text that begins
            with a line's key ("presence: all 3 rows"), one such after another, stands behind that line.
    """

    name: str
    type: str = "any"
    presence: Presence = Presence()
    domain: Domain | None = None
    severity: Mapping[str, Severity] = field(default_factory=dict)
    evidence: str = field(default="", compare=False)
    shape: tuple[int, ...] | None = None
    value_counts: tuple[Count, ...] = ()
    unique: Count | None = None
    in_environments: tuple[str, ...] = ()
    not_in_environments: tuple[str, ...] = ()
    stage: str = ""
    request_log: str = ""
    drift: Mapping[str, float] = field(default_factory=dict)
    skew: Mapping[str, float] = field(default_factory=dict)
    fields: tuple[Feature, ...] = ()

    @property
    def many(self) -> bool:
        """Whether it says how many values a row has, so that its type is that of the values."""
        return self.shape is not None or bool(self.value_counts)
