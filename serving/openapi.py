"""The server's OpenAPI document: its paths, and for each model what it reads and answers, by its signatures."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias, get_args
from urllib.parse import quote

import numpy as np

from ..engine.bundles.manifest import Signature
from ..engine.graphs.graph import FieldSpec
from .api import DEFAULT_SIGNATURE, Described, ModelRef, Models, RequestError, VersionState
from .explanation import MOST_ROWS, MOST_STEPS, explained_outputs
from .infer_tensors import DTYPES, datatype
from .rollout_control import RolloutAction
from .tensor_columns import may_be_missing, numpy_dtype, shown_shape
from .times import IN_WORDS, time_word

Json: TypeAlias = dict[str, Any]  # Any: JSON

_ERRORS: Final = {
    "400": "The request cannot be used; the error names the part, the cause and what to do.",
    "401": "The server asks for a key.",
    "403": "The key may not do this, or the server lets nobody.",
    "404": "There is no such model, version or label.",
    "413": "The body is too large.",
    "429": "Too many requests, of all clients or of this key.",
    "503": "The model cannot be asked now.",
    "504": "The model took too long.",
}
_NUMBERS: Final = {"binary_data_size": {"type": "integer", "minimum": 0}}


def openapi_document(served: Mapping[str, Sequence[tuple[str, Described]]], *, with_keys: bool) -> Json:
    """The document, in OpenAPI 3.1; of hundreds of models it takes a second.

    Args:
        served: As `served_versions` gives it.
        with_keys: Whether requests need one.
    """
    schemas = _static_schemas()
    paths = _static_paths([*served])
    for name, versions in served.items():
        bodies: dict[int, _Bodies] = {}
        for which, described in versions:
            if described.version not in bodies:
                bodies[described.version] = _bodies(schemas, described)
            _add_paths(paths, name, which, bodies[described.version])
    document: Json = {
        "openapi": "3.1.0",
        "info": {
            "title": "drivetrain",
            "version": importlib.metadata.version("drivetrain"),
            "description": "Models behind TensorFlow Serving's REST interface and the Open Inference Protocol.",
        },
        "servers": [{"url": ".", "description": "Where this document is."}],
        "paths": paths,
        "components": {
            "schemas": schemas,
            "responses": {
                status: {"description": text, "content": _json_content(_ref("Error"))}
                for status, text in _ERRORS.items()
            },
        },
    }
    if with_keys:
        document["components"]["securitySchemes"] = {
            "bearer": {"type": "http", "scheme": "bearer"},
            "apiKey": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
        }
        document["security"] = [{"bearer": []}, {"apiKey": []}]
    return document


def served_versions(models: Models) -> dict[str, list[tuple[str, Described]]]:
    """Of each model the versions that can be asked, by the part of the path that names them; "" is the newest."""
    return {name: [*_served(models, name)] for name in models.names()}


def _served(models: Models, name: str) -> Iterator[tuple[str, Described]]:
    """The versions of a model that can be asked, by the part of the path that names them; "" is the newest."""
    try:
        statuses = models.statuses(ModelRef(name))
        yield "", models.describe(ModelRef(name))
    except RequestError:  # none can be asked
        return
    for status in statuses:
        if status.state is VersionState.AVAILABLE:
            described = models.describe(ModelRef(name, status.version))
            yield f"/versions/{status.version}", described
            for label in status.labels:
                yield f"/labels/{label}", described


# --- what is always there ---


def _static_paths(names: Sequence[str]) -> Json:
    model = {
        "name": "model",
        "in": "path",
        "required": True,
        "schema": {"type": "string", "enum": [*names]} if names else {"type": "string", "minLength": 1},
    }
    error = {"404", "503"}
    return {
        "/v2/health/live": _open(_get("Whether the process lives", _object())),
        "/v2/health/ready": _open(
            _get("Whether every model can be asked", _object(), more={"503": _answer("No", _object())})
        ),
        "/metrics": {
            "get": {
                "summary": "Prometheus's metrics",
                "tags": ["server"],
                "responses": {
                    "200": {"description": "In its text format.", "content": {"text/plain": {"schema": _text()}}},
                    **_errors({"401", "403", "429"}),
                },
            }
        },
        "/openapi.json": _get("This document", _object()),
        "/": {
            "get": {
                "summary": "A page for people, where text/html is accepted; else whether the process lives",
                "tags": ["server"],
                "security": [],
                "responses": {
                    "200": {
                        "description": "The page, or a status.",
                        "content": {"text/html": {"schema": _text()}, "application/json": {"schema": _object()}},
                    },
                },
            }
        },
        "/v2": _get("What the server is", _ref("Server")),
        "/v1/models": _get("The models", _object({"models": {"type": "array", "items": _text()}}, required=["models"])),
        "/v1/models/{model}": _get("The versions of a model", _ref("Versions"), model, error),
        "/v1/models/{model}/metadata": _get("Its signatures", _ref("Signatures"), model, error),
        "/v2/models/{model}": _get("Its inputs and outputs", _ref("Model"), model, error),
        "/v2/models/{model}/ready": _get("Whether it can be asked", _object(), model, error),
        "/v2/repository/index": _post(
            "Every version of every model",
            _object({"ready": {"type": "boolean"}}),
            {"type": "array", "items": _ref("RepositoryEntry")},
            set(),
            optional=True,
        ),
        "/v1/models/{model}/traffic": {
            **_get("The split of its traffic, its rollout and its shadows", _ref("Traffic"), model, {"404"}),
            **_post("Split its traffic", _ref("Shares"), _ref("Traffic"), error, model),
        },
        "/v1/models/{model}/rollout/{action}": _with_action(
            _post("Act on its rollout", _ref("RolloutAction"), _ref("Traffic"), error, model, optional=True)
        ),
        "/v2/repository/models/{model}/load": _post("Load a model", None, _object(), error, model),
        "/v2/repository/models/{model}/unload": _post("Unload a model", None, _object(), error, model),
    }


def _with_action(path: Json) -> Json:
    action = {"type": "string", "enum": [*get_args(RolloutAction)]}
    path["post"]["parameters"].append({"name": "action", "in": "path", "required": True, "schema": action})
    return path


def _static_schemas() -> Json:
    state = {"type": "string", "enum": [each.name for each in VersionState]}
    shares = {
        "type": "object",
        "description": "Version to percentage, at most 100 together.",
        "propertyNames": {"pattern": "^[0-9]{1,18}$"},
        "additionalProperties": {"type": "number", "minimum": 0, "maximum": 100},
    }
    by_class = {"type": ["number", "array"], "items": {"type": "number"}, "description": "A number, or one by class."}
    return {
        "Error": _object({"error": _text()}, required=["error"]),
        "Server": _object(
            {"name": _text(), "version": _text(), "extensions": {"type": "array", "items": _text()}},
            required=["name", "version", "extensions"],
        ),
        "Versions": _object(
            {
                "model_version_status": {
                    "type": "array",
                    "items": _object(
                        {
                            "version": _text(),
                            "state": state,
                            "status": _object({"error_code": _text(), "error_message": _text()}),
                        },
                        required=["version", "state", "status"],
                    ),
                }
            },
            required=["model_version_status"],
        ),
        "Signatures": _object({"model_spec": _object(), "metadata": _object()}, required=["model_spec", "metadata"]),
        "TensorMetadata": _object(
            {
                "name": _text(),
                "datatype": {"type": "string", "enum": [*DTYPES]},
                "shape": {"type": "array", "items": {"type": "integer", "minimum": -1}},
            },
            required=["name", "datatype", "shape"],
        ),
        "Model": _object(
            {
                "name": _text(),
                "versions": {"type": "array", "items": _text()},
                "platform": _text(),
                "inputs": {"type": "array", "items": _ref("TensorMetadata")},
                "outputs": {"type": "array", "items": _ref("TensorMetadata")},
                "parameters": _object(),
            },
            required=["name", "platform", "inputs", "outputs"],
        ),
        "Shares": _object({"shares": shares}, ["shares"]),
        "RolloutAction": _object(
            {"version": {"type": ["integer", "null"], "description": "That is meant: others are refused."}}
        ),
        "Traffic": _object(
            {
                "model": _text(),
                "current": {"type": ["integer", "null"], "description": "The version that has the rest."},
                "shares": shares,
                "shadow": {"type": ["integer", "null"]},
                "rollout": {"type": ["object", "null"]},
                "shadows": {"type": "array", "items": _object()},
            },
            ["model", "current", "shares", "shadow", "rollout", "shadows"],
        ),
        "Explanation": _object(
            {
                "output": _text(),
                "prediction": by_class,
                "baseline_prediction": {
                    "description": "Where the inputs that have gradients are as the baseline, and others as they are.",
                    "anyOf": [by_class, {"type": "null"}],
                },
                "gap": {
                    "description": "prediction - baseline_prediction - the sum of the attributions by gradients",
                    "anyOf": [by_class, {"type": "null"}],
                },
                "baseline": _object(
                    {
                        "source": {"enum": ["request", "warm-up file", "defaults"]},
                        "rows": {"type": "integer", "minimum": 0},
                    },
                    ["source", "rows"],
                ),
                "inputs": _list(
                    _object(
                        {
                            "name": _text(),
                            "value": {},
                            "baseline": {},
                            "by": {"enum": ["gradients", "replacement"]},
                            "attribution": {"anyOf": [by_class, {"type": "null"}]},
                            "problem": {"type": "string", "description": "Why it cannot be replaced; or empty."},
                        },
                        ["name", "value", "baseline", "by", "attribution", "problem"],
                    )
                ),
                "note": _text(),
            },
            ["output", "prediction", "baseline_prediction", "gap", "baseline", "inputs", "note"],
        ),
        "RepositoryEntry": _object(
            {"name": _text(), "version": _text(), "state": {"enum": ["READY", "UNAVAILABLE"]}, "reason": _text()},
            required=["name", "version", "state", "reason"],
        ),
        "Base64": _object({"b64": {"type": "string", "contentEncoding": "base64"}}, required=["b64"], closed=True),
    }


# --- what a model's signatures say ---


class _Bodies(NamedTuple):
    """The bodies of requests to a version, and of its answers; of inferences and explanations where it has such."""

    asked: Json
    answered: Json
    inferred: Json | None
    inferences: Json | None
    explained: Json | None


def _bodies(schemas: Json, described: Described) -> _Bodies:
    """The bodies of a version, and the schemas of its signatures, which versions with equal signatures share."""
    try:
        default, _ = described.signature(None)
    except RequestError:
        default = ""
    asked, answered, inferred, inferences, explained = [], [], [], [], []
    for signature_name, signature in described.signatures.items():
        title = f"{described.name} {signature_name}"
        row = _add(schemas, f"{title} row", _row(signature))
        column = _add(schemas, f"{title} columns", _columns(signature))
        prediction = _add(schemas, f"{title} prediction", _prediction(signature))
        names = [signature_name, *([DEFAULT_SIGNATURE, "", None] if signature_name == default else [])]
        choice = {"signature_name": {"enum": names}}
        needed = [] if signature_name == default else ["signature_name"]
        asked += [
            _object({**choice, "instances": _list(row)}, [*needed, "instances"]) | {"not": {"required": ["inputs"]}},
            _object({**choice, "inputs": column}, [*needed, "inputs"]) | {"not": {"required": ["instances"]}},
        ]
        answered += [
            _object({"predictions": _list(prediction)}, ["predictions"]),
            _object({"outputs": _outputs(signature)}, ["outputs"]),
        ]
        if numbers := explained_outputs(signature):
            properties = {
                "instances": _list(row) | {"maxItems": 1},
                "baseline": _list(row) | {"maxItems": MOST_ROWS, "description": "The rows that say what is usual."},
                "output": {"enum": numbers},
                "steps": {"type": "integer", "minimum": 1, "maximum": MOST_STEPS},
            }
            explained.append(_object({**choice, **properties}, [*needed, "instances"]))
        with_tensors = _tensors(schemas, title, signature)
        if with_tensors is not None:
            body, answer = with_tensors
            body["properties"]["parameters"] = _object({"signature_name": {"const": signature_name}}, needed)
            inferred.append(body | {"required": ["inputs", *(["parameters"] if needed else [])]})
            inferences.append(answer)
    bodies = (_either(each) if each else None for each in (inferred, inferences, explained))
    return _Bodies(_either(asked), _either(answered), *bodies)


def _add_paths(paths: Json, name: str, which: str, bodies: _Bodies) -> None:
    """The paths that ask a version."""
    model, headers = quote(name, safe=""), _answer_headers()
    predicting = _predicting(f"Predictions of {name}", bodies.asked, bodies.answered, headers)
    paths[f"/v1/models/{model}{which}:predict"] = predicting
    if bodies.explained is not None:
        answer = _object({"explanations": _list(_ref("Explanation"))}, ["explanations"])
        explaining = _predicting(f"Why {name} predicts a row so", bodies.explained, answer, headers)
        paths[f"/v1/models/{model}{which}:explain"] = explaining
    if bodies.inferred is not None and bodies.inferences is not None:
        versions = which.replace("/labels/", "/versions/")
        inferring = _predicting(f"Inference by {name}", bodies.inferred, bodies.inferences, headers)
        paths[f"/v2/models/{model}{versions}/infer"] = inferring


def _row(signature: Signature) -> Json:
    required = [name for name in signature.inputs if name not in signature.defaults]
    return _object({name: _input(name, signature) for name in signature.inputs}, required)


def _columns(signature: Signature) -> Json:
    required = [name for name in signature.inputs if name not in signature.defaults]
    return _object({name: _list(_input(name, signature)) for name in signature.inputs}, required)


def _input(name: str, signature: Signature) -> Json:
    """One row's value of an input, as it may be sent."""
    value = _value(signature.inputs[name])
    if name not in signature.times:
        return value
    described = {"description": f"A {time_word(signature.times[name])}: {IN_WORDS}."}
    text = {"type": "string", "pattern": "^[0-9]{4}-"}
    if signature.inputs[name].ragged:
        return value | described | {"items": {"anyOf": [value["items"], text]}}
    return described | {"anyOf": [value, text]}


