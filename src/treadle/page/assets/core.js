'use strict';
// The page: data in, DOM out. Nothing is loaded and nothing is sent.
// Every view is a function from the words behind the # to an element.

const everything = JSON.parse(document.getElementById('data').textContent);
let data = everything; // of a model with several graphs: the one that is shown
const views = new Map(); // name -> {title, draw, shown}

// An element: h('td', {class: 'n'}, 'text', child).
function h(tag, attributes, ...children) {
  const element = document.createElement(tag);
  fill(element, attributes, children);
  return element;
}

// The same for pictures.
function s(tag, attributes, ...children) {
  const element = document.createElementNS('http://www.w3.org/2000/svg', tag);
  fill(element, attributes, children);
  return element;
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith('on')) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? '' : value);
  }
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
}

const UNITS = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'];

// Bytes for people, in the words of the commands.
function bytes(count) {
  if (count === null || count === undefined) return '';
  let value = Math.abs(count), unit = 0;
  while (value >= 1024 && unit < UNITS.length - 1) { value /= 1024; unit += 1; }
  const text = unit ? value.toFixed(2) : String(value);
  return (count < 0 ? '-' : '') + text + ' ' + UNITS[unit];
}

function number(value) {
  if (value === null || value === undefined) return '';
  return Number(value).toLocaleString('en-US', {maximumFractionDigits: 3});
}

// Microseconds for people, to four digits.
function time(us) {
  if (us === null || us === undefined) return '';
  const size = Math.abs(us), [part, unit] = size >= 1e6 ? [1e6, 's'] : size >= 1e3 ? [1e3, 'ms'] : [1, 'us'];
  return number(Number((us / part).toPrecision(4))) + ' ' + unit;
}

function inUnit(value, unit) {
  return unit === 'bytes' ? bytes(value) : unit === 'us' ? time(value) : number(value);
}

// How much more or less, in the unit of the figure; less is better everywhere.
function change(before, after, unit) {
  if (before === after || before === undefined || after === undefined) return null;
  const part = before ? 100 * Math.abs(after - before) / before : null, sign = after > before ? '+' : '-';
  const said = part === null ? '' : ' (' + (part < 0.05 ? 'under 0.1' : part > 99.9 && after ? 'over 99.9' : sign + part.toFixed(1)) + ' %)';
  return h('span', {class: after < before ? 'good' : 'bad'}, sign + inUnit(Math.abs(after - before), unit) + said);
}

const KINDS = {loop: 'generated, one loop', fused: 'generated, fused', mixorder: 'generated, mixed orders', foreach: 'generated, combined launch',
  grouped: 'generated, grouped', userkernel: "user's Triton kernel", extern: 'library call', collective: 'communication', wait: 'wait'};
function kindWord(kind) { return KINDS[kind] || kind; }

// ------------------------------------------------------------------------------ who is who

const kernelOf = new Map();  // operation or launch -> number of its row
const makers = new Map();    // buffer -> rows that write it
const readers = new Map();   // buffer -> rows that read it
let into = [], outOf = [];   // by row: [other row, buffers]

// Show one of the graphs of a model, or the only thing there is.
function use(graph) {
  data = everything.graphs ? everything.graphs[graph] || {title: everything.title} : everything;
  for (const map of [kernelOf, makers, readers]) map.clear();
  (data.kernels || []).forEach((row, k) => {
    kernelOf.set(row.name, k);
    for (const name of row.ops) if (!kernelOf.has(name)) kernelOf.set(name, k);
    for (const name of row.writes) push(makers, name, k);
    for (const name of row.reads) push(readers, name, k);
  });
  into = (data.kernels || []).map(() => []);
  outOf = (data.kernels || []).map(() => []);
  (data.edges || []).forEach(([a, b, names]) => { outOf[a].push([b, names]); into[b].push([a, names]); });
}

function push(map, key, value) {
  const list = map.get(key);
  if (list) list.push(value); else map.set(key, [value]);
}

// ------------------------------------------------------------------------------ places

function address(view, words) {
  const query = Object.entries(words || {}).filter(([, v]) => v !== '' && v !== null && v !== undefined)
    .map(([k, v]) => encodeURIComponent(k) + '=' + encodeURIComponent(v)).join('&');
  return '#' + view + (query ? '?' + query : '');
}

function place() {
  const [view, query] = location.hash.slice(1).split('?');
  const words = {};
  for (const part of (query || '').split('&')) {
    if (!part) continue;
    const [key, value] = part.split('=');
    words[decodeURIComponent(key)] = decodeURIComponent(value || '');
  }
  return {view, words};
}

function kernelLink(name) {
  return kernelOf.has(name)
    ? h('a', {href: address('kernel', {name: data.kernels[kernelOf.get(name)].name})}, name) : name;
}

function bufferLink(name) {
  return h('a', {href: address('memory', {block: name})}, name);
}

function codeLink(code) {
  return data.codes && data.codes[code]
    ? h('a', {href: address('codes', {code}), title: data.codes[code].title}, code) : code;
}

// Names with commas between them; many of them fold.
function listed(names, link, shown = 12) {
  const row = part => part.map((name, k) => [k ? ', ' : '', link ? link(name) : name]);
  if (names.length <= shown) return row(names);
  return h('details', {}, h('summary', {}, row(names.slice(0, 3)), ' and ' + (names.length - 3) + ' more'),
    row(names.slice(3)));
}

// The first name, and the rest folded behind it: for columns that are no matter of reading.
function folded(names) {
  return names.length < 2 ? names : h('details', {}, h('summary', {}, names[0], h('span', {class: 'dim'}, ' +' + (names.length - 1))), names.slice(1).map(name => h('div', {}, name)));
}

// A figure for people; exactly on pointing at it.
function counted(value, unit) {
  return value === null || value === undefined ? '' : h('span', {title: unit === 'bytes' ? number(value) + ' B' : null}, inUnit(value, unit));
}

// The same, with every digit below it: for totals that others must add up to.
function exactly(value, unit) {
  return unit === 'bytes' && Math.abs(value) >= 1024 ? [bytes(value), h('div', {class: 'dim small'}, number(value))] : inUnit(value, unit);
}

function say(text) { document.getElementById('say').textContent = text; }

function tip(text, x, y) {
  const element = document.getElementById('tip');
  element.hidden = !text;
  if (!text) return;
  element.textContent = text;
  const box = element.getBoundingClientRect();
  element.style.left = Math.max(4, Math.min(x + 14, innerWidth - box.width - 8)) + 'px';
  element.style.top = Math.max(4, Math.min(y + 14, innerHeight - box.height - 8)) + 'px';
}

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

// A colour that stays with a name, on the lightness of the scheme.
function hue(name) {
  let hash = 7;
  for (let k = 0; k < name.length; k++) hash = (hash * 31 + name.charCodeAt(k)) >>> 0;
  // Names that follow each other (op1, op2) get colours that lie far apart.
  return 'hsl(' + Math.round(360 * ((hash * 0.6180339887) % 1)) + ' 48% ' + colour('--light') + ')';
}

// Kinds of launches are few: their colours are chosen so that all can be told apart.
const KIND_HUES = {loop: 210, fused: 150, foreach: 275, mixorder: 180, grouped: 240, userkernel: 38, extern: 345, collective: 95, wait: 65};
function kindHue(kind) { return KIND_HUES[kind] === undefined ? hue(kind) : 'hsl(' + KIND_HUES[kind] + ' 55% ' + colour('--light') + ')'; }

// The largest of any number of values; 0 of none.
function most(values) { return values.reduce((a, b) => Math.max(a, b), 0); }
