/**
 * The reason of a failed call.
 *
 * | code | meaning |
 * |---|---|
 * | `not_acquired` | others hold the lock, or the wait has timed out; the caller holds nothing and has no place |
 * | `lost` | the hold, or the whole session, has ended |
 * | `canceled` | the session was closed |
 * | `deadlock` | a deadlock (40P01) |
 * | `limit` | a limit of the role or the server was reached (53400, 53200) |
 * | `denied` | a privilege is missing, or the password is wrong (42501, 28xxx) |
 * | `invalid` | an argument is invalid, or no transaction is open (22xxx) |
 * | `unavailable` | there is no server, no such database, or no reply in time; the call has no lasting effect |
 * | `unknown` | there was no reply, so that the call may have taken effect |
 * | `not_installed` | the extension is not installed or not preloaded; the message names the command to run |
 * | `failed` | any other server error |
 */
export type ErrorCode =
  'not_acquired' | 'lost' | 'canceled' | 'deadlock' | 'limit' | 'denied' | 'invalid' | 'unavailable' | 'unknown' |
  'not_installed' | 'failed'

/** Base class of all errors of this library, except the reason of an `AbortSignal` that the caller has passed. */
export class LockElectionError extends Error {
  readonly code: ErrorCode
  /** The SQLSTATE, if the error comes from the server. */
  readonly sqlstate: string | undefined

  constructor (code: ErrorCode, message: string, sqlstate?: string) {
    super(message)
    this.name = new.target.name
    this.code = code
    this.sqlstate = sqlstate
  }
}

/** `not_acquired`: others hold the lock, or the wait has timed out before the grant. */
export class NotAcquiredError extends LockElectionError {
  constructor (message: string) {
    super('not_acquired', message)
  }
}

/** `lost`: the hold is no longer held, or the session has ended. */
export class LockLostError extends LockElectionError {
  constructor (message: string, sqlstate?: string) {
    super('lost', message, sqlstate)
  }
}

/** The session's reaction to an error: throw it in the caller, retry later, or reconnect. */
export type Reaction = 'tell' | 'later' | 'reconnect'

// Codes and reactions by SQLSTATE. The first match applies.
const rules: Array<[RegExp, ErrorCode, Reaction]> = [
  [/^LE001/, 'lost', 'tell'],
  [/^40P01/, 'deadlock', 'tell'],
  [/^53[24]00/, 'limit', 'tell'],
  [/^(42501|28)/, 'denied', 'tell'],
  [/^(22|25P0)/, 'invalid', 'tell'],
  [/^(08007|40003|57014)/, 'unknown', 'later'],
  [/^(08|57P0|53300|25006)/, 'unavailable', 'reconnect'],
  [/^(42883|3F000|55000)/, 'not_installed', 'tell'],
  [/^3D000/, 'unavailable', 'tell'],
  [/^(55P03|57|58|53|40001)/, 'unavailable', 'later'],
  [/^XX/, 'failed', 'later']
]

const install = 'CREATE EXTENSION lock_election, or lockctl install for the portable edition'
const advice: Record<string, string> = {
  42883: install,
  '3F000': install,
  55000: 'add lock_election to shared_preload_libraries, and restart the server'
}

function ruleOf (sqlstate: string | undefined): [RegExp, ErrorCode, Reaction] | undefined {
  return rules.find(([pattern]) => pattern.test(sqlstate ?? ''))
}

export function reactionTo (error: LockElectionError): Reaction {
  return ruleOf(error.sqlstate)?.[2] ?? 'tell'
}

/** Whether the error is temporary, so that a retry may help. */
export function passes (error: LockElectionError): boolean { return reactionTo(error) !== 'tell' }

/** Whether the statement did not find the extension's schema or functions (rule 1.3). */
export function isMoved (error: unknown): error is LockElectionError {
  return error instanceof LockElectionError && (error.sqlstate === '3F000' || error.sqlstate === '42883')
}

export function notInstalled (database: string, sqlstate?: string): LockElectionError {
  return new LockElectionError('not_installed',
    `lock_election is not installed in database "${database}" (${install})`, sqlstate)
}

/** Converts a server error. Returns null if the error comes from the driver or the network. */
export function serverError (error: unknown): LockElectionError | null {
  const { severity, code, message, detail, hint } = error as Record<string, unknown>
  if (typeof severity !== 'string' || typeof code !== 'string') return null
  const kind = ruleOf(code)?.[1] ?? 'failed'
  // For an invalid argument, the detail describes the allowed values.
  const more = hint ?? (kind === 'invalid' ? detail : undefined) ?? advice[code]
  const text = String(message) + (more === undefined ? '' : ` (${String(more)})`)
  return kind === 'lost' ? new LockLostError(text, code) : new LockElectionError(kind, text, code)
}

/** Makes an error with the code `unavailable` from a text, or from an error of the driver or the network. */
export function unavailable (error: unknown): LockElectionError {
  if (typeof error === 'string') return new LockElectionError('unavailable', error)
  const { message, errors = [] } = error as AggregateError
  return unavailable(message !== '' ? message : errors.map(one => (one as Error).message).join('; '))
}
