import { holdForOf, invalid, textOf, wrongOptions } from './args.js'
import type { Engine } from './engine.js'
import { LockElectionError, LockLostError, isMoved, serverError } from './errors.js'
import type { Claim, Outcome } from './lease.js'
import { isWatched, liveSignal } from './signals.js'

/** Node.js 18 before 18.18 does not have it; there only `release` is left. */
export const asyncDispose: typeof Symbol.asyncDispose = Symbol.asyncDispose ?? Symbol.for('nodejs.asyncDispose')

/** A connection of the application's own, such as `Client` or `PoolClient` of node-postgres. */
export interface Queryable {
  query: (text: string) => Promise<{ rows: any[] }>
}

export function literal (text: string): string { return `E'${text.replace(/\\/g, '\\\\').replace(/'/g, "''")}'` }

/** A lock, a permit or several locks that are held. */
export class Hold {
  /** The names, in the order given. */
  readonly names: readonly string[]
  /**
   * Proves the ownership. Of an exclusive lock and a term it is the fencing token: higher than that of every holder
   * before. Below 2^53; a bigint compares right with what node-postgres reads from an int8 column, which is a string.
   */
  readonly token: bigint
  /** @internal */
  protected readonly engine: Engine
  /** @internal */
  protected readonly claim: Claim
  #outcome: Promise<Outcome> | undefined
  /** Of the signal, which many never ask for; why it was lost; and what takes back that it keeps the process. */
  #controller: AbortController | undefined
  #why: unknown
  #unwatch: (() => void) | undefined

  /** @internal */
  constructor (engine: Engine, claim: Claim) {
    this.engine = engine
    this.claim = claim
    this.names = Object.freeze([...claim.names])
    this.token = BigInt(claim.token)
    claim.lost = error => {
      this.#why = error
      this.#controller?.abort(error)
      this.#watch()
    }
    claim.watched = () => this.#controller !== undefined && isWatched(this.#controller.signal)
  }

  /**
   * Aborted when the hold is lost, with a `LockLostError` as its reason; not by `release`. `aborted` and
   * `throwIfAborted()` look at the clock: they are right at once, also after the loop of events was blocked.
   */
  get signal (): AbortSignal {
    if (this.#controller === undefined) {
      this.#controller = new AbortController()
      liveSignal(this.#controller, () => { this.engine.check() }, () => { this.#watch() })
      if (this.#why !== undefined) this.#controller.abort(this.#why)
    }
    return this.#controller.signal
  }

  /** Who waits to hear of the loss keeps the process, as long as it is held. */
  #watch (): void {
    if (this.claim.state === 'held' && this.claim.watched?.() === true) {
      this.#unwatch ??= this.engine.use()
    } else {
      this.#unwatch?.()
      this.#unwatch = undefined
    }
  }

  /** Is it held, by the clock and without asking anybody? */
  get valid (): boolean { this.engine.check(); return this.claim.state === 'held' }

  /** Milliseconds for which it stays valid if no renewal succeeds; 0: it is not held. */
  get timeLeft (): number { return this.valid ? this.claim.lease.left() : 0 }

  /**
   * From here to the end of the transaction nobody else gets the lock: what the transaction writes after this is written
   * by the holder, or not at all. Roll back on any error.
   *
   * @param client the application's connection, in an open transaction
   * @throws LockElectionError `lost` (`LockLostError`): not held any more; `invalid`: no open transaction; `denied`,
   * `limit`, `deadlock`; `unavailable`: the connection broke, and so nothing is written
   */
  async fence (client: Queryable): Promise<void> {
    this.checkHeld()
    const { schema } = this.engine
    const token = this.token.toString()
    const fence = this.claim.kind === 'term' ? 'fence_leader' : 'fence_lock'
    // One simple query: outside of a transaction its two times are the same.
    const sql = `SELECT open::pg_catalog.text AS open, CASE WHEN open THEN (SELECT pg_catalog.count(${schema}.${fence}(n, ${token}))` +
      ` FROM pg_catalog.unnest(ARRAY[${this.names.map(literal).join(', ')}]::pg_catalog.text[]) n) END FROM (SELECT` +
      ' pg_catalog.transaction_timestamp() OPERATOR(pg_catalog.<>) pg_catalog.statement_timestamp() AS open) o'
    if (typeof client?.query !== 'function') throw invalid('client has to be a Client or PoolClient of node-postgres')
    let open: unknown
    try {
      open = (await client.query(sql)).rows[0]?.open
    } catch (error) {
      const told = serverError(error)
      if (told instanceof LockLostError && this.valid) this.claim.lease.lose(this.claim, told)
      if (isMoved(told)) throw await this.#moved(schema, told)
      throw told ?? new LockElectionError('unavailable', (error as Error).message)
    }
    if (open !== 'true') throw invalid('the connection has no open transaction: BEGIN first')
    this.checkHeld()
  }

  /** The error of a fence that has not found its function: the transaction is over, and the next one finds it. */
  async #moved (schema: string, error: LockElectionError): Promise<LockElectionError> {
    const failed = await this.engine.learnSchema(error).then(() => undefined, (why: LockElectionError) => why)
    if (failed !== undefined || this.engine.schema === schema) return failed ?? error
    return new LockElectionError('unavailable', 'the schema of lock_election has a new name: roll back, and begin again', error.sqlstate)
  }

