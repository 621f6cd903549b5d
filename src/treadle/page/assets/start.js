// Puts the views together: navigation, search, and the view that the address names.

const ORDER = ['overview', 'changes', 'peaks', 'kernels', 'roofline', 'graph', 'fusion', 'memory', 'passes', 'lanes', 'codes'];

function first() {
  return ORDER.find(name => views.get(name).shown()) || null;
}

function show() {
  const {view, words} = place();
  const name = views.has(view) && views.get(view).shown() ? view : first();
  const main = document.getElementById('main');
  tip('');
  main.replaceChildren(name ? views.get(name).draw(words) : h('p', {}, 'There is nothing to show.'));
  for (const link of document.querySelectorAll('#views a')) {
    if (link.dataset.view === (name === 'kernel' ? 'kernels' : name)) link.setAttribute('aria-current', 'page');
    else link.removeAttribute('aria-current');
  }
  document.getElementById('hits').hidden = true;
}

function navigation() {
  const title = document.getElementById('title');
  title.textContent = everything.title;
  title.setAttribute('title', everything.title);
  const graphs = everything.graphs || [];
  const choice = graphs.length < 2 ? null : h('select', {'aria-label': 'graph', onchange: event => {
    use(Number(event.target.value)); known = null; navigation(); location.hash = ''; show(); }},
    graphs.map((one, k) => h('option', {value: k, selected: one === data}, 'graph ' + (k + 1) + ', ' + one.title)));
  document.getElementById('views').replaceChildren(...(choice ? [choice] : []), ...ORDER.filter(name => views.get(name).shown())
    .map(name => h('a', {href: '#' + name, 'data-view': name}, views.get(name).title)));
}

let known = null; // what can be found, made when first asked for

// Everything that has a name, with where it leads.
function index() {
  const found = [];
  for (const row of data.kernels || []) {
    found.push(['launch', row.name, address('kernel', {name: row.name})]);
    for (const op of row.ops) if (op !== row.name) found.push(['operation', op, address('kernel', {name: row.name})]);
    for (const line of row.lines) found.push(['line', line, address('kernel', {name: row.name})]);
  }
  const seen = new Set();
  for (const map of data.memory || []) {
    for (const block of map.blocks) {
      if (seen.has(block.name)) continue;
      seen.add(block.name);
      found.push(['buffer', block.name, address('memory', {block: block.name})]);
    }
  }
  for (const code of Object.keys(data.codes || {})) found.push(['code', code + ' ' + data.codes[code].title, address('codes', {code})]);
  return found;
}

function searching() {
  const field = document.getElementById('search'), hits = document.getElementById('hits');
  const links = () => [...hits.querySelectorAll('a')];
  field.addEventListener('input', () => {
    known = known || index();
    const word = field.value.trim().toLowerCase();
    const match = word ? known.filter(([, name]) => name.toLowerCase().includes(word)) : [];
    // Exact names first, then those that begin so.
    const rank = ([, name]) => name.toLowerCase() === word ? 0 : name.toLowerCase().startsWith(word) ? 1 : 2;
    match.sort((a, b) => rank(a) - rank(b));
    hits.replaceChildren(...match.slice(0, 14).map(([kind, name, to]) => h('li', {}, h('a', {href: to}, h('span', {class: 'dim'}, kind + ' '), name))));
    hits.hidden = !match.length;
    say(number(match.length) + ' found');
  });
  field.addEventListener('keydown', event => {
    if (event.key === 'Enter' && links()[0]) { location.hash = links()[0].getAttribute('href'); hits.hidden = true; }
    if (event.key === 'ArrowDown' && links()[0]) { links()[0].focus(); event.preventDefault(); }
    if (event.key === 'Escape') hits.hidden = true;
  });
  hits.addEventListener('keydown', event => {
    const list = links(), k = list.indexOf(document.activeElement);
    if (event.key === 'ArrowDown') (list[k + 1] || list[0]).focus();
    else if (event.key === 'ArrowUp') (list[k - 1] || field).focus();
    else if (event.key === 'Escape') { hits.hidden = true; field.focus(); }
    else return;
    event.preventDefault();
  });
  hits.addEventListener('click', () => { hits.hidden = true; });
  document.addEventListener('keydown', event => {
    if (event.key === '/' && !/^(INPUT|SELECT|TEXTAREA)$/.test(document.activeElement.tagName)) { field.focus(); event.preventDefault(); }
  });
}

document.getElementById('skip').addEventListener('click', event => { event.preventDefault(); document.getElementById('main').focus(); });
// In a notebook the page is a frame without an address of its own: there a link that begins with #
// would lead to the notebook.
document.addEventListener('click', event => {
  const link = event.target.closest && event.target.closest('a[href^="#"]');
  if (!link || event.defaultPrevented || event.button || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  location.hash = link.getAttribute('href');
});
use(Number(place().words.g) || 0);
navigation();
searching();
addEventListener('hashchange', () => { show(); document.getElementById('main').focus({preventScroll: true}); scrollTo(0, 0); });
show();
