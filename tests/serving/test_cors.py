"""Which pages may ask from a browser."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("httptools")
pytest.importorskip("grpc")

from drivetrain.errors import InputError
from drivetrain.serving.cors import CrossOrigin
from drivetrain.serving.http import HttpRequest, Respond
from drivetrain.serving.server import ServerOptions
from drivetrain.tests.serving.open_server import open_server
from drivetrain.tests.serving.test_access import FILE, PREDICT

ALLOWED = "access-control-allow-origin"
PAGE = "https://app.example:8443"


def preflight(origin: str) -> list[tuple[str, str]]:
    """What a browser sends before a page's POST."""
    return [("Origin", origin), ("Access-Control-Request-Method", "POST")]


def test_pages_of_allowed_origins(tmp_path: Path) -> None:
    """Preflight needs no key, the request does; others get no header; nobody is let send cookies."""
    (tmp_path / "keys.yaml").write_text(FILE)
    with open_server(ServerOptions(keys=tmp_path / "keys.yaml", cors_origins=(PAGE,))) as server:
        status, headers, _ = server.ask("OPTIONS", PREDICT, preflight(PAGE))
        assert (status, headers[ALLOWED], headers["vary"]) == (200, PAGE, "origin")
        assert "POST" in headers["access-control-allow-methods"]
        assert "authorization" in headers["access-control-allow-headers"]
        assert "access-control-allow-credentials" not in headers
        status, headers, _ = server.ask("POST", PREDICT, [("Origin", PAGE)])
        assert (status, headers[ALLOWED]) == (401, PAGE)
        for origin in ("null", PAGE.upper(), f"{PAGE}.evil.example", "https://app.example", f"{PAGE}, {PAGE}"):
            status, headers, _ = server.ask("OPTIONS", PREDICT, preflight(origin))
            assert (status, ALLOWED in headers, headers["vary"]) == (403, False, "origin")
            assert ALLOWED not in server.ask("GET", "/v2/health/live", [("Origin", origin)])[1]


def test_pages_change_nothing_unless_they_are_allowed() -> None:
    """A page that a developer looks at reaches the developer's server."""
    unload = "/v2/repository/models/m/unload"
    with open_server(ServerOptions(cors_origins=(PAGE,))) as server:
        assert server.ask("POST", unload)[0] == 404
        assert server.ask("POST", unload, [("Origin", PAGE)])[0] == 404
        for origin in ("https://evil.example", "null"):
            status, _, body = server.ask("POST", unload, [("Origin", origin), ("Content-Type", "text/plain")])
            assert status == 403
            assert "may change nothing here" in body["error"]
    with open_server(ServerOptions(cors_origins=("*",))) as server:
        assert server.ask("POST", unload, [("Origin", "https://evil.example")])[0] == 403


def test_any_origin_and_none() -> None:
    """With "*" any page may ask; without the option none may."""
    with open_server(ServerOptions(cors_origins=("*",))) as server:
        assert server.ask("GET", "/v2", [("Origin", "https://any.example")])[1][ALLOWED] == "*"
        assert ALLOWED not in server.ask("GET", "/v2")[1]
    with open_server(ServerOptions()) as server:
        status, headers, _ = server.ask("OPTIONS", PREDICT, preflight(PAGE))
        assert status == 405
        assert ALLOWED not in headers


def _nobody(request: HttpRequest, respond: Respond) -> None:
    raise AssertionError(request)


@pytest.mark.parametrize("origin", ["app.example", "https://app.example/", "ftp://a", "https://A.example", "null", ""])
def test_what_is_no_origin(origin: str) -> None:
    """It would match no browser's."""
    with pytest.raises(InputError, match="not an origin"):
        CrossOrigin(_nobody, frozenset({origin}))
