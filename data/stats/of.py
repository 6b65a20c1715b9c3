"""Statistics of whatever a public call is given."""

from __future__ import annotations

from .document import Measured, Statistics, statistics


def statistics_of(data: object, schema: Measured | None = None) -> Statistics:
    """The data's statistics: itself where it is `Statistics`, else what `statistics` computes.

    Raises:
        InputError: It is nothing that rows can be read from; see `source_of`.
    """
    return data if isinstance(data, Statistics) else statistics(data, schema=schema)
