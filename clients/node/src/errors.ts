/**
 * Why a call did not do what it was asked for.
 *
 * | code | meaning |
 * |---|---|
 * | `not_acquired` | somebody else has it, or the limit of time is over: nothing is held, nothing waits |
 * | `lost` | the hold, or the whole session, has ended |
 * | `canceled` | the session was closed |
 * | `deadlock` | 40P01 |
 * | `limit` | a limit of the role or the server: 53400, 53200 |
 * | `denied` | no right, or a wrong password: 42501, 28xxx |
 * | `invalid` | a wrong argument, or no open transaction: 22xxx |
 * | `unavailable` | no server, no such database, or no answer in time; nothing lasts |
 * | `unknown` | no answer, and it may have taken effect |
 * | `not_installed` | the extension is not there; the message says what to type |
 * | `failed` | any other error of the server |
 */
export type ErrorCode =
  'not_acquired' | 'lost' | 'canceled' | 'deadlock' | 'limit' | 'denied' | 'invalid' | 'unavailable' | 'unknown' |
  'not_installed' | 'failed'

/** All errors of this library, but for the reason of an `AbortSignal` that the caller has passed. */
export class LockElectionError extends Error {
  readonly code: ErrorCode
  /** The server's SQLSTATE, if the error is the server's. */
  readonly sqlstate: string | undefined

  constructor (code: ErrorCode, message: string, sqlstate?: string) {
    super(message)
    this.name = new.target.name
    this.code = code
    this.sqlstate = sqlstate
  }
}

/** `not_acquired`: somebody else has it, or the wait was over before the grant. */
export class NotAcquiredError extends LockElectionError {
  constructor (message: string) {
    super('not_acquired', message)
  }
}

/** `lost`: what was held is not held any more. */
export class LockLostError extends LockElectionError {
  constructor (message: string, sqlstate?: string) {
    super('lost', message, sqlstate)
  }
}

/** What the session does about an error: tell its caller, try again later, or give the connection up. */
export type Reaction = 'tell' | 'later' | 'reconnect'

// The first that fits counts.
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

/** It is nobody's fault, and another try may mend it. */
export function passes (error: LockElectionError): boolean { return reactionTo(error) !== 'tell' }

/** The schema of the extension has another name than a moment ago, or the extension is not there (rule 1.3). */
export function isMoved (error: unknown): error is LockElectionError {
  return error instanceof LockElectionError && (error.sqlstate === '3F000' || error.sqlstate === '42883')
}

export function notInstalled (database: string, sqlstate?: string): LockElectionError {
  return new LockElectionError('not_installed',
    `lock_election is not installed in database "${database}" (${install})`, sqlstate)
}

/** An error message of the server; null: the error is the driver's or the network's. */
export function serverError (error: unknown): LockElectionError | null {
  const { severity, code, message, detail, hint } = error as Record<string, unknown>
  if (typeof severity !== 'string' || typeof code !== 'string') return null
  const kind = ruleOf(code)?.[1] ?? 'failed'
  // Of a wrong argument, what is allowed.
  const more = hint ?? (kind === 'invalid' ? detail : undefined) ?? advice[code]
  const text = String(message) + (more === undefined ? '' : ` (${String(more)})`)
  return kind === 'lost' ? new LockLostError(text, code) : new LockElectionError(kind, text, code)
}

/** No server; of an error of the driver or the network, or of a text. */
export function unavailable (error: unknown): LockElectionError {
  if (typeof error === 'string') return new LockElectionError('unavailable', error)
  const { message, errors = [] } = error as AggregateError
  return unavailable(message !== '' ? message : errors.map(one => (one as Error).message).join('; '))
}
