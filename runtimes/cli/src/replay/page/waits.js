// The words of the page: what the trace is of, the table of waits, and the explanation of the one that is chosen, `#wait=CALL`.
'use strict';

const element = (name, text, className) => {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  if (className) made.className = className;
  return made;
};
const count = (number, one, many = `${one}s`) => `${number.toLocaleString('en')} ${number === 1 ? one : many}`;

// The beginning.
{
  const hosts = data.pools.map(pool => pool.name);
  const few = hosts.length > 3 ? `${hosts.slice(0, 3).join(', ')} and ${hosts.length - 3} more` : hosts.join(', ');
  at('title').textContent = `Trace of the connections to ${few || 'no server'}`;
  document.title = at('title').textContent;
  at('summary').textContent = [
    `${count(data.calls, 'call')} in ${duration(data.length)}`,
    `${count(data.allWaits, 'check-out')} waited`,
    `${data.allFailures.toLocaleString('en')} failed`,
    data.trigger && `written because of: ${data.trigger}`,
    data.unixMillis && `on ${new Date(data.unixMillis).toISOString().replace('T', ' ').replace(/\.\d+Z/, ' UTC')}`,
    data.producer && `by ${data.producer}`,
  ].filter(Boolean).join(' · ');
  const missing = [
    data.waits.length < data.allWaits - data.briefWaits
      && `Of ${count(data.allWaits, 'wait')} ${data.waits.length} are shown: the longest, and the longest of those that failed.`,
    data.shownFrom > 0 && `What connections did before ${seconds(data.shownFrom)} is left out.`,
    data.noHolder && `${data.noHolder[0].toUpperCase()}${data.noHolder.slice(1)}.`,
  ].filter(Boolean);
  at('left-out').hidden = !missing.length;
  at('left-out').textContent = missing.join(' ');
}

// The table.
const COLUMNS = [
  ['Call', 'number', (one, other) => data.waits.indexOf(one) - data.waits.indexOf(other)],
  ['Waited', 'number', (one, other) => (one.ended - one.began) - (other.ended - other.began)],
  ['Cause', 'word', (one, other) => (one.cause || '').localeCompare(other.cause || '')],
  ['Outcome', 'word', (one, other) => one.outcome.localeCompare(other.outcome)],
  ['By', '', (one, other) => (one.by || '').localeCompare(other.by || '')],
  ['Began', 'number', (one, other) => one.began - other.began],
];
let sorted = { column: 1, falling: true };

const lines = new Map(data.waits.map(wait => {
  const line = element('tr');
  line.dataset.wait = wait.id;
  const link = element('a', wait.id);
  link.href = `#wait=${wait.id}`;
  const call = element('td', undefined, 'number');
  call.append(link);
  const cause = element('td');
  const marked = element('span', wait.cause || '', wait.cause && 'cause');
  marked.style.setProperty('--mark', `var(${variable(wait.cause)})`);
  cause.className = 'word';
  cause.append(marked);
  line.append(
    call,
    element('td', duration(wait.ended - wait.began), 'number'),
    cause,
    element('td', wait.outcome, wait.outcome === 'failed' ? 'word failed' : 'word'),
    element('td', wait.by || '', 'who'),
    element('td', seconds(wait.began, 3), 'number'),
  );
  line.addEventListener('click', () => { location.hash = `wait=${wait.id}`; });
  return [wait, line];
}));

function sort(column, falling) {
  sorted = { column, falling };
  const order = [...data.waits].sort(COLUMNS[column][2]);
  if (falling) order.reverse();
  at('waits').replaceChildren(...order.map(wait => lines.get(wait)));
  [...at('columns').children].forEach((head, index) => {
    if (index === column) head.setAttribute('aria-sort', falling ? 'descending' : 'ascending');
    else head.removeAttribute('aria-sort');
  });
}

COLUMNS.forEach(([name, className], column) => {
  const head = element('th', undefined, className);
  head.scope = 'col';
  const button = element('button', name);
  button.type = 'button';
  // Lengths are wanted from the longest on, words from the first on.
  button.addEventListener('click', () => sort(column, sorted.column === column ? !sorted.falling : name === 'Waited'));
  head.append(button);
  at('columns').append(head);
});
sort(1, true);
at('no-waits').hidden = data.waits.length > 0;
at('brief-waits').hidden = !data.briefWaits;
at('brief-waits').textContent = `${count(data.briefWaits, 'more check-out')} waited for less than 1 ms.`;

// The explanation.
function explain(wait) {
  at('headline').textContent = wait ? wait.headline : data.waits.length ? 'Choose a wait.' : 'There is nothing to explain.';
  at('cause').textContent = wait && wait.explanation ? `cause: ${wait.explanation}` : '';
  const intervals = wait ? wait.intervals : [];
  const marked = (made, limit) => { made.style.setProperty('--mark', `var(${variable(limit)})`); return made; };
  at('share').replaceChildren(...intervals.map(([limit, from, to]) => {
    const part = marked(element('i'), limit);
    part.style.flexGrow = String(to - from);
    return part;
  }));
  at('intervals').replaceChildren(...intervals.map(([limit, from, to, text]) => {
    const item = marked(element('li'), limit);
    item.dataset.nanoseconds = String(to - from);
    const times = from > wait.began ? `${duration(to - from)}, after ${duration(from - wait.began)}` : duration(to - from);
    item.append(element('b', limit), ' ', element('small', times));
    if (text) item.append(element('div', text));
    return item;
  }));
  tell(wait ? wait.occurrences : [], wait);
}

// What happened meanwhile, and shortly before.
function tell(occurrences, wait) {
  at('happened').hidden = !occurrences.length;
  at('occurrences').replaceChildren(...occurrences.map(([when, what]) => {
    const item = element('li');
    const words = when < wait.began ? `${duration(wait.began - when)} before` : `after ${duration(when - wait.began)}`;
    item.append(element('small', words), ' ', element('span', what));
    return item;
  }));
}

function choose() {
  const id = (location.hash.match(/^#wait=(.+)$/) || [])[1];
  if (chosen) lines.get(chosen).removeAttribute('aria-selected');
  const before = chosen;
  chosen = data.waits.find(wait => wait.id === id) || null;
  at('zoom-wait').disabled = !chosen;
  explain(chosen);
  if (!chosen) return redraw();
  lines.get(chosen).setAttribute('aria-selected', 'true');
  lines.get(chosen).scrollIntoView({ block: 'nearest' });
  const isSeen = chosen.began < view.from + view.length && chosen.ended > view.from;
  if (!before || !isSeen) showWait(chosen);
  redraw();
}
addEventListener('hashchange', choose);
if (!location.hash && data.waits.length) {
  // The longest wait is what most people come for.
  const longest = data.waits.reduce((one, other) => other.ended - other.began > one.ended - one.began ? other : one);
  history.replaceState(null, '', `#wait=${longest.id}`);
  choose();
  showAll();
  timeline.scrollTop = 0;
} else {
  choose();
}
scrollTo(0, 0);
