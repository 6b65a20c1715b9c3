"""The engine's figures, each as a ratio against a reference measured in the same run.

    python benchmarks/engine.py [--repeat 5] [--json FILE] [--tft PYTHON]

References: decoding the columns used from the same Parquet with pyarrow; the same features by plain numpy and a bare
jitted function; the same function run line by line. `--tft` names the Python of an environment that holds
tensorflow-transform 1.16 (Python 3.11; `pip install tensorflow-transform==1.16.0 apache-beam==2.60.0 dill==0.3.1.1`),
and adds that peer's CPU seconds on the same rows. Behind each figure that has a bar stands whether it is met.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from drivetrain.benchmarks.common import child, decode, flights, interleaved, report, write

if TYPE_CHECKING:
    from drivetrain.engine import Bundle

BARS = {  # figure: bound, and whether it is an upper one
    "transform: analyze / decode, CPU": (2.0, True),
    "transform: apply / decode, CPU": (2.0, True),
    "one row: us": (100.0, True),
    "batch of 512: ours / bare jit and lookup": (1.2, True),
    "bulk inference: rows/s / the bundle's over decoded batches": (0.7, False),
    "graph / eager: times faster": (5.0, False),
    "100 MB table: program, kB": (100.0, True),
    "100 MB table: first call in a new process, s": (1.0, True),
    "TFT from TFRecords / ours, CPU": (30.0, False),
}
PEER = """
import resource, sys, tempfile
import apache_beam as beam, tensorflow as tf, tensorflow_transform as tft, tensorflow_transform.beam as tft_beam
from tensorflow_transform.tf_metadata import schema_utils
from tfx_bsl.public import tfxio
from tfx_bsl.tfxio import parquet_tfxio
def cpu():
    both = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in both)
numeric = ["dep_delay", "dep_time", "sched_dep_time", "distance"]
floats, texts = [*numeric, "hour", "month", "arr_delay"], ["carrier", "origin", "dest"]
spec = {name: tf.io.VarLenFeature(tf.int64 if name in floats else tf.string) for name in floats + texts}
def dense(x, default):
    filled = tft.sparse_tensor_to_dense_with_shape(x, [None, 1], default)
    return tf.squeeze(filled if default == "" else tf.cast(filled, tf.float32), 1)
def preprocess(columns):
    made = {name: tft.scale_to_z_score(dense(columns[name], 0)) for name in numeric}
    made["hour"] = tft.bucketize(dense(columns["hour"], 0), 10)
    for name in texts:
        made[name] = tft.compute_and_apply_vocabulary(dense(columns[name], ""), num_oov_buckets=1)
    made["month"] = tf.cast(dense(columns["month"], 0), tf.int64)
    made["late"] = tf.cast(dense(columns["arr_delay"], 0) > 15.0, tf.float32)
    return made
start = cpu()
schema = schema_utils.schema_from_feature_spec(spec)
if sys.argv[1].endswith(".tfrecord"):
    source = tfxio.TFExampleRecord(sys.argv[1], telemetry_descriptors=["bench"], schema=schema)
else:
    source = parquet_tfxio.ParquetTFXIO(sys.argv[1], column_names=list(spec), telemetry_descriptors=["bench"],
                                        schema=schema)
with beam.Pipeline() as pipeline, tft_beam.Context(tempfile.mkdtemp()):
    raw = pipeline | source.BeamSource()
    (rows, _), _ = (raw, source.TensorAdapterConfig()) | tft_beam.AnalyzeAndTransformDataset(
        preprocess, output_record_batches=True)
    rows | beam.Map(lambda batch: None)
print(cpu() - start)
"""
RECORDS = """
import pyarrow.parquet as pq, sys, tensorflow as tf
def feature(value):
    if value is None:
        return tf.train.Feature()
    if isinstance(value, str):
        return tf.train.Feature(bytes_list=tf.train.BytesList(value=[value.encode()]))
    return tf.train.Feature(int64_list=tf.train.Int64List(value=[value]))
rows = pq.read_table(sys.argv[1]).to_pylist()
examples = [tf.train.Features(feature={name: feature(value) for name, value in row.items()}) for row in rows]
records = [tf.train.Example(features=features).SerializeToString() for features in examples]
with tf.io.TFRecordWriter(sys.argv[2]) as writer:
    for _ in range(10):
        for record in records:
            writer.write(record)
print(0)
"""
OURS = """
import resource, sys, tempfile
from pathlib import Path
from drivetrain import data
from drivetrain.engine import Bundle, analyze
from drivetrain.benchmarks.engine import features
def cpu():
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime
start = cpu()
source, local = data.open_files([Path(sys.argv[1])]), data.executor("local")
bundle = analyze(features, source, local)
columns = source.select(list(bundle.signatures["transform"].inputs)).with_dictionaries()
for shard in range(len(columns.shards)):
    for batch in columns.read(shard):
        bundle.run_arrow("transform", batch)
