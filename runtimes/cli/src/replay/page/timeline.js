// Draws the timeline: for each pool its state, its counts and its slots; then those who waited.
'use strict';

const data = JSON.parse(document.getElementById('data').textContent);
const at = id => document.getElementById(id);

// Colours, by the names that the data has.
const STATES = {
  'in use': 'in-use', available: 'available', establish: 'establish', check: 'check', refresh: 'refresh',
};
const LIMITS = {
  maxPoolSize: 'max-pool-size', maxConnecting: 'max-connecting', establishment: 'establishment', 'paused pool': 'paused-pool',
  'server selection': 'selection', 'late wake-up': 'late', backoff: 'backoff', maxNewConnectionsPerSecond: 'rate',
  'shared limit': 'shared', turn: 'turn', 'before the trace': 'before',
};
const variable = name => `--${LIMITS[name] || STATES[name] || name || 'before'}`;
const colours = new Map();
const colour = name => {
  const known = variable(name);
  if (!colours.has(known)) colours.set(known, getComputedStyle(document.documentElement).getPropertyValue(known).trim());
  return colours.get(known);
};

// A duration in nanoseconds, with three digits.
const duration = nanos => {
  if (!nanos) return '0 s';
  const [size, unit] = nanos >= 600e9 ? [60e9, 'min'] : nanos >= 1e9 ? [1e9, 's'] : nanos >= 1e6 ? [1e6, 'ms'] : nanos >= 1e3 ? [1e3, 'µs'] : [1, 'ns'];
  return `${Number((nanos / size).toPrecision(3))} ${unit}`;
};
// A time as the client's clock had it.
const seconds = (nanos, digits = 3) => `${((data.origin + nanos) / 1e9).toFixed(digits)} s`;

// Rows: what each of them shows, and where. Where there are many, they are thin and without words.
const LANE = 15, THIN = 5, COUNTS = 46, TITLE = 26, AXIS = 22, GAP = 10;
const rows = [];
let contents = AXIS;
const row = (kind, height, more) => {
  rows.push({ kind, top: contents, height, ...more });
  contents += height;
};
const lanes = data.waits.reduce((most, wait) => Math.max(most, wait.lane + 1), 0);
const laneHeight = lanes > 24 ? THIN : LANE;
const slotHeight = data.pools.reduce((sum, pool) => sum + pool.slots, 0) > 60 ? THIN : LANE;
// Labels are no closer than they are high.
const labelOf = (index, height, label) => index % Math.ceil(12 / height) ? '' : label;
const rowsOfWaits = () => {
  if (!lanes) return;
  contents += rows.length ? GAP : 0;
  row('title', TITLE, { label: 'Waiting check-outs' });
  for (let lane = 0; lane < lanes; lane++) {
    row('lane', laneHeight, { label: lane ? '' : 'who waits', waits: data.waits.filter(wait => wait.lane === lane) });
  }
};
// Many would push all else out of sight.
if (laneHeight === LANE) rowsOfWaits();
for (const pool of data.pools) {
  contents += rows.length ? GAP : 0;
  row('title', TITLE, { label: pool.name, pool });
  const most = pool.counts.reduce((most, it) => Math.max(most, it[1] + it[2] + it[3]), 0);
  const waiting = pool.counts.reduce((most, it) => Math.max(most, it[4]), 0);
  row('counts', COUNTS, { label: `≤ ${most} connections`, second: `≤ ${waiting} waiting`, pool, most: Math.max(most, 1), waiting: Math.max(waiting, 1) });
  const slots = Array.from({ length: pool.slots }, () => []);
  for (const span of pool.spans) slots[span[0]].push(span);
  slots.forEach((spans, slot) => row('slot', slotHeight, { label: labelOf(slot, slotHeight, `slot ${slot + 1}`), spans, pool }));
}
if (laneHeight !== LANE) rowsOfWaits();

// What is seen: from, and how long.
const view = { from: data.shownFrom, length: Math.max(data.length - data.shownFrom, 1) };
const whole = { ...view };
const timeline = at('timeline'), canvas = at('canvas'), tip = at('tip');
let gutter = 130, width = 0, height = 0, chosen = null, isDue = false;

