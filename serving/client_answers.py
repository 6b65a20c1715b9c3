"""What a server answered, read as if it were broken: whatever a client goes by is checked first."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import chain
from typing import Any, Final, TypeVar

from .client_columns import InputType, ServedSignature, said, tensor_type

_MOST_AXES: Final = 32
_NUMBER: Final = r"[0-9]{1,19}"
_KINDS: Final[Mapping[type, str]] = {
    int: "numbers", float: "numbers", bool: "booleans", str: "text", dict: "text", list: "lists",
}  # fmt: skip  # {"b64": …} is text, too

T = TypeVar("T")


class AnswerError(ValueError):
    """What an answer of status 200 says in place of what was asked: a phrase to follow on "answers 200, but"."""


def json_object(content: bytes) -> dict[str, Any]:  # Any: JSON
    """An answer's JSON.

    Raises:
        AnswerError: It is not JSON, or not an object.
    """
    with suppress(ValueError, RecursionError):
        body = json.loads(content)
        if isinstance(body, dict):
            return body
    raise AnswerError(f"no JSON: {content[:200]!r}")


def version_number(headers: Mapping[str, str]) -> int:
    """The version that answered; 0 where a server does not say.

    Raises:
        AnswerError: It says something else.
    """
    text = headers.get("x-drivetrain-version", "0")
    if not re.fullmatch(_NUMBER, text):
        raise AnswerError(f"its version is {text!r:.80}")
    return int(text)


def _field(holder: Any, name: str, kind: type[T], of: str = "the answer") -> T:  # Any: JSON
    """What an object has under a name.

    Raises:
        AnswerError: The holder is no object, or has nothing of that kind there.
    """
    value = holder.get(name) if isinstance(holder, dict) else None
    if type(value) is not kind:
        raise AnswerError(f"{name!r} of {of} is {said(value)}, where {_WANTED[kind]} has to be")
    return value


_WANTED: Final[Mapping[type, str]] = {dict: "an object", list: "a list", str: "text", int: "a whole number"}


# --- predictions ---


def json_outputs(
    body: Mapping[str, Any], rows: int, served: ServedSignature, *, by_column: bool
) -> dict[str, list[Any]]:
    """The outputs of TensorFlow Serving's JSON: name → one value a row.

    Args:
        body: The answer.
        rows: How many were asked.
        served: What names an output that stands without its name.
        by_column: The format: `outputs`, else `predictions`.

    Raises:
        AnswerError: Rows are missing or too many, or the values of an output are of several kinds.
    """
    values = body.get("outputs") if by_column else _field(body, "predictions", list)
    if by_column and isinstance(values, dict):
        columns = values
    elif not by_column and values and isinstance(values[0], dict) and values[0].keys() != {"b64"}:
        names = values[0].keys()
        if not all(isinstance(row, dict) and row.keys() == names for row in values):
            raise AnswerError(f"not every row has the outputs of the first, {', '.join(names):.200}")
        columns = {name: [row[name] for row in values] for name in names}
    elif len(served.outputs) > 1:
        raise AnswerError(f"it does not say which of the outputs {', '.join(served.outputs):.200} its values are")
    else:
        columns = {next(iter(served.outputs), "output"): values}
    for name, column in columns.items():
        if not isinstance(column, list):
            raise AnswerError(f"output {name!r:.80} is {said(column)}, where a list has to be")
        _check_rows(name, len(column), rows)
        _check_kinds(name, column)
    return _some(columns)


def _check_kinds(name: str, column: list[Any]) -> None:
    """See that values can be of one array: all numbers, text or booleans, or lists of such, as deep in each row."""
    level = column
    while True:
        types = set(map(type, level)) - {type(None)}
        for each in level if dict in types else ():
            if isinstance(each, dict) and not (each.keys() == {"b64"} and isinstance(each["b64"], str)):
                raise AnswerError(f"output {name!r:.80} has an object that is not base64")
        kinds = {_KINDS[each] for each in types}
        if len(kinds) > 1:
            raise AnswerError(f"output {name!r:.80} mixes {' and '.join(sorted(kinds))}")
        if kinds != {"lists"}:
            return
        level = [*chain.from_iterable(each for each in level if each is not None)]


def binary_outputs(content: bytes, header_length: str | None, rows: int) -> dict[str, Any]:
    """The outputs of an answer with binary tensors: name → an array of (rows, …).

    Args:
        content: JSON, and the bytes of the tensors behind it.
        header_length: How long the JSON is, as the answer's header says; None: all of it.
        rows: How many were asked.

    Raises:
        AnswerError: The bytes are not those of the tensors that the JSON describes, or of other rows.
    """
    size = len(content)
    if header_length is not None:
        if not re.fullmatch(_NUMBER, header_length) or int(header_length) > size:
            raise AnswerError(f"{header_length!r:.80} of its {size:,} bytes are JSON")
        size = int(header_length)
    outputs: dict[str, Any] = {}
    rest = memoryview(content)[size:]
    for tensor in _field(json_object(content[:size]), "outputs", list):
        name = _field(tensor, "name", str, "an output")
        of = f"output {name!r:.80}"
        length = _field(_field(tensor, "parameters", dict, of), "binary_data_size", int, of)
        if not 0 <= length <= len(rest):
            raise AnswerError(f"{of} has a binary_data_size of {length!r:.40}, of {len(rest):,} bytes that are left")
        shape = _field(tensor, "shape", list, of)
        _add(outputs, name, _field(tensor, "datatype", str, of), shape, rest[:length], rows)
        rest = rest[length:]
    if rest:
        raise AnswerError(f"its last {len(rest):,} bytes belong to no output")
    return _some(outputs)


def grpc_outputs(content: bytes, rows: int) -> dict[str, Any]:
    """The outputs of a ModelInferResponse: name → an array of (rows, …).

    Raises:
        AnswerError: It cannot be parsed, has no raw contents, or these are not of its tensors or not of these rows.
    """
    from . import protos

    response = _message(protos.ModelInferResponse, content)
    if len(response.outputs) != len(response.raw_output_contents):
        raise AnswerError(
            f"it has {len(response.outputs)} outputs and {len(response.raw_output_contents)} raw contents"
        )
    outputs: dict[str, Any] = {}
    for tensor, raw in zip(response.outputs, response.raw_output_contents, strict=True):
        _add(outputs, tensor.name, tensor.datatype, [*tensor.shape], raw, rows)
    return _some(outputs)


def _add(
    outputs: dict[str, Any], name: str, kind: str, shape: Sequence[Any], content: bytes | memoryview, rows: int
) -> None:
    """Add an output's values as an array; text as str."""
    import numpy as np

    from .api import RequestError
    from .infer_tensors import DTYPES, from_raw

    of = f"output {name!r:.80}"
    if name in outputs:
        raise AnswerError(f"{of} stands twice")
    if kind not in DTYPES:
        raise AnswerError(f"{of} has the type {kind!r:.40}")
    if not 0 < len(shape) <= _MOST_AXES or not all(type(size) is int and size >= 0 for size in shape):
        raise AnswerError(f"{of} has the shape {shape!r:.80}")
    _check_rows(name, shape[0], rows)
    try:
        values = from_raw(content, kind, math.prod(shape), name)
        if kind == "BYTES":
            texts = np.empty(len(values), object)
            texts[:] = [text.decode() for text in values.tolist()]
            values = texts
        elif values.dtype.kind == "V":  # bfloat16, which has no Python number
            values = values.astype(np.float32)
        outputs[name] = values.reshape(shape)
    except UnicodeDecodeError:
        raise AnswerError(f"{of} has text that is no UTF-8") from None
    except (RequestError, ValueError, OverflowError):  # the last two: sizes that no memory has, one of them 0
        raise AnswerError(f"{of} has {len(content):,} bytes, which are no {kind} of the shape {shape!r:.80}") from None


