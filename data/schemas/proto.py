"""The fields of TFX's `Schema` message: tensorflow_metadata/proto/v0/schema.proto (1.16), names, numbers and types."""

from __future__ import annotations

from typing import Final

from .pbtxt import Field, Tables


def _many(number: int, kind: str) -> Field:
    return Field(number, kind, repeated=True)


def _domain(number: int, kind: str) -> Field:
    return Field(number, kind, oneof="domain_info")


_LIMITS: Final = {"min": Field(1, "int64"), "max": Field(2, "int64")}
_THRESHOLD: Final = {"threshold": Field(1, "double")}

SCHEMA_PROTO: Final = Tables(
    messages={
        "Schema": {
            "feature": _many(1, "Feature"),
            "string_domain": _many(4, "StringDomain"),
            "default_environment": _many(5, "string"),
            "sparse_feature": _many(6, "SparseFeature"),
            "annotation": Field(8, "Annotation"),
            "float_domain": _many(9, "FloatDomain"),
            "int_domain": _many(10, "IntDomain"),
            "dataset_constraints": Field(11, "DatasetConstraints"),
            "weighted_feature": _many(12, "WeightedFeature"),
            "tensor_representation_group": _many(13, "opaque"),
            "represent_variable_length_as_ragged": Field(14, "bool"),
        },
        "Feature": {
            "name": Field(1, "string"),
            "deprecated": Field(2, "bool"),
            "value_count": Field(5, "ValueCount", oneof="shape_type"),
            "type": Field(6, "FeatureType"),
            "domain": _domain(7, "string"),
            "int_domain": _domain(9, "IntDomain"),
            "float_domain": _domain(10, "FloatDomain"),
            "string_domain": _domain(11, "StringDomain"),
            "bool_domain": _domain(13, "BoolDomain"),
            "presence": Field(14, "FeaturePresence", oneof="presence_constraints"),
            "distribution_constraints": Field(15, "DistributionConstraints"),
            "annotation": Field(16, "Annotation"),
            "group_presence": Field(17, "FeaturePresenceWithinGroup", oneof="presence_constraints"),
            "skew_comparator": Field(18, "FeatureComparator"),
            "not_in_environment": _many(19, "string"),
            "in_environment": _many(20, "string"),
            "drift_comparator": Field(21, "FeatureComparator"),
            "lifecycle_stage": Field(22, "LifecycleStage"),
            "shape": Field(23, "FixedShape", oneof="shape_type"),
            "natural_language_domain": _domain(24, "NaturalLanguageDomain"),
            "image_domain": _domain(25, "ImageDomain"),
            "mid_domain": _domain(26, "opaque"),
            "url_domain": _domain(27, "opaque"),
            "time_domain": _domain(28, "TimeDomain"),
            "struct_domain": _domain(29, "StructDomain"),
            "time_of_day_domain": _domain(30, "opaque"),
            "unique_constraints": Field(31, "UniqueConstraints"),
            "value_counts": Field(32, "ValueCountList", oneof="shape_type"),
            "validation_derived_source": Field(34, "opaque"),
            "sequence_metadata": Field(35, "opaque"),
        },
        "SparseFeature": {
            "name": Field(1, "string"),
            "deprecated": Field(2, "bool"),
            "presence": Field(4, "FeaturePresence"),
            "dense_shape": Field(5, "FixedShape"),
            "index_feature": _many(6, "SparseColumn"),
            "lifecycle_stage": Field(7, "LifecycleStage"),
            "is_sorted": Field(8, "bool"),
            "value_feature": Field(9, "SparseColumn"),
            "type": Field(10, "FeatureType"),
        },
        "SparseColumn": {"name": Field(1, "string")},
        "WeightedFeature": {
            "name": Field(1, "string"),
            "feature": Field(2, "Path"),
            "weight_feature": Field(3, "Path"),
            "lifecycle_stage": Field(4, "LifecycleStage"),
        },
        "Path": {"step": _many(1, "string")},
        "StructDomain": {"feature": _many(1, "Feature"), "sparse_feature": _many(2, "opaque")},
        "Annotation": {"tag": _many(1, "string"), "comment": _many(2, "string"), "extra_metadata": _many(3, "opaque")},
        "ValueCount": _LIMITS,
        "ValueCountList": {"value_count": _many(1, "ValueCount")},
        "UniqueConstraints": _LIMITS,
        "FixedShape": {"dim": _many(2, "Dim")},
        "Dim": {"size": Field(1, "int64"), "name": Field(2, "string")},
        "FeaturePresence": {"min_fraction": Field(1, "double"), "min_count": Field(2, "int64")},
        "FeaturePresenceWithinGroup": {"required": Field(1, "bool")},
        "DistributionConstraints": {"min_domain_mass": Field(1, "double")},
        "IntDomain": {
            "name": Field(1, "string"),
            "min": Field(3, "int64"),
            "max": Field(4, "int64"),
            "is_categorical": Field(5, "bool"),
        },
        "FloatDomain": {
            "name": Field(1, "string"),
            "min": Field(3, "float"),
            "max": Field(4, "float"),
            "disallow_nan": Field(5, "bool"),
            "disallow_inf": Field(6, "bool"),
            "is_embedding": Field(7, "bool"),
            "is_categorical": Field(8, "bool"),
            "embedding_dim": Field(9, "int64"),
        },
        "StringDomain": {
            "name": Field(1, "string"),
            "value": _many(2, "string"),
            "is_categorical": Field(3, "Categorical"),
        },
        "BoolDomain": {
            "name": Field(1, "string"),
            "true_value": Field(2, "string"),
            "false_value": Field(3, "string"),
        },
        "TimeDomain": {
            "string_format": Field(1, "string", oneof="format"),
            "integer_format": Field(2, "IntegerTimeFormat", oneof="format"),
        },
        "NaturalLanguageDomain": {
            "vocabulary": Field(1, "string"),
            "coverage": Field(2, "opaque"),
            "token_constraints": _many(3, "opaque"),
            "sequence_length_constraints": Field(5, "opaque"),
        },
        "ImageDomain": {
            "minimum_supported_image_fraction": Field(1, "float"),
            "max_image_byte_size": Field(2, "int64"),
        },
        "NumericValueComparator": {
            "min_fraction_threshold": Field(1, "double"),
            "max_fraction_threshold": Field(2, "double"),
        },
        "DatasetConstraints": {
            "num_examples_drift_comparator": Field(1, "NumericValueComparator"),
            "num_examples_version_comparator": Field(2, "NumericValueComparator"),
            "min_examples_count": Field(3, "int64"),
            "max_examples_count": Field(4, "int64"),
        },
        "InfinityNorm": _THRESHOLD,
        "HistogramSelection": {"type": Field(1, "HistogramType")},
        "JensenShannonDivergence": _THRESHOLD | {"source": Field(2, "HistogramSelection")},
        "NormalizedAbsoluteDifference": _THRESHOLD,
        "FeatureComparator": {
            "infinity_norm": Field(1, "InfinityNorm"),
            "jensen_shannon_divergence": Field(2, "JensenShannonDivergence"),
            "normalized_abs_difference": Field(3, "NormalizedAbsoluteDifference"),
        },
    },
    enums={
        "FeatureType": {"TYPE_UNKNOWN": 0, "BYTES": 1, "INT": 2, "FLOAT": 3, "STRUCT": 4},
        "LifecycleStage": {
            "UNKNOWN_STAGE": 0,
            "PLANNED": 1,
            "ALPHA": 2,
            "BETA": 3,
            "PRODUCTION": 4,
            "DEPRECATED": 5,
            "DEBUG_ONLY": 6,
            "DISABLED": 7,
            "VALIDATION_DERIVED": 9,
        },
        "Categorical": {"CATEGORICAL_UNSPECIFIED": 0, "CATEGORICAL_YES": 1, "CATEGORICAL_NO": 2},
        "IntegerTimeFormat": {
            "FORMAT_UNKNOWN": 0,
            "UNIX_SECONDS": 1,
            "UNIX_MILLISECONDS": 2,
            "UNIX_MICROSECONDS": 3,
            "UNIX_NANOSECONDS": 4,
            "UNIX_DAYS": 5,
        },
        "HistogramType": {"DEFAULT": 0, "QUANTILES": 1, "STANDARD": 2},
    },
)
