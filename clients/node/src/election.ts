import { EventEmitter } from 'node:events'
import { setTimeout as sleep } from 'node:timers/promises'
import { textOf } from './args.js'
import type { Engine, Listener } from './engine.js'
import { LockElectionError } from './errors.js'
import { asyncDispose, type Term } from './hold.js'
import { liveSignal, onAbort } from './signals.js'

export interface Leader {
  /** The leader's public text. */
  value: string
  term: bigint
}

export interface ElectOptions {
  /** The TTL in milliseconds. Default: the session's TTL. */
  ttl?: number
}

/** The part of a session that a candidate uses. */
interface Session {
  reopen (): Promise<void>
  campaign (election: string, candidate: string, options: ElectOptions & { signal: AbortSignal }): Promise<Term>
  leader (election: string): Promise<Leader | null>
  observe (election: string, options: { signal?: AbortSignal }): AsyncIterableIterator<Leader | null>
}

/** The intervals in ms at which an observer reads, with and without notifications. */
const SELDOM = 5000
const OFTEN = 1000
/** The maximum number of changes that are read in one statement. */
const MANY = 64
/** The first and the longest pause in ms after a temporary error. */
const FIRST_PAUSE = 100
const LONGEST_PAUSE = 10_000

const passing = ['unavailable', 'unknown', 'lost', 'limit', 'failed', 'deadlock']

/** Reads the changes after a given change, in order. */
const changes = (schema: string): string =>
  `SELECT change, term, how, candidate FROM ${schema}.election_history($1, $2) ORDER BY change LIMIT ${MANY}`
/** Reads the last change, or the current leader if the history has no change. Always returns a row. */
const present = (schema: string): string =>
  'SELECT change, term, how, candidate' +
  ` FROM ${schema}.election_history($1, COALESCE((SELECT l.term FROM ${schema}.current_leader($1) l), 0))` +
  " UNION ALL SELECT 0, term, CASE WHEN term IS NOT NULL THEN 'elected' END, candidate FROM (VALUES (0)) v" +
  ` LEFT JOIN ${schema}.current_leader($1) ON true ORDER BY 1 DESC LIMIT 1`

/** @internal */
export async function * observe (engine: Engine, election: string, signal?: AbortSignal): AsyncIterableIterator<Leader | null> {
  signal?.throwIfAborted()
  const isOver = (): boolean => engine.closed || signal?.aborted === true
  let due = true
  let rouse = (): void => {}
  const listener: Listener = { channel: '', wake: () => { due = true; rouse() } }
  const waitUntilDue = async (ms: number): Promise<void> => {
    if (due || isOver()) return
    let timer: unknown
    await new Promise<void>(resolve => { rouse = resolve; timer = engine.time.set(resolve, ms) })
    engine.time.clear(timer)
  }
  const ask = async (sql: (schema: string) => string, ...values: unknown[]): Promise<string[][]> => {
    for (;;) {
      try {
        return await engine.op(sql, [election, ...values]) as string[][]
      } catch (error) {
        if (isOver()) return []
        if (!(error instanceof LockElectionError && passing.includes(error.code))) throw error
        due = false
        await waitUntilDue(OFTEN)
      }
    }
  }
  const done = engine.use()
  const forget = onAbort(signal, listener.wake)
  engine.addListener(listener)
  try {
    engine.setChannel(listener, (await ask(schema => `SELECT ${schema}.observe_election($1)`))[0]?.[0] ?? '')
    let rows = await ask(present)
    let after = '0'
    let known = ''
    while (!isOver()) {
      for (const [change = '0', term = '', how, value = ''] of rows) {
        after = change
        // This leader was reported already.
        if (how === 'elected' && term === known) continue
        known = term
        yield how === 'elected' || how === 'proclaimed' ? { value, term: BigInt(term) } : null
      }
      if (rows.length < MANY) await waitUntilDue(engine.hearsTerms() ? SELDOM : OFTEN)
      if (isOver()) return
      due = false
      rows = await ask(changes, after)
    }
  } finally {
    engine.removeListener(listener)
    forget()
    done()
  }
}

