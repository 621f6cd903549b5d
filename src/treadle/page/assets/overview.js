// The first view: what changed in figures, what would improve them, where memory and time go.

views.set('overview', {title: 'Overview', shown: () => Boolean(data.figures), draw: overview});

const CARDS = ['kernels', 'bytes_moved', 'peak_bytes', 'predicted_us'];
const HEAVIEST = 8;

function overview() {
  const {columns, rows} = data.figures;
  const cards = [...(data.headline || []), ...rows.filter(r => CARDS.includes(r.key))
    .map(row => ({words: row.words, unit: row.unit, before: row.values[0], after: row.values.at(-1)}))].map(card);
  if (data.measured) cards.push(h('div', {class: 'card'}, 'measured time', h('b', {}, time(data.measured.us)),
    h('span', {class: 'dim'}, number(data.measured.launches) + ' of ' + number(data.kernels.length) + ' launches, predicted ' + time(data.measured.predicted_us)),
    data.measured.notes.length ? h('div', {class: 'bad'}, h('a', {href: '#kernels'}, 'read with care')) : null));
  const advice = data.advice.length ? h('ol', {class: 'advice'}, data.advice.map(row =>
    h('li', {}, h('a', {href: row.link}, row.what), h('br'), row.gain)))
    : h('p', {}, 'Nothing that was refused or held would lower these figures.');
  const figures = h('div', {class: 'scroll', tabindex: 0, role: 'region', 'aria-label': 'figures'}, h('table', {}, h('thead', {}, h('tr', {}, h('th', {scope: 'col'}, 'figure'), columns.map(c => h('th', {scope: 'col', class: 'n'}, c)), h('th', {class: 'n'}, 'change'))),
    h('tbody', {}, rows.map(row => h('tr', {}, h('th', {scope: 'row'}, row.words),
      row.values.map(v => h('td', {class: 'n'}, exactly(v, row.unit))),
      h('td', {class: 'n'}, row.key === 'ops' || row.key === 'peak_lower_bound' ? '' : change(row.values[0], row.values.at(-1), row.unit)))))));
  const traded = data.traded && data.traded.fusions ? h('p', {}, number(data.traded.fusions) + ' fusions raised the peak by '
    + bytes(data.traded.peak_bytes) + ' so that ' + bytes(data.traded.saved_bytes) + ' are not moved.') : null;
  return h('section', {}, h('h2', {}, 'Overview'), h('p', {class: 'dim'}, about()), h('div', {class: 'cards'}, cards),
    data.kept_given ? h('p', {}, 'The schedule of the file is kept: the one that was found is nowhere better.') : null,
    besideNote(),
    h('div', {class: 'halves'}, h('div', {}, h('h2', {}, 'What would improve this most'), advice), liveBytes()),
    h('div', {class: 'halves'}, timeByKind(), heaviestLaunches()),
    h('h2', {}, 'Figures'), figures, traded, (data.notes || []).map(note => h('p', {}, note)),
    data.others ? otherPolicies() : null,
    h('p', {class: 'dim'}, 'fusion policy ' + data.policy + '; ' + (COUNTED[data.accounting] || 'bytes counted as ' + data.accounting) + '; treadle ' + data.treadle));
}

const COUNTED = {
  dump: 'bytes counted as far as the dump tells sizes, inputs not held against the peak',
  ours: 'every byte that kernels load and store counted, inputs held for the whole run',
  inductor: 'bytes counted as TorchInductor counts them',
};
const KINDS_OF_FILE = {inductor_dump: 'TorchInductor dump', program: 'Treadle program', reproducer: 'reproducer'};

// What the page is about, in one line.
function about() {
  const ops = data.figures.rows.find(r => r.key === 'ops'), machines = [...new Set(Object.values(data.roofs || {}).map(r => r.machine))];
  return [KINDS_OF_FILE[data.file_kind] || (data.file_kind || '').startsWith('xla') && 'XLA dump', ops ? number(ops.values[0]) + ' operations' : null,
    machines.length ? 'times predicted for ' + machines.join(', ') : null, data.measured ? 'measured here as well' : null].filter(Boolean).join(' · ');
}

function card({words, unit, before, after}) {
  return h('div', {class: 'card'}, words, h('b', {}, inUnit(after, unit)),
    before === after ? h('span', {class: 'dim'}, 'as before') : [h('span', {class: 'dim'}, 'was ' + inUnit(before, unit) + ' '), change(before, after, unit)]);
}

// A sum of times is no time if communication runs beside computing.
function besideNote() {
  const sum = data.kernels.reduce((all, r) => all + r.predicted_us, 0), {total_us, slices} = data.lanes;
  if (!slices.some(row => row[1] !== 'compute') || Math.abs(sum - total_us) < 0.01 * sum) return null;
  return h('p', {}, 'With communication running beside computing it is ' + time(total_us) + ', ' + time(data.lanes.exposed_us) + ' of it waiting: ', h('a', {href: '#lanes'}, 'lanes'), '.');
}

