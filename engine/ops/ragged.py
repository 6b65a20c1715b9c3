"""Lists of any length on the device: a list column as a `Ragged`, which the functions of `engine.ragged` take."""

from __future__ import annotations

from ...errors import InputError
from .._caller import caller
from ..ragged.convert import from_lengths
from ..ragged.feeding import DEVICE, FLATTEN
from ..ragged.ragged import Ragged
from ..tracing.columns import read
from ..tracing.primitives import bind_host, current
from .arguments import Value


def to_ragged(x: Value) -> Ragged:
    """A list column of numbers as a `Ragged`: float32 for lists of floats, int32 for whole numbers.

    A missing list becomes an empty row. Of a Ragged, what stands per row (`ragged.mean(r)`) goes on as any array, and
    the Ragged itself may be an output of the preprocessing function: a list column again.

    Raises:
        InputError: It is no list, or one of text (look it up first: `ops.vocabulary`).
    """
    column = read(x, "made ragged")
    dtype = DEVICE.get(f"list<{column.item}>")
    if dtype is None:
        raise InputError(
            f"column {column.name!r} is {column.dtype}, no list of numbers",
            fix="make ids of words with ops.vocabulary; an array needs no to_ragged",
            where=caller(),
        )
    outputs = [(dtype, (current().dim(column.handle),), False), ("int32", ("b",), False)]
    values, lengths = bind_host(FLATTEN, [column.handle], outputs, {"dtype": dtype, "column": column.name})
    return from_lengths(values, lengths)
