"""The Open Inference Protocol v2 over REST, with its binary tensor extension: bodies to rows, predictions to bodies."""

from __future__ import annotations

import math
from array import array as packed_array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import numpy as np

from ..engine.bundles.manifest import Signature
from ..engine.graphs.graph import FieldSpec
from .api import (
    ColumnValues,
    Described,
    InferenceAnswer,
    InferenceRequest,
    ModelRef,
    VersionState,
    VersionStatus,
)
from .infer_tensors import DTYPES, check_parameters, datatype, from_raw, to_raw
from .json_values import encode, kind, object_of
from .tensor_columns import column_of, dense, invalid, rows_of, shown_shape

Json: TypeAlias = dict[str, Any]  # Any: JSON

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
        raise invalid(
            f"Inference-Header-Content-Length is {header_length}, the body has {len(body)} bytes", "correct it"
        )
    request = object_of(body if header_length is None else body[:header_length])
    rest = memoryview(b"" if header_length is None else body)[header_length or 0 :]
    parameters = _mapping(request.get("parameters", {}), "'parameters'")
    signature_name = parameters.get("signature_name")
    if signature_name is not None and not isinstance(signature_name, str):
        raise invalid(f"the parameter 'signature_name' is {kind(signature_name)}", "send text")
    name, signature = described.signature(signature_name)
    check_parameters(parameters)
    columns: dict[str, ColumnValues] = {}
    tensors = _tensors(request.get("inputs"), "inputs")
    for tensor in tensors:
        key = tensor["name"]
        if key in columns:
            raise invalid(f"the input {key!r:.80} is there twice", "send it once")
        if key in signature.inputs:
            columns[key], rest = _values(tensor, signature.inputs[key], rest)
        else:  # it is not read
            rest = rest[_binary_size(tensor, rest) or 0 :]
    if len(rest):
        raise invalid(f"{len(rest)} bytes follow the tensors", "say their binary_data_size")
    rows = rows_of(columns, signature, [tensor["name"] for tensor in tensors])
    if not rows:
        raise invalid("the inputs have no rows", "send at least one")
    wishes, outputs = _wishes(request, parameters)
    return InferenceRequest(ref, name, columns, rows, outputs), wishes


def _wishes(request: Json, parameters: Json) -> tuple[ResponseWishes, tuple[str, ...] | None]:
    client_id = request.get("id", "")
    if not isinstance(client_id, str):
        raise invalid(f"'id' is {kind(client_id)}", "send text")
    try:
        client_id.encode()
    except UnicodeEncodeError:  # the answer repeats it
        raise invalid("'id' has half a surrogate pair, which is not text", "send text") from None
    everything = _flag(parameters, "binary_data_output", default=False)
    if "outputs" not in request:
        return ResponseWishes(client_id, None if everything else frozenset()), None
    outputs = _tensors(request["outputs"], "outputs")
    binary = set()
    for output in outputs:
        of_output = _mapping(output.get("parameters", {}), "'parameters' of an output")
        check_parameters(of_output)
        if _flag(of_output, "binary_data", default=everything):
            binary.add(output["name"])
    names = tuple(dict.fromkeys(output["name"] for output in outputs))
    return ResponseWishes(client_id, frozenset(binary)), names or None


def _flag(parameters: Json, name: str, *, default: bool) -> bool:
    value = parameters.get(name, default)
    if not isinstance(value, bool):
        raise invalid(f"the parameter {name!r} is {kind(value)}", "send true or false")
    return value


def _tensors(tensors: Any, what: str) -> Sequence[Json]:
    if not isinstance(tensors, list) or not all(isinstance(tensor, dict) for tensor in tensors):
        raise invalid(f"{what!r} is {kind(tensors)}, not a list of objects", 'send {"inputs": [{"name": …}, …]}')
    for tensor in tensors:
        if not isinstance(tensor.get("name"), str):
            raise invalid(f"one of the {what} has no name", "name each")
    return tensors


def _mapping(value: Any, what: str) -> Json:
    if not isinstance(value, dict):
        raise invalid(f"{what} is {kind(value)}", "send an object")
    return value


