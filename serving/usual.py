"""What is usual in the rows of a warm-up file: the baseline of explanations, and what a form begins with."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from ..engine.attribution import frequent
from ..engine.bundles.manifest import Signature
from ..engine.host_ops.columns import as_column
from ..errors import InputError
from .api import ColumnValues, Described, InferenceRequest, ModelRef, RequestError
from .batching import as_arrow
from .tfs import decode_predict
from .warmup import MOST_ROWS, read_warmup


@dataclass(frozen=True)
class Baseline:
    """What is usual.

    Attributes:
        values: Input → of floats the mean, of whole numbers the median, of text and booleans the most frequent one,
            of lists the default. Where no row has a value, the signature's default, else 0, false or missing.
        spread: Input of floats → its standard deviation; 0 where one row has a value, or none.
        rows: How many rows were looked at.
        source: Where they are from.
    """

    values: Mapping[str, Any]  # Any: what the column holds
    spread: Mapping[str, float]
    rows: int
    source: Literal["request", "warm-up file", "defaults"]


def baseline_of(
    columns: Mapping[str, pa.Array], signature: Signature, source: Literal["request", "warm-up file"]
) -> Baseline:
    """What is usual in some rows: see `Baseline`."""
    values: dict[str, Any] = {}  # Any: what the column holds
    spread: dict[str, float] = {}
    for name, spec in signature.inputs.items():
        known = columns[name].drop_null() if name in columns else pa.array([])
        default = signature.defaults.get(name)
        spread[name] = 0.0
        if spec.dtype == "float64":
            numbers = known.to_numpy(zero_copy_only=False).astype(np.float64)
            numbers = numbers[np.isfinite(numbers)]
            values[name] = float(default) if isinstance(default, int | float) and math.isfinite(default) else 0.0
            if len(numbers):
                values[name] = float((numbers / len(numbers)).sum())  # which is finite, as they are
                with np.errstate(over="ignore"):
                    deviation = float(numbers.std())
                spread[name] = deviation if math.isfinite(deviation) else 0.0
        elif spec.dtype == "int64":
            values[name] = sorted(known.to_pylist())[(len(known) - 1) // 2] if len(known) else default or 0
        elif spec.ragged or not len(known):
            values[name] = False if spec.dtype == "bool" and default is None else default
        else:
            values[name] = frequent(pa.chunked_array([known]), 1)[0][0]
    rows = max((len(column) for column in columns.values()), default=0)
    return Baseline(values, spread, rows, source if rows else "defaults")


def usual_rows(described: Described, base_path: str) -> dict[str, Baseline]:
    """What is usual in the rows of a version's warm-up file, by signature.

    Of columns that no log may have the defaults are told. What is damaged in the file is passed over.
    """
    requests: dict[str, list[InferenceRequest]] = defaultdict(list)
    rows: Counter[str] = Counter()
    for line in read_warmup(base_path, described.version)[0].splitlines():
        with suppress(RequestError):
            request, _ = decode_predict(line, described, ModelRef(described.name, described.version))
            name = str(request.signature)
            if rows[name] + request.rows <= MOST_ROWS:
                rows[name] += request.rows
                requests[name].append(request)
    return {name: _usual(each, described.signatures[name]) for name, each in requests.items()}


def _usual(requests: Sequence[InferenceRequest], signature: Signature) -> Baseline:
    usable: dict[str, pa.Array] = {}
    for name in signature.inputs:
        if name not in signature.request_log:
            default = signature.defaults.get(name)
            values = [value for each in requests for value in each.columns.get(name, [default] * each.rows)]
            with suppress(InputError):
                usable |= typed_columns({name: values}, signature)
    return baseline_of(usable, signature, "warm-up file")


def typed_columns(columns: Mapping[str, ColumnValues], signature: Signature) -> dict[str, pa.Array]:
    """Columns as Arrow, of the types that the model reads.

    Raises:
        InputError: Values are of another type.
    """
    inputs = signature.inputs
    return {
        name: as_column(as_arrow(name, values, inputs[name]), inputs[name].dtype, name)
        for name, values in columns.items()
    }
