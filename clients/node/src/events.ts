import { AsyncResource } from 'node:async_hooks'
import { inspect } from 'node:util'
import { Stamp, type Time } from './clock.js'
import type { Claim } from './lease.js'

/** A change of a hold, a wait or the session. */
export interface LockEvent {
  /** The kind of the change. `suspended`, `resumed` and `ended` (its lease is lost) concern the session. */
  kind: 'acquired' | 'not_acquired' | 'released' | 'lost' | 'suspended' | 'resumed' | 'ended'
  mode: 'lock' | 'shared' | 'permit' | 'election' | 'session'
  /** The names of the locks, or of the election. Empty for a session. */
  names: readonly string[]
  /** The token of the hold; 0 = none. */
  token: bigint
  /** The time of the change in milliseconds, like `Date.now()`. */
  time: number
  /** The milliseconds for which the caller has waited, the lock was held, or the session was suspended. */
  duration: number
  /** The reason of `not_acquired`, `lost`, `suspended` or `ended`. */
  error?: unknown
}

/** Reports events to the application, each in a microtask, in the async context of the caller of the request. */
export class Reporter {
  #suspended: Stamp | undefined

  constructor (private readonly onEvent: (event: LockEvent) => unknown, private readonly time: Time) {}

  asks (claim: Claim): void {
    const call = AsyncResource.bind(async (event: LockEvent) => { await this.#call(event) })
    const mode = claim.ask.action.replace(/.*_/, '').replace('candidate', 'election') as LockEvent['mode']
    let since = new Stamp(this.time)
    claim.report = (kind, error) => {
      const { names, token } = claim
      const event = { kind, mode, names, token: BigInt(token), time: Date.now(), duration: since.age(), error }
      since = new Stamp(this.time)
      queueMicrotask(() => { void call(event) })
    }
  }

  session (kind: 'suspended' | 'resumed' | 'ended', error?: unknown): void {
    const duration = this.#suspended?.age() ?? 0
    this.#suspended = kind === 'suspended' ? new Stamp(this.time) : undefined
    const event: LockEvent = { kind, mode: 'session', names: [], token: 0n, time: Date.now(), duration, error }
    queueMicrotask(() => { void this.#call(event) })
  }

  async #call (event: LockEvent): Promise<void> {
    try {
      await this.onEvent(event)
    } catch (error) {
      process.emitWarning(error instanceof Error ? error : `onEvent has thrown ${inspect(error)}`)
    }
  }
}