def _prediction(signature: Signature) -> Json:
    values = {name: _answered(name, spec) for name, spec in signature.outputs.items()}
    return next(iter(values.values())) if len(values) == 1 else _object(values, [*values])


def _outputs(signature: Signature) -> Json:
    lists = {name: _list(_answered(name, spec)) for name, spec in signature.outputs.items()}
    return next(iter(lists.values())) if len(lists) == 1 else _object(lists, [*lists])


def _value(spec: FieldSpec) -> Json:
    """One row's value, as it may be sent."""
    missing = may_be_missing(spec)
    value = _scalar(spec.value_dtype, missing and not spec.ragged)
    for size in reversed(spec.shape):
        value = {"type": "array", "items": value, "minItems": size, "maxItems": size}
    if not spec.ragged:
        return value
    if spec.value_dtype.startswith("float"):
        value = {"type": ["number", "null"]}
    return {"type": ["array", "null"], "items": value}


def _answered(name: str, spec: FieldSpec) -> Json:
    """One row's value, as it is answered."""
    if spec.value_dtype == "string" and name.endswith("_bytes"):
        return {"anyOf": [_ref("Base64"), {"type": "null"}]}
    value: Json = {"type": ["number", "null"], "description": "What is not finite is a bare token: NaN, Infinity."}
    if spec.value_dtype == "string":
        value = {"type": ["string", "null"]}
    elif spec.value_dtype == "bool" or numpy_dtype(spec.value_dtype).kind in "iu":
        value = _scalar(spec.value_dtype, may_be_missing(spec))
    for size in reversed(spec.shape):
        value = {"type": "array", "items": value, "minItems": size, "maxItems": size}
    return {"type": ["array", "null"], "items": value} if spec.ragged else value


