// Runs the checks that the input file names, and prints a line for each.
//
// Usage: main.js INPUT. The README one folder up describes the input, the lines and the exit status.

import { readFileSync } from 'node:fs';

import * as single from './checks.js';
import { Servers, Skip } from './connect.js';
import * as sets from './sets.js';

const input = JSON.parse(readFileSync(process.argv[2], 'utf8'));
const servers = new Servers(input.servers);
const checks = { ...single, ...sets };

for (const name of input.checks) {
  // wrongPassword is the check wrong-password.
  const check = checks[name.replace(/-(\w)/g, (_, letter) => letter.toUpperCase())];
  try {
    if (check === undefined) throw new Error('this program has no such check');
    await check(servers);
    console.log(`PASS ${name}`);
  } catch (error) {
    const failed = !(error instanceof Skip);
    const reason = (failed ? String(error) : error.message).replace(/\s+/g, ' ');
    console.log(`${failed ? 'FAIL' : 'SKIP'} ${name}: ${reason}`);
    if (failed) process.exitCode = 1;
  } finally {
    await servers.closeClients();
  }
}
