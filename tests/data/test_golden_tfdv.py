"""What TFDV 1.16 printed for given data and configuration, and what we find for the same.

Where TFDV is wrong or can be bettered, `golden_tfdv_rules` works out the better answer from the input by numpy or by
counting, and the case must give that (docs/tfdv-differences.md says why). `DRIVETRAIN_GOLDEN=folder` reads
`tfdv_cases.json` from another folder. `tests/golden/tfdv_oracle.py` makes TFDV print its answers.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import os
from pathlib import Path
from typing import Any

import golden_tfdv_beyond as beyond  # type: ignore[import-not-found]  # as below
import golden_tfdv_comparators as comparators  # type: ignore[import-not-found]  # as below
import golden_tfdv_rules as rules  # type: ignore[import-not-found]  # conftest puts this folder on the path
import golden_tfdv_statistics as columns  # type: ignore[import-not-found]  # as above
import golden_tfdv_updates as updates  # type: ignore[import-not-found]  # as above
import golden_tfdv_weighted as weighted  # type: ignore[import-not-found]  # as above
import pyarrow as pa
import pytest
from drivetrain.data import (
    Anomalies,
    SchemaError,
    StatisticsAccumulator,
    checks_from_pbtxt,
    infer_schema,
    update_schema,
    validate,
    validate_instance,
)
from drivetrain.data.drift_skew.compare import Comparison
from drivetrain.data.schemas.pbtxt import parse
from drivetrain.data.schemas.pbtxt_read import schema_from_pbtxt
from drivetrain.data.schemas.pbtxt_write import schema_to_pbtxt
from drivetrain.data.schemas.schema_proto import SCHEMA_PROTO
from drivetrain.data.stats.document import Statistics, from_states
from drivetrain.data.stats.options import StatisticsOptions, slicings
from drivetrain.errors import InputError

FOLDER = Path(os.environ.get("DRIVETRAIN_GOLDEN") or Path(__file__).parent.parent / "golden")
FILES = [file for file in (FOLDER / "tfdv_cases.json", FOLDER / "tfdv_more.json") if file.is_file()]
# A folder of other cases may hold none of these; pytest then says that this test was skipped.
CASES: list[dict[str, Any]] = [case for file in FILES for case in json.loads(file.read_text("utf-8"))["cases"]]

# What we cannot do yet, by case. A case that we can do must leave this table.
NOT_YET: dict[str, str] = {}


class NotYetError(Exception):
    """The case asks for what there is no call for."""


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_golden(case: dict[str, Any]) -> None:
    reason = NOT_YET.get(case["name"])
    if reason is None:
        check(case)
        return
    with contextlib.suppress(NotYetError, AssertionError):
        check(case)
        pytest.fail(f"{case['name']} can be done now: take it out of the table ({reason})", pytrace=False)


def check(case: dict[str, Any]) -> None:
    runners = {"infer_schema": check_inference, "validate": check_validation, "statistics": check_statistics}
    runners |= {"sliced_statistics": check_slices, "cross_feature": check_pairs, "validate_instance": check_instances}
    if case["kind"] not in runners:
        raise NotYetError(case["kind"])
    runners[case["kind"]](case)


# --- data


def array_of(column: dict[str, Any]) -> pa.Array:
    """A case's column: values spelled as JSON, of an Arrow type by name; lists give a list column.

    The name is that of the whole type or of the values in a row's list: the values say which.
    """
    inner, named = type_of(column["type"])
    spelled = plain if pa.types.is_floating(inner) or pa.types.is_binary(inner) else as_is
    values = [spelled(value) for value in column["values"]]
    lists, leaf = rules.depth(values)
    for _ in range(lists if leaf else max(lists, named + (named + lists > 0))):
        inner = pa.list_(inner)
    return pa.array(values, inner)


def type_of(name: str) -> tuple[pa.DataType, int]:
    """The innermost type of a name, and how many lists are around it."""
    for head in ("large_list<", "list<"):
        if name.startswith(head):
            inner, levels = type_of(name[len(head) : -1].partition(": ")[2])
            return inner, levels + 1
    if name not in TYPES:
        raise NotYetError(name)
    return TYPES[name], 0


TYPES = {
    name: getattr(pa, name)()
    for name in (
        "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float32", "float64", "string",
        "large_string", "binary",
    )
} | {"bytes": pa.binary(), "bool": pa.bool_(), "double": pa.float64(), "float": pa.float32()}  # fmt: skip


def as_is(value: Any) -> Any:
    return value


def plain(value: Any) -> Any:
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return bytes.fromhex(value["bytes_hex"])
    numbers = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}
    return numbers.get(value, value) if isinstance(value, str) else value


def values_of(columns: dict[str, Any]) -> dict[str, list[Any]]:
    """The columns' values as they are stored, floats of 32 bits rounded."""
    return {name: array_of(column).to_pylist() for name, column in columns.items()}