const x = nanos => gutter + (nanos - view.from) / view.length * (width - gutter);
const nanosAt = place => view.from + (place - gutter) / (width - gutter) * view.length;
const redraw = () => {
  if (isDue) return;
  isDue = true;
  requestAnimationFrame(() => { isDue = false; draw(); });
};

function look(from, length) {
  view.length = Math.min(Math.max(length, 1000), whole.length * 1.04);
  const margin = Math.max(view.length - whole.length, 0) / 2;
  view.from = Math.min(Math.max(from, whole.from - margin), whole.from + whole.length + margin - view.length);
  redraw();
}
const zoom = (factor, place = (gutter + width) / 2) => {
  const fixed = nanosAt(place);
  look(fixed - (fixed - view.from) * factor, view.length * factor);
};
const move = part => look(view.from + view.length * part, view.length);
const showAll = () => look(whole.from - whole.length * .02, whole.length * 1.04);
const showWait = wait => {
  if (!wait) return;
  const length = Math.max(wait.ended - wait.began, 1000);
  look(wait.began - length * .35, length * 1.7);
  const lane = rows.find(it => it.waits && it.waits.includes(wait));
  if (lane && (lane.top < timeline.scrollTop + AXIS || lane.top > timeline.scrollTop + height - lane.height)) timeline.scrollTop = lane.top - height / 2;
};

function resize() {
  width = timeline.clientWidth;
  gutter = Math.min(170, Math.max(90, width * .14));
  height = Math.min(contents + 4, Math.max(160, innerHeight * .62));
  canvas.width = Math.round(width * devicePixelRatio);
  canvas.height = Math.round(height * devicePixelRatio);
  canvas.style.height = `${height}px`;
  at('height').style.height = `${Math.max(contents + 4 - height, 0)}px`;
  redraw();
}

function draw() {
  const pen = canvas.getContext('2d');
  pen.setTransform(devicePixelRatio, 0, 0, devicePixelRatio, 0, 0);
  pen.fillStyle = colour('panel');
  pen.fillRect(0, 0, width, height);
  pen.font = `11px ${getComputedStyle(document.body).fontFamily}`;
  pen.textBaseline = 'middle';
  const scroll = timeline.scrollTop;
  const ticks = ticksOf();
  drawGrid(pen, ticks);
  for (const it of rows) {
    const top = it.top - scroll;
    if (top + it.height < 0 || top > height) continue;
    pen.save();
    pen.beginPath();
    pen.rect(gutter, top, width - gutter, it.height);
    pen.clip();
    DRAW[it.kind](pen, it, top);
    pen.restore();
    drawLabel(pen, it, top);
  }
  drawChosen(pen, scroll);
  drawAxis(pen, ticks);
}

// Round times, at least 110 pixels apart.
function ticksOf() {
  const least = view.length / Math.max((width - gutter) / 110, 1);
  const power = 10 ** Math.floor(Math.log10(least));
  const step = [1, 2, 5, 10].map(it => it * power).find(it => it >= least);
  const digits = Math.min(Math.max(0, Math.ceil(9 - Math.log10(step) - 1e-9)), 9);
  const ticks = [];
  for (let tick = Math.ceil((view.from + data.origin) / step) * step; tick <= view.from + data.origin + view.length; tick += step) {
    ticks.push({ place: x(tick - data.origin), label: seconds(tick - data.origin, digits) });
  }
  return ticks;
}

function drawGrid(pen, ticks) {
  pen.fillStyle = colour('stripe');
  for (const { place } of ticks) if (place >= gutter) pen.fillRect(Math.round(place), AXIS, 1, height);
}

function drawAxis(pen, ticks) {
  pen.fillStyle = colour('panel');
  pen.fillRect(0, 0, width, AXIS - 2);
  pen.fillStyle = colour('faint');
  for (const { place, label } of ticks) if (place >= gutter && place + pen.measureText(label).width + 4 < width) pen.fillText(label, place + 3, AXIS / 2 - 1);
  pen.fillStyle = colour('line');
  pen.fillRect(0, AXIS - 2, width, 1);
}

