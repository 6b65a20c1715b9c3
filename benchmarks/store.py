"""What the store costs: publishing with and without its journal, beside MLMD; closures, lists, filters, gc, verifying.

    python benchmarks/store.py [--nodes 1000] [--executions 20000] [--many 200000] [--runs 10000]
        [--artifacts 100000] [--folder /dev/shm] [--disk FOLDER] [--store URL] [--mlmd PYTHON]

A node is what a launcher does: its context, a look into the cache, claim, start, publish. In a folder in memory (the
default) CPU is all there is to measure. With `--store postgresql://…`, the URL of a schema of its own, that many nodes
are published there by 8 processes at once, too, and its
closures are taken. `--mlmd` (or DRIVETRAIN_MLMD) names the Python of an environment that
holds ml-metadata 1.16: there each execution is registered with its inputs and contexts, then published with its
outputs, as TFX does, and here likewise with the journal; in memory and on `--disk`, in turns. The ledger keeps the
figures.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from datetime import timedelta
from hashlib import sha256
from pathlib import Path
from unittest.mock import patch

from drivetrain.benchmarks.common import Bars, child, report, timed
from drivetrain.digest import FileEntry
from drivetrain.metadata import ArtifactRecord, MetadataStore, StagedArtifact
from drivetrain.metadata.audit import verify
from drivetrain.metadata.finding import RecordQuery
from drivetrain.metadata.journal import JournalEntry
from drivetrain.metadata.payload import manifest_of, tree_of
from drivetrain.metadata.retention import RetentionPolicy, RetentionRule, collect, plan

PROCESSES = 8
RUNS_COLLECTED = 100
MLMD_ROUNDS = 5
ROUNDS = 8  # of which the fastest counts: others use the machine, too
BARS: Bars = {
    "the journal / a node": (0.25, True),
    "closure of the executions: ms": (150.0, True),
    "closure of many executions: ms": (1500.0, True),
    "list of 50 runs: ms": (20.0, True),
    "property filter with an index: ms": (1.0, True),
    "gc of the artifacts: s": (60.0, True),
    "gc of the artifacts on disk: s": (60.0, True),
    "publish / MLMD in memory": (3.0, False),
    "publish / MLMD on disk": (4.0, False),
    "PostgreSQL: messages a node": (12.0, True),
    "PostgreSQL, 8 processes: nodes/s": (150.0, False),
}


# As TFX: an execution is registered RUNNING with its inputs, in its contexts, then published COMPLETE with its outputs.
MLMD = """
import sys, time
from ml_metadata import proto
from ml_metadata.metadata_store import metadata_store
from ml_metadata.proto import metadata_store_pb2 as pb

path, nodes = sys.argv[1], int(sys.argv[2])
config = pb.ConnectionConfig()
config.sqlite.filename_uri = path
config.sqlite.connection_mode = 3
store = metadata_store.MetadataStore(config)
string, number = pb.STRING, pb.INT
kind = store.put_execution_type(pb.ExecutionType(name="Trainer", properties={"node": string, "reason": string}))
model = store.put_artifact_type(pb.ArtifactType(name="Model", properties={"span": number}))
types = {name: store.put_context_type(pb.ContextType(name=name)) for name in ("pipeline", "run", "node")}


def event(artifact, direction):
    e = pb.Event(type=direction)
    if artifact is not None:
        e.artifact_id = artifact
    e.path.steps.add().key = "model"
    e.path.steps.add().index = 0
    return e


