import { holdForOf, invalid, textOf, wrongOptions } from './args.js'
import type { Engine } from './engine.js'
import { LockElectionError, LockLostError, isMoved, serverError } from './errors.js'
import type { Claim, Outcome } from './lease.js'
import { isWatched, liveSignal } from './signals.js'

/** Node.js before 18.18 does not have this symbol; use `release` there. */
export const asyncDispose: typeof Symbol.asyncDispose = Symbol.asyncDispose ?? Symbol.for('nodejs.asyncDispose')

/** A connection of the application, such as a `Client` or `PoolClient` of node-postgres. */
export interface Queryable {
  query: (text: string) => Promise<{ rows: any[] }>
}

/** The methods that run an SQL text in a transaction: of Prisma, Knex, Drizzle, and of node-postgres and TypeORM. */
const ways = ['$queryRawUnsafe', 'raw', 'execute', 'query'] as const

/**
 * An open transaction of the application: a `Client` or `PoolClient` of node-postgres, the transaction of Prisma, Knex
 * or Drizzle, an `EntityManager` or `QueryRunner` of TypeORM; or `{ query }`, a function that runs an SQL text in it.
 */
export type Fenceable = { [Way in typeof ways[number]]: Record<Way, (text: string) => unknown> }[typeof ways[number]]

/** Returns a text as an SQL expression, without any character that an ORM could interpret as a parameter. */
export function literal (text: string): string {
  if (/^[\w .,/-]*$/.test(text)) return `'${text}'`
  return `pg_catalog.convert_from(pg_catalog.decode('${Buffer.from(text).toString('hex')}', 'hex'), 'UTF8')`
}

/** Returns the server's error that an ORM's error contains. */
function unwrapped (error: any): unknown {
  const inner = error.cause ?? error.original ?? error.meta?.driverAdapterError // Drizzle, Sequelize, Prisma
  return error.severity === undefined && inner !== undefined ? unwrapped(inner) : error
}

