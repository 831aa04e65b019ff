// The checks of a replica set with several members. Each fails by throwing.

import { ReadPreference } from 'mongodb';

import { expect } from './connect.js';

// The tags of the members.
const NUMBERS = ['0', '1', '2'];
// The name that leads to the members, at their DNS server.
const SRV_NAME = 'members.cmap.test';
const EVERYWHERE = { writeConcern: { w: 3 } };

/** A client that is told of one member, and has to find the others. */
const clientOfSet = (servers) => servers.client('members', { replicaSet: 'rs0', serverSelectionTimeoutMS: 10_000 });

const hello = (client, options) => client.db('admin').command({ hello: 1 }, options);

/** An empty collection, whose documents all members have. */
async function fresh(client, name) {
  const collection = client.db('test').collection(name, EVERYWHERE);
  await collection.drop();
  return collection;
}

const ids = async (collection) => (await collection.find().toArray()).map((document) => document._id);

export async function setSecondaryReads(servers) {
  const client = clientOfSet(servers);
  await (await fresh(client, 'secondaryReads')).insertOne({ _id: 1 });
  const primary = (await hello(client)).tags.number;
  for (const number of NUMBERS.filter((number) => number !== primary)) {
    const readPreference = new ReadPreference('secondary', [{ number }]);
    const { secondary, tags } = await hello(client, { readPreference });
    expect([secondary, tags], [true, { number }], 'the member with the tag');
    const found = await client.db('test').collection('secondaryReads', { readPreference }).findOne();
    expect(found, { _id: 1 }, 'document of the secondary');
  }
}

export async function setStepDown(servers) {
  const client = clientOfSet(servers);
  const collection = await fresh(client, 'stepDown');
  await collection.insertOne({ _id: 1 });
  const before = (await hello(client)).me;
  await client.db('admin').command({ replSetStepDown: 2 });
  // The driver finds the next primary, and sends again what the old one refuses.
  await collection.insertOne({ _id: 2 });
  expect((await hello(client)).me !== before, true, 'another member is the primary');
  expect(await ids(collection), [1, 2], 'documents');
}

export async function setKill(servers) {
  const client = clientOfSet(servers);
  await (await fresh(client, 'kill')).insertOne({ _id: 1 });
  const before = (await hello(client)).me;
  await client.db('admin').command({ testDeployment: 'kill', member: before });
  await client.db('test').collection('kill', { writeConcern: { w: 'majority' } }).insertOne({ _id: 2 });
  expect((await hello(client)).me !== before, true, 'another member is the primary');

  await client.db('admin').command({ testDeployment: 'restart', member: before });
  // All members have it once the one that was killed has caught up.
  const collection = client.db('test').collection('kill', EVERYWHERE);
  await collection.insertOne({ _id: 3 });
  expect(await ids(collection), [1, 2, 3], 'documents');
}

export async function setChangeStream(servers) {
  const client = clientOfSet(servers);
  const collection = await fresh(client, 'changes');
  const stream = collection.watch();
  // The stream begins with its first step.
  expect(await stream.tryNext(), null, 'no change');
  await collection.insertOne({ _id: 1 });
  expect((await stream.next()).documentKey, { _id: 1 }, 'change');
  // The stream goes on over another connection.
  const data = { failCommands: ['getMore'], closeConnection: true };
  await client.db('admin').command({ configureFailPoint: 'failCommand', mode: { times: 1 }, data });
  await collection.bulkWrite([
    { insertOne: { document: { _id: 2 } } },
    { updateOne: { filter: { _id: 1 }, update: { $set: { x: 1 } } } },
    { deleteOne: { filter: { _id: 1 } } },
  ]);
  for (const kind of ['insert', 'update', 'delete']) {
    expect((await stream.next()).operationType, kind, 'change of the bulk write');
  }
  await stream.close();
}

export async function setSrv(servers) {
  const client = servers.clientByDns('members', SRV_NAME);
  const found = new Promise((resolve) => {
    client.on('topologyDescriptionChanged', ({ newDescription }) => {
      if (newDescription.servers.size === NUMBERS.length) resolve(newDescription.setName);
    });
  });
  const collection = await fresh(client, 'srv');
  await collection.insertOne({ _id: 1 });
  expect(await ids(collection), [1], 'documents');
  // The TXT record names the set, whose members name themselves.
  expect(await found, 'rs0', 'set');
}
