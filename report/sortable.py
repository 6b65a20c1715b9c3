"""Tables whose headings sort them: by the first number of each cell, else by its text."""

from __future__ import annotations

from typing import Final

# A heading becomes a button, so that keys reach it; the page itself is whole without the script.
SORT: Final = r"""
'use strict';
const value = cell => {
  const text = cell.innerText.trim(), start = /^[-−+]?[\d,]*\.?\d+(e[-+]?\d+)?/.exec(text);
  return start ? parseFloat(start[0].replaceAll(',', '').replace('−', '-')) : text.toLowerCase();
};
const order = (a, b) => typeof a === typeof b ? (a < b ? -1 : a > b ? 1 : 0) : typeof a === 'number' ? -1 : 1;
for (const table of document.querySelectorAll('table.tight')) {
  for (const [at, head] of [...table.tHead.rows[0].cells].entries()) {
    const button = document.createElement('button');
    button.className = 'sort';
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener('click', () => {
      const down = head.getAttribute('aria-sort') === 'ascending';
      for (const other of table.tHead.rows[0].cells) other.removeAttribute('aria-sort');
      head.setAttribute('aria-sort', down ? 'descending' : 'ascending');
      const rows = [...table.tBodies[0].rows].map(row => [value(row.cells[at]), row]);
      rows.sort(([a], [b]) => (down ? -1 : 1) * order(a, b));
      table.tBodies[0].append(...rows.map(([, row]) => row));
    });
  }
}
"""
