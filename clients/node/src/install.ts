import { checkOptions, invalid, textOf } from './args.js'
import { LockElectionError, serverError } from './errors.js'
import { literal, type Queryable } from './hold.js'
import script from './script.js'

/** The options of {@link install}. */
export interface InstallOptions {
  /**
   * The schema for the functions, created if missing. Default: the first schema of `search_path`. An edition that is
   * already installed stays in its schema.
   */
  schema?: string | undefined
  /** The role that may use the schema. Default: all roles may use a schema that `install` creates. */
  grant?: string | undefined
}

/** The SQL that {@link install} runs, for tools such as migrations, which must run it in one transaction. */
export const installScript: string = script

async function query (client: Queryable, sql: string): Promise<any[]> {
  try {
    return (await client.query(sql)).rows
  } catch (error) {
    throw serverError(error) ?? new LockElectionError('unknown', `no answer: ${(error as Error).message}`)
  }
}

/**
 * Installs the portable edition of lock_election, which has no C code, or upgrades an older version, in one
 * transaction. If this version is already installed, does nothing and needs no privilege. Otherwise the role needs
 * CREATE on the database. It becomes the owner of all locks, so it should not be the application's role.
 *
 * @param client a Client, PoolClient or Pool of node-postgres, without an open transaction
 * @throws LockElectionError `denied` if the role lacks CREATE or another role has installed the edition; `invalid` if
 * a transaction is open or there is no schema; `unavailable` on a standby or in a read-only session; `unknown` if the
 * outcome is not known, in which case the call can be repeated; `failed` if a newer version or the extension is
 * installed, or the server cannot run the edition
 */
export async function install (client: Queryable, options: InstallOptions = {}): Promise<void> {
  checkOptions(options, 'schema', 'grant')
  if (typeof client?.query !== 'function') throw invalid('client has to be a Client, PoolClient or Pool of node-postgres')
  const [schema, grant] = (['schema', 'grant'] as const).map(key =>
    literal(options[key] === undefined ? '' : textOf(key, options[key])))
  // The schema's comment names the installed version, which is current if the script contains the same comment.
  const [found] = await query(client, 'SELECT (pg_catalog.transaction_timestamp() OPERATOR(pg_catalog.<>)' +
    ' pg_catalog.statement_timestamp())::pg_catalog.text AS open, pg_catalog.obj_description(' +
    "pg_catalog.to_regnamespace('_lock_election')::pg_catalog.oid, 'pg_namespace') AS comment")
  if (found.open === 'true') throw invalid('the connection has an open transaction: the installation requires its own')
  if (typeof found.comment === 'string' && script.includes(found.comment)) return
  // One simple query is one transaction, which an error rolls back.
  await query(client, 'SET TRANSACTION ISOLATION LEVEL READ COMMITTED;' +
    `SELECT pg_catalog.set_config('_lock_election.schema', ${schema}, true),` +
    ` pg_catalog.set_config('_lock_election.grant', ${grant}, true);\n${script}`)
}
