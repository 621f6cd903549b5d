// The graph of launches. Near one launch: boxes with their operations, an SVG that can be walked by keys.
// All of them: a canvas to pan and zoom, for programs of any size.

const MOST_BOXES = 90, FEW_BOXES = 10;
const BOX_KINDS = {userkernel: "user's kernel", extern: 'call', foreach: 'combined'};

views.set('graph', {title: 'Graph', shown: () => Boolean(data.edges), draw: graphView});

function graphView(words) {
  const whole = words.all === '1';
  const name = kernelOf.has(words.near) ? data.kernels[kernelOf.get(words.near)].name : heaviest();
  const depth = Math.max(1, Math.min(6, Number(words.depth) || (kernelOf.has(name) ? enough(kernelOf.get(name)) : 2)));
  const go = change => { location.hash = address('graph', {near: name, depth, all: whole ? '1' : '', ...change}); };
  const bar = h('div', {class: 'bar'},
    h('button', {type: 'button', 'aria-pressed': String(!whole), onclick: () => go({all: ''})}, 'near one launch'),
    h('button', {type: 'button', 'aria-pressed': String(whole), onclick: () => go({all: '1'})}, 'all launches'),
    whole ? null : h('label', {}, 'steps away ', h('input', {type: 'number', min: 1, max: 6, value: depth,
      onchange: event => go({depth: event.target.value})})),
    h('span', {}, 'at ', kernelLink(name)),
    h('span', {class: 'dim'}, 'search above, or choose a box, to look somewhere else'));
  if (!data.kernels.length) return h('section', {}, h('h2', {}, 'Graph of launches'), h('p', {}, 'There is no launch.'));
  return h('section', {}, h('h2', {}, 'Graph of launches'), bar, whole ? wholeGraph(kernelOf.get(name)) : nearGraph(kernelOf.get(name), depth));
}

function heaviest() {
  let best = 0;
  // Where all take alike, the one with most others around it.
  const around = k => into[k].length + outOf[k].length;
  data.kernels.forEach((row, k) => {
    const more = row.predicted_us - data.kernels[best].predicted_us;
    if (more > 1e-9 || (Math.abs(more) <= 1e-9 && around(k) > around(best))) best = k;
  });
  return data.kernels.length ? data.kernels[best].name : '';
}

// As many steps away as it takes to see something.
function enough(middle) {
  let depth = 2;
  while (depth < 3 && near(middle, depth).size < FEW_BOXES) depth += 1;
  return depth;
}

// How many steps up (negative) or down each launch near `middle` is.
function near(middle, depth) {
  const found = new Map([[middle, 0]]);
  for (const [next, sign] of [[into, -1], [outOf, 1]]) {
    let ring = [middle];
    for (let step = 1; step <= depth; step++) {
      const further = [];
      for (const k of ring) {
        for (const [other] of next[k]) {
          if (found.has(other) || found.size >= MOST_BOXES) continue;
          found.set(other, sign * step);
          further.push(other);
        }
      }
      ring = further;
    }
  }
  return found;
}

// What a box names: the operations, or where a single one comes from.
function inside(row) { return row.ops.length === 1 && row.ops[0] === row.name ? row.lines.concat(row.from).slice(0, 1) : row.ops; }

// The same launches, those that read one another in different columns: data goes to the right.
function apartInColumns(found) {
  const numbers = [...found.keys()].sort((a, b) => a - b);
  for (const k of numbers) if (found.get(k) > 0) for (const [p] of into[k]) if (found.has(p) && found.get(p) >= 0) found.set(k, Math.max(found.get(k), found.get(p) + 1));
  for (const k of numbers.reverse()) if (found.get(k) < 0) for (const [n] of outOf[k]) if (found.has(n) && found.get(n) <= 0) found.set(k, Math.min(found.get(k), found.get(n) - 1));
  return found;
}

