// barrier.mjs RUN MEMBERS MEMBER: a run that begins when all members have entered, and ends when all have left.
import { createInterface } from 'node:readline'
import { setTimeout as sleep } from 'node:timers/promises'
import { LockElection } from 'lock-election'
import pg from 'pg'

// The barrier of one run. The name of the run must never have been used before. A member that dies leaves when its TTL
// expires, and can then enter again.
class DoubleBarrier {
  #session
  #pool
  #run
  #members
  #identity
  #member

  // members: number of members that must have entered before the run begins
  constructor (session, pool, run, members) {
    this.#session = session
    this.#pool = pool
    this.#run = run
    this.#members = members
  }

  // Waits until enough members have entered, and returns the hold of this member. If the hold is lost, the others no
  // longer wait for this member. After an error, close the session, because this member may have entered.
  async enter (name) {
    this.#identity = await this.#session.acquire(`${this.#run}, member ${name}`) // waits for a killed process's TTL
    this.#member = await this.#session.acquire(this.#run, { shared: true })
    while (!await this.#isOpen()) {
      this.#member.signal.throwIfAborted()
      await sleep(500)
    }
    return this.#member
  }

  // Leaves, and waits until all members have left.
  async leave () {
    await this.#member.release()
    await this.#identity.release()
    await (await this.#session.acquire(this.#run)).release() // granted when nobody holds it
  }

  async #isOpen () {
    try {
      await this.#pool.query(`SELECT compare_and_set($1, 0, 'open') FROM lock_election.locks
        WHERE kind = 'lock' AND name = $1 HAVING count(slot) >= $2`, [this.#run, this.#members])
      const { rows } = await this.#pool.query('SELECT version > 0 AS open FROM read_versioned($1)', [this.#run])
      return rows[0].open
    } catch (error) {
      console.error(error.message) // the server may be unavailable: enter tries again
      return false
    }
  }
}

const [run, members, name, ttl = '30000'] = process.argv.slice(2)
const session = await LockElection.connect({ ttl: Number(ttl) })
const pool = new pg.Pool().on('error', error => console.error(error.message))
const barrier = new DoubleBarrier(session, pool, run, Number(members))
const member = await barrier.enter(name)
console.log('begins')
for await (const step of createInterface({ input: process.stdin })) {
  if (!member.valid) break
  console.log(`did ${step}`)
}
member.signal.throwIfAborted()
await barrier.leave()
console.log('left')
await session.close()
await pool.end()
