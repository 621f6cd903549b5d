// The roofline: how much arithmetic a launch does for each byte, against how fast it does it.
// A dot on the roof cannot be faster on this machine; one far below waits for something else.

views.set('roofline', {title: 'Roofline', shown: () => Boolean(data.roofs && data.kernels && data.kernels.length), draw: rooflineView});

const ROOF = {wide: 900, tall: 420, left: 70, right: 20, top: 16, low: 44};

// What the picture and the table know of a launch.
function roofPoint(row, roof) {
  const moved = row.bytes_loaded + row.bytes_stored;
  const measured = row.measured_us > 0 ? row.measured_us : null, us = measured ?? row.predicted_us;
  const least = Math.max(moved / roof.gigabytes_per_second, row.flops / row.peak_gflops) / 1e3;
  return {row, moved, us, measured, least, intensity: moved && row.flops ? row.flops / moved : null,
    gflops: us ? row.flops / us / 1e3 : 0, gigabytes: us ? moved / us / 1e3 : 0,
    part: us && least ? least / us : null};
}

function rooflineView(words) {
  const devices = Object.keys(data.roofs), device = devices.includes(words.device) ? words.device : devices[0];
  const roof = data.roofs[device], points = data.kernels.filter(row => row.device === device).map(row => roofPoint(row, roof));
  const choices = devices.length < 2 ? null : h('div', {class: 'bar'}, devices.map(one => h('button', {type: 'button',
    'aria-pressed': String(one === device), onclick: () => { location.hash = address('roofline', {device: one}); }}, one)));
  const dots = points.filter(p => p.intensity && p.gflops).sort((a, b) => a.intensity - b.intensity || b.us - a.us);
  const without = points.length - dots.length, timed = points.some(p => p.measured);
  return h('section', {}, h('h2', {}, 'Roofline of ' + roof.machine), choices,
    h('p', {}, number(roof.gigabytes_per_second) + ' GB/s of memory; a launch costs ' + number(roof.launch_us) + ' us besides its work. '
      + (timed ? 'Filled dots are measured, rings predicted.' : 'Times are predicted: a small launch lies below the roof because launching takes longer than its work.')),
    measuredNote(), dots.length ? roofPicture(dots, roof) : null,
    without ? h('p', {class: 'dim'}, number(without) + ' of ' + number(points.length)
      + ' do no arithmetic that is known (copies, library calls): they have no dot, and a row below.') : null,
    table([
      {name: 'launch', get: p => p.row.name, show: p => kernelLink(p.row.name)},
      {name: 'limited by', get: p => p.row.bound},
      {name: 'flop per byte', get: p => p.intensity, show: p => p.intensity ? short(p.intensity) : '', number: true, maybe: true},
      {name: 'Gflop/s', get: p => p.gflops || null, show: p => p.gflops ? short(p.gflops) : '', number: true, maybe: true},
      {name: 'GB/s', get: p => p.gigabytes, show: p => short(p.gigabytes), number: true},
      {name: 'at the roof', get: p => p.least, show: p => time(p.least), number: true},
      {name: 'predicted', get: p => p.row.predicted_us, show: p => time(p.row.predicted_us), number: true},
      ...(timed ? [{name: 'measured', get: p => p.measured, show: p => time(p.measured), number: true}] : []),
      {name: 'of the roof', get: p => p.part, show: p => p.part === null ? '' : (100 * p.part).toFixed(1) + ' %', number: true},
    ], points, {label: 'launches against the roof', by: 'predicted'}));
}

// Three digits are more than a model knows.
function short(value) { return number(Number(value.toPrecision(3))); }

function roofText(p) {
  return p.row.name + ': ' + number(p.intensity) + ' flop per byte, ' + short(p.gflops) + ' Gflop/s, ' + short(p.gigabytes) + ' GB/s\n'
    + (p.measured ? time(p.measured) + ' measured, ' : '') + time(p.row.predicted_us) + ' predicted, '
    + time(p.least) + ' at the roof' + (p.part === null ? '' : ' (' + (100 * p.part).toFixed(1) + ' % of it)');
}

// Powers of ten from below the least to above the largest.
function decades(values) {
  const low = Math.floor(Math.log10(values.reduce((a, b) => Math.min(a, b), Infinity))), high = Math.ceil(Math.log10(most(values)));
  return [low, Math.max(low + 1, high)];
}

