// What the checks have in common: connection strings, fail points, what a driver reports, and what is expected.

import assert from 'node:assert/strict';
import dns from 'node:dns';

import { MongoClient } from 'mongodb';

/** The driver does not have what the check is about. */
export class Skip extends Error {}

/** The servers of the input, by name. */
export class Servers {
  #servers;
  #clients = [];

  constructor(servers) {
    this.#servers = servers;
  }

  /** A client of the server, by a connection string with these options. It is closed when the check ends. */
  client(server, { user, password, ...options } = {}) {
    const login = user ? `${encodeURIComponent(user)}:${encodeURIComponent(password)}@` : '';
    const query = new URLSearchParams({ serverSelectionTimeoutMS: 5000, ...this.#servers[server].options, ...options });
    // A space is %20 in a connection string, and a plus sign is one.
    const uri = `mongodb://${login}${this.#servers[server].address}/?${String(query).replaceAll('+', '%20')}`;
    const client = new MongoClient(uri, { monitorCommands: true });
    this.#clients.push(client);
    return client;
  }

  /** A client of the server that this name leads to. From then on this program looks up names at the server's DNS server. */
  clientByDns(server, name) {
    dns.setServers([this.#servers[server].dns]);
    const uri = `mongodb+srv://${name}/?tls=false&serverSelectionTimeoutMS=10000`;
    const client = new MongoClient(uri, { lookup });
    this.#clients.push(client);
    return client;
  }

  /** The options of a client that trusts `ca` and shows `certificate`. */
  tls({ server = 'tls', certificate, ca = 'ca.pem' } = {}) {
    const folder = this.#servers[server].certificates;
    const options = { tls: true, tlsCAFile: `${folder}/${ca}` };
    return certificate ? { ...options, tlsCertificateKeyFile: `${folder}/${certificate}` } : options;
  }

  async closeClients() {
    await Promise.all(this.#clients.splice(0).map((client) => client.close()));
  }
}

/** Sockets ask the operating system, unless they are told otherwise. */
function lookup(host, options, callback) {
  dns.resolve4(host, (error, addresses) => {
    if (error) return callback(error);
    const found = addresses.map((address) => ({ address, family: 4 }));
    return options.all ? callback(null, found) : callback(null, found[0].address, 4);
  });
}

/** The server has this fail point while `action` runs. */
export async function withFailPoint(client, mode, data, action) {
  await client.db('admin').command({ configureFailPoint: 'failCommand', mode, data });
  try {
    await action();
  } finally {
    await client.db('admin').command({ configureFailPoint: 'failCommand', mode: 'off' });
  }
}

/** The commands that a client sends from now on. */
export function commandsOf(client) {
  const commands = [];
  client.on('commandStarted', (event) => commands.push(event));
  return { all: commands, of: (name) => commands.filter((event) => event.commandName === name) };
}

/** An event of this name for which `matches` holds; fails if none comes within `timeout` milliseconds. */
export function eventOf(client, name, timeout, matches) {
  return new Promise((resolve, reject) => {
    const listener = (event) => {
      if (!matches(event)) return;
      clearTimeout(timer);
      client.off(name, listener);
      resolve(event);
    };
    const timer = setTimeout(() => {
      client.off(name, listener);
      reject(new Error(`no such ${name} within ${timeout} ms: ${matches}`));
    }, timeout);
    client.on(name, listener);
  });
}

export function expect(actual, expected, what) {
  assert.deepEqual(actual, expected, `${what}: ${JSON.stringify(actual)} instead of ${JSON.stringify(expected)}`);
}

/** `action` fails with an error for which all of `expected` hold: its class, its code, a part of its message. */
export async function expectError(action, { kind = Error, code, text = '' } = {}) {
  const error = await Promise.resolve().then(action).then(
    () => assert.fail(`no ${kind.name} came`),
    (reason) => reason,
  );
  if (!(error instanceof kind)) throw error;
  if (code !== undefined) expect(error.code, code, `error code of ${error}`);
  if (!String(error).toLowerCase().includes(text.toLowerCase())) {
    assert.fail(`the error does not say ${text}: ${error}`);
  }
  return error;
}
