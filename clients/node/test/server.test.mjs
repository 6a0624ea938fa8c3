// With a server: what the fake one of rules.test.mjs cannot tell.
import assert from 'node:assert/strict'
import { getEventListeners, once } from 'node:events'
import { readFile } from 'node:fs/promises'
import { connect, createServer } from 'node:net'
import { after, test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { inspect } from 'node:util'
import pg from 'pg'
import { LockElection, LockElectionError, LockLostError, NotAcquiredError } from 'lock-election'
import { closeAll, code, connected, fresh, killAll, open, root, run, sql, until } from './helper.mjs'

after(async () => {
  await closeAll()
  killAll()
})

const backends = async name => await sql('SELECT pid FROM pg_stat_activity WHERE application_name = $1', [name])

async function inTransaction (work) {
  const client = new pg.Client()
  await client.connect()
  try {
    await client.query('BEGIN')
    await work(client)
    await client.query('COMMIT')
  } finally {
    await client.end()
  }
}

test('acquire, wait, release, in the order of arrival', async () => {
  const [a, b] = [await open(), await open()]
  const name = fresh()
  const first = await a.acquire(name)
  assert.ok(first.valid && first.timeLeft > 9000 && first.token > 0n)
  const order = []
  const waiters = []
  for (const [label, session] of [['b', b], ['a', a], ['b2', b]]) {
    waiters.push(session.acquire(name).then(async hold => { order.push(label); await hold.release() }))
    await until(async () => (await sql('SELECT 1 FROM lock_election.waiters WHERE name = $1', [name])).length === waiters.length)
  }
  assert.equal(await first.release(), 'released')
  assert.equal(await first.release(), 'released')
  assert.equal(first.valid, false)
  await Promise.all(waiters)
  assert.deepEqual(order, ['b', 'a', 'b2'])
})

test('limits of a wait, and tries', async () => {
  const [a, b] = [await open(), await open()]
  const name = fresh()
  const hold = await a.acquire(name)
  await assert.rejects(b.acquire(name, { wait: 50 }), error => error instanceof NotAcquiredError && error.code === 'not_acquired')
  await assert.rejects(b.acquire(name, { wait: 0 }), NotAcquiredError)
  assert.equal(await b.tryAcquire(name), null)
  const controller = new AbortController()
  const waiting = assert.rejects(b.acquire(name, { signal: controller.signal }), { name: 'AbortError' })
  controller.abort()
  await waiting
  await hold.release()
  await (await b.tryAcquire(name)).release()
  assert.deepEqual(await sql('SELECT * FROM lock_election.waiters WHERE name = $1', [name]), [])
})

test('shared locks, permits, several names, each for itself', async () => {
  const [a, b] = [await open(), await open()]
  const [x, y, z, free, p] = ['x', 'y', 'z', 'free', 'p'].map(fresh)
  const shared = await Promise.all([a.acquire(x, { shared: true }), b.acquire(x, { shared: true })])
  assert.equal(await a.tryAcquire(x), null)
  await Promise.all(shared.map(hold => hold.release()))

  const permits = await Promise.all([a.permit(p, 2), b.permit(p, 2)])
  await assert.rejects(a.permit(p, 2, { wait: 0 }), NotAcquiredError)
  await assert.rejects(a.permit(p, 3), code('invalid'))
  await Promise.all(permits.map(hold => hold.release()))

  const both = await a.acquire([x, y])
  assert.deepEqual(both.names, [x, y])
  const waiting = b.acquire([y, z])
  const each = await b.tryAcquireEach([x, y, free])
  assert.deepEqual(each.map(hold => hold === null), [true, true, false])
  await each[2].release()
  assert.equal(await both.release(), 'released')
  const other = await waiting
  await inTransaction(async client => { await other.fence(client) })
  assert.equal(await other.release({ holdFor: 300 }), 'released')
  assert.equal(await a.tryAcquire(y), null) // closed
  await (await a.acquire(y)).release()
})

test('one of several that is released by force loses them all, and the others are free', async () => {
  const session = await open({ ttl: 900 })
  const [x, y] = [fresh(), fresh()]
  const both = await session.acquire([x, y])
  await sql('SELECT force_release_lock($1)', [y])
  await once(both.signal, 'abort')
  assert.equal(both.signal.reason.code, 'lost')
  await until(async () => (await sql('SELECT 1 FROM lock_election.locks WHERE name = $1', [x])).length === 0)
})

test('one of several that is refused leaves nothing', async () => {
  const session = await open()
  await assert.rejects(session.tryAcquireEach([fresh(), 'x'.repeat(300)]), code('invalid'))
  await assert.rejects(session.acquire(''), code('invalid'))
  await assert.rejects(session.acquire(fresh(), { ttl: 1 }), code('invalid'))
  await until(async () => (await sql("SELECT 1 FROM lock_election.locks WHERE lease = $1", [session.lease])).length === 0)
})

test('a fence needs a transaction, and refuses a hold that is lost', async () => {
  const session = await open()
  const name = fresh(`O'Neill \\`)
  const hold = await session.acquire(name)
  const client = await connected()
  // as of an ORM that sends Parse, Bind and Execute
  const extended = { query: async text => await client.query({ text, queryMode: 'extended' }) }
  for (const one of [client, extended]) await assert.rejects(hold.fence(one), code('invalid'))
  await client.query('BEGIN')
  await hold.fence(extended)
  await hold.fence(client)
  await sql('SELECT force_release_lock($1)', [name])
  let granted = false
  const waiting = session.acquire(name).then(next => { granted = true; return next })
  await until(async () => (await sql('SELECT 1 FROM lock_election.waiters WHERE name = $1', [name])).length > 0)
  assert.equal(granted, false)
  await client.query('COMMIT')
  const next = await waiting
  assert.ok(next.token > hold.token)
  await client.query('BEGIN')
  await assert.rejects(hold.fence(client), error => error instanceof LockLostError)
  await client.query('ROLLBACK')
  assert.equal(hold.valid, false)
  await assert.rejects(hold.fence(client), LockLostError)
  await client.end()
})

test('the SQL of a fence, for names that an ORM could misread, several of them, and a term', async () => {
  const session = await open()
  const client = await connected()
  const name = fresh(`it's ?, :x, $1, %s, \\, é`)
  for (const [hold, late] of [
    [await session.acquire(name), 'force_release_lock'],
    [await session.acquire([fresh('plain'), name + 2]), 'force_release_lock'],
    [await session.campaign(name, 'me'), 'force_resign']
  ]) {
    const text = hold.fenceSql()
    assert.doesNotMatch(text, /[?:$%\\]/)
    await client.query('BEGIN')
    assert.deepEqual((await client.query(text)).rows, [{ fenced: String(hold.names.length) }])
    await client.query('COMMIT')
    await sql(`SELECT ${late}($1)`, [hold.names.at(-1)])
    await client.query('BEGIN')
    await assert.rejects(client.query(text), code('LE001'))
    await client.query('ROLLBACK')
    await hold.release()
    assert.throws(() => hold.fenceSql(), LockLostError)
  }
})

test('using and once', async () => {
  const [a, b] = [await open(), await open({ ttl: 600 })]
  const name = fresh()
  assert.equal(await a.using(name, (signal, hold) => `${hold.valid} ${signal.aborted}`), 'true false')
  await assert.rejects(a.using(name, { wait: 0 }, () => { throw new Error('mine') }), { message: 'mine' })
  await assert.rejects(a.using(name, async signal => {
    await sql('SELECT force_release_lock($1)', [name])
    await until(() => signal.aborted)
  }), LockLostError)
  let runs = 0
  const job = fresh()
  assert.equal(await a.once(job, { holdFor: 10_000 }, () => { runs++ }), true)
  assert.equal(await b.once(job, { holdFor: 10_000 }, () => { runs++ }), false)
  assert.equal(runs, 1)
  assert.equal(await a.tryAcquire(name).then(async hold => await hold.release()), 'released')
})

test('once runs nothing if the server will refuse holdFor', async () => {
  const session = await open()
  const name = fresh()
  let runs = 0
  for (const [holdFor, expected] of [[86_400_001, 'limit'], [25 * 86_400_000, 'invalid'], [-1, 'invalid'], [NaN, 'invalid'], [Infinity, 'invalid']]) {
    await assert.rejects(session.once(name, { holdFor }, () => { runs++ }), code(expected), String(holdFor))
  }
  assert.equal(runs, 0)
  assert.equal(await session.once(name, { holdFor: 86_400_000 }, () => { runs++ }), true)
  assert.equal(await session.once(name, { holdFor: 86_400_000 }, () => { runs++ }), false)
  assert.equal(runs, 1)
  await sql('SELECT force_release_lock($1)', [name])
})

test('a connection that is ended loses nothing', async () => {
  const states = []
  const session = await open({ application_name: fresh('app'), onState: state => states.push(state) })
  const name = fresh()
  const hold = await session.acquire(name)
  const waiting = session.acquire(name)
  await sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'app%'")
  await until(() => states.includes('suspended') && states.at(-1) === 'connected')
  assert.ok(hold.valid)
  await hold.release()
  assert.ok((await waiting).valid)
})

test('an abort signal that is right at once works with what Node.js has', async () => {
  const session = await open({ ttl: 400 })
  const hold = await session.acquire(fresh())
  assert.ok(hold.signal instanceof AbortSignal)
  const aborted = sleep(60_000, null, { signal: hold.signal }).catch(error => error)
  const reading = readFile('/dev/null', { signal: hold.signal })
  await reading
  const end = Date.now() + 500
  while (Date.now() < end);
  assert.equal(hold.signal.aborted, true)
  assert.equal((await aborted).name, 'AbortError')
  await assert.rejects(fetch('http://127.0.0.1:1', { signal: hold.signal }), error => error instanceof LockLostError)
  if (AbortSignal.any !== undefined) assert.equal(AbortSignal.any([hold.signal]).aborted, true)
  await session.reopen()
  assert.equal((await session.acquire(fresh())).valid, true)
})

test('a thousand waiters share one connection', async () => {
  const app = fresh('app')
  const [a, b] = [await open({ application_name: app }), await open()]
  const name = fresh()
  const hold = await b.acquire(name)
  let inside = 0
  let most = 0
  const waiters = Array.from({ length: 1000 }, async () => await a.using(name, async () => {
    most = Math.max(most, ++inside)
    await null
    inside--
  }))
  await until(async () => (await sql('SELECT count(*) FROM lock_election.waiters WHERE name = $1', [name]))[0].count === '1000')
  assert.equal((await backends(app)).length, 1)
  await hold.release()
  await Promise.all(waiters)
  assert.equal(most, 1)
})

test('elections: campaign, proclaim, leader, observe, resign', async () => {
  const [a, b] = [await open(), await open()]
  const election = fresh()
  const seen = []
  const controller = new AbortController()
  const watching = (async () => {
    for await (const leader of b.observe(election, { signal: controller.signal })) seen.push(leader?.value ?? null)
  })()
  await until(() => seen.length === 1)
  const term = await a.campaign(election, 'one')
  const waiting = b.campaign(election, 'two')
  await term.proclaim('uno')
  assert.deepEqual(await b.leader(election), { value: 'uno', term: term.token })
  await inTransaction(async client => { await term.fence(client) })
  assert.equal(await term.resign(), 'released')
  await assert.rejects(term.proclaim('late'), LockElectionError)
  const next = await waiting
  assert.ok(next.token > term.token)
  await next.resign()
  await until(() => seen.length === 6)
  controller.abort()
  await watching
  assert.deepEqual(seen, [null, 'one', 'uno', null, 'two', null])
  assert.equal(await a.leader(election), null)
})

test('elect stands again, and resigns after its listeners', async () => {
  const a = await open()
  const name = fresh()
  const election = a.elect(name, 'me')
  const events = []
  let ready = () => {}
  election.on('elected', async (term, signal) => {
    events.push('elected')
    ready()
    await once(signal, 'abort')
    await sleep(50)
    events.push(`still ${(await a.leader(name))?.value}`)
  })
  election.on('lost', why => events.push(`lost ${why.code}`))
  await until(() => election.term !== undefined)
  await election.resign()
  await until(() => events.length === 3)
  await sql('SELECT force_resign($1)', [name])
  await until(() => events.includes('lost lost'), 'lost', 10_000)
  await until(() => events.length === 6)
  await election.stop()
  assert.deepEqual(events, ['elected', 'still me', 'elected', 'lost lost', 'still undefined', 'elected', 'still me'])
  assert.equal(await a.leader(name), null)

  const failing = a.elect(name, 'me')
  failing.on('elected', () => { throw new Error('mine') })
  const [error] = await once(failing, 'error')
  assert.equal(error.message, 'mine')
  await failing.stop()
  const wrong = a.elect(name, '')
  assert.equal((await once(wrong, 'error'))[0].code, 'invalid')
})

test('a listener of elections that throws ends the candidacy, and is told', async () => {
  const session = await open({ ttl: 900 })
  const name = fresh()
  const election = session.elect(name, 'me')
  const failed = once(election, 'error')
  election.on('lost', () => { throw new Error('mine') })
  const [, signal] = await once(election, 'elected')
  await sql('SELECT force_resign($1)', [name])
  assert.equal((await failed)[0].message, 'mine')
  assert.equal(signal.reason.code, 'lost')
  await election.stop()
  assert.equal(await session.leader(name), null)
})

test('an observer whose session is closed, or whose signal is aborted, is told no end of a term', async () => {
  const [a, b] = [await open(), await open()]
  const name = fresh()
  await a.campaign(name, 'me')
  await b.close()
  for await (const leader of b.observe(name)) assert.fail(`${leader}`)
  const c = await open()
  const controller = new AbortController()
  const observing = c.observe(name, { signal: controller.signal })
  const first = observing.next()
  controller.abort()
  assert.ok((await first).value !== null)
})

test('hostile names: the server says what is wrong, and nothing else is hit', async () => {
  const session = await open()
  const client = await connected()
  const neighbour = await session.acquire(fresh())
  for (const name of ["'; DROP TABLE x; --\\", '🔒'.repeat(60), '%s ? $1 {"a"}', '__proto__', ' ', '\u{10ffff}', 'a\nb']) {
    const [hold, other] = await Promise.all([session.acquire(name), session.acquire([`${name} 2`, `${name} 3`])])
    await client.query('BEGIN')
    await hold.fence(client)
    await other.fence(client)
    await client.query('COMMIT')
    const waiting = session.acquire(name)
    assert.equal(await hold.release(), 'released')
    assert.equal(await (await waiting).release(), 'released')
    assert.equal(await other.release(), 'released')
    const term = await session.campaign(name, name)
    await term.proclaim(`${name}!`)
    assert.equal(await term.resign(), 'released')
  }
  for (const name of ['a\0b', 'x'.repeat(65_536), 'é'.repeat(128)]) {
    const asked = [session.acquire(name), session.permit(name, 2), session.campaign(name, 'me'), session.leader(name),
      session.acquire([name, 'x']), session.tryAcquireEach([name, 'x'])]
    await Promise.all(asked.map(one => assert.rejects(one, code('invalid'))))
  }
  assert.ok(neighbour.valid)
  await client.end()
  assert.equal((await sql('SELECT count(*) FROM lock_election.locks WHERE lease = $1', [session.lease]))[0].count, '1')
})

test('an abort at any moment leaves nothing', async () => {
  const session = await open()
  const name = fresh()
  for (let i = 0; i < 60; i++) {
    const controller = new AbortController()
    const acquired = session.acquire(name, { signal: controller.signal }).catch(error => error)
    for (let turns = i % 20; turns > 0; turns--) await new Promise(setImmediate)
    controller.abort()
    const got = await acquired
    if (got instanceof Error) assert.equal(got.name, 'AbortError')
    else assert.equal(await got.release(), 'released')
  }
  await (await session.acquire(name)).release()
  assert.deepEqual(await sql('SELECT 1 FROM lock_election.locks WHERE name = $1', [name]), [])
})

test('await using gives back what a throw leaves', async () => {
  const name = fresh()
  const dispose = Symbol.asyncDispose ?? Symbol.for('nodejs.asyncDispose')
  const session = await open()
  await assert.rejects((async () => {
    const hold = await session.acquire(name)
    try {
      throw new Error('mine')
    } finally {
      await hold[dispose]()
      await hold[dispose]()
    }
  })(), { message: 'mine' })
  assert.notEqual(await session.tryAcquire(name), null)
  await session[dispose]()
  await session[dispose]()
  assert.deepEqual(await sql('SELECT 1 FROM lock_election.locks WHERE name = $1', [name]), [])
})

test('a process that exits with a hold ends at once, and its lock is free after the TTL', async () => {
  const name = fresh()
  const program = run(['--input-type=module', '-e', `
    import { LockElection } from 'lock-election'
    const session = await LockElection.connect({ ttl: 800 })
    await session.acquire(${JSON.stringify(name)})
    session.acquire(${JSON.stringify(name)})
    console.log('held')
    process.exit(3)
  `])
  await program.exits()
  assert.equal(program.code, 3)
  const session = await open()
  await (await session.acquire(name)).release()
})

test('errors of connecting are told at once', async () => {
  await assert.rejects(LockElection.connect({ port: 1, host: '127.0.0.1' }), code('unavailable'))
  await assert.rejects(LockElection.connect({ database: 'nowhere' }), {
    code: 'unavailable', sqlstate: '3D000', message: 'database "nowhere" does not exist'
  })
  await assert.rejects(LockElection.connect({ database: 'template1' }), {
    code: 'not_installed', message: 'lock_election is not installed in database "template1" (CREATE EXTENSION lock_election, or lockctl install for the portable edition)'
  })
  await assert.rejects(LockElection.connect({ user: 'nobody at all' }), code('denied'))
  await assert.rejects(LockElection.connect({ ttl: 1 }), code('invalid'))
  for (const ttl of [NaN, 'x', Infinity, {}]) await assert.rejects(LockElection.connect({ ttl }), code('invalid'))
  for (const connectionString of ['http://', 'postgresql://[', 'postgresql://127.0.0.1:99999/x', 5]) {
    await assert.rejects(LockElection.connect({ connectionString }), code('invalid'))
  }
  await assert.rejects(LockElection.connect({ signal: AbortSignal.abort() }), { name: 'AbortError' })
  const silent = createServer(() => {})
  await once(silent.listen(0, '127.0.0.1'), 'listening')
  const { port } = silent.address()
  const begin = performance.now()
  await assert.rejects(LockElection.connect({ host: '127.0.0.1', port, connectionTimeoutMillis: 200 }), code('unavailable'))
  await assert.rejects(LockElection.connect({ host: '127.0.0.1', port, signal: AbortSignal.timeout(200) }), { name: 'TimeoutError' })
  assert.ok(performance.now() - begin < 4000)
  silent.close()
})

test('a connection string of several hosts, in three shapes', async () => {
  const [{ host, port, user, database }] = [new pg.Client()]
  const params = new URLSearchParams({ host: `/nowhere,${host}`, port: `1,${port}`, user })
  for (const connectionString of [
    `host=/nowhere,${host} port=1,${port} user=${user} dbname='${database}'`,
    `postgresql:///${database}?${params}`,
    `postgresql://${user}@%2Fnowhere:1,${encodeURIComponent(host)}:${port}/${database}`
  ]) {
    const session = await LockElection.connect({ connectionString })
    await session.close()
  }
  const session = await LockElection.connect({ host: `/nowhere,${host}`, port: `1,${port}` })
  await session.close()
})

test('a server that falls silent, and a connection that is half open', async () => {
  const [{ host, port }] = [new pg.Client()]
  const place = host.startsWith('/') ? { path: `${host}/.s.PGSQL.${port}` } : { host, port }
  const pairs = []
  const proxy = createServer(socket => {
    const server = connect(place)
    pairs.push([socket, server])
    for (const one of [socket, server]) one.on('error', () => {})
    socket.pipe(server).pipe(socket)
  })
  await once(proxy.listen(0, '127.0.0.1'), 'listening')
  const session = await open({ host: '127.0.0.1', port: proxy.address().port, ttl: 2000 })
  const hold = await session.acquire(fresh())
  const [socket, server] = pairs[0]
  socket.unpipe(server) // nothing arrives, and nobody says so
  await until(() => pairs.length > 1 && session.state === 'connected' && hold.timeLeft > 1000)
  assert.ok(hold.valid)
  for (const [one, other] of pairs) { one.unpipe(other); other.unpipe(one) }
  await new Promise(resolve => { proxy.close(resolve); for (const pair of pairs) for (const one of pair) one.destroy() })
  const lostAt = await new Promise(resolve => { hold.signal.addEventListener('abort', () => resolve(performance.now())) })
  assert.ok(lostAt > 0)
  assert.equal(session.state, 'ended')
  await session.close({ limit: 100 })
})

// Strings that are wrong, each with a password; nobody listens on port 1.
const wrongStrings = [
  'postgres://u:S3cr3t%ZZ@127.0.0.1:1/db', 'postgres://u:a%S3cr3t@127.0.0.1:1/db', 'postgres//u:S3cr3t@127.0.0.1:1/db',
  'postgres:u:S3cr3t@127.0.0.1:1/db', 'u:S3cr3t@127.0.0.1/db', 'postgres://u:S3cr3t@[::1/db', 'postgres://u:S3cr3t@127.0.0.1:port/db',
  'postgres://u:1/S3cr3t@127.0.0.1:1/db', 'postgres://127.0.0.1:1/S3cr3t@127.0.0.1:1/db', 'postgres://u:1?S3cr3t@127.0.0.1:1/db',
  'postgres://u:1#S3cr3t@127.0.0.1:1/db', 'postgres://a,password=S3cr3t/db', 'postgres://u@127.0.0.1:1/db?password=S3cr3t%ZZ',
  'postgres://u@127.0.0.1:1/db?sslcert=/S3cr3t', 'postgres://127.0.0.1:1/db?host=S3cr3t@127.0.0.1', 'jdbc:postgresql://127.0.0.1:1/db?password=S3cr3t',
  'host=127.0.0.1 port=1 password=my S3cr3t dbname=db', "host=127.0.0.1 port=1 password='S3cr3t dbname=db", 'host=127.0.0.1 port=1 password S3cr3t',
  "host=127.0.0.1 port=1 password='a'S3cr3t", 'host=127.0.0.1,port=1,password=S3cr3t', 'dbname=x,password=S3cr3t', 'dbname=x;password=S3cr3t',
  'user=u,password=S3cr3t', 'Host=127.0.0.1;Port=1;Password=S3cr3t', 'host=127.0.0.1 port=S3cr3t', 'host=postgres://u:S3cr3t@127.0.0.1:1/db'
]

test('no error shows a piece of a connection string that may be a secret', async () => {
  const url = 'postgres://u:S3cr3t@127.0.0.1:1/db'
  const wrongOptions = [
    ...wrongStrings.map(connectionString => ({ connectionString })), { host: url }, { database: url }, { user: url },
    { connectionString: [url] }, { connectionString: new URL(url) }, { password: ['S3cr3t'] }, { host: [url] }, { port: 'S3cr3t' },
    { host: '127.0.0.1', port: 1, password: 'S3cr3t' }
  ]
  for (const options of wrongOptions) {
    await assert.rejects(LockElection.connect(options), error => {
      const shown = inspect(error, { showHidden: true, depth: 9 }) + JSON.stringify(error) + String(error.cause) + error.stack
      assert.doesNotMatch(shown, /S3cr3t/)
      assert.ok(error instanceof LockElectionError)
      const strange = typeof options.connectionString !== 'string' || !/%|password=S3cr3t%ZZ/.test(options.connectionString)
      assert.ok(error.code === 'invalid' || error.code === 'unavailable', `${error}`)
      assert.ok(error.code === 'invalid' || !strange || options.password === 'S3cr3t', `${inspect(options)}: ${error}`)
      return true
    })
  }
})

test('a connection target in the environment that is a whole connection string is not shown', async () => {
  for (const name of ['PGHOST', 'PGDATABASE', 'PGUSER']) {
    const program = run(['--input-type=module', '-e', `
      import { LockElection } from 'lock-election'
      await LockElection.connect()
    `], { env: { ...process.env, [name]: 'postgres://u:S3cr3t@127.0.0.1:1/db' } })
    await program.exits()
    assert.equal(program.code, 1)
    assert.match(program.lines.join(' '), /not a whole connection string/)
    assert.doesNotMatch(program.lines.join(' '), /S3cr3t/)
  }
})

test('hundreds of calls on one signal print no warning, and leave no listener', async () => {
  const session = await open()
  const warnings = []
  const warned = warning => warnings.push(String(warning))
  process.on('warning', warned)
  const controller = new AbortController()
  const { signal } = controller
  const [name, free] = [fresh(), fresh()]
  const hold = await session.acquire(name)
  const waiting = Array.from({ length: 200 }, () => assert.rejects(session.acquire(name, { signal }), { name: 'AbortError' }))
  const observing = Array.from({ length: 20 }, () => session.observe(name, { signal }).next())
  const connecting = Array.from({ length: 20 }, () => open({ signal }))
  await Promise.all([...observing, ...connecting])
  assert.equal(getEventListeners(signal, 'abort').length, 1)
  for (let i = 0; i < 20; i++) await (await session.acquire(free, { signal })).release()
  // of the library's own, which applications hand on
  for (let i = 0; i < 200; i++) hold.signal.addEventListener('abort', () => {})
  controller.abort()
  await Promise.all(waiting)
  await sleep(0) // warnings come in the next round
  const again = new AbortController()
  await (await session.acquire(free, { signal: again.signal })).release()
  assert.equal(getEventListeners(again.signal, 'abort').length, 0)
  process.off('warning', warned)
  assert.deepEqual(warnings, [])
})

// A program without close, whose main ends; what it has printed, and whether its lock is free after it.
async function withoutClose (body, ...flags) {
  const name = fresh()
  const program = run([...flags, '--input-type=module', '-e', `
    import { LockElection } from 'lock-election'
    const name = ${JSON.stringify(name)}
    const session = await LockElection.connect({ ttl: 60_000 })
    const hold = await session.acquire(name)
    ${body}
  `])
  return { program, isFree: async () => (await sql('SELECT 1 FROM lock_election.locks WHERE name = $1', [name])).length === 0 }
}

test('a process whose main ends without close gives back what it holds', async () => {
  for (const body of [
    '', 'await hold.signal.aborted', "session.campaign('goodbye', 'me')", 'process.exitCode = 0',
    "await session.once('goodbye job', {}, () => {})", 'setTimeout(() => {}, 100)',
    "import('node:child_process').then(({ execFile }) => execFile('sleep', ['0.1']).on('exit', () => {}))",
    "import('node:worker_threads').then(({ Worker }) => new Worker('0', { eval: true }))"
  ]) {
    const { program, isFree } = await withoutClose(body)
    await program.exits()
    assert.deepEqual([program.code, program.lines], [0, []], body)
    assert.equal(await isFree(), true, body)
  }
})

test('there is no goodbye while code can still work under the lock', async () => {
  const sleeper = "const child = (await import('node:child_process')).spawn('sleep', ['60'], { detached: true, stdio: 'ignore' }); child.unref()"
  for (const [what, body] of Object.entries({
    'a child that is alive and does not keep the process': `${sleeper}; process.on('exit', () => child.kill())`,
    'a worker likewise': "new (await import('node:worker_threads')).Worker('setInterval(() => {}, 1000)', { eval: true }).unref()",
    'code that waits to hear of the loss': "hold.signal.addEventListener('abort', () => {})",
    'a call that waits': 'session.acquire(name)',
    'a function that runs': "session.using(name + ' 2', () => new Promise(() => {}))",
    'an election': "session.elect(name, 'me')",
    'an observer': 'session.observe(name).next().then(() => session.observe(name).next())',
    'a listener of beforeExit that works': `let i = 0
      process.on('beforeExit', () => { if (i++ < 40) setTimeout(() => { if (hold.valid) console.log('works') }, 50) })`
  })) {
    const { program, isFree } = await withoutClose(`${body}\nprocess.once('beforeExit', () => console.log('empty')); setTimeout(() => console.log('ready'), 50)`)
    await program.prints(/ready/)
    await sleep(1500) // the time that is tested: of more than one look
    assert.equal(program.code, undefined, `${what}: ${program.lines}`)
    assert.equal(await isFree(), false, what)
    if (/^a listener of beforeExit/.test(what)) {
      await program.exits()
      assert.equal(program.lines.filter(line => line === 'works').length, 40)
      assert.equal(await isFree(), true, what)
    } else {
      program.child.kill('SIGTERM')
      await program.exits()
      assert.equal(await isFree(), false, what)
    }
  }
})

test('a child that ends later lets the process go', async () => {
  const { program, isFree } = await withoutClose(`
    const child = (await import('node:child_process')).spawn('sleep', ['0.5'], { stdio: 'ignore' })
    child.unref()
  `)
  await program.exits()
  assert.deepEqual([program.code, await isFree()], [0, true])
})

test('process.exit, an uncaught exception and a signal give nothing back: work may be under way', async () => {
  for (const body of ['process.exit(0)', "setTimeout(() => { throw new Error('mine') })", "setTimeout(() => process.kill(process.pid, 'SIGTERM'), 50)"]) {
    const { program, isFree } = await withoutClose(`${body}\nawait new Promise(resolve => setTimeout(resolve, 5000))`)
    await program.exits()
    assert.equal(await isFree(), false, body)
  }
})

test('a worker thread says no goodbye: nobody there knows what the other threads do', async () => {
  const name = fresh()
  const program = run(['--input-type=module', '-e', `
    import { Worker } from 'node:worker_threads'
    const worker = new Worker(new URL('data:text/javascript,' + encodeURIComponent(\`
      import { LockElection } from '${new URL('../dist/esm/index.js', import.meta.url)}'
      const session = await LockElection.connect({ ttl: 60_000 })
      await session.acquire(${JSON.stringify(name)})
      console.log('held')
    \`)))
    worker.on('exit', () => console.log('over'))
  `])
  await program.prints(/held/)
  await sleep(1500) // the time that is tested: of more than one look
  assert.deepEqual(program.lines, ['held'])
  program.child.kill('SIGKILL')
  await program.exits()
  assert.equal((await sql('SELECT 1 FROM lock_election.locks WHERE name = $1', [name])).length, 1)
})

test('nothing keeps the process after close, and close gives all back', async () => {
  const name = fresh()
  const program = run(['--input-type=module', '-e', `
    import { LockElection } from 'lock-election'
    const session = await LockElection.connect({ ttl: 60_000 })
    const hold = await session.acquire(${JSON.stringify(name)})
    session.acquire(hold.names[0]).catch(error => console.log(error.code))
    session.elect('closing', 'me')
    const observing = session.observe('closing').next()
    await observing
    await session.close()
    console.log(process.getActiveResourcesInfo().filter(kind => !/Pipe|TTY|Shutdown/.test(kind)).join())
  `])
  await program.exits()
  assert.deepEqual([program.code, program.lines.sort()], [0, ['', 'canceled']])
  assert.deepEqual(await sql('SELECT 1 FROM lock_election.locks WHERE name = $1', [name]), [])
})

test('a process that was stopped past its TTL tells the loss before its next line', async () => {
  const name = fresh()
  const program = run(['--input-type=module', '-e', `
    import { LockElection } from 'lock-election'
    const session = await LockElection.connect({ ttl: 1000 })
    const hold = await session.acquire(${JSON.stringify(name)})
    console.log('held')
    let before = performance.now()
    for (;;) {
      await new Promise(resolve => setTimeout(resolve, 20))
      if (performance.now() - before > 300) break // the first line after the stop
      before = performance.now()
    }
    console.log(hold.valid, hold.signal.aborted, session.state)
    await session.close()
  `])
  await program.prints(/held/)
  const other = await open()
  const waiting = other.acquire(name)
  program.child.kill('SIGSTOP')
  const next = await waiting
  program.child.kill('SIGCONT')
  await program.prints(/false true ended/)
  assert.ok(next.valid)
})

test('the README is right, and the quick start', async () => {
  const text = (await readFile(`${root}README.md`, 'utf8')) + (await readFile(`${root}../../docs/quick-start.md`, 'utf8'))
  const blocks = [...text.matchAll(/^```js\n(.*?)^```/gms)].map(([, block]) => block)
  assert.ok(blocks.length >= 5)
  for (const block of blocks) {
    const program = run(['--input-type=module', '-e', block])
    if (/SIGTERM/.test(block)) {
      await program.prints(/works/)
      program.child.kill('SIGTERM')
    }
    await program.exits()
    assert.equal(program.code, 0, program.lines.join('\n'))
  }
})

test('the handler of SIGTERM in the README stops the work, and then gives the lock back', async () => {
  const text = await readFile(`${root}README.md`, 'utf8')
  const [block] = [...text.matchAll(/^```js\n(.*?)^```/gms)].map(([, block]) => block).filter(block => /SIGTERM/.test(block))
  const program = run(['--input-type=module', '-e', block])
  await program.prints(/works/)
  const session = await open()
  assert.equal(await session.tryAcquire('reports'), null)
  const waiting = session.acquire('reports').then(hold => { program.lines.push('granted'); return hold })
  await until(async () => (await sql("SELECT 1 FROM lock_election.waiters WHERE name = 'reports'")).length > 0)
  program.child.kill('SIGTERM')
  await (await waiting).release()
  await program.exits()
  assert.equal(program.code, 0, program.lines.join('\n'))
  assert.deepEqual(program.lines.filter(line => line !== 'works'), ['has stopped', 'granted'])
})
