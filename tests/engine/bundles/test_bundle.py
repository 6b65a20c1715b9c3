"""The saved program: equal bytes, a fresh process without the user's code, and no tampering unnoticed."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from drivetrain import data
from drivetrain.digest import digest_tree
from drivetrain.engine import Bundle, BundleFn, analyze, apply, export_model, ops
from drivetrain.errors import InputError
from drivetrain.tests.engine.bundles.resealing import reseal
from drivetrain.tests.engine.same_bits import assert_same
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytestmark = pytest.mark.engine


def preprocess(columns: ops.Columns) -> ops.Columns:
    return {
        "delay": ops.z_score(ops.fill_missing(columns["delay"], 0.0)),
        "speed": ops.fill_missing(ops.min_max(columns["speed"]), -1.0),
        "hour": ops.bucketize(columns["hour"], 4),
        "carrier": ops.vocabulary(columns["carrier"], oov_buckets=3),
        "night": ops.fill_missing((columns["hour"] < 6) | (columns["hour"] > 21), False),
        "late": ops.cast(ops.fill_missing(columns["arrival"], 0.0) > 15.0, "float32"),
    }


def rows(count: int, seed: int = 0) -> pa.Table:
    rng = np.random.default_rng(seed)
    words = np.array(["UA", "AA", "DL", "", "ÅØ", "never" if seed else "B6"])[rng.integers(0, 6, count)]
    missing = rng.random((4, count)) < 0.1
    return pa.table(
        {
            "delay": pa.array(rng.normal(10, 40, count), mask=missing[0]),
            "speed": np.where(missing[1], np.nan, rng.normal(size=count)),
            "hour": pa.array(rng.integers(0, 24, count), mask=missing[2]),
            "carrier": pa.array(words, mask=missing[3]),
            "arrival": pa.array(rng.integers(-30, 90, count), mask=missing[0]),
        }
    )


PARAMS = {"layers": [{"w": np.linspace(-1, 1, 8, dtype=np.float32)}], "unused": np.ones(3, np.float32)}
FEATURES = ("delay", "speed", "hour", "carrier")


def model(params: Any, features: Any) -> Any:
    numbers = jnp.stack([features[name].astype(jnp.float32) for name in FEATURES], -1)
    return jnp.tanh(numbers @ params["layers"][0]["w"].reshape(4, 2)) @ jnp.ones(2)


def build(folder: Path) -> Path:
    """Analyse, apply, export below `folder`; gives the model's folder."""
    folder.mkdir(parents=True)
    pq.write_table(rows(2000), folder / "raw.parquet", row_group_size=300)
    source = data.open_parquet([folder / "raw.parquet"])
    analyze(preprocess, source, data.executor("local")).save(folder / "graph")
    apply(folder / "graph", {"train": source}, folder / "examples", data.executor("local"))
    predict = lambda outputs: {"probability": jax.nn.sigmoid(outputs), "pair": jnp.stack([outputs, -outputs], -1)}  # noqa: E731
    export_model(folder / "graph", model, PARAMS, predict, label="late", out=folder / "model")
    return folder / "model"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("built") / "here").parent


def test_equal_inputs_give_equal_bytes_in_another_folder(built: Path, tmp_path: Path) -> None:
    again = build(tmp_path / "elsewhere" / "deeper").parent
    for name in ("graph", "examples", "model"):
        assert digest_tree(again / name) == digest_tree(built / name)
    for file in built.glob("*/**/*"):
        if file.is_file():
            assert str(Path(__file__).parent).encode() not in file.read_bytes(), file  # lines are named, folders not
            assert str(built).encode() not in file.read_bytes(), file


def test_predict_needs_only_what_a_prediction_takes(built: Path) -> None:
    bundle = Bundle.load(built / "model")
    assert set(bundle.signatures["predict"].inputs) == {"delay", "speed", "hour", "carrier"}
    assert set(bundle.signatures["evaluate"].inputs) == {"delay", "speed", "hour", "carrier", "arrival"}
    assert set(bundle.payload.weights) >= {"model/layers/0/w:folded"}  # reshaped once
    assert "model/unused" not in bundle.payload.weights
    assert bundle.signatures["predict"].outputs["pair"].shape == (2,)
    (batch,) = rows(700, 1).combine_chunks().to_batches()
    short = bundle.run("predict", batch.select(["delay", "speed", "hour", "carrier"]))
    whole = bundle.run("evaluate", batch)
    np.testing.assert_array_equal(short["probability"], whole["probability"])
    late = np.nan_to_num(batch["arrival"].to_numpy(zero_copy_only=False)) > 15
    np.testing.assert_array_equal(whole["late"], late)


