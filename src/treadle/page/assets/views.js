// The views that are text and tables: kernels, one kernel, fusion, passes, lanes, codes.

views.set('kernels', {title: 'Kernels', shown: () => Boolean(data.kernels), draw: kernelsView});
views.set('kernel', {title: null, shown: () => Boolean(data.kernels), draw: kernelView});
views.set('fusion', {title: 'Decisions', shown: () => Boolean(data.verdicts), draw: fusionView});
views.set('passes', {title: 'Passes', shown: () => Boolean(data.passes), draw: passesView});
views.set('lanes', {title: 'Lanes', shown: () => Boolean(data.lanes && data.lanes.slices.length), draw: lanesView});
views.set('codes', {title: 'Codes', shown: () => Boolean(data.codes && Object.keys(data.codes).length), draw: codesView});

// ------------------------------------------------------------------------------ kernels

function kernelsView(words) {
  const total = most([0, data.kernels.reduce((sum, r) => sum + r.predicted_us, 0)]);
  const keep = words.bound ? row => row.bound === words.bound : null;
  const note = words.bound ? h('p', {}, 'Only those bound by ' + words.bound + '. ', h('a', {href: '#kernels'}, 'all')) : null;
  const timed = data.kernels.some(r => r.measured_us !== undefined);
  return h('section', {}, h('h2', {}, 'Launches and calls'), measuredNote(), note, table([
    {name: '#', get: r => kernelOf.get(r.name), number: true},
    {name: 'name', get: r => r.name, show: r => kernelLink(r.name), names: true},
    {name: 'kind', get: r => kindWord(r.kind), kept: true},
    {name: 'operations', get: r => r.ops, show: r => listed(r.ops, null, 4), names: true},
    {name: 'bytes moved', get: r => r.bytes_loaded + r.bytes_stored, show: r => counted(r.bytes_loaded + r.bytes_stored, 'bytes'), number: true},
    {name: 'predicted', get: r => r.predicted_us, show: r => time(r.predicted_us), number: true},
    ...(timed ? [
      {name: 'measured', get: r => r.measured_us ?? null, show: r => time(r.measured_us), number: true},
      {name: 'of it', get: r => ratio(r), show: r => ratio(r) === null ? '' : ratio(r).toFixed(2) + ' x', number: true},
    ] : []),
    {name: 'share', get: r => r.predicted_us / (total || 1), show: r => [bar(r.predicted_us / (total || 1)), ' ', percent(r.predicted_us / (total || 1))], number: true},
    {name: 'limited by', get: r => r.bound},
    {name: 'from', get: r => r.lines.concat(r.from), show: r => folded(r.lines.concat(r.from)), kept: true, maybe: true},
  ], data.kernels, {label: 'launches', keep}));
}

function ratio(row) { return row.measured_us === undefined || !row.predicted_us ? null : row.measured_us / row.predicted_us; }

// Where measured times come from, and how far predicted ones are off in all.
function measuredNote() {
  const m = data.measured;
  if (!m) return null;
  return h('div', {}, h('p', {}, 'Measured: ' + time(m.us) + ' for ' + number(m.launches) + ' of ' + number(data.kernels.length)
    + ' launches and calls, predicted ' + time(m.predicted_us) + ' (' + m.source + ').'), m.notes.map(note => h('p', {class: 'dim'}, note)));
}

