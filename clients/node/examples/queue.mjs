// A worker of a queue: start any number of them. If a worker dies, another one does its job when the TTL has expired.
import { setTimeout as sleep } from 'node:timers/promises'
import { LockElection } from 'lock-election'
import pg from 'pg'

const session = await LockElection.connect({ ttl: Number(process.argv[2] ?? 30_000) })
const pool = new pg.Pool().on('error', error => console.log(error.message))
const work = async id => {
  const { rowCount } = await pool.query('UPDATE job SET done = done + 1 WHERE id = $1 AND done = 0', [id])
  if (rowCount === 1) console.log(`job ${id}`)
}
for (;; await sleep(100)) try {
  const { rows } = await pool.query('SELECT id FROM job WHERE done = 0 ORDER BY id LIMIT 10')
  for (const { id } of rows) await session.once(`job ${id}`, {}, () => work(id))
} catch (error) { console.log(error.message) }
