"""Which HTTP request goes where: TensorFlow Serving's paths, the Open Inference Protocol's, health, metrics."""

from __future__ import annotations

import asyncio
import importlib.metadata
import json
import re
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any, Final, NamedTuple, TypeAlias
from urllib.parse import unquote

import msgspec

from . import oip, tfs
from .access import AccessKeys, OverRateError
from .admin import change_traffic
from .api import HTTP_STATUS, InferenceAnswer, ModelRef, RequestError, StatusCode, VersionState, VersionStatus
from .batching import as_request_error
from .calls import DIGEST_HEADER, KEY_HEADER, REQUEST_ID, VERSION_HEADER, request_id_of
from .explanation import decode_explanation
from .http import Handler, HttpRequest, HttpResponse, Respond
from .json_values import kind, object_of
from .manager import ModelManager
from .metrics import ServingMetrics
from .openapi import openapi_document, served_versions
from .shadow import merged
from .tracing import RequestSpan, RequestTracing
from .web_page import is_own_page, root_response

Encode: TypeAlias = Callable[[InferenceAnswer], bytes | tuple[bytes, int | None]]
"""The body of an answer; with how many bytes of it are JSON, where bytes follow it."""

_PREDICT: Final = re.compile(
    r"/v1/models/([^/:]*)(?:/versions/(\d{1,18})|/labels/([^/:]+))?:(classify|regress|predict)", re.IGNORECASE
)
_EXPLAIN: Final = re.compile(r"/v1/models/([^/:]+)(?:/versions/(\d{1,18})|/labels/([^/:]+))?:explain")
_INFER: Final = re.compile(r"/v2/models/([^/]+)(?:/versions/(?:(\d{1,18})|([^/]+)))?/infer")
_MODEL: Final = re.compile(r"/v2/models/([^/]+)(?:/versions/(\d{1,18}))?(/ready)?/?")
_CHANGE: Final = re.compile(r"/v2/repository/models/([^/]+)/(load|unload)")
_TRAFFIC: Final = re.compile(r"/v1/models/([^/:]+)/traffic")
_ROLLOUT: Final = re.compile(r"/v1/models/([^/:]+)/rollout/([a-z]+)")
_STATUS: Final = re.compile(
    r"/v1/models(?:/([^/:]+)(?:/versions/(\d{1,18})|/labels/([^/:]+))?(/metadata)?)?/?", re.IGNORECASE
)
_HEADER_LENGTH: Final = "inference-header-content-length"
_DIGITS: Final = 19  # of a number of bytes that no body has
_HEALTH: Final = ("/v2/health/live", "/v2/health/ready")
_SERVER: Final = ("/v2", "/v2/", "/openapi.json")
_METRICS: Final = ("/metrics", "/monitoring/prometheus/metrics")