def _scalar(dtype: str, missing: bool) -> Json:
    null = ["null"] if missing else []
    if dtype == "string":
        return {"anyOf": [{"type": ["string", *null]}, _ref("Base64")]}
    if dtype == "bool":
        return {"type": ["boolean", *null]}
    kind = numpy_dtype(dtype)
    if kind.kind in "iu":
        bounds = np.iinfo(kind)
        return {"type": ["integer", *null], "minimum": int(bounds.min), "maximum": int(bounds.max)}
    return {"type": ["number", *null], "format": "double" if dtype == "float64" else "float"}


def _tensors(schemas: Json, title: str, signature: Signature) -> tuple[Json, Json] | None:
    """The bodies of an inference and of its answer; None: the Open Inference Protocol has no type for some of it."""
    try:
        inputs = [_tensor(name, spec, asked=True) for name, spec in signature.inputs.items()]
        outputs = [_tensor(name, spec, asked=False) for name, spec in signature.outputs.items()]
    except RequestError:
        return None
    sent = _add(schemas, f"{title} input tensor", _either(inputs))
    received = _add(schemas, f"{title} output tensor", _either(outputs))
    wanted = _object({"name": {"enum": [*signature.outputs]}}, ["name"])
    body = _object({"id": _text(), "inputs": _list(sent), "outputs": _list(wanted)})
    answer = _object(
        {"model_name": _text(), "model_version": _text(), "id": _text(), "outputs": _list(received)},
        ["model_name", "model_version", "outputs"],
    )
    return body, answer


