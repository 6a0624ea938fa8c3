// What the tests with a server share. The server is the one that PGHOST, PGPORT, PGUSER and PGDATABASE name.
import { spawn } from 'node:child_process'
import { createInterface } from 'node:readline'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import pg from 'pg'
import { LockElection } from 'lock-election'

export const root = fileURLToPath(new URL('..', import.meta.url))
export const code = expected => error => error.code === expected

// Waits for a condition, and answers what it was.
export async function until (condition, what = String(condition), limit = 60_000) {
  const end = Date.now() + limit
  for (;;) {
    const value = await condition()
    if (value) return value
    if (Date.now() > end) throw new Error(`in vain: ${what}`)
    await sleep(10)
  }
}

export async function sql (text, values) {
  const client = new pg.Client()
  client.on('error', () => {})
  await client.connect()
  try {
    return (await client.query(text, values)).rows
  } finally {
    await client.end()
  }
}

// A name that no other test has.
let names = 0
export const fresh = (prefix = 'name') => `${prefix} ${process.pid}.${++names}`

const opened = []

export async function open (options = {}) {
  const session = await LockElection.connect({ ttl: 10_000, name: 'test', ...options })
  opened.push(session)
  return session
}

// A connection of the application's: it ends with closeAll() too, also where a check has failed before its end.
export async function connected () {
  const client = new pg.Client()
  client.on('error', () => {})
  await client.connect()
  opened.push({ close: async () => { await client.end() } })
  return client
}

export async function closeAll () {
  await Promise.all(opened.splice(0).map(session => session.close()))
}

const programs = new Set()

// A program in the package's folder; lines: what it has printed.
export function run (args, options = {}) {
  const child = spawn(process.execPath, args, { cwd: root, stdio: ['pipe', 'pipe', 'pipe'], ...options })
  const program = { child, lines: [], code: undefined, pid: child.pid }
  programs.add(child)
  for (const stream of [child.stdout, child.stderr]) createInterface({ input: stream }).on('line', line => program.lines.push(line))
  child.on('close', (code, signal) => {
    program.code = code ?? signal
    programs.delete(child)
  })
  program.prints = (pattern, from = 0) => until(() => {
    if (program.code !== undefined && !program.lines.some(line => pattern.test(line))) {
      throw new Error(`ended with ${program.code}: ${program.lines.join('\n')}`)
    }
    return program.lines.slice(from).find(line => pattern.test(line))
  }, `${args[0]} prints ${pattern}, and has printed: ${program.lines.join(' | ')}`)
  program.exits = () => until(() => program.code !== undefined, `${args[0]} exits`)
  return program
}

export function killAll () {
  for (const child of programs) {
    child.kill('SIGKILL')
  }
}

process.on('exit', killAll)
