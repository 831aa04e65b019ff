// The official files of the format CMAP on cmap-c as WebAssembly, in virtual time: node official.mjs CMAP.WASM FOLDER
//
// Threads of a test are queues of operations here. While one of them can go on, time stands still; when all wait, it jumps to the next
// moment at which something happens. The server answers at once, unless a fail point is in the way.
import assert from 'node:assert/strict';
import { readFileSync, readdirSync } from 'node:fs';

const [program, folder] = process.argv.slice(2);
const [MILLISECOND, NEVER] = [1_000_000n, 2n ** 64n - 1n];

// Numbers and names, as the header has them.
const header = readFileSync(new URL('../../include/cmap.h', import.meta.url), 'utf8');
const found = (pattern, entry) => Object.fromEntries([...header.matchAll(pattern)].map(([, ...parts]) => entry(...parts)));
const C = found(/^#define CMAP_(\w+) (\d+)$/gm, (name, number) => [name, Number(number)]);
const EVENTS = found(/^\/\/ (Connection\w+)\.(?:.*\n\/\/)*.*\n#define CMAP_EVENT_\w+ (\d+)$/gm, (name, number) => [number, name]);
const CLOSED = found(/"(\w+)"\.\n#define CMAP_CLOSED_\w+ (\d+)$/gm, (name, number) => [number, name]);
const FAILED = found(/"(\w+)"\.\n#define CMAP_FAILED_\w+ (\d+)$/gm, (name, number) => [number, name]);
const camel = name => name.toLowerCase().replace(/(?:^|_)(.)/g, (_, letter) => letter.toUpperCase());
const ERRORS = found(/^#define CMAP_FAILED_(\w+) (\d+)$/gm, (name, number) => [number, `${camel(name)}Error`]);

const module = new WebAssembly.Module(readFileSync(program));
assert.deepEqual(WebAssembly.Module.imports(module), []);
const library = new WebAssembly.Instance(module).exports;
const functions = Object.keys(library).filter(name => library[name] instanceof Function);
assert.deepEqual(functions.sort(), [...header.matchAll(/^\w+ (cmap_\w+)\(/gm)].map(([, name]) => name).sort());

// What the caller adds to the memory is the caller's: the library's allocator uses only what it has added itself.
const page = library.memory.grow(1) * 65536;
const [OUTPUT, CHECK_OUT, CONNECTION, WORDS, TEXT] = [0, 128, 152, 176, 192].map(offset => page + offset);
const SIZE = 112;
const bytes = (from, length) => Buffer.from(library.memory.buffer, from, length);
const put = (place, ...contents) => (Buffer.from(...contents).copy(bytes(place, 1024)), place);

// An event as the files have them, and whether it is as expected: 42 stands for anything.
function event({ kind, reason, flags, number, nanos, text }) {
  const reasons = kind === C.EVENT_CONNECTION_CLOSED ? CLOSED : FAILED;
  const event = { type: EVENTS[kind], address: 'db.example:27017', connectionId: number, duration: nanos, reason: reasons[reason] };
  if (kind === C.EVENT_POOL_CREATED) event.options = JSON.parse(text);
  if (kind === C.EVENT_POOL_CLEARED) event.interruptInUseConnections = (flags & C.FLAG_INTERRUPT) !== 0;
  return event;
}
const matches = (expected, actual) => expected instanceof Object
  ? Object.entries(expected).every(([key, value]) => actual?.[key] !== undefined && matches(value, actual[key]))
  : [42, '42', actual].includes(expected);

// One test while it runs.
class Session {
  constructor(test, latency) {
    Object.assign(this, { test, latency, now: 0n, events: [], hellos: [], held: new Map(), answers: new Map(), labels: {} });
    const { appName, backgroundThreadIntervalMS: maintenanceMS, ...options } = test.poolOptions ?? {};
    this.failures = test.failPoint ? test.failPoint.mode.times ?? Infinity : 0;
    this.threads = { '': { name: '', steps: [...test.operations], isStarted: true } };
    const [address, text] = ['db.example:27017', JSON.stringify({ ...options, maintenanceMS })];
    put(TEXT, address + text);
    const places = [TEXT, address.length, TEXT + address.length, text.length, 0n, WORDS, OUTPUT, SIZE];
    assert.equal(library.cmap_pool_new(...places), C.OK, bytes(OUTPUT, SIZE).toString());
    this.pool = bytes(WORDS, 4).readUInt32LE();
    this.drain();
  }

  // Calls of the library.
  call(name, ...rest) {
    assert.equal(library[`cmap_pool_${name}`](this.pool, ...rest), C.OK, `cmap_pool_${name} was refused`);
  }
  // One whose last argument is an output.
  output(name, ...rest) {
    bytes(OUTPUT, 4).writeUInt32LE(SIZE);
    this.call(name, ...rest, OUTPUT);
    const own = bytes(OUTPUT, SIZE);
    const [kind, reason, flags, text, length] = [4, 8, 16, 104, 108].map(place => own.readUInt32LE(place));
    const [number, socket, nanos] = [80, 88, 96].map(place => own.readBigUInt64LE(place));
    const [connection, checkOut] = [32, 56].map(place => own.toString('hex', place, place + 24));
    return { kind, reason, flags, connection, checkOut, number: Number(number), socket, nanos, text: bytes(text, length).toString() };
  }
  timeout() {
    this.call('poll_timeout', WORDS, WORDS + 8);
    return bytes(WORDS, 8).readBigUInt64LE();
  }

  run() {
    while (!this.isOver('')) assert.ok(this.advance(), 'every thread waits, and nothing will happen');
    const { error, ignore = [], events } = this.test;
    const { type, message = '' } = this.threads[''].error ?? {};
    assert.ok(type === error?.type && message.startsWith(error?.message ?? ''), `${type}: ${message}`);
    const actual = this.events.filter(event => !ignore.includes(event.type));
    events.forEach((expected, place) => assert.ok(matches(expected, actual[place]), `no ${JSON.stringify(expected)} in place ${place}`));
    this.end();
  }

  thread(name) { return (this.threads[name] ??= { name, steps: [] }); }
  isOver(name) {
    const { isStarted, error, wait, steps } = this.thread(name);
    return isStarted && (error || (!wait && !steps.length));
  }

  // Lets a thread go on, the main one last, or the next thing happen.
  advance() {
    const threads = Object.keys(this.threads).sort().map(name => this.threads[name]);
    const atWork = threads.findLast(({ isStarted, error, wait, steps }) => isStarted && !error && !wait && steps.length);
    if (atWork) {
      const step = atWork.steps.shift();
      if ((step.thread ?? atWork.name) !== atWork.name) this.thread(step.thread).steps.push(step);
      else [atWork.wait] = [this[step.name](step), this.drain()];
      return true;
    }
    for (const thread of threads) {
      const outcome = thread.wait?.outcome();
      if (outcome) return Object.assign(thread, { wait: undefined, error: outcome.error });
    }
    return this.passTime();
  }

  passTime() {
    const limits = Object.values(this.threads).map(({ wait }) => wait?.until ?? NEVER);
    const timeout = this.timeout();
    const next = [timeout, this.hellos[0]?.at ?? NEVER, ...limits].reduce((one, other) => (other < one ? other : one));
    if (next === NEVER) return false;
    if (next > this.now) this.now = next;
    if (this.hellos[0]?.at <= this.now) this.hellos.shift().end();
    else if (timeout <= this.now) this.call('handle_timeout', this.now);
    this.drain();
    return true;
  }

  // The operations. They return what their thread waits for.
  start({ target }) { this.thread(target).isStarted = true; }
  ready() { this.call('ready', this.now); }
  close() { this.call('close', this.now); }
  clear({ interruptInUseConnections }) { this.call('clear', this.now, 0, interruptInUseConnections ? 1 : 0, TEXT, 0); }
  checkIn({ connection }) { this.giveBack(this.labels[connection]); }
  wait({ ms }) { return this.until(ms, () => false, {}); }
  waitForThread({ target }) { return { outcome: () => this.isOver(target) && { error: this.threads[target].error } }; }
  waitForEvent({ event, count, timeout = 10_000 }) {
    const occurred = () => this.events.filter(({ type }) => type === event).length >= count;
    return this.until(timeout, occurred, { error: { type: `no ${event}` } });
  }
  checkOut({ label }) {
    this.take(this.output('check_out', this.now, NEVER, 0, CHECK_OUT));
    const checkOut = bytes(CHECK_OUT, 24).toString('hex');
    return { outcome: () => this.outcomeOf(this.answers.get(checkOut), label) };
  }
  until(ms, isOver, late) {
    const until = this.now + BigInt(ms) * MILLISECOND;
    return { until, outcome: () => (isOver() ? {} : this.now >= until && late) };
  }
  outcomeOf(answer, label) {
    if (label && answer) this.labels[label] = answer;
    return answer && { error: answer.kind === C.FAIL ? { type: ERRORS[answer.reason], message: answer.text } : undefined };
  }

  giveBack({ checkOut, connection, socket }) {
    this.held.delete(checkOut);
    const handles = [put(CHECK_OUT, checkOut, 'hex'), put(CONNECTION, connection, 'hex')];
    this.take(this.output('check_in', this.now, ...handles, socket, C.CONDITION_USABLE));
    this.drain();
  }
  drain() { for (let output; (output = this.output('poll_output')).kind !== C.NOTHING;) this.take(output); }
  take(output) {
    const { kind, connection, checkOut } = output;
    if (kind === C.CONNECT) this.connect(output);
    if (kind === C.CHECK) this.call('checked', this.now, put(CONNECTION, connection, 'hex'), 1);
    if (kind === C.DELIVER) this.held.set(checkOut, output);
    if (kind === C.DELIVER || kind === C.FAIL) this.answers.set(checkOut, output);
    if (kind === C.INTERRUPT) this.hellos = this.hellos.filter(hello => hello.connection !== connection);
    if (kind > 100) this.events.push(event(output));
  }
  connect({ connection, number }) {
    const { blockTimeMS = 0, errorCode } = this.failures-- > 0 ? this.test.failPoint.data : {};
    const failure = [C.PHASE_HELLO, C.FAULT_SERVER, errorCode, C.REACTION_BY_RULES, TEXT, 0];
    const [name, ...rest] = errorCode ? ['establish_failed', ...failure] : ['established', BigInt(number)];
    const end = () => this.call(name, this.now, put(CONNECTION, connection, 'hex'), ...rest);
    this.hellos.push({ at: this.now + this.latency + BigInt(blockTimeMS) * MILLISECOND, connection, end });
    this.hellos.sort((one, other) => Number(one.at - other.at));
  }

  // Nothing is left when all has come back.
  end() {
    this.threads = {};
    this.close();
    this.drain();
    this.held.forEach(held => this.giveBack(held));
    while (this.hellos.length) this.passTime();
    this.call('statistics', this.now, WORDS, WORDS + 4);
    const { created, closed, counts } = JSON.parse(bytes(bytes(WORDS, 4).readUInt32LE(), bytes(WORDS + 4, 4).readUInt32LE()).toString());
    assert.equal(created, Object.values(closed).reduce((one, other) => one + other));
    assert.ok(Object.values(counts).every(count => count === 0) && this.timeout() === NEVER, 'something is left');
    library.cmap_pool_free(this.pool);
  }
}

const runs = readdirSync(folder).flatMap(name => [0n, MILLISECOND].map(latency => [name, latency]));
const passed = runs.filter(([name, latency]) => {
  try {
    return new Session(JSON.parse(readFileSync(`${folder}/${name}`, 'utf8')), latency).run() ?? true;
  } catch (error) {
    console.error(`${name} with a latency of ${latency} ns: ${error.message}`);
  }
});
console.log(`${runs.length / 2} official files, each twice: ${passed.length} passed, ${runs.length - passed.length} failed`);
process.exitCode = runs.length >= 66 && passed.length === runs.length ? 0 : 1;