def statistics_of(columns: dict[str, Any], **options: Any) -> Statistics:
    arrays = {name: array_of(column) for name, column in columns.items()}
    state = StatisticsAccumulator(options=StatisticsOptions(**options))
    state.add_batch(pa.RecordBatch.from_arrays(list(arrays.values()), list(arrays)))
    return from_states({"data": state})


# --- inference


def check_inference(case: dict[str, Any]) -> None:
    config = dict(case["config"])
    options: dict[str, Any] = {}  # those that the case names: for all others the library's defaults must do as TFDV's
    if "max_string_domain_size" in config:
        options["max_values"] = int(config.pop("max_string_domain_size"))
    if "infer_feature_shape" in config:
        options["shapes"] = config.pop("infer_feature_shape")
    if str(config.pop("enable_semantic_domain_stats", False)) == "True":
        options["semantics"] = True
    if config:
        raise NotYetError(f"options {list(config)}")
    found = parse(schema_to_pbtxt(infer_schema(statistics_of(case["input"]), **options)).text, SCHEMA_PROTO, "Schema")
    assert rules.by_feature(found.value) == rules.inferred(case)


# --- validation


# Of TFDV's statistics options those that change nothing here: all values are looked at, and the rules ask for as many
# buckets and top values as TFDV printed.
OPTIONS = {
    "num_quantiles_histogram_buckets", "num_histogram_buckets", "num_top_values", "num_rank_histogram_buckets",
    "num_values_histogram_buckets", "epsilon", "frequency_threshold", "label_feature", "feature_allowlist",
    "enable_semantic_domain_stats", "experimental_use_sketch_based_topk_uniques", "schema",
}  # fmt: skip
CONTROLS = {"previous": "previous_span", "serving": "serving", "previous_version": "previous_version"}


def check_validation(case: dict[str, Any]) -> None:
    config = case["config"]
    if set(config.get("stats_options") or {}) - OPTIONS:
        raise NotYetError("options of the statistics")
    controls = {key: statistics_of(case[name]) for key, name in CONTROLS.items() if name in case}
    try:
        schema, _ = schema_from_pbtxt(config["schema"])
        schema = rules.with_severities(schema, config.get("severity_overrides") or [])
        schema = dataclasses.replace(schema, checks=checks_from_pbtxt(config.get("custom_validation") or ""))
        data: Any = statistics_of(case["input"])
        if weighted.measured(case) and rules.rows_of(case):
            data = pa.table({name: array_of(column) for name, column in case["input"].items()})
        found = validate(data, schema, environment=config.get("environment"), **controls)
    except SchemaError as error:
        by_feature: dict[str, list[tuple[str, str]]] = {}
        for problem in error.problems:
            by_feature.setdefault(problem.feature or "", []).append((problem.anomaly, "ERROR"))
        assert {name: sorted(kinds) for name, kinds in by_feature.items()} == rules.problems(case)
        return
    assert by_name(found) == rules.anomalies(case)
    weighted.check_numbers(case, found)
    check_distances(case)
    if "updated_schema" in case["expected"]:
        patch = update_schema(schema, statistics_of(case["input"]))
        after = parse(schema_to_pbtxt(patch.accept()).text, SCHEMA_PROTO, "Schema").value
        assert {name: updates.tidied(one) for name, one in rules.by_feature(after).items()} == updates.updated(case)