def _tensor(name: str, spec: FieldSpec, *, asked: bool) -> Json:
    kind = datatype(spec.value_dtype, name)
    shape = shown_shape(spec)
    sizes = [{"type": "integer", "minimum": 1} if size < 0 else {"const": size} for size in shape]
    return _object(
        {
            "name": {"const": name},
            "datatype": {"enum": [*DTYPES]} if asked else {"const": kind},
            "shape": {"type": "array", "prefixItems": sizes, "minItems": len(sizes), "maxItems": len(sizes)},
            "data": {"type": "array"},
            "parameters": _object(_NUMBERS),
        },
        ["name", "shape", "datatype", *(["data"] if asked else [])],
    )


# --- pieces ---


def _predicting(summary: str, asked: Json, answered: Json, headers: Json) -> Json:
    path = _post(summary, asked, answered, {"404", "413", "503", "504"})
    path["post"]["tags"] = ["predictions"]
    path["post"]["responses"]["200"]["headers"] = headers
    return path


def _answer_headers() -> Json:
    return {
        "x-drivetrain-version": {"description": "The version that answered.", "schema": {"type": "integer"}},
        "x-drivetrain-digest": {"description": "The digest of its bundle.", "schema": _text()},
        "x-request-id": {"description": "The client's, or a new one.", "schema": _text()},
    }


