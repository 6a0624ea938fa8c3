/**
 * Spans of OpenTelemetry, from the events of a session: `LockElection.connect({ onEvent: spans() })`.
 *
 * - `acquire lock`, from the request to the grant or the end of the wait; an error if the server has refused the
 *   request, or the session has ended
 * - `hold lock`, from the grant to the release or the loss; an error if the lock was lost
 * - `suspend session`, from the first failure to the next renewal
 *
 * A span of a lock is a child of the span in which the lock was requested. OpenTelemetry has no conventions for locks,
 * so the attributes have this library's prefix: `lock_election.names`, `lock_election.mode`, `lock_election.token`, and
 * `lock_election.outcome`, which is the kind of the event. A failed span has `error.type`, the code of the error.
 *
 * @packageDocumentation
 */
import { SpanStatusCode, trace, type TracerProvider } from '@opentelemetry/api'
import { LockElectionError } from './errors.js'
import type { LockEvent } from './events.js'

const names: { [kind in LockEvent['kind']]?: string } = {
  acquired: 'acquire lock',
  not_acquired: 'acquire lock',
  released: 'hold lock',
  lost: 'hold lock',
  resumed: 'suspend session'
}

/** Returns a function for `onEvent` that makes spans. `provider`: default: the global one. */
export function spans (provider: TracerProvider = trace): (event: LockEvent) => void {
  return ({ kind, mode, names: locks, token, time, duration, error }) => {
    const name = names[kind]
    if (name === undefined) return
    const span = provider.getTracer('lock_election').startSpan(name, { startTime: time - duration })
    span.setAttribute('lock_election.outcome', kind)
    if (locks.length > 0) span.setAttributes({ 'lock_election.names': [...locks], 'lock_election.mode': mode })
    if (token > 0n) span.setAttribute('lock_election.token', Number(token))
    if (error instanceof LockElectionError && error.code !== 'not_acquired' && error.code !== 'canceled') {
      span.setAttribute('error.type', error.code)
      span.setStatus({ code: SpanStatusCode.ERROR, message: error.message })
    }
    span.end(time)
  }
}
