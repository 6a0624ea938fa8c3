// The programs of examples/, among which some are killed, stopped past their TTL, and left alone by the server.
import assert from 'node:assert/strict'
import { execFileSync, spawn } from 'node:child_process'
import { once } from 'node:events'
import { statSync } from 'node:fs'
import { mkdtemp, readdir, readFile, rm } from 'node:fs/promises'
import { connect, createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { after, afterEach, test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { killAll, root, run, sql, until } from './helper.mjs'

afterEach(killAll)
after(killAll)

const TTL = 1500

const start = (count, ...args) => Array.from({ length: count }, (_, i) => run([`examples/${args[0]}`, ...args.slice(1).map(String)]))
const leaders = programs => programs.filter(program => leads(program))
const leads = program => /^leads/.test(program.lines.at(-1))

// The server is restarted where it runs under this account.
const [{ data_directory: data }] = await sql("SELECT current_setting('data_directory') AS data_directory").then(rows => rows, () => [{}])
let own = false
try {
  own = process.getuid() !== 0 && statSync(data).uid === process.getuid()
} catch {}
async function restart () {
  execFileSync('pg_ctl', ['-D', data, '-l', `${data}/restart.log`, '-w', '-m', 'immediate', 'restart'], { stdio: 'ignore' })
  await until(async () => await sql('SELECT 1').catch(() => false))
}
if (!own) console.log('# the server is not restarted: it is not of this account')

test('examples have at most 15 lines', async () => {
  for (const name of ['minutely', 'leader', 'fenced', 'queue']) {
    const text = await readFile(`${root}examples/${name}.mjs`, 'utf8')
    assert.ok(text.trimEnd().split('\n').length <= 15, name)
  }
  assert.equal((await readdir(`${root}examples`)).length, 8)
})

test('a job each minute by four workers', async () => {
  const period = 1000
  const workers = start(4, 'minutely.mjs', period, TTL)
  const runs = () => workers.flatMap(worker => worker.lines).filter(line => line === 'runs').length
  const begin = Date.now()
  // The name is closed for five sixths of a period, whatever machine is late.
  const most = () => Math.floor((Date.now() - begin) / (period * 5 / 6)) + 1
  const goesOn = async () => {
    const before = runs()
    await until(() => runs() >= before + 2)
    const done = runs()
    assert.ok(done <= most(), `${done} runs, at most ${most()}`)
  }
  await goesOn()
  workers[0].child.kill('SIGKILL')
  await goesOn()
  workers[1].child.kill('SIGSTOP')
  await sleep(TTL + 500) // the time that is tested: a stop of more than the TTL
  workers[1].child.kill('SIGCONT')
  await goesOn()
  if (own) await restart()
  await goesOn()
  assert.equal(workers.slice(1).every(worker => worker.code === undefined), true)
})

test('a leader of three', async () => {
  const replicas = start(3, 'leader.mjs', 'me', TTL)
  const next = async others => await until(() => others.find(leads), 'the next one leads')
  const first = await next(replicas)
  first.child.kill('SIGKILL')
  await first.exits()
  const two = replicas.filter(replica => replica !== first)
  const second = await next(two)
  second.child.kill('SIGSTOP')
  const third = await next(two.filter(replica => replica !== second))
  const said = second.lines.length
  second.child.kill('SIGCONT')
  await second.prints(/^lost: the lease could not be renewed in time/, said)
  if (own) await restart()
  third.child.kill('SIGTERM')
  await third.exits()
  assert.equal(third.code, 0)
  await second.prints(/^leads/, said)
  assert.equal(leaders(two.filter(replica => replica.code === undefined)).length, 1)
})

test('a fenced write', async () => {
  await sql('CREATE TABLE IF NOT EXISTS counter (value int); TRUNCATE counter; INSERT INTO counter VALUES (0)')
  const writers = start(3, 'fenced.mjs', TTL)
  const value = async () => (await sql('SELECT value FROM counter'))[0].value
  const goesOn = async limit => {
    const before = await value()
    await until(async () => await value().catch(() => 0) > before + 5, 'others write', limit).catch(async error => {
      const activity = await sql('SELECT pid, state, wait_event, xact_start, query FROM pg_stat_activity WHERE datname = current_database()')
      const said = writers.map(writer => `${writer.code}: ${writer.lines.slice(-5).join(' | ')}`)
      throw new Error(`${error.message}\n${said.join('\n')}\n${JSON.stringify(activity, null, 1)}`)
    })
  }
  await goesOn()
  writers[0].child.kill('SIGKILL')
  await goesOn()
  writers[1].child.kill('SIGSTOP')
  // one that is stopped in its fenced transaction keeps the lock for lock_election.fence_timeout, a minute; in the portable
  // edition until the server's idle_in_transaction_session_timeout
  await goesOn(90_000)
  writers[1].child.kill('SIGCONT')
  if (own) await restart()
  await goesOn()
  writers[2].child.kill('SIGKILL')
  await goesOn()
  killAll()
  await Promise.all(writers.map(writer => writer.exits()))
  await sql('DROP TABLE counter')
})

test('a worker of a queue', async () => {
  await sql('DROP TABLE IF EXISTS job; CREATE TABLE job (id int PRIMARY KEY, done int DEFAULT 0)')
  const workers = start(3, 'queue.mjs', TTL)
  const all = async (from, to) => {
    await sql('INSERT INTO job SELECT generate_series($1::int, $2::int)', [from, to])
    await until(async () => (await sql('SELECT 1 FROM job WHERE done = 0').catch(() => [1])).length === 0)
  }
  await all(1, 20)
  workers[0].child.kill('SIGKILL')
  workers[1].child.kill('SIGSTOP')
  await all(21, 40)
  workers[1].child.kill('SIGCONT')
  if (own) await restart()
  await all(41, 60)
  killAll()
  await Promise.all(workers.map(worker => worker.exits()))
  const done = workers.flatMap(worker => worker.lines.filter(line => /^job/.test(line)))
  assert.equal(new Set(done).size, done.length)
  assert.deepEqual(await sql('SELECT * FROM job WHERE done <> 1'), [])
  await sql('DROP TABLE job')
})

test('a double barrier', async () => {
  const run = `build ${Date.now()}`
  const state = async (expected) => await until(async () => {
    const [{ now }] = await sql(`SELECT concat_ws(' ', (SELECT count(slot) FROM lock_election.locks WHERE name = $1),
      (SELECT count(*) FROM lock_election.waiters WHERE name = $1), (SELECT version FROM read_versioned($1))) AS now`, [run]).catch(() => [{}])
    return now === expected
  }, `members, waiters and versions are ${expected}`, 90_000)
  const member = name => start(1, 'barrier.mjs', run, 4, name, 5000)[0]
  const [a, b, c] = ['a', 'b', 'c'].map(member)
  await state('3 0 0')
  if (own) await restart()
  const d = member('d')
  await state('4 0 1')
  await Promise.all([a, b, c, d].map(one => one.prints(/^begins$/)))
  b.child.kill('SIGKILL')
  c.child.kill('SIGSTOP')
  a.child.stdin.end()
  await state('1 1 1') // a waits for d alone
  d.child.stdin.end('a step\n')
  await Promise.all([a, d].map(one => one.exits()))
  assert.deepEqual([a, d].map(one => [one.code, one.lines.at(-1)]), [[0, 'left'], [0, 'left']])
  assert.ok(d.lines.includes('did a step'))
  c.child.kill('SIGCONT')
  c.child.stdin.end()
  await c.exits()
  assert.deepEqual([c.code, c.lines.includes('left')], [1, false])
})

// One replica is killed, another one stopped; the job goes on, and no run follows another one within its holdFor.
async function goesOnAlone (replicas, holdFor) {
  const begin = Date.now()
  const runs = () => replicas.flatMap(replica => replica.lines).filter(line => line === 'runs').length
  const more = async () => {
    const before = runs()
    await until(() => runs() >= before + 3, 'runs', 30_000).catch(error => {
      throw new Error(`${error.message}: ${replicas.flatMap(replica => replica.lines).join(' | ')}`)
    })
    assert.ok(runs() <= (Date.now() - begin) / holdFor + 1, `${runs()} runs`)
  }
  await more()
  replicas[0].child.kill('SIGKILL')
  replicas[1].child.kill('SIGSTOP')
  await more()
  replicas[1].child.kill('SIGCONT')
  await more()
}

test('node-cron', async () => {
  const replicas = start(3, 'node-cron.mjs', '* * * * * *', 700, TTL)
  await goesOnAlone(replicas, 700)
  // what node-cron says of a second in which the process was stopped
  const others = line => line !== 'runs' && !/missed execution/.test(line)
  assert.deepEqual(replicas.flatMap(replica => replica.lines).filter(others), [])
})

test('Express: one of the replicas leads', async () => {
  const replicas = start(3, 'express.mjs', 0, TTL)
  for (const replica of replicas) replica.port = (await replica.prints(/^port/)).split(' ')[1]
  const leading = async some => {
    const answers = await Promise.all(some.map(async ({ port }) => (await fetch(`http://127.0.0.1:${port}/leads`)).status))
    return some.filter((_, i) => answers[i] === 200)
  }
  const [first] = await until(async () => (await leading(replicas)).length === 1 && await leading(replicas))
  const others = replicas.filter(replica => replica !== first)
  const before = await (await fetch(`http://127.0.0.1:${others[0].port}/leader`)).json()
  assert.match(before.term, /^\d+$/)
  first.child.kill('SIGKILL')
  const [second] = await until(async () => (await leading(others)).length === 1 && await leading(others))
  const after = await (await fetch(`http://127.0.0.1:${second.port}/leader`)).json()
  assert.ok(BigInt(after.term) > BigInt(before.term))
  second.child.kill('SIGTERM')
  await second.exits()
  assert.equal(second.code, 0)
  await until(async () => (await leading(others.filter(other => other !== second))).length === 1)
})

function hasRedis () {
  try {
    execFileSync('redis-server', ['--version'], { stdio: 'ignore' })
    return true
  } catch {
    return false
  }
}

test('BullMQ', { skip: hasRedis() ? false : 'there is no redis-server' }, async () => {
  const probe = createServer()
  await once(probe.listen(0, '127.0.0.1'), 'listening')
  const { port } = probe.address()
  await new Promise(resolve => probe.close(resolve))
  const directory = await mkdtemp(`${tmpdir()}/redis-`)
  const redis = spawn('redis-server', ['--port', port, '--bind', '127.0.0.1', '--save', '', '--dir', directory], { stdio: 'ignore' })
  try {
    await until(async () => await new Promise(resolve => {
      const socket = connect(port, '127.0.0.1')
      socket.on('connect', () => { socket.destroy(); resolve(true) })
      socket.on('error', () => { resolve(false) })
    }))
    const replicas = start(3, 'bullmq.mjs', 1000, port, TTL)
    const lines = () => replicas.flatMap(replica => replica.lines)
    await goesOnAlone(replicas, 1000 * 5 / 6)
    await until(() => lines().filter(line => line === 'skipped').length >= 3)
    killAll()
    await Promise.all(replicas.map(replica => replica.exits()))
  } finally {
    redis.kill('SIGKILL')
    await once(redis, 'exit')
    await rm(directory, { recursive: true })
  }
})
