// Start this program three times: one of the three processes leads.
import { setTimeout as sleep } from 'node:timers/promises'
import { LockElection } from 'lock-election'

const [me = `pid ${process.pid}`, ttl = '15000'] = process.argv.slice(2)
const session = await LockElection.connect({ ttl: Number(ttl) })
const election = session.elect('scheduler', me)
election.on('elected', async (term, signal) => {
  console.log(`leads, term ${term}`)
  while (!signal.aborted) await sleep(100, null, { signal }).catch(() => {}) // a step of the work
})
election.on('lost', why => console.log(`lost: ${why.message}`))
process.once('SIGTERM', () => election.stop().then(() => session.close()))
