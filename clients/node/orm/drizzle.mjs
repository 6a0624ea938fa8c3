// Adds each number that it reads to a balance. It cannot commit a write after its lock is lost.
import { createInterface } from 'node:readline'
import { sql } from 'drizzle-orm'
import { drizzle } from 'drizzle-orm/node-postgres'
import { integer, pgTable } from 'drizzle-orm/pg-core'
import { LockElection } from 'lock-election'
import pg from 'pg'

const pool = new pg.Pool()
const db = drizzle(pool)
const balance = pgTable('balance', { id: integer().primaryKey(), amount: integer() })
const session = await LockElection.connect({ ttl: 60_000 })
const hold = await session.acquire(process.argv[2] ?? 'balance')
console.log('ready')
for await (const line of createInterface(process.stdin)) {
  await db.transaction(async tx => {
    await hold.fence(tx)
    await tx.update(balance).set({ amount: sql`${balance.amount} + ${line}::int` })
  }).then(() => console.log('added'), error => console.log(`${error.name}: ${error.message}`))
}
await pool.end()
await session.close()
