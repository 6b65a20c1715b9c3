"""What the store costs: publishing with and without its journal, closures, lists of runs, and verifying the journal.

    python benchmarks/store.py [--nodes 1000] [--executions 20000] [--runs 10000] [--folder /dev/shm] [--store URL]

A node is what a launcher does: its context, a look into the cache, claim, start, publish. In a folder in memory (the
default) CPU is all there is to measure. With `--store postgresql://…`, the URL of a schema of its own, that many nodes
are published there by 8 processes at once, too. The ledger keeps the figures.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any
from unittest.mock import patch

from drivetrain.benchmarks.common import Bars, report, timed
from drivetrain.metadata import ArtifactRecord, MetadataStore, StagedArtifact
from drivetrain.metadata.audit import verify
from drivetrain.metadata.journal import JournalEntry

PROCESSES = 8
ROUNDS = 8  # of which the fastest counts: others use the machine, too
BARS: Bars = {
    "the journal / a node": (0.25, True),
    "closure of the executions: ms": (150.0, True),
    "list of 50 runs: ms": (20.0, True),
    "PostgreSQL, 8 processes: nodes/s": (150.0, False),
}


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
        output = StagedArtifact("Thing", f"artifacts/Step/{number}", "f" * 64, 1)
        last = store.publish(execution, {"after": [output]})["after"]
    return last[0]


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


def reading(folder: Path, executions: int, runs: int) -> dict[str, float]:
    """Milliseconds for a closure, a list of runs, and verifying all of it."""
    with MetadataStore.open(folder / "reading.db") as store:
        end = fill(store, executions)
        for number in range(runs):
            store.context("run", str(number), {"state": "COMPLETE"}, durable=False)
        closure = min(timed(lambda: store.lineage(end))[1] for _ in range(3))
        listing = min(timed(lambda: store.contexts("run", limit=50))[1] for _ in range(5))
        audit, _ = timed(lambda: verify(store))
    return {
        "closure of the executions: ms": closure * 1e3,
        "list of 50 runs: ms": listing * 1e3,
        "audit verify, CPU: s": audit,
    }


def on_server(url: str, nodes: int) -> dict[str, float]:
    """Nodes a second by several processes at once, and how many messages to the server a node is."""
    with MetadataStore.open(url) as store:
        messages = _messages(store)
    script = "import sys; from drivetrain.benchmarks import store; store.work(*sys.argv[1:])"
    begin = time.monotonic()
    workers = [
        subprocess.Popen([sys.executable, "-c", script, url, str(number), str(nodes // PROCESSES)])
        for number in range(PROCESSES)
    ]
    if any(worker.wait() for worker in workers):
        raise SystemExit("a process failed")
    seconds = time.monotonic() - begin
    with MetadataStore.open(url) as store:
        sound = verify(store).sound
    if not sound:
        raise SystemExit("the journal does not verify")
    return {"PostgreSQL, 8 processes: nodes/s": nodes / seconds, "PostgreSQL: messages a node": messages}


def work(url: str, name: str, nodes: str) -> None:
    """What one of the processes does."""
    with MetadataStore.open(url) as store:
        publish(store, name, int(nodes))


def _messages(store: MetadataStore) -> float:
    connection = store._db._connection()
    count, kinds = 0, ("execute", "begin", "together", "commit_after", "executemany")

    def counted(method: str) -> Any:  # Any: what `patch` takes
        run = getattr(type(connection), method)

        def call(*arguments: object) -> object:
            nonlocal count
            count += 1
            return run(*arguments)

        return call

    publish(store, "warm", 20)
    with patch.multiple(type(connection), **{method: counted(method) for method in kinds}):
        publish(store, "counted", 20)
    return count / 20


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--executions", type=int, default=20_000)
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--folder", type=Path, default=Path("/dev/shm"))
    parser.add_argument("--store", default=None)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        figures = share(Path(name), options.nodes) | reading(Path(name), options.executions, options.runs)
    if options.store:
        figures |= on_server(options.store, options.nodes)
    report("store", figures, BARS)


if __name__ == "__main__":
    main()
