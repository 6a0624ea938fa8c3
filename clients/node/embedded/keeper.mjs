// Runs a throw-away PostgreSQL for as long as the pipe to its standard input is open. See index.mjs.
//
// It is a separate process, so that the server stops even if the program that uses it is killed. Input: one line of
// JSON, {"bin": folder, "settings": text}. Output: one line of JSON with the server's port, password and directory, or
// {"error": text}.
import { spawnSync } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import {
  chownSync, closeSync, cpSync, existsSync, lchownSync, mkdirSync, openSync, readdirSync, readFileSync, rmSync, statSync,
  unlinkSync, writeFileSync
} from 'node:fs'
import { createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { createInterface } from 'node:readline'

const ATTEMPTS = 3 // to find a port that is still free when the server starts
const LIMIT = 120_000 // milliseconds for one command; initdb takes a second or two
const windows = process.platform === 'win32'

// Folder for temporary files. For root, it is one in which otherAccount() can remove its files.
const isRoot = process.getuid?.() === 0
const temporary = isRoot && (statSync(tmpdir()).mode & 0o002) === 0 ? '/tmp' : tmpdir()
const directory = join(temporary, `lock_election-${randomBytes(6).toString('hex')}`)
const data = join(directory, 'data')
const password = randomBytes(18).toString('base64url')
let bin // folder of PostgreSQL's programs
const env = Object.fromEntries(Object.entries(process.env).filter(([key]) => !key.startsWith('PG')))

// Returns the account for PostgreSQL, which refuses to run as root; undefined if it can run as the current one.
function otherAccount () {
  if (!isRoot) return undefined
  const line = readFileSync('/etc/passwd', 'utf8').split('\n').find(line => line.startsWith('nobody:'))
  if (line === undefined) throw new Error('PostgreSQL refuses to run as root, and there is no account nobody')
  const [, , uid, gid] = line.split(':').map(Number)
  return { uid, gid }
}

// Runs a program of PostgreSQL. Its output goes to a file: a server would keep a pipe open.
function run (program, ...args) {
  const path = join(directory, `${program}.log`)
  const out = openSync(path, 'w')
  const file = join(bin, windows ? `${program}.exe` : program)
  const { status, error } = spawnSync(file, args, { cwd: directory, env, stdio: ['ignore', out, out], timeout: LIMIT, windowsHide: true })
  closeSync(out)
  if (error !== undefined) throw error
  if (status !== 0) throw new Error(`${file} failed:\n${readFileSync(path, 'utf8').trim()}`)
}

function ownAll (path, uid, gid) {
  lchownSync(path, uid, gid)
  for (const entry of readdirSync(path, { withFileTypes: true })) {
    const inner = join(path, entry.name)
    if (entry.isDirectory()) ownAll(inner, uid, gid)
    else lchownSync(inner, uid, gid)
  }
}

// Switches to an account that PostgreSQL accepts. Copies PostgreSQL's programs if this account cannot read them.
function dropRoot ({ uid, gid }) {
  chownSync(directory, uid, gid)
  const { status } = spawnSync(join(bin, 'initdb'), ['--version'], { uid, gid, cwd: '/', stdio: 'ignore', timeout: LIMIT })
  if (status !== 0) {
    const copy = join(directory, 'postgresql')
    cpSync(dirname(bin), copy, { recursive: true, verbatimSymlinks: true })
    ownAll(copy, uid, gid)
    bin = join(copy, 'bin')
  }
  process.setgroups([])
  process.setgid(gid)
  process.setuid(uid)
}

async function freePort () {
  const probe = createServer()
  await once(probe.listen(0, '127.0.0.1'), 'listening')
  const { port } = probe.address()
  await new Promise(resolve => probe.close(resolve))
  return port
}

// Starts the server. Returns its port.
async function start (settings) {
  mkdirSync(directory, { mode: 0o700 })
  const account = otherAccount()
  if (account !== undefined) dropRoot(account)
  const secret = join(directory, 'password')
  writeFileSync(secret, password)
  run('initdb', '-D', data, '-U', 'postgres', '-A', 'scram-sha-256', `--pwfile=${secret}`, '-E', 'UTF8', '--locale=C', '--no-sync')
  unlinkSync(secret)
  const log = join(directory, 'server.log')
  for (let attempt = 1; ; attempt++) {
    const port = await freePort()
    writeFileSync(join(data, 'postgresql.auto.conf'),
      `listen_addresses = '127.0.0.1'\nport = ${port}\nunix_socket_directories = ''\n${settings}\n`)
    try {
      run('pg_ctl', '-D', data, '-l', log, '-w', 'start')
      return port
    } catch (error) {
      const text = existsSync(log) ? readFileSync(log, 'utf8') : ''
      if (attempt === ATTEMPTS || !text.includes('could not bind')) throw new Error(`${error.message}\n${text}`)
    }
  }
}

function stop () {
  try {
    if (existsSync(join(data, 'postmaster.pid'))) run('pg_ctl', '-D', data, '-m', 'immediate', '-w', 'stop')
  } catch {}
  try {
    rmSync(directory, { recursive: true, force: true, maxRetries: 10 })
  } catch {}
}

const tell = values => { process.stdout.write(`${JSON.stringify(values)}\n`) }

process.stdout.on('error', () => {}) // the program may have exited; then its pipe ends, too
process.on('SIGINT', () => {}) // Ctrl-C is meant for the program, which then closes the pipe
const ended = new Promise(resolve => {
  process.once('SIGTERM', resolve)
  process.stdin.once('end', resolve)
})
const request = new Promise(resolve => { createInterface({ input: process.stdin }).once('line', resolve) })
const line = await Promise.race([request, ended])
if (typeof line === 'string') {
  const wanted = JSON.parse(line)
  bin = wanted.bin
  try {
    tell({ port: await start(wanted.settings), password, directory })
    await ended
  } catch (error) {
    tell({ error: error.message })
  } finally {
    stop()
  }
}
process.stdin.destroy()
