// The checks, in the order of the README's list. Each connects anew, and fails by throwing.

import { performance } from 'node:perf_hooks';

import {
  BSON,
  MongoAPIError,
  MongoError,
  MongoNetworkError,
  MongoServerError,
  MongoServerSelectionError,
} from 'mongodb';

import { Skip, commandsOf, eventOf, expect, expectError, withFailPoint } from './connect.js';

const USER = { user: 'user', password: 'secret' };
const SUBJECT = 'CN=client,OU=cmap,O=cmap';
// The longest document that a server takes.
const LARGEST = 16 * 1024 * 1024;
// A client that is expected not to connect does not try for long.
const SOON = { serverSelectionTimeoutMS: 2000 };

/** The numbers from 0 up. */
const numbers = (count) => [...Array(count).keys()];
const ping = (client) => client.db('admin').command({ ping: 1 });

/** The server knows who it is, and lets in whom it knows. */
async function expectLogin(client, user, db) {
  const status = await client.db('admin').command({ connectionStatus: 1 });
  expect(status.authInfo.authenticatedUsers, [{ user, db }], 'authenticated users');
  if (db !== 'users') await client.db('test').collection('logins').insertOne({ user });
}

// Authentication.

export async function scramSha1(servers) {
  await expectLogin(servers.client('auth', { ...USER, authMechanism: 'SCRAM-SHA-1' }), 'user', 'admin');
}

export async function scramSha256(servers) {
  await expectLogin(servers.client('auth', { ...USER, authMechanism: 'SCRAM-SHA-256' }), 'user', 'admin');
}

export async function scramSha256Saslprep(servers) {
  // The server was told I, soft hyphen, X; SASLprep makes IX of it, and of the Roman numeral nine.
  for (const password of ['IX', '\u2168']) {
    const client = servers.client('auth', { user: 'sasl', password, authMechanism: 'SCRAM-SHA-256' });
    await expectLogin(client, 'sasl', 'admin');
  }
}

export async function scramDefault(servers) {
  await expectLogin(servers.client('auth', USER), 'user', 'admin');
}

export async function plain(servers) {
  const options = { ...USER, ...servers.tls(), authMechanism: 'PLAIN', authSource: '$external' };
  await expectLogin(servers.client('tls', options), 'user', '$external');
}

export async function x509(servers) {
  const options = { ...servers.tls({ certificate: 'client.pem' }), authMechanism: 'MONGODB-X509' };
  await expectLogin(servers.client('tls', options), SUBJECT, '$external');
}

export async function encryptedClientKey(servers) {
  const options = { ...servers.tls({ certificate: 'client-encrypted.pem' }), authMechanism: 'MONGODB-X509', ...SOON };
  await expectLogin(servers.client('tls', { ...options, tlsCertificateKeyFilePassword: 'secret' }), SUBJECT, '$external');
  const wrong = servers.client('tls', { ...options, tlsCertificateKeyFilePassword: 'wrong' });
  await expectError(() => ping(wrong), { text: 'decrypt' });
}

export async function wrongPassword(servers) {
  for (const authMechanism of ['SCRAM-SHA-1', 'SCRAM-SHA-256']) {
    const client = servers.client('auth', { user: 'user', password: 'wrong', authMechanism });
    await expectError(() => ping(client), { kind: MongoServerError, code: 18 });
  }
  const stranger = servers.client('auth', { user: 'nobody', password: 'secret' });
  await expectError(() => ping(stranger), { kind: MongoServerError, code: 18 });
  const nobody = servers.client('auth');
  await expectError(() => nobody.db('test').collection('logins').insertOne({}), { kind: MongoServerError, code: 13 });
}

export async function unknownX509User(servers) {
  const options = { ...servers.tls({ certificate: 'stranger.pem' }), authMechanism: 'MONGODB-X509' };
  await expectError(() => ping(servers.client('tls', options)), { kind: MongoServerError });
}

// TLS.

