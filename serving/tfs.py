"""TensorFlow Serving's REST interface: bodies to rows, and predictions, statuses and signatures to bodies."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..engine.bundles.manifest import Signature
from ..engine.graphs.graph import FieldSpec
from .api import (
    DEFAULT_SIGNATURE,
    Described,
    InferenceAnswer,
    InferenceRequest,
    ModelRef,
    VersionStatus,
)
from .json_values import encode, kind, object_of
from .tensor_columns import invalid, refuse_misspelt
from .times import IN_WORDS, in_milliseconds, time_word

Format: TypeAlias = Literal["row", "column"]
Json: TypeAlias = dict[str, Any]  # Any: JSON

_DATA_TYPES: Final = {
    "string": "DT_STRING", "bool": "DT_BOOL", "float16": "DT_HALF", "bfloat16": "DT_BFLOAT16", "float32": "DT_FLOAT",
    "float64": "DT_DOUBLE", "int8": "DT_INT8", "int16": "DT_INT16", "int32": "DT_INT32", "int64": "DT_INT64",
    "uint8": "DT_UINT8", "uint16": "DT_UINT16", "uint32": "DT_UINT32", "uint64": "DT_UINT64",
    "complex64": "DT_COMPLEX64", "complex128": "DT_COMPLEX128",
}  # fmt: skip
_BYTES: Final = "_bytes"  # the end of an output's name whose values go out as base64


def decode_predict(body: bytes, described: Described, ref: ModelRef) -> tuple[InferenceRequest, Format]:
    """The rows of a body in row or column format: `instances` or `inputs`.

    Raises:
        RequestError: INVALID_ARGUMENT: it is no such body; the part that is wrong is named.
    """
    request = object_of(body)
    name, signature = described.signature(signature_name(request))
    if "instances" in request:
        if "inputs" in request:
            raise invalid("the body has both 'instances' and 'inputs'", "send one of them")
        columns, rows = columns_of_rows(request["instances"], signature, "instances")
        return InferenceRequest(ref, name, columns, rows), "row"
    if "inputs" not in request:
        raise invalid("the body has neither 'instances' nor 'inputs'", 'send {"instances": [{…}, …]}')
    columns, rows = _of_inputs(request["inputs"], signature)
    return InferenceRequest(ref, name, columns, rows), "column"


def decode_examples(body: bytes, described: Described, ref: ModelRef) -> InferenceRequest:
    """The rows of a body for `classify` or `regress`: `examples`, and a `context` whose features all rows share.

    Raises:
        RequestError: As `decode_predict`.
    """
    request = object_of(body)
    name, signature = described.signature(signature_name(request))
    if "examples" not in request:
        raise invalid("the body has no 'examples'", 'send {"examples": [{…}, …]}')
    examples, context = request["examples"], request.get("context", {})
    if not isinstance(examples, list) or not all(isinstance(example, dict) for example in examples):
        raise invalid("'examples' is not a list of objects", 'send {"examples": [{…}, …]}')
    if not isinstance(context, dict):
        raise invalid(f"'context' is {kind(context)}", "send an object of features")
    columns, rows = _of_rows([{**context, **example} for example in examples], signature, "examples")
    return InferenceRequest(ref, name, columns, rows)


def signature_name(request: Json) -> str | None:
    """The signature that a body names; None: none.

    Raises:
        RequestError: INVALID_ARGUMENT: it is no text.
    """
    name = request.get("signature_name")
    if name is not None and not isinstance(name, str):
        raise invalid(f"'signature_name' is {kind(name)}", "send text")
    return name


def columns_of_rows(rows: Any, signature: Signature, where: str) -> tuple[dict[str, list[Any]], int]:  # Any: JSON
    """Rows in JSON as columns, and how many rows they are.

    Args:
        rows: Objects, or the values of the only input.
        signature: What reads them.
        where: The part of the body that they are.

    Raises:
        RequestError: INVALID_ARGUMENT: they are no rows of this signature.
    """
    if not isinstance(rows, list):
        raise invalid(f"{where!r} is {kind(rows)}", "send a list, one item for each row")
    if not rows:
        raise invalid(f"{where!r} is empty", "send at least one row")
    if _has_names(rows[0], signature):
        if not all(isinstance(row, dict) for row in rows):
            raise invalid(f"{where!r} has objects and other values", "send objects alone")
        return _of_rows(rows, signature, where)
    name = _only_input(signature, where)
    return {name: _column(name, rows, signature)}, len(rows)


def _of_rows(rows: Sequence[Json], signature: Signature, where: str) -> tuple[dict[str, list[Any]], int]:
    if not rows:
        raise invalid(f"{where!r} is empty", "send at least one row")
    names = rows[0].keys()
    if len(rows) > 1 and not all(row.keys() == names for row in rows):
        return _of_differing_rows(rows, signature), len(rows)
    inputs = signature.inputs
    columns = {name: _column(name, [row[name] for row in rows], signature) for name in names if name in inputs}
    refuse_misspelt(names, signature)
    return columns, len(rows)


def _of_differing_rows(rows: Sequence[Json], signature: Signature) -> dict[str, list[Any]]:
    """What a row lacks has its default, or is an error, as where all rows lack it."""
    columns = {}
    for name in signature.inputs:
        if not any(name in row for row in rows):
            continue
        lacking = next((at for at, row in enumerate(rows) if name not in row), None)
        if lacking is not None and name not in signature.defaults:
            raise invalid(f"row {lacking} lacks {name!r}, which other rows have", "send it in each, null if missing")
        default = signature.defaults.get(name)
        columns[name] = _column(name, [row.get(name, default) for row in rows], signature)
    return columns


def _of_inputs(inputs: Any, signature: Signature) -> tuple[dict[str, list[Any]], int]:
    if not _has_names(inputs, signature):
        name = _only_input(signature, "inputs")
        inputs = {name: inputs}
    columns: dict[str, list[Any]] = {}
    rows: int | None = None
    refuse_misspelt(inputs, signature)
    for name, values in inputs.items():
        if name not in signature.inputs:
            continue
        if not isinstance(values, list):
            raise invalid(f"input {name!r} is {kind(values)}", "send a list with one item for each row")
        if rows is None:
            rows = len(values)
        elif len(values) != rows:
            raise invalid(f"input {name!r} has {len(values)} rows, other inputs {rows}", "send as many of each")
        columns[name] = _column(name, values, signature)
    if rows is None:
        expected = ", ".join(signature.inputs)
        raise invalid(f"'inputs' has none of the model's inputs {expected:.200}", "name them")
    if not rows:
        raise invalid("'inputs' has no rows", "send at least one row")
    return columns, rows


def _only_input(signature: Signature, where: str) -> str:
    if len(signature.inputs) == 1:
        return next(iter(signature.inputs))
    names = [name for name in signature.inputs if name not in signature.defaults] or [*signature.inputs]
    if len(names) != 1:
        raise invalid(
            f"{where!r} has values without names, but the model has {len(names)} inputs",
            f"send objects with {', '.join(names):.200}",
        )
    return names[0]


def _column(name: str, values: list[Any], signature: Signature) -> list[Any]:
    """The values of an input: what stands in a list of its own is taken out of it, base64 and times are decoded."""
    spec = signature.inputs[name]
    if name in signature.times:
        time = time_word(signature.times[name])
        values = [
            [_time(name, item, time) for item in value] if type(value) is list else _time(name, value, time)
            for value in values
        ]
    if spec.ragged:
        if spec.value_dtype == "string":
            return [[_text(name, item) for item in value] if isinstance(value, list) else value for value in values]
        return values
    for value in values:
        if type(value) is list or type(value) is dict:
            break
    else:
        return values
    flat = [value[0] if type(value) is list and len(value) == 1 else value for value in values]
    return [_text(name, value) for value in flat] if spec.dtype == "string" else flat


def _has_names(value: Any, signature: Signature) -> bool:
    """Whether a value is an object of inputs, and not text in base64; of an input called b64, its name wins."""
    return isinstance(value, dict) and (not _is_base64(value) or "b64" in signature.inputs)


def _is_base64(value: Any) -> bool:
    return isinstance(value, dict) and value.keys() == {"b64"}


def _text(name: str, value: Any) -> Any:
    if not _is_base64(value):
        return value
    try:
        return base64.b64decode(value["b64"], validate=True).decode()
    except (binascii.Error, TypeError, ValueError) as error:
        raise invalid(f"input {name!r} has base64 that is no UTF-8 text", "encode the bytes of UTF-8 text") from error


def _time(name: str, value: Any, time: str) -> Any:
    """A value; of text the number that it stands for."""
    if not isinstance(value, str):
        return value
    number = in_milliseconds(value, texts=True)
    if isinstance(number, str):
        raise invalid(f"input {name!r:.80} is a {time}, and the text {number!r:.60} is none", f"send {IN_WORDS}")
    return number


def encode_rows(answer: InferenceAnswer) -> bytes:
    """`predictions`, an item for each row: of one output alone its values, else objects."""
    lists = _lists(answer)
    if len(lists) == 1:
        (predictions,) = lists.values()
    else:
        predictions = [dict(zip(lists, row, strict=True)) for row in zip(*lists.values(), strict=True)]
    return encode({"predictions": predictions}, answer.outputs.values())


def encode_columns(answer: InferenceAnswer) -> bytes:
    """`outputs`, by name: of one output alone its values."""
    lists = _lists(answer)
    (first, *more) = lists.values()
    return encode({"outputs": lists if more else first}, answer.outputs.values())


def _lists(answer: InferenceAnswer) -> dict[str, list[Any]]:
    return {name: _listed(name, values) for name, values in answer.outputs.items()}


def _listed(name: str, values: NDArray[Any]) -> list[Any]:
    if values.dtype.kind == "V":  # bfloat16
        values = values.astype(np.float32)
    listed: list[Any] = values.tolist()
    if values.dtype.kind == "O" and name.endswith(_BYTES):
        return [{"b64": base64.b64encode(v.encode()).decode()} if isinstance(v, str) else v for v in listed]
    return listed


def classifications(answer: InferenceAnswer) -> list[list[tuple[str, float]]]:
    """For each row, label and score of each class, in the order of the scores.

    The scores are the output `scores`, `probabilities` or `probability`, else the only one of floats; their labels the
    output `classes`, else 0, 1, 2 ….

    Raises:
        RequestError: INVALID_ARGUMENT: the signature has no such output.
    """
    scores = _float_output(answer.outputs, ("scores", "probabilities", "probability"), "classify")
    table = scores.reshape(len(scores), -1).astype(np.float64)
    classes = answer.outputs.get("classes")
    if classes is None:
        return [[(str(index), score) for index, score in enumerate(row)] for row in table.tolist()]
    labels = [value if isinstance(value, (list, tuple)) else [value] for value in classes.tolist()]
    return [
        [(str(label), score) for label, score in zip(names, row, strict=False)]
        for names, row in zip(labels, table.tolist(), strict=True)
    ]


def regressions(answer: InferenceAnswer) -> list[float]:
    """The number predicted for each row: the output `value` or `prediction`, else the only one of floats.

    Raises:
        RequestError: INVALID_ARGUMENT: the signature has no such output, or it has several numbers for a row.
    """
    values = _float_output(answer.outputs, ("value", "prediction"), "regress")
    if values.size != len(values):
        raise invalid("the signature predicts several numbers for a row", "use predict")
    numbers: list[float] = values.reshape(-1).astype(np.float64).tolist()
    return numbers


def _float_output(outputs: Mapping[str, NDArray[Any]], names: Sequence[str], verb: str) -> NDArray[Any]:
    for name in names:
        if name in outputs and outputs[name].dtype.kind == "f":
            return outputs[name]
    floats = [values for values in outputs.values() if values.dtype.kind == "f"]
    if len(floats) != 1:
        raise invalid(f"the signature has {len(floats)} outputs of floats, {verb} needs one", "use predict")
    return floats[0]


def encode_classifications(answer: InferenceAnswer) -> bytes:
    """The body of `classify`."""
    return encode({"results": classifications(answer)}, answer.outputs.values())


def encode_regressions(answer: InferenceAnswer) -> bytes:
    """The body of `regress`."""
    return encode({"results": regressions(answer)}, answer.outputs.values())


def status_body(statuses: Sequence[VersionStatus]) -> Json:
    """The body of a model's status."""
    return {
        "model_version_status": [
            {
                "version": str(status.version),
                "state": status.state.name,
                "status": {"error_code": status.code.name, "error_message": status.message},
            }
            for status in statuses
        ]
    }