@dataclass
class RestApi:
    """Answers HTTP requests from the models of a manager.

    Attributes:
        models: The models.
        metrics: What is counted.
        timeout_seconds: How long a request may take before it is answered 504; None: for ever.
        admin: Whether models may be loaded and unloaded by request.
        keys: Who may ask; None: anybody.
        cors_origins: Whose pages may ask from a browser.
        tracing: What makes a span of each request for predictions; None: nobody wants any.
    """

    models: ModelManager
    metrics: ServingMetrics
    timeout_seconds: float | None = 30.0
    admin: bool = False
    keys: AccessKeys | None = None
    cors_origins: frozenset[str] = frozenset()
    tracing: RequestTracing | None = None
    _answering: set[asyncio.Task[HttpResponse]] = field(default_factory=set, init=False)
    _documenting: asyncio.Lock = field(default_factory=asyncio.Lock, init=False, repr=False)
    _document: tuple[list[tuple[str, str, int, str]], bytes] | None = field(default=None, init=False, repr=False)

    def __call__(self, request: HttpRequest, respond: Respond) -> None:
        """Answer a request, at once or later."""
        if (root := root_response(request)) is not None:
            respond(root)
            return
        if self.keys is not None:
            try:
                _admit(self.keys, request)
            except RequestError as error:
                respond(error_response(error, request_id=request_id_of(request.headers.get(REQUEST_ID))))
                return
        if request.method == "POST" and (inference := inference_of(request.target)) is not None:
            span = None
            if self.tracing is not None:
                span = _span(self.tracing, request, inference)
                respond = span.end_after(respond)
            self._predict(request, inference, respond, span)
            return
        path = path_of(request.target)
        if request.method == "POST" and (change := _CHANGE.fullmatch(path)) is not None:
            name, verb = change.groups()
            self._later(self._change(name, verb, request), respond)
        elif request.method == "POST" and (explain := _EXPLAIN.fullmatch(path)) is not None:
            self._later(self._explain(_ref(*explain.groups()), request), respond)
        elif request.method == "POST" and (rollout := _ROLLOUT.fullmatch(path)) is not None:
            self._later(self._act_on_rollout(rollout[1], rollout[2], request), respond)
        elif request.method in ("GET", "HEAD", "POST") and (traffic := _TRAFFIC.fullmatch(path)) is not None:
            self._later(self._traffic(traffic[1], request), respond)
        elif request.method in ("GET", "HEAD") and path in _METRICS:
            self._later(self._metrics(), respond)
        elif request.method in ("GET", "HEAD") and path == "/openapi.json":
            self._later(self._openapi(), respond)
        else:
            try:
                respond(self._other(request, path))
            except RequestError as error:
                respond(error_response(error))

    def _later(self, answer: Coroutine[Any, Any, HttpResponse], respond: Respond) -> None:
        task = asyncio.get_running_loop().create_task(answer)
        self._answering.add(task)  # a loop alone does not keep its tasks
        task.add_done_callback(self._answering.discard)
        task.add_done_callback(lambda done: respond(_settled(done)))

    async def _metrics(self) -> HttpResponse:
        text = await self.metrics.text(self.models)
        return HttpResponse(200, text, b"text/plain; version=0.0.4; charset=utf-8")

    async def _openapi(self) -> HttpResponse:
        async with self._documenting:
            served = served_versions(self.models)
            of = [(name, which, each.version, each.digest) for name in served for which, each in served[name]]
            of += [(name, "", 0, "") for name in served]
            if self._document is None or self._document[0] != of:
                build = partial(openapi_document, served, with_keys=self.keys is not None)
                loop = asyncio.get_running_loop()  # of many models it takes long, and predictions do not wait
                body = await loop.run_in_executor(None, lambda: msgspec.json.encode(build()))
                self._document = of, body
            return HttpResponse(200, self._document[1])

    def _other(self, request: HttpRequest, path: str) -> HttpResponse:
        if request.method in ("GET", "HEAD") and (answer := self._get(path)) is not None:
            return answer
        if request.method == "POST" and path == "/v2/repository/index":
            ready_only = (object_of(request.body) if request.body else {}).get("ready", False)
            if not isinstance(ready_only, bool):
                raise RequestError(
                    StatusCode.INVALID_ARGUMENT, f"'ready' is {kind(ready_only)}", fix="send true or false"
                )
            statuses = {name: self._statuses(name) for name in self.models.names()}
            return _json(oip.repository_index(statuses, ready_only=ready_only))
        methods = methods_of(request.target)
        if methods and request.method not in methods.split(", "):
            message = f"{path:.200} is not asked by {request.method}"
            refused = error_response(RequestError(StatusCode.UNIMPLEMENTED, message, fix=f"use {methods}"), 405)
            refused.headers += (("allow", methods),)
            return refused
        return error_response(
            RequestError(
                StatusCode.INVALID_ARGUMENT,
                f"Malformed request: {request.method} {path:.200}",
                fix="/openapi.json says what can be asked, POST /v1/models/NAME:predict for one",
            ),
            404 if request.method in ("GET", "HEAD") and not path.startswith("/v1/") else 400,
        )

    def _get(self, path: str) -> HttpResponse | None:
        if path == "/v2/health/live":
            return _json({"live": True})
        if path == "/v2/health/ready":
            is_ready = self.models.ready
            return HttpResponse(200 if is_ready else 503, msgspec.json.encode({"ready": is_ready}))
        if path in ("/v2", "/v2/"):
            return _json(oip.server_metadata(importlib.metadata.version("drivetrain")))
        if (match := _MODEL.fullmatch(path)) is not None:
            name, version, ready = match.groups()
            described = self.models.describe(_ref(name, version, None))
            available = [status.version for status in self._statuses(name) if status.state is VersionState.AVAILABLE]
            if ready:
                return _json({"name": described.name, "ready": True})
            body = msgspec.json.encode(oip.metadata(described, sorted(available)))
            headers = ((VERSION_HEADER, str(described.version)), (DIGEST_HEADER, described.digest))
            return HttpResponse(200, body, headers=headers)
        match = _STATUS.fullmatch(path)
        if match is None:
            return None
        name, version, label, metadata = match.groups()
        if name is None:
            return _json({"models": self.models.names()})
        ref = _ref(name, version, label)
        if metadata:
            return _json(tfs.metadata_body(self.models.describe(ref)))
        return _json(tfs.status_body(self.models.statuses(ref)))

    def _statuses(self, name: str) -> list[VersionStatus]:
        return self.models.statuses(ModelRef(name)) if self.models.has_versions(name) else []

    async def _change(self, name: str, verb: str, request: HttpRequest) -> HttpResponse:
        self._check_admin(request)
        await (self.models.load(name) if verb == "load" else self.models.unload(name))
        return HttpResponse(200, b"{}")

    async def _explain(self, ref: ModelRef, request: HttpRequest) -> HttpResponse:
        described = self.models.describe(self.models.route(ref, request.headers.get(KEY_HEADER)))
        asked = decode_explanation(request.body, described)
        by = ModelRef(described.name, described.version)
        answer = await self.models.explain(by, asked, self.timeout_seconds)
        body = json.dumps({"explanations": [answer]}).encode()  # an infinite value stays a bare token
        request_id = request_id_of(request.headers.get(REQUEST_ID))
        facts = ((VERSION_HEADER, str(described.version)), (DIGEST_HEADER, described.digest), (REQUEST_ID, request_id))
        return HttpResponse(200, body, headers=facts)

    async def _act_on_rollout(self, name: str, action: str, request: HttpRequest) -> HttpResponse:
        self._check_admin(request)
        asked = object_of(request.body) if request.body else {}
        version = asked.get("version")
        if version is not None and type(version) is not int:
            raise RequestError(StatusCode.INVALID_ARGUMENT, f"'version' is {kind(version)}", fix="send its number")
        await self.models.act_on_rollout(name, action, version)
        return await self._traffic_now(name)

    async def _traffic(self, name: str, request: HttpRequest) -> HttpResponse:
        if request.method == "POST":
            self._check_admin(request)
            await change_traffic(self.models, name, request.body)
        return await self._traffic_now(name)

    async def _traffic_now(self, name: str) -> HttpResponse:
        traffic = self.models.traffic_of(name)
        statuses = await self.models.rollout_statuses()
        traffic["rollout"] = next((status for status in statuses if status["model"] == name), None)
        shadows = merged([process.shadows for process in await self.metrics.everywhere(self.models)])
        traffic["shadows"] = [each.summary() for each in shadows if each.model == name]
        return _json(traffic)

    def _check_admin(self, request: HttpRequest) -> None:
        if not self.admin:
            raise RequestError(
                StatusCode.PERMISSION_DENIED,
                "this server changes nothing by request",
                fix="start it with --admin",
            )
        # A browser says whose page asks; any page reaches a server of its user's machine.
        origin = request.headers.get("origin")
        is_known = origin is None or origin in self.cors_origins or is_own_page(origin, request.headers.get("host", ""))
        if self.keys is None and not is_known:
            raise RequestError(
                StatusCode.PERMISSION_DENIED,
                f"pages of {origin!r:.100} may change nothing here",
                fix="start it with --cors-origin, or --keys",
            )

    def _predict(
        self, request: HttpRequest, path: InferencePath, respond: Respond, span: RequestSpan | None = None
    ) -> None:
        started = time.perf_counter()
        client_id = request.headers.get(REQUEST_ID)
        request_id = request_id_of(client_id)
        ref, is_submitted = path.ref, False
        try:
            if not ref.name:
                raise RequestError(StatusCode.INVALID_ARGUMENT, "Missing model name in request.")
            ref = self.models.route(ref, request.headers.get(KEY_HEADER))
            described = self.models.describe(ref)
            encode: Encode
            if path.verb == "infer":
                length = request.headers.get(_HEADER_LENGTH)
                if length is not None and not (length.isdecimal() and len(length) < _DIGITS):
                    raise RequestError(StatusCode.INVALID_ARGUMENT, f"{_HEADER_LENGTH} is {length!r:.40}")
                inference, wishes = oip.decode(request.body, None if length is None else int(length), described, ref)
                if request_id != client_id and wishes.id:
                    request_id = request_id_of(wishes.id)
                encode = partial(
                    oip.encode_answer, signature=described.signatures[str(inference.signature)], wishes=wishes
                )
            elif path.verb == "predict":
                inference, form = tfs.decode_predict(request.body, described, ref)
                encode = tfs.encode_rows if form == "row" else tfs.encode_columns
            else:
                inference = tfs.decode_examples(request.body, described, ref)
                encode = tfs.encode_classifications if path.verb == "classify" else tfs.encode_regressions
            inference.request_id = request_id
            if self.timeout_seconds is not None:
                inference.deadline = time.monotonic() + self.timeout_seconds
            rows = inference.rows
            if span is not None:
                span.model, span.rows = ref.name, rows

            def done(result: InferenceAnswer | RequestError) -> None:
                respond(self._answered(result, encode, ref.name, path.verb, rows, request_id, started))

            is_submitted = True
            self.models.submit(inference, done)
        except RequestError as error:
            if not is_submitted:
                self.models.refuse(ref, error.code)
            self.metrics.refused(ref.name, error.code)
            respond(error_response(error, request_id=request_id))

    def _answered(
        self,
        result: InferenceAnswer | RequestError,
        encode: Encode,
        model: str,
        verb: str,
        rows: int,
        request_id: str,
        started: float,
    ) -> HttpResponse:
        if not isinstance(result, RequestError):
            try:
                body = encode(result)
            except Exception as failure:  # what the model gave cannot be said in this protocol
                result = as_request_error(failure)
        if isinstance(result, RequestError):
            self.metrics.refused(model, result.code)
            return error_response(result, request_id=request_id)
        seconds = time.perf_counter() - started
        self.metrics.answered(model, result.version, rows, seconds, api=verb, entrypoint="REST")
        headers = ((VERSION_HEADER, str(result.version)), (DIGEST_HEADER, result.digest), (REQUEST_ID, request_id))
        if isinstance(body, bytes):
            return HttpResponse(200, body, headers=headers)
        data, length = body
        if length is None:
            return HttpResponse(200, data, headers=headers)
        return HttpResponse(200, data, b"application/octet-stream", (*headers, (_HEADER_LENGTH, str(length))))


