/**
 * The connection: node-postgres, with a socket of our own, so that a connection can be given up at any moment, whatever
 * state it is in; and the hosts of a connection string, of which the driver knows one.
 */
import { once } from 'node:events'
import { Socket } from 'node:net'
import pg from 'pg'
import { invalid } from './errors.js'

/** Rows of texts, whatever type parsers the application has set. */
export type Rows = Array<Array<string | null>>

export interface Events {
  notified: (channel: string, payload: string) => void
  ended: (error: Error) => void
}

/** One connection. Only `connect` and `query` do anything that takes time. */
export interface Wire {
  connect: () => Promise<unknown>
  /** The process id of the protocol's key. */
  pid: () => number | null
  query: (text: string, values?: unknown[]) => Promise<Rows>
  /** Tells nothing any more, and closes the socket at once; if it is idle, with a farewell. Resolves when it is closed. */
  destroy: (idle: boolean) => Promise<unknown>
}

/** Makes a connection to one host; it is not connected yet. */
export type Dial = (events: Events) => Wire

/** How to connect: the fields of node-postgres, of which these are the usual ones. */
export interface ServerOptions {
  /** A URI or `host=... port=...`, with one host or several. Default: `PGHOST`, `PGPORT` and the like. */
  connectionString?: string
  /** One host, or several with commas. */
  host?: string
  /** One port, or as many as hosts, with commas. */
  port?: number | string
  database?: string
  user?: string
  password?: string | (() => string | Promise<string>)
  ssl?: boolean | object
  application_name?: string
  /** For one host. Milliseconds, default 5,000. */
  connectionTimeoutMillis?: number
}

const asText = { getTypeParser: () => (value: unknown) => value }

class PgWire implements Wire {
  readonly #socket = new Socket()
  readonly #client: pg.Client
  #events: Events | undefined

  constructor (config: object, events: Events) {
    this.#events = events
    try {
      this.#client = new pg.Client({ ...config, stream: this.#socket } as object)
    } catch (error) {
      throw invalid(`not a connection string: ${(error as Error).message}`)
    }
    const end = (error?: Error): void => {
      this.#events?.ended(error ?? new Error('the server has closed the connection'))
    }
    this.#client.on('error', end)
    this.#client.on('end', () => { end() })
    this.#client.on('notification', n => { this.#events?.notified(n.channel, n.payload ?? '') })
  }

  connect = async (): Promise<unknown> => await this.#client.connect()

  pid (): number | null { return (this.#client as unknown as { processID: number | null }).processID }

  async query (text: string, values?: unknown[]): Promise<Rows> {
    const query = { text, values, rowMode: 'array', types: asText } as unknown as pg.QueryArrayConfig
    const result = await this.#client.query<Array<string | null>>(query)
    return result.rows ?? []
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

// "host=a,b port=1,2 dbname=x", as a URI.
function fromKeywords (text: string): string {
  const params = new URLSearchParams()
  let database = ''
  for (const [, key = '', quoted, plain = ''] of text.matchAll(/(\w+)\s*=\s*(?:'((?:\\.|[^'\\])*)'|((?:\\.|[^\s\\])*))/g)) {
    const value = (quoted ?? plain).replace(/\\(.)/g, '$1')
    if (key === 'dbname') database = encodeURIComponent(value)
    else params.set(key, value)
  }
  return `postgresql:///${database}?${params.toString().replace(/\+/g, '%20')}`
}

function pairs (hosts: string, ports: string): Array<{ host: string, port: string }> {
  const list = ports.split(',')
  return hosts.split(',').map((host, i) => ({ host, port: list[i] ?? list[0] ?? '' }))
}

// A URI for each of its hosts.
function spread (uri: string): string[] {
  const [, head = '', hosts = '', path = '', query = ''] = /^(\w+:\/\/(?:[^/?#]*@)?)([^/?#]*)([^?]*)(.*)$/.exec(uri) ?? []
  if (hosts.includes(',')) return hosts.split(',').map(host => head + host + path + query)
  const params = new URLSearchParams(query)
  const all = params.get('host') ?? ''
  if (!all.includes(',')) return [uri]
  return pairs(all, params.get('port') ?? '').map(({ host, port }) => {
    params.set('host', host)
    if (port !== '') params.set('port', port)
    return `${head}${hosts}${path}?${params.toString().replace(/\+/g, '%20')}`
  })
}

/** The configuration of the driver for each host. */
export function hostsOf (options: ServerOptions): object[] {
  const { connectionString: text, ...rest } = options
  if (text !== undefined) {
    return spread(/^\s*\w+\s*=/.test(text) ? fromKeywords(text) : text).map(connectionString => ({ ...rest, connectionString }))
  }
  const host = options.host ?? process.env.PGHOST
  if (!host?.includes(',')) return [rest]
  return pairs(host, String(options.port ?? process.env.PGPORT ?? 5432)).map(one => ({ ...rest, ...one }))
}

export function dialsOf (options: ServerOptions): Dial[] {
  const common = { fallback_application_name: 'lock-election', keepAlive: true }
  // The session has a limit of its own, which also ends what the driver's does not.
  return hostsOf(options).map(config => events => new PgWire({ ...common, ...config, connectionTimeoutMillis: 0 }, events))
}
