// Adds each number that it reads to a balance. It cannot commit a write after its lock is lost.
import { createInterface } from 'node:readline'
import { LockElection } from 'lock-election'
import { DataSource, EntitySchema } from 'typeorm'

const { PGHOST: host, PGPORT: port, PGUSER: username, PGDATABASE: database } = process.env
const Balance = new EntitySchema({
  name: 'balance',
  columns: { id: { type: 'int', primary: true }, amount: { type: 'int' } }
})
const db = await new DataSource({
  type: 'postgres', host, port: Number(port), username, database, entities: [Balance]
}).initialize()
const session = await LockElection.connect({ ttl: 60_000 })
const hold = await session.acquire(process.argv[2] ?? 'balance')
console.log('ready')
for await (const line of createInterface(process.stdin)) {
  await db.transaction(async manager => {
    await hold.fence(manager)
    await manager.increment(Balance, { id: 1 }, 'amount', Number(line))
  }).then(() => console.log('added'), error => console.log(`${error.name}: ${error.message}`))
}
await db.destroy()
await session.close()
