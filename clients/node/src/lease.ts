/**
 * A lease with its claims, the items of its calls of lease_sync (docs/reference/lease-sync.md), and their results.
 * This module does no I/O.
 */
import { Stamp, jitter, type Time } from './clock.js'
import { LockElectionError, LockLostError, NotAcquiredError, passes, serverError } from './errors.js'
import type { Row, Rows } from './wire.js'

export type Kind = 'lock' | 'permit' | 'term'

export type Outcome = 'released' | 'lost' | 'unknown'

/** The maximum numbers of items and names in one call. */
const MOST_ITEMS = 128
const MOST_NAMES = 1000
/** The interval of turns in ms while a claim waits and LISTEN does not work. */
const OFTEN = 250
/** The delay in ms before an item that the server cannot carry out now is sent again. */
const PAUSE = 100

/**
 * A request, a release, or a proclaim, which is sent by one or more calls. The texts are the arguments of lease_sync.
 */
export interface Item {
  action: string
  names: readonly string[]
  number?: string | null
  owner?: string
  value?: string | null
  /** The claim that it requests or releases. */
  claim?: Claim
  /** Function that receives the event of the row, or the error, of an item without a claim. */
  settle?: (event: string, error?: LockElectionError) => void
  /** Whether the caller has stopped waiting for the result. */
  over?: boolean
  /** The earliest time to send it, on `Time.mono`. */
  at?: number
  sent?: boolean
  /** The reason why it is sent again: its result is not durable yet, or the reply was lost. */
  again?: 'pending' | 'lost' | undefined
}

/** The session of a lease. */
export interface Host {
  readonly time: Time
  /** The prefix of the session's owner texts. */
  readonly owner: string
  number: number
  wake: () => void
  end: (lease: Lease, error: LockElectionError) => void
}

/** One call of lease_sync. */
export interface Call { items: Item[], values: unknown[], silent: boolean }

function gives ({ action }: Item): boolean { return action === 'release' || action === 'resign' }

/** Returns milliseconds as the text of an interval, without an exponent. */
export function interval (ms: number): string { return `${ms.toFixed(3)} ms` }

/** Returns an array in the binary format, because in the text format NULL depends on the server's array_nulls. */
function textArray (texts: Array<string | null>): Buffer | null {
  if (texts.length === 0) return null
  const [dimensions, nulls, typeOfText, lowest] = [1, 1, 25, 1]
  const array = Buffer.alloc(texts.reduce((size, text) => size + 4 + Buffer.byteLength(text ?? ''), 20))
  let end = 0
  for (const field of [dimensions, nulls, typeOfText, texts.length, lowest]) end = array.writeInt32BE(field, end)
  for (const text of texts) {
    const size = text === null ? -1 : array.write(text, end + 4)
    end = array.writeInt32BE(size, end) + Math.max(size, 0)
  }
  return array
}

/** Returns the longest pause between two tries, in milliseconds (rule 4.3). */
function longestPause (ttl: number): number { return Math.min(Math.max(ttl / 20, 50), 1000) }

/** Returns the pause after this number of failures, in milliseconds. It doubles from 50 ms to the longest pause. */
export function backoff (failures: number, ttl: number): number {
  return jitter(Math.min(50 * 2 ** Math.min(failures, 10), longestPause(ttl)))
}

/** A request for a lock, a permit, several locks or a term, which exists until its grant or place has ended. */
export class Claim {
  /** The state as the application sees it. */
  state: 'waiting' | 'held' | 'over' = 'waiting'
  /** The token of the place or the hold; '' if the server has sent none yet. */
  token = ''
  /** Whether it was evicted. It is released on the server when the application releases it. */
  evicted = false
  /** Whether the server is known to have no grant or place of it left. */
  done = false
  /** The number of names that are being released. */
  giving = 0
  outcome: Outcome | undefined
  holdFor: number | undefined
  /** Whether its wait has timed out before the first reply. Only a grant in that reply counts. */
  overdue = false
  /** Cancels the time limit of the wait, or of the release. */
  unlimit: () => void = () => {}
  granted!: () => void
  refused!: (error: unknown) => void
  lost: ((error: unknown) => void) | undefined
  /** Whether application code listens for the loss. */
  watched: (() => boolean) | undefined
  released: ((outcome: Outcome, error?: LockElectionError) => void) | undefined
  /** Reports an event of the claim to the application. */
  report: ((kind: 'acquired' | 'not_acquired' | 'released' | 'lost', error?: unknown) => void) | undefined

