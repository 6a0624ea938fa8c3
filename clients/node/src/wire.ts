/**
 * The connection: node-postgres, with a socket of our own, so that a connection can be given up at any moment, whatever
 * state it is in. The socket does not keep the process: calls do (`Engine.use`).
 */
import { once } from 'node:events'
import { Socket } from 'node:net'
import pg from 'pg'
import { checkTarget, hostsOf, refusedByDriver, type ServerOptions } from './hosts.js'

/** Rows of texts, whatever type parsers the application has set. */
export type Row = Array<string | null>
export type Rows = Row[]

export interface Events {
  notified: (channel: string) => void
  ended: (error: Error) => void
}

/** One connection. Only `connect` and `query` do anything that takes time. */
export interface Wire {
  connect: () => Promise<unknown>
  /** The process id of the protocol's key. */
  pid: () => number | null
  /** A Buffer is a value in binary format, others are texts. `prepares`: it is sent again and again. */
  query: (text: string, values?: unknown[], prepares?: boolean) => Promise<Rows>
  /** Tells nothing any more, and closes the socket at once; if it is idle, with a farewell. Resolves when it is closed. */
  destroy: (idle: boolean) => Promise<unknown>
}

/** Makes a connection to one host; it is not connected yet. */
export type Dial = (events: Events) => Wire

/** What a statement needs of the driver's connection. */
interface Connection {
  stream: Socket
  query: (text: string) => void
  parse: (statement: { text: string, name: string }) => void
  bind: (portal: { statement: string, values: unknown[] }) => void
  execute: (portal: object) => void
  sync: () => void
}

/** A statement, as the driver sends those of pg-cursor and the like; rows of texts, whatever type parsers there are. */
class Statement {
  readonly #rows: Rows = []

  /** Without values there may be several, with semicolons. */
  constructor (private readonly text: string, private readonly values: unknown[] | undefined, private readonly as: string,
    private readonly isPrepared: boolean, private readonly done: (rows: Rows) => void, readonly handleError: (error: Error) => void) {}

  submit (connection: Connection): void {
    if (this.values === undefined) {
      connection.query(this.text)
      return
    }
    // In one packet.
    connection.stream.cork()
    if (!this.isPrepared) connection.parse({ text: this.text, name: this.as })
    connection.bind({ statement: this.as, values: this.values })
    connection.execute({})
    connection.sync()
    connection.stream.uncork()
  }

  handleDataRow ({ fields }: { fields: Row }): void { this.#rows.push(fields) }
  handleReadyForQuery (): void { this.done(this.#rows) }
  handleRowDescription (): void {}
  handleCommandComplete (): void {}
  handleEmptyQuery (): void {}
}

function clientOf (config: object): pg.Client {
  let client: pg.Client
  try {
    client = new pg.Client(config)
  } catch (error) {
    throw refusedByDriver(error)
  }
  checkTarget(client)
  return client
}

class PgWire implements Wire {
  readonly #socket = new Socket()
  readonly #client: pg.Client
  #events: Events | undefined
  /** The statement that is prepared under the last of the names. */
  #prepared = ''
  #names = 0

  constructor (config: object, events: Events) {
    this.#events = events
    this.#client = clientOf({ ...config, stream: this.#socket })
    this.#socket.unref()
    const end = (error?: Error): void => {
      this.#events?.ended(error ?? new Error('the server has closed the connection'))
    }
    this.#client.on('error', end)
    this.#client.on('end', () => { end() })
    this.#client.on('notification', n => { this.#events?.notified(n.channel) })
  }

  connect = async (): Promise<unknown> => await this.#client.connect()

  pid (): number | null { return (this.#client as unknown as { processID: number | null }).processID }

  async query (text: string, values?: unknown[], prepares = false): Promise<Rows> {
    const isPrepared = prepares && this.#prepared === text
    // After an error it is prepared again, with another name: nobody knows whether the last one is taken.
    if (prepares && !isPrepared) this.#names++
    if (prepares) this.#prepared = ''
    const rows = await new Promise<Rows>((resolve, reject) => {
      const name = prepares ? `lock_election_${this.#names}` : ''
      this.#client.query(new Statement(text, values, name, isPrepared, resolve, reject) as unknown as pg.Submittable)
    })
    if (prepares) this.#prepared = text
    return rows
  }

  async destroy (idle: boolean): Promise<unknown> {
    this.#events = undefined
    const closed = this.#socket.closed ? undefined : once(this.#socket, 'close')
    if (!idle) this.#socket.destroy()
    this.#client.end().catch(() => {})
    this.#socket.destroySoon()
    return await closed
  }
}

export function dialsOf (options: ServerOptions): Dial[] {
  const common = { fallback_application_name: 'lock-election', keepAlive: true }
  return hostsOf(options).map(one => {
    // The session has limits of its own, which also end what the driver's do not.
    const config = { ...common, ...one, connectionTimeoutMillis: 0, query_timeout: 0, pipeline: false }
    // What is wrong with one of several hosts is told at once, and not when the others are away.
    clientOf(config)
    return events => new PgWire(config, events)
  })
}
