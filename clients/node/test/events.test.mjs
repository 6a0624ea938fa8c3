// onEvent, and the spans of OpenTelemetry that are made from it, with a server.
import assert from 'node:assert/strict'
import { AsyncLocalStorage } from 'node:async_hooks'
import { once } from 'node:events'
import { after, test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { SpanStatusCode, context, trace } from '@opentelemetry/api'
import { AsyncLocalStorageContextManager } from '@opentelemetry/context-async-hooks'
import { BasicTracerProvider, InMemorySpanExporter, SimpleSpanProcessor } from '@opentelemetry/sdk-trace-base'
import { LockElectionError, LockLostError, NotAcquiredError } from 'lock-election'
import { spans } from 'lock-election/opentelemetry'
import { closeAll, code, fresh, open, sql, until } from './helper.mjs'

after(closeAll)

const caller = new AsyncLocalStorage()
const kinds = events => events.map(({ mode, kind }) => `${mode} ${kind}`)
const waits = async name => (await sql('SELECT 1 FROM lock_election.waiters WHERE name = $1', [name])).length > 0
const cut = async name => {
  await sql('SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE application_name = $1', [name])
}

test('acquire and hold', async () => {
  const events = []
  const callers = []
  const name = fresh()
  const session = await open({ onEvent: event => { events.push(event); callers.push(caller.getStore()) } })
  const hold = await caller.run('first', () => session.acquire(name))
  const waiting = caller.run('second', async () => await (await session.acquire(name, { shared: true })).release())
  await until(() => waits(name))
  assert.equal(await session.tryAcquire([name, `${name}'`]), null)
  await sleep(500)
  await hold.release()
  await waiting
  const term = await session.campaign(name, 'me')
  await session.close()
  assert.equal(term.valid, false)
  assert.deepEqual(kinds(events), ['lock acquired', 'lock not_acquired', 'lock released', 'shared acquired',
    'shared released', 'election acquired', 'election released'])
  const [acquired, refused, released, waited, left] = events
  assert.deepEqual(acquired.names, [name])
  assert.equal(acquired.token, hold.token)
  assert.equal(acquired.error, undefined)
  assert.ok(acquired.duration < 60_000 && Math.abs(Date.now() - acquired.time) < 60_000)
  assert.deepEqual([refused.names.length, refused.token], [2, 0n])
  assert.ok(refused.error instanceof NotAcquiredError)
  assert.ok(released.duration >= 490 && released.duration < 60_000, released.duration)
  assert.equal(released.error, undefined)
  assert.ok(waited.duration >= 490)
  assert.ok(Math.abs(left.time - waited.time - left.duration) < 400, 'it was held without the wait')
  assert.deepEqual(callers.slice(0, 4), ['first', undefined, 'first', 'second'])
})

test('losses', async () => {
  const events = []
  const name = fresh()
  const session = await open({ onEvent: event => { events.push(event) } })
  const hold = await session.acquire(name)
  await sql('SELECT force_release_lock($1)', [name])
  if (hold.valid) await once(hold.signal, 'abort')
  const second = await session.acquire(name)
  await sql('SELECT revoke_lease($1)', [session.lease])
  await until(() => session.state === 'ended')
  await session.reopen()
  await (await session.acquire(name)).release()
  await session.close()
  assert.deepEqual(kinds(events), ['lock acquired', 'lock lost', 'lock acquired', 'lock lost', 'session ended',
    'lock acquired', 'lock released'])
  for (const event of [events[1], events[3], events[4]]) assert.ok(event.error instanceof LockLostError)
  assert.equal(events[3].token, second.token)
})

test('a suspension', async () => {
  const events = []
  const application = fresh('events')
  const session = await open({ application_name: application, onEvent: event => { events.push(event) } })
  await session.acquire(fresh())
  await cut(application)
  await until(() => kinds(events).includes('session resumed'))
  await session.close()
  assert.deepEqual(kinds(events), ['lock acquired', 'session suspended', 'session resumed', 'lock released'])
  const [, suspended, resumed] = events
  assert.ok(suspended.error instanceof LockElectionError)
  assert.equal(resumed.error, undefined)
  assert.ok(resumed.duration > 0 && Math.abs(resumed.time - suspended.time - resumed.duration) < 1000)
})

test('functions that throw, reject or hang', async () => {
  const warnings = []
  const warned = warning => { warnings.push(warning.message) }
  process.on('warning', warned)
  for (const onEvent of [
    ({ kind }) => { throw new Error(`thrown: ${kind}`) },
    async ({ kind }) => { throw new Error(`rejected: ${kind}`) },
    async () => { throw undefined }, // eslint-disable-line no-throw-literal
    async () => await new Promise(() => {})
  ]) {
    const session = await open({ onEvent })
    const hold = await session.acquire(fresh())
    assert.ok(hold.valid && session.state === 'connected')
    assert.equal(await hold.release(), 'released')
    await session.close()
  }
  await until(() => warnings.length >= 6)
  process.off('warning', warned)
  assert.deepEqual(warnings, ['thrown: acquired', 'thrown: released', 'rejected: acquired', 'rejected: released',
    'onEvent has thrown undefined', 'onEvent has thrown undefined'])
  await assert.rejects(open({ onEvent: 'print' }), code('invalid'))
})

test('spans', async () => {
  const exporter = new InMemorySpanExporter()
  const provider = new BasicTracerProvider({ spanProcessors: [new SimpleSpanProcessor(exporter)] })
  context.setGlobalContextManager(new AsyncLocalStorageContextManager().enable())
  trace.setGlobalTracerProvider(provider)
  const named = name => exporter.getFinishedSpans().filter(span => span.name === name)
  const ms = ([seconds, nanos]) => seconds * 1e3 + nanos / 1e6
  const name = fresh()
  const application = fresh('spans')
  const session = await open({ application_name: application, onEvent: spans() })
  const work = trace.getTracer('work').startSpan('work')
  const hold = await context.with(trace.setSpan(context.active(), work), async () => {
    const hold = await session.acquire(name)
    assert.equal(await session.tryAcquire(name), null)
    return hold
  })
  work.end()
  await sleep(100)
  await sql('SELECT force_release_lock($1)', [name])
  await until(() => named('hold lock').length === 1)
  const permit = await session.permit(name, 2)
  await assert.rejects(session.permit(name, 3), code('invalid'))
  await cut(application)
  await until(() => named('suspend session').length === 1)
  await permit.release()
  await session.close()

  const [acquired, refused, , wrong] = named('acquire lock')
  const [lost, released] = named('hold lock')
  assert.deepEqual(acquired.attributes, {
    'lock_election.outcome': 'acquired',
    'lock_election.names': [name],
    'lock_election.mode': 'lock',
    'lock_election.token': Number(hold.token)
  })
  assert.equal(acquired.instrumentationScope.name, 'lock_election')
  for (const span of [acquired, refused, lost]) assert.equal(span.parentSpanContext?.spanId, work.spanContext().spanId)
  assert.ok(ms(lost.duration) >= 90 && ms(lost.duration) < 60_000)
  assert.ok(Math.abs(ms(lost.startTime) - ms(acquired.endTime)) < 1000)
  assert.equal(lost.status.code, SpanStatusCode.ERROR)
  assert.equal(lost.attributes['error.type'], 'lost')
  assert.equal(wrong.status.code, SpanStatusCode.ERROR)
  assert.equal(wrong.attributes['error.type'], 'invalid')
  for (const span of [acquired, refused, released]) {
    assert.equal(span.status.code, SpanStatusCode.UNSET)
    assert.equal(span.attributes['error.type'], undefined)
  }
  assert.equal(refused.attributes['lock_election.outcome'], 'not_acquired')
  assert.equal(named('suspend session')[0].parentSpanContext, undefined)
})
