"""The script of pages of many features: search, sorting, a linkable state, and rows drawn as they come into view.

It builds elements and sets their text, never markup, so no name or value can become one.
"""

from __future__ import annotations

from typing import Final

SCRIPT: Final = r"""
'use strict';
const $ = (query, within = document) => within.querySelector(query);
const data = JSON.parse($('#data').textContent);
const SPACE = new DOMParser().parseFromString('<svg></svg>', 'text/html').body.firstChild.namespaceURI;
const SVG = new Set(['svg', 'g', 'rect', 'line', 'text', 'title']);

function el(tag, attributes = {}, ...children) {
  const element = SVG.has(tag) ? document.createElementNS(SPACE, tag)
    : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) if (value != null) element.setAttribute(name, value);
  element.append(...children.filter(child => child != null));
  return element;
}

function number(value) {
  if (value == null) return '';
  if (typeof value !== 'number') return String(value);
  if (Number.isInteger(value) && Math.abs(value) < 1e15) return value.toLocaleString('en');
  const size = Math.abs(value);
  if (size < 1e-4 || size >= 1e9) return value.toExponential(3);
  const digits = Math.min(20, Math.max(0, 3 - Math.floor(Math.log10(size))));
  return value.toLocaleString('en', {maximumFractionDigits: digits});
}

function percent(share) {
  if (share == null || !isFinite(share)) return '';
  if (share > 0 && share < 1e-4) return '<0.01 %';
  if (share > 0.9999 && share < 1) return '>99.99 %';
  return String(+(share * 100).toFixed(2)) + ' %';
}

// The numbers of a column, their digits below one another: percentages have as many decimals, others room for them.
const NUMBER = /^(?:≈ )?[-−]?[\d,]+(?:\.(\d+))?( %)?$/;
function aligned(rows) {
  const columns = (rows[0] || []).map((_, at) => {
    const matches = rows.map(row => NUMBER.exec(row[at])).filter(match => match);
    return Math.max(0, ...matches.map(match => (match[1] || '').length));
  });
  return rows.map(row => row.map((cell, at) => {
    const match = columns[at] && typeof cell === 'string' ? NUMBER.exec(cell) : null;
    if (!match) return cell;
    const unit = match[2] || '', digits = (match[1] || '').length;
    const [point, zero] = unit ? ['.', '0'] : ['\u2008', '\u2007'];
    return cell.slice(0, cell.length - unit.length) + (digits ? '' : point) + zero.repeat(columns[at] - digits) + unit;
  }));
}

// Percentages below one another, whatever row they are in; and how wide the columns of labels and numbers are.
const alike = texts => aligned(texts.map(text => [text])).map(([text]) => text);
const widths = (labels, texts) => `--label:${Math.min(22, Math.max(0, ...labels.map(label => label.length)))}ch;` +
  `--n:${Math.max(0, ...texts.map(text => text.length)) + 1}ch`;

// The heads of rows and columns are heads for a screen reader as well.
function grid(heads, cells, css = '', headed = true) {
  const rows = css.includes('tall') ? cells : aligned(cells);
  const top = el('tr', {}, ...heads.map((head, at) => el('th', {scope: 'col', class: at ? 'n' : null}, head)));
  const lines = rows.map(cells => el('tr', {}, ...cells.map((cell, at) =>
    el(at || !headed ? 'td' : 'th', {class: at ? 'n' : null, scope: at || !headed ? null : 'row'}, cell ?? ''))));
  const table = el('table', {class: css}, el('thead', {}, top), el('tbody', {}, ...lines));
  return el('div', {class: 'scroll', tabindex: '0', role: 'group', 'aria-label': 'table'}, table);
}

// Controls keep their state in the address, so that a view can be linked.
const form = $('#controls');
const controls = [...form.elements].filter(control => control.name);
const isBox = control => control.type === 'checkbox';
const initial = new Map(controls.map(control => [control.name, isBox(control) ? control.checked : control.value]));
const state = {};

function readAddress() {
  const wanted = new URLSearchParams(location.hash.slice(1));
  for (const control of controls) {
    const text = wanted.get(control.name), plain = initial.get(control.name);
    if (isBox(control)) control.checked = text == null ? plain : text === '1';
    else {
      control.value = text == null ? plain : text;
      if (control.selectedIndex === -1) control.value = plain;
    }
  }
}

function readControls() {
  for (const control of controls) state[control.name] = isBox(control) ? control.checked : control.value;
}

function writeAddress() {
  const said = new URLSearchParams();
  for (const control of controls) {
    const value = state[control.name];
    if (value !== initial.get(control.name)) said.set(control.name, isBox(control) ? (value ? '1' : '0') : value);
  }
  // A frame without an origin of its own, as in a notebook, may not change its address.
  try { history.replaceState(null, '', '#' + said); } catch (refused) { return; }
}

// Every card has its heading from the start, so that the browser's own search finds it; the rest comes with scrolling.
let version = 0;

function draw(card) {
  if (card.version === version) return;
  card.version = version;
  const open = $('details[open]', card);
  $('.content', card).replaceChildren(...content(card.feature));
  const folded = $('details', card);
  if (open && folded) folded.open = true;
}

const observer = new IntersectionObserver(entries => {
  for (const entry of entries) {
    entry.target.seen = entry.isIntersecting;
    if (entry.isIntersecting) draw(entry.target);
  }
}, {rootMargin: '600px'});

const collator = new Intl.Collator('en', {numeric: true});
const order = {
  schema: (a, b) => a.rank - b.rank,
  name: (a, b) => collator.compare(a.feature.name, b.feature.name) || a.rank - b.rank,
};

function arrange() {
  const text = state.search.trim().toLowerCase();
  const key = state.sort;
  const least = value => value == null ? -Infinity : value;
  const by = order[key] || ((a, b) => {
    const left = least(a.feature.sort[key]), right = least(b.feature.sort[key]);
    return left === right ? a.rank - b.rank : right - left;
  });
  let shown = 0;
  for (const list of document.querySelectorAll('.cards')) {
    const members = cards.filter(card => card.feature.group === list.dataset.group).sort(by);
    let here = 0;
    for (const card of members) {
      card.hidden = !card.feature.name.toLowerCase().includes(text) || !wanted(card.feature);
      if (!card.hidden) here += 1;
    }
    list.replaceChildren(...members);
    list.closest('section').hidden = !here;
    $('.count', list.closest('section')).textContent = number(here);
    shown += here;
  }
  $('#shown').textContent = number(shown) + ' of ' + number(cards.length) + ' features shown';
}

function update() {
  readControls();
  version += 1;
  arrange();
  for (const card of cards) if (card.seen && !card.hidden) draw(card);
}

form.addEventListener('submit', event => event.preventDefault());
form.addEventListener('input', () => { readControls(); writeAddress(); update(); });
window.addEventListener('hashchange', () => { readAddress(); update(); });
window.addEventListener('beforeprint', () => cards.filter(card => !card.hidden).forEach(draw));
const narrow = matchMedia('(max-width: 720px)');
narrow.addEventListener('change', update);
"""

START: Final = r"""
const cards = data.features.map((feature, rank) => {
  const id = 'feature-' + rank;
  const head = el('h3', {id}, feature.name);
  const card = el('article', {class: 'card', 'aria-labelledby': id},
    el('div', {class: 'cardhead'}, head, ...marks(feature)), el('div', {class: 'content'}));
  Object.assign(card, {feature, rank, seen: false, version: -1});
  observer.observe(card);
  return card;
});
readAddress();
update();
"""
