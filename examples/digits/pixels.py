"""Pixels beside the files that hold them: a component of the project's own."""

import drivetrain as dt
import pyarrow as pa
from drivetrain import data, engine
from drivetrain.components import ExampleGen
from drivetrain.metadata import Examples

SIZE = 8  # pixels, both ways


@dt.component
def Pixels(examples: Examples) -> Examples:
    """The rows with a column `pixels` more: uint8 [64], row by row, of the grey image that `image` holds as a file."""
    return ExampleGen({split: decoded(examples, split) for split in data.splits(examples.content)})


def decoded(examples: Examples, split: str) -> pa.Table:
    source = data.open_examples(examples.content, split)
    rows = pa.Table.from_batches([batch for shard in source.shards for batch in source.read(shard)], source.schema)
    files = engine.input.from_source(source).select("image")
    images = files.map(engine.input.DecodeImages("image", SIZE, SIZE, mode="L"), by_row=True)
    blocks = [pa.FixedSizeListArray.from_arrays(pa.array(block["image"].ravel()), SIZE * SIZE) for block in images]
    return rows.append_column("pixels", pa.chunked_array(blocks))
