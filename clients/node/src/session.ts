import {
  checkOptions, flagOf, functionOf, holdForOf, limitOf, nameOrNamesOf, namesOf, permitsOf, signalOf, textOf, ttlOf,
  wrongOptions
} from './args.js'
import { systemTime } from './clock.js'
import { Election, observe, type ElectOptions, type Leader } from './election.js'
import { Engine, type State } from './engine.js'
import { LockElectionError, LockLostError, NotAcquiredError } from './errors.js'
import { Reporter, type LockEvent } from './events.js'
import { closeAtTheEnd } from './goodbye.js'
import { Hold, Term, asyncDispose } from './hold.js'
import type { ServerOptions } from './hosts.js'
import { Claim, interval, type Item, type Kind } from './lease.js'
import { onAbort } from './signals.js'
import { dialsOf } from './wire.js'

const DEFAULT_TTL = 30_000

export interface ConnectOptions extends ServerOptions {
  /** The TTL of the session's lease in milliseconds, from 100 to 24 days. Default: 30,000. */
  ttl?: number
  /** The beginning of `owner` in the server's views. It is cut to 200 bytes. */
  name?: string
  /** Function that is called after each change of the state; for `ended`, after all losses of holds were reported. */
  onState?: (state: State) => void
  /**
   * Function that is called with each event, in order, in the async context of the call that requested the lock. If it
   * throws, the error is emitted as a warning of the process.
   */
  onEvent?: (event: LockEvent) => unknown
  /** Signal that ends the attempt to connect: `connect` throws its reason. */
  signal?: AbortSignal
  /** Any other field of node-postgres. */
  [field: string]: unknown
}

export interface AcquireOptions {
  /** The limit of the wait for the grant, in milliseconds; null or undefined = no limit, 0 = do not wait. */
  wait?: number | null
  /** Whether other shared holders may hold the lock at the same time. */
  shared?: boolean
  /** The TTL in milliseconds. Default: the session's TTL. All holds with the same TTL share a lease. */
  ttl?: number
  /** Signal that ends the wait: the call throws its reason. */
  signal?: AbortSignal
}

export type UsingFunction<T> = (signal: AbortSignal, hold: Hold) => Promise<T> | T

/**
 * A session: one connection and one lease, on which all its holds and waits depend. A process needs one session.
 *
 * Between calls the session renews the lease, reconnects, and watches the deadline. The deadline is the time at which
 * the last confirmed renewal was sent, plus the validity that the server returned, minus a margin of a twentieth of
 * the TTL (at most 1 s). At the deadline the session ends; `reopen` gives it a new lease.
 */
export class LockElection {
  readonly #engine: Engine
  /** Cancels the close of the session at the end of the process. */
  readonly #atTheEnd: () => void

  /** @internal */
  constructor (engine: Engine, atTheEnd = (): void => {}) {
    this.#engine = engine
    this.#atTheEnd = atTheEnd
  }

  /**
   * Connects, and gets a lease. Tries each host once.
   *
   * @throws LockElectionError `unavailable`, `denied`, `not_installed`, `limit` or `invalid`; or the signal's reason
   */
  static async connect (options: ConnectOptions = {}): Promise<LockElection> {
    checkOptions(options, ...Object.keys(options ?? {}))
    const { ttl, name, onState, onEvent, signal: given, ...server } = options
    const signal = signalOf(given)
    const engine = new Engine({
      ttl: ttlOf(ttl) ?? DEFAULT_TTL,
      name: textOf('name', name ?? ''),
      // 0 means no separate limit, as in node-postgres.
      connectLimit: limitOf('connectionTimeoutMillis', server.connectionTimeoutMillis) || undefined,
      time: systemTime,
      dials: dialsOf(server)
    })
    if (onState !== undefined && onState !== null) functionOf('onState', onState)
    if (onEvent !== undefined && onEvent !== null) functionOf('onEvent', onEvent)
    signal?.throwIfAborted()
    const done = onAbort(signal, () => { engine.abandon(signal?.reason as Error) })
    try {
      await engine.open()
    } finally {
      done()
      signal?.throwIfAborted()
    }
    engine.onState = onState ?? engine.onState
    engine.reporter = onEvent == null ? undefined : new Reporter(onEvent, systemTime)
    return new LockElection(engine, closeAtTheEnd(engine))
  }

