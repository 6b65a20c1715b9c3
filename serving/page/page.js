'use strict';
const $ = id => document.getElementById(id);
let key = '';            // kept in this page alone
let index = [];          // every version of every model
let models = [];         // their names, of those without versions too
let model = '';          // the chosen one
let described = null;    // its inputs and outputs
let asked = 0;           // the number of the last choice: answers to older ones are dropped
const series = new Map();
const POINTS = 90, EVERY = 2000, MOST_ROWS = 50, MOST_TARGETS = 60, MOST_BASELINE = 512;
const ROUGH = 0.1;       // of a difference: attributions that leave out more are not to be trusted

// A number as it stands in JSON: large whole numbers are not those of JavaScript.
class Raw { constructor(text) { this.text = text; } }

function el(name, attributes = {}, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith('on')) node.addEventListener(key.slice(2), value);
    else if (value !== false && value != null) node.setAttribute(key, value === true ? '' : value);
  }
  node.append(...children);
  return node;
}

function svg(name, attributes, ...children) {
  const node = document.createElementNS('http://www.w3.org/2000/svg', name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.append(...children);
  return node;
}

// --- JSON in which NaN and Infinity are bare, and numbers stay as they are ---

function parse(text) {
  const plain = text.replace(/"(?:[^"\\]|\\.)*"|-?\bInfinity\b|\bNaN\b/g, part => part[0] === '"' ? part : `"${part}"`);
  return JSON.parse(plain, (_, value, context) => typeof value === 'number' ? new Raw(context?.source ?? String(value)) : value);
}

function write(value, indent = '') {
  if (value instanceof Raw) return value.text;
  if (Array.isArray(value)) return `[${value.map(each => write(each)).join(', ')}]`;
  if (value === null || typeof value !== 'object') return JSON.stringify(value);
  const lines = Object.entries(value).map(([name, each]) => `${JSON.stringify(name)}: ${write(each)}`);
  return indent ? `{\n${lines.map(line => `${indent}${line}`).join(',\n')}\n}` : `{${lines.join(', ')}}`;
}

const numberOf = value => value instanceof Raw ? Number(value.text) : typeof value === 'boolean' ? Number(value) : NaN;

function shown(value) {
  if (value instanceof Raw) {
    const number = Number(value.text);
    return Number.isInteger(number) || !Number.isFinite(number) ? value.text : String(Number(number.toPrecision(6)));
  }
  if (value === null || value === undefined) return '–';
  if (Array.isArray(value)) return `[${value.slice(0, 20).map(shown).join(', ')}${value.length > 20 ? ', …' : ''}]`;
  if (typeof value === 'object') return write(value);
  return String(value);
}

// --- the server ---

async function ask(path, body) {
  const headers = key ? {authorization: `Bearer ${key}`} : {};
  const answer = await fetch(`.${path}`, {method: body === undefined ? 'GET' : 'POST', body, headers, cache: 'no-store'});
  const text = await answer.text();
  if (answer.status === 401) $('keyform').hidden = false;
  if (!answer.ok) {
    let said = text.slice(0, 500);
    try { said = JSON.parse(text).error ?? said; } catch { /* it is no JSON */ }
    throw Object.assign(new Error(said || `the server answers ${answer.status}`), {status: answer.status});
  }
  return {text, headers: answer.headers};
}

const askJson = async (path, body) => parse((await ask(path, body)).text);
const v1 = (name, version) => `/v1/models/${encodeURIComponent(name)}${version ? `/versions/${version}` : ''}`;
const v2 = (name, version) => `/v2/models/${encodeURIComponent(name)}${version ? `/versions/${version}` : ''}`;
const trafficPath = name => `/v1/models/${encodeURIComponent(name)}/traffic`;

async function refresh() {
  try {
    index = await askJson('/v2/repository/index', '{}');
    models = (await askJson('/v1/models')).models;
    $('server').textContent = '';
    $('server').className = '';
  } catch (error) {
    if (error.status === 403) [index, models] = [await ofKey(), model ? [model] : []];
    $('server').textContent = error.status === 403 ? 'This key does not list the models: write the name of one.'
      : error.status ? error.message : 'The server does not answer.';
    $('server').className = error.status === 403 ? '' : 'bad';
  }
  listNames();
  if (model) showVersions();
}