  /**
   * Gives the hold back. It is over at once; the answer tells what has become of it. Never fails because of the server:
   * without an answer the session goes on trying, and the lock is free at the latest when the lease ends.
   *
   * @param options.holdFor milliseconds, counted from when it was acquired, for which nobody is granted the lock
   * @returns `released`; `lost`: it had been lost before, so the work may not have been alone; `unknown`: no answer in
   * time
   * @throws LockElectionError `invalid`: `holdFor` is not allowed, or there is no such option; it is released without
   */
  async release (options?: { holdFor?: number | undefined } | null): Promise<Outcome> {
    this.engine.check()
    if (this.#outcome !== undefined) return await this.#outcome
    if (this.claim.state !== 'held' && !(this.claim.evicted && !this.claim.done)) return 'lost'
    let wrong = wrongOptions(options ?? {}, 'holdFor')
    let holdFor: number | undefined
    try {
      holdFor = holdForOf(options?.holdFor)
    } catch (error) {
      wrong ??= error as LockElectionError
    }
    const outcome = new Promise<Outcome>((resolve, reject) => {
      this.claim.released = (outcome, error = wrong) => {
        if (error === undefined) resolve(outcome)
        else reject(error)
      }
      this.engine.release(this.claim, holdFor)
    })
    this.#watch()
    this.#outcome = outcome.finally(this.engine.use())
    return await this.#outcome
  }

  async [asyncDispose] (): Promise<void> { await this.release() }

  /** @internal */
  protected checkHeld (): void {
    if (!this.valid) throw this.signal.reason ?? new LockLostError('it was released')
  }
}

/** A term: what the leader of an election holds. `token` is the number of the term. */
export class Term extends Hold {
  /**
   * Changes the text that everybody sees of the leader, without a new election.
   *
   * @throws LockElectionError `lost`: this term does not lead any more; `unknown`: no answer, it may be the old text or
   * the new one; `invalid`, `unavailable`
   */
  async proclaim (value: string): Promise<void> {
    const text = textOf('value', value)
    this.checkHeld()
    const { lease, token } = this.claim
    const item = { action: 'proclaim', names: this.names, number: token, value: text }
    const event = await this.engine.request(lease, item, 'unknown')
    if (event !== 'proclaimed' && this.valid) lease.lose(this.claim, new LockLostError('the server has ended the term', 'LE001'))
    this.checkHeld()
  }

  /** Gives the term back: `release()`. */
  async resign (): Promise<Outcome> { return await this.release() }
}
