"""The server's gRPC side: TensorFlow Serving's and the Open Inference Protocol's services, health and reflection."""

from __future__ import annotations

import asyncio
import importlib.metadata
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from google.protobuf.message import DecodeError

from .access import AccessKeys, OverRateError
from .api import Models, RequestError, StatusCode
from .batching import as_request_error
from .calls import DIGEST_HEADER, KEY_HEADER, REQUEST_ID, VERSION_HEADER, CallFacts, request_id_of
from .grpc_protocol import GrpcCall, GrpcHandler, GrpcMethod, Streamed, Unary
from .http import HttpLimits
from .inference_service import OpenInference, error_text
from .metrics import ServingMetrics
from .protos import POOL, SERVICES, HealthCheckResponse, HealthListResponse, Message, message_class
from .tensor_columns import invalid
from .tensorflow_service import Reload, TensorFlowServing
from .tracing import RequestSpan, RequestTracing

Answering: TypeAlias = Callable[[Message, CallFacts], Awaitable[Message]]
"""A method of a service: a request's message and what came beside it in, the answer's message out."""
Streaming: TypeAlias = Callable[[AsyncIterator[Message], CallFacts], AsyncIterator[Message]]
"""The same for a stream of requests; a method of one request and many answers reads one."""

_LIMITS: Final = HttpLimits()
_WATCH_SECONDS: Final = 0.5
"""How often a health stream looks whether anything changed."""
_LIVENESS: Final = ("inference.ServerLiveRequest", "inference.ServerReadyRequest")
_ADMIN: Final = (
    "tensorflow.serving.ReloadConfigRequest",
    "inference.RepositoryModelLoadRequest",
    "inference.RepositoryModelUnloadRequest",
)
_ABOUT_ALL: Final = ("tensorflow.serving.ReloadConfigRequest", "inference.RepositoryIndexRequest")


def grpc_handler(
    models: Models,
    *,
    reload: Reload | None = None,
    limits: HttpLimits = _LIMITS,
    timeout_seconds: float | None = None,
    admin: bool = False,
    metrics: ServingMetrics | None = None,
    keys: AccessKeys | None = None,
    tracing: RequestTracing | None = None,
) -> GrpcHandler:
    """What answers the calls of every service, for the connections of `http2`.

    Args:
        models: Whom to ask.
        reload: What puts a new configuration in place; None: clients cannot.
        limits: What clients may send; a message is a body.
        timeout_seconds: How long a request may take, if its client waits longer; None: for ever.
        admin: Whether models may be loaded and unloaded by request.
        metrics: Where predictions are counted.
        keys: Who may ask; None: anybody.
        tracing: What makes spans of calls for predictions; None: nobody wants any.
    """
    tensorflow = TensorFlowServing(models, reload, limits.body)
    inference = OpenInference(models, importlib.metadata.version("drivetrain"), admin=admin)
    health = _Health(models)
    calls = _Calls(timeout_seconds, metrics, keys, tracing)
    answering: Mapping[str, Mapping[str, Answering]] = {
        "tensorflow.serving.PredictionService": {
            "Predict": tensorflow.predict,
            "Classify": tensorflow.classify,
            "Regress": tensorflow.regress,
            "MultiInference": tensorflow.multi_inference,
            "GetModelMetadata": tensorflow.get_model_metadata,
        },
        "tensorflow.serving.ModelService": {
            "GetModelStatus": tensorflow.get_model_status,
            "HandleReloadConfigRequest": tensorflow.handle_reload_config_request,
        },
        "inference.GRPCInferenceService": {
            "ServerLive": inference.server_live,
            "ServerReady": inference.server_ready,
            "ServerMetadata": inference.server_metadata,
            "ModelReady": inference.model_ready,
            "ModelMetadata": inference.model_metadata,
            "ModelInfer": inference.model_infer,
            "RepositoryIndex": inference.repository_index,
            "RepositoryModelLoad": inference.repository_model_load,
            "RepositoryModelUnload": inference.repository_model_unload,
        },
        "grpc.health.v1.Health": {"Check": health.check, "List": health.list},
    }
    streaming: Mapping[str, Mapping[str, Streaming]] = {
        "inference.GRPCInferenceService": {"ModelStreamInfer": _each(inference.model_stream_infer)},
        "grpc.health.v1.Health": {"Watch": health.watch},
        "grpc.reflection.v1.ServerReflection": {"ServerReflectionInfo": _each(_reflected)},
        "grpc.reflection.v1alpha.ServerReflection": {"ServerReflectionInfo": _each(_reflected)},
    }
    methods = {}
    for service in SERVICES:
        for method in POOL.FindServiceByName(service).methods:
            request_class, path = message_class(method.input_type.full_name), f"/{service}/{method.name}"
            if method.name in answering.get(service, {}):
                methods[path] = GrpcMethod(calls.unary(method, request_class, answering[service][method.name]))
            else:
                answer_many = calls.stream(method, request_class, streaming[service][method.name])
                methods[path] = GrpcMethod(streamed=answer_many, takes_stream=method.client_streaming)
    return GrpcHandler(methods, limits.body, limits.head, limits.request_seconds)


