// The rules of docs/reference/client-protocol.md and docs/reference/lease-sync.md, with a clock that is moved by hand and a server that does as it is told.
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
  server.plan(/\(look\)/, 5000)
  await time.pass(9000)
  assert.equal(server.sent(/\(look\)/).length, 0)
  await time.pass(11_500 - 9000) // sent between 9 and 11 s
  assert.equal(server.sent(/\(look\)/).length, 1)
  assert.ok(hold.timeLeft <= 18_000, 'no answer yet')
  await time.pass(5000)
  assert.ok(hold.timeLeft > 21_500 && hold.timeLeft <= 29_000 - 5000 + 1, `${hold.timeLeft}`)
})

test('3.1, 4.1 a renewal counts for the validity that it returned, and the next one comes a third of that later', async () => {
  const { time, server, session } = await start({ validity: 9000 })
  const hold = await session.acquire('x')
  await time.pass(3400) // the call that asked has renewed, so it is renewed between 2.7 and 3.3 s
  assert.equal(server.sent(/\(look\)/).length, 1)
  assert.equal(hold.timeLeft, 29_000 - 3400, 'what the grant has promised stands')
  await time.pass(27_000 - 3400)
  const renewals = server.sent(/\(look\)/).length
  assert.ok(renewals >= 8 && renewals <= 10, `${renewals} renewals, one each 2.7 to 3.3 s`)
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
  const renewals = server.sent(/\(look\)/).length
  assert.ok(renewals >= 26 && renewals <= 33, `${renewals}, one each 0.9 to 1.1 s`)
  await time.pass(200)
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
  server.plan(/\(look\)/, 20)
  time.block(900)
  await time.pass(0) // sent at 900, and answered at 920; the deadline is at 950
  assert.equal(server.sent(/\(look\)/).length, 1)
  time.block(60)
  await fire(time, timer => timer.at === 920)
  assert.deepEqual(states, ['connected', 'ended'])
  assert.equal(hold.valid, false)
})

test('4.2 an answer that came while the loop of events was blocked counts', async () => {
  const { time, server, session } = await start()
  server.plan(/enqueue_lock/, 10)
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
  server.plan(/\(look\)/, 'hang')
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
  server.force('one')
  await time.pass(11_100)
  assert.deepEqual([one.valid, two.valid, one.signal.reason.message], [false, true, 'the server has ended it: forced'])
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
  assert.equal(server.sent(/enqueue_lock/).length, 3)
  await Promise.all(holds.map(hold => hold.release()))
  assert.equal(server.sent(/release/).length, 3)
  assert.equal(server.places.length, 0)

  const [good, bad, other] = await Promise.allSettled([session.acquire('good'), session.acquire(''), session.acquire('other')])
  assert.equal(bad.reason.code, 'invalid')
  assert.equal(bad.reason.sqlstate, '22023')
  assert.ok(good.value.valid && other.value.valid)
})

