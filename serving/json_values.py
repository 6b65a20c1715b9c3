"""JSON in and out, fast where it is plain: NaN and Infinity are legal tokens, as TensorFlow Serving has them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from .api import RequestError, StatusCode

_DECODE: Final = msgspec.json.Decoder().decode
_ENCODE: Final = msgspec.json.Encoder().encode


def decode(body: bytes) -> Any:  # Any: JSON
    """A body's value; NaN, Infinity and -Infinity are floats.

    Raises:
        RequestError: INVALID_ARGUMENT: it is no JSON.
    """
    try:
        return _DECODE(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        pass
    try:
        return json.loads(body)
    except RecursionError as error:
        raise RequestError(StatusCode.INVALID_ARGUMENT, "JSON parse error: the body is nested too deeply") from error
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise RequestError(StatusCode.INVALID_ARGUMENT, f"JSON parse error: {error!s:.200}", fix="send JSON") from error
    except ValueError as error:  # Python's limit
        raise RequestError(StatusCode.INVALID_ARGUMENT, "JSON parse error: a number has thousands of digits") from error


def encode(value: Any, arrays: Iterable[NDArray[Any]] = ()) -> bytes:  # Any: JSON
    """The bytes of a value that was made of these arrays; of floats that are not finite, bare tokens."""
    body = _ENCODE(value)
    # It makes null of what is not finite: only where there is one it pays to look.
    if b"null" in body and any(array.dtype.kind == "f" and not np.isfinite(array).all() for array in arrays):
        return json.dumps(value, separators=(",", ":")).encode()
    return body


def object_of(body: bytes) -> dict[str, Any]:  # Any: JSON
    """A body that is an object.

    Raises:
        RequestError: INVALID_ARGUMENT: it is not JSON, or not an object.
    """
    value = decode(body)
    if not isinstance(value, dict):
        raise RequestError(
            StatusCode.INVALID_ARGUMENT, f"the body is {kind(value)}, not an object", fix='send {"instances": […]}'
        )
    return value


def kind(value: object) -> str:
    """What a JSON value is, in words."""
    names = {dict: "an object", list: "a list", str: "text", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number")
