// Adds each number that it reads to a balance. It cannot commit a write after its lock is lost.
import { createInterface } from 'node:readline'
import { PrismaPg } from '@prisma/adapter-pg'
import { PrismaClient } from '@prisma/client' // generated from schema.prisma by "npx prisma generate"
import { LockElection } from 'lock-election'

const prisma = new PrismaClient({ adapter: new PrismaPg({}) }) // uses PGHOST, ...
const session = await LockElection.connect({ ttl: 60_000 })
const hold = await session.acquire(process.argv[2] ?? 'balance')
console.log('ready')
for await (const line of createInterface(process.stdin)) {
  await prisma.$transaction(async tx => {
    await hold.fence(tx)
    await tx.balance.update({ where: { id: 1 }, data: { amount: { increment: Number(line) } } })
  }).then(() => console.log('added'), error => console.log(`${error.name}: ${error.message}`))
}
await prisma.$disconnect()
await session.close()
