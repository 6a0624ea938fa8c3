// BullMQ runs a job in a second worker if the first one seems to have stalled, or if the job was added twice. The lock
// lets only one worker run it, and holdFor keeps the name closed for most of the period.
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