def methods_of(target: str) -> str:
    """The methods by which a target may be asked, as the header `Allow` has them; "": there is no such target."""
    path = path_of(target)
    if _TRAFFIC.fullmatch(path) is not None:
        return "GET, HEAD, POST"
    changes = _CHANGE.fullmatch(path) or _ROLLOUT.fullmatch(path)
    if (changes or _EXPLAIN.fullmatch(path) or inference_of(target)) is not None:
        return "POST"
    if path == "/v2/repository/index":
        return "POST"
    is_known = path in ("/", *_HEALTH, *_METRICS, *_SERVER) or _MODEL.fullmatch(path) or _STATUS.fullmatch(path)
    return "GET, HEAD" if is_known else ""


class InferencePath(NamedTuple):
    """What the path of a request for predictions says."""

    ref: ModelRef
    verb: str


@lru_cache(1024)
def inference_of(target: str) -> InferencePath | None:
    """What a target asks for, if it asks for predictions. Clients ask the same again and again."""
    path = path_of(target)
    if (match := _INFER.fullmatch(path)) is not None:
        return InferencePath(_ref(*match.groups()), "infer")
    match = _PREDICT.fullmatch(path)
    if match is None:
        return None
    name, version, label, verb = match.groups()
    return InferencePath(_ref(name, version, label), verb.lower())


