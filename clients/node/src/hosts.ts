/**
 * Splits a connection string by hosts, because node-postgres supports only one host, and rejects wrong strings. No
 * message shows any part of a connection string: in a string with a mistake, any part may belong to the password
 * (rule 8.4).
 */
import type { Client } from 'pg'
import { invalid, secretOf } from './args.js'
import type { LockElectionError } from './errors.js'

/** The options of the connection: the usual fields of node-postgres. All its other fields are accepted, too. */
export interface ServerOptions {
  /** A URI or `host=... port=...`, with one or several hosts. Default: `PGHOST`, `PGPORT` and the like. */
  connectionString?: string
  /** One host, or several hosts separated by commas. */
  host?: string
  /** One port for all hosts, or one port per host, separated by commas. */
  port?: number | string
  database?: string
  user?: string
  password?: string | (() => string | Promise<string>)
  ssl?: boolean | object
  application_name?: string
  /** The time limit for connecting to one host, in milliseconds. Default: 5,000. */
  connectionTimeoutMillis?: number
}

function unreadable (why: string): LockElectionError { return invalid(`connectionString cannot be parsed: ${why}`) }

// Converts keywords, such as "host=a,b port=1,2 dbname=x", to a URI.
function fromKeywords (text: string): string {
  const params = new URLSearchParams()
  const pair = /\s*(\w+)\s*=\s*(?:'((?:\\.|[^'\\])*)'|((?!')(?:\\.|[^\s\\])*))(?=\s|$)/gy
  let database = ''
  let end = 0
  for (const match of text.matchAll(pair)) {
    const [all, key = '', quoted, plain = ''] = match
    if (key !== 'password' && /;\s*\w+\s*=/.test(plain)) throw unreadable('a space, and no semicolon, is between keywords')
    const value = (quoted ?? plain).replace(/\\(.)/g, '$1')
    // The driver decodes the database name with decodeURI, so encode it with encodeURI.
    if (key === 'dbname') database = encodeURI(value).replace(/[?#]/g, encodeURIComponent)
    else params.set(key, value)
    end = match.index + all.length
  }
  if (end < text.length) throw unreadable("a keyword without =, or a quote without its end; values with spaces are in '...'")
  return `postgresql:///${database}?${params.toString().replace(/\+/g, '%20')}`
}

/** Rejects a URI with an unencoded special character, by which part of a password may look like a host or database. */
function checkUri (uri: string): void {
  const [, authority = '', path = '', query = ''] = /^\w+:\/\/([^/?#]*)([^?#]*)([^#]*)/.exec(uri) ?? []
  const [, hosts = ''] = /^(?:.*@)?(.*)$/.exec(authority) ?? []
  if (uri.includes('#')) throw unreadable('# has to be %23')
  if (path.includes('@')) throw unreadable('/ in a user or password has to be %2F, @ in the name of a database %40')
  if (/[?&][^=&]*@/.test(query)) throw unreadable('? in a user or password has to be %3F')
  if (/[=;\s]/.test(hosts)) throw unreadable('a host with a character that no host has')
}

function pairs (hosts: string, ports: string): Array<{ host: string, port: string }> {
  const list = ports.split(',')
  return hosts.split(',').map((host, i) => ({ host, port: list[i] ?? list[0] ?? '' }))
}

// Returns a URI for each host of a URI.
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

// Reads a URI, keywords, or the other forms of node-postgres: "socket:/run/postgresql?db=x", "/run/postgresql x".
function fromText (text: string): string[] {
  if (/^\w+\s*=/.test(text)) return spread(fromKeywords(text))
  if (/^(\/|socket:\/)/.test(text)) return [text]
  if (!/^\w+:\/\//.test(text)) throw unreadable('it has to begin with postgresql://, or with a keyword and =')
  checkUri(text)
  return spread(text)
}

/** Returns the driver's configuration for each host. */
export function hostsOf (options: ServerOptions): object[] {
  const { connectionString: text, ...rest } = options
  for (const field of ['connectionString', 'host', 'database', 'user', 'application_name'] as const) {
    secretOf(field, 'a string', options[field], 'string')
  }
  secretOf('port', 'a number', options.port, 'number', 'string')
  secretOf('password', 'a string or a function', options.password, 'string', 'function')
  if (text !== undefined && text !== null) {
    return fromText(text.trim()).map(connectionString => ({ ...rest, connectionString }))
  }
  const host = options.host ?? process.env.PGHOST
  if (!host?.includes(',')) return [rest]
  return pairs(host, String(options.port ?? process.env.PGPORT ?? 5432)).map(one => ({ ...rest, ...one }))
}

/**
 * Checks the host, database and user with which the driver would connect, because the error of a server or a resolver
 * would show a wrong one, which may contain a password.
 */
export function checkTarget ({ host, port, database, user }: Client): void {
  for (const [field, value] of Object.entries({ host, database, user })) {
    if (typeof value !== 'string' || !/:\/\/|\b(password|passwd|pwd)\s*(=|%3d)/i.test(value)) continue
    throw invalid(`${field} has to be one, and not a whole connection string: that is the option connectionString`)
  }
  if (!host?.startsWith('/') && /[=;@\s]/.test(host ?? '')) throw invalid('host has a character that no host has')
  if (!(Number.isInteger(port) && port > 0 && port < 65_536)) throw invalid('port has to be an integer from 1 to 65535')
}

/** Converts a driver's error about the connection options. Uses only its kind: its text may quote a password. */
export function refusedByDriver (error: unknown): LockElectionError {
  const { code, name } = error as NodeJS.ErrnoException
  if (error instanceof URIError) return unreadable('a % without two hexadecimal digits behind it')
  if (code === 'ERR_INVALID_URL') return unreadable('it is no URI; its host or its port is wrong')
  if (/^E[A-Z]+$/.test(code ?? '')) return invalid(`a file that the connection options name cannot be read: ${code}`)
  return invalid(`node-postgres refuses the connection options: ${/^\w+$/.test(name ?? '') ? name : 'Error'}`)
}
