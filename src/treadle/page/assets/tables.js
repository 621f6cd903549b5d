// Tables that sort, filter and grow: as many rows as one can read are drawn, more on request.

const ROWS = 60;

// columns: {name, get, show, number, names, maybe}; get gives what is sorted and filtered by. One
// that may be empty is left out where no row has anything in it.
function table(given, rows, options = {}) {
  const isFilled = value => value !== null && value !== undefined && value !== '' && !(Array.isArray(value) && !value.length);
  const columns = given.filter(c => !c.maybe || rows.some(row => isFilled(c.get(row))));
  const named = columns.findIndex(c => c.name === options.by);
  const state = {by: typeof options.by === 'string' ? (named < 0 ? null : named) : options.by ?? null, down: options.down ?? true, words: options.words || '', shown: options.rows || ROWS};
  const body = h('tbody'), count = h('span', {class: 'dim', role: 'status'});
  const more = h('button', {type: 'button', onclick: () => { state.shown += 5 * ROWS; draw(); }}, 'show more');
  const heads = columns.map((column, k) => {
    const head = h('th', {scope: 'col', class: column.number ? 'n' : null},
      h('button', {type: 'button', onclick: () => {
        state.down = state.by === k ? !state.down : Boolean(column.number);
        state.by = k;
        draw();
      }}, column.name));
    return head;
  });
  const text = row => columns.map(c => c.get(row)).flat(2).join(' ').toLowerCase();
  const texts = new Map();
  function matches(row) {
    if (options.keep && !options.keep(row)) return false;
    if (!state.words) return true;
    if (!texts.has(row)) texts.set(row, text(row).split(/[\s,]+/));
    const words = texts.get(row);
    // A whole word if there is one of that name: op1 is not op12.
    return state.words.toLowerCase().split(/[\s,]+/).filter(Boolean)
      .every(w => words.some(one => exact.has(w) ? one === w : one.includes(w)));
  }
  const exact = new Set([...kernelOf.keys(), ...makers.keys()].map(n => n.toLowerCase()));
  function draw() {
    let found = rows.filter(matches);
    if (state.by !== null) {
      const get = columns[state.by].get, sign = state.down ? -1 : 1;
      const key = row => { const v = get(row); return v === null || v === undefined ? -Infinity : v; };
      found = found.map((row, k) => [row, k]).sort(([a, i], [b, j]) => {
        const x = key(a), y = key(b);
        return x < y ? -sign : x > y ? sign : i - j;
      }).map(([row]) => row);
    }
    heads.forEach((head, k) => {
      if (k === state.by) head.setAttribute('aria-sort', state.down ? 'descending' : 'ascending');
      else head.removeAttribute('aria-sort');
    });
    body.replaceChildren(...found.slice(0, state.shown).map(row => {
      const line = h('tr', {class: options.lit && options.lit(row) ? 'lit' : null}, columns.map(c =>
        h('td', {class: c.number ? 'n' : c.names ? 'names' : c.kept ? 'kept' : null}, (c.show || c.get)(row))));
      return line;
    }));
    more.hidden = found.length <= state.shown;
    count.textContent = number(found.length) + ' of ' + number(rows.length)
      + (more.hidden ? '' : ', ' + number(state.shown) + ' shown');
    if (options.drawn) options.drawn(found);
  }
  const filter = h('input', {type: 'search', value: state.words, 'aria-label': 'filter ' + (options.label || 'rows'),
    placeholder: 'filter: words, names', oninput: event => { state.words = event.target.value; state.shown = options.rows || ROWS; draw(); }});
  const element = h('div', {},
    rows.length > 8 || options.bar ? h('div', {class: 'bar'}, options.bar, filter, count) : null,
    h('div', {class: 'scroll'}, h('table', {}, options.label ? h('caption', {class: 'unseen'}, options.label) : null,
      h('thead', {}, h('tr', {}, heads)), body)), more);
  element.redraw = draw;
  draw();
  return element;
}

// Two columns of names and values.
function facts(rows) {
  return h('table', {}, h('tbody', {}, rows.filter(([, value]) => value !== null && value !== undefined && value !== '')
    .map(([name, value]) => h('tr', {}, h('th', {scope: 'row'}, name), h('td', {class: 'names'}, value)))));
}
