// Writers that go on while the hub before their deployment is upgraded, until standard input ends. Prints what they have met, as JSON.
//
// Usage: writers.js URI WRITERS COLLECTION. Each writer inserts documents `WRITER-NUMBER`, changes each by `updateMany`, and reads it.

import { setTimeout as sleep } from 'node:timers/promises';

import { MongoClient } from 'mongodb';

const REST = 20;

const [uri, count, name] = process.argv.slice(2);
const client = new MongoClient(uri, { maxPoolSize: Number(count) });
const collection = client.db('upgrades').collection(name);
const acknowledged = { insert: 0, update: 0, find: 0 };
const errors = {};
let ended = false;

async function write(writer) {
  for (let number = 1; !ended; number++) {
    const document = { _id: `${writer}-${number}` };
    const steps = {
      insert: () => collection.insertOne({ ...document }),
      update: () => collection.updateMany(document, { $inc: { times: 1 } }),
      find: () => collection.findOne(document),
    };
    for (const [step, run] of Object.entries(steps)) {
      try {
        await run();
        acknowledged[step] += 1;
      } catch (error) {
        const text = `${step}: ${error}`.slice(0, 200);
        errors[text] = (errors[text] ?? 0) + 1;
      }
    }
    await sleep(REST);
  }
}

process.stdin.resume();
process.stdin.on('end', () => (ended = true));
await Promise.all(Array.from({ length: Number(count) }, (_, writer) => write(writer)));
await client.close();
console.log(JSON.stringify({ acknowledged, errors }));
