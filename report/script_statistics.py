"""What the statistics page's script draws: a feature's numbers for each data set, and its values overlaid."""

from __future__ import annotations

from typing import Final

SCRIPT: Final = r"""
const sets = data.sets.map((set, index) => ({...set, index, css: 's' + index % 6}));
// Only one of several data sets has a box to be shown or not.
const on = () => sets.filter(set => state['set' + set.index] ?? true);
const wanted = () => true;

function marks(feature) {
  const badges = [el('span', {class: 'badge'}, feature.type)];
  if (feature.sort.drift != null) {
    const far = feature.sort.drift;
    badges.push(el('span', {class: 'soft', title: 'how far the values are from those of ' + sets[0].name +
      ': 0 where all are as frequent, 1 where none is in both'},
      'distance ' + (!far ? '0' : far < 0.001 ? '<0.001' : far.toFixed(3))));
  }
  return badges;
}

// A number is itself, or [estimate] where it is not exact.
const plain = value => Array.isArray(value) ? value[0] : value;
const spelled = value => typeof value === 'string' ? value.replace('T', ' ') : number(value);
const shown = value => Array.isArray(value) ? '≈ ' + spelled(value[0]) : spelled(value);
const share = (value, of) =>
  value == null || !of ? '' : (Array.isArray(value) ? '≈ ' : '') + percent(plain(value) / of);

function view(feature, set) {
  const facts = feature.sets[set.index];
  if (!facts || !state.weighted || !facts.weighted) return facts;
  return {...facts, ...facts.weighted, total: set.weighted, base: facts.items ?? facts.count};
}

const total = (set, facts) => facts.total ?? set.rows;
const middle = [['mean', facts => shown(facts.mean)], ['std', facts => shown(facts.std)],
  ['zeros', facts => share(facts.zeros, facts.base ?? facts.items ?? facts.count)]];
const spread = [['min', facts => shown(facts.min)], ['median', facts => shown(facts.median)],
  ['max', facts => shown(facts.max)]];
const distinct = ['distinct', facts => shown(facts.unique)];
const COLUMNS = {
  numeric: [...middle, ...spread, distinct],
  time: [...spread, distinct],
  text: [distinct, ['most frequent', facts => facts.top?.length ? facts.top[0][0] : ''],
    ['its rows', facts => facts.top?.length ? number(facts.top[0][1]) : ''],
    ['avg length', facts => shown(facts.length)]],
  other: [],
};

function key(set) {
  return el('span', {class: 'key'}, el('i', {class: 'dot ' + set.css, 'aria-hidden': 'true'}), set.name);
}

function figures(feature, chosen) {
  const columns = [
    ['count', facts => number(facts.count)],
    ['missing', (facts, set) => percent(total(set, facts) ? facts.missing / total(set, facts) : 0)],
    ...COLUMNS[feature.group],
  ];
  if (chosen.some(set => feature.sets[set.index]?.lengths)) {
    columns.push(['lengths', facts => facts.lengths ?
      shown(facts.lengths.min) + ' to ' + shown(facts.lengths.max) : '']);
    columns.push(['mean len.', facts => facts.lengths ? shown(facts.lengths.mean) : '']);
  }
  const cells = (set, column) => {
    const facts = view(feature, set);
    return facts ? column[1](facts, set) : '';
  };
  // Columns stand below those of the other features, as long as all of them have room for their numbers.
  const longest = Math.max(...chosen.flatMap(set => columns.map(column => String(cells(set, column)).length)));
  const css = 'figuretable' + (feature.group === 'time' || columns.length > 9 || longest > 8 ? ' loose' : '');
  const rows = aligned(chosen.map(set => columns.map(column => cells(set, column))));
  if (narrow.matches) {
    return grid(['', ...chosen.map(key)], columns.map((column, at) => [column[0], ...rows.map(row => row[at])]),
      css + ' tall');
  }
  return grid(['', ...columns.map(column => column[0])], rows.map((row, at) => [key(chosen[at]), ...row]), css);
}

// Sides of a bucket as a position; times become milliseconds.
const CLOCK = /^\d\d:\d\d/;
const position = edge => typeof edge === 'number' ? edge
  : typeof edge === 'boolean' ? +edge : Date.parse(CLOCK.test(edge) ? '1970-01-01T' + edge + 'Z' : edge);
const brief = edge => typeof edge === 'string' && edge.includes('T') ? edge.slice(0, 10) : number(edge);
const WIDE = 300, TALL = 76;

// What a bucket holds: of whole numbers [1, 3) is 1 and 2, and [1, 2) is 1; there are none above the largest.
function ends_of(part, at) {
  const low = part.edges[at], high = part.edges[at + 1];
  if (!part.whole || !(high > low)) return [low, high];
  const largest = part.largest ?? plain(part.max);
  return [low, largest >= low ? Math.min(high - 1, largest) : high - 1];
}
const range = (low, high) => low === high ? brief(low) : brief(low) + ' … ' + brief(high);

function drawing(label, height, children) {
  return el('svg', {class: 'chart', viewBox: `0 0 ${WIDE} ${height}`, role: 'img', 'aria-label': label}, ...children);
}

function ends(low, high) {
  const texts = [...new Set([brief(low), brief(high)])];
  return el('div', {class: 'edges'}, ...texts.map(text => el('span', {}, text)));
}

function histogram(name, parts) {
  const drawable = parts.filter(part => part.edges?.length > 1);
  const largest = Math.max(...drawable.map(part => plain(part.max)));
  const kept = drawable.map(part => ({...part, largest}));
  if (!kept.length) return [];
  const each = kept.map(part => part.edges.map(position));
  let low = Math.min(...each.map(edges => edges[0])), high = Math.max(...each.map(edges => edges.at(-1)));
  if (!(high > low)) { low -= 0.5; high += 0.5; }
  const unit = (high - low) / Math.max(...kept.map(part => part.counts.length));
  // Heights are densities, so that buckets of unlike width compare; of one width they are the counts.
  const columns = kept.flatMap((part, at) => part.counts.map((count, index) => {
    let from = each[at][index], to = each[at][index + 1];
    const thin = !(to - from > unit / 50);
    let value = thin ? count : count * unit / (to - from);
    if (thin) { from -= unit / 4; to += unit / 4; }
    if (state.unit === 'percent') value /= part.total || 1;
    return {part, index, count, from, to, value};
  }));
  const scale = value => state.log ? Math.log1p(state.unit === 'percent' ? value * 1e4 : value) : value;
  const most = Math.max(...columns.map(column => scale(column.value))) || 1;
  const x = value => Math.min(Math.max((value - low) / (high - low), 0), 1) * WIDE;
  const drawn = columns.filter(column => column.count).map(column => {
    const height = Math.max(scale(column.value) / most * (TALL - 3), 1.5);
    const {part, index} = column;
    const said = `${part.set.name}: ${range(...ends_of(part, index))}: ` +
      `${number(column.count)} (${percent(column.count / (part.total || 1))})`;
    return el('rect', {class: 'area ' + part.set.css, x: (x(column.from) + 0.5).toFixed(1),
      width: Math.max(x(column.to) - x(column.from) - 1, 1.5).toFixed(1), y: (TALL - height).toFixed(1),
      height: height.toFixed(1)}, el('title', {}, said));
  });
  const first = kept[each.findIndex(edges => edges[0] === Math.min(...each.map(one => one[0])))] || kept[0];
  const last = kept[each.findIndex(edges => edges.at(-1) === Math.max(...each.map(one => one.at(-1))))] || kept[0];
  const base = el('line', {class: 'base', x1: 0, x2: WIDE, y1: TALL - 0.5, y2: TALL - 0.5});
  return [drawing('histogram of ' + name + '; its numbers are in the table below', TALL, [...drawn, base]),
    ends(first.edges[0], ends_of(last, last.counts.length - 1)[1])];
}

function quantiles(name, parts) {
  const kept = parts.filter(part => part.quantiles?.length > 1);
  if (!kept.length) return [];
  const each = kept.map(part => part.quantiles.map(position));
  let low = Math.min(...each.map(one => one[0])), high = Math.max(...each.map(one => one.at(-1)));
  if (!(high > low)) { low -= 0.5; high += 0.5; }
  const scale = value => state.log ? Math.sign(value) * Math.log1p(Math.abs(value)) : value;
  const x = value => (scale(value) - scale(low)) / (scale(high) - scale(low)) * WIDE;
  const strip = Math.min(26, TALL / kept.length);
  const drawn = kept.flatMap((part, at) => each[at].slice(1).map((to, index) => {
    const from = each[at][index];
    return el('rect', {class: 'area ' + part.set.css + (index % 2 ? ' odd' : ''), x: x(from).toFixed(1),
      width: Math.max(x(to) - x(from), 1).toFixed(1), y: (at * strip + 2).toFixed(1), height: strip - 4},
      el('title', {}, `${part.set.name}: ${brief(part.quantiles[index])} … ${brief(part.quantiles[index + 1])}`));
  }));
  const label = 'quantiles of ' + name + '; each cell holds the same share of the rows';
  return [drawing(label, kept.length * strip, drawn), ends(kept[0].quantiles[0], kept[0].quantiles.at(-1))];
}

function topValues(parts, limit) {
  const counts = new Map();
  for (const part of parts) for (const [value, count] of part.top || []) {
    if (!counts.has(value)) counts.set(value, new Map());
    counts.get(value).set(part.set.index, count);
  }
  return [...counts].slice(0, limit).map(([value, by]) => [value, by]);
}

function bars(parts) {
  const rows = topValues(parts, 5);
  const value = (part, by) => (by.get(part.set.index) || 0) / (state.unit === 'percent' ? part.total || 1 : 1);
  const scale = facts => state.log ? Math.log1p(state.unit === 'percent' ? facts * 1e4 : facts) : facts;
  const most = Math.max(...rows.flatMap(([, by]) => parts.map(part => scale(value(part, by))))) || 1;
  const say = (part, by) => by.has(part.set.index)
    ? (state.unit === 'percent' ? percent(value(part, by)) : number(value(part, by))) : '–';
  const texts = alike(rows.flatMap(([, by]) => parts.map(part => say(part, by))));
  const lines = rows.map(([name, by], at) => el('div', {class: 'hbar'},
    el('span', {class: 'label', title: String(name), dir: 'auto'}, String(name)),
    el('span', {class: 'strips', 'aria-hidden': 'true'}, ...parts.map(part => el('span', {
      class: 'strip ' + part.set.css, style: 'width:' + (scale(value(part, by)) / most * 100).toFixed(1) + '%'}))),
    el('span', {class: 'n'}, ...parts.map((_, set) => el('span', {}, texts[at * parts.length + set])))));
  const style = widths(rows.map(([name]) => String(name)), texts);
  return lines.length ? [el('div', {class: 'hbars', style}, ...lines)] : [];
}

function chart(feature, parts) {
  const name = feature.name;
  if ((state.chart === 'lengths' || feature.group === 'other') && parts.some(part => part.lengths)) {
    return histogram('list lengths of ' + name,
      parts.filter(part => part.lengths).map(part => ({...part, ...part.lengths, total: part.count, whole: true})));
  }
  if (state.chart === 'quantiles' && feature.group !== 'text') return quantiles(name, parts);
  if (feature.group === 'text') return bars(parts);
  return histogram(name, parts);
}

function numbers(feature, parts) {
  const tables = [];
  for (const part of parts) {
    if (part.edges?.length > 1) {
      tables.push(el('h4', {}, 'buckets, ' + part.set.name), grid(['from', 'to', 'rows', 'share'], part.counts.map(
        (count, at) => [...ends_of(part, at).map(brief), number(count),
          percent(count / (part.total || 1))])));
    }
    if (part.quantiles?.length) {
      const levels = part.set.levels || part.quantiles.map((_, at) => at / (part.quantiles.length - 1));
      tables.push(el('h4', {}, 'quantiles, ' + part.set.name),
        grid(levels.map(percent), [part.quantiles.map(brief)]));
    }
  }
  const values = topValues(parts, 40);
  if (values.length) {
    tables.push(el('h4', {}, 'most frequent values'), grid(['value', ...parts.map(part => part.set.name)],
      values.map(([value, by]) => [String(value), ...parts.map(part => number(by.get(part.set.index)))])));
  }
  return tables;
}

function content(feature) {
  const chosen = on().filter(set => feature.sets[set.index]);
  const parts = chosen.map(set => {
    const facts = view(feature, set);
    return {...facts, set, total: facts.items ?? facts.count, whole: /\bint$/.test(feature.type)};
  });
  const notes = chosen.filter(set => feature.sets[set.index].notes).map(set =>
    el('p', {class: 'cardnote'}, (sets.length > 1 ? set.name + ': ' : '') + feature.sets[set.index].notes.join('; ')));
  const folded = el('details', {}, el('summary', {}, 'all its numbers'));
  folded.addEventListener('toggle', () => {
    if (folded.open && folded.children.length === 1) folded.append(...numbers(feature, parts));
  });
  const drawn = chart(feature, parts);
  const body = el('div', {class: 'two'}, el('div', {}, figures(feature, chosen), ...notes),
    el('div', {class: 'chartbox'}, ...drawn));
  return feature.group === 'other' ? [body] : [body, folded];
}
"""