_API: Final = {  # of the methods that predict
    "Predict": "predict", "Classify": "classify", "Regress": "regress", "MultiInference": "multi_inference",
    "ModelInfer": "infer", "ModelStreamInfer": "infer",
}  # fmt: skip


# --- calls ---


@dataclass(frozen=True)
class _Calls:
    """What every call goes through: bytes to messages and back, headers, time limits, counts, spans, errors."""

    timeout_seconds: float | None
    metrics: ServingMetrics | None
    keys: AccessKeys | None
    tracing: RequestTracing | None

    def unary(self, method: Any, request_class: Any, answer: Answering) -> Unary:  # Any: protobuf's own
        """What a call of one request is given to, with the bytes of it, for those of its answer."""
        api = _API.get(method.name, "")

        async def handle(content: bytes, call: GrpcCall) -> bytes:
            started, span = time.perf_counter(), None
            facts = self._facts(call)
            try:
                request = self._allowed(request_class, content, call)
                span = self._span(method, call)
                response: bytes = (await answer(request, facts)).SerializeToString()
            except Exception as error:
                raise self._refusal(call, error, facts, span) from None
            except asyncio.CancelledError:
                if span is not None:
                    span.end_call(StatusCode.CANCELLED, facts)
                raise
            if self.metrics is not None and facts.rows and facts.version is not None:
                seconds = time.perf_counter() - started
                self.metrics.answered(facts.model, facts.version, facts.rows, seconds, api=api, entrypoint="GRPC")
            call.trailers = _metadata(facts)
            if span is not None:
                span.end_call(StatusCode.OK, facts)
            return response

        return handle

    def stream(self, method: Any, request_class: Any, answer: Streaming) -> Streamed:
        """What a call of many answers is given to, with the bytes of its requests, for those of its answers."""

        async def handle(contents: AsyncIterator[bytes], call: GrpcCall) -> AsyncGenerator[bytes, None]:
            facts = self._facts(call)

            async def requests() -> AsyncIterator[Message]:
                async for content in contents:
                    if method.client_streaming:
                        facts.begin(self._facts(call))  # each message has a time of its own, and an id
                    yield self._allowed(request_class, content, call)

            call.trailers = _metadata(facts)
            span = None
            try:
                if self.keys is not None and not _is_health(request_class):
                    self.keys.known(*_sent_keys(call))
                span = self._span(method, call)
                async for response in answer(requests(), facts):
                    yield response.SerializeToString()
                if span is not None:
                    span.end_call(StatusCode.OK, facts)
            except Exception as error:
                raise self._refusal(call, error, facts, span) from None
            except asyncio.CancelledError:
                if span is not None:
                    span.end_call(StatusCode.CANCELLED, facts)
                raise

        return handle

    def _allowed(self, request_class: Any, content: bytes, call: GrpcCall) -> Message:
        """The request in some bytes, if its key may ask for it; without a key, nothing is parsed."""
        if self.keys is None or _is_health(request_class):
            return _parsed(request_class, content)
        key = self.keys.admit(*_sent_keys(call))
        request = _parsed(request_class, content)
        name = request_class.DESCRIPTOR.full_name
        key.allow("admin" if name in _ADMIN else "predict", _models_of(request, name))
        return request

    def _facts(self, call: GrpcCall) -> CallFacts:
        """What a call says beside its message."""
        headers, deadline = call.headers, call.deadline
        if self.timeout_seconds is not None:
            ours = time.monotonic() + self.timeout_seconds
            deadline = ours if deadline is None else min(deadline, ours)
        client_id = headers.get(REQUEST_ID)
        request_id = request_id_of(client_id)
        return CallFacts(headers.get(KEY_HEADER), deadline, request_id, request_id != client_id)

    def _span(self, method: Any, call: GrpcCall) -> RequestSpan | None:
        """The span of a call for predictions that was let in, where somebody wants it."""
        if self.tracing is None or method.name not in _API:
            return None
        service = method.containing_service.full_name
        attributes = {"rpc.system": "grpc", "rpc.service": service, "rpc.method": method.name}
        return self.tracing.begin(f"{service}/{method.name}", attributes, call.headers)

    def _refusal(self, call: GrpcCall, error: Exception, facts: CallFacts, span: RequestSpan | None) -> RequestError:
        """What a client is told of an error; what is our own fault is logged, and told without its cause."""
        refusal = as_request_error(error)
        if span is not None:
            span.end_call(refusal.code, facts)
        if self.metrics is not None and facts.model:
            self.metrics.refused(facts.model, refusal.code)
        call.trailers = _metadata(facts)
        if isinstance(refusal, OverRateError):
            call.trailers += (("retry-after", str(refusal.retry_after)),)
        return RequestError(refusal.code, error_text(refusal))


