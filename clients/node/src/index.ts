/**
 * Locks and leader election of the PostgreSQL extension lock_election.
 *
 * @packageDocumentation
 */
export { LockElection, type AcquireOptions, type ConnectOptions, type UsingFunction } from './session.js'
export { Election, type ElectOptions, type Leader } from './election.js'
export { Hold, Term, type Fenceable, type Queryable } from './hold.js'
export { install, installScript, type InstallOptions } from './install.js'
export { LockElectionError, LockLostError, NotAcquiredError, type ErrorCode } from './errors.js'
export type { State } from './engine.js'
export type { LockEvent } from './events.js'
export type { Outcome } from './lease.js'
export type { ServerOptions } from './hosts.js'