function nearGraph(middle, depth) {
  const found = apartInColumns(near(middle, depth)), columns = new Map();
  for (const k of [...found.keys()].sort((a, b) => a - b)) push(columns, found.get(k), k);
  const layers = [...columns.keys()].sort((a, b) => a - b), width = 260, gap = 64, spots = new Map();
  let tallest = 0;
  layers.forEach((layer, column) => {
    let y = 16;
    for (const k of columns.get(layer)) {
      const lines = Math.min(5, inside(data.kernels[k]).length), tall = 40 + 15 * lines;
      spots.set(k, {x: 16 + column * (width + gap), y, tall});
      y += tall + 18;
    }
    tallest = Math.max(tallest, y);
  });
  for (const layer of layers) { // each column in the middle
    const list = columns.get(layer), last = spots.get(list[list.length - 1]);
    const shift = (tallest - (last.y + last.tall + 18)) / 2;
    for (const k of list) spots.get(k).y += shift;
  }
  const wide = 32 + layers.length * (width + gap) - gap;
  const edges = [];
  for (const a of found.keys()) {
    for (const [b, names] of outOf[a]) {
      if (!found.has(b)) continue;
      const p = spots.get(a), q = spots.get(b);
      const x1 = p.x + width, y1 = p.y + p.tall / 2, x2 = q.x, y2 = q.y + q.tall / 2, bend = Math.max(40, (x2 - x1) / 2);
      edges.push(s('path', {class: 'edge' + (a === middle || b === middle ? ' lit' : ''),
        d: 'M' + x1 + ',' + y1 + ' C' + (x1 + bend) + ',' + y1 + ' ' + (x2 - bend) + ',' + y2 + ' ' + x2 + ',' + y2},
        s('title', {}, names.join(', '))));
    }
  }
  const boxes = [...spots].sort(([a], [b]) => a - b).map(([k, spot]) => box(k, spot, width, k === middle));
  const picture = s('svg', {width: wide, height: tallest, viewBox: '0 0 ' + wide + ' ' + tallest, role: 'group',
    'aria-label': 'launches near ' + data.kernels[middle].name}, edges, boxes);
  let zoom = 1;
  const zoomed = factor => {
    zoom = Math.max(0.2, Math.min(3, zoom * factor));
    picture.setAttribute('width', wide * zoom);
    picture.setAttribute('height', tallest * zoom);
  };
  const frame = h('div', {class: 'frame'}, picture);
  // As much of it as can still be read, the launch itself in the middle.
  requestAnimationFrame(() => {
    if (frame.clientWidth) zoomed(Math.max(0.75, Math.min(1, frame.clientWidth / wide)));
    frame.scrollLeft = (spots.get(middle).x + width / 2) * zoom - frame.clientWidth / 2;
  });
  const rows = [...into[middle].map(([k, names]) => ['reads from', k, names]), ...outOf[middle].map(([k, names]) => ['read by', k, names])];
  return h('div', {}, h('div', {class: 'bar'},
    h('button', {type: 'button', 'aria-label': 'zoom in', onclick: () => zoomed(1.25)}, '+'),
    h('button', {type: 'button', 'aria-label': 'zoom out', onclick: () => zoomed(0.8)}, '-'),
    h('span', {class: 'dim'}, number(found.size) + ' of ' + number(data.kernels.length) + ' launches'
      + (found.size >= MOST_BOXES ? ': no more fit, look from another one' : ''))), frame,
    h('h3', {}, 'Next to ', data.kernels[middle].name), table([
      {name: 'how', get: row => row[0]},
      {name: 'launch', get: row => data.kernels[row[1]].name, show: row => kernelLink(data.kernels[row[1]].name)},
      {name: 'buffers', get: row => row[2], show: row => listed(row[2], bufferLink), names: true},
    ], rows, {label: 'neighbours'}));
}