export async function wrongCertificate(servers) {
  const options = servers.tls({ certificate: 'client.pem' });
  await ping(servers.client('tls', options));
  const distrustful = servers.client('tls', { ...servers.tls({ ca: 'other-ca.pem' }), ...SOON });
  await expectError(() => ping(distrustful), { kind: MongoServerSelectionError, text: 'certificate' });
  const other = { ...servers.tls({ certificate: 'other-client.pem' }), authMechanism: 'MONGODB-X509', ...SOON };
  const distrusted = servers.client('tls', other);
  await expectError(() => ping(distrusted), { kind: MongoServerSelectionError });
}

export async function wrongHostName(servers) {
  const options = { ...servers.tls({ server: 'wrong-host' }), ...SOON };
  const strict = servers.client('wrong-host', options);
  await expectError(() => ping(strict), { kind: MongoServerSelectionError, text: "does not match certificate's altnames" });
  await ping(servers.client('wrong-host', { ...options, tlsAllowInvalidHostnames: true }));
}

// Compression.

async function expectCompression(servers, compressor) {
  const observer = servers.client('open');
  const client = servers.client('open', { compressors: compressor });
  /** For each compressor, how many bytes came and left compressed. */
  const count = async () => {
    const { network } = await observer.db('admin').command({ serverStatus: 1 });
    const of = ([name, { compressor, decompressor }]) => [name, [decompressor.bytesIn, compressor.bytesOut].map(Number)];
    return Object.fromEntries(Object.entries(network.compression).map(of));
  };
  const before = await count();
  const collection = client.db('test').collection(`compressed-${compressor}`);
  await collection.drop();
  const document = { _id: 1, text: 'a'.repeat(100_000) };
  await collection.insertOne(document);
  expect(await collection.findOne(), document, 'document');
  const after = await count();
  expect(compressor in after, true, `the server counts for ${compressor}`);
  for (const [name, counts] of Object.entries(after)) {
    const grew = counts.every((bytes, direction) => bytes > before[name][direction]);
    expect(grew, name === compressor, `use of ${name}`);
  }
}

export async function compressorSnappy(servers) {
  await expectCompression(servers, 'snappy');
}

export async function compressorZlib(servers) {
  await expectCompression(servers, 'zlib');
}

export async function compressorZstd() {
  throw new Skip('the package @mongodb-js/zstd downloads a binary when it is installed');
}

// Commands.

export { pingCheck as ping };
async function pingCheck(servers) {
  expect((await ping(servers.client('open'))).ok, 1, 'ok');
}

export async function crud(servers) {
  const client = servers.client('open');
  const database = client.db('crud');
  await database.dropDatabase();
  const things = database.collection('things');
  expect((await things.insertOne({ _id: 1, n: 1 })).insertedId, 1, 'inserted id');
  expect((await things.insertMany([{ _id: 2, n: 2 }, { _id: 3, n: 2 }])).insertedCount, 2, 'inserted');
  await expectError(() => things.insertOne({ _id: 1 }), { kind: MongoServerError, code: 11000 });
  const found = await things.find({ n: 2 }).sort({ _id: -1 }).toArray();
  expect(found, [{ _id: 3, n: 2 }, { _id: 2, n: 2 }], 'found');
  const updated = await things.updateMany({ n: 2 }, { $set: { n: 5 } });
  expect([updated.matchedCount, updated.modifiedCount], [2, 2], 'matched and modified');
  const upserted = await things.updateOne({ _id: 9 }, { $set: { n: 9 } }, { upsert: true });
  expect(upserted.upsertedId, 9, 'upserted id');
  const changed = await things.findOneAndUpdate({ _id: 1 }, { $inc: { n: 10 } }, { returnDocument: 'after' });
  expect(changed, { _id: 1, n: 11 }, 'found and modified');
  const aggregated = await things.aggregate([{ $match: { n: 5 } }, { $limit: 1 }]).toArray();
  expect(aggregated, [{ _id: 2, n: 5 }], 'aggregated');
  expect((await things.distinct('n')).sort((a, b) => a - b), [5, 9, 11], 'distinct');
  expect(await things.estimatedDocumentCount(), 4, 'count');
  expect((await things.deleteOne({ n: 5 })).deletedCount, 1, 'deleted');
  expect((await database.listCollections().toArray()).map(({ name }) => name), ['things'], 'collections');
  const { databases } = await client.db().admin().listDatabases();
  expect(databases.some(({ name }) => name === 'crud'), true, 'database is listed');
  await things.drop();
  expect(await things.findOne(), null, 'document of a dropped collection');
}

