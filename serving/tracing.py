"""A span of OpenTelemetry for each request for predictions; nothing of it is imported unless somebody wants spans."""

from __future__ import annotations

import logging
import os
import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from ..errors import missing_extra
from .api import StatusCode
from .calls import REQUEST_ID, VERSION_HEADER, CallFacts

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SpanExporter
    from opentelemetry.trace import Span

    from .http import HttpResponse, Respond

_LOG: Final = logging.getLogger("drivetrain.serving")
_ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
_PROTOCOLS: Final = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_PROTOCOL: Final = "http/protobuf"
_TRACE_PARENT: Final = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}(-.{0,400})?")
_LONGEST_STATE: Final = 512  # characters of a tracestate, as W3C has it
_MOST_MEMBERS: Final = 32
_STATE_MEMBER: Final = re.compile(
    r"([a-z][_0-9a-z*/-]{0,255}|[a-z0-9][_0-9a-z*/-]{0,240}@[a-z][_0-9a-z*/-]{0,13})"
    r"=[\x20-\x2b\x2d-\x3c\x3e-\x7e]{0,255}[\x21-\x2b\x2d-\x3c\x3e-\x7e]"
)
_LONGEST_NAME: Final = 100
_CLOSE_SECONDS: Final = 5.0  # for the last spans to be sent
_GRPC_FAULTS: Final = frozenset({
    StatusCode.UNKNOWN, StatusCode.DEADLINE_EXCEEDED, StatusCode.UNIMPLEMENTED, StatusCode.INTERNAL,
    StatusCode.UNAVAILABLE, StatusCode.DATA_LOSS,
})  # fmt: skip
"""The codes that are errors of a server's span by OpenTelemetry's semantic conventions for gRPC."""


def tracing_of(endpoint: str | None) -> RequestTracing | None:
    """What makes spans, where they are wanted: by an endpoint, or by OpenTelemetry's environment variables.

    Args:
        endpoint: The address of a collector that takes OTLP over HTTP, "http://localhost:4318"; None: the variables
            decide: OTEL_TRACES_EXPORTER, OTEL_EXPORTER_OTLP_ENDPOINT and OTEL_EXPORTER_OTLP_TRACES_ENDPOINT.

    Raises:
        DrivetrainError: An endpoint was named, and the extra is not installed.
    """
    if os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return None
    if endpoint is None and not _is_wanted(os.environ):
        return None
    try:
        return RequestTracing(_provider(_exporter(endpoint)))
    except ImportError as error:
        if endpoint is not None:
            raise missing_extra("opentelemetry", "otel") from error
        _LOG.warning("no spans are made: opentelemetry is not installed (pip install 'drivetrain[otel]')")
        return None


def _is_wanted(variables: Mapping[str, str]) -> bool:
    exporter = variables.get("OTEL_TRACES_EXPORTER", "").strip()
    if exporter != "otlp" and (exporter or not any(variables.get(name) for name in _ENDPOINTS)):
        return False
    protocol = next((variables[name] for name in _PROTOCOLS if variables.get(name)), _PROTOCOL)
    if protocol != _PROTOCOL:
        _LOG.warning("no spans are made: OTLP by %r is not supported, only %s", protocol, _PROTOCOL)
    return protocol == _PROTOCOL


def _exporter(endpoint: str | None) -> SpanExporter:
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    return OTLPSpanExporter(None if endpoint is None else f"{endpoint.rstrip('/')}/v1/traces")


def _provider(exporter: SpanExporter) -> TracerProvider:
    from opentelemetry.sdk.resources import SERVICE_NAME, Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    resource = Resource.create()  # of OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES
    if str(resource.attributes[SERVICE_NAME]).startswith("unknown_service"):
        resource = resource.merge(Resource({SERVICE_NAME: "drivetrain"}))
    # Not at exit: `RequestTracing.close` shuts it down, and waits for a collector no longer than it says.
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    return provider


class RequestTracing:
    """Makes a span of each request for predictions, below the span that its caller names by W3C's `traceparent`.

    Args:
        provider: Of the SDK; it sends spans from a thread of its own.
    """

    def __init__(self, provider: TracerProvider) -> None:
        from opentelemetry.trace import SpanKind
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        self._provider = provider
        self._tracer = provider.get_tracer("drivetrain.serving")
        self._propagator = TraceContextTextMapPropagator()
        self._server = SpanKind.SERVER

    def begin(self, name: str, attributes: Mapping[str, str], headers: Mapping[str, Any]) -> RequestSpan:
        """Begin a span.

        Args:
            name: What is asked, without what the client chose.
            attributes: What is known of it from the start.
            headers: Of the request, lower-case: `traceparent` and `tracestate` are read, and nothing else.
        """
        context = None
        parent, state = headers.get("traceparent"), headers.get("tracestate", "")
        # Anything else is not looked at by the SDK, which writes a line for some of it.
        if isinstance(parent, str) and _TRACE_PARENT.fullmatch(parent):
            carrier = {"traceparent": parent}
            if isinstance(state, str) and _is_trace_state(state):
                carrier["tracestate"] = state
            context = self._propagator.extract(carrier)
        return RequestSpan(self._tracer.start_span(name, context, self._server, attributes=dict(attributes)))

    def close(self) -> None:
        """Send what is left, for some seconds at most."""
        # The SDK's shutdown takes no limit, and waits half a minute for a collector that does not answer.
        closing = threading.Thread(target=self._provider.shutdown, daemon=True)
        closing.start()
        closing.join(_CLOSE_SECONDS)


def _is_trace_state(text: str) -> bool:
    """Whether a `tracestate` is as W3C has it."""
    if len(text) > _LONGEST_STATE:
        return False
    members = [member for each in text.split(",") if (member := each.strip(" \t"))]
    return 0 < len(members) <= _MOST_MEMBERS and all(map(_STATE_MEMBER.fullmatch, members))


@dataclass(slots=True)
class RequestSpan:
    """A span that has begun.

    Attributes:
        model: The model that the request asks for; "" where that is not known.
        rows: How many rows it has; 0 where that is not known.
    """

    _span: Span
    model: str = ""
    rows: int = 0

    def end_after(self, respond: Respond) -> Respond:
        """What is to be called with an answer over HTTP in place of `respond`: it calls that, then ends the span."""

        def respond_and_end(answer: HttpResponse) -> None:
            respond(answer)
            headers = dict(answer.headers)
            version = headers.get(VERSION_HEADER)
            self._end(
                {"http.response.status_code": answer.status},
                None if version is None else int(version),
                headers.get(REQUEST_ID, ""),
                str(answer.status) if answer.status >= 500 else "",
            )

        return respond_and_end

    def end_call(self, code: StatusCode, facts: CallFacts) -> None:
        """End the span of a call over gRPC."""
        self.model, self.rows = facts.model, facts.rows
        fault = code.name if code in _GRPC_FAULTS else ""
        self._end({"rpc.grpc.status_code": int(code)}, facts.version, facts.request_id, fault)

    def _end(self, status: Mapping[str, int], version: int | None, request_id: str, fault: str) -> None:
        from opentelemetry.trace import StatusCode as SpanStatus

        attributes: dict[str, str | int] = {**status, "drivetrain.request_id": request_id}
        if self.model:
            attributes["drivetrain.model.name"] = self.model[:_LONGEST_NAME]
        if version is not None:
            attributes["drivetrain.model.version"] = version
        if self.rows:
            attributes["drivetrain.rows"] = self.rows
        if fault:
            attributes["error.type"] = fault
            self._span.set_status(SpanStatus.ERROR)
        self._span.set_attributes(attributes)
        self._span.end()