def _get(
    summary: str,
    answered: Json,
    parameter: Json | None = None,
    errors: set[str] | None = None,
    more: Json | None = None,
) -> Json:
    operation: Json = {
        "summary": summary,
        "tags": ["server" if parameter is None else "models"],
        "responses": {
            "200": _answer("Yes", answered),
            **_errors({"401", "403", "429"} | (errors or set())),
            **(more or {}),
        },
    }
    if parameter is not None:
        operation["parameters"] = [parameter]
        operation["responses"].update(_errors({"400"}))
    return {"get": operation}


def _post(
    summary: str,
    asked: Json | None,
    answered: Json,
    errors: set[str],
    parameter: Json | None = None,
    *,
    optional: bool = False,
) -> Json:
    operation: Json = {
        "summary": summary,
        "tags": ["models"],
        "responses": {"200": _answer("Done", answered), **_errors({"400", "401", "403", "429"} | errors)},
    }
    if asked is not None:
        operation["requestBody"] = {"required": not optional, "content": _json_content(asked)}
    if parameter is not None:
        operation["parameters"] = [parameter]
    return {"post": operation}


def _open(path: Json) -> Json:
    """A path that needs no key."""
    path["get"]["security"] = []
    for status in ("401", "403", "429"):
        path["get"]["responses"].pop(status)
    return path


def _answer(description: str, schema: Json) -> Json:
    return {"description": description, "content": _json_content(schema)}


def _errors(statuses: set[str]) -> Json:
    return {status: {"$ref": f"#/components/responses/{status}"} for status in sorted(statuses)}


def _json_content(schema: Json) -> Json:
    return {"application/json": {"schema": schema}}


def _either(schemas: Sequence[Json]) -> Json:
    return schemas[0] if len(schemas) == 1 else {"anyOf": [*schemas]}


def _text() -> Json:
    return {"type": "string"}


def _list(items: Json) -> Json:
    return {"type": "array", "items": items, "minItems": 1}


def _object(
    properties: Mapping[str, Json] | None = None, required: Sequence[str] = (), *, closed: bool = False
) -> Json:
    schema: Json = {"type": "object"}
    if properties:
        schema["properties"] = dict(properties)
    if required:
        schema["required"] = [*required]
    if closed:
        schema["additionalProperties"] = False
    return schema


def _ref(name: str) -> Json:
    return {"$ref": f"#/components/schemas/{name}"}


def _add(schemas: Json, title: str, schema: Json) -> Json:
    """A reference to a schema among the components, whose names have few characters."""
    plain = "".join(char if char.isascii() and (char.isalnum() or char in "._-") else "_" for char in title)
    key, number = plain, 1
    while schemas.setdefault(key, schema) != schema:
        number += 1
        key = f"{plain}.{number}"
    return _ref(key)
