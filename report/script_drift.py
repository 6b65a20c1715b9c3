"""What the drift page's script draws: a feature's measures, and the values whose share moved most on both sides."""

from __future__ import annotations

from typing import Final

SCRIPT: Final = r"""
const SIDES = ['previous', 'current'];
const wanted = feature => !state.drifted || feature.drifted;

function marks(feature) {
  const badges = [el('span', {class: 'badge'}, feature.type)];
  if (feature.status !== 'compared') badges.push(el('span', {class: 'badge warn'}, feature.status));
  if (feature.drifted) badges.push(el('span', {class: 'badge bad'}, 'drifted'),
    el('span', {class: 'soft'}, feature.reason));
  return badges;
}

function cell(measure) {
  if (!measure) return '';
  const parts = [el('span', {}, (measure.exact ? '' : '≈ ') + (measure.text ?? number(measure.value)))];
  if (measure.p) parts.push(el('br'), el('span', {class: 'soft'}, measure.p));
  return el('span', {}, ...parts);
}

function moved(items, pair) {
  const most = Math.max(...items.flatMap(item => [item[1], item[2]])) || 1;
  const texts = alike(items.flatMap(([, ...shares]) => shares.map(percent)));
  const lines = items.map(([name, ...shares], row) => el('div', {class: 'hbar'},
    el('span', {class: 'label', title: name, dir: 'auto'}, name),
    el('span', {class: 'strips', 'aria-hidden': 'true'}, ...shares.map((share, at) =>
      el('span', {class: 'strip s' + at, style: 'width:' + (share / most * 100).toFixed(1) + '%'}))),
    el('span', {class: 'n'}, ...shares.map((_, at) => el('span', {}, texts[2 * row + at])))));
  const keys = SIDES.map((side, at) => el('span', {class: 'key'},
    el('i', {class: 'dot s' + at, 'aria-hidden': 'true'}), pair[at]));
  const style = widths(items.map(([name]) => name), texts);
  return el('div', {class: 'hbars', style}, el('div', {class: 'legend'}, 'share of rows: ', ...keys), ...lines);
}

function content(feature) {
  const heads = data.measures, cells = feature.measures.map(cell);
  const table = narrow.matches
    ? grid(['measure', 'value'], heads.map((head, at) => [head, cells[at]]), 'figuretable tall')
    : grid(heads, [cells], 'figuretable plainrow', false);
  const pair = data.pairs[+feature.group];
  return [el('div', {class: 'two'}, table, el('div', {class: 'chartbox'},
    feature.moved.length ? moved(feature.moved, pair) : null))];
}
"""
