/**
 * The connection: node-postgres with a socket that this library creates, so that a connection can be closed at any
 * moment, in any state. The socket does not keep the process alive, but calls do (`Engine.use`).
 */
import { once } from 'node:events'
import { Socket } from 'node:net'
import pg from 'pg'
import { checkTarget, hostsOf, refusedByDriver, type ServerOptions } from './hosts.js'

/** A row of texts, regardless of the type parsers that the application has set. */
export type Row = Array<string | null>
export type Rows = Row[]

export interface Events {
  notified: (channel: string) => void
  ended: (error: Error) => void
}

/** One connection. */
export interface Wire {
  connect: () => Promise<unknown>
  /** The process id from BackendKeyData. */
  pid: () => number | null
  /**
   * Runs a statement. A value that is a Buffer is in binary format; all other values are texts. `prepares`: uses a
   * prepared statement, because the same text is sent repeatedly.
   */
  query: (text: string, values?: unknown[], prepares?: boolean) => Promise<Rows>
  /**
   * Closes the socket immediately, and reports no more events. If `idle`, sends the server a Terminate message first.
   * Resolves when the socket is closed.
   */
  destroy: (idle: boolean) => Promise<unknown>
}

/** Creates the object for a connection to one host, without connecting. */
export type Dial = (events: Events) => Wire

/** The part of the driver's connection that a statement uses. */
interface Connection {
  stream: Socket
  query: (text: string) => void
  parse: (statement: { text: string, name: string }) => void
  bind: (portal: { statement: string, values: unknown[] }) => void
  execute: (portal: object) => void
  sync: () => void
}

/**
 * A statement, which the driver sends like a statement of pg-cursor. Its rows are texts, regardless of the type
 * parsers.
 */
class Statement {
  readonly #rows: Rows = []

  /** Without values, the text may contain several statements, separated by semicolons. */
  constructor (private readonly text: string, private readonly values: unknown[] | undefined, private readonly as: string,
    private readonly isPrepared: boolean, private readonly done: (rows: Rows) => void, readonly handleError: (error: Error) => void) {}

  submit (connection: Connection): void {
    if (this.values === undefined) {
      connection.query(this.text)
      return
    }
    // Send all messages in one packet.
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
  /** The text that is prepared under the last name; '' = none. */
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
    // After an error, use a new name, because it is unknown whether the last name is in use.
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
    // The session has its own time limits, which also cover waits that the driver does not limit.
    const config = { ...common, ...one, connectionTimeoutMillis: 0, query_timeout: 0, pipeline: false }
    // Report a wrong configuration of any host now, and not only when the other hosts are down.
    clientOf(config)
    return events => new PgWire(config, events)
  })
}