function kernelView(words) {
  const row = data.kernels[kernelOf.get(words.name)];
  if (!row) return h('section', {}, h('h2', {}, 'No launch ' + words.name), h('p', {}, h('a', {href: '#kernels'}, 'all launches')));
  const k = kernelOf.get(row.name), step = j => data.kernels[j] ? h('a', {href: address('kernel', {name: data.kernels[j].name})}, data.kernels[j].name) : 'none';
  const beside = name => [...into[k], ...outOf[k]].filter(([, names]) => names.includes(name)).map(([j]) => j);
  const users = name => [...new Set([...(makers.get(name) || []), ...(readers.get(name) || []), ...beside(name)])].filter(j => j !== k).sort((a, b) => a - b).map(j => data.kernels[j].name);
  const buffers = names => names.map(name => h('div', {}, bufferLink(name), users(name).length ? [h('span', {class: 'dim'}, ' with '), listed(users(name), kernelLink, 4)] : h('span', {class: 'dim'}, ' of the caller')));
  const about = (data.verdicts || []).filter(v => v.ops.some(name => row.ops.includes(name) || name === row.name));
  const panes = [
    pane('Loops', row.ir, 'ir'),
    row.code ? pane(row.language, row.code, 'code', row.code_note, parameters(row)) : h('div', {class: 'pane'}, h('h3', {}, 'Code'), h('p', {}, row.code_note || 'A call: nothing is generated.')),
  ];
  const element = h('section', {}, h('h2', {}, row.name),
    h('div', {class: 'bar'}, h('span', {}, 'before it: ', step(k - 1)), h('span', {}, 'after it: ', step(k + 1)), h('a', {href: address('graph', {near: row.name})}, 'in the graph'),
      h('a', {href: address('fusion', {words: row.ops[0] || row.name})}, 'decisions')),
    facts([
      ['kind', kindWord(row.kind) + ' on ' + row.device],
      ['operations', listed(row.ops, null, 24)],
      ['moves', bytes(row.bytes_loaded) + ' in, ' + bytes(row.bytes_stored) + ' out'],
      ['arithmetic', row.flops ? number(Math.round(row.flops)) + ' flop, ' + number(row.flops / Math.max(1, row.bytes_loaded + row.bytes_stored)) + ' per byte' : null],
      ['predicted', time(row.predicted_us) + ', limited by ' + row.bound],
      ['measured', row.measured_us === undefined ? null : time(row.measured_us) + (ratio(row) === null ? '' : ', ' + ratio(row).toFixed(2) + ' times the predicted time')],
      ['loop schedule', Object.keys(row.steps).length ? Object.entries(row.steps).map(([nest, steps]) => h('div', {}, nest + ': ' + steps.join(', '))) : null],
      ['lines', row.lines.join(', ')],
      ['from', row.from.join(', ')],
      ['reads', buffers(row.reads)],
      ['writes', buffers(row.writes)],
    ]),
    h('p', {class: 'dim'}, 'Point at a value or a buffer, or go through the lines with the arrow keys: the same one lights up on the other side.'),
    h('div', {class: 'panes'}, panes), about.length ? [h('h3', {}, 'What was decided about it'), verdictTable(about, {})] : null);
  linkPanes(element);
  return element;
}

// Text as lines of tokens; a token that names a value or a buffer knows which one.
function pane(title, text, kind, note, given) {
  let nest = -1;
  const lines = text.replace(/\n$/, '').split('\n').map(line => {
    if (kind === 'ir' ? /^\s*nest /.test(line) : /^\s*\/\* .* \*\/ \{/.test(line) || /^def /.test(line)) nest += 1;
    const parts = line.split(/(%\d+|[A-Za-z_][A-Za-z0-9_]*)/).map(word => {
      const token = tokenOf(word, kind, nest, given);
      return token ? h('span', {'data-t': token}, word) : word;
    });
    return h('div', {}, parts.some(p => p !== '') ? parts : '\u00a0');
  });
  return h('div', {class: 'pane'}, h('h3', {}, title), note ? h('p', {class: 'dim note'}, note) : null,
    h('div', {class: 'code', tabindex: 0, role: 'region', 'aria-label': title + ' text'}, lines));
}

// The buffers behind a0, a1 ... of a Triton function, where it has as many as the launch.
function parameters(row) {
  const names = [...row.ir.matchAll(/^ *parameter (\S+) :/gm)].map(m => m[1]), heads = [...row.code.matchAll(/^def \w+\(([^)]*)\)/gm)];
  return row.language === 'Triton' && heads.length === 1 && heads[0][1].split(',').length === names.length ? names : [];
}

function tokenOf(word, kind, nest, given) {
  const numbered = kind === 'code' && given && /^[ap](\d+)$/.exec(word);
  if (numbered && given[numbered[1]]) return given[numbered[1]];
  const value = kind === 'ir' ? /^%(\d+)$/.exec(word) : /^v(\d+)$/.exec(word);
  if (value) return Math.max(0, nest) + ':' + value[1];
  const name = kind === 'ir' ? word : word.replace(/^p\d+_/, '');
  return makers.has(name) || readers.has(name) ? name : null;
}