// With a key for some models, what is asked about is the model that was named.
async function ofKey() {
  if (!model) return [];
  try {
    const states = (await askJson(v1(model))).model_version_status;
    return states.map(each => ({name: model, version: each.version, reason: each.status.error_message,
                                state: each.state === 'AVAILABLE' ? 'READY' : 'UNAVAILABLE'}));
  } catch { return []; }
}

const versionsOf = name => index.filter(each => each.name === name);
const ready = name => versionsOf(name).filter(each => each.state === 'READY').map(each => each.version);

function listNames() {
  const sought = $('find').value.trim().toLowerCase();
  const names = models.filter(name => name.toLowerCase().includes(sought));
  const wanted = names.map(name => `${name}\n${ready(name).length > 0}\n${name === model}`).join('\n\n');
  if ($('names').dataset.shows !== wanted) {
    const focused = document.activeElement?.closest?.('#names button')?.dataset.name;
    $('names').replaceChildren(...names.map(name => el('li', {}, el('button', {type: 'button', dir: 'auto', 'data-name': name,
      'aria-current': name === model ? 'true' : false, onclick: () => choose(name)}, name,
      ...(ready(name).length ? [] : [el('span', {class: 'bad'}, 'not available')])))));
    $('names').dataset.shows = wanted;
    if (focused !== undefined) [...$('names').querySelectorAll('button')].find(each => each.dataset.name === focused)?.focus();
  }
  $('nomodels').hidden = names.length > 0;
  $('nomodels').textContent = sought ? 'No model is called so.' : 'The server has no models.';
}

// --- one model ---

async function choose(name) {
  const number = ++asked;
  model = name;
  location.replace(`#${encodeURIComponent(name)}`);
  $('model').hidden = false;
  $('name').textContent = name;
  document.title = `${name} – models`;
  for (const id of ['problem', 'answer', 'reasons', 'changed', 'live']) $(id).replaceChildren();
  $('shadow').hidden = true;
  $('try').hidden = true;
  $('targets').hidden = true;
  described = null;
  if (!versionsOf(name).length) await refresh();
  listNames();
  showVersions();
  showTraffic();
  showShadow();
  try {
    const metadata = await askJson(v2(name));
    if (number !== asked) return;
    described = metadata;
    const names = [metadata.parameters.signature_name, ...Object.keys(metadata.parameters.signatures)];
    $('signature').replaceChildren(...names.map(each => el('option', {value: each}, each)));
    $('signatures').hidden = names.length < 2;
    showForm();
    $('try').hidden = false;
  } catch (error) {
    if (number === asked) $('problem').textContent = error.message;
  }
  poll();
}

// The model that was chosen, or that the address names, or the first.
function chooseFirst() {
  let named = model;
  try { named ||= decodeURIComponent(location.hash.slice(1)); } catch { /* it is no model's */ }
  const name = named === model || models.includes(named) ? named : '';
  if (name || models.length) choose(name || models[0]);
}

function showVersions() {
  const rows = versionsOf(model).map(each => el('tr', {}, el('td', {class: 'n'}, each.version),
    // Without a reason nothing is wrong: a newer version has taken over, or it is being loaded.
    ...(each.state === 'READY' ? [el('td', {class: 'good'}, 'ready'), el('td', {}, each.reason)]
      : each.reason ? [el('td', {class: 'bad'}, 'unavailable'), el('td', {}, each.reason)]
      : [el('td', {}, 'not loaded'), el('td', {}, '')])));
  $('versions').replaceChildren(el('thead', {}, el('tr', {}, ...['Version', 'State', 'Reason'].map(text =>
    el('th', {scope: 'col'}, text)))), el('tbody', {}, ...rows));
  $('all').hidden = ready(model).length < 2;
  $('known').replaceChildren(...versionsOf(model).map(each => el('option', {value: each.version})));
}

function signatureOf() {
  const name = $('signature').value;
  const parameters = described.parameters;
  const {defaults, usual} = parameters;
  return name === parameters.signature_name ? {...described, defaults, usual} : parameters.signatures[name];
}

