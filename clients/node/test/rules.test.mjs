// The rules of docs/reference/client-protocol.md, with a clock that is moved by hand and a server that does as it is told.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import { LockElection } from '../dist/esm/index.js'
import { fail, settle, start } from './fake.mjs'

setFlagsFromString('--expose-gc')
const gc = runInNewContext('gc')
const code = expected => error => error.code === expected

test('3.1 the deadline counts from the sending of the last renewal that was answered', async () => {
  const { time, server, session } = await start()
  const hold = await session.acquire('x')
  assert.equal(hold.timeLeft, 29_000)
  server.plan(/keep_alive/, 5000)
  await time.pass(9000)
  assert.equal(server.sent(/keep_alive/).length, 0)
  await time.pass(11_500 - 9000) // sent between 9 and 11 s
  assert.equal(server.sent(/keep_alive/).length, 1)
  assert.ok(hold.timeLeft <= 18_000, 'no answer yet')
  await time.pass(5000)
  assert.ok(hold.timeLeft > 21_500 && hold.timeLeft <= 29_000 - 5000 + 1, `${hold.timeLeft}`)
})

test('3.1, 4.1 a renewal counts for the validity that it returned, and the next one comes a third of that later', async () => {
  const { time, server, session } = await start({ validity: 9000 })
  const hold = await session.acquire('x')
  await time.pass(11_100) // renewed between 9 and 11 s
  assert.equal(server.sent(/keep_alive/).length, 1)
  assert.equal(hold.timeLeft, 29_000 - 11_100, 'what the grant has promised stands')
  await time.pass(27_000 - 11_100)
  const renewals = server.sent(/keep_alive/).length
  assert.ok(renewals >= 5 && renewals <= 8, `${renewals} renewals, one each 2.7 to 3.3 s`)
  assert.ok(hold.timeLeft >= 9000 - 1000 - 3300 && hold.timeLeft <= 8000, `${hold.timeLeft}`)
  server.down = true
  server.cut()
  await time.pass(hold.timeLeft - 1)
  assert.equal(hold.valid, true)
  await time.pass(1)
  assert.equal(hold.valid, false)
})

test('3.1, 4.1 a validity of nothing takes nothing back, and makes nobody renew without a pause', async () => {
  const { time, server, session } = await start({ validity: 0 })
  const hold = await session.acquire('x')
  await time.pass(28_900)
  assert.equal(hold.valid, true)
  const renewals = server.sent(/keep_alive/).length
  assert.ok(renewals >= 15 && renewals <= 24, `${renewals}`)
  server.validity = undefined
  await time.pass(60_000)
  assert.equal(hold.valid, false)
  await session.reopen()
  const again = await session.acquire('x')
  server.validity = 1e9
  await time.pass(12_000)
  assert.ok(again.timeLeft <= 29_000, 'never more than the TTL')
  await time.pass(120_000)
  assert.equal(again.valid, true)
})

// Runs some of the timers that are due, in their order, before the others.
async function fire (time, which) {
  for (const timer of [...time.timers].filter(which).sort((a, b) => a.at - b.at)) {
    time.timers.delete(timer)
    timer.fn()
    await settle()
  }
}

test('3.2 a renewal that is answered after the deadline is too late', async () => {
  const { time, server, session, states } = await start({ ttl: 1000 })
  const hold = await session.acquire('x')
  server.plan(/keep_alive/, 20)
  time.block(900)
  await time.pass(0) // sent at 900, and answered at 920; the deadline is at 950
  assert.equal(server.sent(/keep_alive/).length, 1)
  time.block(60)
  await fire(time, timer => timer.at === 920)
  assert.deepEqual(states, ['connected', 'ended'])
  assert.equal(hold.valid, false)
})

test('4.2 an answer that came while the loop of events was blocked counts', async () => {
  const { time, server, session } = await start()
  server.plan(/enqueue_each/, 10)
  const acquired = session.acquire('x')
  await settle()
  time.block(8000)
  await fire(time, timer => timer.at === 7500)
  await time.pass(0)
  assert.equal((await acquired).valid, true)
  assert.equal(server.sent(/^connect/).length, 1)
})

test('3.3 a wall clock that is set forward, or that counted a suspend, loses; one that is set back does not', async () => {
  for (const [jump, valid] of [[-3_600_000, true], [28_000, true], [29_000, false], [3_600_000, false]]) {
    const { time, session } = await start()
    const hold = await session.acquire('x')
    time.offset += jump
    assert.equal(hold.valid, valid, `${jump}`)
  }
  const { time, session } = await start()
  const hold = await session.acquire('x')
  time.offset -= 3_600_000
  time.block(29_000)
  assert.equal(hold.valid, false)
})

