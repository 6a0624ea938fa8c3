#!/usr/bin/env node
// A worker of the pool in JavaScript, with node-postgres (pg).
//
//   examples/worker.js NAME          the database: PGHOST, PGDATABASE, ... as for psql
const { Client } = require('pg');
const { randomUUID } = require('crypto');

const name = process.argv[2];
const owner = randomUUID(); // our identity, whatever connection we use
let stop = false;
for (const signal of ['SIGTERM', 'SIGINT']) process.on(signal, () => { stop = true; });

const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

// Terms come as strings, which is right for a bigint.
const one = async (client, sql, ...args) => Object.values((await client.query(sql, args)).rows[0])[0];

// Works for as long as we lead.
async function lead(client, term) {
  console.log(`${name} leads, term ${term}`);
  let renewed = Date.now();
  while (!stop) {
    // From the fence to the commit nobody else can be elected.
    await client.query('BEGIN');
    await client.query("SELECT fence_leader('pool', $1)", [term]);
    await client.query('INSERT INTO work SELECT coalesce(max(number), 0) + 1, $1, $2 FROM work', [term, name]);
    await client.query('COMMIT');
    if (Date.now() - renewed > 1000) {
      if ((await one(client, "SELECT renew_leadership('pool', $1)", term)) === null) {
        console.log(`${name} leads no more`);
        return;
      }
      renewed = Date.now();
    }
    await sleep(100);
  }
  // The next in order leads at once, and need not wait for our TTL.
  await one(client, "SELECT resign('pool', $1)", term);
}

async function work() {
  const client = new Client();
  client.on('error', () => {}); // the next query says so
  await client.connect();
  try {
    while (!stop) {
      // Waits for a second at most, so that a signal is served.
      // The same owner gets the term that it has already.
      const term = await one(client,
        "SELECT campaign('pool', $1, ttl => '3 s', wait => '1 s', owner => $2)", name, owner);
      if (term !== null) await lead(client, term);
    }
  } finally {
    await client.end().catch(() => {}); // an open transaction is rolled back
  }
}

(async () => {
  while (!stop) {
    try {
      await work();
    } catch (error) {
      // LE001: somebody else leads. Or the server is gone: another one may have taken over.
      console.log(`${name}: ${error.code || error.message}`);
      await sleep(500);
    }
  }
  console.log(`${name} leaves`);
})();