def work(first, nodes):
    last = None
    for number in range(first, first + nodes):
        names = {"pipeline": "flights", "run": "run-%d" % (number // 5), "node": "flights.%d" % (number % 5)}
        contexts = [pb.Context(type_id=types[name], name=value) for name, value in names.items()]
        execution = pb.Execution(type_id=kind, last_known_state=pb.Execution.RUNNING)
        execution.properties["node"].string_value = "Trainer"
        execution.properties["reason"].string_value = "first run"
        inputs = [] if last is None else [(pb.Artifact(id=last, type_id=model), event(last, pb.Event.INPUT))]
        execution.id, _, ids = store.put_execution(execution, inputs, contexts, reuse_context_if_already_exist=True)
        execution.last_known_state = pb.Execution.COMPLETE
        execution.custom_properties["seconds"].double_value = 1.5
        output = pb.Artifact(type_id=model, uri="artifacts/Trainer/%d/model" % number, state=pb.Artifact.LIVE)
        output.properties["span"].int_value = number
        output.custom_properties["fingerprint"].string_value = "f" * 64
        _, (last,), _ = store.put_execution(
            execution, [(output, event(None, pb.Event.OUTPUT))], contexts, reuse_context_if_already_exist=True
        )


work(0, 20)
wall, cpu = time.monotonic(), time.process_time()
work(20, nodes)
print((time.process_time() - cpu) / nodes, (time.monotonic() - wall) / nodes)
"""
OURS = """
import sys, time
from drivetrain.benchmarks import store as benchmark
from drivetrain.metadata import MetadataStore

path, nodes = sys.argv[1], int(sys.argv[2])
with MetadataStore.open(path) as store:
    benchmark.register_and_publish(store, 0, 20)
    wall, cpu = time.monotonic(), time.process_time()
    benchmark.register_and_publish(store, 20, nodes)
    print((time.process_time() - cpu) / nodes, (time.monotonic() - wall) / nodes)
"""


def register_and_publish(store: MetadataStore, first: int, nodes: int) -> None:
    """What the other does in MLMD: executions with their inputs, contexts and outputs; no cache, no claims."""
    pipeline, last = store.context("pipeline", "flights"), list[ArtifactRecord]()
    for number in range(first, first + nodes):
        if number % 5 == 0:
            run = store.context("run", f"run-{number // 5}")
        node = store.context("node", f"flights.{number % 5}")
        execution = store.start(
            "Trainer",
            contexts=[pipeline, run, node],
            inputs={"model": last},
            properties={"node": "Trainer", "reason": "first run"},
        )
        output = StagedArtifact("Model", f"artifacts/Trainer/{number}/model", "f" * 64, 1, {"span": number})
        last = store.publish(execution, {"model": [output]}, properties={"seconds": 1.5})["model"]


def beside_mlmd(mlmd: str, folder: Path, disk: Path, nodes: int) -> dict[str, float]:
    """MLMD's time for a node by ours, medians of rounds in turns: CPU in memory, where all is CPU; wall on a disk."""
    figures: dict[str, float] = {}
    for where, parent, column in (("in memory", folder, 0), ("on disk", disk, 1)):
        ratios, seconds = [], []
        for number in range(MLMD_ROUNDS):
            with tempfile.TemporaryDirectory(dir=parent) as name:
                theirs = child(mlmd, MLMD, f"{name}/mlmd-{number}.db", str(nodes))[column]
                ours = child(sys.executable, OURS, f"{name}/ours-{number}.db", str(nodes))[column]
            ratios.append(theirs / ours)
            seconds.append(ours)
        figures[f"publish / MLMD {where}"] = statistics.median(ratios)
        figures[f"publish {where}: us"] = statistics.median(seconds) * 1e6
    return figures


def publish(store: MetadataStore, name: str, nodes: int) -> None:
    """Publish a chain of nodes, five to a run."""
    pipeline, last = store.context("pipeline", "flights"), list[ArtifactRecord]()
    for number in range(nodes):
        if number % 5 == 0:
            run = store.context("run", f"{name}-{number}", {"state": "RUNNING"}, [pipeline])
        node, key = store.context("node", f"flights.{number % 5}"), f"{name}-{number}"
        store.find_cached(key)
        claim = store.claim(key)
        execution = store.start(
            "Trainer",
            contexts=[pipeline, run, node],
            inputs={"examples": last},
            cache_key=key,
            preimage={"parameters": {"epochs": number}, "code": {"project/model.py": "f" * 64}},
            properties={"node": "Trainer", "reason": "first run"},
        )
        output = StagedArtifact("Model", f"artifacts/Trainer/{execution.uid}/model", "f" * 64, 1, {"span": number})
        last = store.publish(execution, {"model": [output]}, claim=claim, properties={"seconds": 1.5})["model"]


@contextmanager
def no_journal() -> Iterator[None]:
    """Note no change while the block runs: what a node costs without the journal."""
    with patch.object(JournalEntry, "note", lambda *_: None):
        yield


def fill(store: MetadataStore, executions: int) -> ArtifactRecord:
    """A chain of executions, each of which takes what the one before made; gives the last artifact."""
    last = list[ArtifactRecord]()
    for number in range(executions):
        execution = store.start("Step", inputs={"before": last})
        output = StagedArtifact("Thing", f"artifacts/Step/{number}", "f" * 64, 1, {"span": number})
        last = store.publish(execution, {"after": [output]})["after"]
    return last[0]


_NUMBERS = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < CAST(:count AS BIGINT))"
_MORE = (  # after the last execution and its artifact, and as they are
    f"{_NUMBERS} INSERT INTO execution (id, uid, type_id, state, properties, created_at, started_at, finished_at, "
    "updated_at) SELECT id + i, uid || i, type_id, state, properties, created_at, started_at, finished_at, updated_at "
    "FROM n, execution WHERE id = :execution",
    f"{_NUMBERS} INSERT INTO artifact (id, uid, type_id, uri, fingerprint, size, state, producer_id, properties, "
    "created_at, updated_at) SELECT id + i, uid || i, type_id, uri || '-' || i, fingerprint, size, state, "
    "producer_id + i, {properties}, created_at, updated_at FROM n, artifact WHERE id = :artifact",
    f"{_NUMBERS}, ways (direction, key, back) AS (SELECT 'INPUT', 'before', 1 UNION ALL SELECT 'OUTPUT', 'after', 0) "
    "INSERT INTO event (execution_id, direction, key, idx, artifact_id, at) SELECT :execution + i, direction, key, 0, "
    ":artifact + i - back, 0 FROM n, ways ORDER BY i, direction",
)


def lengthen(store: MetadataStore, last: ArtifactRecord, executions: int) -> ArtifactRecord:
    """Go on with a chain by SQL, past the journal; gives the last artifact."""
    properties = store._db.dialect.as_json("'{\"span\":' || i || '}'")
    bound = {"execution": last.producer, "artifact": last.id}
    with no_journal(), store._db.write() as tx:
        for sql in _MORE:
            names = {name: value for name, value in bound.items() if f":{name}" in sql}
            tx.run(sql.replace("{properties}", properties), count=executions, **names)
    return store.artifact(last.id + executions)


def share(folder: Path, nodes: int) -> dict[str, float]:
    """Microseconds of CPU for a node, with and without the journal, in turns."""
    seconds: dict[bool, list[float]] = {True: [], False: []}
    stores = {journal: MetadataStore.open(folder / f"{journal}.db") for journal in (True, False)}
    for number in range(ROUNDS):
        for journal, store in stores.items():
            with nullcontext() if journal else no_journal():
                begin = time.process_time()  # of which getrusage counts but hundredths
                publish(store, f"round {number}", nodes // ROUNDS)
                seconds[journal].append((time.process_time() - begin) / (nodes // ROUNDS))
    for store in stores.values():
        store.close()
    with_journal, without = min(seconds[True]) * 1e6, min(seconds[False]) * 1e6
    return {
        "a node, CPU: us": with_journal,
        "a node without the journal, CPU: us": without,
        "the journal / a node": 1 - without / with_journal,
    }


def reading(folder: Path, executions: int, many: int, runs: int) -> dict[str, float]:
    """Milliseconds for closures (of CPU, all they take), a list of runs, a filter of the many; seconds to verify."""
    with MetadataStore.open(folder / "reading.db") as store:
        end = fill(store, executions)
        for number in range(runs):
            store.context("run", str(number), {"state": "COMPLETE"}, durable=False)
        closure = min(timed(lambda: store.lineage(end))[0] for _ in range(3))
        whole = min(timed(lambda: [*store.lineage(end).artifacts.values()])[0] for _ in range(3))
        listing = min(timed(lambda: store.contexts("run", limit=50))[1] for _ in range(5))
        audit, _ = timed(lambda: verify(store))
        end = lengthen(store, end, many - executions)
        longest = min(timed(lambda: store.lineage(end))[0] for _ in range(3))
        if len(store.lineage(end).executions) != many:
            raise SystemExit("the closure is not whole")
        store.index_property("artifact", "property.span")
        query = RecordQuery(f"type = 'Thing' and property.span = {executions // 2}")
        filtered = min(timed(lambda: store.find_artifacts(query))[1] for _ in range(20))
        if not store.find_artifacts(query).records:
            raise SystemExit("the filter finds nothing")
    return {
        "closure of the executions: ms": closure * 1e3,
        "closure, with each artifact read: ms": whole * 1e3,
        "closure of many executions: ms": longest * 1e3,
        "list of 50 runs: ms": listing * 1e3,
        "property filter with an index: ms": filtered * 1e3,
        "audit verify, CPU: s": audit,
    }


def collecting(folder: Path, artifacts: int, where: str = "") -> dict[str, float]:
    """Seconds to collect the artifacts of as many runs but one: to mark them, then to delete them."""
    root = folder / "root"
    policy = RetentionPolicy((RetentionRule(keep_last=1),), grace=timedelta(0))
    content = tree_of((FileEntry("model.json", 2, sha256(b"{}").hexdigest()),))
    manifest = manifest_of({"content": content, "extra": tree_of(())})
    with MetadataStore.open(folder / "gc.db") as store:
        node = store.context("node", "flights.Trainer", durable=False)
        each = artifacts // RUNS_COLLECTED
        for number in range(RUNS_COLLECTED + 1):
            run = store.context("run", str(number), durable=False)
            outputs = []
            for index in range(each if number < RUNS_COLLECTED else 1):
                uri = f"artifacts/Trainer/{number}-{index}/model"
                (root / uri / "content").mkdir(parents=True)
                (root / uri / "content" / "model.json").write_text("{}")
                (root / uri / "manifest.json").write_bytes(manifest)
                outputs.append(StagedArtifact("Model", uri, "f" * 64, 1))
            store.publish(store.start("Trainer", contexts=[node, run]), {"model": outputs})

        def collection() -> None:
            for _ in ("marks", "deletes"):
                collect(store, root, plan(store, root, policy), "benchmark")

        cpu, wall = timed(collection)
        if len(store.artifacts()) != 1 or len(list(root.glob("artifacts/*/*"))) != 1:
            raise SystemExit("not all of it was collected")
    return {f"gc of the artifacts{where}: s": wall, f"gc of the artifacts{where}, CPU: s": cpu}


def on_server(url: str, nodes: int, executions: int) -> dict[str, float]:
    """Nodes a second by several processes at once, how many messages to the server a node is, a closure at last."""
    with MetadataStore.open(url) as store:
        messages = _messages(store)
    script = "import sys; from drivetrain.benchmarks import store; store.work(*sys.argv[1:])"
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", script, url, str(number), str(nodes // PROCESSES)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(PROCESSES)
    ]
    for worker in workers:  # what is imported and opened once is not what a node costs
        worker.stdout.readline()  # type: ignore[union-attr]
    begin = time.monotonic()
    for worker in workers:
        worker.stdin.write("go\n")  # type: ignore[union-attr]
        worker.stdin.flush()  # type: ignore[union-attr]
    cpu = sum(float(worker.communicate()[0]) for worker in workers)
    if any(worker.wait() for worker in workers):
        raise SystemExit("a process failed")
    seconds = time.monotonic() - begin
    with MetadataStore.open(url) as store:
        if not verify(store).sound:
            raise SystemExit("the journal does not verify")
        end = lengthen(store, fill(store, 1), executions - 1)
        closure = min(timed(lambda: store.lineage(end))[1] for _ in range(3))
    return {
        "PostgreSQL, closure of the executions: ms": closure * 1e3,
        "PostgreSQL, 8 processes: nodes/s": nodes / seconds,
        "PostgreSQL, a client's CPU for a node: ms": cpu / nodes * 1e3,
        "PostgreSQL: messages a node": messages,
    }


def work(url: str, name: str, nodes: str) -> None:
    """What one of the processes does, when it is told to go."""
    with MetadataStore.open(url) as store:
        publish(store, f"{name}, warm", 5)
        print("ready", flush=True)
        sys.stdin.readline()
        begin = time.process_time()
        publish(store, name, int(nodes))
        print(time.process_time() - begin)


def _messages(store: MetadataStore) -> float:
    from drivetrain.metadata.postgres_connection import Messages

    publish(store, "warm", 20)
    with patch.object(Messages, "send", autospec=True, side_effect=Messages.send) as send:
        publish(store, "counted", 20)
    return float(send.call_count) / 20


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--executions", type=int, default=20_000)
    parser.add_argument("--many", type=int, default=200_000)
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--folder", type=Path, default=Path("/dev/shm"))
    parser.add_argument("--artifacts", type=int, default=100_000)
    parser.add_argument("--disk", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--store", default=None)
    parser.add_argument("--mlmd", default=os.environ.get("DRIVETRAIN_MLMD"))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        folder = Path(name)
        figures = share(folder, options.nodes) | reading(folder, options.executions, options.many, options.runs)
        figures |= collecting(folder, options.artifacts)
        with tempfile.TemporaryDirectory(dir=options.disk) as on_disk:
            figures |= collecting(Path(on_disk), options.artifacts, " on disk")
        if options.mlmd:
            figures |= beside_mlmd(options.mlmd, folder, options.disk, options.nodes)
    if options.store:
        figures |= on_server(options.store, options.nodes, options.executions)
    report("store", figures, BARS)


if __name__ == "__main__":
    main()