function drawLabel(pen, it, top) {
  pen.fillStyle = colour(it.kind === 'title' ? 'text' : 'faint');
  const font = pen.font;
  if (it.kind === 'title') pen.font = `600 ${font.replace('11px', '12px')}`;
  const isTitle = it.kind === 'title', middle = top + it.height / 2 + 1;
  pen.fillText(fit(pen, it.label, isTitle && !it.pool ? width : gutter - (isTitle ? 6 : 14)), isTitle ? 0 : 10, it.second ? middle - 7 : middle);
  if (it.second) pen.fillText(fit(pen, it.second, gutter - 14), 10, middle + 7);
  pen.font = font;
}

function fit(pen, text, room) {
  if (pen.measureText(text).width <= room) return text;
  let length = Math.min(text.length, Math.floor(room / 4));
  while (length > 0 && pen.measureText(`${text.slice(0, length)}…`).width > room) length--;
  return length > 1 ? `${text.slice(0, length)}…` : '';
}

function bar(pen, from, to, top, height, fill, text, ink) {
  const left = Math.max(x(from), gutter - 2), right = Math.min(x(to), width + 2);
  if (right < gutter || left > width) return;
  pen.fillStyle = fill;
  pen.fillRect(left, top, Math.max(right - left - (right - left > 3 ? .5 : 0), 1), height);
  if (text && height > 8 && right - left > 34) {
    pen.fillStyle = ink;
    const start = Math.max(left, gutter) + 4;
    pen.fillText(fit(pen, text, right - start - 3), start, top + height / 2 + .5);
  }
}

// What stands in a bar; what is available needs no words.
const wordsOf = (state, holder, connection) => state === 'in use' ? holder || `connection ${connection}` : state === 'available' ? '' : state;

const DRAW = {
  title(pen, it, top) {
    if (!it.pool) return;
    for (const [from, to, cause] of it.pool.pauses) bar(pen, from, to, top + 4, TITLE - 11, colour('paused'), `paused: ${cause}`, colour('text'));
    const low = top + TITLE - 3;
    for (const [when, kind] of it.pool.marks) {
      const place = x(when);
      if (place < gutter - 6 || place > width + 6) continue;
      pen.fillStyle = colour(kind);
      pen.beginPath();
      if (kind === 'found') pen.arc(place, low, 2, 0, 7);
      else if (kind === 'lost') pen.arc(place, low, 3, 0, 7);
      else { pen.moveTo(place - 5, top + 2); pen.lineTo(place + 5, top + 2); pen.lineTo(place, top + TITLE - 4); }
      pen.fill();
    }
  },
  // In use, available and pending on top of each other; the line is those who wait, in a scale of its own.
  counts(pen, it, top) {
    const { counts } = it.pool, ground = top + COUNTS - 3;
    const scale = (COUNTS - 8) / it.most, scaleOfLine = (COUNTS - 8) / it.waiting;
    const right = counts.map((_, index) => index + 1 < counts.length ? counts[index + 1][0] : data.length);
    pen.fillStyle = colour('line');
    pen.fillRect(gutter, ground, width - gutter, 1);
    let line = null;
    counts.forEach(([when, inUse, available, pending, waiting], index) => {
      if (right[index] < view.from || when > view.from + view.length) return;
      const left = Math.max(x(when), gutter), wide = Math.max(Math.min(x(right[index]), width) - left, .5);
      let level = ground;
      for (const [count, name] of [[inUse, 'in use'], [available, 'available'], [pending, 'establish']]) {
        pen.fillStyle = colour(name);
        pen.fillRect(left, level - count * scale, wide, count * scale);
        level -= count * scale;
      }
      line = line || new Path2D();
      line.lineTo(left, ground - waiting * scaleOfLine);
      line.lineTo(left + wide, ground - waiting * scaleOfLine);
    });
    if (!line) return;
    pen.strokeStyle = colour('text');
    pen.lineWidth = 1;
    pen.stroke(line);
  },
  slot(pen, it, top) {
    // What is narrower than a pixel is drawn once a pixel.
    let last = -1, lastState = '';
    for (const [, connection, state, from, to, holder, closed] of it.spans) {
      if (to < view.from || from > view.from + view.length) continue;
      const right = Math.floor(x(to));
      if (right === last && state === lastState && !closed) continue;
      [last, lastState] = [right, state];
      const ink = state === 'in use' ? '#fff' : colour('text');
      bar(pen, from, to, top + 1, it.height - 2, colour(state), wordsOf(state, holder, connection), ink);
      if (closed) { pen.fillStyle = colour(closed === 'idle' ? 'faint' : 'cleared'); pen.fillRect(x(to) - 1, top, 2, it.height); }
    }
  },
  lane(pen, it, top) {
    for (const wait of it.waits) {
      if (wait.ended < view.from || wait.began > view.from + view.length) continue;
      for (const [limit, from, to] of wait.intervals) bar(pen, from, to, top + 1, it.height - 2, colour(limit), '', '');
      if (!wait.intervals.length) bar(pen, wait.began, wait.ended, top + 1, it.height - 2, colour('turn'), '', '');
      bar(pen, wait.began, wait.ended, top + 1, it.height - 2, 'transparent', [wait.by, wait.cause].filter(Boolean).join(': '), '#fff');
      if (wait.outcome === 'failed') { pen.fillStyle = colour('cleared'); pen.fillRect(Math.max(x(wait.ended) - 2, gutter), top, 2, it.height); }
    }
  },
};