export async function createUser(servers) {
  const users = servers.client('auth', USER).db('users');
  await users.command({ dropAllUsersFromDatabase: 1 });
  const roles = [{ role: 'readWrite', db: 'users' }];
  await users.command({ createUser: 'new', pwd: 'p\u00e4ss', roles, mechanisms: ['SCRAM-SHA-256'] });
  await expectLogin(servers.client('auth', { user: 'new', password: 'p\u00e4ss', authSource: 'users' }), 'new', 'users');
}

export async function unknownCommand(servers) {
  const admin = servers.client('open').db('admin');
  const expected = { kind: MongoServerError, code: 59, text: "no such command: 'noSuchCommand'" };
  await expectError(() => admin.command({ noSuchCommand: 1 }), expected);
}

export async function unacknowledgedWrite(servers) {
  // On a single connection the read follows the write.
  const collection = servers.client('open', { maxPoolSize: 1 }).db('test').collection('unacknowledged');
  await collection.drop();
  const result = await collection.insertOne({ _id: 1 }, { writeConcern: { w: 0 } });
  expect(result.acknowledged, false, 'acknowledged');
  expect(await collection.findOne(), { _id: 1 }, 'document');
}

/** A document of so many bytes. */
function documentOf(length) {
  const rest = length - BSON.calculateObjectSize({ _id: 1, data: Buffer.alloc(0) });
  const document = { _id: 1, data: Buffer.from(Uint8Array.from({ length: rest }, (_, n) => n % 251)) };
  expect(BSON.calculateObjectSize(document), length, 'length');
  return document;
}

export async function largeDocument(servers) {
  const collection = servers.client('open').db('test').collection('large');
  await collection.drop();
  const largest = documentOf(LARGEST);
  await collection.insertOne(largest);
  const found = await collection.findOne({}, { promoteBuffers: true });
  expect(largest.data.equals(found.data), true, 'the same bytes came back');
  await collection.drop();
}

export async function tooLargeDocument(servers) {
  const client = servers.client('open');
  const collection = client.db('test').collection('large');
  await expectError(() => collection.insertOne(documentOf(LARGEST + 1)), { kind: MongoError });
  await ping(client);
}

export async function largeBatch(servers) {
  const client = servers.client('open');
  const commands = commandsOf(client);
  const collection = client.db('test').collection('batch');
  await collection.drop();
  await collection.insertMany(numbers(100_000).map((_id) => ({ _id })));
  // This driver puts one document less into a command than the server takes.
  expect(commands.of('insert').length, 2, 'insert commands');
  const ids = (await collection.find().toArray()).map(({ _id }) => _id);
  expect(ids.length === 100_000 && ids.every((id, n) => id === n), true, 'all came back in order');
  await collection.drop();
}

// Cursors.

export async function cursorGetMores(servers) {
  // A batch filled exactly leaves the cursor open (SRV-5).
  for (const [documents, batchSize, getMores] of [[3, 1, 3], [5, 2, 2], [4, 2, 2], [3, 5, 0]]) {
    const client = servers.client('open');
    const commands = commandsOf(client);
    const collection = client.db('test').collection('cursors');
    await collection.drop();
    await collection.insertMany(numbers(documents).map((_id) => ({ _id })));
    const ids = (await collection.find({}, { batchSize }).toArray()).map(({ _id }) => _id);
    expect(ids, numbers(documents), 'documents');
    expect(commands.of('getMore').length, getMores, `getMores for ${documents} documents by ${batchSize}`);
  }
}

