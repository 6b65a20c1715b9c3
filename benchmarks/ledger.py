"""The ledger of benchmarks: every run appends its medians, and `make bench-compare` says what got worse.

    python benchmarks/ledger.py [--allowed 0.2] [BENCHMARK ...]

`ledger.jsonl` beside this file holds one line per run: date, commit, machine, the figures, and what a fixed piece of
work took in the same run (the yardstick). Seconds are compared in units of the yardstick, so that a slower machine is
not taken for slower code; ratios are compared as they are. What a run is compared with is the median of its last five
predecessors.
"""

from __future__ import annotations

import argparse
import fnmatch
import hashlib
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from enum import Enum
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

LEDGER = Path(__file__).with_name("ledger.jsonl")
PREDECESSORS = 5


class Kind(Enum):
    """What a figure is, which says how two runs are compared."""

    SECONDS = "seconds, or a part of them: less is better, on a machine of the same speed"
    RATE = "something per second: more is better, on a machine of the same speed"
    COST = "a ratio to a reference of the same run, or a size: less is better"
    GAIN = "how many times better than a reference of the same run, or a quality: more is better"
    CONTEXT = "what other figures are held against: not compared"


# The first pattern that fits a figure's name says its kind; a name that fits none cannot be recorded.
KINDS: tuple[tuple[str, Kind], ...] = (
    ("the disk alone:*", Kind.CONTEXT),
    ("pyarrow decode:*", Kind.CONTEXT),
    ("raw JAX loop:*", Kind.CONTEXT),
    ("reading the CSV alone:*", Kind.CONTEXT),
    ("python alone:*", Kind.CONTEXT),
    ("*by KFP's SDK:*", Kind.CONTEXT),
    ("*: decode *", Kind.CONTEXT),
    ("*: duckdb *", Kind.CONTEXT),
    ("TFDV from *", Kind.CONTEXT),
    ("TFT from *: CPU s", Kind.CONTEXT),
    ("*LocalExecutor's CPU s", Kind.CONTEXT),
    ("*of a logistic regression*", Kind.CONTEXT),
    ("AUC of that regression", Kind.CONTEXT),
    ("*ratio, from", Kind.CONTEXT),
    ("*ratio, to", Kind.CONTEXT),
    ("*ratio without passes*", Kind.CONTEXT),
    ("*ratio were the passes free", Kind.CONTEXT),
    ("*ratio of the same prepared once by hand*", Kind.CONTEXT),
    ("*an empty program of the same arguments*", Kind.CONTEXT),
    ("*: a bare jit of *", Kind.CONTEXT),
    ("*: bare jit and lookup, ms", Kind.CONTEXT),
    ("TFDV, share found, *", Kind.CONTEXT),
    ("share found, *", Kind.GAIN),
    ("kinds that TFDV finds more of, *", Kind.COST),
    ("false alarms of *", Kind.COST),
    ("AUC *", Kind.GAIN),
    ("TFDV / ours*", Kind.GAIN),
    ("TFT from * / ours*", Kind.GAIN),
    ("*times faster*", Kind.GAIN),
    ("* M examples/s*", Kind.RATE),
    ("* M rows/s*", Kind.RATE),
    ("*: QPS", Kind.RATE),
    ("network / *", Kind.GAIN),
    ("gRPC network / *", Kind.GAIN),
    ("*: compilations", Kind.COST),
    ("flights / network*", Kind.GAIN),
    ("log-loss*", Kind.COST),
    ("fit* / raw JAX loop*", Kind.GAIN),
    ("sparse tables / dense Adam*", Kind.GAIN),
    ("dense Adam, *: steps per CPU s", Kind.CONTEXT),
    ("*: steps per CPU s", Kind.RATE),
    ("*: planned GB", Kind.CONTEXT),
    ("* / *", Kind.COST),
    ("*: nodes/s", Kind.RATE),
    ("*: messages a node", Kind.COST),
    ("*: ratio", Kind.COST),
    ("*[ :]peak [MG]B*", Kind.COST),
    ("*program, kB", Kind.COST),
    ("*[ ,:]s", Kind.SECONDS),
    ("*[ ,:]ms", Kind.SECONDS),
    ("*[ ,:]us", Kind.SECONDS),
    ("*: CPU s*", Kind.SECONDS),
    ("*: wall s*", Kind.SECONDS),
    ("*ms a node", Kind.SECONDS),
    ("*: share of a core", Kind.SECONDS),
    ("*: share of its time *", Kind.COST),
)


class Worse(NamedTuple):
    """A figure that got worse.

    Attributes:
        before: The median of its predecessors, as they would read at the speed of the newest run's machine.
        now: The newest run's.
        share: By how much it is worse: 0.25 is a quarter.
    """

    name: str
    before: float
    now: float
    share: float


