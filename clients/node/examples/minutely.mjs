// A job that runs once each minute: start this program on several machines, and one of them runs the job. The name
// stays closed for 50 of 60 seconds, so that a machine whose clock is late does not run the job again.
import { setTimeout as sleep } from 'node:timers/promises'
import { LockElection } from 'lock-election'

const [period = 60_000, ttl = 60_000] = process.argv.slice(2).map(Number)
const session = await LockElection.connect({ ttl })
for (;;) {
  await sleep(period - Date.now() % period)
  try {
    await session.once('minutely', { holdFor: period * 5 / 6 }, () => console.log('runs'))
  } catch (error) {
    console.log(error.message) // the server is not available, or the lock was lost: try again in the next minute
  }
}