FRESH = """
import sys, pyarrow as pa, pyarrow.parquet as pq, numpy as np
from drivetrain.engine import Bundle
folder, table = sys.argv[1], pq.read_table(sys.argv[2])
(batch,) = table.combine_chunks().to_batches()
for name in sys.argv[3:]:
    bundle = Bundle.load(f"{folder}/{name}")
    signature = next(iter(bundle.signatures))
    out = bundle.run(signature, batch)
    answers = [bundle.run_row(signature, row) for row in table.to_pylist()]
    rows = {"row/" + k: np.stack([r[k] for r in answers]) for k in out}
    np.savez(name + ".npz", **{"batch/" + k: v for k, v in out.items()}, **rows)
assert not any("test_bundle" in name for name in sys.modules)
"""


def test_batch_and_row_and_fresh_process_agree(built: Path, tmp_path: Path) -> None:
    table = rows(900, 1)
    pq.write_table(table, tmp_path / "table.parquet")
    arguments = [str(built), str(tmp_path / "table.parquet"), "graph", "model"]
    subprocess.run([sys.executable, "-c", FRESH, *arguments], check=True, cwd=tmp_path, timeout=200, env=os.environ)
    (batch,) = table.combine_chunks().to_batches()
    for name in ("graph", "model"):
        with np.load(tmp_path / f"{name}.npz") as file:
            fresh = dict(file)
        bundle = Bundle.load(built / name)
        here = bundle.run(next(iter(bundle.signatures)), batch)
        for key, values in here.items():
            assert_same(fresh[f"batch/{key}"], values)
            np.testing.assert_allclose(fresh[f"row/{key}"], values, atol=1e-6)


def test_a_rows_result_does_not_depend_on_its_batch(built: Path) -> None:
    bundle = Bundle.load(built / "model")
    (batch,) = rows(20_000, 1).combine_chunks().to_batches()
    whole = bundle.run("predict", batch)["probability"]
    for start, size in ((0, 1), (5, 7), (9000, 511), (123, 512), (17, 513), (3, 8193), (0, 0)):
        part = bundle.run("predict", batch.slice(start, size))["probability"]
        assert_same(part, whole[start : start + size])


def test_applied_examples_are_what_the_graph_gives(built: Path) -> None:
    table = data.open_examples(built / "examples", "train")
    assert table.schema.field("late").type == pa.float32()
    assert table.schema.field("carrier").type == pa.int32()
    wanted = Bundle.load(built / "graph").run("transform", rows(2000).combine_chunks().to_batches()[0])
    found = pa.Table.from_batches([batch for shard in table.shards for batch in table.read(shard)])
    for name, values in wanted.items():
        np.testing.assert_array_equal(found[name].to_numpy(), values)


@pytest.mark.beam
@pytest.mark.slow
def test_beam_gives_the_same_bytes(built: Path, tmp_path: Path) -> None:
    source = data.open_parquet([built / "raw.parquet"])
    analyze(preprocess, source, data.executor("beam")).save(tmp_path / "graph")
    apply(tmp_path / "graph", {"train": source}, tmp_path / "examples", data.executor("beam"))
    for name in ("graph", "examples"):
        assert digest_tree(tmp_path / name) == digest_tree(built / name)