// What is usual in the rows of a warm-up file; else the signature's default; else a value that most models take.
function exampleOf(tensor, {defaults, usual}) {
  if (Object.hasOwn(usual, tensor.name) && usual[tensor.name] !== null) return usual[tensor.name];
  if (Object.hasOwn(defaults, tensor.name)) return defaults[tensor.name];
  const sizes = tensor.shape.slice(1);
  if (tensor.datatype === 'BYTES' && !sizes.length) return null;
  const scalar = tensor.datatype === 'BYTES' ? '' : tensor.datatype === 'BOOL' ? false : new Raw('0');
  return sizes.reduceRight((value, size) => Array(size < 0 ? 1 : size).fill(value), scalar);
}

function tensorsOf() {
  return signatureOf().inputs.map(tensor => ({...tensor, shape: tensor.shape.map(numberOf)}));
}

function showForm() {
  const values = signatureOf();
  const fields = tensorsOf().map((tensor, at) => {
    const id = `input${at}`;
    const type = tensor.datatype + (tensor.shape.length > 1 ? `[${tensor.shape.slice(1).map(n => n < 0 ? 'any' : n)}]` : '');
    const common = {id, 'data-name': tensor.name, oninput: fromForm, autocomplete: 'off'};
    const field = tensor.shape.length > 1 ? el('textarea', {...common, rows: 2})
      : tensor.datatype === 'BOOL' ? el('select', common, ...['', 'true', 'false'].map(v => el('option', {value: v}, v)))
      : el('input', {...common, inputmode: tensor.datatype === 'BYTES' ? 'text' : 'decimal', dir: 'auto'});
    return el('label', {for: id}, el('span', {}, el('bdi', {}, tensor.name), ' ', el('small', {}, type)), field);
  });
  $('inputs').replaceChildren(...fields);
  const row = {};
  for (const tensor of tensorsOf()) Object.defineProperty(row, tensor.name,
    {value: exampleOf(tensor, values), enumerable: true, writable: true, configurable: true});
  $('rows').value = `[${write(row, '  ')}]`;
  fillForm();
}

// The rows' text is what is sent; the form shows, and writes, the first of them.
function fillForm() {
  let row;
  try { row = parse($('rows').value)[0] ?? {}; } catch { return; }
  for (const tensor of tensorsOf().entries()) {
    const [at, {name, shape}] = tensor;
    const value = Object.hasOwn(row, name) ? row[name] : null;
    $(`input${at}`).value = value === null ? '' : shape.length > 1 ? write(value) : typeof value === 'string' ? value : write(value);
  }
}

function fieldText(tensor, text) {
  if (text.trim() === '') return 'null';
  if (tensor.datatype === 'BYTES' && tensor.shape.length < 2) return JSON.stringify(text);
  return text.trim().replace(/^[+](?=\d)/, '').replace(/^(\d+),(\d+)$/, tensor.shape.length < 2 ? '$1.$2' : '$&');
}

function fromForm() {
  const lines = tensorsOf().map((tensor, at) => `  ${JSON.stringify(tensor.name)}: ${fieldText(tensor, $(`input${at}`).value)}`);
  let rest = [];
  try { rest = parse($('rows').value).slice(1).map(row => write(row, '  ')); } catch { /* it was no JSON */ }
  $('rows').value = `[${[`{\n${lines.join(',\n')}\n}`, ...rest].join(', ')}]`;
}

function body() {
  return `{"signature_name": ${JSON.stringify($('signature').value)}, "instances": ${$('rows').value}}`;
}

// --- predictions ---

async function predict(version) {
  const started = performance.now();
  const {text, headers} = await ask(`${v1(model, version)}:predict`, body());
  const outputs = signatureOf().outputs;
  const predictions = parse(text).predictions.map(each =>
    outputs.length > 1 ? each : Object.fromEntries([[outputs[0].name, each]]));
  return {version: headers.get('x-drivetrain-version') ?? version, predictions, digest: headers.get('x-drivetrain-digest') ?? '',
          milliseconds: performance.now() - started};
}

