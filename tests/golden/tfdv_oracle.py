"""What TFDV 1.16 says of the cases in a file, written into it: `python tfdv_oracle.py tfdv_more.json`.

Runs where tensorflow-data-validation is installed (an environment of its own, Python 3.10), not in ours. Only `input`,
`config` and the controls are read, so a new case needs no `expected`. Floats are written with nine digits.
"""
# mypy: ignore-errors

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import tensorflow_data_validation as tfdv
from google.protobuf import json_format, text_format
from tensorflow_data_validation.anomalies.proto import custom_validation_config_pb2, validation_config_pb2
from tensorflow_data_validation.api import validation_api, validation_options
from tensorflow_data_validation.statistics import stats_impl
from tensorflow_data_validation.statistics.generators import cross_feature_stats_generator
from tensorflow_data_validation.utils import slicing_util
from tensorflow_metadata.proto.v0 import schema_pb2

TYPES = {"bytes": pa.binary(), "double": pa.float64(), "float": pa.float32(), "bool": pa.bool_()}
ODD = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}
INFERENCE = ("max_string_domain_size", "infer_feature_shape")


def type_of(name: str) -> pa.DataType:
    for head, make in (("large_list<", pa.large_list), ("list<", pa.list_)):
        if name.startswith(head):
            return make(type_of(name[len(head) : -1].partition(": ")[2]))
    return TYPES.get(name) or getattr(pa, name)()


def plain(value: Any, floats: bool) -> Any:
    if isinstance(value, list):
        return [plain(item, floats) for item in value]
    if isinstance(value, dict):
        return bytes.fromhex(value["bytes_hex"])
    return ODD.get(value, value) if floats and isinstance(value, str) else value


def batch(columns: dict[str, Any]) -> pa.RecordBatch:
    """TFDV wants lists: a row of one value is a list of one."""
    arrays = []
    for column in columns.values():
        kind = type_of(column["type"])
        rows = plain(column["values"], "float" in column["type"] or "double" in column["type"])
        arrays.append(
            pa.array([row if row is None or isinstance(row, list) else [row] for row in rows], pa.large_list(kind))
        )
    return pa.RecordBatch.from_arrays(arrays, list(columns))


def option(value: Any) -> Any:
    named = {"True": True, "False": False}
    return named.get(value, int(value) if value.isdigit() else value) if isinstance(value, str) else value


def statistics(columns: dict[str, Any], config: dict[str, Any] | None = None) -> Any:
    options = tfdv.StatsOptions(**{key: option(value) for key, value in (config or {}).items()})
    return stats_impl.generate_statistics_in_memory(batch(columns), options)


def printed(message: Any) -> Any:
    return nine_digits(json_format.MessageToDict(message, preserving_proto_field_name=True))


def nine_digits(item: Any) -> Any:
    if isinstance(item, dict):
        return {key: nine_digits(value) for key, value in item.items()}
    if isinstance(item, list):
        return [nine_digits(value) for value in item]
    return float(f"{item:.9g}") if isinstance(item, float) else item


def anomalies(found: Any) -> dict[str, Any]:
    said = printed(found)
    for info in said.get("anomaly_info", {}).values():
        info.pop("path", None)
    kept = ("dataset_anomaly_info", "drift_skew_info", "data_missing")
    return {"anomaly_info": said.get("anomaly_info", {})} | {key: said[key] for key in kept if key in said}


def schema_of(case: dict[str, Any]) -> Any:
    return text_format.Parse(case["config"]["schema"], schema_pb2.Schema())


# --- kinds of cases


def statistics_case(case: dict[str, Any]) -> Any:
    said = printed(statistics(case["input"], case["config"]).datasets[0])
    said.pop("name", None)
    return said


def infer_schema(case: dict[str, Any]) -> Any:
    config = {key: option(value) for key, value in case["config"].items()}
    rules = {key: config.pop(key) for key in INFERENCE if key in config}
    return printed(tfdv.infer_schema(statistics(case["input"], config), **rules))


def validate(case: dict[str, Any]) -> Any:
    config = case["config"]
    options = dict(config.get("stats_options") or {})
    if "schema" in options:  # the case's own, which weighted features are measured by
        options["schema"] = schema_of(case)
    controls = [
        statistics(case[side], options) if side in case else None
        for side in ("previous_span", "serving", "previous_version")
    ]
    overrides = [
        text_format.Parse(text, validation_config_pb2.SeverityOverride())
        for text in config.get("severity_overrides") or ()
    ]
    custom = config.get("custom_validation")
    current, schema = statistics(case["input"], options), schema_of(case)
    said = anomalies(
        validation_api.validate_statistics_internal(
            current,
            schema,
            config.get("environment"),
            *controls,
            validation_options=validation_options.ValidationOptions(severity_overrides=overrides),
            custom_validation_config=custom
            and text_format.Parse(custom, custom_validation_config_pb2.CustomValidationConfig()),
        )
    )
    if "updated_schema" in case.get("expected", ()):
        said["updated_schema"] = printed(tfdv.update_schema(schema, current))
    return said


def validate_instance(case: dict[str, Any]) -> Any:
    rows = pa.RecordBatch.from_arrays([pa.array(values) for values in case["input"].values()], list(case["input"]))
    options = tfdv.StatsOptions(schema=schema_of(case))
    return anomalies(validation_api.validate_instance(rows, options, case["config"].get("environment")))


def sliced_statistics(case: dict[str, Any]) -> Any:
    # The slicer makes sets of the lists it is given.
    slicers = [slicing_util.get_feature_value_slicer(dict(spec)) for spec in case["config"]["slice"]]
    parts: dict[str, list[Any]] = {}
    for name, part in slicing_util.generate_slices(batch(case["input"]), [slicing_util.default_slicer, *slicers]):
        parts.setdefault(name, []).append(part)
    said = []
    for name, found in sorted(parts.items()):
        rows = pa.Table.from_batches(found).combine_chunks().to_batches()[0]
        dataset = stats_impl.generate_statistics_in_memory(rows, tfdv.StatsOptions()).datasets[0]
        means = {
            f"{feature.path.step[0]}_mean": [feature.num_stats.mean]
            for feature in dataset.features
            if feature.WhichOneof("stats") == "num_stats"
        }
        said.append({"name": name, "num_examples": int(dataset.num_examples), **nine_digits(means)})
    return said


def cross_feature(case: dict[str, Any]) -> Any:
    generator = cross_feature_stats_generator.CrossFeatureStatsGenerator(sample_rate=1.0)
    state = generator.add_input(generator.create_accumulator(), batch(case["input"]))
    return [printed(pair) for pair in generator.extract_output(state).cross_features]


KINDS = {
    "statistics": statistics_case, "infer_schema": infer_schema, "validate": validate,
    "validate_instance": validate_instance, "sliced_statistics": sliced_statistics, "cross_feature": cross_feature,
}  # fmt: skip


def main(path: Path) -> None:
    document = json.loads(path.read_text("utf-8"))
    cases = document.pop("cases")
    for case in cases:
        case["expected"] = KINDS[case["kind"]](case)
    head = json.dumps(document, indent=1).removesuffix("\n}")
    lines = ",\n".join(json.dumps(case) for case in cases)
    path.write_text(f'{head},\n "cases": [\n{lines}\n]\n}}\n', "utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
