"""Great Expectations' Data Docs as a page that needs no network, and in which no value of the data is markup.

GX 1.24 loads styles, scripts and pictures from public servers, and writes values into the page as they are.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from html import escape
from typing import Any, Final

# Characters of no language stand for markup's own, and what begins a resource in a style, while GX renders; then they
# become entities.
_HIDDEN: Final = {mark: chr(0xF700 + index) for index, mark in enumerate("<>&\"'(@")}
_HIDE: Final = str.maketrans(_HIDDEN)
_SHOW: Final = str.maketrans({hidden: escape(mark) for mark, hidden in _HIDDEN.items()})
# GX shows a list as Python writes it, with what is not printable as `\uf700`.
_HIDDEN_IN_LISTS: Final = {f"\\u{ord(hidden):x}": escape(mark) for mark, hidden in _HIDDEN.items()}

_REMOTE: Final = (
    re.compile(r"<script\b.*?</script\s*>", re.DOTALL | re.IGNORECASE),
    re.compile(r"<link\b[^>]*>", re.IGNORECASE),
    re.compile(r"<img\b[^>]*>", re.IGNORECASE),
    re.compile(r"""\bon[a-z]+\s*=\s*("[^"]*"|'[^']*')""", re.IGNORECASE),
    re.compile(r"""\bhref\s*=\s*"\.\./[^"]*\"""", re.IGNORECASE),  # pages of a site that is not there
    re.compile(r"@import[^;]*;", re.IGNORECASE),
)
_URL: Final = re.compile(r"url\(\s*['\"]?(?:https?:)?//[^)]*\)", re.IGNORECASE)
_STYLE: Final = """<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<style>
body{font:14px/1.5 system-ui,sans-serif;margin:0;color:#1c2430;background:#fff}a{color:#004fa5}
.row{display:flex;flex-wrap:wrap}.col-12{width:100%}.col-6{width:50%}.col-md-10{flex:1 1 640px;min-width:0}
.col-lg-2{flex:0 1 230px;padding:0 16px 0 0}.container-fluid{padding:8px 16px}.navbar-expand-md{padding:8px 16px}
.table-responsive{overflow-x:auto;width:100%}table{border-collapse:collapse;width:100%}
td,th{padding:6px 10px;border-top:1px solid #dee2e6;vertical-align:top;text-align:left;overflow-wrap:anywhere}
th{white-space:nowrap}.table-bordered td,.table-bordered th{border:1px solid #dee2e6}
.alert{background:#e2e3e5;border-radius:4px;padding:10px 14px}
.card{border:1px solid #dee2e6;border-radius:4px;margin-bottom:12px}.card-header{background:#f7f7f7;padding:6px 12px}
.card-body{padding:8px 12px}.badge{background:#6c757d;color:#fff;border-radius:3px;padding:1px 6px;font-size:12px}
.text-danger{color:#c0362c}.text-success{color:#1a7f4b}.text-warning{color:#a15c07}h4,h5,h6,p{margin:4px 0}
ul.nav,ol.breadcrumb{list-style:none;padding:0;margin:0}ol.breadcrumb{display:flex;gap:8px}
.fa-times::before{content:"\\2717"}.fa-check-circle::before{content:"\\2713"}
.fa-exclamation-triangle::before{content:"\\26A0"}[class*="fa-"]{font-style:normal;font-weight:700}
.btn{margin-right:10px}a[data-toggle=collapse]{display:none}
body:has(#option2:checked) tr:has(.hide-succeeded-validation-target-child){display:none}
</style>"""


def without_markup(value: Any) -> Any:
    """JSON values with private characters for those that mean something in HTML; `offline` makes them entities."""
    if isinstance(value, str):
        return value.translate(_HIDE)
    if isinstance(value, Mapping):
        return {without_markup(key): without_markup(item) for key, item in value.items()}
    return [without_markup(item) for item in value] if isinstance(value, list) else value


def offline(page: str) -> str:
    """A page that GX rendered from values `without_markup`, with no script and nothing loaded from a server.

    Links remain.
    """
    for remote in _REMOTE:
        page = remote.sub("", page)
    page = _URL.sub("none", page).replace("</head>", f"{_STYLE}</head>", 1)
    for hidden_mark, mark in _HIDDEN_IN_LISTS.items():
        page = page.replace(hidden_mark, mark)
    return page.translate(_SHOW)
