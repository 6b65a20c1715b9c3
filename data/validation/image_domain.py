"""Images: how many values begin like one, and how large the largest value is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ...report.html import number, percent
from ..aggregates.tables import binary
from ..arrays import numpy_of
from ..schemas.schema import Feature, Semantic
from ..stats.column import ColumnState
from ..stats.images import FORMATS, image_rows
from .anomalies import Anomaly, NewAnomaly
from .evidence import unit_of


def check_images(spec: Feature, domain: Semantic, column: ColumnState, new_anomaly: NewAnomaly) -> Iterator[Anomaly]:
    """Where too few values begin as BMP, GIF, JPEG or PNG files do, or one is too large; as TFDV 1.16 counts.

    The rules are those of its `image_domain_util.cc`; only where it would just log that the statistics know nothing of
    images, an anomaly says so.
    """
    share, most = domain.min_supported_fraction, domain.max_bytes
    if (share is None and most is None) or not column.count:
        return
    facts, rows = column.images, unit_of(spec, column)
    if not facts:
        yield new_anomaly(
            "STATS_NOT_AVAILABLE", spec.name, f"the statistics have no facts about {spec.name} as images",
            expected="bytes, and statistics of this release", observed=column.kind,
            fix=f"write {spec.name} as bytes and compute the statistics again, or remove the limits of its images from "
            "the schema",
        )  # fmt: skip
        return
    known = Fraction(image_rows(facts), column.count)
    if share is not None and known < Fraction(str(share)):
        yield new_anomaly(
            "LOW_SUPPORTED_IMAGE_FRACTION", spec.name,
            f"{number(column.count - image_rows(facts))} {rows} ({percent(float(1 - known))}) of {spec.name} do not "
            "begin as BMP, GIF, JPEG or PNG files do",
            expected=f"at least {percent(share)} of the {rows} in one of these formats",
            observed=f"{percent(float(known))}",
            fix=f"correct these values, or lower min_supported_fraction of {spec.name} in the schema",
        )  # fmt: skip
    if most is not None and facts["max_bytes"] > most:
        yield new_anomaly(
            "MAX_IMAGE_BYTE_SIZE_EXCEEDED", spec.name,
            f"the largest value of {spec.name} has {number(facts['max_bytes'])} bytes",
            expected=f"at most {number(most)} bytes", observed=f"{number(facts['max_bytes'])} bytes",
            fix=f"write smaller images, or raise max_bytes of {spec.name} in the schema",
        )  # fmt: skip


def image_test(kind: str, domain: Semantic) -> Callable[[Any], NDArray[np.bool_]] | None:
    """What marks the rows of an anomaly in a batch's column; None for anomalies that are not of images."""
    most = domain.max_bytes
    if kind == "MAX_IMAGE_BYTE_SIZE_EXCEEDED" and most is not None:
        return lambda column: _marked(column, lambda values: numpy_of(pc.binary_length(values)) > most)
    if kind == "LOW_SUPPORTED_IMAGE_FRACTION":
        return lambda column: _marked(column, lambda values: ~_begins_as_image(values))
    return None


def _begins_as_image(values: Any) -> NDArray[np.bool_]:
    starts: NDArray[np.bool_] = np.any([numpy_of(pc.starts_with(values, sign)) for sign in FORMATS.values()], axis=0)
    return starts


def _marked(column: Any, test: Callable[[Any], NDArray[np.bool_]]) -> NDArray[np.bool_]:
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    marked = numpy_of(pc.is_valid(column)).copy()
    marked[marked] = test(binary(column).drop_null())
    return marked