function linkPanes(element) {
  const tokens = new Map();
  for (const span of element.querySelectorAll('[data-t]')) push(tokens, span.dataset.t, span);
  let lit = [];
  const light = names => {
    for (const one of lit) one.classList.remove('lit');
    lit = names.flatMap(name => tokens.get(name) || []);
    for (const one of lit) one.classList.add('lit');
  };
  for (const block of element.querySelectorAll('.code')) {
    let here = -1;
    block.addEventListener('pointerover', event => { if (event.target.dataset && event.target.dataset.t) light([event.target.dataset.t]); });
    block.addEventListener('click', event => {
      const name = event.target.dataset && event.target.dataset.t;
      if (!name) return;
      light([name]);
      for (const other of element.querySelectorAll('.code')) {
        const first = other !== block && (tokens.get(name) || []).find(span => other.contains(span));
        if (first) first.scrollIntoView({block: 'nearest'});
      }
    });
    block.addEventListener('keydown', event => {
      const step = {ArrowDown: 1, ArrowUp: -1}[event.key];
      if (!step) return;
      event.preventDefault();
      if (block.children[here]) block.children[here].classList.remove('here');
      here = Math.max(0, Math.min(block.children.length - 1, here + step));
      const line = block.children[here];
      line.classList.add('here');
      line.scrollIntoView({block: 'nearest'});
      const first = line.querySelector('[data-t]');
      light(first ? [first.dataset.t] : []);
      say(line.textContent);
    });
  }
}

// ------------------------------------------------------------------------------ decisions

function fusionView(words) {
  const rows = data.verdicts, codes = new Map();
  for (const v of rows) {
    const key = v.code + (v.ok ? ' yes' : ' no');
    if (!codes.has(key)) codes.set(key, {code: v.code, ok: v.ok, count: 0, bytes: 0, us: 0});
    const one = codes.get(key);
    one.count += 1;
    one.bytes += v.facts.bytes || 0;
    if (v.facts.apart_ns !== undefined && v.facts.together_ns !== undefined) one.us += (v.facts.apart_ns - v.facts.together_ns) / 1e3;
  }
  const summary = table([
    {name: 'code', get: r => r.code, show: r => codeLink(r.code)},
    {name: 'answer', get: r => r.ok ? 'yes' : 'no', show: r => answer(r)},
    {name: 'times', get: r => r.count, show: r => number(r.count), number: true},
    {name: 'traffic saved or missed', get: r => r.bytes || null, show: r => r.bytes ? bytes(r.bytes) : '', number: true, maybe: true},
    {name: 'time', get: r => r.us || null, show: r => r.us ? time(r.us) : '', number: true, maybe: true},
    {name: 'means', get: r => title(r.code), names: true},
    {name: 'show', get: () => '', show: r => h('a', {href: address('fusion', {code: r.code, ok: r.ok ? 'yes' : 'no'}), 'aria-label': 'only these: ' + r.code + (r.ok ? ' yes' : ' no')}, 'only these')},
  ], [...codes.values()].sort((a, b) => a.ok - b.ok || b.bytes - a.bytes || b.count - a.count), {label: 'answers by code'});
  const keep = v => (!words.code || v.code === words.code) && (!words.ok || (v.ok ? 'yes' : 'no') === words.ok) && (!words.question || v.question === words.question);
  const pick = (key, list, label) => h('label', {}, label + ' ', h('select', {onchange: event => {
    location.hash = address('fusion', {...words, [key]: event.target.value}); }},
    ['', ...list].map(one => h('option', {value: one, selected: (words[key] || '') === one}, one || 'all'))));
  const bar = [pick('code', [...new Set(rows.map(v => v.code))].sort(), 'code'), pick('ok', ['yes', 'no'], 'answer'), pick('question', [...new Set(rows.map(v => v.question))], 'question')];
  return h('section', {}, h('h2', {}, 'Decisions'), summary, h('h2', {}, 'One by one'),
    h('p', {class: 'dim'}, 'Why are two operations not one kernel? Filter for both names: op12 op31.'), verdictTable(rows, {keep, bar, words: words.words || ''}));
}

function title(code) { return data.codes[code] ? data.codes[code].title : code === 'OK' ? 'nothing stands against it' : ''; }
function answer(v) { return h('span', {class: v.ok ? 'good' : 'bad'}, v.ok ? 'yes' : 'no'); }

function verdictTable(rows, options) {
  const price = (v, key) => v.facts[key] === undefined ? null : v.facts[key] / 1e3;
  const rest = v => Object.entries(v.facts).filter(([key]) => !['bytes', 'apart_ns', 'together_ns'].includes(key));
  return table([
    {name: 'question', get: v => v.question},
    {name: 'about', get: v => v.ops, show: v => listed(v.ops, kernelLink, 6), names: true},
    {name: 'answer', get: v => v.ok ? 'yes' : 'no', show: v => answer(v)},
    {name: 'code', get: v => v.code, show: v => codeLink(v.code)},
    {name: 'traffic', get: v => v.facts.bytes || null, show: v => v.facts.bytes ? bytes(v.facts.bytes) : '', number: true, maybe: true},
    {name: 'apart', get: v => price(v, 'apart_ns'), show: v => time(price(v, 'apart_ns')), number: true, maybe: true},
    {name: 'together', get: v => price(v, 'together_ns'), show: v => time(price(v, 'together_ns')), number: true, maybe: true},
    {name: 'facts', get: v => rest(v).flat(2).map(String), show: v => rest(v).map(([key, value]) => key + ' = ' + (Array.isArray(value) ? value.join(', ') : /^(peak|budget|limit|given)$/.test(key) && typeof value === 'number' ? bytes(value) : value)).join('; '), names: true},
    {name: 'pass', get: v => v.pass || ''},
  ], rows, {label: 'decisions', by: 'traffic', ...options});
}