def check_distances(case: dict[str, Any]) -> None:
    """The distances themselves: TFDV's or the counted one."""
    names = {"infinity_norm": "l_infinity", "jensen_shannon_divergence": "jensen_shannon"}
    printed = {info["path"]["step"][0] for info in case["expected"].get("drift_skew_info", ())}
    for feature in rules.wanted(case).get("feature", ()):
        if feature.get("name") not in printed:
            continue
        for change, side in comparators.SIDES.items():
            for key, value in comparators.measured(case, feature, change).items():
                if value is None:
                    continue
                source = feature[f"{change}_comparator"][key].get("source", {}).get("type")
                name = names.get(key, key) + ("_quantiles" if source == "QUANTILES" else "")
                both = (statistics_of(case[one]).column("data", feature["name"]) for one in ("input", side))
                assert Comparison(*both).measure(name).value == pytest.approx(
                    value, rel=1e-6, abs=comparators.about(case)
                )


def by_name(found: Anomalies) -> dict[str, list[tuple[str, str]]]:
    ours: dict[str, list[tuple[str, str]]] = {}
    for anomaly in found.anomalies:
        ours.setdefault(anomaly.feature or "", []).append((anomaly.type, anomaly.severity))
    return {name: sorted(kinds) for name, kinds in ours.items()}


def check_instances(case: dict[str, Any]) -> None:
    """Examples one by one; their columns have no type but that of their values."""
    schema, _ = schema_from_pbtxt(case["config"]["schema"])
    columns = {name: {"type": rules.type_name(rows), "values": rows} for name, rows in case["input"].items()}
    rows = values_of(columns)
    examples = [dict(zip(rows, row, strict=True)) for row in zip(*rows.values(), strict=True)]
    found = validate_instance(examples, schema, environment=case["config"].get("environment"))
    assert by_name(found) == rules.of_instances({**case, "input": columns})


# --- statistics


def check_statistics(case: dict[str, Any]) -> None:
    whole = "sample_rate" in case["config"] and int(case["expected"].get("num_examples", 0)) == rules.rows_of(case)
    if set(case["config"]) - OPTIONS - {"weight_feature"} - ({"sample_rate"} if whole else set()):
        raise NotYetError(f"options {list(case['config'])}")
    weight = case["config"].get("weight_feature")
    found = statistics_of(case["input"], weight=weight)
    assert found.splits == {"data": int(case["expected"].get("num_examples", 0))}
    for expected in case["expected"]["features"]:
        name = expected["path"]["step"][0]
        ours = found.features("data")[name]
        if weight is not None:
            rows, weights = (array_of(case["input"][column]).to_pylist() for column in (name, weight))
            beyond.check_weighted(ours, expected, rows, weights)
        rows = array_of(case["input"][name]).to_pylist()
        column = found.column("data", name).levels[-1]
        if ours["type"] == "list":
            columns.check_lists(ours, expected, rows, column.table)
        else:
            columns.check_column(ours, expected, [value for value in rows if value is not None], column.table)


def check_slices(case: dict[str, Any]) -> None:
    # No column of a name makes no slice in TFDV, unsaid; here it is an error. A list of no values asks for no slice.
    names = {name for slicing in case["config"]["slice"] for name in slicing} - set(case["input"])
    slices = slicings([one for one in case["config"]["slice"] if [] not in one.values()])
    if names:
        with pytest.raises(InputError, match="there is no column"):
            statistics_of(case["input"], slices=slices)
        return
    beyond.check_slices(case, statistics_of(case["input"], slices=slices), values_of(case["input"]))


def check_pairs(case: dict[str, Any]) -> None:
    if set(case.get("config") or {}) - {"sample_rate"}:
        raise NotYetError(f"options {list(case['config'])}")
    beyond.check_pairs(case, statistics_of(case["input"], correlations=True), values_of(case["input"]))