test('1.5 each request has an owner of its own, so holds of one session exclude each other', async () => {
  const { server, session } = await start()
  await session.acquire('x')
  await assert.rejects(session.acquire('x', { wait: 0 }), code('not_acquired'))
  await Promise.all([session.acquire('y'), session.acquire('z')])
  const owners = server.places.map(place => place.owner)
  assert.match(owners[0], /^test#[0-9a-f]{16}-1$/)
  assert.equal(new Set(owners).size, 3)
})

test('5.2 a wait that is shorter than a round trip acquires what is free, and leaves no place in the queue', async () => {
  const { time, server, session } = await start()
  for (const wait of [1, 20, 7000]) {
    for (let i = 0; i < 2; i++) server.plan(/enqueue_lock/, 50)
    const first = session.acquire(`n${wait}`, { wait })
    await time.pass(60)
    assert.equal((await first).valid, true, `${wait}`)
    const second = assert.rejects(session.acquire(`n${wait}`, { wait }), { code: 'not_acquired', message: /was not granted in time/ })
    await time.pass(49)
    assert.equal(server.sent(/release/).length, 0)
    await time.pass(wait)
    await second
    assert.equal(server.places.length, 1, `${wait}`)
    assert.equal(await (await first).release(), 'released')
    server.log = []
  }
})

test('5.2, 5.3 a short wait whose first answer never comes ends with the limit of a call, and leaves nothing', async () => {
  const { time, server, session } = await start()
  server.plan(/enqueue_lock/, 'hang')
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
  server.refused.set('x2', [fail('55P03')])
  server.plan(/enqueue_lock/, 20)
  const refused = session.acquire('x2', { wait: 10 }).catch(error => error)
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
  server.plan(/enqueue_lock/, 100)
  const canceled = assert.rejects(session.acquire('x', { signal: controller.signal }))
  await time.pass(50)
  assert.equal(server.places.length, 1)
  controller.abort()
  await canceled
  await time.pass(60)
  assert.equal(server.places.length, 0)
})

// What the server has sent to a session's channel.
const channels = server => [...server.wires].flatMap(wire => [...wire.channels]).filter(channel => channel.startsWith('c_'))

test('6.1, 6.3 it listens while something waits, a notification is a hint, and nobody listens in vain', async () => {
  const { time, server, session } = await start()
  const hold = await session.acquire('x')
  assert.deepEqual(channels(server), [])
  let granted
  const waiting = session.acquire('x').then(hold => { granted = hold })
  await time.pass(10)
  const [channel] = channels(server)
  const [wire] = server.wires
  server.log = []
  for (let i = 0; i < 100; i++) wire.events.notified(channel)
  await time.pass(10)
  assert.deepEqual([granted, server.log], [undefined, ['lease_sync(look) prepared']], 'one call for all of one moment')
  await hold.release()
  await waiting
  await time.pass(900)
  assert.deepEqual(channels(server), [channel], 'something may wait again soon')
  await time.pass(200)
  assert.deepEqual([...wire.channels], [])
  wire.events.notified(channel)
  await time.pass(10)
  assert.equal(server.log.at(-1), `UNLISTEN ${channel}; UNLISTEN ${[...server.log.join().matchAll(/UNLISTEN (le_self_\w+)/g)][0][1]}`)
})

test('6.1 a grant between the answer and LISTEN is seen, and so is one of another session', async () => {
  const { time, server, session } = await start()
  const first = await session.acquire('x')
  server.plan(/LISTEN c_/, 100)
  const second = session.acquire('x')
  await time.pass(50)
  server.remove(place => place.token === String(first.token), 'forced')
  await time.pass(60)
  assert.equal((await second).valid, true)
  assert.equal(first.valid, false)

  const third = session.acquire('x')
  await time.pass(10)
  server.force('x')
  await time.pass(10)
  assert.equal((await third).valid, true)
})

test('6.1 a grant that is announced before the answer to its request is looked for at once', async () => {
  const { time, server, session } = await start()
  await session.acquire('listens')
  void session.acquire('listens').catch(() => {})
  await time.pass(100)
  server.force('listens')
  await time.pass(100)
  assert.equal(server.sent(/^LISTEN/).length, 1)
  server.take('x', 'somebody', 'else')
  server.plan(/enqueue_lock x/, 100)
  const looks = server.sent(/look/).length
  const acquired = session.acquire('x')
  await time.pass(50)
  server.force('x')
  await time.pass(500)
  assert.equal(server.sent(/look/).length, looks + 1)
  assert.equal((await acquired).valid, true)
})

test('6.1 a place that the server has ended is lost', async () => {
  const { time, server, session } = await start()
  await session.acquire('x')
  const second = assert.rejects(session.acquire('x'), { code: 'lost', sqlstate: 'LE001' })
  await time.pass(10)
  server.remove(place => !server.holds(place), 'removed')
  await time.pass(11_100)
  await second
})

test('6.2 where LISTEN does not work the session looks four times a second', async () => {
  for (const settings of [{ hears: false }, { pooled: true }, { notify: 'elections' }]) {
    const { time, server, session } = await start(settings)
    const hold = await session.acquire('x')
    const second = session.acquire('x')
    await time.pass(1000)
    const looks = server.sent(/\(look\)/).length
    assert.ok(looks >= 3 && looks <= 6, `${looks}`)
    server.force('x')
    await time.pass(260)
    assert.equal((await second).valid, true, JSON.stringify(settings))
    assert.equal(hold.valid, false)
    await time.pass(1000)
    assert.ok(server.sent(/\(look\)/).length <= looks + 2)
  }
})

test('6.2 where LISTEN is refused the session looks four times a second, on the same connection', async () => {
  const { time, server, session } = await start()
  server.plan(/^LISTEN/, fail('0A000'))
  await session.acquire('x')
  const second = session.acquire('x')
  await time.pass(1000)
  server.force('x')
  await time.pass(300)
  assert.equal((await second).valid, true)
  assert.equal(server.sent(/^LISTEN/).length, 1)
  assert.equal(server.sent(/^connect/).length, 1)
})

test('7.1, 7.3 a lost answer: the next call only reads the news, and what was done is adopted', async () => {
  for (const what of ['lose', 'hang']) {
    const { time, server, session } = await start()
    server.plan(/enqueue_lock/, what)
    const acquired = Promise.all([session.acquire('x'), session.permit('p', 2)])
    await time.pass(8000)
    const [hold, permit] = await acquired
    assert.deepEqual([hold.token, permit.token], server.places.map(place => BigInt(place.token)))
    assert.deepEqual(server.sent(/lease_sync/), ['lease_sync(enqueue_lock x, enqueue_permit p) prepared', 'lease_sync(look) prepared'])
  }
})

test('7.1 a lost answer is looked for until news are told: a reply that holds them back is none', async () => {
  const { time, server, session } = await start()
  const asked = ['lease_sync(enqueue_permit p) prepared', ...Array(3).fill('lease_sync(look) prepared')]
  server.durable = false
  server.plan(/enqueue_permit/, 'lose')
  for (let i = 0; i < 3; i++) server.plan(/look/, 1000)
  const acquired = session.permit('p', 2)
  await time.pass(2500)
  assert.deepEqual(server.sent(/lease_sync/), asked)
  server.durable = true
  await time.pass(1000)
  const permit = await acquired
  assert.deepEqual(server.places.map(place => BigInt(place.token)), [permit.token])
  assert.deepEqual(server.sent(/lease_sync/), [...asked, 'lease_sync(look) prepared'])
})

test('7.3 what was not done is asked for again, in its old order', async () => {
  const { time, server, session } = await start()
  server.plan(/enqueue_lock/, 'hang')
  const one = session.acquire('x')
  await settle()
  const two = session.acquire('x')
  await settle()
  server.places = [] // as if it had not arrived
  server.cut()
  await time.pass(500)
  assert.deepEqual(server.places.map(place => place.owner.slice(-2)), ['-1', '-2'])
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
  server.plan(/enqueue_lock/, 'hang')
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

test('7.4 a call that arrives late does nothing, and is not sent again as it was', async () => {
  const { time, server, session } = await start({ pooled: true })
  server.plan(/enqueue_lock/, 'drop')
  const acquired = session.acquire('x')
  await time.pass(100)
  const hold = await acquired
  assert.deepEqual(server.sent(/lease_sync/), ['lease_sync(enqueue_lock x)', 'lease_sync(look)', 'lease_sync(enqueue_lock x)'])
  server.lease_sync([String(session.lease), '1', null, null, null, '1 s'])
  assert.deepEqual([server.places.length, hold.valid, server.leases.get(String(session.lease)).call], [1, true, 3])
})

test('7.5, 9.2 a release without an answer is sent again, and never fails', async () => {
  const { time, server, session } = await start()
  const hold = await session.acquire('x')
  server.plan(/release/, 'lose')
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
  server.plan(/try_lock/, 'hang')
  const tried = assert.rejects(session.acquire('x', { wait: 0 }), code('unavailable'))
  await time.pass(7500)
  await tried
  await time.pass(1000)
  assert.equal(server.places.length, 0)
  assert.equal(session.state, 'connected')
})

test('8.1 errors of one item: to its caller, or later', async () => {
  const { time, server, session } = await start()
  const refuse = (...codes) => { server.refused.set('x', codes.map(one => fail(one))) }
  for (const [sqlstate, expected] of [
    ['40P01', 'deadlock'], ['53400', 'limit'], ['42501', 'denied'], ['22023', 'invalid'], ['55000', 'not_installed'], ['0A000', 'failed']
  ]) {
    refuse(sqlstate)
    const [refused, other] = await Promise.allSettled([session.acquire('x'), session.acquire(sqlstate)])
    assert.deepEqual([refused.reason.code, refused.reason.sqlstate, other.value.valid], [expected, sqlstate, true])
  }
  for (const sqlstate of ['55P03', '58030', '40001', 'XX000', '57014']) {
    refuse(sqlstate)
    const acquired = session.acquire('x')
    await time.pass(300)
    assert.equal(await (await acquired).release(), 'released')
    refuse(sqlstate)
    await assert.rejects(session.acquire('x', { wait: 0 }), { sqlstate })
  }
  refuse('LE001')
  const before = server.sent(/\(look\)/).length
  await assert.rejects(session.acquire('x'), code('lost'))
  await settle()
  assert.equal(server.sent(/\(look\)/).length, before + 1)
  assert.equal(server.sent(/^connect/).length, 1)
})

test('8.1 errors of a whole call: to a caller that is alone, later, or another connection', async () => {
  const { time, server, session } = await start()
  server.plan(/enqueue_lock/, fail('22023', 'items cannot be read'))
  await assert.rejects(session.acquire('x'), { code: 'invalid', message: 'items cannot be read' })
  for (const sqlstate of ['55P03', '58030', '40001', 'XX000', '57014', '57P01', '08006', '25006', '53300']) {
    server.plan(/enqueue_lock/, fail(sqlstate))
    const acquired = session.acquire(sqlstate)
    await time.pass(600)
    assert.equal((await acquired).valid, true, sqlstate)
  }
  assert.equal(server.sent(/^connect/).length, 5)
  await time.pass(1000)
  // one of them cannot be read: each is sent alone
  server.log = []
  for (let i = 0; i < 2; i++) server.plan(/enqueue_lock b/, fail('22021'))
  const all = Promise.allSettled(['a', 'b', 'c'].map(name => session.acquire(name)))
  await time.pass(1000)
  assert.deepEqual((await all).map(one => one.reason?.sqlstate), [undefined, '22021', undefined])
  assert.deepEqual(server.sent(/lease_sync/).map(text => text.replace(/enqueue_lock |lease_sync| prepared/g, '')), ['(a, b, c)', '(a)', '(b)', '(c)'])
})

test('a statement that cannot be prepared, or not any more, is sent as it is', async () => {
  for (const sqlstate of ['26000', '42P05', '0A000']) {
    const { server, session } = await start()
    server.plan(/enqueue_lock/, fail(sqlstate))
    assert.equal((await session.acquire('x')).valid, true)
    assert.deepEqual(server.sent(/enqueue/), ['lease_sync(enqueue_lock x) prepared', 'lease_sync(enqueue_lock x)'])
    assert.equal(session.state, 'connected')
  }
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
    for (let i = 0; i < 2; i++) server.plan(/enqueue_lock/, fail(missing))
    await assert.rejects(session.acquire('y'), { code: 'not_installed', sqlstate: missing, message: /CREATE EXTENSION/ })
    server.schema = null
    await assert.rejects(session.acquire('y'), {
      code: 'not_installed', message: 'lock_election is not installed in database "app" (CREATE EXTENSION lock_election, or lockctl install for the portable edition)'
    })
    await time.pass(12_000)
    assert.deepEqual([hold.valid, states.at(-1)], [true, 'suspended'])
    // made again, elsewhere, and without the lease
    server.leases.clear()
    server.places = []
    server.schema = 'le2'
    await time.pass(1500)
    assert.deepEqual([hold.valid, hold.signal.reason.message, session.state], [false, 'the server has ended the lease: expired', 'ended'])
    await session.reopen()
    assert.equal((await session.acquire('x')).valid, true)
  }
})

test('8.1, 11.1 a fence that does not find the schema says what to do, and the next one finds it', async () => {
  const { server, session } = await start()
  const hold = await session.acquire('x')
  const asked = []
  const client = {
    escapeLiteral: String, // as of node-postgres
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
  assert.equal(second.sent(/\(look\)/).length, 1)
  assert.equal(hold.valid, true)
})

test('1.6 a TTL of its own has a lease of its own, which ends alone', async () => {
  const { time, server, session } = await start()
  const long = await session.acquire('long')
  const short = await session.acquire('short', { ttl: 1000 })
  assert.equal(short.timeLeft, 950)
  await time.pass(5000)
  assert.equal(short.valid, true)
  server.plan(/\(look\)/, fail('55P03'))
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
  ['ttl', `from 100 to ${longest}`, [...numbers(NaN, Infinity, -Infinity, -1, 0, longest + 1),
    [30, 'the number 30; 30 seconds are 30000'], [99.9, 'the number 99.9; 99.9 seconds are 99900']]],
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
    ['names', text => session.acquire(text)], ['the name at index 1', text => session.acquire(['x', text])],
    ['names', text => session.tryAcquire(text)], ['the name at index 0', text => session.tryAcquireEach([text])],
    ['names', text => session.using(text, run)], ['name', text => session.once(text, {}, run)],
    ['name', text => session.permit(text, 2)], ['election', text => session.campaign(text, 'me')],
    ['candidate', text => session.campaign('x', text)], ['election', async text => session.elect(text, 'me')],
    ['candidate', async text => session.elect('x', text)], ['election', text => session.leader(text)],
    ['election', async text => session.observe(text)], ['value', text => term.proclaim(text)],
    ['value', text => election.proclaim(text)], ['name', text => LockElection.connect({ name: text, host: '/nowhere' })]
  ]
  for (const [argument, call] of calls) {
    const start = `${argument} has to be`
    for (const [text, index] of [['\ud800', 0], ['a\udc00', 1], ['\udc00\ud800', 0], ['🔒\ud83d', 2]]) {
      const message = new RegExp(`^${start} well-formed Unicode, and there is a lone surrogate at index ${index}$`)
      await assert.rejects(call(text), { code: 'invalid', message }, `${call}`)
    }
    await assert.rejects(call('a\0b'), { code: 'invalid', message: new RegExp(`^${start} a string without U\\+0000`) }, `${call}`)
    const values = [
      [5, 'the number 5; a number is passed as String\\(value\\)'], [5n, 'the bigint 5n; a number is passed as String\\(value\\)'],
      [true, 'true'], [{}, 'an object'],
      [Buffer.from('x'), 'an object of the class Uint8Array; bytes are passed as Buffer\\.from\\(value\\)\\.toString\\(\\)']
    ]
    for (const [value, shown] of values) {
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
  assert.equal(server.sent(/release/).length, 1)
  await assert.rejects(session.close({ timeout: 1000 }), { code: 'invalid', message: /no option timeout/ })
  assert.equal(session.state, 'ended')
})

test('once asks whether holdFor is taken before it acquires', async () => {
  const { time, server, session } = await start()
  let runs = 0
  const once = () => session.once('x', { holdFor: 1000 }, () => { runs++ })
  server.refused.set('x', [fail('53400', 'hold_for is too long for this server: 24:00:01')])
  await assert.rejects(once(), { code: 'limit', sqlstate: '53400', message: 'hold_for is too long for this server: 24:00:01' })
  assert.equal(server.sent(/try_lock/).length, 0)
  server.plan(/release x 1000/, 'drop')
  const again = once()
  await time.pass(1000)
  assert.equal(await again, true)
  assert.equal(server.closed.get('x'), '1000.000 ms')
  server.plan(/release x 1000/, 'hang')
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

test('notifications are not kept', async () => {
  const { time, server, session } = await start()
  await session.acquire('x')
  const waiting = session.acquire('x', { wait: 1000 }).catch(error => error.code)
  await time.pass(10)
  const [channel] = channels(server)
  const used = () => { gc(); return process.memoryUsage().heapUsed }
  const before = used()
  for (let i = 0; i < 100_000; i++) for (const wire of server.wires) for (const one of [channel, `other ${i}`]) wire.events.notified(one)
  await time.pass(1000)
  assert.equal(await waiting, 'not_acquired')
  assert.ok(used() - before < 5e6, `${used() - before}`)
})

// --- turns ---

test('who is alone pays one call; releases are mailed where nobody waits; those whom a turn wakes join the next one', async () => {
  const { server, session } = await start()
  server.log = []
  for (let i = 0; i < 2; i++) await (await session.acquire('x')).release()
  assert.deepEqual(server.log, [
    'lease_sync(enqueue_lock x) prepared', 'lease_sync(release x) prepared mailed',
    'lease_sync(enqueue_lock x) prepared', 'lease_sync(release x) prepared mailed'
  ])
  server.log = []
  await Promise.all(['a', 'b', 'c'].map(async name => {
    for (let i = 0; i < 3; i++) await (await session.acquire(name)).release()
  }))
  assert.equal(server.log.length, 6)
  assert.deepEqual(new Set(server.log).size, 2)
})

test('what is asked for while a call is under way goes with the next one, behind a call with the releases', async () => {
  const { time, server, session } = await start()
  const hold = await session.acquire('x')
  server.plan(/try_lock/, 100)
  const tried = session.tryAcquire('y')
  await settle()
  const others = [session.acquire('z'), hold.release(), session.acquire(['a', 'b'], { shared: true }), session.permit('p', 3), session.campaign('e', 'me')]
  await time.pass(150)
  await Promise.all([tried, ...others])
  assert.deepEqual(server.sent(/lease_sync/).slice(1), ['lease_sync(try_lock y) prepared',
    'lease_sync(release x) prepared mailed',
    'lease_sync(enqueue_lock z, enqueue_shared a, enqueue_shared b, enqueue_permit p, enqueue_candidate e me) prepared'])
})

test('a lock that goes from one hold of a session to another one costs one call', async () => {
  const { time, server, session } = await start()
  const hold = await session.acquire('x')
  const waiting = session.acquire('x')
  await time.pass(10)
  server.log = []
  server.hears = false
  await hold.release()
  const next = await waiting
  assert.deepEqual([next.valid, server.log], [true, ['lease_sync(release x) prepared']])
})

test('a call has at most 128 items and 1,000 names', async () => {
  const { server, session } = await start()
  const names = (count, prefix) => Array.from({ length: count }, (_, i) => `${prefix}${i}`)
  const holds = await Promise.all([session.acquire(names(400, 'a')), session.acquire(names(600, 'b')), session.acquire('c'), session.acquire(names(1001, 'd'))])
  assert.deepEqual(server.sent(/lease_sync/).map(text => text.split(',').length), [1000, 1, 1001])
  assert.deepEqual(holds.map(hold => hold.names.length), [400, 600, 1, 1001])
})

test('each call renews; a session that asks for nothing renews, too', async () => {
  const { time, server, session } = await start()
  await time.pass(11_100)
  assert.deepEqual(server.sent(/lease_sync/), ['lease_sync(look) prepared'])
  for (let i = 0; i < 5; i++) {
    await time.pass(6000)
    await session.tryAcquire(`${i}`)
  }
  assert.equal(server.sent(/look/).length, 1)
  assert.equal(session.state, 'connected')
})

test('releases alone renew nothing: the renewal comes when it is due', async () => {
  const { time, server, session } = await start()
  const holds = await Promise.all(Array.from({ length: 30 }, (_, i) => session.acquire(`${i}`)))
  for (const hold of holds) {
    await time.pass(1000)
    await hold.release()
  }
  assert.ok(server.sent(/look|ease x?[^d]* prepared$/).length >= 2)
  assert.ok(server.sent(/mailed/).length >= 25)
  assert.equal(session.state, 'connected')
})

test('a cancel does not end the call of a turn, nor the requests of others in it', async () => {
  const { time, server, session } = await start()
  const controller = new AbortController()
  server.plan(/enqueue/, 100)
  const canceled = assert.rejects(session.acquire('x', { signal: controller.signal }), { name: 'AbortError' })
  const other = session.acquire('y')
  await time.pass(50)
  controller.abort()
  await canceled
  await time.pass(60)
  assert.equal((await other).valid, true)
  assert.deepEqual(server.places.map(place => place.name), ['y'])
  assert.equal(server.sent(/^connect/).length, 1)
})

test('what is not durable yet is told when it is, and not asked for again', async () => {
  const { time, server, session, states } = await start()
  const hold = await session.acquire('x')
  server.durable = false
  for (let i = 0; i < 20; i++) server.plan(/look/, 1000)
  const told = []
  for (const [name, asked] of Object.entries({ lock: session.acquire('y'), permit: session.permit('p', 2), term: session.campaign('e', 'me') })) {
    asked.then(got => { told.push(name); assert.equal(got.valid, true) })
  }
  await time.pass(7000)
  assert.deepEqual([told, hold.valid], [[], true])
  server.durable = true
  await time.pass(2100)
  assert.deepEqual([told, states], [['lock', 'permit', 'term'], ['connected']])
  assert.deepEqual(server.places.map(place => place.name), ['x', 'y', 'p', 'e'])
  assert.equal(server.sent(/enqueue/).length, 2)
})

test('a grant whose news are held back is looked for: no notification need come', async () => {
  const { time, server, session } = await start()
  const hold = await session.acquire('x')
  const other = session.acquire('x')
  await time.pass(1000)
  server.durable = false
  const released = hold.release()
  await time.pass(10)
  server.durable = true
  server.hears = false
  await time.pass(200)
  assert.equal((await other).valid, true)
  await released
})

test('where nothing is durable renewals have no validity: the session is suspended, and lost at its deadline', async () => {
  const { time, server, session, states } = await start({ ttl: 4000 })
  const hold = await session.acquire('x')
  server.durable = false
  await time.pass(3400)
  assert.deepEqual([hold.valid, states], [true, ['connected', 'suspended']])
  server.durable = true
  await time.pass(300)
  assert.deepEqual([hold.valid, states.at(-1)], [true, 'connected'])
  server.durable = false
  await time.pass(4000)
  assert.deepEqual([hold.valid, states.at(-1)], [false, 'ended'])
})

test('what was pending when the server started anew is asked for again, in order; what was durable is kept', async () => {
  const { time, server, session } = await start()
  const hold = await session.acquire('x')
  const lost = await session.acquire('lost')
  server.durable = false
  for (let i = 0; i < 2; i++) server.plan(/look/, 1000)
  const first = session.acquire('y')
  const second = session.acquire('y')
  await time.pass(500)
  server.restart('y', 'lost')
  server.durable = true
  await time.pass(2000)
  assert.deepEqual([hold.valid, lost.valid, (await first).valid], [true, false, true])
  assert.deepEqual(server.places.map(place => place.name), ['x', 'y', 'y'])
  const [channel] = channels(server)
  assert.match(channel, /^c_2_/, 'the channel is another one')
  await (await first).release()
  assert.equal((await second).valid, true)
})

test('a call that names another incarnation is an old one: its items are sent again', async () => {
  const { server, session } = await start()
  await session.acquire('x')
  server.restart()
  const [hold, other] = await Promise.all([session.acquire('y'), session.acquire('z')])
  assert.equal(hold.valid && other.valid, true)
  assert.deepEqual(server.sent(/enqueue/).slice(1), Array(2).fill('lease_sync(enqueue_lock y, enqueue_lock z) prepared'))
  assert.equal(server.places.length, 3)
})

test('a hold that is evicted is told lost, and given back when the application leaves it', async () => {
  const { time, server, session } = await start()
  const other = await session.acquire('other')
  let told
  const used = session.using('x', async signal => {
    await new Promise(resolve => { signal.addEventListener('abort', resolve) })
    told = signal.reason
    await new Promise(resolve => { time.set(resolve, 20_000) })
  })
  const loss = assert.rejects(used, code('lost'))
  const again = session.acquire('x')
  await settle()
  server.evict('x')
  await time.pass(11_100)
  assert.match(told.message, /evicted/)
  server.cut() // the news are told again
  await time.pass(10_000)
  assert.deepEqual([server.places.map(place => place.name), server.sent(/release/)], [['other', 'x', 'x'], []])
  await time.pass(10_000)
  await loss
  assert.deepEqual([(await again).valid, other.valid], [true, true])
  assert.equal(server.sent(/release x/).length, 1)
})

test('a hold that is evicted before it was told is given back at once, and a term is resigned', async () => {
  const { time, server, session } = await start()
  server.plan(/enqueue_candidate/, 'hang')
  const stood = assert.rejects(session.campaign('e', 'me'), { code: 'lost', message: /evicted/ })
  await settle()
  server.evict('e')
  await time.pass(8000)
  await stood
  assert.deepEqual([server.places, server.sent(/resign e/).length], [[], 1])
})

test('a proclaim that is lost on its way, that is not durable, and of a term that has ended', async () => {
  const { time, server, session } = await start()
  const term = await session.campaign('e', 'me')
  server.plan(/proclaim/, 'lose')
  const again = term.proclaim('you')
  await time.pass(100)
  await again
  assert.equal(server.sent(/proclaim e you/).length, 2)
  server.plan(/proclaim/, 'hang')
  const unknown = assert.rejects(term.proclaim('her'), code('unknown'))
  await time.pass(7600)
  await unknown
  await time.pass(1000)
  assert.equal(server.sent(/proclaim e her/).length, 1, 'nobody waits for it')
  server.force('e')
  await assert.rejects(term.proclaim('him'), code('lost'))
  assert.equal(term.valid, false)
})

test('9.3 a holdFor that the server refuses does not keep the name', async () => {
  for (const error of [fail('53400', 'too long'), fail('22023', 'out of range')]) {
    const { server, session } = await start()
    const hold = await session.acquire(['x', 'y'])
    server.refused.set('x', [error])
    await assert.rejects(hold.release({ holdFor: 1000 }), { sqlstate: error.code, message: error.message })
    await settle()
    assert.deepEqual([server.places, [...server.closed.keys()]], [[], ['y']])
  }
})

test('9.2 a release for which the right is gone is tried again later', async () => {
  const { time, server, session } = await start()
  const hold = await session.acquire('x')
  server.refused.set('x', [fail('42501')])
  assert.equal(await hold.release(), 'unknown')
  assert.equal(server.places.length, 1)
  await time.pass(11_000)
  assert.equal(server.places.length, 0)
})

test('7.5 a release with holdFor whose answer was lost: nobody knows whether the name is closed', async () => {
  const { time, server, session } = await start()
  const hold = await session.acquire('x')
  server.plan(/release x/, 'lose')
  const released = hold.release({ holdFor: 1000 })
  await time.pass(100)
  assert.equal(await released, 'unknown')
  assert.equal(server.closed.get('x'), '1000.000 ms')
})

test('14.3 close sends a release with holdFor first: a revocation closes nothing', async () => {
  const { time, server, session } = await start()
  const hold = await session.acquire('x')
  const released = hold.release({ holdFor: 1000 })
  const closing = session.close()
  await time.pass(10)
  await closing
  assert.equal(await released, 'released')
  assert.equal(server.closed.get('x'), '1000.000 ms')
})

test('statements of the application have their turn between calls without a pause', async () => {
  const { server, session } = await start()
  let over = false
  let pairs = 0
  const busy = (async () => { while (!over && pairs++ < 100) await (await session.acquire('x')).release() })()
  for (let i = 0; i < 3; i++) await session.leader('y')
  over = true
  await busy
  assert.equal(server.sent(/current_leader/).length, 3)
  assert.ok(pairs < 20, `${pairs}`)
})