// ------------------------------------------------------------------------------ passes

function passesView() {
  const names = {fused: 'joined', split: 'taken apart', dropped: 'dropped', added: 'made', rewritten: 'rewritten', moved: 'moved', remade: 'renamed or rebuilt'};
  const groups = (list, shown = 40) => h('ul', {}, list.slice(0, shown).map(ops => h('li', {}, listed(ops, kernelLink, 16))), list.length > shown ? h('li', {}, 'and ' + (list.length - shown) + ' more') : null);
  const body = (key, list) => Array.isArray(list[0]) ? groups(list) : h('p', {}, listed(list, kernelLink, 30));
  let last = null;
  const cards = data.passes.map(row => {
    const before = last, now = row.figures || null;
    if (now) last = now;
    const said = Object.entries(names).filter(([key]) => row.changes && row.changes[key].length);
    return h('tr', {}, h('td', {class: 'n'}, row.number), h('td', {}, h('b', {}, row.name), h('div', {class: 'dim'}, row.about)),
      h('td', {class: 'n'}, (1e3 * row.seconds).toFixed(1)),
      h('td', {class: 'names'}, !row.changed ? h('span', {class: 'dim'}, 'unchanged')
        : row.changes ? said.map(([key, word]) => h('details', {}, h('summary', {}, number(row.changes[key].length) + ' ' + word), body(key, row.changes[key])))
          : (row.ops || []).join(' -> ') + ' operations'),
      ['kernels', 'bytes_moved', 'peak_bytes'].map(key => h('td', {class: 'n'}, now ? [inUnit(now[key], key === 'kernels' ? 'count' : 'bytes'), before ? [h('br'), change(before[key], now[key], key === 'kernels' ? 'count' : 'bytes')] : null] : '')));
  });
  const taken = data.taken ? h('p', {}, 'steps taken: ' + Object.entries(data.taken).map(([k, n]) => k + ' ' + n).join(', ')) : null;
  return h('section', {}, h('h2', {}, 'What each pass changed'), taken, h('div', {class: 'scroll', tabindex: 0, role: 'region', 'aria-label': 'passes'}, h('table', {}, h('thead', {}, h('tr', {},
    ['#', 'pass', 'ms', 'changed', 'launches after', 'bytes moved after', 'peak after'].map((t, k) => h('th', {scope: 'col', class: k === 1 || k === 3 ? null : 'n'}, t)))), h('tbody', {}, cards))));
}

// ------------------------------------------------------------------------------ lanes

