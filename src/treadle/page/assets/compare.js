// Two schedules: what was joined, taken apart and moved, and what each of these cost.

views.set('changes', {title: 'Changes', shown: () => data.kind === 'diff', draw: changesView});
views.set('peaks', {title: 'Peaks', shown: () => data.kind === 'diff', draw: peaksView});

const WORDS = {kernels: 'launches and calls', bytes_moved: 'bytes moved', peak_bytes: 'peak of live bytes', peak_lower_bound: 'no order is below'};

const MEANS = {
  same: 'the same launch at the same place',
  moved: 'the same launch, earlier or later',
  fused: 'several launches of A are one in B',
  split: 'one launch of A is several in B',
  regrouped: 'the operations of several launches are shared out otherwise',
  'fewer operations': 'operations of it are gone: done elsewhere already, or not needed',
  'more operations': 'it does more than before',
  rewritten: 'the same operations move other bytes',
};

function changesView(words) {
  const totals = h('table', {}, h('thead', {}, h('tr', {}, h('th', {scope: 'col'}, 'figure'), data.titles.map(t => h('th', {scope: 'col', class: 'n'}, t)), h('th', {}, 'change'))),
    h('tbody', {}, Object.entries(data.totals).map(([key, [a, b]]) => h('tr', {}, h('th', {scope: 'row'}, WORDS[key] || key),
      ...[a, b].map(v => h('td', {class: 'n'}, exactly(v, key === 'kernels' ? 'count' : 'bytes'))), h('td', {}, change(a, b, key === 'kernels' ? 'count' : 'bytes'))))));
  const sum = h('tr', {}, h('th', {scope: 'row'}, 'together'), ...[number(data.changes.length), number(data.cost.launches[1] - data.cost.launches[0]),
    number(data.cost.bytes[1] - data.cost.bytes[0]), time(data.cost.us[1] - data.cost.us[0])].map(t => h('td', {class: 'n'}, h('b', {}, t))));
  const summary = h('table', {}, h('thead', {}, h('tr', {}, ['change', 'how often', 'launches', 'bytes moved', 'predicted time', 'means'].map((t, k) => h('th', {scope: 'col', class: k && k < 5 ? 'n' : null}, t)))),
    h('tbody', {}, data.summary.map(row => h('tr', {}, h('td', {}, h('a', {href: address('changes', {what: row.what})}, row.what)),
      h('td', {class: 'n'}, number(row.count)), ...[['launches', 'count'], ['bytes', 'count'], ['us', 'us']].map(([key, unit]) => h('td', {class: 'n'}, change(0, Math.abs(row[key]) < 5e-4 ? 0 : row[key], unit) || '0')), h('td', {class: 'dim'}, MEANS[row.what] || ''))), sum));
  const keep = row => words.what ? row.what === words.what : row.what !== 'same';
  const ops = side => { const lines = side.ops.map(names => h('div', {}, listed(names, null, 6))); return lines.length < 5 ? lines
    : h('details', {}, h('summary', {}, number(lines.length) + ' launches: ' + side.ops[0][0] + ' and others'), lines); };
  return h('section', {}, h('h2', {}, data.title), totals, h('h2', {}, 'Where the difference comes from'), h('div', {class: 'scroll', tabindex: 0, role: 'region', 'aria-label': 'changes by kind'}, summary),
    h('p', {}, 'The peaks are taken apart in ', h('a', {href: '#peaks'}, 'their own view'), '.'),
    data.resized.length ? h('p', {}, 'Resized: ', listed(data.resized.map(r => r.buffer + ' ' + bytes(r.a) + ' to ' + bytes(r.b)))) : null,
    h('h2', {}, words.what ? 'Only: ' + words.what : 'One by one'), table([
      {name: 'change', get: r => r.what},
      {name: data.titles[0], get: r => r.a.names.concat(r.a.ops.flat()), show: r => ops(r.a), names: true},
      {name: data.titles[1], get: r => r.b.names.concat(r.b.ops.flat()), show: r => ops(r.b), names: true},
      {name: 'launches', get: r => r.b.launches - r.a.launches, show: r => number(r.b.launches - r.a.launches), number: true},
      {name: 'bytes moved', get: r => r.b.bytes - r.a.bytes, show: r => counted(r.b.bytes - r.a.bytes, 'bytes'), number: true},
      {name: 'predicted', get: r => r.b.us - r.a.us, show: r => time(r.b.us - r.a.us), number: true},
    ], data.changes, {label: 'changes', keep, by: 'bytes moved', down: false}));
}

function peaksView() {
  const {rows, at} = data.peak, sums = data.peak.bytes;
  return h('section', {}, h('h2', {}, 'What is live at the peaks'), h('p', {}, data.titles.map((t, k) => h('span', {}, t + ': ' + number(sums[k]) + ' B at ' + at[k] + '. ')), change(sums[0], sums[1], 'bytes')), peakSummary(data.peak.groups, sums), h('h3', {}, 'Storage by storage'),
    table([
      {name: 'storage', get: r => r.storage, show: r => bufferLink(r.storage)},
      {name: data.titles[0], get: r => r.a, show: r => counted(r.a, 'bytes'), number: true},
      {name: data.titles[1], get: r => r.b, show: r => counted(r.b, 'bytes'), number: true},
      {name: 'change', get: r => r.b - r.a, show: r => r.b === r.a ? '' : counted(r.b - r.a, 'bytes'), number: true},
      {name: 'in ' + data.titles[0], get: r => r.in_a}, {name: 'in ' + data.titles[1], get: r => r.in_b},
    ], rows, {label: 'live at the peaks'}));
}

// What became of the bytes of the one peak on the way to the other: adds up to the difference.
function peakSummary(groups, sums) {
  return h('div', {}, h('h3', {}, 'Where the difference comes from'), h('p', {class: 'dim'}, 'A is ' + data.titles[0] + ', B is ' + data.titles[1] + '.'), h('table', {}, h('thead', {}, h('tr', {}, ['storages', 'how many', 'bytes'].map((t, k) => h('th', {scope: 'col', class: k ? 'n' : null}, t)))),
    h('tbody', {}, groups.map(g => h('tr', {}, h('td', {}, g.what), h('td', {class: 'n'}, number(g.count)), h('td', {class: 'n'}, change(0, g.bytes, 'count') || '0'))),
      h('tr', {}, h('th', {scope: 'row'}, 'together'), h('td', {class: 'n'}, h('b', {}, number(groups.reduce((all, g) => all + g.count, 0)))), h('td', {class: 'n'}, h('b', {}, number(sums[1] - sums[0])))))));
}
