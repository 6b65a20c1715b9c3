"""The server's page for people: one document, which asks this server alone and shows what clients are answered."""

from __future__ import annotations

from base64 import b64encode
from functools import cache
from hashlib import sha256
from importlib.resources import files
from ipaddress import ip_address
from urllib.parse import urlsplit

from .http import HttpRequest, HttpResponse


def root_response(request: HttpRequest) -> HttpResponse | None:
    """The answer at `/`: to a browser the page, to other clients KServe's word that the server lives; else None."""
    if request.target != "/" or request.method not in ("GET", "HEAD"):
        return None
    if "text/html" in request.headers.get("accept", ""):
        return page_response()
    return HttpResponse(200, b'{"status":"alive"}', headers=(("vary", "accept"),))


@cache
def _page() -> tuple[bytes, str]:
    """The document, and the policy with which the browser runs its script, and nothing else."""
    folder = files(__package__) / "page"
    style, script = ((folder / name).read_text("utf-8") for name in ("page.css", "page.js"))
    document = (folder / "page.html").read_text("utf-8").replace("{{style}}", style).replace("{{script}}", script)
    hashes = {
        kind: f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"
        for kind, text in (("style-src", style), ("script-src", script))
    }
    policy = (
        f"default-src 'none'; connect-src 'self'; img-src data:; style-src {hashes['style-src']}; "
        f"script-src {hashes['script-src']}; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    return document.encode(), policy


def page_response() -> HttpResponse:
    """The page. It holds nothing of the models: its script asks for them, with the reader's key."""
    document, policy = _page()
    headers = (
        ("content-security-policy", policy),
        ("cache-control", "no-cache"),
        ("referrer-policy", "no-referrer"),
        ("vary", "accept"),
        ("x-content-type-options", "nosniff"),
    )
    return HttpResponse(200, document, b"text/html; charset=utf-8", headers)


def is_own_page(origin: str, host: str) -> bool:
    """Whether a request comes from a page of this very server, by the headers that a browser sends.

    Only where the host is an address: a name of somebody else's may be made to lead here (DNS rebinding), and then its
    pages have the same origin as ours.
    """
    try:
        parts = urlsplit(origin)
    except ValueError:
        return False
    if parts.scheme not in ("http", "https") or parts.netloc != host:
        return False
    if parts.hostname == "localhost":
        return True
    try:
        ip_address(parts.hostname or "")
    except ValueError:
        return False
    return True