function roofPicture(dots, roof) {
  const peaks = [...new Set(dots.map(p => p.row.peak_gflops))].sort((a, b) => a - b);
  const ridges = peaks.map(peak => peak / roof.gigabytes_per_second);
  const [x0, x1] = decades([...dots.map(p => p.intensity), ...ridges]), [y0, y1] = decades([...dots.map(p => p.gflops), ...peaks]);
  const {wide, tall, left, right, top, low} = ROOF;
  // To a hundredth of a point, so that one picture is the same text on every machine.
  const rounded = v => Math.round(100 * v) / 100;
  const x = v => rounded(left + (Math.log10(v) - x0) / (x1 - x0) * (wide - left - right));
  const y = v => rounded(tall - low - (Math.log10(v) - y0) / (y1 - y0) * (tall - low - top));
  const power = k => k >= -3 && k <= 5 ? number(10 ** k) : '1e' + k;
  const range = (a, b) => Array.from({length: b - a + 1}, (_, k) => a + k);
  const grid = [
    range(x0, x1).map(k => [s('line', {class: 'grid', x1: x(10 ** k), x2: x(10 ** k), y1: top, y2: tall - low}), s('text', {class: 'dim', x: x(10 ** k), y: tall - low + 16, 'text-anchor': 'middle'}, power(k))]),
    range(y0, y1).map(k => [s('line', {class: 'grid', x1: left, x2: wide - right, y1: y(10 ** k), y2: y(10 ** k)}), s('text', {class: 'dim', x: left - 6, y: y(10 ** k) + 4, 'text-anchor': 'end'}, power(k))]),
    s('text', {x: (left + wide - right) / 2, y: tall - 8, 'text-anchor': 'middle'}, 'arithmetic for each byte moved, flop per byte'),
    s('text', {x: left + 4, y: top + 10}, 'Gflop/s'),
  ];
  // From the left or lower border up to the highest peak, then flat.
  const start = Math.max(10 ** x0, 10 ** y0 / roof.gigabytes_per_second), last = ridges.at(-1);
  const lines = [
    s('line', {class: 'roof', x1: x(start), y1: y(start * roof.gigabytes_per_second), x2: x(last), y2: y(peaks.at(-1))}),
    peaks.map((peak, k) => [s('line', {class: 'roof', x1: x(ridges[k]), y1: y(peak), x2: wide - right, y2: y(peak)}),
      s('text', {x: wide - right - 4, y: y(peak) - 5, 'text-anchor': 'end'}, number(peak) + ' Gflop/s')]),
  ];
  const largest = most(dots.map(p => p.us)) || 1, size = p => rounded(3 + 7 * Math.sqrt(p.us / largest));
  const circles = dots.map((p, k) => s('circle', {class: p.measured ? 'dot measured' : 'dot', cx: x(p.intensity), cy: y(p.gflops), r: size(p), 'data-k': k}));
  // Large ones first, so that small ones lie on top of them.
  const order = dots.map((_, k) => k).sort((a, b) => dots[b].us - dots[a].us);
  const picture = s('svg', {viewBox: `0 0 ${wide} ${tall}`, width: '100%', class: 'roofline', tabindex: 0, role: 'img',
    'aria-label': 'roofline of ' + dots.length + ' launches; left and right go from one to the next, Enter opens it; the table below holds the same'},
    grid, lines, order.map(k => circles[k]));
  let at = -1;
  const choose = (k, seen) => {
    if (circles[at]) circles[at].classList.remove('chosen');
    at = k;
    circles[at].classList.add('chosen');
    const box = circles[at].getBoundingClientRect();
    tip(roofText(dots[at]), seen ? seen.clientX : box.left + box.width, seen ? seen.clientY : box.top);
    if (!seen) say(roofText(dots[at]));
  };
  const under = event => event.target.dataset && event.target.dataset.k !== undefined ? Number(event.target.dataset.k) : null;
  const open = k => { tip(''); location.hash = address('kernel', {name: dots[k].row.name}); };
  picture.addEventListener('pointermove', event => { const k = under(event); if (k === null) tip(''); else choose(k, event); });
  picture.addEventListener('pointerleave', () => tip(''));
  picture.addEventListener('blur', () => tip(''));
  picture.addEventListener('click', event => { const k = under(event); if (k !== null) open(k); });
  picture.addEventListener('keydown', event => {
    const step = {ArrowRight: 1, ArrowLeft: -1}[event.key];
    if (step) choose((at + step + (at < 0 && step < 0 ? 1 : 0) + dots.length) % dots.length);
    else if (event.key === 'Home') choose(0);
    else if (event.key === 'End') choose(dots.length - 1);
    else if (event.key === 'Enter' && at >= 0) open(at);
    else if (event.key === 'Escape') tip('');
    else return;
    event.preventDefault();
  });
  return h('div', {class: 'frame roof'}, picture);
}
