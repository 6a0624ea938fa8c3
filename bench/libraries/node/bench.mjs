// Measures one system in the benchmark of libraries: a number of workers acquire and release for some seconds.
//
//   node bench.mjs SYSTEM WORKERS own|hot SECONDS SERVER-PID
//
// Prints the same figures as bench/libraries/go. Libpq's variables name PostgreSQL, and REDIS_URL names Redis. Workers
// are loops in one process, and share a session, a pool or a connection to Redis, as in a typical program.
import { readFileSync } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'

const ttl = 10_000
const warmup = 1000 // ms, in which V8 compiles the code

// For each system, a function that returns an acquire function, which returns a release function.
const systems = {
  lock_election: async () => {
    const { LockElection } = await import('lock-election')
    const session = await LockElection.connect({ ttl })
    return async name => {
      const hold = await session.acquire(name)
      return () => hold.release()
    }
  },
  direct: async workers => {
    const { default: pg } = await import('pg')
    const pool = new pg.Pool({ min: workers, max: workers, idleTimeoutMillis: 0 })
    return async name => {
      const { rows: [{ token }] } = await pool.query({ name: 'a', text: 'SELECT acquire_lock($1) AS token', values: [name] })
      return () => pool.query({ name: 'r', text: 'SELECT release_lock($1, $2)', values: [name, token] })
    }
  },
  // redis-semaphore is maintained; the last release of redlock is from 2020.
  'redis-semaphore': async () => {
    const [{ Mutex }, { Redis }] = await Promise.all([import('redis-semaphore'), import('ioredis')])
    const client = new Redis(process.env.REDIS_URL)
    return async name => {
      const mutex = new Mutex(client, name, { lockTimeout: ttl, acquireTimeout: Infinity }) // default pause, 10 ms
      await mutex.acquire()
      return () => mutex.release()
    }
  }
}

// Returns the processor time of a process and its children, in microseconds.
function processorTime (pid) {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'latin1')
    const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ')
    const children = readFileSync(`/proc/${pid}/task/${pid}/children`, 'latin1').split(' ').filter(Boolean)
    return children.map(processorTime).reduce((a, b) => a + b, (Number(fields[11]) + Number(fields[12])) * 10_000)
  } catch {
    return 0 // it has ended
  }
}

function ownTime () {
  const { user, system } = process.cpuUsage()
  return user + system
}

const [system, workers, which, seconds, server] = process.argv.slice(2)
const acquire = await systems[system](Number(workers))
const times = []
let [counts, over] = [false, false]

async function work (name) {
  while (!over) {
    const begin = performance.now()
    const release = await acquire(name)
    const took = performance.now() - begin
    await release()
    if (counts) times.push(took * 1000)
  }
}

const all = Array.from({ length: Number(workers) }, (_, i) => work(which === 'hot' ? 'hot' : `own ${process.pid} ${i}`))
await sleep(warmup)
const [used, own, begin] = [processorTime(server), ownTime(), performance.now()]
counts = true
await sleep(seconds * 1000)
;[counts, over] = [false, true]
const figures = [1000 * times.length / (performance.now() - begin), 0, 0, ownTime() - own, processorTime(server) - used]
times.sort((a, b) => a - b)
const n = times.length
if (n > 0) figures.splice(1, 4, times[n >> 1], times[Math.floor(n * 0.99)], figures[3] / n, figures[4] / n)
else figures.fill(0) // other processes have held the lock all the time
await Promise.race([Promise.all(all), sleep(5000)]) // so that no lock stays held for the next system
process.stdout.write(figures.map(Math.floor).join(' ') + '\n', () => process.exit())
