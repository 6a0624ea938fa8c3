// Adds each number that it reads to a balance. It cannot commit a write after its lock is lost.
import { createInterface } from 'node:readline'
import connect from 'knex'
import { LockElection } from 'lock-election'

const knex = connect({ client: 'pg', connection: {} }) // uses PGHOST, ...
const session = await LockElection.connect({ ttl: 60_000 })
const hold = await session.acquire(process.argv[2] ?? 'balance')
console.log('ready')
for await (const line of createInterface(process.stdin)) {
  await knex.transaction(async trx => {
    await hold.fence(trx)
    await trx('balance').increment('amount', Number(line))
  }).then(() => console.log('added'), error => console.log(`${error.name}: ${error.message}`))
}
await knex.destroy()
await session.close()
