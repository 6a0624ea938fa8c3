// The portable edition: installed by a role with CREATE on an empty database alone, and then used.
import assert from 'node:assert/strict'
import { afterEach, beforeEach, test } from 'node:test'
import pg from 'pg'
import { LockElection, install, installScript } from 'lock-election'
import { code, sql } from './helper.mjs'

let database, role
let count = 0

beforeEach(async () => {
  count++
  database = `portable_node_${process.pid}_${count}`
  role = `installer_${process.pid}_${count}`
  await sql(`CREATE DATABASE ${database}`)
  await sql(`CREATE ROLE ${role} LOGIN; GRANT CREATE ON DATABASE ${database} TO ${role}`)
})

afterEach(async () => {
  await sql(`DROP DATABASE ${database} WITH (FORCE)`)
  await sql(`DROP ROLE ${role}`)
})

async function connected (work, options = { database, user: role }) {
  const client = new pg.Client(options)
  client.on('error', () => {})
  await client.connect()
  try {
    return await work(client)
  } finally {
    await client.end()
  }
}

async function works (user) {
  const session = await LockElection.connect({ database, user })
  assert.equal(await session.using('x', { wait: 20_000 }, (signal, hold) => hold.valid), true)
  await session.close()
}

test('an ordinary role installs', async () => {
  await Promise.all([1, 2].map(() => connected(client => install(client, { schema: 'My "locks\\' }))))
  await works(role)
  const application = `app_${process.pid}`
  await sql(`CREATE ROLE ${application} LOGIN`)
  try {
    await works(application)
    // A program may call it whenever it starts.
    const pool = new pg.Pool({ database, user: application })
    await install(pool)
    await pool.end()
  } finally {
    await sql(`DROP ROLE ${application}`)
  }
})

test('for one role', async () => {
  await connected(async client => {
    await install(client, { schema: 'locks', grant: role })
    const { rows } = await client.query("SELECT has_schema_privilege('public', 'locks', 'USAGE') AS open")
    assert.deepEqual(rows, [{ open: false }])
  })
  await works(role)
})

test('refusals', async () => {
  await connected(async client => {
    await assert.rejects(install(client), { code: 'denied', message: /lockctl install --schema locks/ })
    await assert.rejects(install(client, { scheme: 'x' }), code('invalid'))
    await assert.rejects(install(client, { schema: 1 }), code('invalid'))
    await assert.rejects(install('dbname=app'), code('invalid'))
    await client.query('BEGIN')
    await assert.rejects(install(client), { code: 'invalid', message: /open transaction/ })
    await client.query('ROLLBACK')
    await client.query('SET default_transaction_read_only = on')
    await assert.rejects(install(client), { code: 'unavailable', message: /read-only/ })
    await client.query("RESET default_transaction_read_only; SET default_transaction_isolation = 'serializable'")
    await install(client, { schema: 'locks' })
    await client.query('UPDATE _lock_election.edition SET version = 99; COMMENT ON SCHEMA _lock_election IS NULL')
    await assert.rejects(install(client), { code: 'failed', message: /newer release/ })
    await client.query('SELECT')
  })
  await connected(client => assert.rejects(install(client), { code: 'failed', message: /extension lock_election is installed/ }), {})
})

test('the script', () => {
  assert.match(installScript, /CREATE TABLE IF NOT EXISTS _lock_election\.hold/)
})
