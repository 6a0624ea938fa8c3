/**
 * The session: it owns the connection, and decides which statement comes next. Only one statement runs at a time. A
 * *turn* is one call of lease_sync with all items that are queued when it begins. If the connection is free, a queued
 * item starts a turn. The turn begins after all callbacks that can run now, so that it includes the items of callers
 * that the last turn has woken up.
 *
 * Two kinds of timers run independently of the connection, so that a hanging statement cannot delay them: the deadlines
 * of the leases, and the limits of calls.
 */
import { randomBytes } from 'node:crypto'
import { Stamp, defer, limit as limitOf, type Deferred, type Time } from './clock.js'
import {
  LockElectionError, LockLostError, isMoved, notInstalled, passes, reactionTo, serverError, unavailable, type ErrorCode
} from './errors.js'
import { Lease, backoff, interval, type Call, type Claim, type Host, type Item, type Outcome } from './lease.js'
import type { Reporter } from './events.js'
import type { Dial, Rows, Wire } from './wire.js'

const CONNECT_LIMIT = 5000
/** The delay in ms before a read-only statement is sent again after a temporary error. */
const PAUSE = 100
/** The time in ms for which a session keeps listening after its last wait. */
const LINGER = 1000

export type State = 'connected' | 'suspended' | 'ended'

export interface EngineOptions { ttl: number, name: string, connectLimit?: number, time: Time, dials: Dial[] }

/** An observer, which waits for notifications of its channel. The channel is set later. */
export interface Listener { channel: string, wake: () => void }

/** The connection has broken, so that the reply to the current statement is lost. */
class Broken extends LockElectionError { override name = 'LockElectionError' }

type Statement = [text: string, values?: unknown[], prepares?: boolean]

/** A read-only statement of the application. */
interface Op extends Deferred<Rows> { sql: (schema: string) => string, values: unknown[] }

const silent = new Error('the server did not answer in time')
const closedError = (): LockElectionError => new LockElectionError('canceled', 'the session was closed')

/**
 * Returns the statement that reads the properties of a server in one round trip. Its argument is the process id from
 * BackendKeyData. The portable edition works only in READ COMMITTED, so the statement makes that the default if the
 * backend is the session's own, and not one of a pooler.
 */
const learnServer = (pid: number | null): string =>
  'SELECT pg_catalog.quote_ident(n.nspname), pg_catalog.pg_is_in_recovery(), pg_catalog.pg_backend_pid(),' +
  " pg_catalog.current_setting('lock_election.notify', true), pg_catalog.current_database()" +
  ' FROM (VALUES (0)) v LEFT JOIN pg_catalog.pg_namespace n ON n.oid OPERATOR(pg_catalog.=) COALESCE(' +
  "(SELECT e.extnamespace FROM pg_catalog.pg_extension e WHERE e.extname OPERATOR(pg_catalog.=) 'lock_election')," +
  ` (SELECT CASE WHEN pg_catalog.pg_backend_pid() OPERATOR(pg_catalog.=) ${pid ?? 0}` +
  " AND pg_catalog.set_config('default_transaction_isolation', 'read committed', false) IS NOT NULL" +
  " AND pg_catalog.set_config('default_transaction_read_only', 'off', false) IS NULL THEN NULL ELSE p.pronamespace END" +
  " FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_namespace i ON i.nspname OPERATOR(pg_catalog.=) '_lock_election'" +
  " AND i.nspowner OPERATOR(pg_catalog.=) p.proowner WHERE p.proname OPERATOR(pg_catalog.=) 'lease_holds' LIMIT 1))"

/** Returns the call of lease_sync. It returns the validity in milliseconds: texts of intervals depend on settings. */
const sync = (schema: string): string =>
  'SELECT item, event, kind, name, token, owner, reason, sqlstate, message, detail, hint,' +
  " pg_catalog.floor(pg_catalog.date_part('epoch', validity) OPERATOR(pg_catalog.*) 1000)::pg_catalog.int8," +
  ` incarnation, news, complete, channel FROM ${schema}.lease_sync($1, $2, $3, $4, $5, $6)`