// The live bytes of both schedules over their whole length.
function liveBytes() {
  const maps = data.live.filter(m => m.curve.length > 1);
  if (maps.length < 2) return null;
  const wide = 620, tall = 210, left = 8, low = 22, top = 28, largest = most(maps.map(m => m.peak_bytes)) || 1;
  const path = (map, closed) => {
    const n = map.curve.length, x = k => (left + k / n * (wide - 2 * left)).toFixed(1), floor = tall - low;
    const steps = map.curve.map((live, k) => { const y = (floor - live / largest * (floor - top)).toFixed(1); return (k ? 'L' : 'M') + x(k) + ',' + y + 'L' + x(k + 1) + ',' + y; });
    return steps.join('') + (closed ? 'L' + x(n) + ',' + floor + 'L' + x(0) + ',' + floor + 'Z' : '');
  };
  const [given, ours] = maps;
  const level = (map, style) => { const y = tall - low - map.peak_bytes / largest * (tall - low - top); return s('line', {class: style, x1: left, x2: wide - left, y1: y, y2: y}); };
  return h('div', {}, h('h2', {}, 'Memory over the schedule'), h('a', {href: '#memory', class: 'picture'},
    s('svg', {viewBox: `0 0 ${wide} ${tall}`, width: '100%', role: 'img', class: 'live', 'aria-label': 'live bytes: peak ' + bytes(given.peak_bytes) + ' ' + given.label + ', '
    + bytes(ours.peak_bytes) + ' ' + ours.label + '; opens the memory map'},
      s('path', {class: 'ours', d: path(ours, true)}), s('path', {class: 'given', d: path(given, false)}), level(given, 'givenpeak'), level(ours, 'ourspeak'),
      s('text', {class: 'givenword', x: left, y: 14}, given.label + ': at most ' + bytes(given.peak_bytes)),
      s('text', {class: 'oursword', x: wide - left, y: 14, 'text-anchor': 'end'}, ours.label + ': at most ' + bytes(ours.peak_bytes)),
      s('text', {class: 'dim', x: left, y: tall - 6}, 'first launch'), s('text', {class: 'dim', x: wide / 2, y: tall - 6, 'text-anchor': 'middle'}, 'live bytes, inputs ' + (data.counts_inputs ? '' : 'not ') + 'counted'),
      s('text', {class: 'dim', x: wide - left, y: tall - 6, 'text-anchor': 'end'}, 'last launch'))));
}

function bar(part) { return h('span', {class: 'part', 'aria-hidden': 'true'}, h('span', {style: 'width:' + (100 * part).toFixed(1) + '%'})); }

function percent(part) { return (100 * part).toFixed(1) + ' %'; }

// What sort of launch takes the time: what is generated can be improved here, calls cannot.
function timeByKind() {
  const kinds = new Map(), total = data.kernels.reduce((all, r) => all + r.predicted_us, 0) || 1;
  for (const row of data.kernels) {
    const word = kindWord(row.kind), one = kinds.get(word) || {word, count: 0, bytes: 0, us: 0};
    one.count += 1; one.us += row.predicted_us; one.bytes += row.bytes_loaded + row.bytes_stored;
    kinds.set(word, one);
  }
  const rows = [...kinds.values()].sort((a, b) => b.us - a.us);
  return h('div', {}, h('h2', {}, 'Where the predicted time goes'), h('div', {class: 'scroll', tabindex: 0, role: 'region', 'aria-label': 'time by kind'}, h('table', {}, h('thead', {}, h('tr', {}, ['kind', 'launches', 'bytes moved', 'time', 'share'].map((t, k) => h('th', {scope: 'col', class: k && k < 4 ? 'n' : null}, t)))),
    h('tbody', {}, rows.map(row => h('tr', {}, h('td', {class: 'kept'}, row.word), h('td', {class: 'n'}, number(row.count)), h('td', {class: 'n'}, bytes(row.bytes)), h('td', {class: 'n'}, time(row.us)),
      h('td', {class: 'bar-cell'}, bar(row.us / total), ' ', percent(row.us / total))))))));
}

function heaviestLaunches() {
  const total = data.kernels.reduce((all, r) => all + r.predicted_us, 0) || 1;
  const rows = [...data.kernels].sort((a, b) => b.predicted_us - a.predicted_us).slice(0, HEAVIEST);
  return h('div', {}, h('h2', {}, 'Heaviest launches'), h('div', {class: 'scroll', tabindex: 0, role: 'region', 'aria-label': 'heaviest launches'}, h('table', {}, h('thead', {}, h('tr', {}, ['launch', 'kind', 'limited by', 'time', 'share'].map((t, k) => h('th', {scope: 'col', class: k === 3 ? 'n' : null}, t)))),
    h('tbody', {}, rows.map(row => h('tr', {}, h('td', {class: 'names'}, kernelLink(row.name)), h('td', {class: 'kept'}, kindWord(row.kind)), h('td', {}, row.bound), h('td', {class: 'n'}, time(row.predicted_us)),
      h('td', {class: 'bar-cell'}, bar(row.predicted_us / total), ' ', percent(row.predicted_us / total))))))));
}

function otherPolicies() {
  return h('div', {}, h('h2', {}, 'Under other policies'), table([
    {name: 'policy', get: r => r.policy},
    {name: 'launches', get: r => r.kernels, show: r => number(r.kernels), number: true},
    {name: 'bytes moved', get: r => r.bytes_moved, show: r => bytes(r.bytes_moved), number: true},
    {name: 'peak', get: r => r.peak_bytes, show: r => bytes(r.peak_bytes), number: true},
  ], data.others, {label: 'policies'}));
}
