"""Pages of other origins that may ask from a browser (CORS); keys go in a header, so cookies are never asked for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from ..errors import InputError
from .http import Handler, HttpRequest, HttpResponse, Respond

_METHODS: Final = "GET, HEAD, POST"
_SENT: Final = "authorization, content-type, inference-header-content-length, x-api-key, x-drivetrain-key, x-request-id"
_READ: Final = "inference-header-content-length, retry-after, x-drivetrain-digest, x-drivetrain-version, x-request-id"
_SECONDS: Final = "600"


@dataclass(frozen=True)
class CrossOrigin:
    """Lets pages of some origins ask a handler.

    Attributes:
        handler: Answers.
        origins: "https://host" or "https://host:port", as browsers send them; "*": any.
    """

    handler: Handler
    origins: frozenset[str]

    def __post_init__(self) -> None:
        for origin in self.origins - {"*"}:
            parts = urlsplit(origin)
            plain = f"{parts.scheme}://{parts.netloc}" == origin and origin == origin.lower() and "@" not in origin
            if parts.scheme not in ("http", "https") or not parts.netloc or not plain or not origin.isascii():
                raise InputError(
                    f"{origin!r:.200} is not an origin", fix="write https://host in lowercase, without a path"
                )

    def __call__(self, request: HttpRequest, respond: Respond) -> None:
        """Answer a request, and tell the browser whether the page may read the answer."""
        origin = request.headers.get("origin")
        if origin is None and "*" in self.origins:
            self.handler(request, respond)
            return
        allowed = "*" in self.origins or origin in self.origins
        headers: tuple[tuple[str, str], ...] = () if "*" in self.origins else (("vary", "origin"),)
        if allowed and origin is not None:
            headers += (("access-control-allow-origin", "*" if "*" in self.origins else origin),)
        if request.method == "OPTIONS" and "access-control-request-method" in request.headers:
            if allowed:
                headers += (
                    ("access-control-allow-methods", _METHODS),
                    ("access-control-allow-headers", _SENT),
                    ("access-control-max-age", _SECONDS),
                )
            respond(HttpResponse(200 if allowed else 403, b"", headers=headers))
            return
        if allowed:
            headers += (("access-control-expose-headers", _READ),)

        def answer(response: HttpResponse) -> None:
            response.headers += headers
            respond(response)

        self.handler(request, answer)
