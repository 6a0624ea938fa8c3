/** What hangs on the leases of a session: leases, and the holds and places on them, as the engine sees them. */
import { Stamp, jitter, type Time } from './clock.js'
import type { LockElectionError } from './errors.js'

/** `lock`: one, exclusive or shared; `locks`: several, all or none. */
export type Kind = 'lock' | 'locks' | 'permit' | 'term'

export type Outcome = 'released' | 'lost' | 'unknown'

export interface How {
  try: boolean
  shared: boolean
  permits: number
  candidate: string
}

/** A lease: its deadline, and when it is renewed. */
export class Lease {
  /** '': not granted yet. */
  id = ''
  ended: LockElectionError | undefined
  readonly items = new Set<Item>()
  /** In milliseconds of `Time.mono`; when its holds are looked at. */
  lookAt = Infinity
  failures = 0
  readonly #lasts: number
  #sent: Stamp
  #renewAge = 0

  constructor (readonly ttl: number, time: Time) {
    this.#lasts = ttl - Math.min(ttl / 20, 1000)
    this.#sent = new Stamp(time)
  }

  /** The renewal, or the grant, that was sent then has been answered. */
  renewed (sent: Stamp): void {
    this.#sent = sent
    this.failures = 0
    this.#renewAge = jitter(this.ttl / 3)
  }

  /** A renewal has failed: again, at first after 50 ms. */
  failed (): void {
    this.#renewAge = this.#sent.age() + backoff(this.failures++, this.ttl)
  }

  renewNow (): void {
    this.#renewAge = 0
  }

  renewIn (): number {
    return this.#renewAge - this.#sent.age()
  }

  /** Milliseconds until nothing that hangs on it is held any more; 0: that is so. */
  left (): number {
    return this.id === '' || this.ended !== undefined ? 0 : Math.max(0, this.#lasts - this.#sent.age())
  }
}

export function backoff (failures: number, ttl: number): number {
  const most = Math.min(Math.max(ttl / 20, 50), 1000)
  return jitter(Math.min(50 * 2 ** Math.min(failures, 10), most))
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
  lost: ((error: LockElectionError) => void) | undefined
  released: ((outcome: Outcome, error?: LockElectionError) => void) | undefined

  constructor (readonly kind: Kind, readonly names: string[], public lease: Lease, readonly how: How) {}

  get name (): string {
    return this.names[0] ?? ''
  }
}

/** A statement of the application that is neither asking nor giving back. */
export interface Op {
  sql: (schema: string) => string
  values: unknown[]
  sent: boolean
  resolve: (rows: Array<Array<string | null>>) => void
  reject: (error: LockElectionError) => void
}

/** What waits for notifications of a channel, and is not a place: an observer. */
export interface Listener {
  channel: string
  wake: () => void
}
