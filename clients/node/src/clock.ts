/** Two clocks in milliseconds, and timers. Tests pass their own. */
export interface Time {
  /** A clock that nobody can set, and that stops while the machine is suspended. */
  mono: () => number
  /** A clock that runs while the machine is suspended, and that can be set. */
  wall: () => number
  /** Starts a timer, which does not keep the process alive. */
  set: (fn: () => void, ms: number) => unknown
  clear: (timer: unknown) => void
  /** Returns a timer that keeps the process alive until it is cleared. */
  keep: () => unknown
}

const LONGEST_TIMER = 2 ** 31 - 1
const MOMENT = 50

export const systemTime: Time = {
  mono: () => performance.now(),
  wall: () => Date.now(),
  set: (fn, ms) => setTimeout(fn, Math.min(Math.ceil(Math.max(ms, 0)), LONGEST_TIMER)).unref(),
  clear: timer => { clearTimeout(timer as NodeJS.Timeout) },
  keep: () => setInterval(() => {}, LONGEST_TIMER)
}

/**
 * A point in time. Node.js has no clock that counts a suspend and cannot be set, so the age of a stamp is the larger of
 * the times by which the two clocks have advanced. If the wall clock is set forward, locks are lost early, which is
 * safe (rule 3.3).
 */
export class Stamp {
  readonly #time: Time
  readonly #mono: number
  readonly #wall: number

  constructor (time: Time) {
    this.#time = time
    this.#mono = time.mono()
    this.#wall = time.wall()
  }

  age (): number { return Math.max(this.#time.mono() - this.#mono, this.#time.wall() - this.#wall) }
}

/**
 * Calls a function after a limit, unless the returned function cancels it, as when a reply arrives. If the event loop
 * was blocked, the reply may already be in the socket, so the call is delayed by another moment to read it. A limit
 * that is longer than the longest timer uses several timers.
 */
export function limit (time: Time, ms: number, fn: () => void): () => void {
  const due = time.mono() + ms
  let timer: unknown
  const ring = (): void => {
    const late = time.mono() - due
    if (late < -MOMENT) timer = time.set(ring, -late)
    else if (late > MOMENT) timer = time.set(fn, MOMENT)
    else fn()
  }
  timer = time.set(ring, ms)
  return () => { time.clear(timer) }
}

/** A promise that is settled from outside. */
export interface Deferred<T> { promise: Promise<T>, resolve: (value: T) => void, reject: (error: unknown) => void }

export function defer<T> (): Deferred<T> {
  const made = {} as Deferred<T>
  made.promise = new Promise<T>((resolve, reject) => Object.assign(made, { resolve, reject }))
  return made
}

/** Returns the time, changed at random by up to 10 %. */
export function jitter (ms: number): number { return ms * (0.9 + 0.2 * Math.random()) }
