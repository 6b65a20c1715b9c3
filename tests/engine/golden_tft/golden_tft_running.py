"""A TFT case run here: analysed, transformed in a batch and row by row, and compared with what TFT gave."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import golden_tft_rules as rules  # type: ignore[import-not-found]  # conftest puts this folder on the path
import golden_tft_schema as schema  # type: ignore[import-not-found]  # as above
import numpy as np
import pyarrow.parquet as pq
import pytest
from drivetrain import data
from drivetrain.engine import Bundle, analyze, ops
from drivetrain.errors import InputError
from golden_tft_calls import Calls, Made  # type: ignore[import-not-found]  # as above
from golden_tft_data import (  # type: ignore[import-not-found]  # as above
    features_of,
    nothing_known,
    number,
    plain,
    prepared,
    required,
    rows_of,
    table_of,
    weights_with_nan,
)
from golden_tft_grammar import NotUnderstoodError, statements  # type: ignore[import-not-found]  # as above
from golden_tft_names import assigned  # type: ignore[import-not-found]  # as above
from golden_tft_ops import OPS  # type: ignore[import-not-found]  # as above
from golden_tft_recipes import RECIPES  # type: ignore[import-not-found]  # as above
from golden_tft_rules import Run


def check(case: dict[str, Any], folder: Path) -> None:
    """Run a case. Raises AssertionError where it differs, NotUnderstoodError where its text says what is not known."""
    if "raises" in case:
        check_raises(case, folder)
        return
    try:
        run = executed(case, folder)
    except InputError as error:
        if not nothing_known(case, error):
            raise
        return
    for name in run.filled:
        with pytest.raises(InputError, match=f"the weights in column '{name}' have a missing value"):
            executed(case, folder, fill=False)
    expected = case["expected"]
    compare(run, run.rows, expected.get("transformed", []))
    if "bucket_counts" in expected:
        counted = {str(bucket): run.out["b"].tolist().count(bucket) for bucket in map(int, expected["bucket_counts"])}
        assert counted == expected["bucket_counts"]
    later = expected.get("applied_to_new_data")
    if later:
        compare(run, plain(rows_of(later["input"]), run.features), later["output"])
    schema.check_vocabularies(run)
    check_schema(run)


def executed(case: dict[str, Any], folder: Path, *, fill: bool = True) -> Run:
    """Analyse a case's rows by a preprocessing function that calls what its text says."""
    said = statements(case["config"]["ops"])
    features = features_of(case, said)
    rows = prepared(case, plain(rows_of(case["input"]), features), said)
    outputs = case.get("expected", {}).get("output_schema", {}).get("feature", [])
    first = (case.get("expected", {}).get("transformed") or [{}])[0]
    filled = weights_with_nan(rows, said)
    found: list[Calls] = []
    names: dict[str, Made] = {}

    def preprocess(columns: Mapping[str, Any]) -> Any:
        given = {
            name: required(columns[name], feature, rows, fill=fill and name in filled)
            for name, feature in features.items()
        }
        calls = Calls(given, features, rows, first, OPS)
        if "raises" in case and (wrong := misuse(case, features)) is not None:
            return wrong(columns)
        recipe = RECIPES.get(case["config"]["ops"])
        if recipe is not None:
            made = recipe(calls)
            calls.made += made.values()
            names.update(made)
        else:
            calls.run(said)
            names.update(assigned(calls.made, outputs))
        found.append(calls)
        outs = {name: cast(made, outputs, name) for name, made in names.items() if made.value is not None}
        if not outputs:
            outs = {f"out{place}": made.value for place, made in enumerate(calls.made) if made.step is not None}
            outs = {name: value for name, value in outs.items() if not isinstance(value, list)}
        return outs | calls.hidden

    table = table_of(rows, features)
    pq.write_table(table, folder / "data.parquet")
    source = data.open_parquet([folder / "data.parquet"])
    try:
        bundle = analyze(preprocess, source, data.executor("local"), schema=table.schema)
    except InputError as error:
        if isinstance(error.__cause__, NotUnderstoodError):
            raise error.__cause__ from None  # it is the adapter's, and no answer to the case
        raise
    out = transformed(bundle, rows, features)
    return Run(case, features, rows, bundle, out, names, found[-1], filled)