  constructor (readonly lease: Lease, readonly kind: Kind, readonly ask: Item) { ask.claim = this }

  get names (): readonly string[] { return this.ask.names }
  get tries (): boolean { return this.ask.action.startsWith('try_') }

  /** Ends the claim for the application: a wait with its error, a hold with its loss, a release with its outcome. */
  end (error?: unknown, outcome: Outcome = 'unknown', refusal?: LockElectionError): void {
    const { state, released } = this
    this.state = 'over'
    this.released = undefined
    this.unlimit()
    if (state === 'waiting') {
      this.report?.('not_acquired', error)
      this.refused(error)
    } else if (state === 'held') {
      this.report?.('lost', error)
      this.lost?.(error)
    } else released?.(outcome, refusal)
  }

  /** Describes the claim for messages: `lock "invoices"`. */
  toString (): string {
    const what = { lock: this.names.length > 1 ? 'locks' : 'lock', permit: 'permit of', term: 'election' }[this.kind]
    return `${what} ${this.names.map(name => `"${name}"`).join(', ')}`
  }
}

export class Lease {
  /** The number of the lease; '' = not granted yet. */
  id = ''
  ended = false
  channel: string | null = null
  /** The claims of which the server has, or may have, a grant or place, by owner text. */
  readonly claims = new Map<string, Claim>()
  /** The items of the next calls. */
  queue: Item[] = []
  /** The claims that have a place. */
  readonly queued = new Set<Claim>()
  /** The times of `Time.mono` at which the last wait ended, and at which the last call began. */
  waitedAt = -Infinity
  lastAt = -Infinity
  /** Whether there may be news, so that a call is due now. */
  look = false
  /** Whether a notification has arrived since the last call began. */
  #hinted = false
  readonly #byToken = new Map<string, Claim>()
  /** Requests that are not durable yet. */
  readonly #pending = new Set<Claim>()
  #calls = 0
  #seen: [incarnation: string | null, news: string | null] = [null, null]
  /** Whether the next call has no items and only reads the news, because earlier items may have been carried out. */
  #bare = false
  /** Whether the last reply had no news, because they were not durable yet. */
  #withheld = false
  /** The number of items to send one by one, to find out which one the server rejects. */
  #alone = 0
  /** Whether the last call had releases and left the requests to the next call. */
  #apart = false
  #failures = 0
  /** The time at which the last confirmed renewal was sent. */
  #sent: Stamp
  #renewAge = 0
  /** The time at which the renewal with the latest deadline was sent, and its validity in milliseconds. */
  #best: Stamp
  #validity = 0