export interface Election {
  /** The candidate leads. It resigns the term only after the promises returned by the listeners have settled. */
  on(event: 'elected', listener: (term: bigint, signal: AbortSignal) => unknown): this
  on(event: 'lost', listener: (why: LockElectionError) => void): this
  on(event: 'error', listener: (error: Error) => void): this
}

/**
 * A candidate that campaigns repeatedly, and reopens the session if it has ended. Its events are:
 *
 * - `elected` (term, signal): the candidate leads. The signal is aborted when the term is lost, and by `resign` and
 *   `stop`. Listeners may return promises. The candidate resigns, or campaigns again, only after they have settled.
 * - `lost` (why): the term is lost. Emitted at most once per term, and only after `elected`.
 * - `error` (error): a listener has failed, or the candidate cannot campaign (`denied`, `not_installed`, `invalid`).
 *   The candidate has stopped.
 */
export class Election extends EventEmitter {
  readonly #session: Session
  readonly #stop = new AbortController()
  readonly #ended: Promise<void>
  #term: Term | undefined
  #giveUp: (() => void) | undefined
  #over: Promise<void> | undefined

  /** @internal */
  constructor (session: Session, readonly name: string, private candidate: string,
    private readonly options: ElectOptions, done: () => void) {
    super()
    this.#session = session
    this.#ended = Promise.resolve().then(async () => { await this.#run() }).finally(done)
  }

  /** The number of the current term; undefined if the candidate does not lead. */
  get term (): bigint | undefined { return this.#term?.valid === true ? this.#term.token : undefined }

  /** Changes the candidate's public text, now and in later campaigns. Throws the errors of `Term.proclaim`. */
  async proclaim (value: string): Promise<void> {
    this.candidate = textOf('value', value)
    await this.#term?.proclaim(value)
  }

  /** Ends the term after the listeners have returned, and campaigns again, behind the other candidates. */
  async resign (): Promise<void> { this.#giveUp?.(); await this.#over }

  /** Ends the term after the listeners have returned, and stops campaigning. */
  async stop (): Promise<void> {
    this.#stop.abort()
    this.#giveUp?.()
    await this.#ended
  }

  async leader (): Promise<Leader | null> { return await this.#session.leader(this.name) }

  observe (options: { signal?: AbortSignal } = {}): AsyncIterableIterator<Leader | null> {
    return this.#session.observe(this.name, options)
  }

  async [asyncDispose] (): Promise<void> { await this.stop() }

  async #run (): Promise<void> {
    const { signal } = this.#stop
    let pause = FIRST_PAUSE
    while (!signal.aborted) {
      try {
        await this.#session.reopen()
        const term = await this.#session.campaign(this.name, this.candidate, { ...this.options, signal })
        pause = FIRST_PAUSE
        this.#over = this.#lead(term)
        await this.#over
      } catch (error) {
        if (signal.aborted) return
        if (!(error instanceof LockElectionError && passing.includes(error.code))) {
          this.#stop.abort()
          if (!(error instanceof LockElectionError && error.code === 'canceled')) this.emit('error', error)
          return
        }
        await sleep(pause, null, { signal }).catch(() => {})
        pause = Math.min(pause * 2, LONGEST_PAUSE)
      }
    }
  }

  async #lead (term: Term): Promise<void> {
    const controller = new AbortController()
    const signal = liveSignal(controller, () => { void term.valid })
    const ended = new Promise<void>((resolve, reject) => {
      this.#giveUp = () => {
        controller.abort(new LockElectionError('canceled', 'the term is to be resigned'))
        resolve()
      }
      term.signal.addEventListener('abort', () => {
        const why = term.signal.reason as LockElectionError
        controller.abort(why)
        try {
          this.emit('lost', why)
          resolve()
        } catch (error) {
          reject(error)
        }
      }, { once: true })
    })
    this.#term = term
    const work = this.rawListeners('elected').map(async listener => await (listener.call(this, term.token, signal) as unknown))
    // If a listener fails, the term ends; if all listeners return, it continues.
    const failed = Promise.all(work).then(async () => { await ended }, error => { this.#giveUp?.(); throw error })
    try {
      await Promise.all([ended, failed])
    } finally {
      await Promise.allSettled(work)
      this.#giveUp = undefined
      this.#term = undefined
      await term.release()
    }
  }
}