print(cpu() - start)
"""
ROWS = """
import sys
from drivetrain.benchmarks.engine import one_row
print(*one_row(sys.argv[1]))
"""


def features(columns: Any) -> Any:
    """The transform of the flights example."""
    from drivetrain.engine import ops

    numeric = ("dep_delay", "dep_time", "sched_dep_time", "distance")
    transformed = {name: ops.z_score(ops.fill_missing(columns[name], 0.0)) for name in numeric}
    transformed["hour"] = ops.bucketize(columns["hour"], 10)
    for name in ("carrier", "origin", "dest"):
        transformed[name] = ops.vocabulary(columns[name])
    transformed["month"] = ops.cast(columns["month"], "int32")
    transformed["late"] = ops.cast(ops.fill_missing(columns["arr_delay"], 0.0) > 15.0, "float32")
    return transformed


SIZES = {"hour": 11, "carrier": 18, "origin": 5, "dest": 107, "month": 13}


def model(params: Any, inputs: Any) -> Any:
    """Wide and deep, as the flights example has it."""
    import jax
    import jax.numpy as jnp

    numbers = jnp.stack([inputs[name] for name in ("dep_delay", "dep_time", "sched_dep_time", "distance")], -1)
    categories = jnp.concatenate([jax.nn.one_hot(inputs[name], size) for name, size in SIZES.items()], -1)
    x = jnp.concatenate([numbers, categories], -1)
    for w in params["deep"]:
        x = jax.nn.relu(x @ w)
    return (categories @ params["wide"] + x @ params["out"])[:, 0]


def parameters() -> Any:
    """Fixed random weights."""
    random = np.random.default_rng(0)

    def normal(*shape: int) -> Any:
        return (random.normal(size=shape) / np.sqrt(shape[0])).astype(np.float32)

    width = sum(SIZES.values())
    return {"deep": [normal(4 + width, 64), normal(64, 32)], "wide": normal(width, 1), "out": normal(32, 1)}


def transform(folder: Path, repeat: int) -> dict[str, float]:
    """Analyse and apply 3.4 M rows, against decoding the columns they use."""
    from drivetrain import data
    from drivetrain.engine import BundleFn, analyze, apply

    path = write(flights(), folder / "ten.parquet", 10)
    source, local = data.open_files([path]), data.executor("local")
    bundle = analyze(features, source, local)
    bundle.save(folder / "graph")
    used = list(bundle.signatures["transform"].inputs)
    fn = BundleFn(folder / "graph", "transform")
    columns = source.select(used).with_dictionaries()

    def applied() -> None:
        for shard in range(len(columns.shards)):
            for batch in columns.read(shard):
                fn(batch)

    turns = iter(range(1_000))
    works: dict[str, Callable[[], object]] = {
        "decode": lambda: decode(path, used),
        "analyze": lambda: analyze(features, source, local),
        "apply": applied,
        "apply and write": lambda: apply(folder / "graph", {"all": source}, folder / f"out-{next(turns)}", local),
    }
    times = interleaved(works, repeat)
    figures = {f"transform: {name} CPU s": cpu for name, (cpu, _) in times.items()}
    for name in ("analyze", "apply", "apply and write"):
        figures[f"transform: {name} / decode, CPU"] = times[name][0] / times["decode"][0]
    return figures


def served(folder: Path) -> Bundle:
    """The bundle that serves: the saved transform, and wide and deep behind it; made by the first call."""
    import jax
    from drivetrain.engine import Bundle, export_model

    if not (folder / "model").exists():
        predict = lambda y: {"p": jax.nn.sigmoid(y)}  # noqa: E731
        export_model(folder / "graph", model, parameters(), predict, label="late", out=folder / "model")
    return Bundle.load(folder / "model")


def inference(folder: Path, repeat: int) -> dict[str, float]:
    """BulkInferrer on 10.1 M rows in three splits, with two columns kept, against the bundle alone.

    Loading, decoding and writing are its own; the bundle gets batches that are decoded already, one after the other.
    The first pass, which compiles, does not count: later ones use what it kept, also in other processes.
    """
    from drivetrain import data
    from drivetrain.components import BulkInferrer
    from drivetrain.engine import BundleFn
    from drivetrain.metadata import Examples, Model

    served(folder)
    model, examples = Model(folder / "bulk"), Examples.new()
    if not model.content.exists():
        shutil.copytree(folder / "model", model.content)
    source = data.open_files([folder / "ten.parquet"])
    splits = ("first", "second", "third")
    written = [data.executor("local").map(source, None, data.sinks(examples.content, [split])) for split in splits]
    data.Manifest.joined(written).write(examples.content)
    fn = BundleFn(folder / "model", "predict")
    fn.setup()
    columns = data.open_examples(examples.content, "first", list(served(folder).signatures["predict"].inputs))
    shards = range(len(columns.shards))
    batches = [batch for shard in shards for batch in columns.with_dictionaries().read(shard)]

    def alone() -> None:
        for _ in splits:
            for batch in batches:
                fn(batch)

    def component() -> None:
        predictions = BulkInferrer(examples, [model], require_blessing=False, keep=["carrier", "flight"])
        shutil.rmtree(predictions.path)

    times = interleaved({"alone": alone, "component": component}, repeat)
    (alone_cpu, alone_wall), (cpu, wall) = times["alone"], times["component"]
    rows = len(splits) * source.rows
    return {
        "bulk inference: rows/s": rows / wall,
        "bulk inference: the bundle's rows/s over decoded batches": rows / alone_wall,
        "bulk inference: rows/s / the bundle's over decoded batches": alone_wall / wall,
        "bulk inference: CPU / the bundle's": cpu / alone_cpu,
    }


def serving(folder: Path, repeat: int) -> dict[str, float]:
    """One row and a batch of 512 through host stage and device stage."""
    params = parameters()
    bundle = served(folder)
    single, alone = child(sys.executable, ROWS, str(folder))
    batch = _some_rows(bundle)
    bare = _bare(bundle, params)
    assert np.allclose(bare(batch), bundle.run("predict", batch)["p"], atol=1e-5)
    ours: list[float] = []
    theirs: list[float] = []
    for _ in range(repeat * 60):
        for work, kept in ((lambda: bundle.run("predict", batch), ours), (lambda: bare(batch), theirs)):
            start = time.perf_counter()
            work()
            kept.append(time.perf_counter() - start)
    mine, reference = statistics.median(ours), statistics.median(theirs)
    return {
        "one row: us": single,
        "one row: a bare jit of as small a model, us": alone,
        "batch of 512: ms": mine * 1e3,
        "batch of 512: bare jit and lookup, ms": reference * 1e3,
        "batch of 512: ours / bare jit and lookup": mine / reference,
    }


def one_row(folder: str) -> tuple[float, float]:
    """Median microseconds of one row, and of a bare jitted function: the same layers on 158 numbers that are ready."""
    import jax

    bundle = served(Path(folder))
    params = parameters()
    rows = _some_rows(bundle).to_pylist()
    words = np.zeros((1, 4 + sum(SIZES.values())), np.float32)

    @jax.jit
    def alone(x: Any) -> Any:
        out = x[:, 4:] @ params["wide"]
        for w in params["deep"]:
            x = jax.nn.relu(x @ w)
        return jax.nn.sigmoid(out + x @ params["out"])[:, 0]

    works: dict[str, Callable[[Any], object]] = {
        "ours": lambda row: bundle.run_row("predict", row),
        "alone": lambda row: np.asarray(alone(words)),
    }
    seconds: dict[str, list[float]] = {name: [] for name in works}
    for turn in range(5):
        for name, work in works.items():
            for row in rows:
                start = time.perf_counter()
                work(row)
                if turn:  # the first is for compiling
                    seconds[name].append(time.perf_counter() - start)
    ours, bare = (statistics.median(seconds[name]) * 1e6 for name in works)
    return ours, bare


def _some_rows(bundle: Bundle) -> pa.RecordBatch:
    table = flights().select(list(bundle.signatures["predict"].inputs))
    return table.slice(1_000, 512).combine_chunks().to_batches()[0]


def _bare(bundle: Any, params: Any) -> Callable[[pa.RecordBatch], Any]:
    """What one would write by hand: a dictionary lookup per word, and one jitted function of arrays."""
    import jax
    import jax.numpy as jnp

    weights, assets = bundle.payload.weights, bundle.payload.assets
    words = {
        t.schema.metadata[b"column"].decode(): t["value"].to_pylist()
        for t in assets.values()
        if "value" in t.column_names
    }
    known = {name: {word: index for index, word in enumerate(each)} for name, each in words.items()}

    def statistic(name: str, kind: str) -> Any:
        return next(value for key, value in weights.items() if key.startswith(f"transform/{name}/{kind}"))

    numeric = ("dep_delay", "dep_time", "sched_dep_time", "distance")
    scale = {name: (statistic(name, "mean"), np.sqrt(statistic(name, "var"))) for name in numeric}
    edges = statistic("hour", "quantiles")

    @jax.jit
    def run(params: Any, numbers: Any, hour: Any, ids: Any) -> Any:
        inputs = {name: (numbers[name] - scale[name][0]) / scale[name][1] for name in numeric}
        inputs["hour"] = jnp.sum(hour[:, None] >= edges, -1, dtype=jnp.int32)
        return jax.nn.sigmoid(model(params, {**inputs, **ids}))

    placed = jax.device_put(params)

    def call(batch: pa.RecordBatch) -> Any:
        numbers = {
            name: np.nan_to_num(batch.column(name).to_numpy(zero_copy_only=False).astype(np.float32))
            for name in numeric
        }
        ids = {"month": batch.column("month").to_numpy(zero_copy_only=False).astype(np.int32)}
        for name, table in known.items():
            size = len(table)
            ids[name] = np.fromiter((table.get(w, size) for w in batch.column(name).to_pylist()), np.int32, len(batch))
        hour = batch.column("hour").to_numpy(zero_copy_only=False).astype(np.float32)
        return np.asarray(run(placed, numbers, hour, ids))

    return call


def eager(repeat: int) -> dict[str, float]:
    """The same function as a graph and line by line."""
    import jax.numpy as jnp
    from drivetrain.engine import eager as line_by_line
    from drivetrain.engine import function

    params = parameters()["deep"]

    @function
    def step(x: Any) -> Any:
        for w in params:
            x = jnp.tanh(x @ w) * 0.5 + jnp.where(x @ w > 0, x @ w, 0.1 * (x @ w))
            x = (x - x.mean(-1, keepdims=True)) / (x.std(-1, keepdims=True) + 1e-3)
        return x.sum(-1)

    inputs = jnp.ones((64, 4 + sum(SIZES.values())))

    def plain() -> None:
        for _ in range(50):
            with line_by_line():
                step(inputs).block_until_ready()

    works = {
        "graph": lambda: [step(inputs).block_until_ready() for _ in range(50)],
        "eager": plain,
    }
    times = interleaved(works, repeat)
    return {"graph / eager: times faster": times["eager"][1] / times["graph"][1]}


def table() -> dict[str, float]:
    """A model with a table of 100 MB."""
    from drivetrain.benchmarks.first_call import measure

    measured = measure()
    plain = measured["nothing kept"]
    return {
        "100 MB table: program, kB": measured["blob"] / 1e3,
        "100 MB table: load, s": plain["load"],
        "100 MB table: first call in a new process, s": plain["first row"],
        "100 MB table: first batch after it, s": plain["first batch"],
    }


def peer(tft: str, folder: Path) -> dict[str, float]:
    """Analyse and transform 3.4 M rows, imports not counted: TFT and ours, in processes of their own.

    TFT reads TFRecords of tf.Example, as TFX's ExampleGen writes them, and Parquet columns of lists; ours reads
    Parquet, as our ExampleGen writes it.
    """
    used = ["dep_delay", "dep_time", "sched_dep_time", "distance", "hour", "month", "arr_delay"]
    table = flights().select([*used, "carrier", "origin", "dest"])
    plain = write(table, folder / "one.parquet")
    columns = {name: _as_lists(table[name].combine_chunks()) for name in table.column_names}
    lists = write(pa.table(columns), folder / "lists.parquet", 10)
    records = folder / "ten.tfrecord"
    child(tft, RECORDS, str(plain), str(records))
    ours = child(sys.executable, OURS, str(folder / "ten.parquet"))[0]
    from_records, from_lists = (child(tft, PEER, str(path))[0] for path in (records, lists))
    return {
        "ours, as TFT: CPU s": ours,
        "TFT from TFRecords: CPU s": from_records,
        "TFT from Parquet of lists: CPU s": from_lists,
        "TFT from TFRecords / ours, CPU": from_records / ours,
        "TFT from Parquet of lists / ours, CPU": from_lists / ours,
    }


def _as_lists(column: pa.Array) -> pa.Array:
    """Each value as a list of one; a missing one as an empty list."""
    offsets = np.concatenate([[0], np.cumsum(column.is_valid().to_numpy(zero_copy_only=False))])
    values = column.drop_null()
    return pa.LargeListArray.from_arrays(
        pa.array(offsets, pa.int64()), values.cast(pa.large_binary()) if pa.types.is_string(values.type) else values
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=5, help="rounds; medians are printed")
    parser.add_argument("--json", type=Path, help="write the figures here too")
    parser.add_argument("--tft", metavar="PYTHON", help="a Python with tensorflow-transform")
    arguments = parser.parse_args()
    figures: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_CACHE_HOME"] = str(Path(folder, "cache"))
        figures |= transform(Path(folder), arguments.repeat)
        figures |= inference(Path(folder), arguments.repeat)
        figures |= serving(Path(folder), arguments.repeat)
        if arguments.tft:
            figures |= peer(arguments.tft, Path(folder))
        figures |= eager(arguments.repeat)
        figures |= table()
    report("engine", figures, BARS)
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
