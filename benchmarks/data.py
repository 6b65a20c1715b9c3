"""The figures of `data/`, each as a ratio against a reference measured in the same run.

    python benchmarks/data.py [--repeat 3] [--json FILE] [--tfdv PYTHON]

References: decoding the same Parquet with pyarrow, and the same statistics by DuckDB (which it computes to its own
approximations; the query asks for count, missing, distinct and top values of every column, mean, std, min, max, zeros
and deciles of numbers, lengths of text; ours add histograms, which DuckDB is not asked for). CPU seconds and wall,
rounds interleaved, medians. `--tfdv` names the Python of an environment that holds tensorflow-data-validation
(`pip install tensorflow-data-validation==1.16.1 "setuptools<81" dill==0.3.1.1` on Python 3.11), and adds the peer's
figures on the same CSV file. Behind each figure that has a bar stands whether it is met.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
from drivetrain.benchmarks.common import child, decode, flights, interleaved, report, timed, write

PEER = """
import sys, time, resource
def cpu():
    both = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in both)
import pandas as pd
import tensorflow_data_validation as tfdv
start = cpu()
if sys.argv[1] == "csv":
    tfdv.generate_statistics_from_csv(sys.argv[2])
else:
    tfdv.generate_statistics_from_dataframe(pd.read_csv(sys.argv[2]))
print(cpu() - start, cpu())
"""
OURS = """
import sys, resource
def cpu():
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime
def peak():  # ru_maxrss would be the parent's, if that was larger when it started this process
    words = Path("/proc/self/status").read_text().split()
    return int(words[words.index("VmHWM:") + 1]) * 1024
from pathlib import Path
from drivetrain import data
if sys.argv[1] == "dataframe":
    import pandas as pd
    data.statistics(pd.read_csv(sys.argv[2]))
    start = 0.0
else:
    start = cpu()
    data.statistics(data.open_files([Path(sys.argv[2])]))
print(cpu() - start, cpu(), peak())
"""
BARS = {  # figure: bound, and whether it is an upper one
    "flights x10: ours / decode, CPU": (2.5, True),
    "continuous: ours / decode, CPU": (8, True),
    "continuous: ours / DuckDB, wall": (1.2, True),
    "validation of flights: ms": (10, True),
    "flights x40: peak MB of a process": (1000, True),
    "TFDV / ours, from CSV, CPU": (25, False),
    "TFDV / ours, from a DataFrame, imports counted, CPU": (5, False),
}


def continuous(rows: int = 1_000_000) -> pa.Table:
    """What value tables are worst at: ten normals, and a string that hardly ever repeats."""
    random = np.random.default_rng(0)
    columns: dict[str, Any] = {f"x{index}": random.normal(size=rows) for index in range(10)}
    columns["id"] = pa.array([f"user-{value}" for value in random.integers(0, 2**40, rows)])
    return pa.table(columns)


def ours(path: Path) -> None:
    """Full statistics."""
    from drivetrain import data

    data.statistics(data.open_files([path]))


def duckdb_statistics(path: Path) -> None:
    """The same of every column by DuckDB."""
    import duckdb

    parts = []
    for field in pq.read_schema(path):
        name = '"' + field.name.replace('"', '""') + '"'
        parts += [f"count({name})", f"approx_count_distinct({name})", f"approx_top_k({name}, 20)"]
        if pa.types.is_integer(field.type) or pa.types.is_floating(field.type):
            parts += [f"min({name})", f"max({name})", f"avg({name})", f"stddev_pop({name})"]
            parts.append(f"count(*) FILTER ({name} = 0)")
            parts.append(f"approx_quantile({name}, [0.1,0.2,0.3,0.4,0.5,0.6,0.7,0.8,0.9])")
        elif pa.types.is_string(field.type):
            parts += [f"avg(length({name}))", f"sum(strlen({name}))"]
    query = f"SELECT count(*), {', '.join(parts)} FROM read_parquet('{path}')"
    duckdb.connect().execute(query).fetchall()


def peers(tfdv: str, path: Path, repeat: int) -> list[float]:
    """CPU seconds, medians of interleaved rounds: TFDV from CSV and from a DataFrame, then ours likewise."""
    runs = [(tfdv, PEER, "csv", 0), (tfdv, PEER, "dataframe", 1)]
    runs += [(sys.executable, OURS, "csv", 0), (sys.executable, OURS, "dataframe", 1)]
    rounds = [
        [child(python, script, kind, str(path))[column] for python, script, kind, column in runs] for _ in range(repeat)
    ]
    return [statistics.median(times) for times in zip(*rounds, strict=True)]


def validation(path: Path) -> float:
    """Milliseconds to validate statistics of flights against the example's schema, imports done."""
    from drivetrain import data

    schema = data.load_schema(Path(__file__).parent.parent / "examples" / "flights" / "schema.yaml")
    measured = data.statistics(data.open_files([path]))
    data.validate(measured, schema)
    return statistics.median(timed(lambda: data.validate(measured, schema))[1] * 1000 for _ in range(9))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=3, help="rounds; medians are printed")
    parser.add_argument("--json", type=Path, help="write the figures here too")
    parser.add_argument("--tfdv", metavar="PYTHON", help="a Python with tensorflow-data-validation")
    arguments = parser.parse_args()
    figures: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder)
        table = flights()
        single, ten = write(table, here / "one.parquet"), write(table, here / "ten.parquet", 10)
        forty, wide = write(table, here / "forty.parquet", 40), write(continuous(), here / "continuous.parquet")
        for name, path in (("flights x10", ten), ("continuous", wide)):
            works = {"decode": decode, "ours": ours, "duckdb": duckdb_statistics}
            times = interleaved({work: partial(go, path) for work, go in works.items()}, arguments.repeat)
            for work, (cpu, wall) in times.items():
                figures |= {f"{name}: {work} CPU s": cpu, f"{name}: {work} wall s": wall}
            figures[f"{name}: ours / decode, CPU"] = times["ours"][0] / times["decode"][0]
            figures[f"{name}: ours / DuckDB, CPU"] = times["ours"][0] / times["duckdb"][0]
            figures[f"{name}: ours / DuckDB, wall"] = times["ours"][1] / times["duckdb"][1]
        figures["validation of flights: ms"] = validation(single)
        figures["flights x40: peak MB of a process"] = child(sys.executable, OURS, "parquet", str(forty))[2] / 1e6
        if arguments.tfdv:
            pyarrow.csv.write_csv(table, here / "one.csv")
            csv, whole, mine, all_of_it = peers(arguments.tfdv, here / "one.csv", arguments.repeat)
            figures |= {
                "TFDV from CSV: CPU s": csv,
                "ours from CSV: CPU s": mine,
                "TFDV from a DataFrame, imports counted: CPU s": whole,
                "ours from a DataFrame, imports counted: CPU s": all_of_it,
                "TFDV / ours, from CSV, CPU": csv / mine,
                "TFDV / ours, from a DataFrame, imports counted, CPU": whole / all_of_it,
            }
    report("data", figures, BARS)
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