  constructor (readonly ttl: number, readonly host: Host) { this.#sent = this.#best = new Stamp(host.time) }

  // --- the deadline and the renewals ---

  /**
   * Records the reply to a renewal, or to the grant, that was sent at that time. `validity`: milliseconds for which the
   * lease stays valid even if the server crashes. A reply never shortens the deadline (rule 3.1).
   */
  renewed (sent: Stamp, validity: number = this.ttl): void {
    this.#sent = sent
    this.#failures = 0
    this.#renewAge = jitter(Math.min(this.ttl / 3, Math.max(validity / 3, longestPause(this.ttl))))
    if (validity - sent.age() < this.#validity - this.#best.age()) return
    this.#best = sent
    this.#validity = Math.min(validity, this.ttl)
  }

  get fails (): boolean { return this.#failures > 0 }
  failed (): void { this.#renewAge = this.#sent.age() + backoff(this.#failures++, this.ttl) }
  renewNow (): void { this.#renewAge = 0 }
  renewIn (): number { return this.#renewAge - this.#sent.age() }

  /** Returns the milliseconds to the deadline (rule 3.1); 0 if nothing on the lease is held. */
  left (): number {
    const margin = Math.min(this.ttl / 20, 1000)
    return this.id === '' || this.ended ? 0 : Math.max(0, this.#validity - margin - this.#best.age())
  }

  /** Whether a release is queued. Such a lease is served before the others, whose requests may wait for the release. */
  get releases (): boolean { return this.queue.some(gives) }

  /** Returns the time at which its next call is due. `hears` is true if notifications announce its grants. */
  due (now: number, hears: boolean): number {
    let due = now + this.renewIn()
    if (this.fails || this.id === '') return due
    if (this.look) return now
    if (this.#pending.size > 0 || this.#withheld) due = Math.min(due, this.lastAt + PAUSE)
    if (this.queued.size > 0 && !hears) due = Math.min(due, this.lastAt + OFTEN)
    let asks = false
    for (const item of this.queue) {
      if (due <= now) break
      if (gives(item) || !asks) due = Math.min(due, item.at ?? now)
      asks ||= !gives(item)
    }
    return due
  }

  /** Handles a notification that a place was granted. */
  hint (): void {
    this.#hinted = true
    this.look ||= this.queued.size > 0
  }

  get unused (): boolean { return this.claims.size === 0 && this.queue.length === 0 }

  // --- requests of the application ---

  add (claim: Claim): void {
    claim.ask.owner = `${this.host.owner}${++this.host.number}`
    this.claims.set(claim.ask.owner, claim)
    this.queue.push(claim.ask)
  }

  /** Ends a wait, and releases its grant or place on the server, after an outstanding reply if necessary (rule 5.3). */
  refuse (claim: Claim, error: unknown): void {
    if (claim.state !== 'waiting') return
    claim.end(error)
    if (claim.token !== '') this.giveBack(claim)
    else if (claim.ask.sent !== true) this.#done(claim)
  }

  refuseLate (claim: Claim): void {
    this.refuse(claim, new NotAcquiredError(`${claim} ${claim.names.length > 1 ? 'were' : 'was'} not granted in time`))
  }

  /** Queues the releases of a claim, one for each name, because names are closed one by one. */
  giveBack (claim: Claim): void {
    this.#unqueue(claim)
    if (claim.giving > 0 || claim.done) return
    claim.giving = claim.names.length
    const action = claim.kind === 'term' ? 'resign' : 'release'
    const value = claim.holdFor === undefined || claim.kind === 'term' ? null : interval(claim.holdFor)
    this.queue.push(...claim.names.map(name => ({ action, names: [name], number: claim.token, value, claim })))
    this.host.wake()
  }

  /**
   * Ends a claim that the server has reported as lost. If it has several names, releases the remaining names, but those
   * of an evicted claim only when the application releases it.
   */
  lose (claim: Claim, error: LockElectionError): void {
    if (claim.evicted && claim.names.length > 1) return
    if (claim.names.length > 1 && claim.token !== '') this.giveBack(claim)
    else this.#done(claim)
    claim.outcome = 'lost'
    claim.end(error, 'lost')
  }

  /** Ends the lease with all its claims and items. */
  end (error: LockElectionError, outcome?: Outcome): void {
    const queue = this.queue
    this.ended = true
    for (const claim of [...this.claims.values()]) { this.#done(claim); claim.end(error, claim.outcome ?? outcome) }
    this.queue = []
    for (const item of queue) item.settle?.('lost', error)
  }

  #unqueue (claim: Claim): void {
    if (this.queued.delete(claim)) this.waitedAt = this.host.time.mono()
  }

  #done (claim: Claim): void {
    const { ask } = claim
    this.#unqueue(claim)
    this.#pending.delete(claim)
    this.claims.delete(ask.owner as string)
    this.#byToken.delete(claim.token)
    claim.done = true
    if (ask.sent !== true && !this.ended) this.queue = this.queue.filter(item => item !== ask)
  }

  // --- a call ---

  /** Makes a call from the queued items. Requests stay in order. */
  begin (now: number, limit: number): Call {
    const items: Item[] = []
    const texts: Array<string | null> = []
    const most = this.#bare ? 0 : this.#alone > 0 ? 1 : MOST_ITEMS
    this.#alone = Math.max(this.#alone - most, 0)
    let names = 0
    let blocked = false
    // The reply to a call with requests waits for a flush to disk, which would delay releases in the same call. So send
    // releases in a call of their own: their callers can add their next requests to the following call.
    this.#apart = !this.#apart && !this.#bare && this.queue.some(item => gives(item) && (item.at ?? now) <= now)
    this.queue = this.queue.filter(item => {
      const { action, claim, number = null, owner = null, value = null } = item
      if (!this.#bare && (item.over === true || (claim?.ask === item && claim.state === 'over'))) {
        if (claim !== undefined) this.#done(claim)
        return false
      }
      if (gives(item) || !this.#apart) names += item.names.length
      const waits = items.length >= most || (item.at ?? now) > now || (names > MOST_NAMES && items.length > 0) ||
        ((blocked || this.#apart) && !gives(item))
      blocked ||= waits && !gives(item)
      if (waits) return true
      items.push(item)
      item.sent = true
      for (const name of item.names) texts.push(String(items.length), action, name, number, owner, value)
      return false
    })
    // The reply to a call that has only releases says nothing about the lease, and does not wait for a flush.
    const silent = items.length > 0 && items.every(item => gives(item) && item.value == null) && this.queued.size === 0 &&
      this.#pending.size === 0 && !this.#withheld && !this.look && this.renewIn() > 0
    const values = [this.id, String(++this.#calls), ...this.#seen, textArray(texts), silent ? null : interval(limit / 2)]
    this.look = this.#hinted = false
    this.lastAt = now
    return { items, values, silent }
  }

  /** Handles a call without a reply. The news will show whether its items were carried out. */
  unanswered ({ items }: Call): void {
    this.#bare = true
    for (const item of items) item.again = 'lost'
    this.sendAgain(items)
  }

  sendAgain (items: Item[]): void {
    if (!this.ended) this.queue.unshift(...items)
    else for (const item of items) item.settle?.('lost', new LockLostError('the lease has ended'))
  }

  /** Handles the rejection of a whole call. */
  refused (call: Call, error: LockElectionError): void {
    const { items } = call
    const at = this.host.time.mono() + jitter(PAUSE)
    if (passes(error)) {
      for (const item of items) item.at = at
      this.unanswered(call)
    } else if (items.length !== 1) {
      this.#alone = items.length
      this.sendAgain(items)
    } else if (!this.#itemFailed(items[0] as Item, error)) this.sendAgain(items)
  }

  /**
   * Handles a reply. Columns: item, event, kind, name, token, owner, reason, columns of an error, columns of the
   * lease.
   */
  answered ({ items, silent }: Call, rows: Rows, sent: Stamp): void {
    const [[, event, , , , , reason] = [], ...others] = rows
    const [validity = null, incarnation = null, news = null, complete = null, channel = null] = rows[0]?.slice(11) ?? []
    if (event === 'gone') {
      this.host.end(this, ended('the lease', reason))
      this.sendAgain(items)
      return
    }
    if (incarnation !== null) {
      this.#seen = [incarnation, news]
      this.channel = channel
      this.#withheld = complete === null
      this.#bare &&= this.#withheld
    }
    if (validity !== null) this.renewed(sent, Number(validity))
    else if (!silent && this.renewIn() < 1) this.failed()
    const pending = [...this.#pending]
    const open = new Map(items.map((item, i) => [String(i + 1), item]))
    const there = new Map<string, number>()
    const again: Item[] = []
    for (const row of others) {
      const [number, , , , token] = row
      const item = open.get(number ?? '')
      if (number === null) this.#told(row)
      else if (item !== undefined && !this.#result(item, row)) again.push(item)
      open.delete(number ?? '')
      if (token != null) there.set(token, (there.get(token) ?? 0) + (item?.names.length ?? 1))
    }
    // Items without a row were not carried out, because the server took this call for an old one.
    again.push(...open.values())
    // The reply has all news, so a pending request that does not appear in it was not carried out, or has ended.
    if (complete !== null) {
      const gone = pending.filter(claim => this.#pending.delete(claim))
      again.unshift(...gone.map(claim => claim.ask))
    }
    this.sendAgain(again.filter(item => item !== item.claim?.ask || item.claim.token === ''))
    if (complete === 't') this.#compare(there)
    // A notification before this reply may have announced a grant.
    this.look ||= this.#hinted && this.queued.size > 0
  }

  /** Handles a complete reply: ends the claims that do not appear in it. */
  #compare (there: Map<string, number>): void {
    for (const [token, claim] of [...this.#byToken]) {
      if ((there.get(token) ?? 0) < claim.names.length && claim.giving === 0) {
        this.lose(claim, ended('it'))
      }
    }
  }

  /** Handles the result of an item. Returns false if it must be sent again. */
  #result (item: Item, row: Row): boolean {
    const [, event = '', , , token, , , code, message, detail, hint] = row
    const { claim } = item
    if (event === 'error') {
      return this.#itemFailed(item, serverError({ severity: 'ERROR', code, message, detail, hint }) as LockElectionError)
    }
    const asks = claim?.ask === item
    if (event === 'pending') {
      item.again = 'pending'
      item.at = this.lastAt + PAUSE
      if (asks) this.#pending.add(claim)
      return asks
    }
    if (claim === undefined) item.settle?.(event as string)
    else if (!asks) this.#gaveBack(item, claim, event === 'released')
    else if (event === 'not_granted') this.lose(claim, new NotAcquiredError('somebody else holds it, or is queued for it'))
    else this.#placed(claim, token as string, event === 'granted')
    return true
  }

  #itemFailed (item: Item, error: LockElectionError): boolean {
    const { claim } = item
    const later = passes(error)
    item.at = this.host.time.mono() + jitter(PAUSE)
    if (claim?.ask === item) {
      if (later && !claim.tries && !claim.overdue && claim.state === 'waiting') return false
      if (error.code === 'lost') this.renewNow()
      this.lose(claim, error)
    } else if (item.settle !== undefined) {
      if (later) return false
      item.settle('error', error)
    } else {
      const closes = item.value != null && (error.code === 'invalid' || error.sqlstate === '53400')
      // Release it without holdFor.
      if (closes) {
        Object.assign(item, { value: null, again: undefined, at: undefined })
        claim?.end(undefined, 'released', error)
      }
      // Keep retrying: the error may be a revoked privilege, which may be granted again.
      else if (!later && error.code !== 'limit') { item.at += this.ttl / 3; claim?.end() }
      return false
    }
    return true
  }

  #gaveBack (item: Item, claim: Claim, released: boolean): void {
    // If a repeated release finds nothing held, an earlier copy of it has released the hold (rule 7.5).
    if (!released && item.again === undefined) claim.outcome = 'lost'
    else if (!released && item.value != null && item.again === 'lost') claim.outcome ??= 'unknown'
    if (--claim.giving > 0) return
    this.#done(claim)
    claim.end(undefined, claim.outcome ?? 'released')
  }

  /** Handles the grant or the place of a claim. Releases it if the application no longer waits for it. */
  #placed (claim: Claim, token: string, granted: boolean): void {
    claim.token = token
    this.#byToken.set(token, claim)
    this.#pending.delete(claim)
    if (claim.state === 'over') this.giveBack(claim)
    else if (granted) this.#granted(claim)
    else if (claim.overdue) this.refuseLate(claim)
    else this.queued.add(claim)
  }

  #granted (claim: Claim): void {
    this.#unqueue(claim)
    claim.state = 'held'
    claim.report?.('acquired')
    claim.unlimit()
    claim.granted()
  }

  /** Handles news: a grant, a loss, or the result of a request whose reply was lost. */
  #told ([, event, kind, name = '', token = '', owner = '', reason]: Row): void {
    const claim = this.#byToken.get(token ?? '')
    const asked = this.claims.get(owner ?? '')
    if (event === 'lost') {
      if (claim !== undefined) this.lose(claim, ended('it', reason))
    } else if (claim !== undefined) {
      if (event === 'evicted') this.#evicted(claim)
      else if (event === 'granted' && this.queued.has(claim)) this.#granted(claim)
    } else if (asked?.token === '') {
      this.queue = this.queue.filter(item => item !== asked.ask)
      if (event === 'evicted') asked.end(evicted())
      this.#placed(asked, token as string, event === 'granted')
    } else if (owner?.startsWith(this.host.owner) === true) {
      // Release a ghost: a grant or place without a claim.
      this.queue.push({ action: kind === 'election' ? 'resign' : 'release', names: [name as string], number: token })
    }
  }

  /**
   * Reports an evicted hold to the application as lost. The hold is released on the server only when the application
   * releases it, so that it is not granted to another client before. If the grant was not reported to the application
   * yet, the hold is released immediately.
   */
  #evicted (claim: Claim): void {
    this.refuse(claim, evicted())
    if (claim.state !== 'held') return
    claim.evicted = true
    claim.outcome = 'lost'
    claim.end(evicted())
  }
}

function ended (what: string, why?: string | null): LockLostError {
  return new LockLostError(`the server has ended ${what}${why == null ? '' : `: ${why}`}`, 'LE001')
}

function evicted (): LockLostError { return new LockLostError('it was evicted', 'LE001') }