def _check_rows(name: str, answered: int, asked: int) -> None:
    if answered != asked:
        raise AnswerError(f"output {name!r:.80} has {answered!r:.40} rows, where {asked:,} were asked")


def _some(outputs: dict[str, T]) -> dict[str, T]:
    if not outputs:
        raise AnswerError("it has no outputs")
    return outputs


# --- what a model is, and how its versions are ---


def signatures(metadata: Mapping[str, Any]) -> dict[str, ServedSignature]:  # Any: JSON
    """A model's signatures, from its metadata.

    Raises:
        AnswerError: The metadata is not as TensorFlow Serving has it.
    """
    body = _field(metadata, "metadata", dict)
    described = _field(_field(body, "signature_def", dict), "signature_def", dict, "the metadata")
    times = _field(body, "times", dict) if "times" in body else {}  # other servers do not say, nor does gRPC
    return {
        name: ServedSignature(_with_times(_types(each, "inputs", name), times), _types(each, "outputs", name))
        for name, each in described.items()
    }


def _with_times(inputs: Mapping[str, InputType], times: Mapping[str, Any]) -> dict[str, InputType]:  # Any: JSON
    """Inputs, of which some are times."""
    return {
        name: replace(of, time=_field(_field(times, name, dict), "type", str)) if name in times else of
        for name, of in inputs.items()
    }


def _types(signature: Any, side: str, name: str) -> dict[str, InputType]:  # Any: JSON
    fields = _field(signature, side, dict, f"signature {name!r:.80}")
    return {field: _type(field, described) for field, described in fields.items()}