class Needs(NamedTuple):
    """What a key must be allowed, for a request."""

    duty: str
    models: tuple[str, ...] | None


@lru_cache(1024)
def needs_of(method: str, target: str) -> Needs | None:
    """What a request needs of its key; None: it needs none, being about the server's health."""
    path = path_of(target)
    if path in _HEALTH:
        return None
    if path in _METRICS:
        return Needs("metrics", None)
    if (match := _CHANGE.fullmatch(path) or _ROLLOUT.fullmatch(path)) is not None:
        return Needs("admin", (match[1],))
    if (match := _TRAFFIC.fullmatch(path)) is not None:
        return Needs("admin" if method == "POST" else "predict", (match[1],))
    if (inference := inference_of(target)) is not None:
        return Needs("predict", (inference.ref.name,))
    match = _EXPLAIN.fullmatch(path) or _MODEL.fullmatch(path) or _STATUS.fullmatch(path)
    if match is not None and match[1] is not None:
        return Needs("predict", (match[1],))
    return Needs("predict", () if path in ("/v2", "/v2/") else None)


def strangers_refused(handler: Handler, keys: AccessKeys) -> Callable[[HttpRequest], HttpResponse | None]:
    """What refuses, as a handler does, requests without a known key before their bodies are read."""

    def refusal(request: HttpRequest) -> HttpResponse | None:
        if request.method != "POST" or needs_of(request.method, request.target) is None:
            return None
        try:
            keys.known(*_keys_of(request))
        except RequestError:
            answers: list[HttpResponse] = []
            handler(request, answers.append)  # at once: it needs no model to refuse
            return answers[0]
        return None

    return refusal


