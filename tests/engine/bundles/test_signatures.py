"""Signatures: typed inputs with defaults, in any order; what a bundle says of itself."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from drivetrain import data
from drivetrain.digest import digest_tree
from drivetrain.engine import Bundle, analyze, apply, export_model, ops
from drivetrain.engine.bundles.manifest import read_manifest, signatures_of
from drivetrain.errors import InputError
from drivetrain.tests.fixtures.bundles.make import build, flights

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("signatures") / "made"
    build(folder)
    return folder / "model"


def batch_of(table: pa.Table) -> pa.RecordBatch:
    (batch,) = table.combine_chunks().to_batches()
    return batch


def test_a_column_with_a_default_may_be_absent(model: Path) -> None:
    bundle = Bundle.load(model)
    table = flights(50, 1)
    rows = table.num_rows
    without = table.drop_columns(["origin", "hour"])
    spelled = without.append_column("origin", pa.nulls(rows, pa.string())).append_column("hour", pa.array([12] * rows))
    found, wanted = (bundle.run("predict", batch_of(given)) for given in (without, spelled))
    by_row = [bundle.run_row("predict", row) for row in without.to_pylist()]
    for name, values in wanted.items():
        np.testing.assert_array_equal(found[name], values)
        np.testing.assert_allclose(np.array([row[name] for row in by_row]), values, atol=1e-6)
    assert not np.array_equal(wanted["pair"], bundle.run("predict", batch_of(table))["pair"])
    assert bundle.signatures["predict"].defaults == {"origin": None, "hour": 12}


def test_a_transform_is_applied_to_rows_without_them(model: Path, tmp_path: Path) -> None:
    table = flights(50, 1)
    without = table.drop_columns(["origin", "hour"])
    graph = Bundle.load(model.parent / "graph")
    wanted = graph.run("transform", batch_of(without))
    pq.write_table(without, tmp_path / "short.parquet")
    source = data.open_parquet([tmp_path / "short.parquet"])
    apply(model.parent / "graph", {"train": source}, tmp_path / "made", data.executor("local"))
    found = pq.read_table(sorted((tmp_path / "made" / "split=train").glob("*.parquet")))
    for name, values in wanted.items():
        np.testing.assert_array_equal(found[name].to_numpy(), values)
    pq.write_table(table.drop_columns(["carrier"]), tmp_path / "torn.parquet")
    torn = data.open_parquet([tmp_path / "torn.parquet"])
    with pytest.raises(InputError, match="there is no column 'carrier'"):
        apply(model.parent / "graph", {"train": torn}, tmp_path / "none", data.executor("local"))


def test_a_given_null_is_not_replaced_by_the_default(model: Path) -> None:
    bundle = Bundle.load(model)
    row = {"dep_delay": 1.0, "distance": 900, "carrier": "UA", "origin": "JFK"}
    absent, null, noon = (bundle.run_row("predict", row | extra) for extra in ({}, {"hour": None}, {"hour": 12}))
    assert absent["probability"] == noon["probability"] != null["probability"]


def test_a_column_without_a_default_is_required(model: Path) -> None:
    bundle = Bundle.load(model)
    table = flights(3, 1)
    with pytest.raises(InputError, match="column 'carrier' is missing"):
        bundle.run("predict", batch_of(table.drop_columns(["carrier"])))
    with pytest.raises(InputError, match="column 'distance' is missing"):
        bundle.run_row("predict", {"dep_delay": 1.0, "carrier": "UA"})
    for lack in (
        lambda: bundle.run("predict", batch_of(table.drop_columns(["carrier", "distance"]))),
        lambda: bundle.run_row("predict", {"dep_delay": 1.0}),
    ):
        with pytest.raises(
            InputError, match=r"columns '(carrier|distance)', '(carrier|distance)' are missing: "
        ) as refusal:
            lack()
        assert "'hour'" not in refusal.value.message, "it has a default"
        fix = str(refusal.value.fix)
        assert fix.startswith("give them beside ")
        assert "dep_delay" in fix


def test_a_column_that_is_there_twice_is_told_as_such(model: Path) -> None:
    batch = batch_of(flights(3, 1))
    twice = pa.RecordBatch.from_arrays(
        [*batch.columns, batch.column("carrier")], names=[*batch.schema.names, "carrier"]
    )
    with pytest.raises(InputError, match="column 'carrier' is there 2 times"):
        Bundle.load(model).run("predict", twice)


def test_what_is_no_table_or_row_is_told_with_what_is_taken(model: Path) -> None:
    bundle = Bundle.load(model)
    table = flights(3, 1)
    for stranger in ([1, 2], None, "flights.csv", np.zeros(3)):
        for run in (
            bundle.run,
            bundle.run_arrow,
            bundle.run_each,
            lambda *both: list(bundle.run_stream(both[0], [both[1]])),
        ):
            with pytest.raises(InputError, match="is not a table in memory") as caught:
                run("predict", stranger)
            assert "a mapping from column to values" in str(caught.value.fix)
    rows: tuple[Any, ...] = ([1], 1.0, None, "dep_delay", batch_of(table))
    for row in rows:
        with pytest.raises(InputError, match="a row is a mapping from column to value, not") as caught:
            bundle.run_row("predict", row)
        assert "dep_delay" in str(caught.value.fix)
    names: tuple[Any, ...] = ({"dep_delay": 1.0}, ["predict"], None)
    for name in names:
        with pytest.raises(InputError, match="a signature is named by text"):
            bundle.run_row(name, {})
        with pytest.raises(InputError, match="a signature is named by text"):
            bundle.run(name, batch_of(table))


def test_a_bundle_is_saved_where_a_text_says(model: Path, tmp_path: Path) -> None:
    Bundle.load(str(model)).save(str(tmp_path / "copy"))
    assert digest_tree(tmp_path / "copy") == digest_tree(model)
    with pytest.raises(InputError, match="is not empty"):
        Bundle.load(model).save(str(tmp_path / "copy"))


def test_order_and_other_columns_do_not_matter(model: Path) -> None:
    bundle = Bundle.load(model)
    table = flights(40, 1)
    shuffled = table.select(table.column_names[::-1]).append_column("stranger", pa.array(["?"] * 40))
    for name, values in bundle.run("evaluate", batch_of(table)).items():
        np.testing.assert_array_equal(bundle.run("evaluate", batch_of(shuffled))[name], values)
    row = table.to_pylist()[0]
    assert (
        bundle.run_row("predict", dict(reversed(row.items())) | {"stranger": "?"})["probability"]
        == bundle.run_row("predict", row)["probability"]
    )


def test_defaults_are_checked_where_they_are_given(model: Path) -> None:
    bundle = Bundle.load(model)
    with pytest.raises(InputError, match="a default for 'nope', which nothing reads"):
        bundle.with_defaults({"nope": 1})
    with pytest.raises(InputError, match="column 'hour' is 'noon', the graph reads int64"):
        bundle.with_defaults({"hour": "noon"})


def test_rules_for_the_request_log_come_with_the_bundle(model: Path, tmp_path: Path) -> None:
    transform = Bundle.load(model.parent / "graph").with_request_log({"carrier": "hash", "origin": "deny"})
    transform.save(tmp_path / "graph")
    export_model(
        tmp_path / "graph", lambda params, features: features["carrier"] * params + features["origin"], np.float32(2),
        lambda output: {"twice": output}, label="late", out=tmp_path / "model",
    )  # fmt: skip
    signature = Bundle.load(tmp_path / "model").signatures["predict"]
    assert signature.request_log == {"carrier": "hash", "origin": "deny"}
    body, _ = read_manifest(tmp_path / "model")
    assert signatures_of(body, "model")["predict"] == signature
    assert not Bundle.load(model).signatures["predict"].request_log
    with pytest.raises(InputError, match="a rule for 'nope', which nothing reads"):
        transform.with_request_log({"nope": "deny"})
    with pytest.raises(InputError, match="no rule 'mask' for 'hour'"):
        transform.with_request_log({"hour": "mask"})


def test_a_bundle_says_which_whole_numbers_are_times(tmp_path: Path) -> None:
    """By the types of the data that was analysed, lists included."""
    table = pa.table(
        {
            "day": pa.array([0, 1], pa.date32()),
            "at": pa.array([0, 1], pa.timestamp("ns", "UTC")),
            "days": pa.array([[0], [1, 2]], pa.list_(pa.date64())),
            "unread": pa.array([0, 1], pa.date32()),
            "number": [1, 2],
        }
    )
    analyze(
        lambda c: {
            "x": ops.timestamp_cycle(c["day"], "month")[:, 0] + ops.timestamp_cycle(c["at"], "hour")[:, 0],
            "many": ops.to_dense(c["days"], 2, fill=0),
            "label": c["number"],
        },
        table,
    ).save(tmp_path / "graph")
    transform = Bundle.load(tmp_path / "graph")
    ns = "timestamp[ns, tz=UTC]"
    assert transform.signatures["transform"].times == {"day": "date", "at": ns, "days": "date"}
    export_model(
        tmp_path / "graph", lambda params, features: features["x"] * params, np.float32(2),
        lambda output: {"twice": output}, label="label", out=tmp_path / "model",
    )  # fmt: skip
    signature = Bundle.load(tmp_path / "model").signatures["predict"]
    assert signature.times == {"day": "date", "at": ns}
    body, _ = read_manifest(tmp_path / "model")
    assert signatures_of(body, "model")["predict"] == signature
    with pytest.raises(InputError, match="'nope' is no column of times"):
        transform.with_times({"nope": "date"})
    with pytest.raises(InputError, match="'number' is to be a 'week', which is no time"):
        transform.with_times({"number": "week"})
    with pytest.raises(InputError, match="'number' is to be a 'int32', which is no time"):
        transform.with_times({"number": "int32"})
    assert transform.with_times({"number": "timestamp"}).times["number"] == "timestamp"  # of an earlier release


def test_what_a_bundle_says_of_itself(model: Path) -> None:
    bundle = Bundle.load(model)
    text = repr(bundle)
    assert (
        "predict(dep_delay: float64?, distance: int64?, hour: int64? = 12, carrier: string?, origin: string? = None)"
        in text
    )
    assert "-> probability: float32, pair: float32[2]" in text
    said = bundle.describe()
    manifest = json.loads((model / "manifest.json").read_bytes())
    assert {key: said[key] for key in manifest} == manifest
    assert ["model/dense", "float32", [9, 8]] in said["weights"]
    assert [rows for _, rows in said["assets"]] == [5]  # UA, AA, DL, ÅØ, B6; an empty word is not a word
    assert said["host_ops"]["lookup"] == 1
    (program,) = said["programs"].values()
    assert program["platforms"] == ["cpu", "cuda", "tpu"]
    assert program["ops"]["stablehlo.dot_general"] == 2 * 3  # two products, each lowered for three platforms
    assert bundle.describe() == Bundle.load(model).describe()