async function run(versions) {
  const number = asked;
  $('problem').textContent = '';
  $('reasons').replaceChildren();
  const answers = await Promise.all(versions.map(version => predict(version).catch(error => ({version, error}))));
  if (number !== asked) return;
  if (answers.every(each => each.error)) {
    $('answer').replaceChildren();
    $('problem').textContent = answers[0].error.message;
    return;
  }
  const whole = answers.filter(each => !each.error);
  const count = Math.max(...whole.map(each => each.predictions.length));
  const names = [...new Set(whole.flatMap(each => Object.keys(each.predictions[0] ?? {})))];
  const lines = [];
  for (let row = 0; row < Math.min(count, MOST_ROWS); row++) {
    for (const name of names) {
      const values = answers.map(each => each.error ? null : shown(each.predictions[row]?.[name]));
      lines.push(el('tr', {}, ...(count > 1 ? [el('td', {class: 'n'}, String(row + 1))] : []),
        el('th', {scope: 'row', dir: 'auto'}, name),
        ...values.map((value, at) => el('td', {class: value !== values[0] ? 'n differs' : 'n', dir: 'auto'},
          answers[at].error ? answers[at].error.message : value))));
    }
  }
  const heads = [...(count > 1 ? ['Row'] : []), 'Output'].map(text => el('th', {scope: 'col'}, text));
  for (const each of answers) heads.push(el('th', {scope: 'col', title: each.digest},
    each.version ? `Version ${each.version}` : 'Answer', ...(each.error ? [] : [` · ${each.milliseconds.toFixed(0)} ms`])));
  $('answer').replaceChildren(el('table', {}, el('thead', {}, el('tr', {}, ...heads)), el('tbody', {}, ...lines)),
    ...(count > MOST_ROWS ? [el('p', {class: 'note'}, `${count - MOST_ROWS} more rows are not shown.`)] : []));
}

// --- why: what each input adds ---

// What can be explained: outputs of a number, and the classes of outputs that have one for each.
function targetsOf() {
  return signatureOf().outputs.filter(({datatype, shape}) => datatype !== 'BYTES' && shape.length < 3).flatMap(({name, shape}) => {
    const size = shape.length < 2 ? 0 : numberOf(shape[1]);
    if (shape.length < 2 || size === 1) return [{label: name, output: name, at: 0}];
    return Array.from({length: Math.max(size, 0)}, (_, at) => ({label: `${name}[${at}]`, output: name, at}));
  }).slice(0, MOST_TARGETS);
}

async function explain() {
  const number = asked;
  $('problem').textContent = '';
  try {
    const rows = parse($('rows').value);
    const targets = targetsOf();
    if (!targets.length) throw new Error('The outputs have no numbers to explain.');
    const target = targets.find(each => each.label === $('target').value) ?? targets[0];
    $('target').replaceChildren(...targets.map(({label}) => el('option', {value: label}, label)));
    $('target').value = target.label;
    $('targets').hidden = targets.length < 2;
    $('reasons').replaceChildren(el('p', {class: 'note'}, 'Explaining …'));
    const {text, headers} = await ask(`${v1(model)}:explain`, write({signature_name: $('signature').value, output: target.output,
      instances: rows.slice(0, 1), ...(rows.length > 1 ? {baseline: rows.slice(0, MOST_BASELINE)} : {})}));
    if (number === asked) showReasons(target, parse(text).explanations[0], headers.get('x-drivetrain-version'));
  } catch (error) {
    if (number !== asked) return;
    $('reasons').replaceChildren();
    $('problem').textContent = error.message;
  }
}

