"""Controls and empty lists that a page's script fills: what the pages of many features have in common."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from .html import Html, html, join


@dataclass(frozen=True)
class Choice:
    """One control.

    Attributes:
        name: In the page's address.
        label: For people.
        options: What a list offers, value → text, the first being the default; a box to tick where empty.
        is_on: Whether the box is ticked.
        css: Colour of the box's dot, "s0" to "s5"; "": no dot.
        group: Boxes of one group stand together under its name.
    """

    name: str
    label: str
    options: Mapping[str, str] = field(default_factory=dict)
    is_on: bool = False
    css: str = ""
    group: str = ""


def explorer(choices: Sequence[Choice], groups: Mapping[str, str], used: Sequence[str], static: Html) -> Html:
    """A search field, the controls, and one list per group of features in use.

    Args:
        choices: Controls, in order.
        groups: Group → its title.
        used: Each feature's group.
        static: What is shown where scripts do not run.
    """
    text = '<input name="search" type="search" autocomplete="off" placeholder="a feature\'s name">'
    parts = [Html(f'<label class="field search"><span>Search</span>{text}</label>')]
    for group, members in groupby(choices, key=lambda choice: choice.group):
        controls = join(map(_control, members))
        if group:
            head = Html(f'<fieldset class="sets"><legend>{html(group)}</legend>')
            controls = join([head, controls, Html("</fieldset>")])
        parts.append(controls)
    lists = [
        Html(
            f'<section><h2>{html(title)} <span class="soft count">{used.count(group)}</span></h2>'
            f'<div class="cards" data-group="{html(group)}"></div></section>'
        )
        for group, title in groups.items()
        if group in used
    ]
    head = Html('<form id="controls" class="controls" aria-label="view">')
    status = Html('</form><p id="shown" class="note" role="status" aria-live="polite"></p>')
    return join(
        [
            head,
            *parts,
            status,
            Html("<noscript><style>.controls,.cards{display:none}</style>"),
            static,
            Html("</noscript>"),
            *lists,
        ]
    )


def _control(choice: Choice) -> Html:
    name, label = html(choice.name), html(choice.label)
    if choice.options:
        options = "".join(
            f'<option value="{html(value)}">{html(said)}</option>' for value, said in choice.options.items()
        )
        return Html(f'<label class="field"><span>{label}</span><select name="{name}">{options}</select></label>')
    dot = f'<i class="dot {choice.css}" aria-hidden="true"></i>' if choice.css else ""
    ticked = " checked" if choice.is_on else ""
    box = f'<input type="checkbox" name="{name}"{ticked}>'
    return Html(f'<label class="tick" title="{label}">{box}{dot}<span>{label}</span></label>')
