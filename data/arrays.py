"""Arrow arrays without pandas, which pyarrow would import to ask; and numpy's over the same memory."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from .types import is_list


def arrow_of(values: NDArray[Any]) -> Any:
    """The pyarrow array over the same memory.

    `pyarrow.array` would import pandas, if installed, to ask whether it was given a series: a third of a second.
    """
    values = np.ascontiguousarray(values)
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), [None, pa.py_buffer(values)])


def texts(values: Sequence[str]) -> Any:
    """The pyarrow `string` array of a few values; see `arrow_of` for why not `pyarrow.array`."""
    encoded = [value.encode() for value in values]
    offsets = np.cumsum([0, *map(len, encoded)], dtype=np.int32)
    return pa.StringArray.from_buffers(len(encoded), pa.py_buffer(offsets), pa.py_buffer(b"".join(encoded)))


def numpy_of(array: Any) -> NDArray[Any]:
    """The values of a fixed-width or boolean pyarrow array over the same memory; where one is null, any value.

    Without `to_numpy`, which imports pandas as well. Dates, times and durations come as integers.
    """
    kind, count, start = array.type, len(array), array.offset
    data = array.buffers()[1]
    if pa.types.is_boolean(kind):
        if not count:
            return np.zeros(0, np.bool_)
        bits = np.unpackbits(np.frombuffer(data, np.uint8), bitorder="little", count=start + count)
        return bits[start:].view(np.bool_)
    letter = "f" if pa.types.is_floating(kind) else "u" if pa.types.is_unsigned_integer(kind) else "i"
    width = kind.bit_width // 8
    dtype = np.dtype(f"{letter}{width}")
    return np.frombuffer(data, dtype, count, start * width) if count else np.zeros(0, dtype)


def python_of(value: Any) -> Any:
    """An Arrow scalar as Python's value; times of which Python has none (after the year 9999, say) as text."""
    with suppress(OverflowError, ValueError):
        return value.as_py()
    kind = value.type
    if pa.types.is_struct(kind):
        return {kind.field(index).name: python_of(value[index]) for index in range(kind.num_fields)}
    if is_list(kind) or pa.types.is_map(kind):
        return [python_of(item) for item in value.values]
    if pa.types.is_timestamp(kind):
        return str(np.datetime64(value.value, kind.unit)) + ("Z" if kind.tz else "")
    if pa.types.is_date(kind):
        return str(np.datetime64(value.value, "D" if pa.types.is_date32(kind) else "ms"))
    if pa.types.is_duration(kind):
        return f"{value.value} {kind.unit}"
    return value.as_py()


def spare_pandas() -> None:
    """Have pyarrow go by it that there is no pandas, until somebody imports that.

    For a new process of ours, before it has threads: nothing of pandas' can be handed to pyarrow in it yet, and asking
    takes 0.15 s of processor time and tens of megabytes.
    """
    if "pandas" in sys.modules:
        return
    finder = _PandasFinder()
    sys.meta_path.insert(0, finder)
    pa.array([])  # asks, and remembers the answer
    finder.hides = False


class _PandasFinder:
    """Says that there is no pandas; later, once that is imported, has pyarrow ask again."""

    hides = True

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != "pandas":
            return None
        if self.hides:
            raise ModuleNotFoundError("it is not asked for yet", name=fullname)
        with suppress(ValueError):
            sys.meta_path.remove(self)
        spec = find_spec(fullname)
        if spec is not None and spec.loader is not None:
            load = spec.loader.exec_module

            def load_and_tell(module: ModuleType) -> None:
                load(module)
                with suppress(ImportError):  # it is too old for pyarrow
                    pa.nulls(0).to_pandas()  # cannot do without it

            spec.loader.exec_module = load_and_tell  # type: ignore[method-assign]
        return spec
