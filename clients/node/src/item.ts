/** What hangs on the leases of a session: leases, and the holds and places on them, as the engine sees them. */
import { Stamp, jitter, type Time } from './clock.js'
import type { LockElectionError } from './errors.js'

/** `lock`: one, exclusive or shared; `locks`: several, all or none. */
export type Kind = 'lock' | 'locks' | 'permit' | 'term'

export type Outcome = 'released' | 'lost' | 'unknown'

export interface How { try: boolean, shared: boolean, permits: number, candidate: string }

/** Milliseconds: the longest pause between two tries (rule 4.3). */
function longestPause (ttl: number): number { return Math.min(Math.max(ttl / 20, 50), 1000) }

/** Doubles from 50 ms to the longest pause. */
export function backoff (failures: number, ttl: number): number {
  return jitter(Math.min(50 * 2 ** Math.min(failures, 10), longestPause(ttl)))
}

/** A lease: its deadline, and when it is renewed. */
export class Lease {
  /** '': not granted yet. */
  id = ''
  ended = false
  readonly items = new Set<Item>()
  /** When its holds are looked at, of `Time.mono`. */
  lookAt = Infinity
  #failures = 0
  /** Of the last renewal that was answered. */
  #sent: Stamp
  #renewAge = 0
  /** Of the renewal that is valid for longest, and for how many milliseconds it is. */
  #best: Stamp
  #validity = 0

  constructor (readonly ttl: number, time: Time) { this.#sent = this.#best = new Stamp(time) }

  /**
   * The renewal, or the grant, that was sent then has been answered. `validity`: milliseconds that the lease would have
   * left if the server crashed then. A short one does not take back what an earlier renewal has promised (rule 3.1).
   */
  renewed (sent: Stamp, validity: number = this.ttl): void {
    this.#sent = sent
    this.#failures = 0
    this.#renewAge = jitter(Math.min(this.ttl / 3, Math.max(validity / 3, longestPause(this.ttl))))
    if (validity - sent.age() < this.#validity - this.#best.age()) return
    this.#best = sent
    this.#validity = Math.min(validity, this.ttl)
  }

  failed (): void { this.#renewAge = this.#sent.age() + backoff(this.#failures++, this.ttl) }
  renewNow (): void { this.#renewAge = 0 }
  renewIn (): number { return this.#renewAge - this.#sent.age() }

  /** Milliseconds to the deadline (rule 3.1); 0: nothing on it is held. */
  left (): number {
    const margin = Math.min(this.ttl / 20, 1000)
    return this.id === '' || this.ended ? 0 : Math.max(0, this.#validity - margin - this.#best.age())
  }
}

/**
 * A hold, a place, or a request for one. The phase is what is on the server, as far as is known:
 *
 *     new -> sent -> queued -> granted -> done
 *
 * `sent` is asked for and not answered. The state is what the application was told. What is over and has a token is
 * given back.
 */
export class Item {
  phase: 'new' | 'sent' | 'queued' | 'granted' | 'done' = 'new'
  state: 'waiting' | 'held' | 'over' = 'waiting'
  /** Of the place or the hold. */
  token = ''
  channel = ''
  /** The number of the statement that asked, which is in the owner text. */
  asked = 0
  /** Together with others it was refused. */
  alone = false
  releases = 0
  holdFor: number | undefined
  /** The limit of its wait has passed before the first answer, which decides. */
  overdue = false
  /** Ends the limit of time of the wait, or of the release. */
  unlimit: () => void = () => {}
  granted!: () => void
  refused!: (error: unknown) => void
  lost: ((error: unknown) => void) | undefined
  /** Does code of the application wait for the loss? */
  watched: (() => boolean) | undefined
  released: ((outcome: Outcome, error?: LockElectionError) => void) | undefined

  constructor (readonly kind: Kind, readonly names: string[], readonly lease: Lease, readonly how: How) {}

  get name (): string { return this.names[0] ?? '' }
}

/** What it is of, as messages have it: `lock "invoices"`. */
export function described ({ kind, names }: Item): string {
  const what = { lock: 'lock', locks: 'locks', permit: 'permit of', term: 'election' }[kind]
  return `${what} ${names.map(name => `"${name}"`).join(', ')}`
}

/** An observer: waits for notifications of its channel, which comes to be known later. */
export interface Listener { channel: string, wake: () => void }