def _is_health(request_class: Any) -> bool:
    name: str = request_class.DESCRIPTOR.full_name
    return name.startswith("grpc.health.") or name in _LIVENESS


def _sent_keys(call: GrpcCall) -> tuple[list[str], list[str]]:
    """The values of both headers that keys come in."""
    return (
        [value for name, value in call.metadata if name == "authorization"],
        [value for name, value in call.metadata if name == "x-api-key"],
    )


def _models_of(request: Message, name: str) -> tuple[str, ...] | None:
    """The models that a request is about; None: whichever there are."""
    if name in _ABOUT_ALL:
        return None
    fields = request.DESCRIPTOR.fields_by_name
    if "tasks" in fields:
        return tuple(task.model_spec.name for task in request.tasks)
    if "model_spec" in fields:
        return (request.model_spec.name,)
    if "model_name" in fields:
        return (request.model_name,)
    return (request.name,) if "name" in fields else ()


def _each(answer: Answering) -> Streaming:
    """A stream that answers each request on its own, one after another."""

    async def stream(requests: AsyncIterator[Message], facts: CallFacts) -> AsyncIterator[Message]:
        async for request in requests:
            yield await answer(request, facts)

    return stream


def _metadata(facts: CallFacts) -> tuple[tuple[str, str], ...]:
    """What goes behind an answer."""
    pairs = (
        (VERSION_HEADER, "" if facts.version is None else str(facts.version)),
        (DIGEST_HEADER, facts.digest),
        (REQUEST_ID, facts.request_id),
    )
    return tuple((name, value) for name, value in pairs if value)


def _parsed(request_class: Any, content: bytes) -> Message:
    try:
        return request_class.FromString(content)
    except DecodeError:
        raise invalid(f"the request is no {request_class.DESCRIPTOR.full_name}") from None


# --- health ---