def misuse(case: dict[str, Any], features: Mapping[str, Any]) -> Callable[[Mapping[str, Any]], Any] | None:
    """What a function of a case does wrong that is not an op's: it returns no dict, or wants a missing column."""
    said, raised = case["config"]["ops"], case["raises"][0]
    if re.search(r"not a dict|non-dict|\breturns? ", said) or "must return a Dict" in raised["message"]:
        return lambda columns: None if "None" in said else next(iter(columns.values()))
    named = re.fullmatch(r"'(\w+)'", raised["message"]) if raised["type"] == "KeyError" else None
    if named is not None and named[1] not in features:
        return lambda columns: {named[1]: columns[named[1]]}
    return None


def cast(made: Made, outputs: list[dict[str, Any]], name: str) -> Any:
    """A raw column as the type that the case's author cast it to."""
    kind = next(feature["type"] for feature in outputs if feature["name"] == name)
    whole = made.step is None and getattr(made.value, "dtype", "") == "int32"
    return ops.cast(made.value, "float32") if whole and kind == "FLOAT" else made.value


def transformed(bundle: Bundle, rows: list[dict[str, Any]], features: Any) -> dict[str, Any]:
    """Output name → values; single rows must give what the batch gives."""
    (batch,) = table_of(rows, features).combine_chunks().to_batches() or [None]
    out: dict[str, Any] = bundle.run("transform", batch)
    for place, row in enumerate(rows[:ROWS]):
        for name, value in bundle.run_row("transform", row).items():
            assert rules.close(value, out[name][place], 1e-5, 1e-5), (
                f"{name} of row {place} alone is {value!r}, in a batch {out[name][place]!r}"
            )
    return out


ROWS = 60  # how many rows are also transformed one by one


def compare(run: Run, rows: list[dict[str, Any]], expected: list[dict[str, Any]]) -> None:
    """The transformed rows, by TFT's numbers or by the better ones."""
    out = run.out if rows is run.rows else transformed(run.bundle, rows, run.features)
    assert len(expected) <= len(rows)
    for name in sorted({name for row in expected for name in row}):
        theirs = [number(row[name]) for row in expected]
        ours, wanted, relative, absolute = rules.wanted(run, name, rows, out, theirs)
        for place, (mine, right) in enumerate(zip(ours, wanted, strict=False)):
            found = f"{name} of row {place} {rows[place]}: {_short(mine)}, should be {_short(right)}"
            assert rules.close(mine, right, relative, absolute), f"{found}; TFT {_short(theirs[place])}"


def _short(value: Any) -> str:
    return f"{np.asarray(value).tolist() if not isinstance(value, str) else value!r}"[:200]


def check_schema(run: Run) -> None:
    """TFT's output schema: types, shapes, how many ids."""
    outputs = run.bundle.signatures["transform"].outputs
    for feature in run.case["expected"].get("output_schema", {}).get("feature", []):
        name, made = feature["name"], run.names[feature["name"]]
        if name not in outputs:
            continue  # read off an asset
        ours = outputs[name]
        kind = "BYTES" if "string" in ours.dtype else "FLOAT" if "float" in ours.dtype else "INT"
        assert kind == feature["type"] or made.name in schema.OTHER_TYPES, (
            f"{name}: {ours.dtype}, TFT {feature['type']}"
        )
        if "shape" in feature:
            shape = tuple(int(dim["size"]) for dim in feature["shape"].get("dim", ()))
            as_lists = made.part == "padded text" or (ours.ragged and len(shape) == 1)
            assert as_lists or schema.shape_of(made, shape) == ours.shape, f"{name}: shape {ours.shape}, TFT {shape}"
        else:
            assert ours.ragged, f"{name}: TFT has lists of any length, we {ours}"
        domain = feature.get("int_domain")
        if domain is not None and domain.get("is_categorical"):
            assert ours.size == schema.ids_of(run, made, domain, ours.ragged), f"{name}: {ours.size} ids, TFT {domain}"


def check_raises(case: dict[str, Any], folder: Path) -> None:
    """What TFT raises of, we raise of: with a message of one line that says what to do, and the user's line."""
    if schema.better_than_raising(case):
        schema.check_instead(executed(case, folder))
        return
    with pytest.raises(InputError) as caught:
        executed(case, folder)
    error = caught.value
    assert "the preprocessing function failed" not in error.message, error.message
    assert error.fix, "no fix"
    assert error.where or "row" in error.message, "no line of the user's"
    assert "\n" not in error.message
    for theirs in case["raises"]:
        assert len(error.message) < 300, f"longer than TFT's: {theirs['message'][:80]}"
