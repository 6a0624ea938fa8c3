// A counter that one process at a time increments. A process that has lost its lock cannot commit a late write.
import { LockElection } from 'lock-election'
import pg from 'pg'
const session = await LockElection.connect({ ttl: Number(process.argv[2] ?? 30_000) })
const pool = new pg.Pool().on('error', () => {})
async function write (signal, hold) {
  const client = (await pool.connect()).on('error', () => {}) // the connection may break between two queries
  try {
    await client.query('BEGIN')
    await hold.fence(client)
    await client.query('UPDATE counter SET value = value + 1')
    await client.query('COMMIT')
  } finally { client.release(true) } // closes the connection, which rolls back uncommitted changes
}
for (;; await new Promise(r => setTimeout(r, 10))) await session.reopen().then(() => session.using('counter', write)).catch(console.log)