function showReasons({label, at}, explanation, version) {
  const of = value => value === null ? NaN : numberOf(Array.isArray(value) ? value[at] : value);
  const said = number => shown(new Raw(String(number)));
  const plain = value => value === '' ? '""' : Number.isSafeInteger(numberOf(value)) ? said(numberOf(value)) : shown(value);
  const [prediction, usual, gap] = [explanation.prediction, explanation.baseline_prediction, explanation.gap].map(of);
  const rows = explanation.inputs.map(each => ({...each, by: of(each.attribution), how: each.by}))
    .sort((a, b) => (Math.abs(b.by) || 0) - (Math.abs(a.by) || 0));
  const most = Math.max(...rows.map(each => Math.abs(each.by) || 0)) || 1;
  const bar = by => el('span', {class: 'bars', 'aria-hidden': 'true'},
    ...[by < 0, by > 0].map((has, side) => {
      const strip = el('span', {class: side ? 'bar' : 'bar less', hidden: !has});
      strip.style.width = `${Math.abs(by) / most * 100}%`;
      return strip;
    }));
  const {source, rows: count} = explanation.baseline;
  const from = source === 'defaults' ? 'its default, else 0 or missing'
    : `the mean, the median or the most frequent value of ${numberOf(count)} rows ${source === 'request' ? 'above' : 'of the warm-up file'}`;
  const notes = [`${label} is ${said(prediction)} (version ${version}). Each input is compared with what is usual: ${from}.`];
  if (explanation.note) notes.push(explanation.note);
  else {
    const between = prediction - usual, missing = Math.abs(gap / between) || 0;
    notes.push(`Where all inputs with gradients are as usual, it is ${said(usual)}; their parts add up to ${said(between - gap)} of the `
      + `${said(between)} between (${(100 * missing).toPrecision(2)} % is missing). Each other input was replaced alone.`);
    if (missing > ROUGH) notes.push('That is far from all: the model jumps, as trees do, and these parts say little.');
  }
  $('reasons').replaceChildren(
    ...notes.map((text, index) => el('p', {class: index > 1 ? 'bad' : 'note'}, text)),
    el('table', {}, el('thead', {}, el('tr', {}, ...['Input', 'Usual', 'Adds', '', 'By'].map(text => el('th', {scope: 'col'}, text)))),
      el('tbody', {}, ...rows.map(each => el('tr', {}, el('th', {scope: 'row', dir: 'auto'}, each.name),
        el('td', {class: 'n', dir: 'auto'}, plain(each.baseline)),
        el('td', {class: 'n', title: each.problem}, Number.isNaN(each.by) ? 'cannot be replaced' : each.by.toPrecision(3)),
        el('td', {}, bar(each.by)), el('td', {}, each.how))))));
}

// --- live ---

function samples(text) {
  const rows = [];
  for (const line of text.split('\n')) {
    const match = /^(drivetrain_serving_[a-z_]+)\{(.*)\} (\S+)$/.exec(line);
    if (!match) continue;
    const labels = {};
    for (const [, name, value] of match[2].matchAll(/([a-z]+)="((?:[^"\\]|\\.)*)"/g))
      labels[name] = value.replace(/\\(.)/g, (_, char) => char === 'n' ? '\n' : char);
    if (labels.model === model) rows.push({metric: match[1], labels, value: Number(match[3])});
  }
  return rows;
}

// By version: how many requests, how long they took, and how many took at most as long as each bucket.
function counted(text) {
  const counts = new Map();
  const of = version => {
    if (!counts.has(version)) counts.set(version, {requests: 0, seconds: 0, buckets: new Map()});
    return counts.get(version);
  };
  for (const {metric, labels, value} of samples(text)) {
    const version = labels.version;
    if (metric === 'drivetrain_serving_requests_total') of(version).requests += value;
    else if (metric === 'drivetrain_serving_seconds_sum') of(version).seconds += value;
    else if (metric === 'drivetrain_serving_seconds_bucket') {
      const buckets = of(version).buckets;
      buckets.set(Number(labels.le.replace('+Inf', 'Infinity')), (buckets.get(Number(labels.le.replace('+Inf', 'Infinity'))) ?? 0) + value);
    }
  }
  return counts;
}

function rates(now, before, seconds) {
  const count = Math.max(0, now.requests - (before?.requests ?? 0));
  const buckets = [...now.buckets].sort((a, b) => a[0] - b[0]).map(([end, n]) => [end, n - (before?.buckets.get(end) ?? 0)]);
  const total = buckets.at(-1)?.[1] ?? 0;
  const slow = total > 0 ? buckets.find(([, n]) => n >= 0.99 * total)[0] : NaN;
  return {rate: count / seconds, mean: count ? 1000 * (now.seconds - (before?.seconds ?? 0)) / count : NaN, slow: 1000 * slow};
}

let last = null;

