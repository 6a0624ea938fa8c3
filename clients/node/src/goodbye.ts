/**
 * The goodbye: a process that ends without `close` releases its holds when no part of it can still work under them,
 * which means that the event loop is empty (`beforeExit`) and no worker thread or child process is alive.
 * `process.exit`, an uncaught exception or a signal ends a process in the middle of its work; then there is no goodbye,
 * and the lease expires.
 */
import type { ChildProcess } from 'node:child_process'
import { channel } from 'node:diagnostics_channel'
import { isMainThread, type Worker } from 'node:worker_threads'

/** A session with holds. `watched` is true if application code listens for the loss of a hold. */
export interface Holder {
  readonly watched: boolean
  use: () => () => void
  close: () => Promise<void>
}

/** Milliseconds until the next check if the loop is empty, but a worker or child process is still alive. */
const AGAIN = 1000

// Node.js reports children and workers since 18.8. In a worker thread, the library cannot know about other threads.
const [major = 0, minor = 0] = process.versions.node.split('.').map(Number)
const canTell = isMainThread && (major > 18 || (major === 18 && minor >= 8))

const holders = new Set<Holder>()
const children = new Set<WeakRef<ChildProcess>>()
const workers = new Set<WeakRef<Worker>>()

// Remembers a child or a worker by a weak reference. Node.js itself keeps the object while it is alive.
function add<T extends object> (all: Set<WeakRef<T>>, one: T, isOver: (one: T) => boolean): void {
  for (const ref of all) {
    const other = ref.deref()
    if (other === undefined || isOver(other)) all.delete(ref)
  }
  all.add(new WeakRef(one))
}

const hasExited = ({ exitCode, signalCode }: ChildProcess): boolean => exitCode !== null || signalCode !== null
const hasStopped = ({ threadId }: Worker): boolean => threadId === -1

const spawned = channel('child_process')
const threads = channel('worker_threads')
if (canTell) {
  spawned.subscribe(message => { add(children, (message as { process: ChildProcess }).process, hasExited) })
  threads.subscribe(message => { add(workers, (message as { worker: Worker }).worker, hasStopped) })
}

function isAlone (): boolean {
  const lives = <T extends object>(isOver: (one: T) => boolean) => (ref: WeakRef<T>): boolean => {
    const one = ref.deref()
    return one !== undefined && !isOver(one)
  }
  return ![...children].some(lives(child => child.pid === undefined || hasExited(child))) &&
    ![...workers].some(lives(hasStopped))
}

/** Returns the number of resources that keep the event loop alive, and of pipes, which do not. */
function resources (): number {
  const { getActiveResourcesInfo } = process as unknown as { getActiveResourcesInfo: () => string[] }
  return getActiveResourcesInfo().filter(kind => kind !== 'Immediate').length
}

function loopIsEmpty (): void {
  const before = resources()
  // Wait for the other listeners of beforeExit, which may start work under a lock.
  setImmediate(() => {
    if (resources() > before) return
    if (isAlone() && ![...holders].some(holder => holder.watched)) for (const holder of [...holders]) void sayGoodbye(holder)
    else setTimeout(() => {}, AGAIN)
  })
}

async function sayGoodbye (holder: Holder): Promise<void> {
  forget(holder)
  await holder.close()
}

function forget (holder: Holder): void {
  holders.delete(holder)
  if (holders.size === 0) process.off('beforeExit', loopIsEmpty)
}

/**
 * Closes the holder at the end of the process. Returns a function that cancels this. If the library cannot tell whether
 * anything still works, the holder keeps the process alive instead.
 */
export function closeAtTheEnd (holder: Holder): () => void {
  if (!canTell) return holder.use()
  if (holders.size === 0) process.prependListener('beforeExit', loopIsEmpty)
  holders.add(holder)
  return () => { forget(holder) }
}
