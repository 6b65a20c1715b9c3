"""The Open Inference Protocol v2 over REST, with its binary tensor extension: bodies to rows, predictions to bodies."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..engine.bundles.manifest import Signature
from ..engine.graphs.graph import FieldSpec
from .api import (
    ColumnValues,
    Described,
    InferenceAnswer,
    InferenceRequest,
    ModelRef,
    RequestError,
    StatusCode,
    VersionState,
    VersionStatus,
)
from .json_values import encode, kind, object_of

Json: TypeAlias = dict[str, Any]  # Any: JSON

_NUMPY: Final = {
    "BOOL": np.bool_, "INT8": np.int8, "INT16": np.int16, "INT32": np.int32, "INT64": np.int64, "UINT8": np.uint8,
    "UINT16": np.uint16, "UINT32": np.uint32, "UINT64": np.uint64, "FP16": np.float16, "FP32": np.float32,
    "FP64": np.float64,
}  # fmt: skip
_OF_NUMPY: Final = {np.dtype(kind).name: name for name, kind in _NUMPY.items()}
_BYTES: Final = "BYTES"
_MOST: Final = 1 << 31  # values of a tensor


@dataclass(frozen=True)
class ResponseWishes:
    """How a client wants its answer.

    Attributes:
        id: What it calls the request; "" where it does not.
        binary: The outputs that are to come as bytes behind the JSON; None: all of them.
    """

    id: str = ""
    binary: frozenset[str] | None = field(default_factory=frozenset)


def decode(
    body: bytes, header_length: int | None, described: Described, ref: ModelRef
) -> tuple[InferenceRequest, ResponseWishes]:
    """The rows of a body.

    Args:
        body: JSON, and behind it the bytes of the tensors that say so.
        header_length: How many bytes the JSON has; None: all.
        described: The model.
        ref: What the request names.

    Raises:
        RequestError: INVALID_ARGUMENT: it is no such body; the tensor that is wrong is named.
    """
    if header_length is not None and not 0 <= header_length <= len(body):
        raise _refused(
            f"Inference-Header-Content-Length is {header_length}, the body has {len(body)} bytes", "correct it"
        )
    request = object_of(body if header_length is None else body[:header_length])
    rest = memoryview(b"" if header_length is None else body)[header_length or 0 :]
    parameters = _mapping(request.get("parameters", {}), "'parameters'")
    signature_name = parameters.get("signature_name")
    if signature_name is not None and not isinstance(signature_name, str):
        raise _refused(f"the parameter 'signature_name' is {kind(signature_name)}", "send text")
    name, signature = described.signature(signature_name)
    columns: dict[str, ColumnValues] = {}
    rows: int | None = None
    for tensor in _tensors(request.get("inputs"), "inputs"):
        values, rest = _values(tensor, rest)
        key = tensor["name"]
        if key in columns:
            raise _refused(f"the input {key!r:.80} is there twice", "send it once")
        if rows is None:
            rows = len(values)
        elif len(values) != rows:
            raise _refused(f"the input {key!r:.80} has {len(values)} rows, others {rows}", "send as many of each")
        columns[key] = _column(key, values, signature.inputs[key]) if key in signature.inputs else values
    if len(rest):
        raise _refused(f"{len(rest)} bytes follow the tensors", "say their binary_data_size")
    if not rows:
        raise _refused("the inputs have no rows", "send at least one")
    if not any(key in signature.inputs for key in columns):
        raise _refused(f"none of the inputs is one of {', '.join(signature.inputs):.200}", "name them so")
    wishes, outputs = _wishes(request, parameters)
    known = {key: values for key, values in columns.items() if key in signature.inputs}
    return InferenceRequest(ref, name, known, rows, outputs), wishes


def _wishes(request: Json, parameters: Json) -> tuple[ResponseWishes, tuple[str, ...] | None]:
    client_id = request.get("id", "")
    if not isinstance(client_id, str):
        raise _refused(f"'id' is {kind(client_id)}", "send text")
    everything = parameters.get("binary_data_output", False) is True
    if "outputs" not in request:
        return ResponseWishes(client_id, None if everything else frozenset()), None
    outputs = _tensors(request["outputs"], "outputs")
    binary = frozenset(
        output["name"]
        for output in outputs
        if _mapping(output.get("parameters", {}), "'parameters' of an output").get("binary_data", everything) is True
    )
    names = tuple(dict.fromkeys(output["name"] for output in outputs))
    return ResponseWishes(client_id, binary), names or None


def _tensors(tensors: Any, what: str) -> Sequence[Json]:
    if not isinstance(tensors, list) or not all(isinstance(tensor, dict) for tensor in tensors):
        raise _refused(f"{what!r} is {kind(tensors)}, not a list of objects", 'send {"inputs": [{"name": …}, …]}')
    for tensor in tensors:
        if not isinstance(tensor.get("name"), str):
            raise _refused(f"one of the {what} has no name", "name each")
    return tensors


def _mapping(value: Any, what: str) -> Json:
    if not isinstance(value, dict):
        raise _refused(f"{what} is {kind(value)}", "send an object")
    return value


def _values(tensor: Json, rest: memoryview) -> tuple[Any, memoryview]:
    """The values of a tensor, an array or list of rows, and the bytes that are left."""
    name, datatype, shape = tensor["name"], tensor.get("datatype"), tensor.get("shape")
    if datatype != _BYTES and datatype not in _NUMPY:
        known = ", ".join([*_NUMPY, _BYTES])
        raise _refused(f"the input {name!r:.80} has the datatype {datatype!r:.40}", f"use one of {known}")
    if (
        not isinstance(shape, list)
        or not shape
        or not all(type(size) is int and 0 <= size < _MOST for size in shape)
        or math.prod(shape) >= _MOST
        or not all(shape[1:])  # rows without values take no bytes, however many they are
    ):
        raise _refused(f"the input {name!r:.80} has the shape {shape!r:.80}", "send a list of sizes, the rows first")
    size = _mapping(tensor.get("parameters", {}), f"'parameters' of {name!r:.80}").get("binary_data_size")
    if size is not None:
        if type(size) is not int or not 0 <= size <= len(rest):
            raise _refused(f"the input {name!r:.80} has {size!r:.40} bytes, {len(rest)} are left", "send all of them")
        return _of_bytes(name, datatype, shape, rest[:size]), rest[size:]
    if "data" not in tensor:
        raise _refused(f"the input {name!r:.80} has no data", "send data, or binary_data_size and its bytes")
    return _of_json(name, datatype, shape, tensor["data"]), rest


def _of_bytes(name: str, datatype: str, shape: list[int], data: memoryview) -> Any:
    count = math.prod(shape)
    if datatype == _BYTES:
        return _shaped(name, _texts(name, data), shape)
    dtype = np.dtype(_NUMPY[datatype]).newbyteorder("<")
    if len(data) != count * dtype.itemsize:
        raise _refused(
            f"the input {name!r:.80} has {len(data)} bytes, {count} {datatype} have {count * dtype.itemsize}",
            "send as many",
        )
    return np.frombuffer(data, dtype).reshape(shape)


def _texts(name: str, data: memoryview) -> list[str]:
    """Texts, each behind its length in four bytes."""
    texts, at = [], 0
    while at < len(data):
        length = int.from_bytes(data[at : at + 4], "little")
        end = at + 4 + length
        if at + 4 > len(data) or end > len(data):
            raise _refused(f"the input {name!r:.80} ends within a text", "send each behind its length in 4 bytes")
        texts.append(_text(name, bytes(data[at + 4 : end])))
        at = end
    return texts


def _text(name: str, data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise _refused(f"the input {name!r:.80} has bytes that are no UTF-8 text", "send UTF-8") from error


def _of_json(name: str, datatype: str, shape: list[int], data: Any) -> Any:
    if not isinstance(data, list):
        raise _refused(f"the data of {name!r:.80} is {kind(data)}", "send a list")
    flat: list[Any] = data
    depth = 0
    while flat and all(type(item) is list for item in flat):
        flat = [value for item in flat for value in item]
        depth += 1
        if depth > len(shape):
            raise _refused(f"the data of {name!r:.80} is nested deeper than its shape", "send it flat, row by row")
    return _shaped(name, flat, shape)


def _shaped(name: str, flat: list[Any], shape: list[int]) -> list[Any]:
    """Values as a list of rows: scalars, or lists of the values of a row."""
    if len(flat) != math.prod(shape):
        raise _refused(f"the input {name!r:.80} has {len(flat)} values for the shape {shape}", "send as many")
    width = math.prod(shape[1:])
    return flat if len(shape) == 1 else [flat[start : start + width] for start in range(0, len(flat), width)]


def _column(name: str, values: Any, spec: FieldSpec) -> ColumnValues:
    """The rows of an input as the graph reads them: scalars out of lists of one."""
    if isinstance(values, np.ndarray):
        if values.ndim > 2:
            values = values.reshape(len(values), -1)
        if values.dtype.byteorder == ">" or not values.dtype.isnative:
            values = values.astype(values.dtype.newbyteorder("="))
        if values.ndim == 2 and not spec.ragged:
            if values.shape[1] != 1:
                raise _refused(f"the input {name!r:.80} has {values.shape[1]} values for each row", "send one")
            values = values[:, 0]
        return values
    if spec.ragged:
        return [value if isinstance(value, list) or value is None else [value] for value in values]
    if values and isinstance(values[0], list):
        if len(values[0]) != 1:
            raise _refused(f"the input {name!r:.80} has {len(values[0])} values for each row", "send one")
        return [value[0] for value in values]
    return list(values)


def encode_answer(answer: InferenceAnswer, wishes: ResponseWishes) -> tuple[bytes, int | None]:
    """The body of an answer, and how many bytes its JSON has; None where there is nothing behind it."""
    outputs, parts, arrays = [], [], []
    for name, values in answer.outputs.items():
        array, datatype = _output(name, values)
        tensor: Json = {"name": name, "shape": list(array.shape), "datatype": datatype}
        if wishes.binary is None or name in wishes.binary:
            part = _bytes_of(array)
            tensor["parameters"] = {"binary_data_size": len(part)}
            parts.append(part)
        else:
            tensor["data"] = array.reshape(-1).tolist()
            arrays.append(array)
        outputs.append(tensor)
    body: Json = {"model_name": answer.name, "model_version": str(answer.version), "outputs": outputs}
    if wishes.id:
        body["id"] = wishes.id
    head = encode(body, arrays)
    return (head + b"".join(parts), len(head)) if parts else (head, None)


def _output(name: str, values: NDArray[Any]) -> tuple[NDArray[Any], str]:
    if values.dtype.kind == "V":  # bfloat16
        values = values.astype(np.float32)
    if values.dtype.kind != "O":
        return values, _OF_NUMPY[values.dtype.name]
    listed = values.tolist()
    if any(isinstance(value, (list, tuple, np.ndarray)) for value in listed):
        widths = {len(value) for value in listed if value is not None}
        if len(widths) != 1 or any(value is None for value in listed):
            raise RequestError(
                StatusCode.INVALID_ARGUMENT,
                f"the output {name!r} has lists of several lengths",
                fix="ask by /v1/models",
            )
        first = next((item for value in listed for item in value), 0.0)
        if not isinstance(first, str):
            matrix = np.array(listed)
            return matrix, _OF_NUMPY[matrix.dtype.name]
        return np.array(listed, dtype=object), _BYTES
    if any(isinstance(value, bool | int | float) for value in listed):  # numbers, of which some may be missing
        numbers = np.array([math.nan if value is None else value for value in listed])
        return numbers, _OF_NUMPY[numbers.dtype.name]
    return values, _BYTES


def _bytes_of(array: NDArray[Any]) -> bytes:
    if array.dtype.kind != "O":
        return array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes()
    parts = []
    for value in array.reshape(-1).tolist():
        data = b"" if value is None else str(value).encode("utf-8", "replace")
        parts += [len(data).to_bytes(4, "little"), data]
    return b"".join(parts)


# --- what a server and its models are ---


def server_metadata(version: str) -> Json:
    """What the server is."""
    return {"name": "drivetrain", "version": version, "extensions": ["binary_tensor_data", "model_repository"]}


def metadata(described: Described, versions: Sequence[int]) -> Json:
    """What a model takes and gives: its default signature; others among the parameters."""
    default, signature = described.signature(None)
    others = {name: _tensors_of(each) for name, each in described.signatures.items() if name != default}
    return {
        "name": described.name,
        "versions": [str(version) for version in versions],
        "platform": "drivetrain_bundle",
        **_tensors_of(signature),
        "parameters": {"signature_name": default, "signatures": others},
    }


def _tensors_of(signature: Signature) -> Json:
    def tensors(specs: Mapping[str, FieldSpec]) -> list[Json]:
        return [
            {"name": name, "datatype": datatype_of(spec), "shape": [-1, *spec.shape, *([-1] if spec.ragged else [])]}
            for name, spec in specs.items()
        ]

    return {"inputs": tensors(signature.inputs), "outputs": tensors(signature.outputs)}


def datatype_of(spec: FieldSpec) -> str:
    """The protocol's datatype of an input or output."""
    dtype = {"string": "object", "bfloat16": "float32"}.get(spec.value_dtype, spec.value_dtype)
    return _OF_NUMPY.get(dtype, _BYTES)


def repository_index(statuses: Mapping[str, Sequence[VersionStatus]], *, ready_only: bool = False) -> list[Json]:
    """Every version of every model, with its state."""
    return [
        {
            "name": name,
            "version": str(status.version),
            "state": "READY" if status.state is VersionState.AVAILABLE else "UNAVAILABLE",
            "reason": status.message,
        }
        for name, versions in statuses.items()
        for status in versions
        if status.state is VersionState.AVAILABLE or not ready_only
    ]


def _refused(message: str, fix: str) -> RequestError:
    return RequestError(StatusCode.INVALID_ARGUMENT, message, fix=fix)
