"""The fields of TFX's `Schema` message: tensorflow_metadata/proto/v0/schema.proto (1.16), names, numbers and types."""

from __future__ import annotations

from typing import Final

from .pbtxt import MessageField, ProtoDefinitions


def _many(number: int, kind: str) -> MessageField:
    return MessageField(number, kind, repeated=True)


def _domain(number: int, kind: str) -> MessageField:
    return MessageField(number, kind, oneof="domain_info")


_LIMITS: Final = {"min": MessageField(1, "int64"), "max": MessageField(2, "int64")}
_THRESHOLD: Final = {"threshold": MessageField(1, "double")}

SCHEMA_PROTO: Final = ProtoDefinitions(
    messages={
        "Schema": {
            "feature": _many(1, "Feature"),
            "string_domain": _many(4, "StringDomain"),
            "default_environment": _many(5, "string"),
            "sparse_feature": _many(6, "SparseFeature"),
            "annotation": MessageField(8, "Annotation"),
            "float_domain": _many(9, "FloatDomain"),
            "int_domain": _many(10, "IntDomain"),
            "dataset_constraints": MessageField(11, "DatasetConstraints"),
            "weighted_feature": _many(12, "WeightedFeature"),
            "tensor_representation_group": _many(13, "opaque"),
            "represent_variable_length_as_ragged": MessageField(14, "bool"),
        },
        "Feature": {
            "name": MessageField(1, "string"),
            "deprecated": MessageField(2, "bool"),
            "value_count": MessageField(5, "ValueCount", oneof="shape_type"),
            "type": MessageField(6, "FeatureType"),
            "domain": _domain(7, "string"),
            "int_domain": _domain(9, "IntDomain"),
            "float_domain": _domain(10, "FloatDomain"),
            "string_domain": _domain(11, "StringDomain"),
            "bool_domain": _domain(13, "BoolDomain"),
            "presence": MessageField(14, "FeaturePresence", oneof="presence_constraints"),
            "distribution_constraints": MessageField(15, "DistributionConstraints"),
            "annotation": MessageField(16, "Annotation"),
            "group_presence": MessageField(17, "FeaturePresenceWithinGroup", oneof="presence_constraints"),
            "skew_comparator": MessageField(18, "FeatureComparator"),
            "not_in_environment": _many(19, "string"),
            "in_environment": _many(20, "string"),
            "drift_comparator": MessageField(21, "FeatureComparator"),
            "lifecycle_stage": MessageField(22, "LifecycleStage"),
            "shape": MessageField(23, "FixedShape", oneof="shape_type"),
            "natural_language_domain": _domain(24, "NaturalLanguageDomain"),
            "image_domain": _domain(25, "ImageDomain"),
            "mid_domain": _domain(26, "opaque"),
            "url_domain": _domain(27, "opaque"),
            "time_domain": _domain(28, "TimeDomain"),
            "struct_domain": _domain(29, "StructDomain"),
            "time_of_day_domain": _domain(30, "opaque"),
            "unique_constraints": MessageField(31, "UniqueConstraints"),
            "value_counts": MessageField(32, "ValueCountList", oneof="shape_type"),
            "validation_derived_source": MessageField(34, "opaque"),
            "sequence_metadata": MessageField(35, "opaque"),
        },
        "SparseFeature": {
            "name": MessageField(1, "string"),
            "deprecated": MessageField(2, "bool"),
            "presence": MessageField(4, "FeaturePresence"),
            "dense_shape": MessageField(5, "FixedShape"),
            "index_feature": _many(6, "SparseColumn"),
            "lifecycle_stage": MessageField(7, "LifecycleStage"),
            "is_sorted": MessageField(8, "bool"),
            "value_feature": MessageField(9, "SparseColumn"),
            "type": MessageField(10, "FeatureType"),
        },
        "SparseColumn": {"name": MessageField(1, "string")},
        "WeightedFeature": {
            "name": MessageField(1, "string"),
            "feature": MessageField(2, "Path"),
            "weight_feature": MessageField(3, "Path"),
            "lifecycle_stage": MessageField(4, "LifecycleStage"),
        },
        "Path": {"step": _many(1, "string")},
        "StructDomain": {"feature": _many(1, "Feature"), "sparse_feature": _many(2, "opaque")},
        "Annotation": {"tag": _many(1, "string"), "comment": _many(2, "string"), "extra_metadata": _many(3, "opaque")},
        "ValueCount": _LIMITS,
        "ValueCountList": {"value_count": _many(1, "ValueCount")},
        "UniqueConstraints": _LIMITS,
        "FixedShape": {"dim": _many(2, "Dim")},
        "Dim": {"size": MessageField(1, "int64"), "name": MessageField(2, "string")},
        "FeaturePresence": {"min_fraction": MessageField(1, "double"), "min_count": MessageField(2, "int64")},
        "FeaturePresenceWithinGroup": {"required": MessageField(1, "bool")},
        "DistributionConstraints": {"min_domain_mass": MessageField(1, "double")},
        "IntDomain": {
            "name": MessageField(1, "string"),
            "min": MessageField(3, "int64"),
            "max": MessageField(4, "int64"),
            "is_categorical": MessageField(5, "bool"),
        },
        "FloatDomain": {
            "name": MessageField(1, "string"),
            "min": MessageField(3, "float"),
            "max": MessageField(4, "float"),
            "disallow_nan": MessageField(5, "bool"),
            "disallow_inf": MessageField(6, "bool"),
            "is_embedding": MessageField(7, "bool"),
            "is_categorical": MessageField(8, "bool"),
            "embedding_dim": MessageField(9, "int64"),
        },
        "StringDomain": {
            "name": MessageField(1, "string"),
            "value": _many(2, "string"),
            "is_categorical": MessageField(3, "Categorical"),
        },
        "BoolDomain": {
            "name": MessageField(1, "string"),
            "true_value": MessageField(2, "string"),
            "false_value": MessageField(3, "string"),
        },
        "TimeDomain": {
            "string_format": MessageField(1, "string", oneof="format"),
            "integer_format": MessageField(2, "IntegerTimeFormat", oneof="format"),
        },
        "NaturalLanguageDomain": {
            "vocabulary": MessageField(1, "string"),
            "coverage": MessageField(2, "opaque"),
            "token_constraints": _many(3, "opaque"),
            "sequence_length_constraints": MessageField(5, "opaque"),
        },
        "ImageDomain": {
            "minimum_supported_image_fraction": MessageField(1, "float"),
            "max_image_byte_size": MessageField(2, "int64"),
        },
        "NumericValueComparator": {
            "min_fraction_threshold": MessageField(1, "double"),
            "max_fraction_threshold": MessageField(2, "double"),
        },
        "DatasetConstraints": {
            "num_examples_drift_comparator": MessageField(1, "NumericValueComparator"),
            "num_examples_version_comparator": MessageField(2, "NumericValueComparator"),
            "min_examples_count": MessageField(3, "int64"),
            "max_examples_count": MessageField(4, "int64"),
        },
        "InfinityNorm": _THRESHOLD,
        "HistogramSelection": {"type": MessageField(1, "HistogramType")},
        "JensenShannonDivergence": _THRESHOLD | {"source": MessageField(2, "HistogramSelection")},
        "NormalizedAbsoluteDifference": _THRESHOLD,
        "FeatureComparator": {
            "infinity_norm": MessageField(1, "InfinityNorm"),
            "jensen_shannon_divergence": MessageField(2, "JensenShannonDivergence"),
            "normalized_abs_difference": MessageField(3, "NormalizedAbsoluteDifference"),
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