function box(k, spot, width, isMiddle) {
  const row = data.kernels[k], go = () => { location.hash = address('graph', {near: row.name, depth: place().words.depth}); };
  const cut = (text, most) => text.length > most ? text.slice(0, most - 1) + '…' : text;
  const names = inside(row), lines = names.slice(0, 5).map((name, n) =>
    s('text', {x: spot.x + 14, y: spot.y + 47 + 15 * n}, cut(n === 4 && names.length > 5 ? 'and ' + (names.length - 4) + ' more' : name, 28)));
  return s('g', {class: 'box' + (isMiddle ? ' mid' : ''), tabindex: 0, role: 'link', onclick: go,
    onkeydown: event => { if (event.key === 'Enter' || event.key === ' ') { event.preventDefault(); go(); } },
    },
    s('title', {}, row.name + ', ' + kindWord(row.kind) + ' of ' + row.ops.length + (row.ops.length === 1 ? ' operation, ' : ' operations, ') + time(row.predicted_us)),
    s('rect', {x: spot.x, y: spot.y, width, height: spot.tall, rx: 6}),
    s('text', {x: spot.x + 8, y: spot.y + 16, 'font-weight': 600}, cut(row.name, 30)),
    s('text', {class: 'dim', x: spot.x + 8, y: spot.y + 31}, BOX_KINDS[row.kind] || row.kind, ', ' + bytes(row.bytes_loaded + row.bytes_stored) + ', ' + time(row.predicted_us)),
    lines);
}

// ------------------------------------------------------------------------------ all of them

// Longest paths from the beginning are columns; rows in a column follow the schedule.
function layered() {
  const column = data.kernels.map(() => 0), rows = [];
  data.kernels.forEach((_, k) => {
    for (const [before] of into[k]) if (before < k) column[k] = Math.max(column[k], column[before] + 1);
  });
  return data.kernels.map((_, k) => {
    rows[column[k]] = (rows[column[k]] || 0) + 1;
    return {x: column[k] * 150, y: (rows[column[k]] - 1) * 34};
  });
}