def _values(tensor: Json, spec: FieldSpec, rest: memoryview) -> tuple[ColumnValues, memoryview]:
    """The column that a tensor is, and the bytes that are left."""
    name, kind_of, shape = tensor["name"], tensor.get("datatype"), tensor.get("shape")
    if not isinstance(kind_of, str) or kind_of not in DTYPES:
        raise invalid(f"the input {name!r:.80} has the datatype {kind_of!r:.40}", f"use one of {', '.join(DTYPES)}")
    if (
        not isinstance(shape, list)
        or not shape
        or not all(type(size) is int and 0 <= size < _MOST for size in shape)
        or math.prod(shape) >= _MOST
        or not all(shape[1:])  # rows without values take no bytes, however many they are
    ):
        raise invalid(f"the input {name!r:.80} has the shape {shape!r:.80}", "send a list of sizes, the rows first")
    if len(shape) > 2 and len(shape) > 1 + spec.ragged + len(spec.shape):  # two: a scalar in an axis of its own
        raise invalid(f"the input {name!r:.80} has {len(shape)} axes", f"send the shape {shown_shape(spec)}, -1: any")
    size = _binary_size(tensor, rest)
    if size is not None:
        if "data" in tensor:
            raise invalid(f"the input {name!r:.80} has data, and bytes behind the JSON", "send either")
        values = from_raw(rest[:size], kind_of, math.prod(shape), name).reshape(shape)
        return column_of(values, spec, name), rest[size:]
    if "data" not in tensor:
        raise invalid(f"the input {name!r:.80} has no data", "send data, or binary_data_size and its bytes")
    return _column(name, _of_json(name, kind_of, shape, tensor["data"]), spec), rest


def _binary_size(tensor: Json, rest: memoryview) -> int | None:
    """How many bytes a tensor has behind the JSON; None where its values stand in it."""
    name = tensor["name"]
    parameters = _mapping(tensor.get("parameters", {}), f"'parameters' of {name!r:.80}")
    check_parameters(parameters)
    size = parameters.get("binary_data_size")
    if size is not None and (type(size) is not int or not 0 <= size <= len(rest)):
        raise invalid(f"the input {name!r:.80} has {size!r:.40} bytes, {len(rest)} are left", "send all of them")
    return size


def _of_json(name: str, kind_of: str, shape: list[int], data: Any) -> list[Any]:
    """Values as a list of rows: scalars, or lists of the values of a row."""
    if not isinstance(data, list):
        raise invalid(f"the data of {name!r:.80} is {kind(data)}", "send a list")
    flat: list[Any] = data
    depth = 0
    while flat and all(type(item) is list for item in flat):
        depth += 1
        if depth >= len(shape):
            raise invalid(f"the data of {name!r:.80} is nested deeper than its shape", "send it flat, row by row")
        if any(len(item) != shape[depth] for item in flat):
            raise invalid(f"the lists in the data of {name!r:.80} are not those of its shape {shape}", "send it flat")
        flat = [value for item in flat for value in item]
    if len(flat) != math.prod(shape):
        raise invalid(f"the input {name!r:.80} has {len(flat)} values for the shape {shape}", "send as many")
    _check_values(name, kind_of, flat)
    width = math.prod(shape[1:])
    return flat if len(shape) == 1 else [flat[start : start + width] for start in range(0, len(flat), width)]


_RANGES: Final = {
    key: (int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)) for key, dtype in DTYPES.items() if "INT" in key
}
_JSON_TYPES: Final[Mapping[str, set[type]]] = {
    key: {str} if key == "BYTES" else {bool} if key == "BOOL" else {int, float} for key in DTYPES
}


_ARRAYS: Final = {
    "INT8": "b", "INT16": "h", "INT32": "i", "INT64": "q", "UINT8": "B", "UINT16": "H", "UINT32": "I", "UINT64": "Q",
    "FP16": "d", "BF16": "d", "FP32": "d", "FP64": "d",
}  # fmt: skip