def _type(name: str, described: Any) -> InputType:  # Any: JSON
    of = f"{name!r:.80} in the metadata"
    shape = _field(described, "tensor_shape", dict, of)
    dims = _field(shape, "dim", list, of) if "dim" in shape else []
    sizes = [str(dim.get("size")) if isinstance(dim, dict) else "" for dim in dims]
    if not all(re.fullmatch(f"-?{_NUMBER}", size) for size in sizes):
        raise AnswerError(f"{of} has the shape {shape!r:.80}")
    return tensor_type(name, _field(described, "dtype", str, of), [int(size) for size in sizes])


def version_states(body: Mapping[str, Any]) -> list[dict[str, Any]]:  # Any: JSON
    """A model's versions, each with `version`, `state` and `status`.

    Raises:
        AnswerError: The answer is not as TensorFlow Serving has it.
    """
    states = _field(body, "model_version_status", list)
    for each in states:
        version = _field(each, "version", str, "a version")
        if not re.fullmatch(_NUMBER, version):
            raise AnswerError(f"a version is called {version!r:.80}")
        of = f"version {version}"
        _field(each, "state", str, of)
        status = _field(each, "status", dict, of)
        for name in ("error_code", "error_message"):
            _field(status, name, str, of)
    return states


def traffic_state(body: dict[str, Any]) -> dict[str, Any]:  # Any: JSON
    """Which version gets which share, and how far a rollout is.

    Raises:
        AnswerError: What a push goes by is missing, or of another kind.
    """
    _field(body, "shares", dict)
    _version(body, "current", "the answer")
    if body.get("rollout") is not None:
        of = "the rollout"
        rollout = _field(body, "rollout", dict)
        _version(rollout, "incumbent", of)
        _version(rollout, "candidate", of)
        share = rollout.get("share")
        if isinstance(share, bool) or not isinstance(share, int | float) or not 0 <= share <= 100:
            raise AnswerError(f"the share of the rollout is {said(share)}")
        for each in _field(rollout, "failed", list, of):
            _field(each, "version", int, "a failed version")
            for name in ("limit", "reason"):
                _field(each, name, str, "a failed version")
    return body


def _version(holder: Mapping[str, Any], name: str, of: str) -> None:  # Any: JSON
    if holder.get(name) is not None:
        _field(holder, name, int, of)


def grpc_metadata(content: bytes) -> dict[str, Any]:  # Any: JSON
    """A GetModelMetadataResponse as REST would have it.

    Raises:
        AnswerError: It cannot be parsed.
    """
    from . import protos

    response = _message(protos.GetModelMetadataResponse, content)
    if "signature_def" not in response.metadata:
        raise AnswerError("it has no signature_def")
    described = _message(protos.SignatureDefMap, response.metadata["signature_def"].value).signature_def
    spec = response.model_spec
    return {
        "model_spec": {"name": spec.name, "signature_name": "", "version": str(spec.version.value)},
        "metadata": {
            "signature_def": {
                "signature_def": {name: _signature_json(each) for name, each in sorted(described.items())}
            }
        },
    }


def _signature_json(signature: Any) -> dict[str, Any]:  # Any: a SignatureDef
    def fields(infos: Any) -> dict[str, Any]:
        return {
            name: {
                "dtype": _enum_name("tensorflow.DataType", info.dtype),
                "tensor_shape": {
                    "dim": [{"size": str(dim.size), "name": ""} for dim in info.tensor_shape.dim],
                    "unknown_rank": False,
                },
                "name": name,
            }
            for name, info in infos.items()
        }

    return {
        "inputs": fields(signature.inputs),
        "outputs": fields(signature.outputs),
        "method_name": signature.method_name,
    }


def grpc_version_states(content: bytes) -> list[dict[str, Any]]:  # Any: JSON
    """A GetModelStatusResponse as REST would have it.

    Raises:
        AnswerError: It cannot be parsed.
    """
    from . import protos

    return [
        {
            "version": str(each.version),
            "state": _enum_name("tensorflow.serving.ModelVersionStatus.State", each.state),
            "status": {
                "error_code": _enum_name("tensorflow.error.Code", each.status.error_code),
                "error_message": each.status.error_message,
            },
        }
        for each in _message(protos.GetModelStatusResponse, content).model_version_status
    ]


def _enum_name(enum: str, number: int) -> str:
    from .protos import POOL

    values = POOL.FindEnumTypeByName(enum).values_by_number
    if number not in values:
        raise AnswerError(f"there is no {enum} {number}")
    return str(values[number].name)


def _message(kind: Any, content: bytes) -> Any:  # Any: protobuf makes its classes when it runs
    from google.protobuf.message import DecodeError

    try:
        return kind.FromString(content)
    except DecodeError:
        raise AnswerError(f"no {kind.DESCRIPTOR.name}: {content[:80]!r}") from None