export async function killCursors(servers) {
  const client = servers.client('open');
  const commands = commandsOf(client);
  const database = client.db('test');
  const collection = database.collection('killed');
  await collection.drop();
  await collection.insertMany(numbers(10).map((_id) => ({ _id })));
  const cursor = collection.find({}, { batchSize: 2 });
  for (const _id of numbers(3)) expect(await cursor.next(), { _id }, 'one of the first documents, in two batches');
  const { id } = cursor;
  await cursor.close();
  expect(commands.of('killCursors').map((event) => event.command.cursors.map(String)), [[String(id)]], 'killed cursors');
  await expectError(() => database.command({ getMore: id, collection: 'killed' }), { kind: MongoServerError, code: 43 });
}

// Fail points.

export async function failPointErrorCode(servers) {
  const client = servers.client('open');
  await withFailPoint(client, { times: 1 }, { failCommands: ['ping'], errorCode: 2 }, async () => {
    await expectError(() => ping(client), { kind: MongoServerError, code: 2, text: 'failpoint' });
    await ping(client);
  });
}

export async function failPointCloseConnection(servers) {
  const client = servers.client('open');
  await withFailPoint(client, { times: 1 }, { failCommands: ['ping'], closeConnection: true }, async () => {
    await expectError(() => ping(client), { kind: MongoNetworkError });
    await ping(client);
  });
}

export async function failPointBlockConnection(servers) {
  const client = servers.client('open');
  const measure = async (command) => {
    const start = performance.now();
    await client.db('admin').command(command);
    return performance.now() - start;
  };
  const data = { failCommands: ['ping'], blockConnection: true, blockTimeMS: 500 };
  await withFailPoint(client, { times: 1 }, data, async () => {
    const [blocked, other] = await Promise.all([measure({ ping: 1 }), measure({ buildInfo: 1 })]);
    // Timers may be a little early.
    expect(blocked > 495, true, `${blocked} ms are half a second`);
    expect(other < blocked, true, 'another connection was not blocked');
  });
}

export async function failPointTimes(servers) {
  const client = servers.client('open');
  const outcomes = async (count) => {
    let outcomes = '';
    for (const _ of numbers(count)) {
      try {
        await ping(client);
        outcomes += '+';
      } catch (error) {
        expect(error.code, 2, 'error code');
        outcomes += '-';
      }
    }
    return outcomes;
  };
  for (const [mode, expected] of [[{ times: 2 }, '--+'], [{ skip: 1 }, '+--'], ['alwaysOn', '---']]) {
    await withFailPoint(client, mode, { failCommands: ['ping'], errorCode: 2 }, async () => {
      expect(await outcomes(3), expected, `outcomes in the mode ${JSON.stringify(mode)}`);
    });
    expect(await outcomes(1), '+', 'outcome when it is off');
  }
}

export async function failPointAppName(servers) {
  const victim = servers.client('open', { appName: 'victim' });
  const other = servers.client('open', { appName: 'other' });
  await withFailPoint(other, 'alwaysOn', { failCommands: ['ping'], errorCode: 2, appName: 'victim' }, async () => {
    await ping(other);
    await expectError(() => ping(victim), { kind: MongoServerError, code: 2 });
  });
}

export async function errorLabels(servers) {
  const client = servers.client('open');
  const own = { failCommands: ['ping'], errorCode: 2, errorLabels: ['Mine', 'Yours'] };
  await withFailPoint(client, { times: 1 }, own, async () => {
    const error = await expectError(() => ping(client), { kind: MongoServerError });
    expect(['Mine', 'Yours'].filter((label) => error.hasErrorLabel(label)), ['Mine', 'Yours'], 'labels');
  });
  // A replica set labels what a driver may retry (SRV-8): a command with a number. This driver retries once.
  const member = servers.client('replica-set', { replicaSet: 'rs0' });
  await withFailPoint(member, { times: 2 }, { failCommands: ['insert'], errorCode: 262 }, async () => {
    const error = await expectError(() => member.db('test').collection('labels').insertOne({}), { kind: MongoError });
    expect(error.hasErrorLabel('RetryableWriteError'), true, 'RetryableWriteError');
  });
}

// Topologies.