def kind_of(name: str) -> Kind:
    """The kind of a figure.

    Raises:
        ValueError: No pattern fits its name.
    """
    for pattern, kind in KINDS:
        if fnmatch.fnmatchcase(name, pattern):
            return kind
    raise ValueError(f"nothing says what kind of figure {name!r} is; add a pattern to KINDS in {__file__}")


def yardstick() -> float:
    """CPU seconds of a fixed piece of work like drivetrain's own: hashing, JSON, sorting in numpy; the least of 5."""
    numbers = np.random.default_rng(0).normal(size=200_000)
    document = {str(index): [index, str(index), index / 3] for index in range(20_000)}

    def work() -> None:
        np.sort(numbers)
        text = json.dumps(document).encode()
        for _ in range(10):
            hashlib.sha256(text).hexdigest()
        json.loads(text)

    seconds = []
    for _ in range(5):
        begin = time.process_time()
        work()
        seconds.append(time.process_time() - begin)
    return min(seconds)


def machine() -> dict[str, Any]:
    """What the figures depend on beside the code."""
    cpu = platform.machine()
    if (info := Path("/proc/cpuinfo")).exists():
        models = [line.partition(":")[2].strip() for line in info.read_text().splitlines() if "model name" in line]
        cpu = models[0] if models else cpu
    packages = {name: version(name) for name in ("jax", "numpy", "pyarrow")}
    return {"cpu": cpu, "cores": os.cpu_count(), "python": platform.python_version(), **packages}


def commit() -> str:
    """The commit that is checked out, with a `+` where files differ from it; "" outside a checkout."""

    def git(*arguments: str) -> str:
        done = subprocess.run(["git", *arguments], cwd=LEDGER.parent, capture_output=True, text=True, check=False)
        return done.stdout.strip()

    return git("rev-parse", "--short", "HEAD") + (
        "+" if git("status", "--porcelain", "--", ":/", f":(exclude,top)benchmarks/{LEDGER.name}") else ""
    )


def record(benchmark: str, figures: Mapping[str, float], ledger: Path = LEDGER) -> None:
    """Append a run's medians to the ledger.

    Raises:
        ValueError: A figure has a name of no known kind.
    """
    for name in figures:
        kind_of(name)
    line = {
        "benchmark": benchmark,
        "date": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "commit": commit(),
        "machine": machine(),
        "yardstick": yardstick(),
        "figures": {name: float(f"{value:.5g}") for name, value in figures.items()},
    }
    with ledger.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


def worse(runs: Sequence[Mapping[str, Any]], allowed: float) -> list[Worse]:
    """The figures of the last run that are worse than their predecessors' median by more than is allowed.

    Args:
        runs: Runs of one benchmark, as `record` writes them, the oldest first.
        allowed: 0.2 is a fifth.
    """
    *earlier, last = runs
    regressions = []
    for name, now in last["figures"].items():
        kind = kind_of(name)
        # At the speed of the last run's machine: seconds grow with the yardstick, rates shrink.
        power = {Kind.SECONDS: 1, Kind.RATE: -1}.get(kind, 0)
        predecessors = [
            run["figures"][name] * (last["yardstick"] / run["yardstick"]) ** power
            for run in earlier
            if name in run["figures"]
        ][-PREDECESSORS:]
        if kind is Kind.CONTEXT or not predecessors:
            continue
        before = statistics.median(predecessors)
        more_is_better = kind in (Kind.RATE, Kind.GAIN)
        good, bad = (now, before) if more_is_better else (before, now)
        share = bad / good - 1 if good > 0 else 0.0
        if share > allowed:
            regressions.append(Worse(name, before, now, share))
    return regressions


def main() -> int:
    """Compare the last run of each benchmark with those before; 1 where something got worse."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--allowed", type=float, default=0.2, help="how much worse is told: 0.2 is a fifth")
    parser.add_argument("--ledger", type=Path, default=LEDGER)
    parser.add_argument("benchmarks", nargs="*", help="all where none is named")
    arguments = parser.parse_args()
    runs: dict[str, list[dict[str, Any]]] = {}
    if arguments.ledger.exists():
        for line in arguments.ledger.read_text(encoding="utf-8").splitlines():
            run = json.loads(line)
            runs.setdefault(run["benchmark"], []).append(run)
    unknown = [name for name in arguments.benchmarks if name not in runs]
    if unknown or not runs:
        print(f"no run of {', '.join(unknown) or 'any benchmark'} is recorded; run `make bench` first", file=sys.stderr)
        return 2
    failed = False
    for benchmark, its_runs in runs.items():
        if arguments.benchmarks and benchmark not in arguments.benchmarks:
            continue
        last = its_runs[-1]
        print(f"{benchmark}: {last['commit']} of {last['date']}, against {min(len(its_runs) - 1, PREDECESSORS)} before")
        for figure in worse(its_runs, arguments.allowed):
            failed = True
            print(f"  WORSE by {figure.share:.0%}: {figure.name}: {figure.before:.4g} -> {figure.now:.4g}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