function wholeGraph(middle) {
  const spots = layered(), canvas = h('canvas', {tabindex: 0, height: 560, role: 'img',
    'aria-label': 'all ' + data.kernels.length + ' launches; arrow keys move, plus and minus zoom, Enter opens the chosen one'});
  const view = {scale: 1, x: 40, y: 40};
  let chosen = middle;
  const centre = () => { view.x = canvas.clientWidth / 2 - spots[chosen].x * view.scale; view.y = 280 - spots[chosen].y * view.scale; };
  function draw() {
    const pen = sized(canvas, 560);
    if (!pen) return;
    const {scale} = view, at = spot => [spot.x * scale + view.x, spot.y * scale + view.y];
    const wide = canvas.clientWidth, isIn = ([x, y]) => x > -160 * scale && x < wide && y > -30 * scale && y < 560;
    pen.strokeStyle = colour('--dim');
    pen.globalAlpha = 0.35;
    pen.beginPath();
    for (const [a, b] of data.edges) {
      const p = at(spots[a]), q = at(spots[b]);
      if (!isIn(p) && !isIn(q)) continue;
      pen.moveTo(p[0] + 120 * scale, p[1] + 12 * scale);
      pen.lineTo(q[0], q[1] + 12 * scale);
    }
    pen.stroke();
    pen.globalAlpha = 1;
    pen.font = Math.max(7, 12 * scale) + 'px monospace';
    spots.forEach((spot, k) => {
      const [x, y] = at(spot);
      if (!isIn([x, y])) return;
      pen.fillStyle = kindHue(data.kernels[k].kind);
      pen.fillRect(x, y, 120 * scale, 24 * scale);
      if (k === chosen) { pen.strokeStyle = colour('--focus'); pen.lineWidth = 3; pen.strokeRect(x, y, 120 * scale, 24 * scale); pen.lineWidth = 1; }
      if (scale > 0.45) { pen.fillStyle = colour('--ink'); pen.fillText(data.kernels[k].name.slice(0, 15), x + 4 * scale, y + 16 * scale); }
    });
  }
  const hit = event => {
    const area = canvas.getBoundingClientRect();
    const x = (event.clientX - area.left - view.x) / view.scale, y = (event.clientY - area.top - view.y) / view.scale;
    return spots.findIndex(spot => x >= spot.x && x <= spot.x + 120 && y >= spot.y && y <= spot.y + 24);
  };
  const zoom = (factor, x, y) => {
    const scale = Math.max(0.02, Math.min(4, view.scale * factor));
    view.x = x - (x - view.x) * scale / view.scale;
    view.y = y - (y - view.y) * scale / view.scale;
    view.scale = scale;
    draw();
  };
  const choose = k => {
    chosen = k; centre(); draw();
    const row = data.kernels[k];
    say(row.name + ', ' + kindWord(row.kind) + ', ' + row.ops.length + ' operations');
  };
  let drag = null;
  canvas.addEventListener('pointerdown', event => { drag = {x: event.clientX, y: event.clientY, moved: false}; });
  canvas.addEventListener('pointermove', event => {
    if (drag && event.buttons) {
      view.x += event.clientX - drag.x; view.y += event.clientY - drag.y;
      drag = {x: event.clientX, y: event.clientY, moved: true};
      draw();
      return;
    }
    const k = hit(event), row = data.kernels[k];
    tip(row ? row.name + '\n' + kindWord(row.kind) + ', ' + time(row.predicted_us) + '\n' + row.ops.slice(0, 12).join(', ') : '', event.clientX, event.clientY);
  });
  canvas.addEventListener('pointerleave', () => tip(''));
  canvas.addEventListener('click', event => {
    if (drag && drag.moved) return;
    const k = hit(event);
    if (k >= 0) { tip(''); location.hash = address('kernel', {name: data.kernels[k].name}); }
  });
  canvas.addEventListener('wheel', event => {
    event.preventDefault();
    const area = canvas.getBoundingClientRect();
    zoom(event.deltaY < 0 ? 1.2 : 1 / 1.2, event.clientX - area.left, event.clientY - area.top);
  }, {passive: false});
  canvas.addEventListener('keydown', event => {
    const moves = {ArrowRight: outOf, ArrowLeft: into};
    if (moves[event.key]) { const next = moves[event.key][chosen][0]; if (next) choose(next[0]); }
    else if (event.key === 'ArrowDown') choose(Math.min(chosen + 1, spots.length - 1));
    else if (event.key === 'ArrowUp') choose(Math.max(chosen - 1, 0));
    else if (event.key === '+' || event.key === '-') zoom(event.key === '+' ? 1.25 : 0.8, canvas.clientWidth / 2, 280);
    else if (event.key === 'Enter') location.hash = address('kernel', {name: data.kernels[chosen].name});
    else return;
    event.preventDefault();
  });
  const fit = () => {
    const wide = most(spots.map(p => p.x)) + 140, tall = most(spots.map(p => p.y)) + 40;
    view.scale = Math.max(0.02, Math.min(1, canvas.clientWidth / wide, 560 / tall));
    view.x = view.y = 10;
    draw();
  };
  drawn(canvas, () => { centre(); draw(); });
  return h('div', {}, h('div', {class: 'bar'}, h('button', {type: 'button', onclick: fit}, 'whole'),
    h('button', {type: 'button', 'aria-label': 'zoom in', onclick: () => zoom(1.25, canvas.clientWidth / 2, 280)}, '+'),
    h('button', {type: 'button', 'aria-label': 'zoom out', onclick: () => zoom(0.8, canvas.clientWidth / 2, 280)}, '-')), h('p', {class: 'dim'}, 'drag to move, wheel to zoom; keys: left and right follow data, up and down the schedule, + and - zoom, Enter opens'),
    h('div', {class: 'bar legend'}, [...new Set(data.kernels.map(row => row.kind))].map(kind => h('span', {}, h('span', {class: 'patch', style: 'background:' + kindHue(kind)}), ' ' + kindWord(kind)))), canvas);
}

// A pen for a canvas at the screen's own resolution; null while it has no room.
function sized(canvas, tall) {
  const wide = canvas.clientWidth, ratio = window.devicePixelRatio || 1;
  const pen = canvas.getContext('2d');
  if (!wide || !pen) return null;
  canvas.width = wide * ratio;
  canvas.height = tall * ratio;
  canvas.style.height = tall + 'px';
  pen.scale(ratio, ratio);
  pen.clearRect(0, 0, wide, tall);
  return pen;
}

// Draw once the canvas stands in the page, and again when its width or the colours change.
function drawn(canvas, draw) {
  const scheme = matchMedia('(prefers-color-scheme: dark)');
  const again = () => {
    if (canvas.isConnected) draw();
    else { removeEventListener('resize', again); scheme.removeEventListener('change', again); }
  };
  addEventListener('resize', again);
  scheme.addEventListener('change', again);
  requestAnimationFrame(draw);
}
