"""Requests and their answers as rows of Arrow: inputs under their names and types, outputs, and who answered whom."""

from __future__ import annotations

import hmac
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from ..engine.bundles.manifest import Signature
from ..engine.graphs.graph import FieldSpec
from ..engine.graphs.nodes import COLUMN_DTYPES
from ..engine.host_ops.columns import as_column
from ..engine.host_ops.dates import from_milliseconds, time_type
from .api import ColumnValues
from .batching import as_arrow
from .log_files import FACTS, FOOTER, PREDICTION, LogFooter, free_name

_VALUES: Final[Mapping[str, pa.DataType]] = {
    "string": pa.string(), "bool": pa.bool_(), "float16": pa.float32(), "bfloat16": pa.float32(),
    "float32": pa.float32(), "float64": pa.float64(), "int8": pa.int8(), "int16": pa.int16(), "int32": pa.int32(),
    "int64": pa.int64(), "uint8": pa.uint8(), "uint16": pa.uint16(), "uint32": pa.uint32(), "uint64": pa.uint64(),
}  # fmt: skip
"""The Arrow type of each dtype that has one; the floats of 16 bits in the narrowest type that readers know."""
_NUMBERS: Final = {float, int, bool, type(None)}
_NUMBER: Final = 32  # bytes that a number takes among Python's objects, with its reference


@dataclass(frozen=True, slots=True)
class AnsweredRequest:
    """What is kept of a request until it is written.

    Attributes:
        request_id: The client's name for it, or the server's.
        microseconds: When it came, since 1970.
        columns: Input → one value a row.
        rows: How many.
        outputs: Output → one value a row; those that the client did not want are not there.
        size: Bytes that it takes in memory, about.
    """

    request_id: str
    microseconds: int
    columns: Mapping[str, ColumnValues]
    rows: int
    outputs: Mapping[str, ColumnValues]
    size: int


def bytes_of(values: Any) -> int:  # Any: a column of a request
    """What a column, or a value, takes in memory, about."""
    if isinstance(values, np.ndarray) and values.dtype != object:
        return values.nbytes
    if isinstance(values, str | bytes):
        return _NUMBER + len(values)
    if isinstance(values, list | tuple | np.ndarray):
        if _NUMBERS.issuperset(map(type, values)):
            return _NUMBER + _NUMBER * len(values)
        return _NUMBER + sum(map(bytes_of, values))
    return int(values.nbytes) if isinstance(values, pa.Array) else _NUMBER


