// Two schedules: what was joined, taken apart and moved, and what each of these cost.

views.set('changes', {title: 'Changes', shown: () => data.kind === 'diff', draw: changesView});
views.set('peaks', {title: 'Peaks', shown: () => data.kind === 'diff', draw: peaksView});

const WORDS = {kernels: 'launches and calls', bytes_moved: 'bytes moved', peak_bytes: 'peak of live bytes', peak_lower_bound: 'no order is below'};

function changesView(words) {
  const kinds = new Map();
  for (const row of data.changes) {
    const one = kinds.get(row.what) || {what: row.what, count: 0, launches: 0, bytes: 0, us: 0};
    one.count += 1;
    for (const key of ['launches', 'bytes', 'us']) one[key] += row.b[key] - row.a[key];
    kinds.set(row.what, one);
  }
  const totals = h('table', {}, h('thead', {}, h('tr', {}, h('th', {}, ''), data.titles.map(t => h('th', {scope: 'col', class: 'n'}, t)), h('th', {}, 'change'))),
    h('tbody', {}, Object.entries(data.totals).map(([key, [a, b]]) => h('tr', {}, h('th', {scope: 'row'}, WORDS[key] || key),
      h('td', {class: 'n'}, number(a)), h('td', {class: 'n'}, number(b)), h('td', {}, change(a, b))))));
  const sum = h('tr', {}, h('th', {scope: 'row'}, 'together'), ...[number(data.changes.length), number(data.cost.launches[1] - data.cost.launches[0]),
    number(data.cost.bytes[1] - data.cost.bytes[0]), number(data.cost.us[1] - data.cost.us[0])].map(t => h('td', {class: 'n'}, h('b', {}, t))));
  const summary = h('table', {}, h('thead', {}, h('tr', {}, ['change', 'times', 'launches', 'bytes', 'predicted us'].map((t, k) => h('th', {scope: 'col', class: k ? 'n' : null}, t)))),
    h('tbody', {}, [...kinds.values()].map(row => h('tr', {}, h('td', {}, h('a', {href: address('changes', {what: row.what})}, row.what)),
      h('td', {class: 'n'}, number(row.count)), ...['launches', 'bytes', 'us'].map(key => h('td', {class: 'n'}, change(0, row[key]) || '0')))), sum));
  const keep = row => words.what ? row.what === words.what : row.what !== 'same';
  const ops = side => side.ops.map(names => h('div', {}, listed(names, null, 6)));
  return h('section', {}, h('h2', {}, data.title), totals, h('h2', {}, 'Where the difference comes from'), h('div', {class: 'scroll'}, summary),
    h('p', {}, 'The peaks are taken apart in ', h('a', {href: '#peaks'}, 'their own view'), '.'),
    data.resized.length ? h('p', {}, 'Resized: ', listed(data.resized.map(r => r.buffer + ' ' + bytes(r.a) + ' to ' + bytes(r.b)))) : null,
    h('h2', {}, words.what ? 'Only: ' + words.what : 'One by one'), table([
      {name: 'change', get: r => r.what},
      {name: data.titles[0], get: r => r.a.names.concat(r.a.ops.flat()), show: r => ops(r.a), names: true},
      {name: data.titles[1], get: r => r.b.names.concat(r.b.ops.flat()), show: r => ops(r.b), names: true},
      {name: 'launches', get: r => r.b.launches - r.a.launches, show: r => number(r.b.launches - r.a.launches), number: true},
      {name: 'bytes', get: r => r.b.bytes - r.a.bytes, show: r => number(r.b.bytes - r.a.bytes), number: true},
      {name: 'predicted us', get: r => r.b.us - r.a.us, show: r => number(r.b.us - r.a.us), number: true},
    ], data.changes, {label: 'changes', keep, by: 4, down: false}));
}

function peaksView() {
  const {rows, at} = data.peak, sums = data.peak.bytes;
  return h('section', {}, h('h2', {}, 'What is live at the peaks'), h('p', {}, data.titles.map((t, k) => h('span', {}, t + ': ' + number(sums[k]) + ' B at ' + at[k] + '. ')), change(sums[0], sums[1])),
    table([
      {name: 'storage', get: r => r.storage, show: r => bufferLink(r.storage)},
      {name: data.titles[0], get: r => r.a, show: r => number(r.a), number: true},
      {name: data.titles[1], get: r => r.b, show: r => number(r.b), number: true},
      {name: 'change', get: r => r.b - r.a, show: r => change(r.a, r.b) || '', number: true},
      {name: 'there', get: r => r.in_a}, {name: 'here', get: r => r.in_b},
    ], rows, {label: 'live at the peaks'}));
}