def _admit(keys: AccessKeys, request: HttpRequest) -> None:
    """Pass, if the key of a request may ask for it."""
    needs = needs_of(request.method, request.target)
    if needs is None:
        return
    keys.admit(*_keys_of(request)).allow(*needs)


def _keys_of(request: HttpRequest) -> tuple[Sequence[str], Sequence[str]]:
    """The values of the two headers that may hold a key; of one that came twice a text with a comma, as no key has."""
    authorization, api_key = request.headers.get("authorization"), request.headers.get("x-api-key")
    return () if authorization is None else (authorization,), () if api_key is None else (api_key,)


def _span(tracing: RequestTracing, request: HttpRequest, path: InferencePath) -> RequestSpan:
    route = "/v2/models/{model}/infer" if path.verb == "infer" else f"/v1/models/{{model}}:{path.verb}"
    attributes = {"http.request.method": request.method, "http.route": route}
    return tracing.begin(f"{request.method} {route}", attributes, request.headers)


def path_of(target: str) -> str:
    """A target's path, decoded."""
    path = target.partition("?")[0]
    return unquote(path) if "%" in path else path


def _ref(name: str, version: str | None, label: str | None) -> ModelRef:
    return ModelRef(name, None if version is None else int(version), label)


def _settled(done: asyncio.Task[HttpResponse]) -> HttpResponse:
    if done.cancelled():
        return error_response(RequestError(StatusCode.UNAVAILABLE, "the server is ending"))
    error = done.exception()
    return done.result() if error is None else error_response(as_request_error(error))


def _json(value: Any) -> HttpResponse:  # Any: JSON
    return HttpResponse(200, msgspec.json.encode(value))


def error_response(error: RequestError, status: int | None = None, *, request_id: str = "") -> HttpResponse:
    """The answer to a request that is refused: `error` in a JSON object, with what can be done about it."""
    text = error.message if error.fix is None else f"{error.message}; {error.fix}"
    # Lone surrogates, which JSON text may hold, have no bytes.
    body = msgspec.json.encode({"error": text.encode("utf-8", "replace").decode()})
    headers: tuple[tuple[str, str], ...] = ((REQUEST_ID, request_id),) if request_id else ()
    if error.code in (StatusCode.UNAVAILABLE, StatusCode.RESOURCE_EXHAUSTED):
        wait = error.retry_after if isinstance(error, OverRateError) else 1
        headers = (*headers, ("retry-after", str(wait)))
    elif error.code is StatusCode.UNAUTHENTICATED:
        headers = (*headers, ("www-authenticate", 'Bearer realm="drivetrain"'))
    return HttpResponse(status or HTTP_STATUS[error.code], body, headers=headers)