test('3.4 after a blocked loop of events valid, signal and calls tell the loss at once', async () => {
  for (const look of [
    hold => assert.equal(hold.valid, false),
    hold => assert.equal(hold.timeLeft, 0),
    hold => assert.equal(hold.signal.aborted, true),
    hold => assert.equal(hold.signal.reason.code, 'lost'),
    hold => assert.throws(() => { hold.signal.throwIfAborted() }, code('lost')),
    (hold, session) => assert.equal(session.state, 'ended')
  ]) {
    const { time, session, server } = await start()
    const hold = await session.acquire('x')
    let told = 0
    hold.signal.addEventListener('abort', () => { told++ })
    assert.equal(hold.signal.aborted, false)
    hold.signal.throwIfAborted()
    time.block(29_000)
    look(hold, session)
    assert.equal(told, 1)
    assert.equal(hold.signal.aborted, true)
    await assert.rejects(hold.fence({ query: () => assert.fail('asked the server') }), code('lost'))
    const before = server.log.length
    assert.equal(await hold.release(), 'lost')
    await assert.rejects(session.acquire('y'), code('lost'))
    assert.equal(server.log.length, before)
    await time.pass(60_000)
    assert.equal(told, 1)
  }
})

test('3.5 the end is told at the deadline, whatever the network does', async () => {
  const { time, server, session, states } = await start({ ttl: 3000 })
  const hold = await session.acquire('x')
  const waiter = session.acquire('x')
  const refused = assert.rejects(waiter, code('lost'))
  await time.pass(500)
  server.down = true
  server.cut()
  const left = hold.timeLeft
  await time.pass(left - 1)
  assert.equal(hold.valid, true)
  assert.deepEqual(states, ['connected', 'suspended'])
  let at = -1
  hold.signal.addEventListener('abort', () => { at = time.now; assert.deepEqual(states, ['connected', 'suspended']) })
  const due = time.now + hold.timeLeft
  await time.pass(10)
  assert.equal(at, due)
  await refused
  assert.deepEqual(states, ['connected', 'suspended', 'ended'])
})

test('4.2, 4.3 without an answer the connection is given up after a quarter of the TTL, and made again', async () => {
  const { time, server, session, states } = await start({ ttl: 4000 })
  const hold = await session.acquire('x')
  server.plan(/keep_alive/, 'hang')
  await time.pass(1470)
  assert.equal(server.sent(/^connect/).length, 1)
  await time.pass(1000)
  assert.equal(server.sent(/^connect/).length, 2)
  assert.equal(hold.valid, true)
  assert.deepEqual(states, ['connected', 'suspended', 'connected'])
  server.down = true
  server.cut()
  await time.pass(1000) // 0, 50, 100, 200, 200 ... give or take a tenth
  assert.ok([6, 7].includes(server.sent(/^connect/).length - 2), `${server.sent(/^connect/).length}`)
  server.down = false
  await time.pass(250)
  assert.equal(states.at(-1), 'connected')
  assert.equal(hold.valid, true)
})

test('4.4, 4.5 a lease that the server has ended, and a hold that was released by force', async () => {
  const { time, server, session } = await start()
  const one = await session.acquire('one')
  const two = await session.acquire('two')
  server.remove(place => place.name === 'one')
  await time.pass(11_100)
  assert.deepEqual([one.valid, two.valid], [false, true])
  server.leases.clear()
  server.places = []
  await time.pass(11_100)
  assert.equal(two.valid, false)
  assert.equal(session.state, 'ended')
  await session.reopen()
  assert.equal(session.state, 'connected')
  assert.equal((await session.acquire('two')).valid, true)
  assert.deepEqual([one.valid, two.valid], [false, false])
})

test('1.4 requests travel together, and those of a statement that was refused alone', async () => {
  const { server, session } = await start()
  const names = Array.from({ length: 300 }, (_, i) => `n${i}`)
  const holds = await Promise.all(names.map(name => session.acquire(name)))
  assert.equal(server.sent(/enqueue_each/).length, 3)
  await Promise.all(holds.map(hold => hold.release()))
  assert.equal(server.sent(/release_each/).length, 3)
  assert.equal(server.places.length, 0)

  const [good, bad, other] = await Promise.allSettled([session.acquire('good'), session.acquire(''), session.acquire('other')])
  assert.equal(bad.reason.code, 'invalid')
  assert.equal(bad.reason.sqlstate, '22023')
  assert.ok(good.value.valid && other.value.valid)
})

