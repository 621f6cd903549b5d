// Runs the script of a page on a small stand-in for a browser and goes to every address given.
// node walk_page.mjs PAGE ADDRESS...   prints {address: text of the page there}, or fails.
import {readFileSync} from 'node:fs';
import vm from 'node:vm';

const html = readFileSync(process.argv[2], 'utf8');
const inside = (from, to) => { const at = html.indexOf(from) + from.length; return html.slice(at, html.indexOf(to, at)); };
const data = inside('id="data">', '</script>');
const script = inside('</script>\n<script>', '</script>');

class Node {
  constructor(name) { this.tagName = name.toUpperCase(); this.children = []; this.attributes = {}; this.dataset = {}; this.style = {}; this.listeners = {}; this.parent = null; this.hidden = false; this.value = ''; }
  append(...all) { for (const one of all) { if (one instanceof Node) one.parent = this; this.children.push(one); } }
  replaceChildren(...all) { this.children = []; this.append(...all); }
  setAttribute(name, value) { this.attributes[name] = String(value); if (name.startsWith('data-')) this.dataset[name.slice(5)] = String(value); if (name === 'value') this.value = value; }
  getAttribute(name) { return this.attributes[name] ?? null; }
  removeAttribute(name) { delete this.attributes[name]; }
  addEventListener(kind, f) { (this.listeners[kind] ||= []).push(f); }
  fire(kind, more = {}) { for (const f of this.listeners[kind] || []) f({target: this, preventDefault() {}, ...more}); }
  focus() { document.activeElement = this; }
  scrollIntoView() {}
  getBoundingClientRect() { return {left: 0, top: 0, width: 1000, height: 500}; }
  get clientWidth() { return this.tagName === 'CANVAS' ? 1000 : 0; }
  getContext() { return new Proxy({}, {get: (o, k) => o[k] ?? (() => {}), set: (o, k, v) => { o[k] = v; return true; }}); }
  get isConnected() { return true; }
  get textContent() { return this.children.map(c => c instanceof Node ? c.textContent : c).join(''); }
  set textContent(text) { this.children = [text]; }
  get classList() {
    const set = new Set((this.attributes.class || '').split(' ').filter(Boolean)), save = () => { this.attributes.class = [...set].join(' '); };
    return {add: c => { set.add(c); save(); }, remove: c => { set.delete(c); save(); }, contains: c => set.has(c)};
  }
  *all() { for (const c of this.children) if (c instanceof Node) { yield c; yield* c.all(); } }
  matches(q) {
    if (q.startsWith('[')) return q.slice(6, -1) in this.dataset;
    if (q.startsWith('.')) return this.classList.contains(q.slice(1));
    return this.tagName === q.toUpperCase();
  }
  querySelectorAll(q) { const last = q.split(' ').at(-1); return [...this.all()].filter(n => n.matches(last)); }
  querySelector(q) { return this.querySelectorAll(q)[0] ?? null; }
  contains(other) { return [...this.all()].includes(other); }
}

const byId = {};
for (const id of ['data', 'title', 'views', 'search', 'hits', 'main', 'tip', 'say', 'skip']) byId[id] = new Node(id === 'search' ? 'input' : 'div');
byId.data.textContent = data;
const body = new Node('body');
body.append(...Object.values(byId));
const document = {
  getElementById: id => byId[id], createElement: t => new Node(t), createElementNS: (_, t) => new Node(t), createTextNode: t => t,
  documentElement: new Node('html'), activeElement: body, querySelectorAll: q => q.startsWith('#views') ? byId.views.querySelectorAll('a') : body.querySelectorAll(q),
  addEventListener() {},
};
const place = {hash: ''};
const heard = {};
const world = {
  document, location: place, Node, console, innerWidth: 1400, innerHeight: 900,
  getComputedStyle: () => ({getPropertyValue: () => '#123456'}), matchMedia: () => ({addEventListener() {}, removeEventListener() {}}),
  addEventListener: (kind, f) => { (heard[kind] ||= []).push(f); }, removeEventListener() {}, requestAnimationFrame: f => f(), scrollTo() {},
};
world.window = world;
vm.createContext(world);
vm.runInContext(script, world);
const found = {links: byId.views.querySelectorAll('a').map(a => a.getAttribute('href'))};
const go = to => { place.hash = to; for (const f of heard.hashchange) f(); };
for (const to of process.argv.slice(3)) {
  if (to.startsWith('?')) { // search
    byId.search.value = to.slice(1);
    byId.search.fire('input');
    found[to] = byId.hits.textContent;
    byId.search.fire('keydown', {key: 'Enter'});
    found[to + ' leads to'] = place.hash;
    continue;
  }
  go(to);
  const lit = new Set();
  for (const one of [...byId.main.all()]) { // everything that can be pointed at or pressed
    if (one.tagName === 'CANVAS') {
      for (const x of [20, 300, 700]) for (const y of [20, 200, 430]) one.fire('pointermove', {clientX: x, clientY: y});
      for (const key of ['ArrowRight', 'ArrowUp', 'ArrowDown', 'ArrowLeft', '+', '-']) one.fire('keydown', {key});
    }
    if (one.tagName === 'CIRCLE') one.parent.fire('pointermove', {target: one, clientX: 5, clientY: 5});
    if (one.tagName === 'SVG' && one.classList.contains('roofline')) {
      for (const key of ['End', 'Home', 'ArrowLeft', 'ArrowRight', 'ArrowRight']) one.fire('keydown', {key});
      found[to + ' said'] = byId.say.textContent;
      found[to + ' dots'] = one.querySelectorAll('circle').length;
    }
    if (one.classList.contains('code')) for (let k = 0; k < 60; k++) {
      one.fire('keydown', {key: 'ArrowDown'});
      for (const n of byId.main.querySelectorAll('.lit')) lit.add(n.textContent);
    }
  }
  const heads = byId.main.querySelectorAll('th').flatMap(t => t.querySelectorAll('button'));
  for (const head of heads) head.fire('click');
  found[to] = byId.main.textContent;
  found[to + ' lit'] = [...lit];
  found[to + ' rows'] = byId.main.querySelectorAll('tr').length;
}
console.log(JSON.stringify(found));