def test_an_edited_vocabulary_is_refused_and_resealed_changes_the_answer(built: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(built / "model", tmp_path / "model")
    row = {"delay": 1.0, "speed": 0.0, "hour": 9, "carrier": "UA"}
    before = Bundle.load(copy).run_row("predict", row)["probability"]
    file = copy / "assets" / "vocabulary.carrier.arrow"
    table = pa.ipc.open_file(file.read_bytes()).read_all()
    words = ["XX" if word == "UA" else word for word in table["value"].to_pylist()]
    with pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(pa.table([words, table["count"]], schema=table.schema))
    with pytest.raises(InputError, match=r"assets/vocabulary\.carrier\.arrow does not match its digest"):
        Bundle.load(copy)
    reseal(copy)
    assert Bundle.load(copy).run_row("predict", row)["probability"] != before


def test_partial_and_newer_bundles_are_refused(built: Path, tmp_path: Path) -> None:
    files = sorted(file.relative_to(built / "model") for file in (built / "model").rglob("*") if file.is_file())
    for number, file in enumerate(files):
        copy = shutil.copytree(built / "model", tmp_path / f"{number}a")
        (copy / file).unlink()
        with pytest.raises(InputError, match=str(file.name)):
            Bundle.load(copy)
        copy = shutil.copytree(built / "model", tmp_path / f"{number}b")
        (copy / file).write_bytes((copy / file).read_bytes()[:-7])
        with pytest.raises(InputError, match=str(file.name)):
            Bundle.load(copy)
    copy = shutil.copytree(built / "model", tmp_path / "newer")
    manifest = json.loads((copy / "manifest.json").read_text())
    (copy / "manifest.json").write_text(json.dumps({**manifest, "version": 99}))
    with pytest.raises(InputError, match="bundle format 99"):
        Bundle.load(copy)


SETTINGS = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@SETTINGS
@given(st.data())
def test_fuzzed_files_never_do_more_than_refuse(built: Path, tmp_path: Path, data: st.DataObject) -> None:
    """Even with a manifest built to agree: whatever is read is checked before anything runs."""
    copy = tmp_path / "copy"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(built / "model", copy)
    file = copy / data.draw(st.sampled_from(["manifest.json", "graph.json"]))
    value = json.loads(file.read_text())
    junk = st.one_of(st.none(), st.booleans(), st.integers(-3, 99), st.text(max_size=5), st.just([]), st.just({}))
    place: Any = value
    while True:
        keys = list(range(len(place))) if isinstance(place, list) else sorted(place)
        key = data.draw(st.sampled_from(keys))
        if isinstance(place[key], (list, dict)) and place[key] and data.draw(st.booleans()):
            place = place[key]
            continue
        place[key] = data.draw(junk)
        break
    file.write_text(json.dumps(value))
    if file.name == "graph.json":
        reseal(copy)
    try:
        Bundle.load(copy)
    except InputError as error:
        assert str(copy) in str(error)  # noqa: PT017  # a load that still works is as good as a refusal


def test_bundle_fn_travels_by_name(built: Path) -> None:
    import pickle

    fn = BundleFn(built / "model", "evaluate", keep=("carrier",))
    fn.setup()
    sent = pickle.dumps(fn)
    assert len(sent) < 1000
    (batch,) = rows(10).combine_chunks().to_batches()
    out = pickle.loads(sent)(batch)
    assert out.schema.names == ["carrier", "probability", "pair", "late"]
    assert out.column("pair").type == pa.list_(pa.float32(), 2)


def test_models_that_do_not_fit_are_refused_at_export(built: Path, tmp_path: Path) -> None:
    identity = lambda outputs: {"p": outputs}  # noqa: E731
    for apply_fn, predict, label, says in (
        (model, identity, "nope", "no output 'nope'"),
        (lambda p, f: f["late"], identity, "late", "there is no 'late' in f "),
        (model, lambda outputs: outputs, "late", "predict returned"),
        (model, lambda outputs: {"p": None}, "late", "prediction 'p' is None"),
        (model, lambda outputs: {"late": outputs}, "late", "has the label's name"),
        (lambda p, f: f["delay"].sum(), identity, "late", "one value or vector per row"),
        (lambda p, f: f["delay"][:, None][:, :0], identity, "late", "of one place or more"),
    ):
        with pytest.raises(InputError, match=says):
            export_model(built / "graph", apply_fn, PARAMS, predict, label=label, out=tmp_path / "out")
    with pytest.raises(InputError, match="is not a bundle"):
        Bundle.load(tmp_path)
    for number in (9, 10):
        shutil.copytree(built / "model", tmp_path / "serving" / str(number))
    with pytest.raises(InputError, match=r"it holds versions: name one, the newest is .*serving/10"):
        Bundle.load(tmp_path / "serving")
    with pytest.raises(InputError, match="no signature 'nope'"):
        Bundle.load(built / "model").run_row("nope", {})


def test_stages_between_host_nodes_and_odd_dtypes_export(tmp_path: Path) -> None:
    """Device → host → device, a captured table, bfloat16 params and features."""
    table = np.arange(12.0).reshape(4, 3)

    def fn(c: ops.Columns) -> ops.Columns:
        return {
            "row": jnp.asarray(table)[ops.vocabulary(c["w"])],
            "half": ops.cast(c["x"], "bfloat16"),
            "floor": ops.vocabulary(jnp.floor(c["x"] / 2).astype(jnp.int32)),
            "y": c["y"],
        }

    def apply_fn(params: Any, features: Any) -> Any:
        total = (features["row"] @ params).astype(jnp.float32)[:, 0] + features["half"].astype(jnp.float32)
        return total + 100 * features["floor"]

    raw = pa.table({"x": [1.0, 2.0, 3.0], "w": ["a", "b", "a"], "y": [0.0, 1.0, 0.0]})
    pq.write_table(raw, tmp_path / "raw.parquet")
    source = data.open_parquet([tmp_path / "raw.parquet"])
    analyze(fn, source, data.executor("local")).save(tmp_path / "graph")
    params = jnp.ones((3, 1), jnp.bfloat16)
    export_model(tmp_path / "graph", apply_fn, params, lambda o: {"p": o}, label="y", out=tmp_path / "model")
    bundle = Bundle.load(tmp_path / "model")
    assert bundle.signatures["predict"].inputs.keys() == {"x", "w"}
    assert bundle.payload.weights["model/params"].dtype == jnp.bfloat16
    (batch,) = raw.combine_chunks().to_batches()
    # floor(x / 2) is 0, 1, 1; the vocabulary puts 1 first.
    wanted = table[[0, 1, 0]].sum(axis=1) + [1, 2, 3] + 100 * np.array([1, 0, 0])
    np.testing.assert_allclose(bundle.run("predict", batch)["p"], wanted, rtol=1e-2)
    rows = np.array([bundle.run_row("predict", row)["p"] for row in raw.to_pylist()])
    np.testing.assert_allclose(rows, wanted, rtol=1e-2)


@pytest.mark.parametrize(
    "names",
    [("t0", "t1"), ("t1", "t0"), ("built/t0", "t0"), ("inlined/0/t0", "t1:folded")],
    ids="-".join,
)
def test_params_may_be_called_as_the_graphs_own_tensors(built: Path, tmp_path: Path, names: tuple[str, str]) -> None:
    factor, offset = names

    def apply_fn(params: Any, features: Any) -> Any:
        scaled = jax.nn.relu(features["delay"] * 2.0) * params[factor]
        return jnp.tanh(scaled + params[offset]) * params[factor]

    params = {factor: np.float32(0.5), offset: np.float32(0.25)}
    export_model(built / "graph", apply_fn, params, lambda o: {"p": o}, label="late", out=tmp_path / "model")
    (batch,) = rows(50, seed=6).to_batches()
    features = Bundle.load(built / "graph").run("transform", batch)
    found = Bundle.load(tmp_path / "model").run("predict", batch)["p"]
    np.testing.assert_allclose(found, apply_fn(params, features), rtol=1e-6, atol=1e-6)


def test_a_stream_of_batches_comes_in_order_and_fails_in_its_turn(built: Path) -> None:
    bundle = Bundle.load(built / "model")
    batches = rows(900, seed=5).to_batches(100)
    found = list(bundle.run_stream("predict", iter(batches)))
    for batch, one in zip(batches, found, strict=True):
        np.testing.assert_array_equal(one["probability"], bundle.run("predict", batch)["probability"])
    stream = bundle.run_stream("predict", [batches[0], batches[1].drop_columns(["delay"]), batches[2]])
    assert len(next(stream)["probability"]) == 100
    with pytest.raises(InputError, match="column 'delay' is missing"):
        list(stream)
    with pytest.raises(InputError, match="no signature"):
        next(bundle.run_stream("nothing", batches))
