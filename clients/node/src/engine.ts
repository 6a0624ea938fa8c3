/**
 * The one worker of a session. It owns the connection and sends one statement at a time, in this order: renewals, what
 * has become of lost answers, what is given back, what was announced, LISTEN, looks, statements of the application,
 * requests. Everything else only changes its lists and wakes it.
 *
 * Two kinds of timers run beside it, so that nothing that hangs can hide them: the deadlines of the leases, and the
 * limits of calls.
 */
import { randomBytes } from 'node:crypto'
import { Stamp, defer, jitter, limit as limitOf, type Deferred, type Time } from './clock.js'
import {
  LockElectionError, LockLostError, NotAcquiredError, isMoved, notInstalled, reactionTo, serverError, unavailable
} from './errors.js'
import { Item, Lease, backoff, described, type Listener, type Outcome } from './item.js'
import {
  areAlike, areHeld, askFor, endBackend, giveBack, interval, isSimple, learnServer, lookAt, renew, type Statement
} from './statements.js'
import type { Dial, Rows, Wire } from './wire.js'

/** The most requests that travel in one statement, and the names that are looked at to find them. */
const TOGETHER = 128
const LOOK_AT = 4 * TOGETHER
const CONNECT_LIMIT = 5000
/** After an error that passes. */
const PAUSE = 100
/** Looks where LISTEN works, and where it does not. */
const SELDOM = 5000
const OFTEN = 250
/** For a notification to ourselves. */
const PATIENCE = 300
/** Behind a pooler: looks for what a lost answer has left, each after the limit of a call. */
const LATE_LOOKS = 3

export type State = 'connected' | 'suspended' | 'ended'

export interface EngineOptions { ttl: number, name: string, connectLimit?: number, time: Time, dials: Dial[] }

/** The connection is gone, and with it the answer to what was under way. */
class Broken extends LockElectionError { override name = 'LockElectionError' }

/** A statement of the application that is neither asking nor giving back. */
interface Op extends Deferred<Rows> { sql: (schema: string) => string, values: unknown[], sent: boolean }

const silent = new Error('the server did not answer in time')
const closedError = (): LockElectionError => new LockElectionError('canceled', 'the session was closed')

export class Engine {
  state: State = 'suspended'
  schema = ''
  main: Lease
  closed = false
  onState: (state: State) => void = () => {}
  readonly time: Time
  readonly #options: EngineOptions
  readonly #prefix: string
  readonly #self: string
  /** By their TTL: the session's, and one for each other TTL. */
  readonly #leases = new Map<number, Lease>()
  #alarm: unknown

  #wire: Wire | undefined
  /** Ends the wait for what is under way on the connection. */
  #giveUp: ((why: Error) => void) | undefined
  /** The end of the socket before. */
  #gone: Promise<unknown> | undefined
  #trouble = 'not connected'
  /** Since the last renewal that was answered. */
  #failures = 0
  #connectAt = 0
  /** Process id and start of the backend; empty until they are known. */
  #backend: string[] = []
  #pooled = false
  /** An answer was lost, perhaps together with the backend that may still be at it. */
  #lostAnswer = false
  #old: string[] = []
  #lateLooks = 0
  #lateLookAt = Infinity

  #statements = 0
  #asks: Item[] = []
  #gives: Item[] = []
  #ops: Op[] = []
  #askAt = 0
  readonly #queued = new Map<string, Item>()
  readonly #hinted = new Set<Item>()
  /** Tokens that were announced while a request was under way, whose answer may tell them. */
  #announced: Set<string> | undefined
  /** Calls and elections of the application's that are not over, and what keeps the process meanwhile. */
  #uses = 0
  #keeper: unknown
  /** It is closed, and nothing of it keeps the process. */
  #over = false
  readonly #channels = new Map<string, { users: Set<Item | Listener>, listening: boolean }>()
  readonly #listeners = new Set<Listener>()
  #listen: 'untested' | 'testing' | 'works' | 'fails' = 'untested'
  #testUntil = 0
  #tells = { locks: false, terms: false }

  #reopening: Deferred<void> | undefined
  #running: Promise<void> | undefined
  #rouse: () => void = () => {}
  #awake = false

  constructor (options: EngineOptions) {
    this.#options = { ...options, dials: [...options.dials] }
    this.time = options.time
    const marker = randomBytes(8).toString('hex')
    this.#prefix = `${Buffer.from(options.name).subarray(0, 200).toString().replace(/\uFFFD+$/, '')}#${marker}-`
    this.#self = `le_self_${marker}`
    this.main = this.leaseOf(options.ttl)
  }