  /** `connected`, `suspended` (no connection, but all holds are still held) or `ended` (nothing is held). */
  get state (): State { this.#engine.check(); return this.#engine.state }

  /** The number of the lease on the server. */
  get lease (): bigint { return BigInt(this.#engine.main.id) }

  /**
   * Acquires one lock, or several locks atomically (all or none), under one token. Waits in order of arrival. Two
   * holds of one session exclude each other like the holds of two processes.
   *
   * @throws LockElectionError `not_acquired` (`NotAcquiredError`) if it is not granted within `wait`; `lost` if the
   * session or the place has ended; `canceled` if the session was closed; `unavailable` if `wait` is 0 and the server
   * does not reply; `deadlock`, `limit`, `denied`, `invalid` or `failed`. After any error nothing is held; a grant
   * whose reply was lost is released.
   */
  async acquire (names: string | string[], options: AcquireOptions = {}): Promise<Hold> {
    checkOptions(options, 'wait', 'shared', 'ttl', 'signal')
    return await this.#acquire('lock', nameOrNamesOf(names), options, { action: flagOf('shared', options.shared) ? 'shared' : 'lock' })
  }

  /** Like `acquire`, but does not wait. Returns null if others hold the lock or are queued for it. */
  async tryAcquire (names: string | string[], options: Omit<AcquireOptions, 'wait'> = {}): Promise<Hold | null> {
    checkOptions(options, 'shared', 'ttl', 'signal')
    return await this.acquire(names, { ...options, wait: 0 }).catch(orNull)
  }

  /**
   * Acquires one of `permits` permits of a name. All users of a name must pass the same number. Throws the errors of
   * `acquire`.
   */
  async permit (name: string, permits: number, options: Omit<AcquireOptions, 'shared'> = {}): Promise<Hold> {
    checkOptions(options, 'wait', 'ttl', 'signal')
    return await this.#acquire('permit', [textOf('name', name)], options,
      { action: 'permit', number: String(permitsOf(permits)) })
  }

  /**
   * Tries to acquire each name independently, with one statement per 128 names. Returns a hold or null for each name,
   * in order.
   *
   * @throws the errors of `acquire`; in that case none of the names is held
   */
  async tryAcquireEach (names: string[], options: Omit<AcquireOptions, 'wait'> = {}): Promise<Array<Hold | null>> {
    checkOptions(options, 'shared', 'ttl', 'signal')
    const tries = namesOf(names).map(async name => await this.tryAcquire(name, options))
    const settled = await Promise.allSettled(tries)
    const failure = settled.find((one): one is PromiseRejectedResult => one.status === 'rejected')
    const holds = settled.map(one => one.status === 'fulfilled' ? one.value : null)
    if (failure === undefined) return holds
    await Promise.all(holds.map(async hold => await hold?.release()))
    throw failure.reason
  }

  /**
   * Acquires the lock, runs a function, and releases the lock. The function's signal is aborted when the lock is lost.
   *
   * @returns the function's result
   * @throws the errors of `acquire` and of the function; `LockLostError` if the lock was lost before the function
   * returned, so that another holder may have worked at the same time
   */
  async using<T> (names: string | string[], fn: UsingFunction<T>): Promise<T>
  async using<T> (names: string | string[], options: AcquireOptions, fn: UsingFunction<T>): Promise<T>
  async using<T> (names: string | string[], second: AcquireOptions | UsingFunction<T>, third?: UsingFunction<T>): Promise<T> {
    const [options, fn] = typeof second === 'function' ? [{}, second] : [second, third]
    const run = functionOf('fn', fn) as UsingFunction<T>
    return await this.#run(await this.acquire(names, options), run)
  }

  /**
   * Runs a job that all replicas start and only one should run: runs the function if the lock is free, otherwise
   * returns false immediately. With `holdFor`, the name stays closed until this many milliseconds after it was
   * acquired, even if the function fails or the process dies, because the TTL is at least as long. Reopens a session
   * that has ended.
   *
   * @returns whether the function was run here
   * @throws the errors of `using`; before the function runs, `unavailable` if the server does not reply, `limit` if
   * `holdFor` exceeds the server's lock_election.max_hold_for, `invalid` if it is not a valid duration
   */
  async once (name: string, options: Omit<AcquireOptions, 'wait'> & { holdFor?: number }, fn: UsingFunction<unknown>): Promise<boolean> {
    textOf('name', name)
    functionOf('fn', fn)
    checkOptions(options, 'holdFor', 'shared', 'ttl', 'signal')
    const { holdFor: given, ...how } = options
    const holdFor = holdForOf(given)
    await this.reopen()
    if (holdFor !== undefined) {
      // Let the server check holdFor before the function runs. A release of token 0 releases nothing.
      const check = { action: 'release', names: [name], number: '0', value: interval(holdFor) }
      await this.#engine.request(this.#engine.main, check, 'unavailable')
    }
    const ttl = Math.max(ttlOf(how.ttl) ?? this.#engine.main.ttl, holdFor ?? 0)
    const hold = await this.tryAcquire(name, { ...how, ttl })
    if (hold === null) return false
    await this.#run(hold, fn, holdFor)
    return true
  }

  /**
   * Campaigns once, and waits to be elected.
   *
   * @param candidate the candidate's public text, 1 to 4096 bytes
   * @throws the errors of `acquire`
   */
  async campaign (election: string, candidate: string, options: Omit<AcquireOptions, 'shared'> = {}): Promise<Term> {
    checkOptions(options, 'wait', 'ttl', 'signal')
    const what = { action: 'candidate', value: textOf('candidate', candidate) }
    return await this.#acquire('term', [textOf('election', election)], options, what, Term)
  }

  /**
   * Campaigns repeatedly, until `stop`. Reopens a session that has ended. Attach the listeners before the next
   * `await`. The event `error` reports errors.
   *
   * @throws LockElectionError `invalid` if an argument is wrong or an option is unknown
   */
  elect (election: string, candidate: string, options: ElectOptions = {}): Election {
    checkOptions(options, 'ttl')
    ttlOf(options.ttl)
    return new Election(this, textOf('election', election), textOf('candidate', candidate), options, this.#engine.use())
  }

  /**
   * Returns the current leader, or null if there is none.
   *
   * @throws LockElectionError `unavailable`, `invalid`, or `canceled` if the session was closed
   */
  async leader (election: string): Promise<Leader | null> {
    const values = [textOf('election', election)]
    const rows = await this.#engine.op(schema => `SELECT candidate, term FROM ${schema}.current_leader($1)`, values)
    return rows[0] === undefined ? null : { value: rows[0][0] as string, term: BigInt(rows[0][1] as string) }
  }

  /**
   * Iterates over the current leader, then every change, once and in order, even across reconnects. Null means that
   * there is no leader. The iteration ends with its signal, by `break`, or when the session is closed, but not when
   * the lease is lost.
   *
   * @throws LockElectionError `invalid` or `denied`
   */
  observe (election: string, options: { signal?: AbortSignal } = {}): AsyncIterableIterator<Leader | null> {
    checkOptions(options, 'signal')
    return observe(this.#engine, textOf('election', election), signalOf(options.signal))
  }

  /**
   * Gets a new lease for a session that has ended. Its old holds remain lost. Does nothing if the session has not
   * ended.
   *
   * @throws the errors of `connect`; `canceled` if the session was closed
   */
  async reopen (): Promise<void> { await this.#engine.reopen() }

  /**
   * Ends all waits, releases all holds, revokes the lease, and frees all sockets and timers. If there is no reply, the
   * lease expires.
   *
   * @param options.limit the time limit in milliseconds; default: a quarter of the TTL, at least 200 and at most
   * 10,000
   * @throws LockElectionError `invalid` if the limit is wrong or an option is unknown; the session is closed
   * nevertheless
   */
  async close (options?: { limit?: number } | null): Promise<void> {
    let wrong = wrongOptions(options ?? {}, 'limit')
    let limit: number | undefined
    try {
      limit = limitOf('limit', options?.limit)
    } catch (error) {
      wrong ??= error as LockElectionError
    }
    await this.#engine.close(limit)
    this.#atTheEnd()
    if (wrong !== undefined) throw wrong
  }

  async [asyncDispose] (): Promise<void> { await this.close() }

  async #acquire<T extends Hold = Hold> (kind: Kind, names: string[], options: AcquireOptions, what: Omit<Item, 'names'>,
    Type: new (engine: Engine, claim: Claim) => T = Hold as new (engine: Engine, claim: Claim) => T): Promise<T> {
    const engine = this.#engine
    const signal = signalOf(options.signal)
    const ttl = ttlOf(options.ttl) ?? engine.main.ttl
    const wait = limitOf('wait', options.wait) ?? Infinity
    signal?.throwIfAborted()
    if (engine.closed) throw new LockElectionError('canceled', 'the session was closed')
    if (this.state === 'ended') throw new LockLostError('the session has ended: reopen() it')
    const action = `${wait === 0 ? 'try' : 'enqueue'}_${what.action}`
    const claim = new Claim(engine.leaseOf(ttl), kind, { ...what, action, names })
    const done = engine.use()
    const forget = onAbort(signal, () => { engine.refuse(claim, signal?.reason) })
    try {
      const hold = await new Promise<T>((resolve, reject) => {
        claim.granted = () => { resolve(new Type(engine, claim)) }
        claim.refused = reject
        engine.ask(claim, wait)
      })
      if (!hold.valid) throw hold.signal.reason
      return hold
    } finally {
      forget()
      done()
    }
  }

  async #run<T> (hold: Hold, fn: UsingFunction<T>, holdFor?: number): Promise<T> {
    const done = this.#engine.use()
    let result: T
    try {
      result = await fn(hold.signal, hold)
    } catch (error) {
      await hold.release({ holdFor }).catch(() => {})
      throw error
    } finally {
      done()
    }
    if (await hold.release({ holdFor }) === 'lost') throw hold.signal.reason ?? new LockLostError('it was lost before its release')
    return result
  }
}

function orNull (error: unknown): null {
  if (error instanceof NotAcquiredError) return null
  throw error
}