// The wait that is chosen, with the way to the connection that it got.
function drawChosen(pen, scroll) {
  const lane = chosen && rows.find(it => it.waits && it.waits.includes(chosen));
  if (!lane) return;
  pen.save();
  pen.beginPath();
  pen.rect(gutter - 2, AXIS - 1, width, height);
  pen.clip();
  pen.strokeStyle = colour('accent');
  pen.lineWidth = 2;
  pen.strokeRect(x(chosen.began) - 1, lane.top - scroll, Math.max(x(chosen.ended) - x(chosen.began), 2) + 2, lane.height);
  if (chosen.ledTo) {
    const [pool, slot] = chosen.ledTo;
    const target = rows.filter(it => it.kind === 'slot' && it.pool === data.pools[pool])[slot];
    const isBelow = target.top > lane.top, place = x(chosen.ended);
    const from = (isBelow ? lane.top + lane.height : lane.top) - scroll;
    const to = (isBelow ? target.top : target.top + target.height) - scroll;
    const side = isBelow ? -6 : 6;
    pen.beginPath();
    pen.moveTo(place, from);
    pen.lineTo(place, to);
    pen.moveTo(place - 4, to + side);
    pen.lineTo(place, to);
    pen.lineTo(place + 4, to + side);
    pen.stroke();
  }
  pen.restore();
}

// What is under the pointer.
function find(left, top) {
  const it = rows.find(row => top >= row.top && top < row.top + row.height);
  if (!it || left < gutter) return {};
  const when = nanosAt(left), near = view.length / (width - gutter) * 4;
  const covers = (from, to) => from - near / 2 <= when && when <= to + near / 2;
  if (it.kind === 'lane') {
    const wait = it.waits.find(wait => covers(wait.began, wait.ended));
    return wait ? { wait, text: `${wait.headline}\n${wait.explanation || ''}` } : {};
  }
  if (it.kind === 'slot') {
    const span = it.spans.findLast(span => covers(span[3], span[4]));
    if (!span) return {};
    const [, connection, state, from, to, holder, closed] = span;
    return { text: `connection ${connection}: ${state}${holder ? ` by ${holder}` : ''}\n${duration(to - from)} from ${seconds(from)}${closed ? `\nclosed then: ${closed}` : ''}` };
  }
  if (it.kind === 'counts') {
    const count = it.pool.counts.findLast(count => count[0] <= when);
    return count ? { text: `${count[1]} in use, ${count[2]} available, ${count[3]} pending, ${count[4]} waiting\nat ${seconds(when)}` } : {};
  }
  if (!it.pool) return {};
  const mark = it.pool.marks.findLast(mark => Math.abs(mark[0] - when) <= near * 1.5);
  const words = { cleared: 'pool cleared', found: 'check succeeded', lost: 'check failed' };
  if (mark) return { text: `${words[mark[1]]}${mark[2] ? `: ${mark[2]}` : ''}\nat ${seconds(mark[0])}` };
  const pause = it.pool.pauses.find(pause => covers(pause[0], pause[1]));
  return pause ? { text: `paused for ${duration(pause[1] - pause[0])}: ${pause[2]}` } : {};
}