def _check_values(name: str, kind_of: str, flat: list[Any]) -> None:
    """Refuse JSON values that are not of the datatype that the tensor claims."""
    if kind_of in _ARRAYS:
        try:
            packed_array(_ARRAYS[kind_of], flat)  # looks at kind and range, and is the quickest to do so
        except (TypeError, OverflowError):
            pass
        else:
            return
    for value in flat:
        if value is not None and not _is_of(value, kind_of):
            what = f"{value!r:.40}" if type(value) in (int, float) else kind(value)
            raise invalid(f"the data of {name!r:.80} has {what}, which is no {kind_of}", "send what the datatype says")


def _is_of(value: Any, kind_of: str) -> bool:
    """Whether a JSON value is of a datatype; 5.0 is a whole number too."""
    if type(value) not in _JSON_TYPES[kind_of] or kind_of not in _RANGES:
        return type(value) in _JSON_TYPES[kind_of]
    low, high = _RANGES[kind_of]
    return (type(value) is int or bool(value.is_integer())) and low <= value <= high


def _column(name: str, values: list[Any], spec: FieldSpec) -> ColumnValues:
    """The rows of an input as the graph reads them: scalars out of lists of one."""
    if spec.ragged:
        return [value if isinstance(value, list) or value is None else [value] for value in values]
    if values and isinstance(values[0], list):
        if len(values[0]) != 1:
            raise invalid(f"the input {name!r:.80} has {len(values[0])} values for each row", "send one")
        return [value[0] for value in values]
    return values


def encode_answer(answer: InferenceAnswer, signature: Signature, wishes: ResponseWishes) -> tuple[bytes, int | None]:
    """The body of an answer, and how many bytes its JSON has; None where there is nothing behind it.

    Raises:
        RequestError: FAILED_PRECONDITION: a tensor cannot hold an output: lists of several lengths, say.
    """
    outputs, parts, arrays = [], [], []
    for name, values in answer.outputs.items():
        spec = signature.outputs[name]
        array = dense(values, spec, name)
        tensor: Json = {"name": name, "shape": list(array.shape), "datatype": datatype(spec.value_dtype, name)}
        if wishes.binary is None or name in wishes.binary:
            part = to_raw(array)
            tensor["parameters"] = {"binary_data_size": len(part)}
            parts.append(part)
        else:
            if array.dtype.kind == "V":  # bfloat16, whose values are no numbers to JSON
                array = array.astype(np.float32)
            listed = array.reshape(-1).tolist()
            tensor["data"] = [text.decode() for text in listed] if array.dtype == object else listed
            arrays.append(array)
        outputs.append(tensor)
    body: Json = {"model_name": answer.name, "model_version": str(answer.version), "outputs": outputs}
    if wishes.id:
        body["id"] = wishes.id
    head = encode(body, arrays)
    return (head + b"".join(parts), len(head)) if parts else (head, None)


# --- what a server and its models are ---


def server_metadata(version: str) -> Json:
    """What the server is."""
    return {"name": "drivetrain", "version": version, "extensions": ["binary_tensor_data", "model_repository"]}


def metadata(described: Described, versions: Sequence[int]) -> Json:
    """What a model takes and gives: its default signature; others among the parameters."""
    default, signature = described.signature(None)
    others = {
        name: {**_tensors_of(each), "defaults": each.defaults, "usual": _usual(described, name)}
        for name, each in described.signatures.items()
        if name != default
    }
    return {
        "name": described.name,
        "versions": [str(version) for version in versions],
        "platform": "drivetrain_bundle",
        **_tensors_of(signature),
        "parameters": {
            "signature_name": default,
            "defaults": signature.defaults,
            "usual": _usual(described, default),
            "signatures": others,
        },
    }


def _usual(described: Described, name: str) -> Json:
    """A row of what is usual, where the version has a warm-up file; floats are shortened for people."""
    if name not in described.usual:
        return {}
    values = described.usual[name].values
    return {key: float(f"{value:.4g}") if isinstance(value, float) else value for key, value in values.items()}


def _tensors_of(signature: Signature) -> Json:
    def tensors(specs: Mapping[str, FieldSpec]) -> list[Json]:
        return [
            {"name": name, "datatype": datatype(spec.value_dtype, name), "shape": shown_shape(spec)}
            for name, spec in specs.items()
        ]

    return {"inputs": tensors(signature.inputs), "outputs": tensors(signature.outputs)}


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