function lanesView() {
  const {slices, waits, total_us, exposed_us} = data.lanes, lanes = [...new Set(slices.map(row => row[1]))], tall = 36 + 34 * lanes.length;
  const canvas = h('canvas', {role: 'img', 'aria-label': 'predicted time in ' + lanes.length + ' lanes; the tables hold the same'});
  const view = {from: 0, to: total_us || 1};
  const x = moment => 8 + (moment - view.from) / (view.to - view.from) * (canvas.clientWidth - 16);
  function draw() {
    const pen = sized(canvas, tall);
    if (!pen) return;
    pen.font = '12px sans-serif';
    lanes.forEach((lane, k) => { pen.fillStyle = colour('--dim'); pen.fillText(lane, 8, 12 + 34 * k); });
    for (const [name, lane, start, us] of slices) {
      const left = x(start), right = x(start + us);
      if (right < 0 || left > canvas.clientWidth) continue;
      pen.fillStyle = hue(name);
      pen.fillRect(left, 15 + 34 * lanes.indexOf(lane), Math.max(0.5, right - left), 18);
      if (right - left > 50) { pen.fillStyle = colour('--ink'); pen.fillText(name.slice(0, Math.floor((right - left) / 7)), left + 3, 28 + 34 * lanes.indexOf(lane)); }
    }
    pen.fillStyle = colour('--dim');
    for (let k = 0; k <= 5; k++) {
      pen.textAlign = k === 0 ? 'left' : k === 5 ? 'right' : 'center';
      const at = view.from + k / 5 * (view.to - view.from);
      pen.fillText(at ? time(at) : '0', x(at), tall - 4);
    }
    pen.textAlign = 'left';
  }
  const at = event => {
    const box = canvas.getBoundingClientRect(), moment = view.from + (event.clientX - box.left - 8) / (box.width - 16) * (view.to - view.from);
    const lane = lanes[Math.floor((event.clientY - box.top - 10) / 34)];
    return {moment, found: slices.find(([, l, start, us]) => l === lane && start <= moment && moment <= start + us)};
  };
  const zoom = (factor, middle) => {
    const span = Math.max(total_us / 1e6, Math.min(total_us, (view.to - view.from) * factor));
    view.from = Math.max(0, Math.min(total_us - span, middle - span / 2));
    view.to = view.from + span;
    draw();
  };
  canvas.addEventListener('pointermove', event => { const {found} = at(event); tip(found ? found[0] + '\n' + time(found[3]) + ' from ' + time(found[2]) : '', event.clientX, event.clientY); });
  canvas.addEventListener('pointerleave', () => tip(''));
  canvas.addEventListener('click', event => { const {found} = at(event); if (found) { tip(''); location.hash = address('kernel', {name: found[0]}); } });
  canvas.addEventListener('wheel', event => { event.preventDefault(); zoom(event.deltaY < 0 ? 0.8 : 1.25, at(event).moment); }, {passive: false});
  drawn(canvas, draw);
  const middle = () => (view.from + view.to) / 2;
  return h('section', {}, h('h2', {}, 'Predicted time'), h('p', {}, time(total_us) + ' in all' + (lanes.length > 1 ? ', ' + time(exposed_us) + ' of it waiting for communication' : '; there is no communication')),
    h('div', {class: 'bar'}, h('button', {type: 'button', 'aria-label': 'zoom in', onclick: () => zoom(0.6, middle())}, '+'), h('button', {type: 'button', 'aria-label': 'zoom out', onclick: () => zoom(1.6, middle())}, '-')), canvas,
    waits.length ? [h('h3', {}, 'Collectives'), table([
      {name: 'collective', get: r => r.collective, show: r => kernelLink(r.collective)}, {name: 'wait', get: r => r.wait},
      {name: 'takes', get: r => r.us, show: r => time(r.us), number: true}, {name: 'exposed', get: r => r.exposed_us, show: r => time(r.exposed_us), number: true},
    ], waits, {label: 'collectives'})] : null,
    h('h3', {}, 'In order'), table([
      {name: 'launch', get: r => r[0], show: r => kernelLink(r[0])}, {name: 'lane', get: r => r[1]},
      {name: 'starts at', get: r => r[2], show: r => time(r[2]), number: true}, {name: 'takes', get: r => r[3], show: r => time(r[3]), number: true},
    ], slices, {label: 'slices'}));
}

// ------------------------------------------------------------------------------ codes

function codesView(words) {
  const all = Object.entries(data.codes), shown = words.code && data.codes[words.code] ? [[words.code, data.codes[words.code]]] : all;
  return h('section', {}, h('h2', {}, 'What the codes mean'), shown.length < all.length ? h('p', {}, h('a', {href: '#codes'}, 'all codes'), ' ', h('a', {href: address('fusion', {code: words.code})}, 'decisions with ' + words.code)) : null,
    shown.map(([, page]) => h('article', {class: 'code-page'}, written(page.page))));
}

// The small Markdown of the pages: headings, paragraphs, lists, blocks of code, `names`.
function written(text) {
  const inline = line => line.split(/(`[^`]*`)/).map(part => /^`.*`$/.test(part) ? h('code', {}, part.slice(1, -1)) : part);
  const blocks = text.trim().split(/\n(?=```)|(?<=\n```)\n|\n\s*\n/).filter(b => b.trim());
  return blocks.map(block => {
    const heading = /^(#+) (.*)/.exec(block);
    if (heading) return h(heading[1].length === 1 ? 'h3' : 'h4', {}, inline(heading[2]));
    if (block.startsWith('```')) return h('pre', {class: 'sample'}, block.replace(/^```.*\n?|\n?```$/g, ''));
    if (/^- /.test(block)) return h('ul', {}, block.split(/\n(?=- )/).map(item => h('li', {}, inline(item.slice(2).replace(/\n\s*/g, ' ')))));
    return h('p', {}, inline(block.replace(/\n/g, ' ')));
  });
}
