"""Long static lists with a search field: of what does not hold the words searched for, nothing is shown."""

from __future__ import annotations

from typing import Final, Literal

from .html import Html, join

_MANY: Final = 30  # items from which a list has a field

# Every item is read once, when somebody types; the page itself is whole without the script.
FILTER: Final = r"""
'use strict';
const field = document.querySelector('#filter');
const counter = document.querySelector('#found');
let items = null;
function read() {
  const all = [];
  for (const [at, list] of document.querySelectorAll('[data-items]').entries())
    for (const item of list.querySelectorAll(list.dataset.items))
      all.push([item, item.textContent.toLowerCase(), at === 0]);
  return all;
}
field.closest('form').hidden = false;
field.closest('form').addEventListener('submit', event => event.preventDefault());
field.addEventListener('input', () => {
  items ??= read();
  const words = field.value.toLowerCase().split(/\s+/).filter(word => word);
  let shown = 0;
  for (const [item, text, counts] of items) {
    item.hidden = !words.every(word => text.includes(word));
    shown += counts && !item.hidden;
  }
  counter.textContent = words.length ? shown.toLocaleString('en') + ' found' : '';
});
"""


def is_many(items: int) -> bool:
    """Whether so many items want a search field."""
    return items > _MANY


def field() -> Html:
    """The field; hidden until the script runs."""
    return Html(
        '<form class="controls" aria-label="view" hidden><label class="field search"><span>Search</span>'
        '<input id="filter" type="search" autocomplete="off" placeholder="a name, or any other word"></label>'
        '<output id="found" class="note"></output></form>'
    )


def searched(items: object, what: Literal[":scope>article", "tbody>tr", ":scope>details"]) -> Html:
    """A list whose items (a CSS selector within it) the field looks through; of cards those in view are laid out."""
    return join([Html(f'<div class="many" data-items="{what.replace(">", "&gt;")}">'), items, Html("</div>")])
