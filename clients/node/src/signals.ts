/** The AbortSignals that callers pass, and the signals of holds. */
import { getEventListeners, setMaxListeners } from 'node:events'

/** The functions to call when a signal is aborted, and the one listener that calls them. */
interface Waiting { all: Set<() => void>, ring: () => void }

const waitingFor = new WeakMap<AbortSignal, Waiting>()

/**
 * Calls a function when the signal is aborted. Returns a function that cancels it. A signal has only one listener for
 * all calls, because Node.js warns about more than ten.
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
 * Makes a controller's signal check the clock: `aborted`, `reason` and `throwIfAborted` call `check` first, so that
 * they report a loss even if the event loop was blocked. The signal may have any number of listeners; `changed` is
 * called after a listener was added or removed.
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

/** Whether the signal has listeners for its abort. */
export function isWatched (signal: AbortSignal): boolean { return getEventListeners(signal, 'abort').length > 0 }