async function poll() {
  if (!model || document.hidden) return;
  const number = asked, name = model;
  let text;
  try {
    text = (await ask('/metrics')).text;
  } catch (error) {
    if (number !== asked) return;
    $('nolive').textContent = error.status ? error.message : 'The server does not answer.';
    $('nolive').hidden = false;
    return;
  }
  if (number !== asked) return;
  $('nolive').hidden = true;
  const now = {name, at: performance.now(), counts: counted(text)};
  for (const version of [...ready(name), '']) if (!now.counts.has(version)) now.counts.set(version, {requests: 0, seconds: 0, buckets: new Map()});
  if (last?.name !== name) { series.clear(); last = now; return; }
  const seconds = (now.at - last.at) / 1000;
  if (seconds < 0.2) return;
  for (const [version, counts] of now.counts) {
    if (!series.has(version)) series.set(version, []);
    const points = series.get(version);
    points.push(rates(counts, last.counts.get(version), seconds));
    if (points.length > POINTS) points.shift();
  }
  last = now;
  showLive();
}

function chart(title, points, unit, bad = false) {
  const known = points.map(value => Number.isFinite(value) ? value : 0);
  const most = Math.max(...known, 1e-9);
  const step = 200 / (POINTS - 1);
  const line = known.map((value, at) => `${(200 - (known.length - 1 - at) * step).toFixed(1)},${(50 - value / most * 44).toFixed(1)}`);
  const now = points.at(-1);
  const says = `${Number.isFinite(now) ? Number(now.toPrecision(3)) : '–'} ${unit}`;
  return el('figure', {}, el('figcaption', {}, el('span', {}, title), el('b', {}, says)),
    svg('svg', {viewBox: '0 0 200 56', preserveAspectRatio: 'none', role: 'img', 'aria-label': `${title}: ${says}`, class: bad ? 'bad' : ''},
      svg('line', {x1: 0, x2: 200, y1: 50, y2: 50}), svg('polyline', {points: line.join(' ')})));
}

function showLive() {
  const charts = [];
  for (const [version, points] of [...series].sort((a, b) => Number(b[0]) - Number(a[0]))) {
    if (version === '') continue;
    charts.push(chart(`Version ${version}: requests`, points.map(each => each.rate), 'a second'),
      chart(`Version ${version}: mean time`, points.map(each => each.mean), 'ms'),
      chart(`Version ${version}: 99 % within`, points.map(each => each.slow), 'ms'));
  }
  if (series.has('')) charts.push(chart('Errors of all versions', series.get('').map(each => each.rate), 'a second', true));
  $('live').replaceChildren(...charts);
}

// --- traffic ---

async function showTraffic() {
  const number = asked;
  try {
    const {shares, current, rollout} = await askJson(trafficPath(model));
    if (number !== asked) return;
    const parts = Object.entries(shares).map(([version, share]) => `version ${version} gets ${shown(share)} %`);
    $('shares').textContent = parts.length ? `Of requests that name no version, ${parts.join(', ')}; ${rollout ? `version ${shown(current)}` : 'the newest of the others'} the rest.`
      : `Requests that name no version go to ${rollout ? `version ${shown(current)}` : 'the newest'}.`;
    $('nosplit').hidden = !parts.length || Boolean(rollout);
    $('split').hidden = Boolean(rollout);
    const numbers = ready(model).map(BigInt).sort((a, b) => (a < b ? 1 : -1)).map(String);
    const all = Object.entries(shares).find(([, share]) => Number(share.text) === 100)?.[0];
    const from = all && numbers.includes(all) ? numbers.indexOf(all) : 0;
    $('back').hidden = from + 1 >= numbers.length;
    $('back').dataset.to = numbers[from + 1] ?? '';
    $('back').textContent = `Roll back to version ${numbers[from + 1]}`;
    $('back').dataset.action = '';
    if (rollout) {  // it decides on the traffic: of a version that takes over, or has
      const {candidate, incumbent, previous} = rollout;
      $('back').hidden = !candidate && !previous;
      $('back').dataset.action = candidate ? 'abort' : 'rollback';
      $('back').dataset.to = shown(candidate ? incumbent : previous);
      $('back').textContent = `Roll back to version ${$('back').dataset.to}`;
    }
    $('to').value = Object.keys(shares)[0] ?? numbers[0] ?? '';
    $('share').value = Object.values(shares)[0]?.text ?? 10;
    $('percent').textContent = `${$('share').value} %`;
    $('traffic').hidden = false;
    $('notraffic').hidden = true;
  } catch (error) {
    if (number !== asked) return;
    $('traffic').hidden = true;
    $('notraffic').hidden = false;
    $('notraffic').textContent = error.status ? error.message : 'The server does not answer.';
  }
}

