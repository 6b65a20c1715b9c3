"""What both clients need of gRPC: where to, by which credentials, and answers as over HTTP."""

from __future__ import annotations

import json
import ssl
from typing import Any
from urllib.parse import urlsplit

import grpc

from ..errors import InputError
from .api import HTTP_STATUS, StatusCode
from .client_steps import MOST_BYTES, ClientAnswer, ModelAddress, too_long


def channel_options() -> list[tuple[str, int]]:
    """No tries but ours, for which a lost connection is made anew soon enough."""
    return [
        ("grpc.max_receive_message_length", MOST_BYTES),
        ("grpc.enable_retries", 0),
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.min_reconnect_backoff_ms", 100),
        ("grpc.max_reconnect_backoff_ms", 1000),
    ]


def host_of(address: ModelAddress) -> str:
    """The "host:port" of an address."""
    return urlsplit(address.url).netloc


def credentials_of(address: ModelAddress, tls: Any) -> Any:  # Any: grpc has no types
    """How a channel trusts the server; None: plain text.

    Raises:
        InputError: `tls` is of HTTP.
    """
    if urlsplit(address.url).scheme == "http":
        return None
    if isinstance(tls, ssl.SSLContext):
        raise InputError(
            "gRPC takes no ssl.SSLContext", fix="give grpc.ssl_channel_credentials(root_certificates=PEM) as tls"
        )
    return grpc.ssl_channel_credentials() if tls is None else tls


def answer_of(body: bytes, trailing: Any) -> ClientAnswer:
    """An answer, and the metadata behind it."""
    return ClientAnswer(200, {key: str(value) for key, value in trailing or ()}, body)


def failure_of(error: Any) -> ClientAnswer:
    """What a call ended with, as HTTP would have it.

    Raises:
        ConnectionError: The server is not there.
        TimeoutError: It did not answer in time.
        ServerError: Its answer is larger than clients read.
    """
    code, details = StatusCode(error.code().value[0]), error.details() or ""
    trailing = {key: str(value) for key, value in error.trailing_metadata() or ()}
    if code is StatusCode.UNAVAILABLE and "x-request-id" not in trailing:  # the server's own have it
        raise ConnectionError(details)
    if code is StatusCode.DEADLINE_EXCEEDED and "x-request-id" not in trailing:
        raise TimeoutError(details)
    if code is StatusCode.RESOURCE_EXHAUSTED and "x-request-id" not in trailing and "larger than max" in details:
        raise too_long()
    return ClientAnswer(HTTP_STATUS[code], trailing, json.dumps({"error": details}).encode())
