/** What the library knows of time: milliseconds of two clocks, and timers. Tests bring their own. */
export interface Time {
  /** Never set, and stands still while the machine is suspended. */
  mono: () => number
  /** Goes on while the machine is suspended, and may be set. */
  wall: () => number
  /** A timer does not keep the process. */
  set: (fn: () => void, ms: number) => unknown
  clear: (timer: unknown) => void
  /** Keeps the process until it is cleared. */
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
 * A point in time. Node.js has no clock that counts a suspend and is never set, so its age is the larger of what the
 * two clocks have advanced: a wall clock that is set forward loses early, which is safe (rule 3.3).
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
 * A limit for an answer; returns what takes it back. Where the loop of events was blocked meanwhile, the answer may lie
 * in the socket: it gets a moment to be read. A limit that is longer than a timer takes several.
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

/** Give or take a tenth. */
export function jitter (ms: number): number { return ms * (0.9 + 0.2 * Math.random()) }