test('1.5 each statement has an owner of its own, so holds of one session exclude each other', async () => {
  const { server, session } = await start()
  await session.acquire('x')
  await assert.rejects(session.acquire('x', { wait: 0 }), code('not_acquired'))
  await Promise.all([session.acquire('y'), session.acquire('z')])
  const owners = server.places.map(place => place.owner)
  assert.match(owners[0], /^test#[0-9a-f]{16}-1$/)
  assert.equal(new Set(owners).size, 2)
})

test('5.2 a wait that is shorter than a round trip acquires what is free, and leaves no place in the queue', async () => {
  const { time, server, session } = await start()
  for (const wait of [1, 20, 7000]) {
    for (let i = 0; i < 2; i++) server.plan(/enqueue_each/, 50)
    const first = session.acquire(`n${wait}`, { wait })
    await time.pass(60)
    assert.equal((await first).valid, true, `${wait}`)
    const second = assert.rejects(session.acquire(`n${wait}`, { wait }), { code: 'not_acquired', message: /was not granted in time/ })
    await time.pass(49)
    assert.equal(server.sent(/release_each/).length, 0)
    await time.pass(wait)
    await second
    assert.equal(server.places.length, 1, `${wait}`)
    assert.equal(await (await first).release(), 'released')
    server.log = []
  }
})

test('5.2, 5.3 a short wait whose first answer never comes ends with the limit of a call, and leaves nothing', async () => {
  const { time, server, session } = await start()
  server.plan(/enqueue_each/, 'hang')
  let ended = -1
  const waiting = session.acquire('x', { wait: 10 }).catch(error => { ended = time.now; return error })
  await time.pass(7499)
  assert.equal(ended, -1)
  server.down = true
  await time.pass(2)
  assert.equal((await waiting).code, 'not_acquired')
  assert.equal(ended, 7500)
  assert.equal(server.places.length, 1)
  server.down = false
  await time.pass(8000)
  assert.equal(server.places.length, 0)
  for (let i = 0; i < 9; i++) server.plan(/enqueue_each/, fail('55P03'))
  const refused = session.acquire('x', { wait: 10 }).catch(error => error)
  await time.pass(500)
  assert.equal((await refused).sqlstate, '55P03', 'that is the first answer')
})

test('5.3 a wait that is given up gives its place back', async () => {
  const { time, server, session } = await start()
  const hold = await session.acquire('x')
  const controller = new AbortController()
  const canceled = assert.rejects(session.acquire('x', { signal: controller.signal }), error => error === controller.signal.reason)
  const limited = assert.rejects(session.acquire('x', { wait: 500 }), code('not_acquired'))
  await settle()
  assert.equal(server.places.length, 3)
  controller.abort()
  await canceled
  await time.pass(500)
  await limited
  assert.equal(server.places.length, 1)
  assert.equal(hold.valid, true)
  await assert.rejects(session.acquire('y', { signal: AbortSignal.abort() }), { name: 'AbortError' })
})

test('5.3 a grant that comes with the cancel is given back', async () => {
  const { time, server, session } = await start()
  const controller = new AbortController()
  server.plan(/enqueue_each/, 100)
  const canceled = assert.rejects(session.acquire('x', { signal: controller.signal }))
  await time.pass(50)
  assert.equal(server.places.length, 1)
  controller.abort()
  await canceled
  await time.pass(60)
  assert.equal(server.places.length, 0)
})

test('6.1, 6.3 a waiter listens, a notification is a hint, and nobody listens in vain', async () => {
  const { time, server, session } = await start()
  const hold = await session.acquire('x')
  let granted
  const waiting = session.acquire('x').then(hold => { granted = hold })
  await time.pass(10)
  const [wire] = server.wires
  assert.ok(wire.channels.has('c_x'))
  const place = server.places[1]
  wire.events.notified('c_x', `{"token":"${place.token}"}`)
  await time.pass(10)
  assert.equal(granted, undefined)
  await hold.release()
  await time.pass(1)
  await waiting
  assert.equal(granted.token, BigInt(place.token))
  await time.pass(10)
  assert.deepEqual([...wire.channels], [])
})

test('6.1 a grant between the place and LISTEN, and one that is announced before its place is told, are seen', async () => {
  const { time, server, session } = await start()
  const first = await session.acquire('x')
  server.plan(/enqueue_each/, 100)
  const second = session.acquire('x')
  await time.pass(50)
  server.remove(place => place.token === String(first.token))
  await time.pass(60)
  assert.equal((await second).valid, true)

  const third = session.acquire('x')
  await time.pass(10)
  server.plan(/enqueue_each/, 100)
  const fourth = session.acquire('x')
  await time.pass(50)
  server.remove(place => place.token !== server.places.at(-1).token)
  await time.pass(60)
  assert.equal((await fourth).valid, true)
  await assert.rejects(Promise.race([third, time.pass(12_000).then(() => { throw new Error('waits') })]), code('lost'))
})

test('6.2 where LISTEN does not work the session looks four times a second', async () => {
  for (const settings of [{ hears: false }, { pooled: true }, { notify: 'elections' }]) {
    const { time, server, session } = await start(settings)
    const hold = await session.acquire('x')
    const second = session.acquire('x')
    await time.pass(1000)
    server.remove(place => place.token === String(hold.token))
    await time.pass(300)
    assert.equal((await second).valid, true, JSON.stringify(settings))
    assert.ok(server.sent(/lease_holds/).length >= 3)
  }
})

test('6.2 where LISTEN is refused the session looks four times a second, on the same connection', async () => {
  for (const refused of [/^LISTEN le_self/, /^LISTEN c_x/]) {
    const { time, server, session } = await start()
    for (let i = 0; i < 9; i++) server.plan(refused, fail('0A000'))
    const hold = await session.acquire('x')
    const second = session.acquire('x')
    await time.pass(1000)
    server.remove(place => place.token === String(hold.token))
    await time.pass(300)
    assert.equal((await second).valid, true, String(refused))
    assert.equal(server.sent(refused).length, 1)
    assert.equal(server.sent(/^connect/).length, 1)
  }
})

test('7.2 the old backend is ended before the look, whatever passes meanwhile', async () => {
  const { time, server, session } = await start()
  server.plan(/enqueue_each/, 'drop')
  server.plan(/terminate/, fail('55P03'))
  server.plan(/terminate/, fail('57014'))
  const acquired = session.acquire('x')
  await time.pass(1000)
  await acquired
  const order = server.log.map(text => /terminate|lease_holds/.exec(text)?.[0]).filter(Boolean)
  assert.deepEqual(order, ['terminate', 'terminate', 'terminate', 'terminate', 'lease_holds'])
})

test('7.1, 7.3 a lost answer: the old backend is ended, then the row is adopted', async () => {
  for (const what of ['lose', 'hang']) {
    const { time, server, session } = await start()
    const old = String(server.pid)
    server.plan(/enqueue_each/, what)
    const acquired = session.acquire('x')
    await time.pass(8000)
    const hold = await acquired
    assert.equal(hold.token, BigInt(server.places[0].token))
    assert.equal(server.places.length, 1)
    assert.ok(!server.backends.has(old))
    const order = server.log.filter(text => /terminate|lease_holds|keep_alive|enqueue/.test(text)).map(text => /terminate|lease_holds|keep_alive|enqueue/.exec(text)[0])
    assert.deepEqual(order, ['enqueue', 'keep_alive', 'terminate', 'terminate', 'lease_holds'])
  }
})

test('7.3 what was not done is asked for again, in its old order', async () => {
  const { time, server, session } = await start()
  server.plan(/enqueue_each/, 'drop')
  const one = session.acquire('x')
  const two = session.acquire('x')
  await time.pass(100)
  const first = await one
  assert.equal(server.places.length, 2)
  assert.equal(first.token, BigInt(server.places[0].token))
  await first.release()
  await time.pass(1)
  assert.equal((await two).valid, true)
})

test('7.3 what nobody wants any more is given back', async () => {
  const { time, server, session } = await start()
  const controller = new AbortController()
  server.plan(/enqueue_each/, 'hang')
  const canceled = assert.rejects(session.acquire('x', { signal: controller.signal }))
  await time.pass(100)
  controller.abort()
  await canceled
  assert.equal(server.places.length, 1)
  await time.pass(8000)
  assert.equal(server.places.length, 0)
})

test('7.3 a row of this session that no request knows is a ghost; rows of others are not', async () => {
  const { time, server, session } = await start()
  const hold = await session.acquire('x')
  const [{ owner, lease }] = server.places
  server.take('ghost', owner.replace(/\d+$/, '77'), lease)
  server.take('mine', 'somebody', lease)
  server.cut()
  await time.pass(100)
  assert.deepEqual(server.places.map(place => place.name), ['x', 'mine'])
  assert.equal(hold.valid, true)
})

test('7.2 behind a pooler it looks again, for what comes late', async () => {
  const { time, server, session } = await start({ pooled: true })
  server.plan(/enqueue_each/, 'drop')
  const acquired = session.acquire('x')
  await time.pass(100)
  await acquired
  const [{ lease }] = server.places
  server.take('x', server.places[0].owner.replace(/\d+$/, '1'), lease)
  assert.equal(server.places.length, 2)
  await time.pass(8300)
  assert.equal(server.places.length, 1)
  assert.equal(server.sent(/terminate/).length, 0)
})

test('7.5, 9.2 a release without an answer is sent again, and never fails', async () => {
  const { time, server, session } = await start()
  const hold = await session.acquire('x')
  server.plan(/release_each/, 'lose')
  const released = hold.release()
  assert.equal(hold.valid, false)
  await time.pass(100)
  assert.equal(await released, 'released')
  assert.equal(server.places.length, 0)

  const other = await session.acquire('y')
  server.down = true
  server.cut()
  const unknown = other.release()
  await time.pass(7600)
  assert.equal(await unknown, 'unknown')
  server.down = false
  await time.pass(1200)
  assert.equal(server.places.length, 0)
})

test('5.1 an attempt without an answer is unavailable, and what it has acquired is given back', async () => {
  const { time, server, session } = await start()
  server.plan(/try_acquire_each/, 'hang')
  const tried = assert.rejects(session.acquire('x', { wait: 0 }), code('unavailable'))
  await time.pass(7500)
  await tried
  await time.pass(1000)
  assert.equal(server.places.length, 0)
  assert.equal(session.state, 'connected')
})

test('8.1 errors: to the caller, later, or another connection', async () => {
  const { time, server, session } = await start()
  for (const [sqlstate, expected] of [
    ['40P01', 'deadlock'], ['53400', 'limit'], ['42501', 'denied'], ['22023', 'invalid'], ['55000', 'not_installed'], ['0A000', 'failed']
  ]) {
    server.plan(/enqueue_each/, fail(sqlstate))
    await assert.rejects(session.acquire('x'), error => error.code === expected && error.sqlstate === sqlstate, sqlstate)
  }
  for (const sqlstate of ['55P03', '58030', '40001', 'XX000', '57014', '57P01', '08006', '25006', '53300']) {
    server.plan(/enqueue_each/, fail(sqlstate))
    const acquired = session.acquire(sqlstate)
    await time.pass(300)
    assert.equal((await acquired).valid, true, sqlstate)
  }
  server.plan(/enqueue_each/, fail('LE001'))
  const before = server.sent(/keep_alive/).length
  await assert.rejects(session.acquire('y'), code('lost'))
  await settle()
  assert.equal(server.sent(/keep_alive/).length, before + 1)
})

test('8.1 a statement that does not find the schema is sent again with its new name, each kind of it', async () => {
  const { time, server, session } = await start()
  const hold = await session.acquire('x')
  let version = 1
  const rename = () => { server.schema = `le${++version}` }
  rename()
  const other = await session.acquire('y')
  rename()
  assert.equal((await session.tryAcquire('z')).valid, true)
  const waiting = session.acquire('x')
  await settle()
  rename()
  await time.pass(12_000) // a renewal, which finds it, and the look after it
  assert.equal(hold.valid && other.valid, true)
  rename()
  await hold.release()
  assert.equal((await waiting).valid, true)
  rename()
  await session.acquire('short', { ttl: 1000 })
  assert.equal(session.state, 'connected')
  assert.equal(server.sent(/^connect/).length, 1)
  rename()
  await session.close()
  assert.equal(server.leases.size, 0)
})

test('8.1, 8.2 where the extension is not there any more callers are told, and renewals go on until it is or the deadline', async () => {
  for (const missing of ['42883', '3F000']) {
    const { time, server, session, states } = await start()
    const hold = await session.acquire('x')
    for (let i = 0; i < 2; i++) server.plan(/enqueue_each/, fail(missing))
    await assert.rejects(session.acquire('y'), { code: 'not_installed', sqlstate: missing, message: /CREATE EXTENSION/ })
    server.schema = null
    await assert.rejects(session.acquire('y'), {
      code: 'not_installed', message: 'lock_election is not installed in database "app" (CREATE EXTENSION lock_election)'
    })
    await time.pass(12_000)
    assert.deepEqual([hold.valid, states.at(-1)], [true, 'suspended'])
    // made again, elsewhere, and without the lease
    server.leases.clear()
    server.places = []
    server.schema = 'le2'
    await time.pass(1500)
    assert.deepEqual([hold.valid, hold.signal.reason.message, session.state], [false, 'the server has ended the lease', 'ended'])
    await session.reopen()
    assert.equal((await session.acquire('x')).valid, true)
  }
})

test('8.1, 11.1 a fence that does not find the schema says what to do, and the next one finds it', async () => {
  const { server, session } = await start()
  const hold = await session.acquire('x')
  const asked = []
  const client = {
    query: async text => {
      asked.push(/\ble\d*\b/.exec(text)[0])
      if (asked.at(-1) !== server.schema) throw fail('3F000', 'schema "le" does not exist')
      return { rows: [{ open: 'true' }] }
    }
  }
  server.schema = 'le2'
  await assert.rejects(hold.fence(client), {
    code: 'unavailable', sqlstate: '3F000', message: 'the schema of lock_election has a new name: roll back, and begin again'
  })
  await hold.fence(client)
  assert.deepEqual(asked, ['le', 'le2'])
  server.schema = null
  await assert.rejects(hold.fence(client), code('not_installed'))
  server.schema = 'le2'
  await assert.rejects(hold.fence({ query: async () => { throw fail('42883') } }), { code: 'not_installed', sqlstate: '42883' })
  assert.equal(hold.valid, true)
})

test('8.2 an error on opening is told at once', async () => {
  await assert.rejects(start({ down: true }), code('unavailable'))
  await assert.rejects(start({ standby: true }), code('unavailable'))
})

test('13.1 a standby is passed over, and so is a host that does not answer', async () => {
  const { servers: [first, second], session, time } = await start({ servers: 2 })
  const hold = await session.acquire('x')
  first.standby = true
  second.leases = first.leases
  second.places = first.places
  first.cut()
  await time.pass(100)
  assert.equal(session.state, 'connected')
  assert.equal(second.sent(/keep_alive/).length, 1)
  assert.equal(hold.valid, true)
})

test('1.6 a TTL of its own has a lease of its own, which ends alone', async () => {
  const { time, server, session } = await start()
  const long = await session.acquire('long')
  const short = await session.acquire('short', { ttl: 1000 })
  assert.equal(short.timeLeft, 950)
  await time.pass(5000)
  assert.equal(short.valid, true)
  server.plan(/keep_alive/, fail('55P03'))
  time.block(950)
  assert.deepEqual([short.valid, long.valid, session.state], [false, true, 'connected'])
  const again = await session.acquire('other', { ttl: 1000 })
  assert.equal(await again.release(), 'released')
  await time.pass(1000)
  assert.equal(server.sent(/revoke_lease/).length, 1) // nothing hangs on it any more
})

test('10.2 a hold is told lost once, and not after it was released', async () => {
  const { time, server, session } = await start({ ttl: 1000 })
  let told = 0
  const released = await session.acquire('x')
  const lost = await session.acquire('y')
  for (const hold of [released, lost]) hold.signal.addEventListener('abort', () => { told++ })
  await released.release()
  server.down = true
  server.cut()
  await time.pass(5000)
  assert.equal(told, 1)
  assert.equal(released.signal.aborted, false)
})

test('14.3 close ends the waits, gives all back, revokes the lease and leaves no timer', async () => {
  const { time, server, session } = await start()
  const hold = await session.acquire('x')
  const waiting = assert.rejects(session.acquire('x'), code('canceled'))
  const other = await session.acquire('y', { ttl: 5000 })
  const closing = session.close()
  await time.pass(10)
  await closing
  await waiting
  assert.deepEqual([hold.valid, other.valid, hold.signal.reason.code], [false, false, 'lost'])
  assert.deepEqual([server.leases.size, server.places.length, server.wires.size, time.timers.size], [0, 0, 0, 0])
  await assert.rejects(session.acquire('x'), code('canceled'))
  await session.close()
})

test('14.3 close takes no longer than its limit, without an answer and without a server', async () => {
  for (const trouble of [server => server.plan(/revoke_lease/, 'hang'), server => { server.down = true; server.cut() }]) {
    const { time, server, session } = await start()
    await session.acquire('x')
    trouble(server)
    let closed = false
    const closing = session.close({ limit: 1000 }).then(() => { closed = true })
    await time.pass(999)
    assert.equal(closed, false)
    await time.pass(1)
    await closing
    assert.deepEqual([server.wires.size, time.timers.size], [0, 0])
  }
})

test('a TTL that the server refuses shortens no other call', async () => {
  const { time, server, session, engine } = await start()
  const limit = engine.callLimit()
  server.plan(/grant_lease/, Object.assign(fail('22023', 'ttl is out of range'), { detail: 'It is an interval.' }))
  await assert.rejects(session.acquire('x', { ttl: 150 }), { code: 'invalid', message: 'ttl is out of range (It is an interval.)' })
  assert.equal(engine.callLimit(), limit)
  server.plan(/grant_lease/, 'hang')
  const controller = new AbortController()
  const canceled = assert.rejects(session.acquire('x', { ttl: 500, signal: controller.signal }))
  await time.pass(10)
  controller.abort()
  await canceled
  await time.pass(11_000)
  assert.equal(engine.callLimit(), limit)
  assert.equal(session.state, 'connected')
})

test('arguments of no sense are refused before anything is asked for', async () => {
  const { server, session } = await start()
  const sent = server.log.length
  for (const names of [undefined, null, 5, {}, ['x', null], [Symbol('x')]]) {
    await assert.rejects(session.acquire(names), code('invalid'))
    await assert.rejects(session.campaign(names, 'me'), code('invalid'))
  }
  await assert.rejects(session.using('x'), code('invalid'))
  await assert.rejects(session.using('x', {}, 'no function'), code('invalid'))
  await assert.rejects(session.once('x', {}), code('invalid'))
  assert.equal(server.log.length, sent)
  const hold = await session.acquire('x', { ttl: null, wait: null })
  for (const client of [undefined, null, {}]) await assert.rejects(hold.fence(client), code('invalid'))
  assert.equal(await hold.release(null), 'released')
  const again = await session.acquire('x', { wait: Infinity, shared: null, signal: null })
  assert.equal(await again.release({ holdFor: null }), 'released')
  await session.close(null)
})

// What comes, and how messages have it.
class Duration { total () { return 500 } }
const notNumbers = [
  ['500ms', 'the string "500ms"; a duration is a number, such as 500 for "500ms"'],
  [5n, 'the bigint 5n; a duration is a number: Number(value)'],
  [new Duration(), "an object of the class Duration; a duration is a number: duration.total('milliseconds')"],
  [true, 'true'], [{}, 'an object'], [[5], 'an array'], [() => {}, 'a function'], [Symbol('x'), 'a symbol'],
  [new Date(0), 'an object of the class Date'], [Object.create(null), 'an object']
]
const numbers = (...some) => some.map(number => [number, `the number ${number}`])
const longest = 24 * 86_400_000
const durations = [
  ['ttl', `from 100 to ${longest}`, numbers(NaN, Infinity, -Infinity, -1, 0, 99.9, longest + 1)],
  ['wait', '0 or more', numbers(NaN, -Infinity, -5, -0.001)]
]

test('durations of no sense are refused in words of JavaScript, by every call', async () => {
  const { server, session } = await start()
  const sent = server.log.length
  const calls = {
    acquire: options => session.acquire('x', options),
    several: options => session.acquire(['x', 'y'], options),
    permit: options => session.permit('x', 2, options),
    campaign: options => session.campaign('x', 'me', options),
    using: options => session.using('x', options, () => assert.fail('it runs')),
    tryAcquire: options => session.tryAcquire('x', options),
    tryAcquireEach: options => session.tryAcquireEach(['x', 'y'], options),
    once: options => session.once('x', options, () => assert.fail('it runs')),
    elect: async options => session.elect('x', 'me', options)
  }
  for (const [argument, range, some] of durations) {
    for (const [value, shown] of [...some, ...notNumbers]) {
      for (const [name, call] of Object.entries(calls)) {
        if (argument === 'wait' && /^(try|once|elect)/.test(name)) continue
        const message = `${argument} has to be a number of milliseconds, ${range}, and not ${shown}`
        await assert.rejects(call({ [argument]: value }), { code: 'invalid', message }, name)
      }
    }
  }
  for (const [value, shown] of [...numbers(NaN, Infinity, -1, longest + 1), ...notNumbers]) {
    const error = { code: 'invalid', message: `holdFor has to be a number of milliseconds, from 0 to ${longest}, and not ${shown}` }
    await assert.rejects(calls.once({ holdFor: value }), error)
  }
  assert.equal(server.log.length, sent)
})

test('a release with a holdFor of no sense releases, and a close with such a limit closes', async () => {
  for (const [value, shown] of [...numbers(NaN, -1), ...notNumbers]) {
    const { server, session } = await start()
    const hold = await session.acquire('x')
    const message = `holdFor has to be a number of milliseconds, from 0 to ${longest}, and not ${shown}`
    await assert.rejects(hold.release({ holdFor: value }), { code: 'invalid', message })
    await assert.rejects(hold.release(), { message })
    assert.equal(server.places.length, 0)
    await assert.rejects(session.close({ limit: value }), { code: 'invalid', message: `limit has to be a number of milliseconds, 0 or more, and not ${shown}` })
    assert.deepEqual([session.state, server.leases.size], ['ended', 0])
  }
})

test('texts that are no Unicode, or no texts, are refused by every call, and name the argument', async () => {
  const { server, session } = await start()
  const election = session.elect('fine', 'fine')
  await settle()
  const term = await session.campaign('another', 'fine')
  const sent = server.log.length
  const run = () => assert.fail('it runs')
  const calls = [
    ['names', text => session.acquire(text)], ['names[1]', text => session.acquire(['x', text])],
    ['names', text => session.tryAcquire(text)], ['names[0]', text => session.tryAcquireEach([text])],
    ['names', text => session.using(text, run)], ['name', text => session.once(text, {}, run)],
    ['name', text => session.permit(text, 2)], ['election', text => session.campaign(text, 'me')],
    ['candidate', text => session.campaign('x', text)], ['election', async text => session.elect(text, 'me')],
    ['candidate', async text => session.elect('x', text)], ['election', text => session.leader(text)],
    ['election', async text => session.observe(text)], ['value', text => term.proclaim(text)],
    ['value', text => election.proclaim(text)], ['name', text => LockElection.connect({ name: text, host: '/nowhere' })]
  ]
  for (const [argument, call] of calls) {
    const start = `${argument.replace(/[[\]]/g, '\\$&')} has to be`
    for (const [text, index] of [['\ud800', 0], ['a\udc00', 1], ['\udc00\ud800', 0], ['🔒\ud83d', 2]]) {
      const message = new RegExp(`^${start} well-formed Unicode, and there is a lone surrogate at index ${index}$`)
      await assert.rejects(call(text), { code: 'invalid', message }, `${call}`)
    }
    await assert.rejects(call('a\0b'), { code: 'invalid', message: new RegExp(`^${start} a string without U\\+0000`) }, `${call}`)
    for (const [value, shown] of [[5, 'the number 5'], [true, 'true'], [{}, 'an object'], [Buffer.from('x'), 'an object of the class Uint8Array']]) {
      await assert.rejects(call(value), { code: 'invalid', message: new RegExp(`^${start} .*string.*, and not ${shown}$`) }, `${call}`)
    }
  }
  await assert.rejects(session.tryAcquireEach('abc'), { message: 'names has to be an array of strings, and not the string "abc"' })
  await assert.rejects(session.acquire(undefined), { message: 'names has to be a string or an array of strings, and not undefined' })
  assert.equal(server.log.length, sent)
  await session.close()
})

test('other arguments of no sense are refused, by name', async () => {
  const { server, session } = await start()
  const sent = server.log.length
  for (const value of [0, -1, 1.5, NaN, Infinity, 2 ** 31, '2', 2n, undefined, null]) {
    await assert.rejects(session.permit('x', value), { code: 'invalid', message: /^permits has to be an integer from 1 to 2147483647, and not / })
  }
  for (const value of ['no', 1, 0, {}]) {
    await assert.rejects(session.acquire('x', { shared: value }), { code: 'invalid', message: /^shared has to be true or false, and not / })
  }
  for (const value of ['now', 5, {}, new AbortController()]) {
    const wrong = { code: 'invalid', message: /^signal has to be an AbortSignal, and not / }
    await assert.rejects(session.acquire('x', { signal: value }), wrong)
    await assert.rejects(async () => session.observe('x', { signal: value }), wrong)
    await assert.rejects(LockElection.connect({ signal: value }), wrong)
  }
  for (const [options, message] of [
    [null, /^options has to be an object, and not null/], ['x', /^options has to be an object, and not the string "x"/],
    [{ ttl: NaN }, /^ttl .* the number NaN/], [{ ttl: '30s' }, /^ttl .* the string "30s"/], [{ onState: 5 }, /^onState .* the number 5/],
    [{ connectionTimeoutMillis: -1 }, /^connectionTimeoutMillis .* the number -1/], [{ host: 5 }, /^host has to be a string, and not a number/],
    [{ port: {} }, /^port has to be a number, and not an object/], [{ port: 70_000 }, /^port has to be an integer from 1 to 65535/]
  ]) await assert.rejects(LockElection.connect(options), { code: 'invalid', message })
  await assert.rejects(session.using('x', {}), { code: 'invalid', message: 'fn has to be a function, and not undefined' })
  assert.equal(server.log.length, sent)
})

test('an option that there is not is refused before anything is asked for', async () => {
  const { server, session } = await start()
  const sent = server.log.length
  const run = () => assert.fail('it runs')
  for (const options of [{ timeout: 1000 }, { wiat: 1000 }, { ttl: 1000, Wait: 0 }, 1000, '5 s', null]) {
    for (const call of [
      () => session.acquire('x', options), () => session.acquire(['x', 'y'], options),
      () => session.tryAcquire('x', options), () => session.tryAcquireEach([], options),
      () => session.permit('x', 2, options), () => session.campaign('x', 'me', options),
      () => session.using('x', options, run), () => session.once('x', options, run),
      async () => session.elect('x', 'me', options), async () => session.observe('x', options)
    ]) await assert.rejects(call(), { code: 'invalid', message: /option/ }, `${call}`)
  }
  await assert.rejects(session.tryAcquire('x', { wait: 1000 }), { message: 'there is no option wait here: shared, ttl, signal' })
  assert.equal(server.log.length, sent)
  const hold = await session.acquire('x')
  await assert.rejects(hold.release({ hold_for: 1000 }), { code: 'invalid', message: /no option hold_for/ })
  assert.ok(!hold.valid)
  assert.equal(server.sent(/release_/).length, 1)
  await assert.rejects(session.close({ timeout: 1000 }), { code: 'invalid', message: /no option timeout/ })
  assert.equal(session.state, 'ended')
})

test('once asks whether holdFor is taken before it acquires', async () => {
  const { time, server, session } = await start()
  let runs = 0
  const once = () => session.once('x', { holdFor: 1000 }, () => { runs++ })
  server.plan(/NULL::bigint/, fail('53400', 'hold_for is too long for this server: 24:00:01'))
  await assert.rejects(once(), { code: 'limit', sqlstate: '53400', message: 'hold_for is too long for this server: 24:00:01' })
  assert.equal(server.sent(/try_acquire/).length, 0)
  server.plan(/NULL::bigint/, 'drop')
  const again = once()
  await time.pass(1000)
  assert.equal(await again, true)
  assert.equal(server.sent(/NULL::bigint/).length, 3)
  server.plan(/NULL::bigint/, 'hang')
  const refused = assert.rejects(once(), code('unavailable'))
  await time.pass(8000)
  await refused
  assert.equal(runs, 1)
})

test('who was not granted it in time is told what it was', async () => {
  const { time, session } = await start()
  await session.acquire('invoices')
  const one = assert.rejects(session.acquire('invoices', { wait: 1000 }), { code: 'not_acquired', message: 'lock "invoices" was not granted in time' })
  await time.pass(1000)
  await one
})

test('a list of names is copied', async () => {
  const { server, session } = await start()
  const names = ['x']
  const acquired = session.acquire(names)
  names[0] = 'y'
  const hold = await acquired
  assert.deepEqual([hold.names, server.places[0].name], [['x'], 'x'])
  assert.throws(() => { hold.names[0] = 'y' }, TypeError)
  assert.equal(await hold.release(), 'released')
})

test('a wait that is longer than a timer goes on', async () => {
  const { time, session } = await start()
  const set = time.set
  time.set = (fn, ms) => set(fn, Math.min(ms, 1000))
  await session.acquire('x')
  let error
  session.acquire('x', { wait: 5000 }).catch(why => { error = why })
  await time.pass(4900)
  assert.equal(error, undefined)
  await time.pass(200)
  assert.equal(error.code, 'not_acquired')
})

test('onState that throws does not stop the session', async () => {
  const { time, server, session, engine } = await start()
  const later = []
  const { queueMicrotask } = globalThis
  globalThis.queueMicrotask = fn => { later.push(fn) }
  try {
    engine.onState = state => { throw new Error(state) }
    const hold = await session.acquire('x')
    server.cut()
    await time.pass(1000)
    assert.equal(hold.valid, true)
    time.block(30_000)
    assert.deepEqual([hold.valid, hold.signal.aborted, session.state], [false, true, 'ended'])
    const reopened = session.reopen()
    await time.pass(10)
    await reopened
  } finally {
    globalThis.queueMicrotask = queueMicrotask
  }
  const told = ['suspended', 'connected', 'ended', 'connected']
  assert.equal(later.length, told.length)
  later.forEach((fn, i) => { assert.throws(fn, { message: told[i] }) })
})

test('a notification for others, and one for nobody, is not kept', async () => {
  const { time, server, session } = await start()
  await session.acquire('x')
  const waiting = session.acquire('x', { wait: 1000 }).catch(error => error.code)
  await time.pass(10)
  const used = () => { gc(); return process.memoryUsage().heapUsed }
  const before = used()
  for (let i = 0; i < 200_000; i++) for (const wire of server.wires) wire.events.notified('c_x', `{"token":"9${i}"}`)
  await time.pass(1000)
  assert.equal(await waiting, 'not_acquired')
  assert.ok(used() - before < 5e6, `${used() - before}`)
})