export class Engine implements Host {
  state: State = 'suspended'
  schema = ''
  main: Lease
  closed = false
  onState: (state: State) => void = () => {}
  reporter: Reporter | undefined
  readonly time: Time
  readonly owner: string
  number = 0
  readonly #options: EngineOptions
  readonly #self: string
  /** The session's lease, and one lease for each other TTL, by TTL. */
  readonly #leases = new Map<number, Lease>()
  #alarm: unknown

  #wire: Wire | undefined
  /** Ends the wait for the current operation on the connection; undefined = there is none. */
  #giveUp: ((why: Error) => void) | undefined
  /** A promise that resolves when the previous socket is closed. */
  #gone: Promise<unknown> | undefined
  #trouble = 'not connected'
  /** The number of failed connections and renewals since the last successful renewal. */
  #failures = 0
  #connectAt = 0
  /** Whether lease_sync is not prepared, because the connection is pooled or preparing it has failed. */
  #plain = false
  #listening = new Set<string>()
  /** Whether LISTEN does not work. */
  #deaf = false
  /** Whether a notification has ever arrived. */
  #hears = false
  /** Whether the server notifies about elections. */
  #tellsTerms = false

  #ops: Op[] = []
  #opAt = 0
  /** Whether the last step was a turn. */
  #turned = false
  readonly #listeners = new Set<Listener>()
  /** The number of the application's unfinished calls and elections. */
  #uses = 0
  /** The timer that keeps the process alive while there are such uses. */
  #keeper: unknown
  /** Whether the session is closed and no longer keeps the process alive. */
  #over = false

  #reopening: Deferred<void> | undefined
  readonly #ended = defer<void>()
  #running = false
  #busy = false
  #awake = false
  #timer: unknown
  #timerAt = Infinity

  constructor (options: EngineOptions) {
    this.#options = { ...options, dials: [...options.dials] }
    this.time = options.time
    const marker = randomBytes(8).toString('hex')
    this.owner = `${Buffer.from(options.name).subarray(0, 200).toString().replace(/\uFFFD+$/, '')}#${marker}-`
    this.#self = `le_self_${marker}`
    this.main = this.leaseOf(options.ttl)
  }

  // --- calls of the application's side ---

  /** Connects and gets the lease. Throws any error immediately, without a retry. */
  async open (): Promise<void> {
    const done = this.use()
    try {
      await this.#connect()
      await this.#grant(this.main)
    } catch (error) {
      this.abandon(error as Error)
      throw error
    } finally {
      done()
    }
    this.#running = true
    this.wake()
  }

