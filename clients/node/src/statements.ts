/** The statements that ask for holds and places, and give them back. */
import type { Item, Lease } from './item.js'

/** The text and its values. */
export type Statement = [text: string, values?: unknown[]]

const ask = {
  lock: ['try_acquire_each($1, owner => $2, lease => $3, mode => $4)',
    'enqueue_each($1, owner => $2, lease => $3, mode => $4)'],
  locks: ["acquire_locks($1, wait => '0', owner => $2, lease => $3, mode => $4)",
    'enqueue_locks($1, owner => $2, lease => $3, mode => $4)'],
  permit: ["acquire_permit($1, wait => '0', owner => $2, lease => $3, permits => $4)",
    'enqueue_permit($1, owner => $2, lease => $3, permits => $4)'],
  term: ["campaign($1, wait => '0', owner => $2, lease => $3, candidate => $4)",
    'enqueue_candidate($1, owner => $2, lease => $3, candidate => $4)']
}

/** Several names as an array, one as a text, in the way of the functions of its kind. */
export function namesOf (item: Item): string | string[] {
  return item.kind === 'locks' ? item.names : item.name
}

/** Rows of token, granted and channel, or of the token alone: a row an item. */
export function askFor (items: Item[], schema: string, owner: string): Statement {
  const { kind, how, lease } = items[0] as Item
  const columns = how.try
    ? kind === 'lock' ? 'token' : '*'
    : kind === 'term' ? 'term, elected, channel' : 'token, granted, channel'
  const names = kind === 'lock' ? items.map(item => item.name) : namesOf(items[0] as Item)
  const extra = kind === 'permit' ? how.permits : kind === 'term' ? how.candidate : how.shared ? 'shared' : 'exclusive'
  return [`SELECT ${columns} FROM ${schema}.${ask[kind][how.try ? 0 : 1] as string}`, [names, owner, lease.id, extra]]
}

/** Milliseconds as the server reads them, without an exponent. */
export function interval (ms: number): string { return `${ms.toFixed(3)} ms` }

/** One row: the whole milliseconds of validity, in a type that no setting of a role prints in another way. */
export function renew (lease: Lease, schema: string): Statement {
  return [`SELECT pg_catalog.floor(pg_catalog.date_part('epoch', ${schema}.keep_alive($1)) OPERATOR(pg_catalog.*) 1000)` +
    '::pg_catalog.int8', [lease.id]]
}

/** Can it travel with others? */
export function isSimple (item: Item): boolean {
  if (item.alone) return false
  if (item.state === 'waiting') return item.kind === 'lock'
  return item.holdFor === undefined && (item.kind === 'lock' || item.kind === 'permit')
}

export function areAlike (a: Item, b: Item): boolean {
  return a.state !== 'waiting' || (a.lease === b.lease && a.how.try === b.how.try && a.how.shared === b.how.shared)
}

/** Rows of one boolean: a row an item. */
export function giveBack (items: Item[], schema: string): Statement {
  const first = items[0] as Item
  if (isSimple(first)) {
    return [`SELECT released FROM ${schema}.release_each($1, $2)`,
      [items.map(item => item.name), items.map(item => item.token)]]
  }
  const values: unknown[] = [namesOf(first), first.token]
  if (first.kind === 'term') return [`SELECT ${schema}.resign($1, $2)`, values]
  if (first.holdFor === undefined) {
    const release = first.kind === 'locks' ? 'release_locks($1, $2)' : 'release_lock($1, $2, NULL, true)'
    return [`SELECT ${schema}.${release}`, values]
  }
  values.push(interval(first.holdFor))
  if (first.kind !== 'locks') return [`SELECT ${schema}.release_lock($1, $2, $3, true)`, values]
  return [`SELECT pg_catalog.bool_and(${schema}.release_lock(n, $2, $3, true)) FROM pg_catalog.unnest($1::text[]) n`, values]
}

/** One row: the places in the arrays that are granted. */
export function areHeld (items: Item[], schema: string): Statement {
  return ['SELECT o FROM ROWS FROM (pg_catalog.unnest($1::text[]), pg_catalog.unnest($2::bigint[]),' +
    ' pg_catalog.unnest($3::boolean[])) WITH ORDINALITY AS u(n, t, e, o)' +
    ` WHERE CASE WHEN e THEN ${schema}.is_leader(n, t) ELSE ${schema}.is_held(n, t) END`,
  [items.map(item => item.name), items.map(item => item.token), items.map(item => item.kind === 'term')]]
}

/** A row for each name that hangs on a lease. */
export function lookAt (lease: Lease, schema: string): Statement {
  return [`SELECT kind, name, token, granted, channel, owner FROM ${schema}.lease_holds($1)`, [lease.id]]
}

/** What has to be known of a server, in one round trip. */
export const learnServer =
  'SELECT pg_catalog.quote_ident(n.nspname), pg_catalog.pg_is_in_recovery(), pg_catalog.pg_backend_pid(),' +
  " pg_catalog.current_setting('lock_election.notify', true)," +
  ' (SELECT a.backend_start FROM pg_catalog.pg_stat_activity a' +
  ' WHERE a.pid OPERATOR(pg_catalog.=) pg_catalog.pg_backend_pid()),' +
  ' pg_catalog.current_database()' +
  ' FROM (VALUES (0)) v LEFT JOIN (pg_catalog.pg_extension e JOIN pg_catalog.pg_namespace n' +
  " ON n.oid OPERATOR(pg_catalog.=) e.extnamespace AND e.extname OPERATOR(pg_catalog.=) 'lock_election') ON true"

/** Ends the backend of the connection before; no row: it is gone. */
export const endBackend =
  'SELECT pg_catalog.pg_terminate_backend(pid, $3) FROM pg_catalog.pg_stat_activity' +
  ' WHERE pid = $1 AND backend_start = $2'