// Which version answers silently, and how far it is from those that clients were answered by.
async function showShadow() {
  if (!model) return;
  const number = asked;
  let traffic;
  try {
    traffic = await askJson(trafficPath(model));
  } catch {
    return;  // the traffic says why
  }
  if (number !== asked) return;
  const {shadow, shadows} = traffic;
  const sum = counts => Object.values(counts).reduce((total, count) => total + numberOf(count), 0);
  const percent = share => share === null ? '–' : `${Number((100 * numberOf(share)).toPrecision(3))} %`;
  const rows = shadows.flatMap(each => {
    const counts = [each.version, each.answered_by, each.requests].map(shown).concat(sum(each.errors), sum(each.dropped));
    const outputs = Object.entries(each.outputs);
    if (!outputs.length) return [[...counts, ...Array(6).fill('–')]];
    return outputs.map(([name, apart]) => [...counts, name, shown(apart.rows), percent(apart.differing_share),
      percent(apart.flipped_share), shown(apart.mean_absolute_difference), shown(apart.max_absolute_difference)]);
  });
  const heads = ['Shadow', 'Beside', 'Requests', 'Failed', 'Left out', 'Output', 'Rows', 'Differ', 'Other class', 'Mean difference', 'Largest'];
  $('shadow').replaceChildren(
    el('p', {class: 'note'}, shadow === null ? 'No version is a shadow any more.'
      : `Version ${shown(shadow)} is a shadow: it answers silently what others have answered, and no client sees it.`),
    ...rows.length ? [el('table', {}, el('thead', {}, el('tr', {}, ...heads.map(text => el('th', {scope: 'col'}, text)))),
      el('tbody', {}, ...rows.map(row => el('tr', {}, ...row.map(cell => el('td', {class: 'n', dir: 'auto'}, String(cell)))))))] : []);
  $('shadow').hidden = shadow === null && !rows.length;
}

async function change(path, body, says) {
  const number = asked;
  $('changed').className = '';
  $('changed').textContent = '…';
  try {
    await ask(path, body);
    $('changed').textContent = says;
  } catch (error) {
    $('changed').className = 'bad';
    $('changed').textContent = error.message;
  }
  await refresh();
  if (number === asked) await showTraffic();
}

const split = (shares, says) => change(trafficPath(model), JSON.stringify({shares}), says);

// --- what people do ---

$('keyform').addEventListener('submit', event => {
  event.preventDefault();
  key = $('key').value.trim();
  refresh().then(chooseFirst);
});
$('find').addEventListener('input', listNames);
$('find').addEventListener('keydown', event => {
  if (event.key !== 'Enter') return;
  const name = $('names').querySelector('button')?.dataset.name ?? $('find').value.trim();
  if (name) { choose(name); $('model').focus(); }
});
$('signature').addEventListener('change', () => { $('answer').replaceChildren(); $('reasons').replaceChildren(); showForm(); });
$('rows').addEventListener('input', fillForm);
$('try').addEventListener('submit', event => { event.preventDefault(); run(['']); });
$('all').addEventListener('click', () => run(ready(model)));
$('explain').addEventListener('click', explain);
$('target').addEventListener('change', explain);
$('share').addEventListener('input', () => { $('percent').textContent = `${$('share').value} %`; });
$('traffic').addEventListener('submit', event => {
  event.preventDefault();
  split({[$('to').value]: Number($('share').value)}, `Version ${$('to').value} gets ${$('share').value} %.`);
});
$('back').addEventListener('click', () => {
  const {to, action} = $('back').dataset;
  const says = `Rolled back to version ${to}.`;
  if (action) change(`/v1/models/${encodeURIComponent(model)}/rollout/${action}`, '{}', says);
  else split({[to]: 100}, says);
});
$('nosplit').addEventListener('click', () => split({}, 'The split has ended.'));

setInterval(poll, EVERY);
setInterval(() => { if (!document.hidden) { refresh(); showShadow(); } }, 5 * EVERY);
refresh().then(chooseFirst);
