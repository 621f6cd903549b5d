// Memory: a map of time and address, the live bytes below it, and who is live at a step.

views.set('memory', {title: 'Memory', shown: () => Boolean(data.memory && data.memory.length), draw: memoryView});

const MAP_TALL = 380, CURVE_TALL = 150, EDGE = 76; // left of the map: what addresses and bytes are

function memoryView(words) {
  const maps = data.memory, wanted = words.map !== undefined ? Number(words.map) : maps.length - 1;
  const holds = m => words.block && m.blocks.some(b => b.name === words.block);
  let which = Math.max(0, Math.min(maps.length - 1, wanted || 0));
  if (words.map === undefined && words.block && !holds(maps[which])) which = Math.max(0, maps.findIndex(holds));
  const map = maps[which];
  const choices = maps.length < 2 ? null : maps.map((m, k) => h('button', {type: 'button', 'aria-pressed': String(k === which),
    onclick: () => { location.hash = address('memory', {map: k, block: words.block}); }}, m.label));
  const picture = memoryPicture(map, words.block);
  const lowest = Math.max(map.peak_bytes, map.arena_bytes, 1);
  const figures = facts([
    ['allocated', map.total_bytes === undefined ? null : exact(map.total_bytes)],
    ['arena', exact(map.arena_bytes)],
    ['no plan of this order has a lower arena than', exact(map.arena_lower_bound)],
    ['peak of live bytes' + (map.counts_inputs === undefined ? '' : map.counts_inputs ? ', donated inputs counted' : ', inputs not counted'), [exact(map.peak_bytes), ' at ', kernelLink(map.peak_at || 'no step')]],
    ['without sharing', map.unshared_bytes === undefined ? null : exact(map.unshared_bytes)],
  ]);
  const missing = words.block && !holds(map) ? h('p', {class: 'dim'}, words.block
    + ' has no block here: it lives in a kernel, is an input, or has memory of its own.') : null;
  return h('section', {}, h('h2', {}, 'Memory, ', map.label), h('div', {class: 'bar'}, choices), figures, missing,
    picture.element, h('h3', {}, 'At the peak: ' + bytes(map.peak_bytes)), peakTable(map, lowest),
    h('h3', {}, 'All blocks'), blockTable(map, words.block, picture));
}

function exact(count) { return [h('b', {}, bytes(count)), h('span', {class: 'dim'}, count < 1024 ? '' : ' ' + number(count) + ' B')]; }

function peakTable(map) {
  return table([
    {name: 'storage', get: r => r.storage, show: r => bufferLink(r.storage)},
    {name: 'bytes', get: r => r.bytes, show: r => counted(r.bytes, 'bytes'), number: true},
    {name: 'share', get: r => r.bytes / Math.max(1, map.peak_bytes), show: r => (100 * r.bytes / Math.max(1, map.peak_bytes)).toFixed(1) + ' %', number: true},
    {name: 'made by', get: r => r.producer || 'input', show: r => r.producer ? kernelLink(r.producer) : 'input', names: true},
    {name: 'kept for', get: r => r.last_use || 'the caller', show: r => r.last_use ? kernelLink(r.last_use) : 'the caller', names: true},
    {name: 'idle steps', get: r => r.idle, show: r => number(r.idle), number: true},
    {name: 'place', get: r => r.place || 'its own'},
    {name: 'peak without it', get: r => r.peak_without === undefined ? null : r.peak_without - map.peak_bytes, show: r => r.peak_without === undefined ? '' : r.peak_without < map.peak_bytes ? counted(r.peak_without - map.peak_bytes, 'bytes') : 'the same', number: true},
    {name: 'line', get: r => r.lines, show: r => r.lines.join(', '), names: true, maybe: true},
  ], map.breakdown, {label: 'live at the peak', rows: 20});
}

function blockTable(map, block, picture) {
  const chains = new Map();
  for (const b of map.blocks) if (b.chain) push(chains, b.chain, b.name);
  return table([
    {name: 'block', get: b => b.name, show: b => h('a', {href: address('memory', {map: data.memory.indexOf(map), block: b.name}), onclick: () => picture.choose(b)}, b.name)},
    {name: 'bytes', get: b => b.size, show: b => counted(b.size, 'bytes'), number: true},
    {name: 'place', get: b => b.offset, show: b => b.pool + '+' + b.offset},
    {name: 'made by', get: b => b.made_by || '', show: b => kernelLink(b.made_by || ''), names: true},
    {name: 'last use', get: b => b.last_use || 'kept', show: b => b.last_use ? kernelLink(b.last_use) : 'kept', names: true},
    {name: 'steps', get: b => b.upper - b.lower, number: true},
    {name: 'written in place with', get: b => b.chain ? chains.get(b.chain).filter(n => n !== b.name) : [], show: b => b.chain ? listed(chains.get(b.chain).filter(n => n !== b.name), bufferLink) : '', names: true, maybe: true},
    {name: 'line', get: b => b.lines, show: b => b.lines.join(', '), names: true, maybe: true},
  ], map.blocks, {label: 'blocks', lit: b => b.name === block, by: block ? null : 1, words: block && map.blocks.some(b => b.name === block) ? block : ''});
}