export async function streamingHello(servers) {
  // The server answers at most so late without a change.
  const frequent = servers.client('replica-set', { replicaSet: 'rs0', heartbeatFrequencyMS: 500 });
  await ping(frequent);
  for (const _ of numbers(3)) await eventOf(frequent, 'serverHeartbeatSucceeded', 5000, (event) => event.awaited);

  // A change is told at once, long before the next heartbeat.
  const options = { replicaSet: 'rs0', heartbeatFrequencyMS: 60_000, serverSelectionTimeoutMS: 10_000 };
  const rare = servers.client('replica-set', options);
  await ping(rare);
  const becomes = (type, timeout) =>
    eventOf(rare, 'serverDescriptionChanged', timeout, (event) => event.newDescription.type === type);
  const steppedDown = becomes('RSSecondary', 3000);
  const primaryAgain = steppedDown.then(() => becomes('RSPrimary', 10_000));
  const operator = servers.client('replica-set', { directConnection: true });
  await Promise.all([
    operator.db('admin').command({ replSetStepDown: 1, force: true }),
    primaryAgain,
  ]);
}

export async function replicaSet(servers) {
  const client = servers.client('replica-set', { replicaSet: 'rs0' });
  const topology = eventOf(client, 'topologyDescriptionChanged', 5000, (event) =>
    event.newDescription.type === 'ReplicaSetWithPrimary');
  const [changed] = await Promise.all([topology, ping(client)]);
  expect(changed.newDescription.setName, 'rs0', 'set name');
  const collection = client.db('test').collection('retried');
  await collection.drop();
  await collection.insertOne({ _id: 1, n: 0 });
  const concernError = { code: 262, codeName: 'ExceededTimeLimit', errmsg: 'too late' };
  // The first is not executed before it fails. The second is: the server must know it again by its number.
  for (const [n, failure] of [[1, { errorCode: 262 }], [2, { writeConcernError: concernError }]]) {
    const commands = commandsOf(client);
    const data = { failCommands: ['update'], errorLabels: ['RetryableWriteError'], ...failure };
    await withFailPoint(client, { times: 1 }, data, () => collection.updateOne({ _id: 1 }, { $inc: { n: 1 } }));
    expect((await collection.findOne()).n, n, `executions after ${JSON.stringify(failure)}`);
    const attempts = commands.of('update').map((event) => String(event.command.txnNumber));
    expect([attempts.length, new Set(attempts).size], [2, 1], 'attempts, and numbers of them');
  }
}

export async function loadBalanced(servers) {
  const client = servers.client('load-balanced', { loadBalanced: true });
  const services = new Set();
  client.on('commandSucceeded', ({ serviceId }) => services.add(String(serviceId)));
  const collection = client.db('test').collection('balanced');
  await collection.drop();
  await collection.insertMany(numbers(5).map((_id) => ({ _id })));
  expect((await collection.find({}, { batchSize: 2 }).toArray()).length, 5, 'documents');
  expect([services.size, services.has('undefined')], [1, false], 'services, and whether one was missing');
  const other = servers.client('replica-set', { loadBalanced: true, ...SOON });
  await expectError(() => ping(other), { kind: MongoError, text: 'load balanc' });
}

export async function threads32(servers) {
  const collection = servers.client('open', { maxPoolSize: 32 }).db('test').collection('threads');
  await collection.drop();
  const work = async (thread) => {
    for (const n of numbers(20)) {
      const document = { _id: thread * 100 + n, text: `${thread}-${n}` };
      await collection.insertOne(document);
      expect(await collection.findOne({ _id: document._id }), document, 'document');
    }
  };
  await Promise.all(numbers(32).map(work));
  expect(await collection.estimatedDocumentCount(), 640, 'count');
}

export async function poolEvents(servers) {
  const client = servers.client('open');
  const expected = [
    'connectionPoolCreated',
    'connectionPoolReady',
    'connectionCheckOutStarted',
    'connectionCreated',
    'connectionReady',
    'connectionCheckedOut',
    'connectionCheckedIn',
  ];
  const events = [];
  const others = ['connectionPoolCleared', 'connectionPoolClosed', 'connectionClosed', 'connectionCheckOutFailed'];
  for (const name of [...expected, ...others]) client.on(name, () => events.push(name));
  await ping(client);
  expect(events, expected, 'events');
}
