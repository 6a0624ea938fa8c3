// The agent of the conformance suite (clients/conformance/README.md) for this library.
import { createInterface } from 'node:readline'
import { setTimeout as pass } from 'node:timers/promises'
import { inspect } from 'node:util'
import pg from 'pg'
import { LockElection, LockElectionError } from './dist/esm/index.js'
import { serverError } from './dist/esm/errors.js'
import { hostsOf } from './dist/esm/hosts.js'

const features = ['shared', 'permits', 'several', 'each', 'election', 'observe', 'fence', 'cancel', 'hold_for', 'own_ttl',
  'once', 'abandon', 'block', 'threads']
if (process.argv.includes('--capabilities')) {
  console.log(JSON.stringify({ client: 'node', version: '1.0.0', modes: ['async'], features }))
  process.exit(0)
}

const sessions = new Map()
const holds = new Map()
const observers = new Map()
const calls = new Map()

const sockets = () => process.getActiveResourcesInfo().filter(name => /^(TCP|Pipe)(Socket)?Wrap$/.test(name)).length
const stamp = () => Number(process.hrtime.bigint()) / 1e6
const write = line => process.stdout.write(JSON.stringify(line) + '\n')

function named (map, name) {
  const found = map.get(name)
  if (found === undefined) throw new LockElectionError('invalid', `there is no ${name}`)
  return found
}

function keep (name, hold) {
  holds.set(name, hold)
  hold.signal.addEventListener('abort', () => {
    write({ event: 'lost', hold: name, why: hold.signal.reason.message, at: stamp() })
  })
  return String(hold.token)
}

function lostIf (outcome) {
  if (outcome !== 'released') throw new LockElectionError(outcome, `the release is ${outcome}`)
}

async function watch (name, changes) {
  for await (const leader of changes) {
    write({ event: 'leader', observer: name, value: leader?.value ?? null, term: leader === null ? null : String(leader.term), at: stamp() })
  }
}

const commands = {
  async open ({ session, dsn, ttl, name }) {
    const made = await LockElection.connect({
      connectionString: dsn,
      ttl,
      name: name ?? 'agent',
      onState: state => write({ event: 'state', session, state, at: stamp() })
    })
    sessions.set(session, made)
    return { lease: String(made.lease) }
  },

  async acquire ({ session, hold, names, mode, wait, ttl, permits }, signal) {
    const s = named(sessions, session)
    const options = { wait, signal, ...(ttl == null ? {} : { ttl }) }
    const made = mode === 'permit'
      ? await s.permit(names[0], permits, options)
      : await s.acquire(names, { ...options, shared: mode === 'shared' })
    return { token: keep(hold, made) }
  },

  async try_each ({ session, holds: keys, names, mode }, signal) {
    const made = await named(sessions, session).tryAcquireEach(names, { signal, shared: mode === 'shared' })
    return { tokens: made.map((hold, i) => hold === null ? null : keep(keys[i], hold)) }
  },

  async campaign ({ session, hold, election, value, wait }, signal) {
    return { token: keep(hold, await named(sessions, session).campaign(election, value, { wait, signal })) }
  },

  async once ({ session, names, hold_for: holdFor, ms }) {
    return { ran: await named(sessions, session).once(names[0], { holdFor }, () => pass(ms ?? 0)) }
  },

  async cancel ({ of }) {
    calls.get(of)?.abort()
  },

  async valid ({ hold }) {
    const { valid, timeLeft } = named(holds, hold)
    return { valid, deadline: timeLeft }
  },

  async fence ({ hold, dsn, sql }) {
    const held = named(holds, hold)
    const client = new pg.Client(hostsOf({ connectionString: dsn })[0])
    client.on('error', () => {})
    await client.connect()
    try {
      await client.query('BEGIN')
      await held.fence(client)
      await client.query(sql)
      await client.query('COMMIT')
    } finally {
      await client.end()
    }
  },

  async proclaim ({ hold, value }) {
    await named(holds, hold).proclaim(value)
  },

  async resign ({ hold }) {
    const held = named(holds, hold)
    holds.delete(hold)
    lostIf(await held.resign())
  },

  async release ({ hold, hold_for: holdFor }) {
    const held = named(holds, hold)
    holds.delete(hold)
    lostIf(await held.release(holdFor == null ? {} : { holdFor }))
  },

  async leader ({ session, election }) {
    const leader = await named(sessions, session).leader(election)
    return { value: leader?.value ?? null, term: leader === null ? null : String(leader.term) }
  },

  async observe ({ session, observer, election }) {
    const controller = new AbortController()
    const done = watch(observer, named(sessions, session).observe(election, { signal: controller.signal }))
    observers.set(observer, { controller, done })
    done.catch(error => process.stderr.write(`${error.stack}\n`))
  },

  async unobserve ({ observer }) {
    const { controller, done } = named(observers, observer)
    observers.delete(observer)
    controller.abort()
    await done
  },

  async state ({ session }) {
    return { state: named(sessions, session).state }
  },

  async abandon ({ hold }) {
    named(holds, hold)
    holds.delete(hold)
  },

  async close ({ session, limit }) {
    await named(sessions, session).close(limit == null ? {} : { limit })
  },

  async block ({ ms }) {
    const until = stamp() + ms
    while (stamp() < until);
    await new Promise(resolve => setTimeout(resolve, 0))
  },

  // Counts only sockets, in addition to the agent's own pipes.
  async threads () {
    return { threads: 0, connections: sockets() - own }
  }
}

// Returns the status of an error, which comes from the library or the application's own connection, or is a cancel's
// reason.
function failure (error, signal) {
  const { code, sqlstate } = error instanceof LockElectionError ? error : serverError(error) ?? { code: 'failed' }
  const status = signal.aborted && error === signal.reason ? 'canceled' : code
  return { status, message: error.message, ...(sqlstate === undefined ? {} : { sqlstate }) }
}

async function serve (command) {
  const { id } = command
  const controller = new AbortController()
  calls.set(id, controller)
  const sent = stamp()
  let answer
  try {
    const run = commands[command.do]
    answer = run === undefined ? { status: 'unsupported' } : { status: 'ok', ...await run(command, controller.signal) }
  } catch (error) {
    answer = failure(error, controller.signal)
    if (command.do === 'open') answer.shown = inspect(error, { showHidden: true, depth: 9 }) + JSON.stringify(error)
  }
  write({ id, ...answer, sent, at: stamp() })
  calls.delete(id)
}

const lines = createInterface({ input: process.stdin })
lines.on('line', line => { if (line.trim() !== '') void serve(JSON.parse(line)) })
lines.on('close', async () => {
  await Promise.all([...sessions.values()].map(session => session.close({ limit: 1000 })))
  process.exit(0)
})
process.stdout.write('') // opens the pipe, so that it is counted below
const own = sockets()