function showTip(event) {
  const place = canvas.getBoundingClientRect();
  const left = event.clientX - place.left, top = event.clientY - place.top;
  const { text, wait } = find(left, top + timeline.scrollTop);
  tip.hidden = !text;
  canvas.style.cursor = wait ? 'pointer' : '';
  if (!text) return;
  tip.textContent = text;
  const outer = tip.parentElement.getBoundingClientRect();
  tip.style.left = `${Math.max(0, Math.min(event.clientX - outer.left + 14, outer.width - tip.offsetWidth - 8))}px`;
  tip.style.top = `${event.clientY - outer.top + 16}px`;
}

// The pointer.
let grip = null;
timeline.addEventListener('pointerdown', event => {
  if (event.button || event.target !== canvas) return;
  grip = { at: event.clientX, from: view.from, moved: false };
  canvas.setPointerCapture(event.pointerId);
});
timeline.addEventListener('pointermove', event => {
  if (!grip) return showTip(event);
  tip.hidden = true;
  if (Math.abs(event.clientX - grip.at) > 3) grip.moved = true;
  timeline.classList.toggle('moving', grip.moved);
  if (grip.moved) look(grip.from - (event.clientX - grip.at) / (width - gutter) * view.length, view.length);
});
timeline.addEventListener('pointerup', event => {
  const place = canvas.getBoundingClientRect();
  const { wait } = grip && !grip.moved ? find(event.clientX - place.left, event.clientY - place.top + timeline.scrollTop) : {};
  grip = null;
  timeline.classList.remove('moving');
  if (wait) location.hash = `wait=${wait.id}`;
});
timeline.addEventListener('pointercancel', () => { grip = null; });
timeline.addEventListener('pointerleave', () => { tip.hidden = true; });
timeline.addEventListener('dblclick', event => zoom(.4, event.clientX - canvas.getBoundingClientRect().left));
timeline.addEventListener('scroll', redraw);
timeline.addEventListener('wheel', event => {
  const isSideways = Math.abs(event.deltaX) > Math.abs(event.deltaY) || event.shiftKey;
  if (!event.ctrlKey && !event.metaKey && !isSideways) return;
  event.preventDefault();
  if (isSideways) move((event.deltaX || event.deltaY) / 1000);
  else zoom(1.0015 ** event.deltaY, event.clientX - canvas.getBoundingClientRect().left);
}, { passive: false });

// The keyboard, and the buttons that say the same.
const KEYS = {
  ArrowLeft: () => move(-.15), ArrowRight: () => move(.15), '+': () => zoom(.6), '=': () => zoom(.6), '-': () => zoom(1 / .6),
  0: showAll, w: () => showWait(chosen),
};
timeline.addEventListener('keydown', event => {
  const act = KEYS[event.key];
  if (!act || event.ctrlKey || event.metaKey || event.altKey) return;
  event.preventDefault();
  act();
});
at('zoom-in').addEventListener('click', KEYS['+']);
at('zoom-out').addEventListener('click', KEYS['-']);
at('zoom-all').addEventListener('click', showAll);
at('zoom-wait').addEventListener('click', KEYS.w);

const seen = new Set(data.pools.flatMap(pool => pool.spans.map(span => span[2])));
const LEGEND = [
  ...Object.keys(STATES).filter(name => seen.has(name)).map(name => [name, name]),
  ['text', 'line: how many wait'], ['cleared', 'cleared, closed'], ['lost', 'check failed'],
  ...[...new Set(data.waits.flatMap(wait => wait.intervals.map(it => it[0])))].sort().map(name => [name, `waits: ${name}`]),
];
for (const [name, words] of LEGEND) {
  const entry = document.createElement('span');
  entry.textContent = words;
  entry.style.setProperty('--mark', `var(${variable(name)})`);
  at('legend').append(entry);
}
new ResizeObserver(resize).observe(timeline);
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => { colours.clear(); redraw(); });
resize();
showAll();