  /** Keeps the process alive until the returned function is called, while the application waits for the session. */
  use (): () => void {
    if (this.#uses++ === 0 && !this.#over) this.#keeper = this.time.keep()
    let over = false
    return () => {
      if (over) return
      over = true
      if (--this.#uses === 0) this.time.clear(this.#keeper)
    }
  }

  /** Whether application code listens for the loss of a hold. */
  get watched (): boolean {
    return [...this.#leases.values()].some(lease => [...lease.claims.values()].some(claim => claim.watched?.() === true))
  }

  /** Ends a session whose open() has not returned. */
  abandon (why: Error): void {
    this.closed = true
    this.state = 'ended'
    this.#cut(why)
  }

  /** Gets a new lease after the end of the last one. */
  async reopen (): Promise<void> {
    this.check()
    if (this.closed) throw closedError()
    if (this.state !== 'ended') return
    if (this.main.ended) this.main = this.leaseOf(this.main.ttl)
    this.#reopening ??= defer()
    this.#connectAt = 0
    this.wake()
    await this.#reopening.promise.finally(this.use())
  }

  /** Ends the leases whose deadline has passed, by the clock alone (rules 3.1, 3.4). */
  check (): void {
    for (const lease of this.#leases.values()) {
      if (lease.id === '' || lease.left() > 0) continue
      const why = this.state === 'suspended' ? `: ${this.#trouble}` : ''
      this.end(lease, new LockLostError(`the lease could not be renewed in time${why}`))
    }
  }

  /** Returns the lease for a TTL: the session's lease, or the lease that all holds with this TTL share. */
  leaseOf (ttl: number): Lease {
    const lease = this.#leases.get(ttl) ?? new Lease(ttl, this)
    this.#leases.set(ttl, lease)
    return lease
  }

  #forget (lease: Lease): void { if (this.#leases.get(lease.ttl) === lease) this.#leases.delete(lease.ttl) }

  /** Returns the limit of one statement, in milliseconds (rule 4.2). */
  callLimit (): number {
    return Math.min(Math.max(Math.min(...this.#leases.keys(), this.main.ttl) / 4, 200), 10_000)
  }

  /** Requests a claim. Its `granted` or `refused` is called later. */
  ask (claim: Claim, wait: number): void {
    const { lease } = claim
    const first = this.callLimit()
    this.reporter?.asks(claim)
    lease.add(claim)
    this.wake()
    if (claim.tries) {
      claim.unlimit = limitOf(this.time, first, () => { this.refuse(claim, unavailable(`${silent.message}: ${this.#trouble}`)) })
    } else if (wait < Infinity) {
      const late = (): void => { lease.refuseLate(claim); this.wake() }
      claim.unlimit = limitOf(this.time, wait, () => {
        claim.overdue = claim.token === ''
        if (claim.overdue) claim.unlimit = limitOf(this.time, first - wait, late)
        else late()
      })
    }
  }

  refuse (claim: Claim, error: unknown): void {
    claim.lease.refuse(claim, error)
    this.wake()
  }

  /** Releases a hold, and later calls its `released` with the outcome. */
  release (claim: Claim, holdFor: number | undefined): void {
    if (claim.state === 'held') claim.report?.('released')
    claim.state = 'over'
    claim.holdFor = holdFor
    claim.unlimit = limitOf(this.time, this.callLimit(), () => { claim.end(undefined, claim.outcome) })
    claim.lease.giveBack(claim)
  }

  /**
   * Sends an item without a claim. Returns the event of its row. `silence` is the error if a sent item gets no reply.
   */
  async request (lease: Lease, item: Item, silence: ErrorCode): Promise<string> {
    if (this.closed) throw closedError()
    const answer = defer<string>()
    item.settle = (event, error) => { if (error === undefined) answer.resolve(event); else answer.reject(error) }
    lease.queue.push(item)
    return await this.#answered(answer, () => item.sent === true ? silence : 'unavailable', () => { item.over = true })
  }

  /** Runs a read-only statement of the application, which may be sent again. */
  async op (sql: Op['sql'], values: unknown[]): Promise<Rows> {
    if (this.closed) throw closedError()
    const op: Op = { ...defer<Rows>(), sql, values }
    this.#ops.push(op)
    return await this.#answered(op, () => 'unavailable', () => { this.#ops = this.#ops.filter(other => other !== op) })
  }

  /** Waits for a reply, for at most the limit of a statement. */
  async #answered<T> ({ promise, reject }: Deferred<T>, silence: () => ErrorCode, over: () => void): Promise<T> {
    this.wake()
    const unlimit = limitOf(this.time, this.callLimit(), () => {
      reject(new LockElectionError(silence(), `${silent.message}: ${this.#trouble}`))
    })
    const done = this.use()
    return await promise.finally(() => {
      done()
      unlimit()
      over()
      this.check()
    })
  }

  addListener (listener: Listener): void { this.#listeners.add(listener); this.wake() }
  removeListener (listener: Listener): void { this.#listeners.delete(listener); this.wake() }

  /** Sets the channel whose notifications wake up the listener. */
  setChannel (listener: Listener, channel: string): void { listener.channel = channel; this.wake() }

  /** Whether this connection gets notifications of elections. */
  hearsTerms (): boolean { return this.#hears && this.#tellsTerms }

  /** Ends the waits, releases all holds, revokes the leases, and frees everything, within the limit. */
  async close (limit: number = this.callLimit()): Promise<void> {
    if (!this.closed) {
      this.closed = true
      for (const lease of this.#leases.values()) {
        for (const claim of [...lease.claims.values()]) {
          if (claim.state === 'waiting') lease.refuse(claim, closedError())
          else if (claim.state === 'held') {
            claim.report?.('released')
            claim.report = undefined
            claim.end(new LockLostError('the session was closed'))
          }
        }
        for (const item of lease.queue) item.settle?.('', closedError())
      }
      for (const op of this.#ops) op.reject(closedError())
      this.#reopening?.reject(closedError())
      for (const listener of this.#listeners) listener.wake()
      this.#connectAt = 0
    }
    const timer = this.time.set(() => { this.#finish('unknown') }, limit)
    const done = this.use()
    this.wake()
    if (this.#running) await this.#ended.promise
    await this.#gone
    this.time.clear(timer)
    done()
    // An observer that the application no longer iterates must not keep the process alive either.
    this.#over = true
    this.time.clear(this.#keeper)
  }

  // --- the next step ---

  /** Schedules the search for the next step, after everything that can run now. */
  wake (): void {
    if (this.#awake || this.#busy || !this.#running) return
    this.#awake = true
    // The inner callback runs when no microtasks are left.
    void Promise.resolve().then(() => { process.nextTick(() => { this.#awake = false; this.#step() }) })
  }

  #step (): void {
    if (this.#busy) return
    this.check()
    if (this.closed && this.state === 'ended' && this.#leases.size === 0) {
      this.#cut(closedError())
      for (const timer of [this.#alarm, this.#timer]) this.time.clear(timer)
      this.#running = false
      this.#ended.resolve()
      return
    }
    const next = this.#next(this.time.mono())
    if (typeof next === 'function') void this.#do(next)
    else if (next < this.#timerAt) {
      this.time.clear(this.#timer)
      this.#timerAt = next
      this.#timer = this.time.set(() => { this.#timerAt = Infinity; this.wake() }, Math.max(next - this.time.mono(), 1))
    }
  }

  async #do (work: () => Promise<void>): Promise<void> {
    this.#busy = true
    try {
      await work()
    } catch (error) {
      // After an unexpected error, close the connection.
      if (!(error instanceof Broken)) this.#drop(error as Error)
    }
    this.#busy = false
    this.wake()
  }

  /** Returns the next step, or the time of the next search if there is none now. */
  #next (now: number): number | (() => Promise<void>) {
    if (this.#wire === undefined) {
      const needed = this.state !== 'ended' || this.closed || this.#reopening !== undefined
      if (!needed && this.#ops.length === 0 && this.#listeners.size === 0) return Infinity
      return now < this.#connectAt ? this.#connectAt : async () => { await this.#reconnect() }
    }
    if (this.#reopening !== undefined && !this.closed) return async () => { await this.#regrant() }
    // The session's own lease is granted by open() and reopen().
    const leases = [...this.#leases.values()].filter(lease => lease !== this.main || lease.id !== '')
      .map(lease => ({ lease, due: this.#dueOf(lease, now) }))
    if (this.closed) {
      // Send the releases with holdFor first, because a revocation does not close names.
      const closing = leases.find(({ lease, due }) => due <= now && lease.queue.some(item => item.value != null))
      return async () => { await (closing === undefined ? this.#revokeAll() : this.#turn(closing.lease)) }
    }
    const due = leases.filter(one => one.due <= now).map(one => one.lease)
      .sort((a, b) => Number(a.renewIn() > 0) - Number(b.renewIn() > 0) || Number(b.releases) - Number(a.releases) ||
        a.lastAt - b.lastAt)[0]
    const turn = due === undefined ? undefined : async () => { await this.#turn(due) }
    if (turn !== undefined && (due as Lease).renewIn() <= 0) return turn
    const [sql, lingers] = this.#tuning(now)
    if (sql !== '') return async () => { await this.#tune(sql) }
    const [op] = this.#ops
    if (op !== undefined && now >= this.#opAt && (this.#turned || turn === undefined)) return async () => { await this.#sendOp(op) }
    return turn ?? Math.min(lingers, op === undefined ? Infinity : this.#opAt, ...leases.map(one => one.due))
  }

  #dueOf (lease: Lease, now: number): number {
    return lease.due(now, this.#hears && this.#listening.has(lease.channel ?? ''))
  }

  // --- the connection ---

  #cut (why: Error): void {
    this.#gone = this.#wire?.destroy(this.#giveUp === undefined && this.closed).catch(() => {}) ?? this.#gone
    this.#wire = undefined
    this.#trouble = why.message
    this.#giveUp?.(why)
    this.#listening = new Set()
    if (this.state === 'connected') this.#become('suspended')
  }

  /** Closes the connection. The session reconnects immediately, or after a delay if it failed repeatedly. */
  #drop (why: Error): void {
    if (this.#wire !== undefined) this.#connectLater()
    this.#cut(why)
    this.wake()
  }

  #connectLater (): void {
    this.#connectAt = this.time.mono() + (this.#failures === 0 ? 0 : backoff(this.#failures - 1, this.main.ttl))
    this.#failures++
  }

  /** Waits for an operation on the connection, until the limit or until the connection is closed. */
  async #limited<T> (start: () => Promise<T>, limit: number): Promise<T> {
    const { promise, resolve, reject } = defer<T>()
    this.#giveUp = reject
    const unlimit = limitOf(this.time, limit, () => { reject(silent) })
    start().then(resolve, reject)
    return await promise.finally(() => { this.#giveUp = undefined; unlimit() })
  }

  /** Runs one statement. Throws the server's error, or Broken if the statement may have taken effect. */
  async #exec (...statement: Statement): Promise<Rows> {
    const wire = this.#wire
    if (wire === undefined) throw new Broken('unavailable', this.#trouble)
    try {
      return await this.#limited(async () => await wire.query(...statement), this.callLimit())
    } catch (error) {
      const told = serverError(error)
      if (told !== null) this.#trouble = told.message
      if (told !== null && reactionTo(told) !== 'reconnect') throw told
      if (this.#wire === wire) this.#drop(error as Error)
      throw new Broken('unavailable', (error as Error).message, told?.sqlstate)
    } finally {
      // The reply may have arrived after the deadline (rule 3.2).
      this.check()
    }
  }

  /**
   * Runs a statement that contains the schema of the extension. If the schema was renamed, reads the new name and sends
   * the statement once more (rule 1.3), because the first statement had no effect.
   */
  async #call (statement: (schema: string) => Statement): Promise<Rows> {
    try {
      return await this.#exec(...statement(this.schema))
    } catch (error) {
      if (!isMoved(error)) throw error
      this.#found(await this.#exec(learnServer(this.#wire?.pid() ?? null)), error)
      return await this.#exec(...statement(this.schema))
    }
  }

  /** Sets the schema after a statement has not found it. Throws an error if the extension is not installed. */
  #found (rows: Rows, error: LockElectionError): void {
    const [schema = null, , , , database] = rows[0] ?? []
    if (schema === null) throw notInstalled(database ?? '', error.sqlstate)
    this.schema = schema
  }

  /** Reads the schema after a statement on another connection has not found it. */
  async learnSchema (error: LockElectionError): Promise<void> { this.#found(await this.op(() => learnServer(this.#wire?.pid() ?? null), []), error) }

  /** Connects to the first host that replies and is a primary. Any other host goes to the end of the list. */
  async #connect (): Promise<void> {
    const { dials, connectLimit = CONNECT_LIMIT } = this.#options
    const limit = this.main.id === '' ? connectLimit : Math.min(connectLimit, Math.max(this.main.ttl / 4, 200))
    let failure: unknown
    for (let tries = dials.length; tries > 0 && !(this.closed && this.state === 'ended'); tries--) {
      const wire: Wire = (dials[0] as Dial)({
        notified: channel => { this.#notified(channel) },
        ended: error => {
          if (this.#wire !== wire) return
          if (this.#giveUp !== undefined) this.#giveUp(error)
          else this.#drop(error)
        }
      })
      this.#wire = wire
      try {
        await this.#limited(wire.connect, limit)
        await this.#learn(wire)
        return
      } catch (error) {
        failure = error instanceof LockElectionError ? error : serverError(error) ?? unavailable(error)
        this.#cut(failure as Error)
        dials.push(dials.shift() as Dial)
      }
    }
    throw failure
  }

  async #learn (wire: Wire): Promise<void> {
    const [schema, isStandby, pid, notify = '', database = ''] = (await this.#exec(learnServer(wire.pid())))[0] as string[]
    if (isStandby === 't') throw new LockElectionError('unavailable', 'the server is a standby', '25006')
    if (schema == null) throw notInstalled(database)
    this.schema = schema
    this.#plain = this.#deaf = Number(pid) !== wire.pid()
    this.#hears = false
    this.#tellsTerms = ['all', 'waiters', 'elections'].includes(notify)
  }

  async #reconnect (): Promise<void> {
    try {
      await this.#connect()
    } catch (error) {
      this.#connectLater()
      this.#reopening?.reject(error)
      this.#reopening = undefined
      return
    }
    this.#connectAt = 0
    for (const lease of this.#leases.values()) lease.renewNow()
    for (const listener of this.#listeners) listener.wake()
  }

  // --- leases ---

  #become (state: State, error?: LockElectionError): void {
    const before = this.state
    if (before === state) return
    this.state = state
    if (!this.closed && before !== 'ended') {
      if (state === 'suspended') this.reporter?.session(state, new LockElectionError('unavailable', this.#trouble))
      else if (state === 'connected') this.reporter?.session('resumed')
      else this.reporter?.session(state, error)
    }
    try {
      this.onState(state)
    } catch (error) {
      // Report the error as uncaught, like an EventTarget. The session continues.
      queueMicrotask(() => { throw error })
    }
  }

  async #grant (lease: Lease): Promise<void> {
    const sent = new Stamp(this.time)
    const values = [interval(lease.ttl), this.owner.slice(0, -1), interval(this.callLimit() / 2)]
    const rows = await this.#call(schema => [`SELECT ${schema}.grant_lease($1, $2, $3)`, values])
    lease.id = rows[0]?.[0] as string
    lease.renewed(sent)
    if (lease === this.main) this.#become('connected')
    this.#setAlarm()
  }

  async #regrant (): Promise<void> {
    const caller = this.#reopening
    this.#reopening = undefined
    await this.#grant(this.main).then(caller?.resolve, caller?.reject)
  }

  /** Runs a turn. A lease for another TTL is granted before its first turn, and revoked when it is no longer used. */
  async #turn (lease: Lease): Promise<void> {
    this.#turned = true
    if (lease !== this.main && lease.unused) {
      this.#forget(lease)
      lease.ended = true
      if (lease.id !== '') await this.#call(schema => [`SELECT ${schema}.revoke_lease($1)`, [lease.id]])
    } else if (lease.id !== '') {
      await this.#sync(lease)
    } else {
      await this.#grant(lease).catch((error: LockElectionError) => {
        lease.failed()
        if (error instanceof Broken) throw error
        if (!passes(error)) this.end(lease, error)
      })
    }
  }

  async #sync (lease: Lease): Promise<void> {
    const sent = new Stamp(this.time)
    const call = lease.begin(this.time.mono(), this.callLimit())
    try {
      const rows = await this.#call(schema => [sync(schema), call.values, !this.#plain])
      if (lease.ended) lease.sendAgain(call.items)
      else lease.answered(call, rows, sent)
    } catch (error) {
      this.#syncFailed(lease, call, error as LockElectionError)
    }
    if (lease.ended || this.#wire === undefined) return
    if (lease === this.main) this.#become(lease.fails ? 'suspended' : 'connected')
    if (!lease.fails) this.#failures = 0
  }

  #syncFailed (lease: Lease, call: Call, error: LockElectionError): void {
    if (lease.ended) {
      lease.sendAgain(call.items)
    } else if (error instanceof Broken) {
      lease.unanswered(call)
    } else if (/^(26000|42P05|0A000)$/.test(error.sqlstate ?? '') && !this.#plain) {
      this.#plain = true
      lease.sendAgain(call.items)
    } else {
      if (call.items.length === 0 || lease.renewIn() < 1) lease.failed()
      lease.refused(call, error)
    }
  }

  async #revokeAll (): Promise<void> {
    const leases = [...this.#leases.values()].map(lease => lease.id).filter(id => id !== '')
    try {
      if (leases.length > 0) {
        await this.#call(schema => [`SELECT ${schema}.revoke_lease(l) FROM pg_catalog.unnest($1::pg_catalog.int8[]) l`, [`{${leases.join()}}`]])
      }
    } catch (error) {
      if (error instanceof Broken) throw error
    }
    this.#finish('released')
  }

  #finish (outcome: Outcome): void {
    const error = new LockLostError('the session was closed')
    for (const lease of [...this.#leases.values(), this.main]) this.end(lease, error, outcome)
    this.#become('ended')
    this.#cut(error)
    this.wake()
  }

  /** Ends a lease and reports the loss of its holds. The session's own lease then ends the session, too (rule 10.3). */
  end (lease: Lease, error: LockElectionError, outcome?: Outcome): void {
    if (lease.ended) return
    this.#forget(lease)
    lease.end(error, outcome)
    if (lease !== this.main) return
    for (const other of [...this.#leases.values()]) this.end(other, error, outcome)
    this.#become('ended', error)
    this.wake()
  }

  /** Sets a timer for the next deadline. Renewals move the deadline, so the timer is set again when it fires. */
  #setAlarm (): void {
    this.time.clear(this.#alarm)
    const left = Math.min(...[...this.#leases.values()].filter(lease => lease.id !== '').map(lease => lease.left()))
    if (left < Infinity) this.#alarm = this.time.set(() => { this.check(); this.#setAlarm() }, Math.max(left, 1))
  }

  // --- statements other than turns ---

  async #sendOp (op: Op): Promise<void> {
    this.#turned = false
    try {
      op.resolve(await this.#call(schema => [op.sql(schema), op.values]))
      this.#ops = this.#ops.filter(other => other !== op)
    } catch (error) {
      if (error instanceof Broken) throw error
      if (passes(error as LockElectionError)) this.#opAt = this.time.mono() + PAUSE
      else op.reject(error)
    }
  }

  /**
   * Returns the statements that change the channels to those of observers and of leases with waits, and the time at
   * which the channels may change next.
   */
  #tuning (now: number): [sql: string, lingers: number] {
    const waits = this.#listeners.size > 0 || [...this.#leases.values()].some(lease => lease.queued.size > 0)
    if (this.#deaf || (!waits && this.#listening.size === 0)) return ['', Infinity]
    const wanted = new Set([...this.#listeners].map(listener => listener.channel).filter(channel => channel !== ''))
    let lingers = Infinity
    for (const { channel, queued, waitedAt } of this.#leases.values()) {
      const until = queued.size > 0 ? Infinity : waitedAt + LINGER
      if (channel === null || until <= now) continue
      wanted.add(channel)
      lingers = Math.min(lingers, until)
    }
    if (wanted.size > 0) wanted.add(this.#self)
    const sql = [...wanted].filter(channel => !this.#listening.has(channel)).map(channel => `LISTEN ${channel}`)
    // Send the session a notification, to test whether LISTEN works.
    if (sql.includes(`LISTEN ${this.#self}`)) sql.push('SET LOCAL synchronous_commit = off', `NOTIFY ${this.#self}`)
    for (const channel of this.#listening) if (!wanted.has(channel)) sql.push(`UNLISTEN ${channel}`)
    return [sql.join('; '), lingers]
  }

  /** Changes the channels. If the server rejects that, the session polls on this connection. */
  async #tune (sql: string): Promise<void> {
    try {
      await this.#exec(sql)
    } catch (error) {
      if (error instanceof Broken) throw error
      this.#deaf = true
      this.#listening = new Set()
      return
    }
    for (const [, un, channel = ''] of sql.matchAll(/(UN)?LISTEN (\w+)/g)) {
      this.#listening[un === undefined ? 'add' : 'delete'](channel)
      // Read now, because this connection was not notified of an earlier grant or change.
      if (un === undefined) this.#notified(channel, false)
    }
  }

  #notified (channel: string, heard = true): void {
    this.#hears ||= heard
    for (const lease of this.#leases.values()) if (lease.channel === channel) lease.hint()
    for (const listener of this.#listeners) if (listener.channel === channel) listener.wake()
    this.wake()
  }
}
