// A worker of the pool, with node-postgres: node pool.js NAME [CONNECTION-STRING...]
// The driver knows one host only: with a standby, give a connection string for each; they are tried in turn.
'use strict'
const { Client } = require('pg')
const { randomUUID } = require('crypto')
const { setTimeout: sleep } = require('timers/promises')

const [name, ...servers] = process.argv.slice(2)
const owner = randomUUID() // new for each process: a restarted worker is a different owner
let stopping = false
for (const signal of ['SIGTERM', 'SIGINT']) process.on(signal, () => { stopping = true })

const say = text => console.log(`${name}: ${text}`)

// Numbers of 8 bytes, such as a term, come as text.
async function ask (db, query, ...args) {
  return Object.values((await db.query(query, args)).rows[0])[0]
}

// The fence comes first: all later writes of the transaction are the leader's, or fail.
async function work (db, term) {
  await db.query('BEGIN')
  try {
    await db.query("SELECT fence_leader('pool', $1)", [term])
    await db.query('UPDATE work SET done = done + 1, term = $1, worker = $2 WHERE id = 1', [term, name])
    await db.query('COMMIT')
  } catch (error) {
    await db.query('ROLLBACK')
    throw error
  }
}

// Works until told to stop, or until the leadership is lost.
async function lead (db, term) {
  let renewed = -Infinity // the time of the election during the wait is unknown, so renew immediately
  while (!stopping) {
    if (performance.now() - renewed > 1000) { // a third of the TTL
      renewed = performance.now()
      if (await ask(db, "SELECT renew_leadership('pool', $1)", term) === null) return say('lost: the renewal came too late')
    }
    await work(db, term)
    await sleep(200)
  }
  await ask(db, "SELECT resign('pool', $1)", term) // the next one leads immediately, not when the TTL ends
  say('resigned')
}

async function run (db) {
  await db.connect()
  while (!stopping) {
    try {
      // Waits a few seconds at a time, so that it can be stopped. A current leader gets the same term again.
      const term = await ask(db, "SELECT campaign('pool', $1, ttl => '3 s', wait => '3 s', owner => $2)", name, owner)
      if (term === null) continue
      say(`leads, term ${term}`)
      await lead(db, term)
    } catch (error) {
      if (error.code !== 'LE001') throw error
      say(`lost: ${error.message}`) // nothing was written; campaign again
    }
  }
}

async function main () {
  for (let i = 0; !stopping; i++) {
    const db = new Client({
      connectionString: servers[i % servers.length],
      connectionTimeoutMillis: 2000,
      query_timeout: 10000, // for a silent server; longer than any wait
      idle_in_transaction_session_timeout: 5000
    })
    db.on('error', () => {}) // the next query fails with the reason
    try {
      await run(db)
    } catch (error) {
      say(`connects again after: ${error.message}`)
      await sleep(1000)
    }
    db.end().catch(() => {})
  }
}

main()