/** A lock, a permit or several locks that are held. */
export class Hold {
  /** The names of the locks, or the name of the election, in the order given. */
  readonly names: readonly string[]
  /**
   * The token, which proves ownership. For an exclusive lock or a term it is also the fencing token, which is higher
   * than the token of every earlier holder. It is below 2^53. It is a bigint because node-postgres reads an int8
   * column as a string, and a bigint compares correctly with that.
   */
  readonly token: bigint
  /** @internal */
  protected readonly engine: Engine
  /** @internal */
  protected readonly claim: Claim
  #outcome: Promise<Outcome> | undefined
  /** The controller of the signal, made when the signal is first read. */
  #controller: AbortController | undefined
  /** The reason why the hold was lost. */
  #why: unknown
  /** Function that lets the process end; undefined = the hold does not keep it alive. */
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
   * A signal that is aborted when the hold is lost, with a `LockLostError` as its reason, but not by `release`.
   * `aborted` and `throwIfAborted()` check the clock, so they are correct even after the event loop was blocked.
   */
  get signal (): AbortSignal {
    if (this.#controller === undefined) {
      this.#controller = new AbortController()
      liveSignal(this.#controller, () => { this.engine.check() }, () => { this.#watch() })
      if (this.#why !== undefined) this.#controller.abort(this.#why)
    }
    return this.#controller.signal
  }

  /** Keeps the process alive while the hold is held and has listeners for its loss. */
  #watch (): void {
    if (this.claim.state === 'held' && this.claim.watched?.() === true) {
      this.#unwatch ??= this.engine.use()
    } else {
      this.#unwatch?.()
      this.#unwatch = undefined
    }
  }

  /** Whether the lock is held. Checks the clock and does no I/O. */
  get valid (): boolean { this.engine.check(); return this.claim.state === 'held' }

  /** Milliseconds for which `valid` stays true without another renewal; 0 if the lock is not held. */
  get timeLeft (): number { return this.valid ? this.claim.lease.left() : 0 }

  /**
   * Fences the hold: until the transaction ends, the lock is granted to no other client. So the transaction's later
   * writes are committed only if the hold was still held. Roll back after any error.
   *
   * @param transaction an open transaction of the application, in the same database
   * @throws LockElectionError `lost` (`LockLostError`) if it is no longer held; `invalid` if no transaction is open;
   * `unavailable` if the connection broke, so that nothing is written; `denied`, `limit` or `deadlock`
   */
  async fence (transaction: Fenceable): Promise<void> {
    const { schema } = this.engine
    const token = this.token.toString()
    const local = `pg_catalog.set_config('lock_election_client.fence', '${token}', true)`
    const sql = `SELECT (${this.fenceSql()}) AS fenced, ${local} AS local, CAST(pg_catalog.transaction_timestamp()` +
      ' OPERATOR(pg_catalog.<>) pg_catalog.statement_timestamp() AS pg_catalog.text) AS open'
    const client = transaction as Record<string, (text: string) => unknown>
    const way = ways.find(way => typeof client?.[way] === 'function')
    if (way === undefined) throw invalid('the transaction has to be a client of node-postgres, or a transaction of an ORM')
    const row = async (text: string): Promise<any> => {
      const result: any = await client[way]!(text)
      return [result.rows ?? result].flat(2)[0]
    }
    let open: boolean
    try {
      open = (await row(sql))?.open === 'true'
      // Outside of a transaction, the two timestamps are the same if the query is a single message. A client of
      // node-postgres, which has escapeLiteral(), sends one. Others may send several; then the local setting is reset.
      if (open && typeof client.escapeLiteral !== 'function') {
        open = (await row("SELECT pg_catalog.current_setting('lock_election_client.fence', true) AS local"))?.local === token
      }
    } catch (error) {
      const inner = unwrapped(error)
      const told = serverError(inner)
      if (told instanceof LockLostError && this.valid) this.claim.lease.lose(this.claim, told)
      if (isMoved(told)) throw await this.#moved(schema, told)
      throw told ?? new LockElectionError('unavailable', (inner as Error).message)
    }
    if (!open) throw invalid('the connection has no open transaction: BEGIN first')
    this.checkHeld()
  }

  /**
   * Returns the statement of a fence as a text without parameters, for any ORM. Run it in an open transaction, before
   * its writes. If it fails (with SQLSTATE LE001 if the hold is lost), roll back. Outside of a transaction it succeeds,
   * but protects nothing.
   *
   * @throws LockElectionError `lost` (`LockLostError`) if the hold is no longer held
   */
  fenceSql (): string {
    this.checkHeld()
    const fence = this.claim.kind === 'term' ? 'fence_leader' : 'fence_lock'
    return `SELECT pg_catalog.count(${this.engine.schema}.${fence}(n, ${this.token})) AS fenced` +
      ` FROM pg_catalog.unnest(ARRAY[${this.names.map(literal).join(', ')}]) AS n`
  }

  /** Returns the error of a fence whose function was not found. Reads the new schema for the next transaction. */
  async #moved (schema: string, error: LockElectionError): Promise<LockElectionError> {
    const failed = await this.engine.learnSchema(error).then(() => undefined, (why: LockElectionError) => why)
    if (failed !== undefined || this.engine.schema === schema) return failed ?? error
    return new LockElectionError('unavailable', 'the schema of lock_election has a new name: roll back, and begin again', error.sqlstate)
  }

  /**
   * Releases the hold, which is invalid from this call on. Does not fail if the server does not reply: the session
   * then keeps retrying, and the lock is free at the latest when the lease ends.
   *
   * @param options.holdFor milliseconds, counted from the grant, for which the name stays closed
   * @returns `released`; `lost` if it had been lost before, so that another holder may have worked at the same time;
   * `unknown` if there is no reply in time
   * @throws LockElectionError `invalid` or `limit` if `holdFor` is not allowed, `invalid` for an unknown option; the
   * hold is released nevertheless, and the rejected option is ignored
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

/** A term as the leader of an election. `token` is the number of the term. */
export class Term extends Hold {
  /**
   * Changes the leader's public text, without a new election.
   *
   * @throws LockElectionError `lost` if this term no longer leads; `unknown` if there is no reply, so that either the
   * old or the new text may be visible; `invalid` or `unavailable`
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

  /** Ends the term. Returns the same as `release()`. */
  async resign (): Promise<Outcome> { return await this.release() }
}
