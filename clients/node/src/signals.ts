/** AbortSignals: those that callers pass, and those that holds have. */
import { getEventListeners, setMaxListeners } from 'node:events'

/** Who waits for the abort of a signal, and the one listener that tells them. */
interface Waiting { all: Set<() => void>, ring: () => void }

const waitingFor = new WeakMap<AbortSignal, Waiting>()

/**
 * Calls a function when the signal is aborted; returns what takes it back. However many calls have one signal, it has one
 * listener: Node.js warns of more than ten.
 */
export function onAbort (signal: AbortSignal | undefined, fn: () => void): () => void {
  if (signal === undefined) return () => {}
  const all = waitingFor.get(signal)?.all ?? new Set()
  if (all.size === 0) {
    const ring = (): void => { for (const one of [...all]) one() }
    waitingFor.set(signal, { all, ring })
    signal.addEventListener('abort', ring)
  }
  all.add(fn)
  return () => {
    all.delete(fn)
    const waiting = waitingFor.get(signal)
    if (waiting?.all !== all || all.size > 0) return
    waitingFor.delete(signal)
    signal.removeEventListener('abort', waiting.ring)
  }
}

/**
 * The signal of a controller, which is right at once: whoever reads `aborted`, `reason` or `throwIfAborted` looks at the
 * clock first, so a loop of events that was blocked does not hide a loss from the next line of work. It may have any
 * number of listeners; `changed` is called when one was added or taken back.
 */
export function liveSignal (controller: AbortController, check: () => void, changed = (): void => {}): AbortSignal {
  const { signal } = controller
  const changing = (key: 'addEventListener' | 'removeEventListener') => (...args: unknown[]): void => {
    Reflect.apply(AbortSignal.prototype[key], signal, args)
    changed()
  }
  const read = (key: 'aborted' | 'reason') => () => {
    check()
    return Reflect.get(AbortSignal.prototype, key, signal) as unknown
  }
  setMaxListeners(0, signal)
  return Object.defineProperties(signal, {
    aborted: { get: read('aborted') },
    reason: { get: read('reason') },
    throwIfAborted: { value: () => { if (signal.aborted) throw signal.reason } },
    addEventListener: { value: changing('addEventListener') },
    removeEventListener: { value: changing('removeEventListener') }
  })
}

/** Does somebody wait to hear of its abort? */
export function isWatched (signal: AbortSignal): boolean { return getEventListeners(signal, 'abort').length > 0 }
