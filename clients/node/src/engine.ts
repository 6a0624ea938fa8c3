/**
 * The one worker of a session. It owns the connection and sends one statement at a time, in this order: renewals, what
 * has become of lost answers, what is given back, what was announced, LISTEN, looks, statements of the application,
 * requests. Everything else only changes its lists and wakes it.
 *
 * Two kinds of timers run beside it, so that nothing that hangs can hide them: the deadlines of the leases, and the
 * limits of calls.
 */
import { randomBytes } from 'node:crypto'
import { Stamp, jitter, limit as limitOf, type Time } from './clock.js'
import { LockElectionError, LockLostError, NotAcquiredError, connectError, reactionTo, serverError } from './errors.js'
import { Item, Lease, backoff, type Listener, type Op, type Outcome } from './item.js'
import { areAlike, areHeld, askFor, endBackend, giveBack, isSimple, learnServer } from './statements.js'
import type { Dial, Rows, Wire } from './wire.js'

/** The most requests that travel in one statement. */
const TOGETHER = 128
/** Names that are looked at to find them. */
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

export interface EngineOptions {
  ttl: number
  name: string
  connectLimit?: number
  time: Time
  dials: Dial[]
}

/** The connection is gone, and with it the answer to what was under way. */
class Broken extends Error {}

/** What an item waits for on its channel, apart from observers. */
interface Channel { refs: number, listening: boolean }

export class Engine {
  state: State = 'suspended'
  schema = ''
  main: Lease
  closed = false
  onState: (state: State) => void = () => {}

  readonly time: Time
  readonly #dials: Dial[]
  readonly #connectLimit: number
  readonly #prefix: string
  readonly #self: string
  readonly #leases = new Map<number, Lease>()
  #alarm: unknown

  #wire: Wire | undefined
  /** The end of the socket before. */
  #gone: Promise<unknown> | undefined
  #giveUp: ((why: Error) => void) | undefined
  #trouble = 'not connected'
  /** Since the last renewal that was answered. */
  #failures = 0
  #connectAt = 0
  #pid = ''
  #started = ''
  #pooled = false

  #lostAnswer = false
  #old: [string, string] | undefined
  #lateLooks = 0
  #lateLookAt = Infinity

  #statements = 0
  #asks: Item[] = []
  #gives: Item[] = []
  #ops: Op[] = []
  #askAt = 0
  readonly #queued = new Map<string, Item>()
  readonly #hinted = new Set<Item>()
  /** Tokens that were announced while a statement was under way, whose answer may tell them. */
  readonly #announced = new Set<string>()
  readonly #channels = new Map<string, Channel>()
  readonly #listeners = new Set<Listener>()
  #listen: 'untested' | 'testing' | 'works' | 'fails' = 'untested'
  #testUntil = 0
  #tells = { locks: false, terms: false }

  #reopening: { resolve: () => void, reject: (error: unknown) => void } | undefined
  #running: Promise<void> | undefined
  #sleep: { timer: unknown, wake: () => void } | undefined
  #awake = false

  constructor (options: EngineOptions) {
    this.time = options.time
    this.#dials = [...options.dials]
    this.#connectLimit = options.connectLimit ?? CONNECT_LIMIT
    const marker = randomBytes(8).toString('hex')
    const name = Buffer.from(options.name).subarray(0, 200).toString().replace(/\uFFFD+$/, '')
    this.#prefix = `${name}#${marker}-`
    this.#self = `le_self_${marker}`
    this.main = this.#newLease(options.ttl)
  }

  // --- what the application's side calls ---

  /** Connects and grants the lease; errors are told at once. */
  async open (): Promise<void> {
    try {
      await this.#connect()
      await this.#grant(this.main)
    } catch (error) {
      this.closed = true
      this.#drop(error as Error)
      throw this.#explain(error)
    }
    this.#running = this.#run()
  }

