/**
 * The goodbye: a process whose main has ended without `close` gives back what it holds, once nothing of it can still work
 * under that. That is so when the loop of events has run empty (`beforeExit`) and no worker thread or child process is
 * alive. `process.exit`, an uncaught exception and a signal end a process in the middle of its work: there is none then,
 * and the lease ends by itself.
 */
import type { ChildProcess } from 'node:child_process'
import { channel } from 'node:diagnostics_channel'
import { isMainThread, type Worker } from 'node:worker_threads'

/** What holds something; `watched`: code of the application waits to hear of a loss. */
export interface Holder {
  readonly watched: boolean
  use: () => () => void
  close: () => Promise<void>
}

/** Milliseconds until the next look, where the loop is empty and something of the process still lives. */
const AGAIN = 1000

// Node.js tells of children and workers from 18.8 on. Beside other threads, nobody knows what they do.
const [major = 0, minor = 0] = process.versions.node.split('.').map(Number)
const canTell = isMainThread && (major > 18 || (major === 18 && minor >= 8))

const holders = new Set<Holder>()
const children = new Set<WeakRef<ChildProcess>>()
const workers = new Set<WeakRef<Worker>>()

// One that lives is not collected.
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

/** Of what keeps the loop of events, and of pipes that do not. */
function resources (): number {
  const { getActiveResourcesInfo } = process as unknown as { getActiveResourcesInfo: () => string[] }
  return getActiveResourcesInfo().filter(kind => kind !== 'Immediate').length
}

function loopIsEmpty (): void {
  const before = resources()
  // The other listeners of beforeExit may begin something, under a lock.
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
 * Closes the holder at the end of the process. Returns what takes that back. Where nobody can tell what still works, the
 * holder keeps the process instead.
 */
export function closeAtTheEnd (holder: Holder): () => void {
  if (!canTell) return holder.use()
  if (holders.size === 0) process.prependListener('beforeExit', loopIsEmpty)
  holders.add(holder)
  return () => { forget(holder) }
}
