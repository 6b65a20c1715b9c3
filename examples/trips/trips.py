"""One table of three: each flight with the weather at its hour and the place it goes to."""

import drivetrain as dt
import pyarrow as pa
import pyarrow.compute as pc
from drivetrain import data
from drivetrain.components import ExampleGen
from drivetrain.metadata import Examples
from drivetrain.pipelines import Files, resolve_files

FLIGHT = ["month", "hour", "carrier", "tailnum", "origin", "dest", "distance", "air_time", "arr_delay"]
WEATHER = ["temp", "wind_speed", "wind_dir", "visib", "precip", "pressure"]


@dt.component
def Trips(flights: Files, weather: Files, airports: Files) -> Examples:
    """Flights in their order; weather and coordinates are missing where the other table has no such row."""
    trips, hours, coordinates = (_read(files) for files in (flights, weather, airports))
    columns = {name: trips[name] for name in FLIGHT}
    hour = pc.index_in(_origin_hour(trips), _origin_hour(hours))
    columns |= {name: hours[name].take(hour) for name in WEATHER}
    airport = pc.index_in(trips["dest"], coordinates["faa"])
    columns |= {f"dest_{name}": coordinates[name].take(airport) for name in ("lat", "lon")}
    return ExampleGen(pa.table(columns), splits={"train": 2, "eval": 1})


def _read(files: Files) -> pa.Table:
    source = data.open_files([file.path for file in resolve_files(files).files])
    return pa.Table.from_batches([batch for shard in source.shards for batch in source.read(shard)], source.schema)


def _origin_hour(table: pa.Table) -> pa.ChunkedArray:
    return pc.binary_join_element_wise(table["origin"], pc.cast(table["time_hour"], pa.string()), " ")