class _Health:
    """The health of the server; each of its services is as healthy as the whole."""

    def __init__(self, models: Models) -> None:
        self._models = models
        self._change: asyncio.Future[None] | None = None

    def _next_change(self) -> asyncio.Future[None]:
        """Done when readiness has changed: thousands of streams may wait, and one timer looks."""
        if self._change is None:
            self._change = asyncio.get_running_loop().create_future()
            self._look(self._change, self._models.ready)
        return self._change

    def _look(self, change: asyncio.Future[None], was_ready: bool) -> None:
        if self._models.ready == was_ready:
            change.get_loop().call_later(_WATCH_SECONDS, self._look, change, was_ready)
        else:
            self._change = None
            change.set_result(None)

    def _status(self, service: str) -> int:
        names = HealthCheckResponse.ServingStatus
        if service and service not in SERVICES:
            return int(names.Value("SERVICE_UNKNOWN"))
        return int(names.Value("SERVING" if self._models.ready else "NOT_SERVING"))

    async def check(self, request: Message, facts: CallFacts) -> Message:
        """How a service is."""
        status = self._status(request.service)
        if status == HealthCheckResponse.ServingStatus.Value("SERVICE_UNKNOWN"):
            raise RequestError(StatusCode.NOT_FOUND, f"there is no service {request.service!r:.80}")
        return HealthCheckResponse(status=status)

    async def list(self, request: Message, facts: CallFacts) -> Message:
        """How every service is."""
        response = HealthListResponse()
        for service in ("", *SERVICES):
            response.statuses[service].status = self._status(service)
        return response

    async def watch(self, requests: AsyncIterator[Message], facts: CallFacts) -> AsyncIterator[Message]:
        """How a service is, now and whenever it changes."""
        request = await anext(requests)
        last = None
        while True:
            status = self._status(request.service)
            if status != last:
                last = status
                yield HealthCheckResponse(status=status)  # which may take its client a while
            else:
                await asyncio.shield(self._next_change())  # a stream that ends leaves the others' alone


# --- reflection ---


async def _reflected(request: Message, facts: CallFacts) -> Message:
    """The answer to a question about our services and messages."""
    name = request.DESCRIPTOR.full_name.replace("Request", "Response")
    response = message_class(name)(valid_host=request.host, original_request=request)
    question = request.WhichOneof("message_request")
    try:
        match question:
            case "list_services":
                for service in SERVICES:
                    response.list_services_response.service.add(name=service)
            case "file_by_filename":
                _add_files(response, POOL.FindFileByName(request.file_by_filename))
            case "file_containing_symbol":
                _add_files(response, _file_of(request.file_containing_symbol))
            case "all_extension_numbers_of_type":
                kind = POOL.FindMessageTypeByName(request.all_extension_numbers_of_type)
                response.all_extension_numbers_response.base_type_name = kind.full_name
            case _:
                raise KeyError(question)  # we have no extensions
    except KeyError:
        response.error_response.error_code = int(StatusCode.NOT_FOUND if question else StatusCode.INVALID_ARGUMENT)
        response.error_response.error_message = "there is no such definition" if question else "there is no question"
    return response


def _file_of(symbol: str) -> Any:
    """The file that defines a message, an enum, a service, or a method, which the pool does not find by itself."""
    try:
        return POOL.FindFileContainingSymbol(symbol)
    except KeyError:
        service, _, method = symbol.rpartition(".")
        POOL.FindServiceByName(service).methods_by_name[method]
        return POOL.FindFileContainingSymbol(service)


def _add_files(response: Message, file: Any) -> None:
    """A file and those that it needs, each once."""
    files = {file.name: file}
    waiting = [file]
    while waiting:
        for each in waiting.pop().dependencies:
            if each.name not in files:
                files[each.name] = each
                waiting.append(each)
    for each in files.values():
        response.file_descriptor_response.file_descriptor_proto.append(each.serialized_pb)
