import { checkOptions, invalid, textOf } from './args.js'
import { LockElectionError, serverError } from './errors.js'
import { literal, type Queryable } from './hold.js'
import script from './script.js'

/** Of {@link install}. */
export interface InstallOptions {
  /**
   * For the functions, made if it is missing; else the first one of `search_path`. An edition that is installed stays
   * in its schema.
   */
  schema?: string | undefined
  /** The role that may use the schema; everybody may use one that is made otherwise. */
  grant?: string | undefined
}

/** The SQL that {@link install} runs, for tools that run it themselves, such as migrations: in one transaction. */
export const installScript: string = script

async function query (client: Queryable, sql: string): Promise<any[]> {
  try {
    return (await client.query(sql)).rows
  } catch (error) {
    throw serverError(error) ?? new LockElectionError('unknown', `no answer: ${(error as Error).message}`)
  }
}

/**
 * Installs the portable edition of lock_election, the one without C, or upgrades an older version, in one transaction.
 * Does nothing where this version is there already, whoever calls. The role needs CREATE on the database, and owns all
 * locks afterwards: it should not be the application's.
 *
 * @param client a Client, PoolClient or Pool of node-postgres, without an open transaction
 * @throws LockElectionError `denied`: no CREATE, or another role has installed; `invalid`: a transaction is open, or
 * there is no schema; `unavailable`: a standby, or a read-only session; `unknown`: it may be installed, call again;
 * `failed`: a newer version is there, or the extension, or the server cannot run it
 */
export async function install (client: Queryable, options: InstallOptions = {}): Promise<void> {
  checkOptions(options, 'schema', 'grant')
  if (typeof client?.query !== 'function') throw invalid('client has to be a Client, PoolClient or Pool of node-postgres')
  const [schema, grant] = (['schema', 'grant'] as const).map(key =>
    literal(options[key] === undefined ? '' : textOf(key, options[key])))
  // Each version has a comment of its own, which stands in the script as well.
  const [found] = await query(client, 'SELECT (pg_catalog.transaction_timestamp() OPERATOR(pg_catalog.<>)' +
    ' pg_catalog.statement_timestamp())::pg_catalog.text AS open, pg_catalog.obj_description(' +
    "pg_catalog.to_regnamespace('_lock_election')::pg_catalog.oid, 'pg_namespace') AS comment")
  if (found.open === 'true') throw invalid('the connection has an open transaction: the installation is one of its own')
  if (typeof found.comment === 'string' && script.includes(found.comment)) return
  // One simple query is one transaction, which an error rolls back.
  await query(client, 'SET TRANSACTION ISOLATION LEVEL READ COMMITTED;' +
    `SELECT pg_catalog.set_config('_lock_election.schema', ${schema}, true),` +
    ` pg_catalog.set_config('_lock_election.grant', ${grant}, true);\n${script}`)
}
