// Replicas of a web application, one of which leads and does a background task. GET /leader returns the leader. A load
// balancer finds the leader by GET /leads, which returns 200 only there.
import { setTimeout as sleep } from 'node:timers/promises'
import express from 'express'
import { LockElection } from 'lock-election'

const [port = 3000, ttl = 15_000] = process.argv.slice(2).map(Number)
const session = await LockElection.connect({ ttl })
const app = express()
app.get('/leads', (request, response) => response.sendStatus(election.term === undefined ? 503 : 200))
app.get('/leader', async (request, response) => {
  const leader = await session.leader('web')
  response.json(leader && { url: leader.value, term: String(leader.term) })
})

const server = app.listen(port, () => console.log(`port ${server.address().port}`))
const election = session.elect('web', `http://${process.env.HOSTNAME}:${port}`)
election.on('elected', async (term, signal) => {
  while (!signal.aborted) await sleep(1000, null, { signal }).catch(() => {}) // for example, clean up once a second
})
election.on('lost', why => console.log(`lost: ${why.message}`))
election.on('error', error => { throw error })

process.once('SIGTERM', async () => {
  server.close()
  await election.stop() // so that the next replica leads immediately
  await session.close()
})
