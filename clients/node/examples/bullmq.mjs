// BullMQ gives a job to a second worker when the first one seems to have stalled, or when it is added twice. The lock
// lets one of them do it, and holdFor keeps the others out for the rest of its period.
import { Queue, Worker } from 'bullmq'
import { Redis } from 'ioredis'
import { LockElection } from 'lock-election'

const [every = 60_000, port = 6379, ttl = 60_000] = process.argv.slice(2).map(Number)
const connection = new Redis({ port, maxRetriesPerRequest: null })
const session = await LockElection.connect({ ttl })

const queue = new Queue('reports', { connection })
await queue.upsertJobScheduler(`report of ${process.pid}`, { every }, { name: 'report' }) // each replica adds it
new Worker('reports', async job => {
  const ran = await session.once(job.name, { holdFor: every * 5 / 6 }, async signal => console.log('runs'))
  if (!ran) console.log('skipped')
}, { connection })
