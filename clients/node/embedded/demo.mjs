// node embedded/demo.mjs: a lock and an election whose workers are killed, and a late write that a fence rejects.
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { createInterface } from 'node:readline'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import pg from 'pg'
import { LockElection } from 'lock-election'
import { start } from './index.mjs'

const TTL = 3_000
const PATIENCE = 30_000 // milliseconds for steps that take up to a TTL, on a busy machine

// A worker in a separate process. It works until the pipe to its standard input is closed.
async function worker (name, task) {
  const ended = once(process.stdin.resume(), 'end')
  const session = await LockElection.connect({ ttl: TTL, name })
  if (task === 'lead') {
    const term = await session.campaign('scheduler', `replica ${name}`)
    console.log(`leads, term ${term.token}`)
    await ended
    await term.resign()
  } else {
    await session.using('invoices', async (signal, hold) => {
      console.log(`has the lock, token ${hold.token}`)
      await ended
    })
  }
  await session.close()
}

const began = Date.now()
const say = text => { console.log(`\n--- ${text}`) }
const line = (who, text) => { console.log(`${((Date.now() - began) / 1000).toFixed(1).padStart(6)} s  ${who.padEnd(1)}  ${text}`) }
const workers = []

class Worker {
  #lines
  constructor (name, task, environment) {
    this.name = name
    this.child = spawn(process.execPath, [fileURLToPath(import.meta.url), 'worker', name, task],
      { env: { ...process.env, ...environment }, stdio: ['pipe', 'pipe', 'inherit'], windowsHide: true })
    this.closed = once(this.child, 'close')
    this.child.stdin.on('error', () => {}) // ignores that a killed worker reads nothing
    this.#lines = createInterface({ input: this.child.stdout })[Symbol.asyncIterator]()
    workers.push(this)
  }

  async line () {
    const timeout = new AbortController()
    const next = this.#lines.next().then(({ value }) => value)
    const late = sleep(PATIENCE, undefined, { signal: timeout.signal }).catch(() => {})
    const got = await Promise.race([next, late])
    timeout.abort()
    if (got === undefined) throw new Error(`worker ${this.name} got nothing`)
    return got
  }

  async end (kill = false) {
    if (kill) this.child.kill('SIGKILL')
    this.child.stdin.end()
    await this.closed
  }
}

async function demo () {
  console.log('Starting a throw-away PostgreSQL ...')
  const server = await start()
  const db = new pg.Client(server.options)
  db.on('error', () => {}) // the next query reports the error
  try {
    await db.connect()
    const { rows: [{ server_version: version }] } = await db.query('SHOW server_version')
    line('', `PostgreSQL ${version} runs in ${server.directory}, with locks in it.`)
    say(`Workers A and B want the lock "invoices". Its holder renews it; the TTL is ${TTL / 1000} s.`)
    await two(server, db, 'lock', async (a, b) => {
      await show(db, 'SELECT name, mode, token, waiters FROM lock_election.locks')
      say("A is killed, and releases nothing. B gets the lock when A's TTL has passed, not earlier.")
      await kill(a, b)
    })
    say('Replicas A and B campaign.')
    await two(server, db, 'lead', async (a, b) => {
      const old = await term(db)
      say('The leader is killed. The other replica leads after its TTL.')
      await kill(a, b)
      say('A write that A sent before it died arrives now. The fence refuses it, and accepts that of B.')
      await db.query('CREATE TABLE work (term bigint, done text)')
      await write(db, 'A', old, 'late')
      await write(db, 'B', await term(db), 'in time')
      await show(db, 'SELECT * FROM work')
      await show(db, "SELECT how, candidate, term FROM election_history('scheduler') ORDER BY changed_at")
    })
  } finally {
    await Promise.all(workers.map(async worker => { await worker.end(true) }))
    await db.end().catch(() => {})
    await server.close()
  }
  line('', 'The server and its files are gone.')
}

// Starts two workers, of which the second one waits for the first.
async function two (server, db, task, work) {
  const a = new Worker('A', task, server.environment)
  line('A', await a.line())
  const b = new Worker('B', task, server.environment)
  const end = Date.now() + PATIENCE
  while ((await db.query('SELECT FROM lock_election.waiters')).rowCount === 0) {
    if (Date.now() > end) throw new Error('worker B does not wait')
    await sleep(50)
  }
  line('B', 'waits')
  await work(a, b)
  await b.end()
  line('B', 'ends: what it has is free at once')
}

async function kill (victim, heir) {
  await victim.end(true)
  line(victim.name, 'kill -9')
  const killed = Date.now()
  line(heir.name, `${await heir.line()}, ${((Date.now() - killed) / 1000).toFixed(1)} s later`)
}

async function term (db) {
  return (await db.query("SELECT term FROM current_leader('scheduler')")).rows[0].term
}

async function write (db, who, term, what) {
  const fence = `SELECT fence_leader('scheduler', ${term})`
  const insert = `INSERT INTO work VALUES (${term}, '${what}')`
  line(who, `<- BEGIN; ${fence};`)
  console.log(`${' '.repeat(15)}${insert}; COMMIT`)
  try {
    await db.query(`BEGIN; ${fence}; ${insert}; COMMIT`)
    line(who, '-> COMMIT')
  } catch (error) {
    line(who, `-> ERROR: ${error.message}`)
    await db.query('ROLLBACK')
  }
}

async function show (db, statement) {
  const { fields, rows } = await db.query({ text: statement, rowMode: 'array' })
  const table = [fields.map(field => field.name), ...rows.map(row => row.map(String))]
  const widths = fields.map((_, i) => Math.max(...table.map(row => row[i].length)))
  console.log(`            ${statement}`)
  for (const row of table) console.log(`              ${row.map((value, i) => value.padEnd(widths[i])).join(' | ').trimEnd()}`)
}

try {
  if (process.argv[2] === 'worker') await worker(process.argv[3], process.argv[4])
  else await demo()
} catch (error) {
  console.error(`error: ${error.message}`)
  process.exitCode = 1
}
