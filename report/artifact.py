"""An artifact as a page: what it is, what it was made from and into, links to those, and its own report."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from .html import BODY, Html, badge, details, framed, html, is_page, join, page, section, table
from .over_runs import Measured, over_runs

_HEIGHT: Final = 900  # pixels of a report that is not ours

Link = tuple[str, str | None]
"""A text, and the page that it leads to, if there is one."""


def link(text: str, href: str | None) -> Html:
    """The text, leading to another page where there is one."""
    return html(text) if href is None else Html(f'<a href="{html(href)}">{html(text)}</a>')


def render(
    name: str,
    kind: str,
    run: Link,
    facts: Mapping[str, object],
    *,
    made_from: Sequence[Link] = (),
    made_into: Sequence[Link] = (),
    summary: object = "",
    signatures: Sequence[Sequence[Any]] = (),
    report: str | None = None,
    history: Sequence[Measured] = (),
) -> str:
    """One HTML document.

    Args:
        name: Node and output: "Trainer.model".
        kind: The artifact's type.
        run: The run's page.
        facts: What is known of it, by name.
        made_from: The artifacts that its node read.
        made_into: The artifacts of the run that were made from it.
        summary: What it says of itself.
        signatures: Of a bundle: [name, {"inputs": [[column, {"dtype", "shape"}]], "outputs": the same}].
        report: Its `extra/report.html`. One that `page` wrote becomes this page, with links above it; any other one is
            framed, and its scripts do nothing.
        history: What was measured of the artifacts that the node made before it, and of itself, the oldest first.
    """
    title = join([Html("<b>"), name, Html("</b> "), badge(kind)])
    links = {"made from": _links(made_from), "made into": _links(made_into)}
    back = join([Html("<p>← "), link(*run), Html("</p>")])
    lies = details("where it is, and what it says", _facts(facts))
    about = join([Html("<nav>"), back, _facts(links), lies, Html("</nav>"), over_runs(history)])
    below = _signatures(signatures) if signatures else Html("")
    if report is not None and is_page(report):
        head, body = report.split(BODY, 1)
        return f"{head}{BODY}{join([title, about])}{body}"
    words = join([Html("<p>"), summary, Html("</p>")]) if summary else Html("")
    shown = section("Report", Html(framed(report, height=_HEIGHT))) if report is not None else Html("")
    return page(name, join([about, words, below, shown]), badges=[badge(kind)])


def _facts(facts: Mapping[str, object]) -> Html:
    lines = (join([Html("<dt>"), name, Html("</dt><dd>"), said, Html("</dd>")]) for name, said in facts.items() if said)
    return join([Html('<dl class="facts">'), *lines, Html("</dl>")])


def _links(links: Iterable[Link]) -> Html:
    return join([link(*each) for each in links], ", ")


def _signatures(signatures: Iterable[Sequence[Any]]) -> Html:
    rows = [
        (name, role, column, f"{spec['dtype']}[{','.join(['b', *map(str, spec['shape'])])}]")
        for name, signature in signatures
        for role, key in (("input", "inputs"), ("output", "outputs"))
        for column, spec in signature[key]
    ]
    note = "A type is the numbers' kind and the shape, b being the rows of a batch."
    return section("Signatures", table(["Signature", "", "Name", "Type"], rows), note=note)