def metadata_body(described: Described) -> Json:
    """The body of a model's metadata: its signatures; the default one under TensorFlow Serving's name, too.

    Beside them, since TensorFlow's words for an input have no room for it, what is sent for those that are times.
    """
    default, _ = described.signature(None) if described.signatures else ("", None)
    signatures = {name: _signature(signature) for name, signature in described.signatures.items()}
    if default in signatures:
        signatures.setdefault(DEFAULT_SIGNATURE, signatures[default])
    times = {
        name: {"type": time_word(time), "send": IN_WORDS}
        for each in described.signatures.values()
        for name, time in each.times.items()
    }
    return {
        "model_spec": {"name": described.name, "signature_name": "", "version": str(described.version)},
        "metadata": {"signature_def": {"signature_def": signatures}, **({"times": times} if times else {})},
    }


def _signature(signature: Signature) -> Json:
    return {
        "inputs": {key: _tensor(key, spec) for key, spec in signature.inputs.items()},
        "outputs": {key: _tensor(key, spec) for key, spec in signature.outputs.items()},
        "method_name": "tensorflow/serving/predict",
    }


def _tensor(name: str, spec: FieldSpec) -> Json:
    sizes = [-1, *spec.shape, *([-1] if spec.ragged else [])]
    return {
        "dtype": _DATA_TYPES.get(spec.value_dtype, "DT_INVALID"),
        "tensor_shape": {"dim": [{"size": str(size), "name": ""} for size in sizes], "unknown_rank": False},
        "name": name,
    }
