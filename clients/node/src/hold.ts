import type { Engine } from './engine.js'
import { LockElectionError, LockLostError, invalid, serverError, wrongOptions } from './errors.js'
import type { Item, Outcome } from './item.js'

/** Node.js 18 before 18.18 does not have it; there only `release` is left. */
export const asyncDispose: typeof Symbol.asyncDispose = Symbol.asyncDispose ?? Symbol.for('nodejs.asyncDispose')

/** A connection of the application's own, such as `Client` or `PoolClient` of node-postgres. */
export interface Queryable {
  query: (text: string) => Promise<{ rows: any[] }>
}

/**
 * The signal of a controller, which is right at once: whoever reads `aborted`, `reason` or `throwIfAborted` looks at the
 * clock first, so a loop of events that was blocked does not hide a loss from the next line of work.
 */
export function liveSignal (controller: AbortController, check: () => void): AbortSignal {
  const { signal } = controller
  const read = (key: 'aborted' | 'reason') => () => {
    check()
    return Reflect.get(AbortSignal.prototype, key, signal) as unknown
  }
  return Object.defineProperties(signal, {
    aborted: { get: read('aborted') },
    reason: { get: read('reason') },
    throwIfAborted: { value: () => { if (signal.aborted) throw signal.reason } }
  })
}

function literal (text: string): string { return `E'${text.replace(/\\/g, '\\\\').replace(/'/g, "''")}'` }

/** A lock, a permit or several locks that are held. */
export class Hold {
  /** The names, in the order given. */
  readonly names: readonly string[]
  /**
   * Proves the ownership. Of an exclusive lock and a term it is the fencing token: higher than that of every holder
   * before. Below 2^53; a bigint compares right with what node-postgres reads from an int8 column, which is a string.
   */
  readonly token: bigint
  /**
   * Aborted when the hold is lost, with a `LockLostError` as its reason; not by `release`. `aborted` and
   * `throwIfAborted()` look at the clock: they are right at once, also after the loop of events was blocked.
   */
  readonly signal: AbortSignal
  /** @internal */
  protected readonly engine: Engine
  /** @internal */
  protected readonly item: Item
  #outcome: Promise<Outcome> | undefined

  /** @internal */
  constructor (engine: Engine, item: Item) {
    this.engine = engine
    this.item = item
    this.names = Object.freeze([...item.names])
    this.token = BigInt(item.token)
    const controller = new AbortController()
    this.signal = liveSignal(controller, () => { engine.check() })
    item.lost = error => { controller.abort(error) }
  }

  /** Is it held, by the clock and without asking anybody? */
  get valid (): boolean { this.engine.check(); return this.item.state === 'held' }

  /** Milliseconds for which it stays valid if no renewal succeeds; 0: it is not held. */
  get timeLeft (): number { return this.valid ? this.item.lease.left() : 0 }

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
    const fence = this.item.kind === 'term' ? 'fence_leader' : 'fence_lock'
    // One simple query: outside of a transaction its two times are the same.
    const sql = `SELECT open::pg_catalog.text AS open, CASE WHEN open THEN (SELECT pg_catalog.count(${schema}.${fence}(n, ${token}))` +
      ` FROM pg_catalog.unnest(ARRAY[${this.names.map(literal).join(', ')}]::pg_catalog.text[]) n) END FROM (SELECT` +
      ' pg_catalog.transaction_timestamp() OPERATOR(pg_catalog.<>) pg_catalog.statement_timestamp() AS open) o'
    if (typeof client?.query !== 'function') throw invalid('a fence needs a connection of node-postgres')
    let open: unknown
    try {
      open = (await client.query(sql)).rows[0]?.open
    } catch (error) {
      const told = serverError(error)
      if (told instanceof LockLostError && this.valid) this.engine.lose(this.item, told)
      throw told ?? new LockElectionError('unavailable', (error as Error).message)
    }
    if (open !== 'true') throw invalid('the connection has no open transaction: BEGIN first')
    this.checkHeld()
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
    if (this.item.state !== 'held') return 'lost'
    const wrong = wrongOptions(options ?? {}, 'holdFor')
    this.#outcome = new Promise((resolve, reject) => {
      this.item.released = (outcome, error = wrong) => {
        if (error === undefined) resolve(outcome)
        else reject(error)
      }
      this.engine.release(this.item, options?.holdFor ?? undefined)
    })
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
    this.checkHeld()
    const rows = await this.engine.op(schema => `SELECT ${schema}.proclaim($1, $2, $3)`,
      [this.names[0], this.item.token, value], 'unknown')
    if (rows[0]?.[0] !== 't' && this.valid) {
      this.engine.lose(this.item, new LockLostError('the server has ended the term', 'LE001'))
    }
    this.checkHeld()
  }

  /** Gives the term back: `release()`. */
  async resign (): Promise<Outcome> { return await this.release() }
}
