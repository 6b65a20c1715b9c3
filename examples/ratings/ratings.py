"""Ratings nobody wrote down: how often each aircraft flew to each airport in a year, 0 where it never did."""

import drivetrain as dt
import pyarrow as pa
import pyarrow.compute as pc
from drivetrain import data
from drivetrain.components import ExampleGen
from drivetrain.metadata import Examples
from drivetrain.pipelines import Files, resolve_files


@dt.component
def Ratings(flights: Files) -> Examples:
    """One row for each aircraft and each airport: tailnum, dest, carrier, distance, flights."""
    source = data.open_files([file.path for file in resolve_files(flights).files])
    batches = [batch for shard in source.shards for batch in source.read(shard)]
    table = pa.Table.from_batches(batches, source.schema).select(["tailnum", "dest", "carrier", "distance"])
    table = table.filter(pc.is_valid(table["tailnum"]))  # flights that were cancelled before they had an aircraft
    # A few aircraft changed hands: the carrier is the first in the alphabet, so that the order of flights is all one.
    aircraft = table.group_by("tailnum").aggregate([("carrier", "min")]).sort_by("tailnum")
    airports = table.group_by("dest").aggregate([("distance", "mean")]).sort_by("dest")
    pairs = table.group_by(["tailnum", "dest"]).aggregate([([], "count_all")])
    first = [i for i in range(aircraft.num_rows) for _ in range(airports.num_rows)]
    every = pa.table(
        {
            "tailnum": aircraft["tailnum"].take(pa.array(first)),
            "dest": pa.chunked_array([airports["dest"].combine_chunks()] * aircraft.num_rows),
            "carrier": aircraft["carrier_min"].take(pa.array(first)),
            "distance": pa.chunked_array([airports["distance_mean"].combine_chunks()] * aircraft.num_rows),
        }
    )
    flown = every.join(pairs, ["tailnum", "dest"]).sort_by([("tailnum", "ascending"), ("dest", "ascending")])
    counts = pc.fill_null(flown["count_all"], 0)
    return ExampleGen(flown.drop(["count_all"]).append_column("flights", counts), splits={"train": 3, "eval": 1})
