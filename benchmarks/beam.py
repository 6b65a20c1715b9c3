"""Beam's runners: what a job costs at least, rows a second, and what more workers bring.

    python benchmarks/beam.py [--repeat 3] [--runners fnapi,portable,prism,flink,spark] [--json FILE]

Full statistics (19 columns) of flights x10, 3,367,760 rows in 60 shards, by `LocalExecutor` and by `BeamExecutor`, one
beside the other in each round. "Fixed" is the same job over one shard of one row. CPU seconds are those of this process
and all its children, so a runner's servers and workers count. .ci/beam/fetch brings the runners that pip does not.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics as median_of
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pyarrow as pa
from drivetrain.benchmarks.common import flights, report, write
from drivetrain.data import Executor, LocalExecutor, Source, executor, open_parquet, statistics

FOLDER = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "drivetrain" / "beam" / "2.77.0"
os.environ.setdefault("DRIVETRAIN_BEAM", str(FOLDER))

BARS = {"fnapi: fixed CPU s": (1.0, True), "fnapi: CPU beyond the fixed cost / LocalExecutor's": (1.3, True)}
TIMES = 10


def tree_cpu() -> float:
    """CPU seconds so far of this process and of those that it started, alive or waited for."""
    seconds = 0.0
    for process in [psutil.Process(), *psutil.Process().children(recursive=True)]:
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        seconds += times.user + times.system + times.children_user + times.children_system
    return seconds


def timed(work: Callable[[], object]) -> tuple[float, float]:
    """CPU seconds of the tree, and wall seconds."""
    cpu, begin = tree_cpu(), time.monotonic()
    work()
    return tree_cpu() - cpu, time.monotonic() - begin


def measure(name: str, walk: Executor, tiny: Source, large: Source, repeat: int) -> dict[str, float]:
    """One runner's figures, the local executor's beside them; medians of rounds after one that does not count."""
    rounds: list[dict[str, float]] = []
    for _ in range(repeat + 1):
        fixed = timed(lambda: statistics({"all": tiny}, walk))
        whole = timed(lambda: statistics({"all": large}, walk))
        local = timed(lambda: statistics({"all": large}, LocalExecutor()))
        rounds.append(
            {
                f"{name}: fixed CPU s": fixed[0],
                f"{name}: fixed wall s": fixed[1],
                f"{name}: CPU s": whole[0],
                f"{name}: wall s": whole[1],
                f"{name}: M rows/s, fixed cost included": large.rows / whole[1] / 1e6,
                f"{name}: M rows/s beyond the fixed cost": large.rows / max(whole[1] - fixed[1], 1e-3) / 1e6,
                f"{name}: LocalExecutor's CPU s": local[0],
                f"{name}: CPU beyond the fixed cost / LocalExecutor's": (whole[0] - fixed[0]) / local[0],
            }
        )
    return {key: median_of.median(each[key] for each in rounds[1:]) for key in rounds[0]}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=3, help="rounds; the median of each figure is printed")
    parser.add_argument("--runners", default="fnapi,portable,prism,prism_pool,flink,spark")
    parser.add_argument("--json", type=Path, help="write the figures here too")
    parser.add_argument("--times", type=int, default=TIMES, help="how many times the flights stand in the file")
    arguments = parser.parse_args()
    figures: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        table = flights()
        large = open_parquet([write(table, Path(folder, "large.parquet"), arguments.times)])
        tiny = open_parquet([write(table.slice(0, 1), Path(folder, "tiny.parquet"))])
        for name in arguments.runners.split(","):
            print(f"{name} …", file=sys.stderr)
            if name == "fnapi":
                figures |= measure(name, executor("beam"), tiny, large, arguments.repeat)
                continue
            # Late: what starts the servers lies with the tests.
            from drivetrain.tests.beam import servers

            with servers.RUNNERS[name]() as flags:
                figures |= measure(name, executor("beam", flags), tiny, large, arguments.repeat)
                if name == "portable":  # the one whose number of workers can be chosen here
                    alone = (*flags[:-1], "--direct_num_workers=1")
                    single = measure("one worker", executor("beam", alone), tiny, large, 1)
                    figures["portable: wall s, one worker / two"] = (
                        single["one worker: wall s"] / figures["portable: wall s"]
                    )
    report("beam", figures, BARS)
    if arguments.json:
        arguments.json.write_text(json.dumps({**figures, "pyarrow": pa.__version__}, indent=1) + "\n")


if __name__ == "__main__":
    main()
