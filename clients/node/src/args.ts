/**
 * Argument checks, for callers whose types are not checked. A message names the argument, its value, and the allowed
 * values, in JavaScript terms. The server checks the rest: lengths in bytes, and limits that are settings.
 */
import { LockElectionError } from './errors.js'

/** The limits of a TTL and of `holdFor`, in milliseconds. */
const SHORTEST_TTL = 100
const LONGEST = 24 * 86_400_000
const MOST_PERMITS = 2 ** 31 - 1

export function invalid (message: string): LockElectionError { return new LockElectionError('invalid', message) }

/** Milliseconds; null or undefined = the default. */
type Duration = number | null | undefined

/** Describes an argument for messages: the number NaN, the string "5 s", a Date. */
function described (value: unknown): string {
  switch (typeof value) {
    case 'string': return `the string ${JSON.stringify(value.length > 40 ? `${value.slice(0, 40)}..` : value)}`
    case 'bigint': return `the bigint ${value}n`
    case 'number': return `the number ${Object.is(value, -0) ? '-0' : value}`
    case 'boolean': return String(value)
    default: return kindOf(value)
  }
}

/** Describes the type of an argument, without its value. */
function kindOf (value: unknown): string {
  if (value === null || value === undefined) return String(value)
  if (typeof value !== 'object') return `a ${typeof value}`
  if (Array.isArray(value)) return 'an array'
  const tag = Object.prototype.toString.call(value).slice(8, -1)
  const name = tag === 'Object' ? (value.constructor as { name?: string } | undefined)?.name ?? '' : tag
  return name === 'Object' || name === '' ? 'an object' : `an object of the class ${name}`
}

function wrong (argument: string, allowed: string, value: unknown, more = ''): LockElectionError {
  return invalid(`${argument} has to be ${allowed}, and not ${described(value)}${more}`)
}

/** Returns advice for durations of the wrong unit or type, which configurations often contain. */
function adviceOn (duration: unknown, least: number): string {
  if (typeof duration === 'number' && duration > 0 && duration < least) {
    return `; ${duration} seconds are ${Math.round(duration * 1000)}`
  }
  if (typeof duration === 'string') return '; a duration is a number, such as 500 for "500ms"'
  if (typeof duration === 'bigint') return '; a duration is a number: Number(value)'
  const isTemporal = duration !== null && typeof duration === 'object' && typeof (duration as any).total === 'function'
  return isTemporal ? "; a duration is a number: duration.total('milliseconds')" : ''
}

function milliseconds (argument: string, value: Duration, least: number, most: number): number | undefined {
  if (value === null || value === undefined) return undefined
  if (typeof value === 'number' && value >= least && value <= most) return value
  const range = most === Infinity ? `${least} or more` : `from ${least} to ${most}`
  throw wrong(argument, `a number of milliseconds, ${range}`, value, adviceOn(value, least))
}

/** Checks the TTL of a lease. */
export function ttlOf (value: Duration): number | undefined { return milliseconds('ttl', value, SHORTEST_TTL, LONGEST) }

export function holdForOf (value: Duration): number | undefined { return milliseconds('holdFor', value, 0, LONGEST) }

/** Checks a time limit, which must not be negative; Infinity = no limit. */
export function limitOf (argument: string, value: Duration): number | undefined {
  return milliseconds(argument, value, 0, Infinity)
}

/** Returns advice for values that can be converted to a string. */
function adviceOnText (value: unknown): string {
  if (value instanceof Uint8Array) return '; bytes are passed as Buffer.from(value).toString()'
  return ['number', 'bigint'].includes(typeof value) ? '; a number is passed as String(value)' : ''
}

/** Rejects NUL, which PostgreSQL cannot store, and lone surrogates, all of which would be encoded as the same bytes. */
export function textOf (argument: string, value: unknown): string {
  if (typeof value !== 'string') throw wrong(argument, 'a string', value, adviceOnText(value))
  const surrogate = value.search(/\p{Surrogate}/u)
  if (surrogate >= 0) throw invalid(`${argument} has to be well-formed Unicode, and there is a lone surrogate at index ${surrogate}`)
  const nul = value.indexOf('\0')
  if (nul >= 0) throw invalid(`${argument} has to be a string without U+0000, and there is one at index ${nul}`)
  return value
}

export function namesOf (value: unknown): string[] {
  if (!Array.isArray(value)) throw wrong('names', 'an array of strings', value)
  return Array.from(value, (name: unknown, i) => textOf(`the name at index ${i}`, name))
}

/** Checks one name, or several. */
export function nameOrNamesOf (value: unknown): string[] {
  if (Array.isArray(value)) return namesOf(value)
  if (typeof value !== 'string') throw wrong('names', 'a string or an array of strings', value, adviceOnText(value))
  return [textOf('names', value)]
}

export function permitsOf (value: unknown): number {
  if (Number.isInteger(value) && (value as number) >= 1 && (value as number) <= MOST_PERMITS) return value as number
  throw wrong('permits', `an integer from 1 to ${MOST_PERMITS}`, value)
}

export function flagOf (argument: string, value: unknown): boolean {
  if (value === null || value === undefined) return false
  if (typeof value !== 'boolean') throw wrong(argument, 'true or false', value)
  return value
}

export function functionOf<T> (argument: string, value: T): T {
  if (typeof value !== 'function') throw wrong(argument, 'a function', value)
  return value
}

/** Checks an AbortSignal. Accepts implementations other than that of Node.js. */
export function signalOf (value: unknown): AbortSignal | undefined {
  if (value === null || value === undefined) return undefined
  const { aborted, addEventListener } = value as AbortSignal
  if (typeof aborted !== 'boolean' || typeof addEventListener !== 'function') throw wrong('signal', 'an AbortSignal', value)
  return value as AbortSignal
}

/** Checks an option of the connection. The error does not show the value, which may be a secret. */
export function secretOf<T> (argument: string, allowed: string, value: T, ...types: string[]): T {
  if (value === null || value === undefined || types.includes(typeof value)) return value
  throw invalid(`${argument} has to be ${allowed}, and not ${kindOf(value)}`)
}

/** Returns the error for an unknown option, if there is one, because a misspelt option must not be ignored. */
export function wrongOptions (options: unknown, ...known: string[]): LockElectionError | undefined {
  if (options === null || typeof options !== 'object') return wrong('options', 'an object', options)
  const unknown = Object.keys(options).find(key => !known.includes(key))
  return unknown === undefined ? undefined : invalid(`there is no option ${unknown} here: ${known.join(', ')}`)
}

export function checkOptions (options: unknown, ...known: string[]): void {
  const found = wrongOptions(options, ...known)
  if (found !== undefined) throw found
}
