// node-cron in every replica; each run of the job is done by one of them.
import { LockElection } from 'lock-election'
import cron from 'node-cron'

const [pattern = '0 * * * * *', closed = 50_000, ttl = 60_000] = process.argv.slice(2)
const session = await LockElection.connect({ ttl: Number(ttl) })

cron.schedule(pattern, async () => {
  try {
    await session.once('tidy', { holdFor: Number(closed) }, async signal => {
      console.log('runs') // pass the signal to calls that can be aborted
    })
  } catch (error) {
    console.log(error.message)
  }
})
