/** What hangs on the leases of a session: leases, and the holds and places on them, as the engine sees them. */
import { Stamp, jitter, type Time } from './clock.js'
import type { LockElectionError } from './errors.js'

/** `lock`: one, exclusive or shared; `locks`: several, all or none. */
export type Kind = 'lock' | 'locks' | 'permit' | 'term'

export type Outcome = 'released' | 'lost' | 'unknown'

export interface How { try: boolean, shared: boolean, permits: number, candidate: string }

/** Doubles from 50 ms to a twentieth of the TTL (rule 4.3). */
export function backoff (failures: number, ttl: number): number {
  return jitter(Math.min(50 * 2 ** Math.min(failures, 10), Math.min(Math.max(ttl / 20, 50), 1000)))
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
  #sent: Stamp
  #renewAge = 0

  constructor (readonly ttl: number, time: Time) { this.#sent = new Stamp(time) }

  /** The renewal, or the grant, that was sent then has been answered. */
  renewed (sent: Stamp): void {
    this.#sent = sent
    this.#failures = 0
    this.#renewAge = jitter(this.ttl / 3)
  }

  failed (): void { this.#renewAge = this.#sent.age() + backoff(this.#failures++, this.ttl) }
  renewNow (): void { this.#renewAge = 0 }
  renewIn (): number { return this.#renewAge - this.#sent.age() }

  /** Milliseconds to the deadline (rule 3.1); 0: nothing on it is held. */
  left (): number {
    const lasts = this.ttl - Math.min(this.ttl / 20, 1000)
    return this.id === '' || this.ended ? 0 : Math.max(0, lasts - this.#sent.age())
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
  /** Ends the limit of time of the wait, or of the release. */
  unlimit: () => void = () => {}
  granted!: () => void
  refused!: (error: unknown) => void
  lost: ((error: unknown) => void) | undefined
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