class RowSchema:
    """The columns of one signature's log.

    Args:
        name: Of the model.
        version: Its version.
        bundle: The digest of its bundle.
        signature_name: What is asked.
        signature: Its inputs and outputs.
        deny: Columns that are left out, beside those that the signature says.
        hashed: Columns of which an HMAC is written, beside those that the signature says.
        key: Of the HMAC; None where there is none: what the signature wants hashed is left out.
    """

    def __init__(
        self,
        name: str,
        version: int,
        bundle: str,
        signature_name: str,
        signature: Signature,
        *,
        deny: Sequence[str] = (),
        hashed: Sequence[str] = (),
        key: bytes | None = None,
    ) -> None:
        rules = signature.request_log
        denied = {*deny, *(each for each, rule in rules.items() if rule != "hash" or key is None)}
        to_hash = {*hashed, *rules}
        names = set(signature.inputs)
        outputs: dict[str, str] = {}
        for output in signature.outputs:
            outputs[output] = free_name(PREDICTION + output, names)
            names.add(outputs[output])
        facts = {fact: free_name(fact, names) for fact in FACTS}
        self._signature = signature
        # An output is meant by its own name, too.
        self._hashed = {*to_hash, *(column for output, column in outputs.items() if output in to_hash)}
        self._key = key
        self._inputs = {
            each: kind
            for each, spec in signature.inputs.items()
            if each not in denied and (kind := arrow_type(spec)) is not None
        }
        self._outputs = {
            each: kind
            for each, spec in signature.outputs.items()
            if not {each, outputs[each]} & denied and (kind := arrow_type(spec)) is not None
        }
        kept = {each: outputs[each] for each in self._outputs}
        columns = {*self._inputs, *kept.values()}
        are_hashed = tuple(sorted(self._hashed & columns))
        times = {
            each: time
            for each, time in signature.times.items()
            if each in self._inputs and each not in are_hashed and time_type(time) is not None
        }
        self.footer = LogFooter(
            name, version, bundle, signature_name, tuple(self._inputs), kept, facts, are_hashed, times
        )

    def table(self, requests: Sequence[AnsweredRequest]) -> pa.Table:
        """The rows of some requests, in order, without what all rows have in common: see `whole`.

        Raises:
            ValueError, TypeError, InputError, pyarrow.ArrowException: A value is not of its column's type.
        """
        counts = [request.rows for request in requests]
        columns: dict[str, pa.Array] = {}
        signature, footer = self._signature, self.footer
        for name, kind in self._inputs.items():
            default = signature.defaults.get(name)
            parts = [request.columns.get(name, [default] * request.rows) for request in requests]
            columns[name] = self._column(name, parts, signature.inputs[name], kind)
        for name, kind in self._outputs.items():
            parts = [request.outputs.get(name, [None] * request.rows) for request in requests]
            columns[footer.outputs[name]] = self._column(
                footer.outputs[name], parts, signature.outputs[name], kind, name
            )
        ids, times = (
            np.repeat(np.array(values, kind), counts)
            for values, kind in (
                ([request.request_id for request in requests], object),
                ([request.microseconds for request in requests], np.int64),
            )
        )
        facts = {
            "request_id": pa.array(ids, pa.string()),
            "request_time": pa.array(times).cast(pa.timestamp("us", "UTC")),
            "request_row": pa.array(np.concatenate([np.arange(count, dtype=np.int32) for count in counts])),
        }
        columns |= {footer.facts[fact]: values for fact, values in facts.items()}
        return pa.table(columns)

    def whole(self, tables: Sequence[pa.Table]) -> pa.Table:
        """The content of a file: rows that `table` made, with who answered, and with the footer."""
        rows, footer = pa.concat_tables(tables), self.footer
        for fact, value in (
            ("model_name", pa.scalar(footer.model)),
            ("model_version", pa.scalar(footer.version, pa.int64())),
            ("model_bundle", pa.scalar(footer.bundle)),
            ("model_signature", pa.scalar(footer.signature)),
        ):
            rows = rows.append_column(footer.facts[fact], pa.repeat(value, rows.num_rows))
        return rows.replace_schema_metadata({FOOTER: footer.to_bytes()})

    def _column(
        self, name: str, parts: Sequence[ColumnValues], spec: FieldSpec, kind: pa.DataType, source: str = ""
    ) -> pa.Array:
        values = as_type(source or name, parts, spec, kind)
        if not source and (time := self.footer.times.get(name)) is not None:
            moment = time_type(time)
            return from_milliseconds(values, pa.list_(moment) if spec.ragged else moment)
        if name not in self._hashed or self._key is None:
            return values
        return pa.array([None if value is None else digest_of(self._key, value) for value in values.to_pylist()],
                        pa.string())  # fmt: skip


def digest_of(key: bytes, value: object) -> str:
    """The HMAC-SHA-256 of a value in hexadecimal digits: of text as UTF-8, of anything else as JSON."""
    text = value if isinstance(value, str) else json.dumps(value)
    return hmac.digest(key, text.encode(), "sha256").hex()


def arrow_type(spec: FieldSpec) -> pa.DataType | None:
    """The type of a field's column; None for dtypes that Parquet does not have: complex numbers, say."""
    kind = _VALUES.get(spec.value_dtype)
    if kind is None:
        return None
    for _ in range(len(spec.shape) + spec.ragged):
        kind = pa.list_(kind)
    return kind


def as_type(name: str, parts: Sequence[ColumnValues], spec: FieldSpec, kind: pa.DataType) -> pa.Array:
    """The values of several requests, one after another, as one array of a type.

    Raises:
        ValueError, TypeError, InputError, pyarrow.ArrowException: A value is of another kind.
    """
    if all(isinstance(part, np.ndarray) and part.dtype != object for part in parts):
        joined = np.concatenate(parts)
        if joined.dtype.kind == "V":  # of ml_dtypes, which Arrow does not know
            joined = joined.astype(np.float32)
        array = pa.array(joined.reshape(-1))
        for size in reversed(joined.shape[1:]):
            array = pa.FixedSizeListArray.from_arrays(array, size)
        return array.cast(kind)
    listed = [value for part in parts for value in _listed(part)]
    try:
        return pa.array(listed, kind)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        if spec.shape or spec.dtype not in COLUMN_DTYPES:
            raise
    return as_column(as_arrow(name, listed, spec), spec.dtype, name).cast(kind)  # as the model itself reads them


def _listed(values: ColumnValues) -> list[Any]:
    if isinstance(values, pa.Array):
        listed: list[Any] = values.to_pylist()
        return listed
    return values.tolist() if isinstance(values, np.ndarray) else list(values)
