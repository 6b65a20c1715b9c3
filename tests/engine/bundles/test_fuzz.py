"""Thousands of damaged and lying bundles: each is refused by an InputError, or works; nothing else ever happens."""

import importlib.util
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from drivetrain import data
from drivetrain.engine import Bundle, BundleError, analyze, ops
from drivetrain.tests.fixtures.bundles.make import build, flights

pytestmark = pytest.mark.engine

SCRIPT = Path(__file__).with_name("bundle_fuzz.py")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fuzz") / "made"
    build(folder)
    return folder / "model"


def words(columns: ops.Columns) -> ops.Columns:
    """Every kind of host op that takes params a stranger could bend: patterns, counts, widths, tables, lists, keys."""
    text = ops.concat(columns["carrier"], columns["origin"], separator=" ")
    pieces = ops.split(ops.lower(ops.regex_replace(text, "[A-J]+", "x y")), " ")
    ids = ops.hash_buckets(pieces, 5)
    return {
        "grams": ops.to_dense(ops.hash_buckets(ops.ngrams(pieces, (1, 2), separator="_"), 9), width=12, fill=0),
        "dense": ops.to_dense(ids, width=12, fill=0),
        "many": ops.multi_hot(ids),
        "long": ops.fill_missing(ops.cast(ops.length(text), "float32"), 0.0),
        "seen": ops.fill_missing(ops.regex_contains(text, "(a+)+$"), False),
        "table": ops.fill_missing(ops.lookup(columns["origin"], {"EWR": 1, "JFK": 2}, 0), 0),
        "key": ops.fill_missing(ops.z_score_per_key(columns["dep_delay"], columns["carrier"]), 0.0),
        "delay": ops.z_score(ops.fill_missing(columns["dep_delay"], 0.0)),
        "part": ops.vocabulary(ops.substr(columns["carrier"], 0, 1)),
    }


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("texts")
    pq.write_table(flights(300, 0), folder / "raw.parquet")
    analyze(words, data.open_parquet([folder / "raw.parquet"]), data.executor("local")).save(folder / "graph")
    return folder / "graph"


def outcomes(model: Path, start: int, stop: int, seconds: float) -> Counter[tuple[str, str]]:
    """(kind, outcome) of each mutation, in processes of their own; as far as they come in the time."""
    found: Counter[tuple[str, str]] = Counter()
    end = time.monotonic() + seconds
    while start < stop and time.monotonic() < end:
        command = [sys.executable, "-W", "ignore", str(SCRIPT), str(model), str(start), str(stop), str(seconds)]
        done = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, timeout=seconds + 120
        )
        told = [line.split(" ", 2) for line in done.stdout.splitlines()]
        # JAX's own native code writes its complaints to the other stream; here stand our lines alone.
        found.update((kind, outcome) for _, kind, outcome in told if outcome)
        if done.returncode != 0:
            number, kind = told[-1][:2]
            # JAX's native reader broke on a program; loading tries it in a process of its own, so it must tell.
            caught = kind == "a_program" and refused(model, int(number))
            found[kind, "refused" if caught else f"ENDS THE PROCESS ({done.returncode}) in mutation {number}"] += 1
        if not told:
            break
        start = max(start, int(told[-1][0])) + 1
    return found


def refused(model: Path, number: int) -> bool:
    """Whether loading survives a mutation and says that reading the program does not."""
    spec = importlib.util.spec_from_file_location(SCRIPT.stem, SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    with tempfile.TemporaryDirectory() as folder:
        for name, data in module.mutated(module.read(model), number).items():
            path = Path(folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        try:
            Bundle.load(folder)
        except BundleError as error:
            return "reading it ends the process" in error.message
        return False


def check(found: Counter[tuple[str, str]], least: int) -> None:
    wrong = {key: count for key, count in found.items() if key[1] not in ("refused", "works")}
    assert wrong == {}
    assert found.total() >= least
    assert {kind for kind, outcome in found if outcome == "refused"} >= {
        "a_byte", "a_file", "a_manifest", "a_path", "a_graph", "deep", "a_program", "some_weights", "a_vocabulary",
    }  # fmt: skip


@pytest.mark.slow
def test_a_hundred_mutations(model: Path) -> None:
    check(outcomes(model, 0, 104, 120), 40)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_mutations_of_text_ops(texts: Path) -> None:
    check(outcomes(texts, 0, 500, 300), 200)


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_a_thousand_mutations(model: Path) -> None:
    check(outcomes(model, 208, 1200, 600), 500)