  /** A new lease after the end of the last one. */
  async reopen (): Promise<void> {
    this.check()
    if (this.closed) throw new LockElectionError('canceled', 'the session was closed')
    if (this.state !== 'ended') return
    if (this.main.ended !== undefined) this.main = this.#newLease(this.main.ttl)
    await new Promise<void>((resolve, reject) => {
      const before = this.#reopening
      this.#reopening = {
        resolve: () => { before?.resolve(); resolve() },
        reject: error => { before?.reject(error); reject(error) }
      }
      this.#connectAt = 0
      this.wake()
    })
  }

  /** Whatever the network says: what is past its deadline is lost (rules 3.1, 3.4). */
  check (): void {
    for (const lease of this.#live()) {
      if (lease.left() <= 0) this.#end(lease, new LockLostError('the TTL has passed since the last renewal that was answered'))
    }
  }

  /** The lease for a TTL: the session's, or one that all holds of this TTL share. */
  leaseOf (ttl: number): Lease {
    return this.#leases.get(ttl) ?? this.#newLease(ttl)
  }

  /** The limit of one statement (rule 4.2). */
  callLimit (): number {
    let shortest = this.main.ttl
    for (const lease of this.#leases.values()) shortest = Math.min(shortest, lease.ttl)
    return Math.min(Math.max(shortest / 4, 200), 10_000)
  }

  /** Asks for an item. It ends with `granted` or `refused`. */
  ask (item: Item, wait: number): void {
    item.lease.items.add(item)
    this.#asks.push(item)
    if (item.how.try || wait < Infinity) {
      item.unlimit = limitOf(this.time, item.how.try ? this.callLimit() : wait, () => {
        this.refuse(item, item.how.try
          ? new LockElectionError('unavailable', `the server did not answer in time: ${this.#trouble}`)
          : new NotAcquiredError('not granted within the wait'))
      })
    }
    this.wake()
  }

  /** Ends a wait. A place or a grant that comes all the same is given back (rule 5.3). */
  refuse (item: Item, error: unknown): void {
    if (item.state !== 'waiting') return
    item.state = 'over'
    item.unlimit()
    item.refused(error)
    if (item.phase === 'new') this.#done(item)
    if (item.phase === 'queued') this.#giveBack(item)
  }

  /** Gives a hold back; it ends with `released`. */
  release (item: Item, holdFor: number | undefined): void {
    item.state = 'over'
    item.holdFor = holdFor
    item.unlimit = limitOf(this.time, this.callLimit(), () => {
      item.released?.('unknown')
      item.released = undefined
    })
    this.#giveBack(item)
  }

  /** The hold is not held any more, as the server says. */
  lose (item: Item, error: LockElectionError, partly = false): void {
    if (item.state !== 'held') return
    item.state = 'over'
    if (partly) this.#giveBack(item)
    else this.#done(item)
    item.lost?.(error)
  }

  /** A statement of the application's, which may be sent again. `ifSent`: what no answer means then. */
  async op (sql: (schema: string) => string, values: unknown[], ifSent: 'unavailable' | 'unknown' = 'unavailable'): Promise<Rows> {
    if (this.closed) throw new LockElectionError('canceled', 'the session was closed')
    let unlimit: (() => void) | undefined
    let op!: Op
    try {
      return await new Promise<Rows>((resolve, reject) => {
        op = { sql, values, sent: false, resolve, reject }
        this.#ops.push(op)
        unlimit = limitOf(this.time, this.callLimit(), () => {
          reject(new LockElectionError(op.sent ? ifSent : 'unavailable', `the server did not answer in time: ${this.#trouble}`))
        })
        this.wake()
      })
    } finally {
      unlimit?.()
      this.#ops = this.#ops.filter(other => other !== op)
      this.check()
    }
  }

  /** Wakes the listener at each notification of its channel, which may come to be known later. */
  addListener (listener: Listener): void {
    this.#listeners.add(listener)
    this.wake()
  }

  setChannel (listener: Listener, channel: string): void {
    listener.channel = channel
    this.#channelGet(channel)
    this.wake()
  }

  removeListener (listener: Listener): void {
    if (this.#listeners.delete(listener)) this.#channelPut(listener.channel)
    this.wake()
  }

  /** Are changes of elections told on this connection? */
  hearsTerms (): boolean {
    return this.#listen === 'works' && this.#tells.terms
  }

  /** Ends the waits, gives all back, revokes the leases, and leaves nothing; takes no longer than the limit. */
  async close (limit: number = this.callLimit()): Promise<void> {
    if (!this.closed) {
      this.closed = true
      const error = new LockElectionError('canceled', 'the session was closed')
      const why = new LockLostError('the session was closed')
      for (const item of [...this.#leases.values()].flatMap(lease => [...lease.items])) {
        if (item.state === 'waiting') this.refuse(item, error)
        else if (item.state === 'held') {
          item.state = 'over'
          item.lost?.(why)
        }
      }
      for (const op of this.#ops) op.reject(error)
      this.#ops = []
      this.#reopening?.reject(error)
      for (const listener of this.#listeners) listener.wake()
      this.#connectAt = 0
    }
    const timer = this.time.set(() => { this.#finish('unknown') }, limit)
    this.wake()
    await this.#running
    await this.#gone
    this.time.clear(timer)
  }

  wake (): void {
    this.#awake = true
    this.#sleep?.wake()
  }

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
      if (wait > 0 && !this.#awake) await this.#idle(wait)
    }
    this.#drop(new Error('the session was closed'))
    this.time.clear(this.#alarm)
  }

  async #idle (ms: number): Promise<void> {
    await new Promise<void>(resolve => {
      const timer = ms < Infinity ? this.time.set(resolve, ms) : undefined
      this.#sleep = { timer, wake: resolve }
    })
    this.time.clear(this.#sleep?.timer)
    this.#sleep = undefined
  }

  /** One step; milliseconds until the next one, if nothing wakes it before. */
  async #work (): Promise<number> {
    const now = this.time.mono()
    if (this.#wire === undefined) {
      const needed = this.state !== 'ended' || this.#reopening !== undefined || this.#ops.length > 0 || this.#listeners.size > 0
      if (!needed && !this.closed) return Infinity
      if (now < this.#connectAt) return this.#connectAt - now
      await this.#reconnect()
      return 0
    }
    if (this.closed) {
      await this.#revokeAll()
      return 0
    }
    if (this.#reopening !== undefined) {
      await this.#regrant(this.#reopening)
      return 0
    }
    for (const lease of this.#live()) {
      if (lease.renewIn() <= 0) {
        await (lease === this.main || lease.items.size > 0 ? this.#renew(lease) : this.#revoke(lease))
        return 0
      }
    }
    return await this.#workOnRequests(now)
  }

  async #workOnRequests (now: number): Promise<number> {
    const paused = now < this.#askAt
    if (!paused) {
      if (this.#lostAnswer) return await this.#reconcile()
      if (this.#gives.length > 0) return await this.#sendReleases()
      if (this.#hinted.size > 0) return await this.#lookAtHinted()
      if (await this.#listenForAll()) return 0
      if (now >= this.#lateLookAt) {
        this.#lateLookAt = --this.#lateLooks > 0 ? now + this.callLimit() : Infinity
        for (const lease of this.#live()) lease.lookAt = now
      }
      for (const lease of this.#live()) {
        if (now >= lease.lookAt) return await this.#look(lease)
      }
      if (this.#ops.length > 0) return await this.#sendOp()
      if (this.#asks.length > 0) return await this.#sendRequests()
      if (await this.#unlisten()) return 0
    }
    let next = paused ? this.#askAt - now : this.#lateLookAt - now
    if (this.#listen === 'testing') next = Math.min(next, this.#testUntil - now)
    for (const lease of this.#live()) {
      next = Math.min(next, lease.renewIn(), paused ? Infinity : lease.lookAt - now)
    }
    return Math.max(next, 1)
  }

  /** After an error that passes nothing but renewals is sent for a moment. */
  #pause (ms = PAUSE): 0 {
    this.#askAt = this.time.mono() + jitter(ms)
    return 0
  }

  // --- the connection ---

  #explain (error: unknown): unknown {
    return error instanceof LockElectionError ? error : new LockElectionError('unavailable', (error as Error).message)
  }

  /** Gives the connection up, and makes another one: at once, after 50 ms, and so on. */
  #drop (why: Error): void {
    if (this.#wire === undefined) return
    this.#cut(why)
    this.#connectLater()
    this.wake()
  }

  #connectLater (): void {
    const pause = this.#failures === 0 ? 0 : backoff(this.#failures - 1, this.main.ttl)
    this.#failures++
    this.#connectAt = this.time.mono() + pause
  }

  /** What was under way may have taken effect (rule 7.1). */
  #cut (why: Error): void {
    this.#gone = this.#wire?.destroy(this.#giveUp === undefined && this.closed).catch(() => {})
    this.#trouble = why.message
    this.#wire = undefined
    if (this.#giveUp !== undefined) {
      this.#lostAnswer = true
      // A backend that is to be ended already is the one that may still be at it.
      if (!this.#pooled && this.#pid !== '') this.#old ??= [this.#pid, this.#started]
      if (this.#pooled) this.#lateLooks = LATE_LOOKS
      this.#giveUp(why)
    }
    this.#pid = ''
    this.#listen = 'untested'
    for (const channel of this.#channels.values()) channel.listening = false
    if (this.state === 'connected') this.#become('suspended')
  }

  /** One statement, with a limit. Throws the server's error, or Broken. */
  async #exec (text: string, values?: unknown[], limit: number = this.callLimit()): Promise<Rows> {
    const wire = this.#wire
    if (wire === undefined) throw new Broken(this.#trouble)
    let unlimit: (() => void) | undefined
    try {
      return await new Promise<Rows>((resolve, reject) => {
        this.#giveUp = why => { reject(new Broken(why.message)) }
        unlimit = limitOf(this.time, limit, () => { this.#drop(new Error('the server did not answer in time')) })
        wire.query(text, values).then(resolve, reject)
      })
    } catch (error) {
      const told = serverError(error)
      if (told === null) {
        if (this.#wire === wire) this.#drop(error as Error)
        throw error instanceof Broken ? error : new Broken((error as Error).message)
      }
      this.#trouble = told.message
      if (reactionTo(told) === 'reconnect') {
        this.#drop(told)
        throw new Broken(told.message)
      }
      if (reactionTo(told) === 'unknown') this.#lostAnswer = true
      throw told
    } finally {
      this.#giveUp = undefined
      unlimit?.()
      // Its answer may have come after the deadline (rule 3.2).
      this.check()
    }
  }

  /** A connection to the first host that answers and is a primary. A host that is not goes to the end of the list. */
  async #connect (): Promise<void> {
    const part = Math.max(this.main.ttl / 4, 200)
    const limit = this.main.id === '' ? this.#connectLimit : Math.min(this.#connectLimit, part)
    let failure: unknown
    for (let tries = this.#dials.length; tries > 0; tries--) {
      const dial = this.#dials[0] as Dial
      const wire: Wire = dial({
        notified: (channel, payload) => { this.#notified(channel, payload) },
        ended: error => { if (this.#wire === wire) this.#drop(error) }
      })
      this.#wire = wire
      let unlimit: (() => void) | undefined
      try {
        await new Promise<unknown>((resolve, reject) => {
          this.#giveUp = reject
          unlimit = limitOf(this.time, limit, () => { reject(new Error('the server did not answer in time')) })
          wire.connect().then(resolve, reject)
        }).finally(() => {
          this.#giveUp = undefined
          unlimit?.()
        })
        await this.#learn(wire)
        return
      } catch (error) {
        failure = connectError(error)
        this.#cut(failure as Error)
        this.#dials.push(this.#dials.shift() as Dial)
        if (this.closed && this.state === 'ended') break
      }
    }
    throw failure
  }

  async #learn (wire: Wire): Promise<void> {
    this.#pid = ''
    const row = (await this.#exec(learnServer))[0] as Array<string | null>
    if (row[1] === 't') throw new LockElectionError('unavailable', 'the server is a standby', '25006')
    if (row[0] === null) {
      throw new LockElectionError('not_installed',
        'lock_election is not installed in this database: type CREATE EXTENSION lock_election')
    }
    this.schema = row[0] as string
    this.#pid = row[2] as string
    this.#started = row[4] ?? ''
    this.#pooled = Number(row[2]) !== wire.pid()
    const locks = row[3] === 'all' || row[3] === 'waiters'
    this.#tells = { locks, terms: locks || row[3] === 'elections' }
    this.#listen = this.#pooled || !this.#tells.terms ? 'fails' : 'untested'
  }

  async #reconnect (): Promise<void> {
    const lost = this.#lostAnswer
    const old = this.#old
    try {
      await this.#connect()
    } catch (error) {
      this.#connectLater()
      this.#reopening?.reject(error)
      this.#reopening = undefined
      return
    } finally {
      // Connecting asks for nothing, so what is to be found out is what it was before.
      this.#lostAnswer = lost
      this.#old = old
    }
    for (const lease of this.#live()) {
      lease.renewNow()
      if (lease.items.size > 0 || this.#lostAnswer) lease.lookAt = 0
    }
    for (const listener of this.#listeners) listener.wake()
  }

  // --- leases ---

  #newLease (ttl: number): Lease {
    const lease = new Lease(ttl, this.time)
    this.#leases.set(ttl, lease)
    return lease
  }

  #live (): Lease[] {
    return [...this.#leases.values()].filter(lease => lease.id !== '')
  }

  #become (state: State): void {
    if (this.state === state) return
    this.state = state
    this.onState(state)
  }

  async #grant (lease: Lease): Promise<void> {
    const sent = new Stamp(this.time)
    const rows = await this.#exec(`SELECT ${this.schema}.grant_lease($1, $2)`, [`${lease.ttl} ms`, this.#prefix.slice(0, -1)])
    lease.id = rows[0]?.[0] as string
    lease.renewed(sent)
    if (lease === this.main) this.#become('connected')
    this.#setAlarm()
  }

  async #regrant (caller: { resolve: () => void, reject: (error: unknown) => void }): Promise<void> {
    this.#reopening = undefined
    try {
      await this.#grant(this.main)
      caller.resolve()
    } catch (error) {
      caller.reject(this.#explain(error))
    }
  }

  async #renew (lease: Lease): Promise<void> {
    const sent = new Stamp(this.time)
    try {
      const rows = await this.#exec(`SELECT ${this.schema}.keep_alive($1)`, [lease.id])
      if (lease.ended !== undefined) return
      if (rows[0]?.[0] == null) {
        this.#end(lease, new LockLostError('the server has ended the lease', 'LE001'))
        return
      }
      lease.renewed(sent)
      this.#failures = 0
      if (lease.items.size > 0) lease.lookAt = 0
      if (lease === this.main) this.#become('connected')
    } catch (error) {
      lease.failed()
      if (lease === this.main && this.state === 'connected') this.#become('suspended')
      if (error instanceof Broken) throw error
    }
  }

  /** A lease of a TTL of its own on which nothing hangs. */
  async #revoke (lease: Lease): Promise<void> {
    this.#leases.delete(lease.ttl)
    lease.ended = new LockLostError('the lease was given back')
    await this.#exec(`SELECT ${this.schema}.revoke_lease($1)`, [lease.id])
  }

  async #revokeAll (): Promise<void> {
    const leases = this.#live().map(lease => lease.id)
    if (leases.length > 0) {
      try {
        await this.#exec(`SELECT ${this.schema}.revoke_lease(l) FROM pg_catalog.unnest($1::bigint[]) l`, [leases])
      } catch (error) {
        if (error instanceof Broken) throw error
      }
    }
    this.#finish('released')
  }

  #finish (outcome: Outcome): void {
    for (const lease of [...this.#leases.values(), this.main]) {
      this.#end(lease, new LockLostError('the session was closed'), outcome)
    }
    this.#become('ended')
    this.#drop(new Error('the session was closed'))
    this.wake()
  }

  /** The end of a lease: first its holds are told, then the session (rule 10.3), which ends with its own lease. */
  #end (lease: Lease, error: LockElectionError, outcome: Outcome = 'unknown'): void {
    if (lease.ended !== undefined) return
    lease.ended = error
    if (this.#leases.get(lease.ttl) === lease) this.#leases.delete(lease.ttl)
    for (const item of [...lease.items]) {
      const { state } = item
      item.state = 'over'
      item.unlimit()
      this.#done(item)
      if (state === 'waiting') item.refused(error)
      else if (state === 'held') item.lost?.(error)
      else item.released?.(outcome)
      item.released = undefined
    }
    if (lease !== this.main) return
    for (const other of [...this.#leases.values()]) this.#end(other, error)
    this.#become('ended')
    this.wake()
  }

  /** The next deadline. Renewals move it, which is seen when it is due. */
  #setAlarm (): void {
    this.time.clear(this.#alarm)
    const left = Math.min(...this.#live().map(lease => lease.left()))
    if (left === Infinity) return
    this.#alarm = this.time.set(() => {
      this.check()
      this.#setAlarm()
    }, left)
  }

  // --- asking ---

  /** The first of a list, and those behind it that can travel with it; none passes another one of its name. */
  #choose (list: Item[]): Item[] {
    const first = list[0] as Item
    const chosen: Item[] = []
    const seen = new Set<string>()
    for (const item of list) {
      const passes = item.kind !== 'term' && item.names.some(name => seen.has(name))
      for (const name of item.names) seen.add(name)
      if (item === first || (!passes && isSimple(first) && isSimple(item) && areAlike(first, item))) chosen.push(item)
      if (chosen.length === TOGETHER || !isSimple(first) || seen.size > LOOK_AT) break
    }
    const out = new Set(chosen)
    const rest = list.filter(item => !out.has(item))
    if (list === this.#asks) this.#asks = rest
    else this.#gives = rest
    return chosen
  }

  async #sendRequests (): Promise<number> {
    const items = this.#choose(this.#asks)
    const { lease } = items[0] as Item
    const number = ++this.#statements
    for (const item of items) {
      item.phase = 'sent'
      item.asked = number
    }
    this.#announced.clear()
    try {
      if (lease.id === '') await this.#grant(lease)
      const rows = await this.#exec(...askFor(items, this.schema, this.#prefix + String(number)))
      if (rows.length !== items.length) throw this.#strange()
      items.forEach((item, i) => { this.#asked(item, rows[i] as Array<string | null>) })
    } catch (error) {
      if (error instanceof Broken) {
        // What was asked for on a lease whose grant was lost cannot have been done.
        if (lease.id === '') this.#askAgain(items)
        throw error
      }
      this.#askFailed(items, error as LockElectionError)
    }
    return 0
  }

  /** The server is not of our version: nothing is known of what it did. */
  #strange (): Broken {
    const error = new Error('the server has answered with another number of rows')
    this.#giveUp = () => {}
    this.#drop(error)
    this.#giveUp = undefined
    return new Broken(error.message)
  }

  /** It was granted, or has a place; but perhaps nobody wants it any more. */
  #asked (item: Item, [token = null, granted, channel = null]: Array<string | null>): void {
    if (item.phase !== 'sent') return
    if (token === null) {
      this.#askOver(item, new NotAcquiredError('somebody else holds it, or is queued for it'))
      return
    }
    this.#placed(item, token, item.how.try || granted === 't', channel)
  }

  #placed (item: Item, token: string, granted: boolean, channel: string | null): void {
    item.token = token
    item.phase = granted ? 'granted' : 'queued'
    if (item.state === 'over') this.#giveBack(item)
    else if (granted) this.#granted(item)
    else {
      item.channel = channel ?? ''
      this.#queued.set(token, item)
      this.#channelGet(item.channel)
      if (this.#announced.has(token)) this.#hinted.add(item)
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

  #askOver (item: Item, error: LockElectionError, partly = false): void {
    if (item.state === 'waiting') {
      item.state = 'over'
      item.unlimit()
      item.refused(error)
    }
    if (partly) this.#giveBack(item)
    else this.#done(item)
  }

  /** To the front, in the old order. */
  #askAgain (items: Item[]): void {
    for (const item of items) {
      if (item.phase !== 'sent') continue
      item.phase = 'new'
      if (item.state === 'over') this.#done(item)
    }
    this.#asks.unshift(...items.filter(item => item.phase === 'new'))
  }

  #askFailed (items: Item[], error: LockElectionError): void {
    const reaction = reactionTo(error)
    if (reaction === 'unknown') {
      this.#pause()
      return
    }
    if (reaction === 'tell' && items.length > 1) {
      for (const item of items) item.alone = true
      this.#askAgain(items)
      return
    }
    const { lease } = items[0] as Item
    if (reaction === 'lost') lease.renewNow()
    const again = items.filter(item => reaction === 'later' && item.state === 'waiting' && !item.how.try)
    for (const item of items) if (!again.includes(item) && item.phase === 'sent') this.#askOver(item, error)
    this.#askAgain(again)
    if (again.length > 0) this.#pause()
  }

  /** Nothing of it is on the server any more, as far as is known. */
  #done (item: Item): void {
    this.#unqueue(item)
    if (item.phase === 'new') this.#asks = this.#asks.filter(other => other !== item)
    else if (this.#gives.length > 0) this.#gives = this.#gives.filter(other => other !== item)
    item.phase = 'done'
    item.lease.items.delete(item)
  }

  // --- giving back ---

  #giveBack (item: Item): void {
    this.#unqueue(item)
    this.#gives.push(item)
    this.wake()
  }

  async #sendReleases (): Promise<number> {
    const items = this.#choose(this.#gives)
    for (const item of items) item.releases++
    try {
      const rows = await this.#exec(...giveBack(items, this.schema))
      if (rows.length !== items.length) throw this.#strange()
      items.forEach((item, i) => {
        // Sent again, it may have been done the first time (rule 7.5).
        this.#releaseOver(item, rows[i]?.[0] === 't' || item.releases > 1 ? 'released' : 'lost')
      })
    } catch (error) {
      if (error instanceof Broken) {
        this.#gives.unshift(...items.filter(item => item.phase !== 'done'))
        throw error
      }
      this.#releaseFailed(items, error as LockElectionError)
    }
    return 0
  }

  #releaseFailed (items: Item[], error: LockElectionError): void {
    const reaction = reactionTo(error)
    for (const item of items) {
      if (item.phase === 'done') continue
      if (reaction === 'tell' && items.length > 1) item.alone = true
      else if (reaction === 'tell' && item.holdFor !== undefined && error.code === 'invalid') {
        // It is released all the same, and the name is not closed.
        item.holdFor = undefined
        item.released?.('released', error)
        item.released = undefined
      } else if (reaction !== 'tell' || error.code === 'limit') this.#pause()
      else {
        this.#releaseOver(item, 'unknown')
        continue
      }
      this.#gives.push(item)
    }
  }

  #releaseOver (item: Item, outcome: Outcome): void {
    if (item.phase === 'done') return
    this.#done(item)
    item.unlimit()
    item.released?.(outcome)
    item.released = undefined
  }

  async #sendOp (): Promise<number> {
    const op = this.#ops[0] as Op
    op.sent = true
    try {
      op.resolve(await this.#exec(op.sql(this.schema), op.values))
      this.#failures = 0
      this.#ops = this.#ops.filter(other => other !== op)
    } catch (error) {
      if (error instanceof Broken) throw error
      if (reactionTo(error as LockElectionError) === 'later') return this.#pause()
      this.#ops = this.#ops.filter(other => other !== op)
      op.reject(error as LockElectionError)
    }
    return 0
  }

  // --- notifications ---

  #channelGet (name: string): void {
    const channel = this.#channels.get(name) ?? { refs: 0, listening: false }
    channel.refs++
    if (name !== '') this.#channels.set(name, channel)
  }

  #channelPut (name: string): void {
    const channel = this.#channels.get(name)
    if (channel !== undefined) channel.refs--
  }

  #unqueue (item: Item): void {
    this.#hinted.delete(item)
    if (!this.#queued.delete(item.token)) return
    this.#channelPut(item.channel)
  }

  #notified (channel: string, payload: string): void {
    if (channel === this.#self) this.#listen = 'works'
    const [, token = ''] = /"(?:token|term)"\s*:\s*"(\d+)"/.exec(payload) ?? []
    const item = this.#queued.get(token)
    if (item !== undefined) this.#hinted.add(item)
    else if (token !== '') this.#announced.add(token)
    for (const listener of this.#listeners) if (listener.channel === channel) listener.wake()
    this.wake()
  }

  /** LISTEN for all that is new, after a test whether it works. True: something was sent. */
  async #listenForAll (): Promise<boolean> {
    if (this.#channels.size === 0 && this.#listeners.size === 0) return false
    if (this.#listen === 'untested') {
      this.#listen = 'testing'
      this.#testUntil = this.time.mono() + PATIENCE
      this.#channels.set(this.#self, { refs: 0, listening: true })
      await this.#exec(`LISTEN ${this.#self}; NOTIFY ${this.#self}`)
      return true
    }
    if (this.#listen === 'testing' && this.time.mono() >= this.#testUntil) {
      this.#listen = 'fails'
      for (const lease of this.#live()) if (lease.items.size > 0) lease.lookAt = 0
    }
    const fresh = [...this.#channels].filter(([, channel]) => channel.refs > 0 && !channel.listening)
    if (this.#listen !== 'works' || fresh.length === 0) return false
    const text = fresh.map(([name]) => `LISTEN ${name}`).join('; ')
    await this.#exec(text)
    for (const [name, channel] of fresh) {
      channel.listening = true
      for (const listener of this.#listeners) if (listener.channel === name) listener.wake()
    }
    // What was granted before is seen by looking.
    const names = new Set(fresh.map(([name]) => name))
    for (const item of this.#queued.values()) if (names.has(item.channel)) this.#hinted.add(item)
    return true
  }

  async #unlisten (): Promise<boolean> {
    const unused = [...this.#channels].filter(([, channel]) => channel.refs === 0)
    for (const [name] of unused) this.#channels.delete(name)
    const heard = unused.filter(([, channel]) => channel.listening)
    if (heard.length === 0) return false
    await this.#exec(heard.map(([name]) => `UNLISTEN ${name}`).join('; '))
    return true
  }

  // --- looking ---

  #lookInterval (item: Item): number {
    const told = item.kind === 'term' ? this.#tells.terms : this.#tells.locks
    return jitter(this.#listen === 'works' && told ? SELDOM : OFTEN)
  }

  async #lookAtHinted (): Promise<number> {
    const items = [...this.#hinted].slice(0, TOGETHER)
    try {
      const rows = await this.#exec(...areHeld(items, this.schema))
      for (const [place] of rows) {
        const item = items[Number(place) - 1]
        if (item?.phase === 'queued' && item.state === 'waiting') this.#granted(item)
      }
      for (const item of items) this.#hinted.delete(item)
    } catch (error) {
      if (error instanceof Broken) throw error
      for (const item of items) {
        this.#hinted.delete(item)
        item.lease.lookAt = 0
      }
      this.#pause()
    }
    return 0
  }

  /** What hangs on the lease, against what we know of it (rules 6.4, 7.3). */
  async #look (lease: Lease): Promise<number> {
    const known = new Set([...lease.items].filter(item => item.phase === 'queued' || item.phase === 'granted'))
    let rows: Rows
    try {
      rows = await this.#exec('SELECT kind, name, token, granted, channel, owner' +
        ` FROM ${this.schema}.lease_holds($1)`, [lease.id])
    } catch (error) {
      if (error instanceof Broken) throw error
      if (reactionTo(error as LockElectionError) === 'lost') lease.renewNow()
      lease.lookAt = this.time.mono() + jitter(OFTEN)
      return 0
    }
    if (lease.ended !== undefined) return 0
    this.#compare(lease, known, rows)
    lease.lookAt = Infinity
    const now = this.time.mono()
    for (const item of lease.items) {
      if (item.phase === 'queued') lease.lookAt = Math.min(lease.lookAt, now + this.#lookInterval(item))
    }
    return 0
  }

  #compare (lease: Lease, known: Set<Item>, rows: Rows): void {
    const items = [...lease.items]
    const byToken = new Map(items.map(item => [item.token, item]))
    // How many of its names are there, and how many of them granted: one of several may have been released by force.
    const there = new Map<Item, [number, number]>()
    for (const [kind, name, token, isGranted, channel, owner] of rows as string[][]) {
      if (kind === undefined || name === undefined || token === undefined || !owner?.startsWith(this.#prefix)) continue
      let item = byToken.get(token)
      if (item === undefined) {
        const asked = Number(owner.slice(this.#prefix.length))
        item = items.find(one => one.phase === 'sent' && one.asked === asked && one.names.includes(name))
        if (item === undefined) this.#ghost(lease, kind, name, token)
        else {
          this.#placed(item, token, isGranted === 't', channel ?? null)
          byToken.set(token, item)
        }
      }
      if (item === undefined) continue
      const [rows, grants] = there.get(item) ?? [0, 0]
      there.set(item, [rows + 1, grants + (isGranted === 't' ? 1 : 0)])
    }
    for (const item of known) {
      const [rows, grants] = there.get(item) ?? [0, 0]
      const error = new LockLostError('the server has ended it: released by force, or with another token', 'LE001')
      if (item.state === 'waiting' && grants === item.names.length) this.#granted(item)
      else if (item.state === 'waiting' && rows < item.names.length) this.#askOver(item, error, rows > 0)
      else if (item.state === 'held' && grants < item.names.length) this.lose(item, error, rows > 0)
    }
    this.#askAgain(items.filter(item => item.phase === 'sent' && !there.has(item)))
  }

  /** Of this session, and wanted by nobody: a lost answer has left it. */
  #ghost (lease: Lease, kind: string, name: string, token: string): void {
    const how = { try: false, shared: false, permits: 0, candidate: '' }
    const item = new Item(kind === 'election' ? 'term' : 'lock', [name], lease, how)
    item.state = 'over'
    item.phase = 'granted'
    item.token = token
    item.alone = true
    lease.items.add(item)
    this.#giveBack(item)
  }

  /** What has become of statements without an answer: the old backend is ended first, so that nothing comes later. */
  async #reconcile (): Promise<number> {
    if (this.#old !== undefined) {
      try {
        const patience = Math.floor(Math.min(1000, this.callLimit() / 2))
        const rows = await this.#exec(endBackend, [...this.#old, patience])
        if (rows.length > 0) return 0
      } catch (error) {
        if (error instanceof Broken) throw error
        this.#lateLooks = LATE_LOOKS
      }
      this.#old = undefined
    }
    this.#lostAnswer = false
    if (this.#lateLooks > 0) this.#lateLookAt = this.time.mono() + this.callLimit()
    for (const lease of this.#live()) await this.#look(lease)
    return 0
  }
}