function blockText(map, b) {
  const lines = [b.name + ': ' + bytes(b.size) + ' at ' + b.pool + '+' + b.offset,
    'made by ' + (b.made_by || 'the caller') + ', last used by ' + (b.last_use || 'the caller') + ' (steps ' + b.lower + ' to ' + (b.upper - 1) + ')'];
  if (b.chain) lines.push('in place with ' + map.blocks.filter(o => o.chain === b.chain && o !== b).map(o => o.name).slice(0, 6).join(', '));
  if (b.in_host) lines.push('inside ' + b.pool + ', which is not in use then');
  if (b.output) lines.push('an output');
  if (b.lines.length) lines.push(b.lines.join(', '));
  return lines.join('\n');
}

function memoryPicture(map, wanted) {
  const canvas = h('canvas', {tabindex: 0, role: 'img', 'aria-label': 'memory map of ' + map.blocks.length
    + ' blocks over ' + map.steps.length + ' steps; left and right move in time, up and down between blocks, Enter filters the table; the table below holds the same'});
  const steps = Math.max(1, map.curve.length, most(map.blocks.map(b => b.upper)));
  const state = {from: 0, to: steps, step: map.curve.indexOf(most(map.curve)), chosen: map.blocks.find(b => b.name === wanted) || null};
  if (state.chosen) state.step = state.chosen.lower;
  // Pools one above the other, the arena first, each as high as its share of bytes.
  const total = map.pools.reduce((sum, [, size]) => sum + size, 0) || 1, gaps = 14 * Math.max(0, map.pools.length - 1);
  const pools = new Map();
  let low = MAP_TALL - 20;
  for (const [name, size] of map.pools) {
    const tall = Math.max(3, size / total * (MAP_TALL - 36 - gaps));
    pools.set(name, {low, tall, size});
    low -= tall + 14;
  }
  const x = (step, wide) => EDGE + (step - state.from) / (state.to - state.from) * (wide - EDGE - 8);
  const area = (b, wide) => {
    const pool = pools.get(b.pool);
    if (!pool) return null;
    const left = x(b.lower, wide), right = x(b.upper, wide), tall = b.size / pool.size * pool.tall;
    return {left, top: pool.low - b.offset / pool.size * pool.tall - tall, wide: Math.max(0.5, right - left), tall: Math.max(0.5, tall)};
  };
  function draw() {
    const pen = sized(canvas, MAP_TALL + CURVE_TALL);
    if (!pen) return;
    const wide = canvas.clientWidth;
    drawBlocks(pen, wide);
    drawCurve(pen, wide);
    const now = x(state.step + 0.5, wide);
    pen.strokeStyle = colour('--focus');
    pen.beginPath(); pen.moveTo(now, 0); pen.lineTo(now, MAP_TALL + CURVE_TALL); pen.stroke();
  }
  function drawBlocks(pen, wide) {
    pen.font = '12px sans-serif';
    for (const [name, pool] of pools) {
      pen.fillStyle = colour('--grid');
      pen.fillRect(EDGE, pool.low - pool.tall, wide - EDGE - 8, pool.tall);
      pen.fillStyle = colour('--dim');
      pen.fillText(name + ', ' + bytes(pool.size), EDGE + 2, pool.low + 12);
      pen.textAlign = 'right';
      for (let k = 0; pool.tall > 120 && k <= 4; k++) pen.fillText(k ? bytes(pool.size * k / 4) : '0', EDGE - 5, pool.low - pool.tall * k / 4 + 4);
      pen.textAlign = 'left';
    }
    for (const b of map.blocks) {
      const a = area(b, wide);
      if (!a || a.left > wide || a.left + a.wide < 0) continue;
      pen.fillStyle = hue(b.chain || b.name);
      pen.fillRect(a.left, a.top, a.wide, a.tall);
      const isOne = state.chosen && (b === state.chosen || (b.chain && b.chain === state.chosen.chain));
      if (isOne || b.output) {
        pen.strokeStyle = isOne ? colour('--focus') : colour('--ink');
        pen.lineWidth = isOne ? 2.5 : 0.5;
        pen.strokeRect(a.left, a.top, a.wide, a.tall);
        pen.lineWidth = 1;
      }
      if (a.wide > 42 && a.tall > 11) {
        pen.fillStyle = colour('--ink');
        pen.fillText(b.name.slice(0, Math.floor(a.wide / 7)), a.left + 3, a.top + Math.min(a.tall - 2, 11));
      }
    }
    const arena = pools.get('arena');
    if (!arena) return;
    const bound = arena.low - map.arena_lower_bound / arena.size * arena.tall;
    pen.strokeStyle = colour('--bound');
    pen.setLineDash([6, 4]);
    pen.beginPath(); pen.moveTo(EDGE, bound); pen.lineTo(wide - 8, bound); pen.stroke();
    pen.setLineDash([]);
    pen.fillStyle = colour('--bound');
    pen.fillText('lower bound ' + bytes(map.arena_lower_bound), wide - 170, bound - 3);
  }
  function drawCurve(pen, wide) {
    const top = Math.max(1, most(map.curve)), base = MAP_TALL + CURVE_TALL - 18, tall = CURVE_TALL - 42;
    pen.fillStyle = colour('--accent');
    pen.globalAlpha = 0.55;
    pen.beginPath();
    pen.moveTo(x(0, wide), base);
    map.curve.forEach((live, k) => { const y = base - live / top * tall; pen.lineTo(x(k, wide), y); pen.lineTo(x(k + 1, wide), y); });
    pen.lineTo(x(map.curve.length, wide), base);
    pen.fill();
    pen.globalAlpha = 1;
    pen.fillStyle = colour('--text');
    pen.fillText('live bytes, at most ' + bytes(map.peak_bytes) + ' at ' + map.peak_at, EDGE + 2, MAP_TALL + 14);
    pen.textAlign = 'right';
    for (const part of [0, 0.5, 1]) pen.fillText(part ? bytes(top * part) : '0', EDGE - 5, base - part * tall + 4);
    pen.textAlign = 'left';
    pen.fillText('step ' + state.step + ' of ' + steps + ': ' + (map.steps[state.step] || '') + ', ' + bytes(map.curve[state.step] || 0), EDGE + 2, MAP_TALL + CURVE_TALL - 3);
  }
  const at = event => {
    const box = canvas.getBoundingClientRect(), px = event.clientX - box.left, py = event.clientY - box.top;
    const time = state.from + (px - EDGE) / (box.width - EDGE - 8) * (state.to - state.from);
    let found = null;
    for (const b of map.blocks) {
      const a = area(b, box.width);
      if (a && px >= a.left && px <= a.left + a.wide && py >= a.top && py <= a.top + a.tall) found = b;
    }
    return {time: Math.max(0, Math.min(steps - 1, Math.floor(time))), found};
  };
  canvas.addEventListener('pointermove', event => {
    const {time, found} = at(event);
    tip(found ? blockText(map, found) : 'step ' + time + ': ' + (map.steps[time] || '') + '\n' + bytes(map.curve[time] || 0) + ' live', event.clientX, event.clientY);
  });
  canvas.addEventListener('pointerleave', () => tip(''));
  canvas.addEventListener('click', event => { const {time, found} = at(event); state.step = time; choose(found); });
  canvas.addEventListener('wheel', event => { event.preventDefault(); zoom(event.deltaY < 0 ? 0.8 : 1.25, at(event).time); }, {passive: false});
  canvas.addEventListener('keydown', event => {
    const here = map.blocks.filter(b => b.lower <= state.step && state.step < b.upper).sort((a, b) => a.pool < b.pool ? -1 : a.pool > b.pool ? 1 : a.offset - b.offset);
    const k = here.indexOf(state.chosen);
    if (event.key === 'ArrowRight') { state.step = Math.min(steps - 1, state.step + 1); say('step ' + state.step + ', ' + map.steps[state.step]); draw(); }
    else if (event.key === 'ArrowLeft') { state.step = Math.max(0, state.step - 1); say('step ' + state.step + ', ' + map.steps[state.step]); draw(); }
    else if (event.key === 'ArrowUp') choose(here[Math.min(here.length - 1, k + 1)]);
    else if (event.key === 'ArrowDown') choose(here[Math.max(0, k - 1)]);
    else if (event.key === '+' || event.key === '-') zoom(event.key === '+' ? 0.8 : 1.25, state.step);
    else if (event.key === 'Enter' && state.chosen) location.hash = address('memory', {map: data.memory.indexOf(map), block: state.chosen.name});
    else return;
    event.preventDefault();
  });
  const about = h('p', {role: 'status'}, '');
  function choose(block) {
    state.chosen = block || null;
    about.textContent = block ? blockText(map, block).replaceAll('\n', '; ') : '';
    draw();
  }
  function zoom(factor, middle) {
    const span = Math.max(4, Math.min(steps, (state.to - state.from) * factor));
    state.from = Math.max(0, Math.min(steps - span, middle - span / 2));
    state.to = state.from + span;
    draw();
  }
  drawn(canvas, () => { if (state.chosen) choose(state.chosen); else draw(); });
  return {choose, element: h('div', {}, h('div', {class: 'bar'},
    h('button', {type: 'button', 'aria-label': 'zoom in', onclick: () => zoom(0.6, state.step)}, '+'),
    h('button', {type: 'button', 'aria-label': 'zoom out', onclick: () => zoom(1.6, state.step)}, '-'),
    h('button', {type: 'button', onclick: () => { state.from = 0; state.to = steps; draw(); }}, 'whole'),
    h('span', {class: 'dim'}, 'time goes to the right, addresses up; grey is free; blocks of one colour that touch are written in place; outlined ones are outputs')), canvas, about)};
}
