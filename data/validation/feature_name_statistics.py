"""A feature's statistics by the names of TFDV's `FeatureNameStatistics`, so that its users' expressions keep working.

https://github.com/tensorflow/metadata/blob/master/tensorflow_metadata/proto/v0/statistics.proto; what is not known of a
column is None, as ZetaSQL has it of a message that is not set.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any, Final

_TYPES: Final = {
    "int": "INT",
    "bool": "INT",
    "float": "FLOAT",
    "string": "STRING",
    "bytes": "BYTES",
    "struct": "STRUCT",
}

_BUCKETS: Final = "STRUCT(low_value DOUBLE, high_value DOUBLE, sample_count DOUBLE)[]"
_HISTOGRAM: Final = f"STRUCT(num_nan BIGINT, num_undefined BIGINT, buckets {_BUCKETS}, type VARCHAR)"
_WEIGHTED: Final = "STRUCT(num_non_missing DOUBLE, num_missing DOUBLE, avg_num_values DOUBLE, tot_num_values DOUBLE)"
_COMMON: Final = (
    "STRUCT(num_non_missing BIGINT, num_missing BIGINT, min_num_values BIGINT, max_num_values BIGINT, "
    f"avg_num_values DOUBLE, tot_num_values BIGINT, weighted_common_stats {_WEIGHTED})"
)
_NUMBERS: Final = (
    f"STRUCT(common_stats {_COMMON}, mean DOUBLE, std_dev DOUBLE, num_zeros BIGINT, min DOUBLE, median DOUBLE, "
    f"max DOUBLE, histograms {_HISTOGRAM}[], "
    "weighted_numeric_stats STRUCT(mean DOUBLE, std_dev DOUBLE, median DOUBLE))"
)
_RANKS: Final = "STRUCT(low_rank BIGINT, high_rank BIGINT, label VARCHAR, sample_count DOUBLE)[]"
_FREQUENT: Final = f"top_values STRUCT(value VARCHAR, frequency DOUBLE)[], rank_histogram STRUCT(buckets {_RANKS})"
_TEXTS: Final = (
    f'STRUCT(common_stats {_COMMON}, "unique" BIGINT, avg_length DOUBLE, {_FREQUENT}, '
    f"weighted_string_stats STRUCT({_FREQUENT}), invalid_utf8_count BIGINT)"
)
_BYTES: Final = f'STRUCT(common_stats {_COMMON}, "unique" BIGINT, avg_num_bytes DOUBLE)'
DUCKDB_TYPE: Final = (
    f"STRUCT(name VARCHAR, path STRUCT(step VARCHAR[]), type VARCHAR, num_stats {_NUMBERS}, string_stats {_TEXTS}, "
    f"bytes_stats {_BYTES}, struct_stats STRUCT(common_stats {_COMMON}), common_stats {_COMMON})"
)


def proto_of(feature: Mapping[str, Any], path: tuple[str, ...]) -> dict[str, Any]:
    """A feature of a statistics document as nested plain values of `DUCKDB_TYPE`.

    Of a list the numbers are those of its items, and `common_stats` says how many there are in a row. `common_stats`
    also stands beside the others, for a check that is the same for every type. Minimum and maximum are infinite where
    a value is; the mean and the deviation are the finite values'.
    """
    lengths, values = feature, feature
    while "values" in values or "lengths" in values:
        values = values.get("values", {})
    common = _common(lengths)
    proto: dict[str, Any] = {
        "name": ".".join(path), "path": {"step": list(path)}, "type": _TYPES.get(values.get("type", "")),
        "common_stats": common,
    }  # fmt: skip
    kind = values.get("type")
    if kind in ("string", "bytes"):
        proto["string_stats"] = {"common_stats": common, **_texts(values)}
        if kind == "bytes":
            size = _value(values, "avg_length")
            proto["bytes_stats"] = {"common_stats": common, "unique": _value(values, "unique"), "avg_num_bytes": size}
    elif kind == "struct":
        proto["struct_stats"] = {"common_stats": common}
    elif kind in ("int", "float", "bool"):
        proto["num_stats"] = {"common_stats": common, **_numbers(values)}
    return proto


def _common(feature: Mapping[str, Any]) -> dict[str, Any]:
    there, lengths = feature["count"], feature.get("lengths")
    low, high, mean = (1, 1, 1.0) if lengths is None else (_value(lengths, key) for key in ("min", "max", "mean"))
    common = {
        "num_non_missing": there, "num_missing": feature["missing"],
        "min_num_values": low if there else 0, "max_num_values": high if there else 0,
        "avg_num_values": mean if there else 0.0, "tot_num_values": round((mean or 0) * there),
    }  # fmt: skip
    weighted = feature.get("weighted")
    if weighted:
        heavy, each = _plain(weighted["count"]), _value(weighted.get("lengths", {}), "mean") if lengths else 1.0
        common["weighted_common_stats"] = {
            "num_non_missing": heavy, "num_missing": _plain(weighted["missing"]), "avg_num_values": each,
            "tot_num_values": heavy * (each or 0.0),
        }  # fmt: skip
    return common


def _numbers(feature: Mapping[str, Any]) -> dict[str, Any]:
    low, high = (_number(_value(feature, key)) for key in ("min", "max"))
    if feature.get("negative_infinity"):
        low = float("-inf")
        high = low if high is None else high
    if feature.get("positive_infinity"):
        high = float("inf")
        low = high if low is None else low
    buckets = [
        {"low_value": _number(bucket["low"]), "high_value": _number(bucket["high"]), "sample_count": bucket["count"]}
        for bucket in _value(feature, "histogram") or ()
    ]
    ends = [_number(value) for value in _value(feature, "quantiles") or ()]
    mass = sum(bucket["sample_count"] for bucket in buckets) / max(len(ends) - 1, 1)
    quantiles = [
        {"low_value": low_end, "high_value": high_end, "sample_count": mass}
        for low_end, high_end in itertools.pairwise(ends)
    ]
    histograms = [
        {"num_nan": feature.get("nan", 0), "num_undefined": 0, "buckets": cells, "type": kind}
        for kind, cells in (("STANDARD", buckets), ("QUANTILES", quantiles))
    ]
    statistics = {
        "mean": _value(feature, "mean"), "std_dev": _value(feature, "std"), "num_zeros": _value(feature, "zeros"),
        "min": low, "median": _number(_value(feature, "median")), "max": high, "histograms": histograms,
    }  # fmt: skip
    weighted = feature.get("weighted")
    if weighted:
        statistics["weighted_numeric_stats"] = {
            name: _value(weighted, key) for name, key in (("mean", "mean"), ("std_dev", "std"), ("median", "median"))
        }
    return statistics


def _texts(feature: Mapping[str, Any]) -> dict[str, Any]:
    weighted = feature.get("weighted")
    return {
        "unique": _value(feature, "unique"), "avg_length": _value(feature, "avg_length"), **_frequent(feature),
        "weighted_string_stats": _frequent(weighted) if weighted else None,
        "invalid_utf8_count": _value(feature, "invalid_utf8") or 0,
    }  # fmt: skip


def _frequent(feature: Mapping[str, Any]) -> dict[str, Any]:
    pairs = [(top_value["value"], top_value["count"]) for top_value in _value(feature, "top_values") or ()]
    ranks = [
        {"low_rank": rank, "high_rank": rank, "label": value, "sample_count": count}
        for rank, (value, count) in enumerate(pairs)
    ]
    top = [{"value": value, "frequency": count} for value, count in pairs]
    return {"top_values": top, "rank_histogram": {"buckets": ranks}}


def _value(feature: Mapping[str, Any], key: str) -> Any:
    return _plain(feature.get(key))


def _plain(item: Any) -> Any:
    """A number of a document alone, where the document also says whether it is exact."""
    return item["value"] if isinstance(item, Mapping) and "value" in item else item


def _number(value: Any) -> float | None:
    """A number of a document: the ends of a bool are true and false, an integer beyond 64 bits is text."""
    return None if value is None else float(value)