  // --- what the application's side calls ---

  /** Connects and grants the lease; errors are told at once. */
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
    this.#running = this.#run()
  }

  /** Until the answer is called, the application waits for something of the session's, which keeps the process. */
  use (): () => void {
    if (this.#uses++ === 0 && !this.#over) this.#keeper = this.time.keep()
    let over = false
    return () => {
      if (over) return
      over = true
      if (--this.#uses === 0) this.time.clear(this.#keeper)
    }
  }

  /** Does code of the application wait for the loss of a hold? */
  get watched (): boolean {
    return [...this.#leases.values()].some(lease => [...lease.items].some(item => item.watched?.() === true))
  }

  /** Ends what was not opened yet. */
  abandon (why: Error): void {
    this.closed = true
    this.state = 'ended'
    this.#cut(why)
  }

  /** A new lease after the end of the last one. */
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

  /** Whatever the network says: what is past its deadline is lost (rules 3.1, 3.4). */
  check (): void {
    const why = this.state === 'suspended' ? `: ${this.#trouble}` : ''
    for (const lease of this.#live()) {
      if (lease.left() > 0) continue
      this.#end(lease, new LockLostError(`the TTL has passed since the last renewal that was answered${why}`))
    }
  }

  /** The lease for a TTL: the session's, or one that all holds of this TTL share. */
  leaseOf (ttl: number): Lease {
    const lease = this.#leases.get(ttl) ?? new Lease(ttl, this.time)
    this.#leases.set(ttl, lease)
    return lease
  }

  #forget (lease: Lease): void { if (this.#leases.get(lease.ttl) === lease) this.#leases.delete(lease.ttl) }

  /** The limit of one statement (rule 4.2). */
  callLimit (): number {
    return Math.min(Math.max(Math.min(...this.#leases.keys(), this.main.ttl) / 4, 200), 10_000)
  }

  /** Asks for an item. It ends with `granted` or `refused`. */
  ask (item: Item, wait: number): void {
    item.lease.items.add(item)
    this.#asks.push(item)
    const first = this.callLimit()
    if (item.how.try) {
      item.unlimit = limitOf(this.time, first, () => { this.refuse(item, unavailable(`${silent.message}: ${this.#trouble}`)) })
    } else if (wait < Infinity) {
      item.unlimit = limitOf(this.time, wait, () => {
        item.overdue = item.phase !== 'queued'
        if (item.overdue) item.unlimit = limitOf(this.time, first - wait, () => { this.#refuseLate(item) })
        else this.#refuseLate(item)
      })
    }
    this.wake()
  }

  #refuseLate (item: Item): void {
    this.refuse(item, new NotAcquiredError(`${described(item)} ${item.names.length > 1 ? 'were' : 'was'} not granted in time`))
  }

  /** Ends a wait. A place or a grant that comes all the same is given back (rule 5.3). */
  refuse (item: Item, error: unknown): void {
    if (item.state !== 'waiting') return
    this.#tell(item, error)
    if (item.phase === 'new') this.#done(item)
    if (item.phase === 'queued') this.#giveBack(item)
  }

  /** Gives a hold back; it ends with `released`. */
  release (item: Item, holdFor: number | undefined): void {
    item.state = 'over'
    item.holdFor = holdFor
    item.unlimit = limitOf(this.time, this.callLimit(), () => { this.#tell(item) })
    this.#giveBack(item)
  }

  /** It is not held, or not asked for, any more, as the server says; `partly`: some of its names still are. */
  lose (item: Item, error: unknown, partly = false): void {
    if (partly) this.#giveBack(item)
    else this.#done(item)
    this.#tell(item, error)
  }

  /** A statement of the application's, which may be sent again. `ifSent`: what no answer means then. */
  async op (sql: Op['sql'], values: unknown[], ifSent: 'unavailable' | 'unknown' = 'unavailable'): Promise<Rows> {
    if (this.closed) throw closedError()
    const op: Op = { ...defer<Rows>(), sql, values, sent: false }
    const unlimit = limitOf(this.time, this.callLimit(), () => {
      op.reject(new LockElectionError(op.sent ? ifSent : 'unavailable', `${silent.message}: ${this.#trouble}`))
    })
    this.#ops.push(op)
    this.wake()
    const done = this.use()
    return await op.promise.finally(() => {
      done()
      unlimit()
      this.#ops = this.#ops.filter(other => other !== op)
      this.check()
    })
  }

  addListener (listener: Listener): void { this.#listeners.add(listener); this.wake() }

  /** Wakes the listener at each notification of the channel. */
  setChannel (listener: Listener, channel: string): void {
    listener.channel = channel
    this.#use(listener)
  }

  removeListener (listener: Listener): void {
    this.#listeners.delete(listener)
    this.#channels.get(listener.channel)?.users.delete(listener)
    this.wake()
  }

  /** Are changes of elections told on this connection? */
  hearsTerms (): boolean { return this.#listen === 'works' && this.#tells.terms }

  /** Ends the waits, gives all back, revokes the leases, and leaves nothing; takes no longer than the limit. */
  async close (limit: number = this.callLimit()): Promise<void> {
    if (!this.closed) {
      this.closed = true
      for (const item of [...this.#leases.values()].flatMap(lease => [...lease.items])) {
        if (item.state === 'waiting') this.refuse(item, closedError())
        else if (item.state === 'held') this.#tell(item, new LockLostError('the session was closed'))
      }
      for (const op of this.#ops) op.reject(closedError())
      this.#reopening?.reject(closedError())
      for (const listener of this.#listeners) listener.wake()
      this.#connectAt = 0
    }
    const timer = this.time.set(() => { this.#finish('unknown') }, limit)
    const done = this.use()
    this.wake()
    await this.#running
    await this.#gone
    this.time.clear(timer)
    done()
    // An observer that nobody reads any more does not keep the process either.
    this.#over = true
    this.time.clear(this.#keeper)
  }

  wake (): void { this.#awake = true; this.#rouse() }

  // --- the worker ---

  async #run (): Promise<void> {
    while (this.state !== 'ended' || !this.closed || this.#leases.size > 0) {
      this.#awake = false
      let wait = 0
      try {
        this.check()
        wait = await this.#work()
      } catch (error) {
        // What a step does not expect costs the connection: the next one begins with a look.
        if (!(error instanceof Broken)) this.#drop(error as Error)
      }
      if (wait <= 0 || this.#awake) continue
      const { promise, resolve } = defer<void>()
      const timer = wait < Infinity ? this.time.set(resolve, wait) : undefined
      this.#rouse = resolve
      await promise
      this.time.clear(timer)
    }
    this.#cut(closedError())
    this.time.clear(this.#alarm)
  }

  /** One step; milliseconds until the next one, if nothing wakes it before. */
  async #work (): Promise<number> {
    const now = this.time.mono()
    if (this.#wire === undefined) {
      const needed = this.state !== 'ended' || this.closed || this.#reopening !== undefined
      if (!needed && this.#ops.length === 0 && this.#listeners.size === 0) return Infinity
      if (now >= this.#connectAt) await this.#reconnect()
      return this.#connectAt - now
    }
    if (this.closed) return await this.#revokeAll()
    if (this.#reopening !== undefined) return await this.#regrant(this.#reopening)
    const due = this.#live().find(lease => lease.renewIn() <= 0)
    if (due !== undefined) return await (due === this.main || due.items.size > 0 ? this.#renew(due) : this.#revoke(due))
    const paused = now < this.#askAt
    if (!paused) {
      if (this.#lostAnswer) return await this.#reconcile()
      if (this.#gives.length > 0) return await this.#sendReleases()
      if (this.#hinted.size > 0) return await this.#lookAtHinted()
      if (await this.#listenForAll()) return 0
      if (now >= this.#lateLookAt) {
        this.#lateLookAt = --this.#lateLooks > 0 ? now + this.callLimit() : Infinity
        this.#lookSoon()
      }
      const unseen = this.#live().find(lease => now >= lease.lookAt)
      if (unseen !== undefined) return await this.#look(unseen)
      if (this.#ops.length > 0) return await this.#sendOp(this.#ops[0] as Op)
      if (this.#asks.length > 0) return await this.#sendRequests()
      if (await this.#unlisten()) return 0
    }
    let next = paused ? this.#askAt : this.#lateLookAt
    if (this.#listen === 'testing') next = Math.min(next, this.#testUntil)
    for (const lease of this.#live()) next = Math.min(next, now + lease.renewIn(), paused ? Infinity : lease.lookAt)
    return Math.max(next - now, 1)
  }

  /** After an error that passes nothing but renewals is sent for a moment. */
  #pause (): void { this.#askAt = this.time.mono() + jitter(PAUSE) }

  // --- the connection ---

  #cut (why: Error): void {
    this.#gone = this.#wire?.destroy(this.#giveUp === undefined && this.closed).catch(() => {}) ?? this.#gone
    this.#wire = undefined
    this.#trouble = why.message
    this.#giveUp?.(why)
    this.#backend = []
    this.#listen = 'untested'
    for (const channel of this.#channels.values()) channel.listening = false
    if (this.state === 'connected') this.#become('suspended')
  }

  /** Gives the connection up, and makes another one: at once, after 50 ms, and so on. */
  #drop (why: Error): void {
    if (this.#wire !== undefined) this.#connectLater()
    this.#cut(why)
    this.wake()
  }

  #connectLater (): void {
    this.#connectAt = this.time.mono() + (this.#failures === 0 ? 0 : backoff(this.#failures - 1, this.main.ttl))
    this.#failures++
  }

  /** Waits for the connection, until the limit or until it is given up. */
  async #limited<T> (start: () => Promise<T>, limit: number): Promise<T> {
    const { promise, resolve, reject } = defer<T>()
    this.#giveUp = reject
    const unlimit = limitOf(this.time, limit, () => { reject(silent) })
    start().then(resolve, reject)
    return await promise.finally(() => { this.#giveUp = undefined; unlimit() })
  }

  /** One statement. Throws the server's error, or Broken: then it may have taken effect (rule 7.1). */
  async #exec (...[text, values]: Statement): Promise<Rows> {
    const wire = this.#wire
    if (wire === undefined) throw new Broken('unavailable', this.#trouble)
    const backend = this.#backend
    try {
      return await this.#limited(async () => await wire.query(text, values), this.callLimit())
    } catch (error) {
      const told = serverError(error)
      const reaction = told === null ? 'reconnect' : reactionTo(told)
      if (reaction === 'reconnect' || reaction === 'unknown') this.#lostAnswer ||= backend.length > 0
      if (reaction !== 'reconnect') { this.#trouble = told?.message ?? ''; throw told }
      if (this.#pooled) this.#lateLooks = LATE_LOOKS
      // A backend that is to be ended already is the one that may still be at it.
      else if (this.#old.length === 0) this.#old = backend
      if (this.#wire === wire) this.#drop(error as Error)
      throw new Broken('unavailable', (error as Error).message, told?.sqlstate)
    } finally {
      // Its answer may have come after the deadline (rule 3.2).
      this.check()
    }
  }

  /**
   * A statement that names the schema of the extension. If that has another name by now, the session learns it and sends
   * the statement once more (rule 1.3): the server has refused the first one before it did anything.
   */
  async #call (statement: (schema: string) => Statement): Promise<Rows> {
    try {
      return await this.#exec(...statement(this.schema))
    } catch (error) {
      if (!isMoved(error)) throw error
      this.#found(await this.#exec(learnServer), error)
      return await this.#exec(...statement(this.schema))
    }
  }

  /** The schema, learned again after a statement that has not found it. Throws if the extension is not there. */
  #found (rows: Rows, error: LockElectionError): void {
    const [schema = null, , , , , database] = rows[0] ?? []
    if (schema === null) throw notInstalled(database ?? '', error.sqlstate)
    this.schema = schema
  }

  /** After a statement on another connection, which has not found the schema. */
  async learnSchema (error: LockElectionError): Promise<void> { this.#found(await this.op(() => learnServer, []), error) }

  /** A connection to the first host that answers and is a primary. A host that is not goes to the end of the list. */
  async #connect (): Promise<void> {
    const { dials, connectLimit = CONNECT_LIMIT } = this.#options
    const limit = this.main.id === '' ? connectLimit : Math.min(connectLimit, Math.max(this.main.ttl / 4, 200))
    let failure: unknown
    for (let tries = dials.length; tries > 0 && !(this.closed && this.state === 'ended'); tries--) {
      const wire: Wire = (dials[0] as Dial)({
        notified: (channel, payload) => { this.#notified(channel, payload) },
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
    const [schema, isStandby, pid, notify, started, database = ''] = (await this.#exec(learnServer))[0] as string[]
    if (isStandby === 't') throw new LockElectionError('unavailable', 'the server is a standby', '25006')
    if (schema == null) throw notInstalled(database)
    this.schema = schema
    this.#backend = [pid as string, started as string]
    this.#pooled = Number(pid) !== wire.pid()
    const locks = notify === 'all' || notify === 'waiters'
    this.#tells = { locks, terms: locks || notify === 'elections' }
    this.#listen = this.#pooled || !this.#tells.terms ? 'fails' : 'untested'
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
    for (const lease of this.#live()) lease.renewNow()
    this.#lookSoon()
    for (const listener of this.#listeners) listener.wake()
  }

  // --- leases ---

  #live (): Lease[] { return [...this.#leases.values()].filter(lease => lease.id !== '') }

  #become (state: State): void {
    if (this.state === state) return
    this.state = state
    try {
      this.onState(state)
    } catch (error) {
      // As an EventTarget tells what a listener throws: the session goes on.
      queueMicrotask(() => { throw error })
    }
  }

  async #grant (lease: Lease): Promise<void> {
    const sent = new Stamp(this.time)
    const values = [interval(lease.ttl), this.#prefix.slice(0, -1)]
    const rows = await this.#call(schema => [`SELECT ${schema}.grant_lease($1, $2)`, values])
    lease.id = rows[0]?.[0] as string
    lease.renewed(sent)
    if (lease === this.main) this.#become('connected')
    this.#setAlarm()
  }

  async #regrant (caller: Deferred<void>): Promise<0> {
    this.#reopening = undefined
    await this.#grant(this.main).then(caller.resolve, caller.reject)
    return 0
  }

  async #renew (lease: Lease): Promise<0> {
    const sent = new Stamp(this.time)
    try {
      const validity = (await this.#call(schema => renew(lease, schema)))[0]?.[0]
      if (lease.ended) return 0
      if (validity == null) {
        this.#end(lease, new LockLostError('the server has ended the lease', 'LE001'))
        return 0
      }
      lease.renewed(sent, Number(validity))
      this.#failures = 0
      if (lease.items.size > 0) lease.lookAt = 0
      if (lease === this.main) this.#become('connected')
    } catch (error) {
      lease.failed()
      if (lease === this.main && this.state === 'connected') this.#become('suspended')
      if (error instanceof Broken) throw error
    }
    return 0
  }

  /** A lease of a TTL of its own on which nothing hangs. */
  async #revoke (lease: Lease): Promise<0> {
    this.#leases.delete(lease.ttl)
    lease.ended = true
    await this.#call(schema => [`SELECT ${schema}.revoke_lease($1)`, [lease.id]])
    return 0
  }

  async #revokeAll (): Promise<0> {
    const leases = this.#live().map(lease => lease.id)
    try {
      if (leases.length > 0) {
        await this.#call(schema => [`SELECT ${schema}.revoke_lease(l) FROM pg_catalog.unnest($1::bigint[]) l`, [leases]])
      }
    } catch (error) {
      if (error instanceof Broken) throw error
    }
    this.#finish('released')
    return 0
  }

  #finish (outcome: Outcome): void {
    const error = new LockLostError('the session was closed')
    for (const lease of [...this.#leases.values(), this.main]) this.#end(lease, error, outcome)
    this.#become('ended')
    this.#cut(error)
    this.wake()
  }

  /** The end of a lease: first its holds are told, then the session (rule 10.3), which ends with its own lease. */
  #end (lease: Lease, error: LockElectionError, outcome?: Outcome): void {
    if (lease.ended) return
    lease.ended = true
    this.#forget(lease)
    for (const item of [...lease.items]) { this.#done(item); this.#tell(item, error, outcome) }
    if (lease !== this.main) return
    for (const other of [...this.#leases.values()]) this.#end(other, error, outcome)
    this.#become('ended')
    this.wake()
  }

  /** The next deadline. Renewals move it, which is seen when it is due. */
  #setAlarm (): void {
    this.time.clear(this.#alarm)
    const left = Math.min(...this.#live().map(lease => lease.left()))
    if (left < Infinity) this.#alarm = this.time.set(() => { this.check(); this.#setAlarm() }, left)
  }

  // --- asking ---

  /** Tells the application that it is over: a wait by its error, a hold by its loss, a release by its outcome. */
  #tell (item: Item, error?: unknown, outcome: Outcome = 'unknown', refusal?: LockElectionError): void {
    const { state, released } = item
    item.state = 'over'
    item.released = undefined
    item.unlimit()
    if (state === 'waiting') item.refused(error)
    else if (state === 'held') item.lost?.(error)
    else released?.(outcome, refusal)
  }

  /** Takes the first of a list, and those behind it that can travel with it; none passes another one of its name. */
  #choose (list: Item[]): [Item[], Item[]] {
    const first = list[0] as Item
    const chosen = new Set<Item>()
    const seen = new Set<string>()
    for (const item of list) {
      const passes = item.kind !== 'term' && item.names.some(name => seen.has(name))
      for (const name of item.names) seen.add(name)
      if (item === first || (!passes && isSimple(first) && isSimple(item) && areAlike(first, item))) chosen.add(item)
      if (chosen.size === TOGETHER || !isSimple(first) || seen.size > LOOK_AT) break
    }
    return [[...chosen], list.filter(item => !chosen.has(item))]
  }

  /** A row an item; else the server is not of our version, and nothing is known of what it did. */
  async #callForEach (items: Item[], statement: (schema: string) => Statement,
    each: (item: Item, row: Array<string | null>) => void): Promise<void> {
    const rows = await this.#call(statement)
    if (rows.length !== items.length) throw new LockElectionError('unknown', 'the server has answered with another number of rows')
    items.forEach((item, i) => { each(item, rows[i] ?? []) })
  }

  async #sendRequests (): Promise<0> {
    const [items, rest] = this.#choose(this.#asks)
    const { lease } = items[0] as Item
    this.#asks = rest
    this.#announced = new Set()
    this.#statements++
    for (const item of items) [item.phase, item.asked] = ['sent', this.#statements]
    try {
      if (lease.id === '') await this.#grant(lease)
      const owner = this.#prefix + String(this.#statements)
      await this.#callForEach(items, schema => askFor(items, schema, owner), (item, row) => {
        if (item.phase === 'sent') this.#asked(item, row)
      })
    } catch (error) {
      // What was asked for on a lease whose grant was lost cannot have been done.
      if (lease.id === '' && error instanceof Broken) this.#askAgain(items)
      if (error instanceof Broken) throw error
      this.#askFailed(items, lease, error as LockElectionError)
    } finally {
      this.#announced = undefined
    }
    return 0
  }

  /** It was granted, or has a place; but perhaps nobody wants it any more. */
  #asked (item: Item, [token = null, granted, channel = null]: Array<string | null>): void {
    if (token === null) this.lose(item, new NotAcquiredError('somebody else holds it, or is queued for it'))
    else this.#placed(item, token, item.how.try || granted === 't', channel)
  }

  #placed (item: Item, token: string, granted: boolean, channel: string | null): void {
    item.token = token
    item.channel = channel ?? ''
    item.phase = granted ? 'granted' : 'queued'
    if (item.state === 'over') this.#giveBack(item)
    else if (granted) this.#granted(item)
    else if (item.overdue) this.#refuseLate(item)
    else {
      this.#queued.set(token, item)
      this.#use(item)
      if (this.#announced?.has(token) === true) this.#hinted.add(item)
      item.lease.lookAt = Math.min(item.lease.lookAt, this.time.mono() + this.#lookInterval(item))
    }
  }

  #granted (item: Item): void {
    this.#unqueue(item)
    item.phase = 'granted'
    item.state = 'held'
    item.unlimit()
    item.granted()
  }

  /** To the front, in the old order. */
  #askAgain (items: Item[]): void {
    const sent = items.filter(item => item.phase === 'sent')
    for (const item of sent) { item.phase = 'new'; if (item.state === 'over') this.#done(item) }
    this.#asks.unshift(...sent.filter(item => item.phase === 'new'))
  }

  #askFailed (items: Item[], lease: Lease, error: LockElectionError): void {
    const reaction = reactionTo(error)
    if (reaction === 'unknown' || reaction === 'later') this.#pause()
    if (reaction === 'unknown') return
    if (reaction === 'lost') lease.renewNow()
    const together = reaction === 'tell' && items.length > 1
    for (const item of items) {
      item.alone ||= together
      const again = together || (reaction === 'later' && !item.how.try && !item.overdue && item.state === 'waiting')
      if (!again && item.phase === 'sent') this.lose(item, error)
    }
    this.#askAgain(items)
  }

  /** Nothing of it is on the server any more, as far as is known. */
  #done (item: Item): void {
    this.#unqueue(item)
    if (item.phase === 'new') this.#asks = this.#asks.filter(other => other !== item)
    else if (this.#gives.length > 0) this.#gives = this.#gives.filter(other => other !== item)
    item.phase = 'done'
    const { lease } = item
    lease.items.delete(item)
    // One that was not granted, because of its TTL, bounds no call any more.
    if (lease.id === '' && lease !== this.main && lease.items.size === 0) this.#forget(lease)
  }

  // --- giving back ---

  #giveBack (item: Item): void {
    this.#unqueue(item)
    this.#gives.push(item)
    this.wake()
  }

  async #sendReleases (): Promise<0> {
    const [items, rest] = this.#choose(this.#gives)
    this.#gives = rest
    for (const item of items) item.releases++
    try {
      await this.#callForEach(items, schema => giveBack(items, schema), (item, [released]) => {
        // Sent again, it may have been done the first time (rule 7.5).
        this.#releaseOver(item, released === 't' || item.releases > 1 ? 'released' : 'lost')
      })
    } catch (error) {
      const left = items.filter(item => item.phase !== 'done')
      if (error instanceof Broken) this.#gives.unshift(...left)
      if (error instanceof Broken) throw error
      for (const item of left) this.#releaseFailed(item, items.length > 1, error as LockElectionError)
    }
    return 0
  }

  #releaseFailed (item: Item, together: boolean, error: LockElectionError): void {
    const told = reactionTo(error) === 'tell'
    if (told && together) item.alone = true
    else if (told && item.holdFor !== undefined && (error.code === 'invalid' || error.sqlstate === '53400')) {
      // It is released all the same, and the name is not closed.
      item.holdFor = undefined
      this.#tell(item, undefined, 'released', error)
    } else if (told && error.code !== 'limit') {
      this.#releaseOver(item, 'unknown')
      return
    } else this.#pause()
    this.#gives.push(item)
  }

  #releaseOver (item: Item, outcome: Outcome): void {
    if (item.phase === 'done') return
    this.#done(item)
    this.#tell(item, undefined, outcome)
  }

  async #sendOp (op: Op): Promise<0> {
    op.sent = true
    try {
      op.resolve(await this.#call(schema => [op.sql(schema), op.values]))
      this.#failures = 0
    } catch (error) {
      if (error instanceof Broken) throw error
      if (reactionTo(error as LockElectionError) === 'later') { this.#pause(); return 0 }
      op.reject(error)
    }
    this.#ops = this.#ops.filter(other => other !== op)
    return 0
  }

  // --- notifications ---

  #use (user: Item | Listener): void {
    const channel = this.#channels.get(user.channel) ?? { users: new Set(), listening: false }
    channel.users.add(user)
    if (user.channel !== '') this.#channels.set(user.channel, channel)
    this.wake()
  }

  #unqueue (item: Item): void {
    this.#hinted.delete(item)
    if (this.#queued.delete(item.token)) this.#channels.get(item.channel)?.users.delete(item)
  }

  #notified (channel: string, payload: string): void {
    if (channel === this.#self) this.#listen = 'works'
    const [, token = ''] = /"(?:token|term)"\s*:\s*"(\d+)"/.exec(payload) ?? []
    const item = this.#queued.get(token)
    if (item !== undefined) this.#hinted.add(item)
    else this.#announced?.add(token)
    for (const listener of this.#listeners) if (listener.channel === channel) listener.wake()
    this.wake()
  }

  /** LISTEN for all that is new, after a test whether it works. True: something was sent. */
  async #listenForAll (): Promise<boolean> {
    if (this.#channels.size === 0 && this.#listeners.size === 0) return false
    if (this.#listen === 'untested') {
      this.#listen = 'testing'
      this.#testUntil = this.time.mono() + PATIENCE
      this.#channels.set(this.#self, { users: new Set(), listening: true })
      await this.#tune(`LISTEN ${this.#self}; NOTIFY ${this.#self}`)
      return true
    }
    if (this.#listen === 'testing' && this.time.mono() >= this.#testUntil) {
      this.#listen = 'fails'
      this.#lookSoon()
    }
    const fresh = [...this.#channels].filter(([, { users, listening }]) => users.size > 0 && !listening)
    if (this.#listen !== 'works' || fresh.length === 0) return false
    await this.#tune(fresh.map(([name]) => `LISTEN ${name}`).join('; '))
    for (const [, channel] of fresh) {
      channel.listening = true
      // What was granted before is seen by looking.
      for (const user of channel.users) if (user instanceof Item) this.#hinted.add(user); else user.wake()
    }
    return true
  }

  async #unlisten (): Promise<boolean> {
    const unused = [...this.#channels].filter(([, { users }]) => users.size === 0)
    for (const [name] of unused) this.#channels.delete(name)
    const heard = unused.filter(([, { listening }]) => listening)
    if (heard.length > 0) await this.#tune(heard.map(([name]) => `UNLISTEN ${name}`).join('; '))
    return heard.length > 0
  }

  /** Where that is refused, this connection looks often. */
  async #tune (sql: string): Promise<void> {
    try {
      await this.#exec(sql)
    } catch (error) {
      if (error instanceof Broken) throw error
      this.#listen = 'fails'
      this.#lookSoon()
    }
  }

  // --- looking ---

  #lookSoon (): void { for (const lease of this.#live()) if (lease.items.size > 0 || this.#lateLooks > 0) lease.lookAt = 0 }

  #lookInterval (item: Item): number {
    return jitter(this.#listen === 'works' && this.#tells[item.kind === 'term' ? 'terms' : 'locks'] ? SELDOM : OFTEN)
  }

  async #lookAtHinted (): Promise<0> {
    const items = [...this.#hinted].slice(0, TOGETHER)
    for (const item of items) this.#hinted.delete(item)
    try {
      for (const [place] of await this.#call(schema => areHeld(items, schema))) {
        const item = items[Number(place) - 1]
        if (item?.phase === 'queued' && item.state === 'waiting') this.#granted(item)
      }
    } catch (error) {
      for (const item of items) item.lease.lookAt = 0
      if (error instanceof Broken) throw error
      this.#pause()
    }
    return 0
  }

  /** What hangs on the lease, against what we know of it (rules 6.4, 7.3). */
  async #look (lease: Lease): Promise<0> {
    const known = [...lease.items].filter(item => item.phase === 'queued' || item.phase === 'granted')
    lease.lookAt = this.time.mono() + jitter(OFTEN)
    try {
      const rows = await this.#call(schema => lookAt(lease, schema))
      if (!lease.ended) this.#compare(lease, known, rows as string[][])
    } catch (error) {
      if (error instanceof Broken) throw error
      if (reactionTo(error as LockElectionError) === 'lost') lease.renewNow()
      return 0
    }
    const queued = [...lease.items].filter(item => item.phase === 'queued')
    lease.lookAt = this.time.mono() + queued.reduce((least, item) => Math.min(least, this.#lookInterval(item)), Infinity)
    return 0
  }

  #compare (lease: Lease, known: Item[], rows: string[][]): void {
    const items = [...lease.items]
    const byToken = new Map(items.map(item => [item.token, item]))
    // How many of its names are there, and how many of them granted: one of several may have been released by force.
    const there = new Map<Item, [number, number]>()
    for (const [kind, name = '', token = '', isGranted, channel = null, owner] of rows) {
      if (owner?.startsWith(this.#prefix) !== true) continue
      const asked = Number(owner.slice(this.#prefix.length))
      const item = byToken.get(token) ??
        items.find(one => one.phase === 'sent' && one.asked === asked && one.names.includes(name)) ??
        this.#ghost(lease, kind === 'election' ? 'term' : 'lock', name, token)
      if (item.phase === 'sent') this.#placed(item, token, isGranted === 't', channel)
      byToken.set(token, item)
      const [seen, granted] = there.get(item) ?? [0, 0]
      there.set(item, [seen + 1, granted + (isGranted === 't' ? 1 : 0)])
    }
    for (const item of known) {
      const [seen, granted] = there.get(item) ?? [0, 0]
      const all = item.names.length
      if (item.state === 'waiting' && granted === all) this.#granted(item)
      else if ((item.state === 'waiting' && seen < all) || (item.state === 'held' && granted < all)) {
        this.lose(item, new LockLostError('the server has ended it: released by force, or with another token', 'LE001'), seen > 0)
      }
    }
    this.#askAgain(items)
  }

  /** Of this session, and wanted by nobody: a lost answer has left it. */
  #ghost (lease: Lease, kind: 'term' | 'lock', name: string, token: string): Item {
    const item = new Item(kind, [name], lease, { try: false, shared: false, permits: 0, candidate: '' })
    Object.assign(item, { state: 'over', phase: 'granted', token, alone: true })
    lease.items.add(item)
    this.#giveBack(item)
    return item
  }

  /** What has become of statements without an answer: the old backend is ended first, so that nothing comes later. */
  async #reconcile (): Promise<0> {
    if (this.#old.length > 0) {
      try {
        const patience = Math.floor(Math.min(1000, this.callLimit() / 2))
        if ((await this.#exec(endBackend, [...this.#old, patience])).length > 0) return 0
      } catch (error) {
        if (error instanceof Broken) throw error
        if (reactionTo(error as LockElectionError) !== 'tell') { this.#pause(); return 0 }
        this.#lateLooks = LATE_LOOKS
      }
      this.#old = []
    }
    this.#lostAnswer = false
    if (this.#lateLooks > 0) this.#lateLookAt = this.time.mono() + this.callLimit()
    for (const lease of this.#live()) await this.#look(lease)
    return 0
  }
}
