// A clock that is moved by hand, and a server of one database that knows as much SQL as the library sends.
import { Engine } from '../dist/esm/engine.js'
import { LockElection } from '../dist/esm/session.js'

export async function settle () {
  for (let i = 0; i < 5; i++) await new Promise(resolve => setImmediate(resolve))
}

export class FakeTime {
  now = 0
  offset = 1.7e12
  timers = new Set()
  mono = () => this.now
  wall = () => this.now + this.offset

  set = (fn, ms) => {
    const timer = { fn, at: this.now + Math.max(ms, 0) }
    this.timers.add(timer)
    return timer
  }

  clear = timer => { this.timers.delete(timer) }
  keep = () => this.set(() => {}, Infinity)

  // Time goes by, and all that is due runs when it is due.
  async pass (ms) {
    const end = this.now + ms
    for (;;) {
      await settle()
      const next = [...this.timers].sort((a, b) => a.at - b.at)[0]
      if (next === undefined || next.at > end) break
      this.timers.delete(next)
      this.now = Math.max(this.now, next.at)
      next.fn()
    }
    this.now = end
    await settle()
  }

  // Time goes by, and nothing runs: the loop of events is blocked.
  block (ms) { this.now += ms }
}

const fail = (code, message = code) => Object.assign(new Error(message), { severity: 'ERROR', code })

// An array of texts in binary format.
function textsOf (array) {
  const texts = []
  for (let at = 20; at < (array?.length ?? 0);) {
    const size = array.readInt32BE(at)
    at += 4
    texts.push(size < 0 ? null : array.toString('utf8', at, at += size))
  }
  return texts
}

function itemsOf (array) {
  const texts = textsOf(array)
  return Array.from({ length: texts.length / 6 }, (_, i) => {
    const [item, action, name, number, owner, value] = texts.slice(i * 6)
    return { item, action, name, number, owner, value }
  })
}

export class FakeServer {
  leases = new Map() // ttl, until, the number of the last call, losses
  places = [] // of all names, in the order of arrival: name, token, lease, owner, kind, news
  closed = new Map() // names, and the hold_for of their release
  revision = 1000
  incarnation = 1
  pid = 100
  standby = false
  notify = 'all'
  hears = true
  down = false
  pooled = false
  durable = true
  schema = 'le' // null: the extension is not there
  validity = undefined // milliseconds; undefined: the TTL
  refused = new Map() // errors of items, by their name, each for one
  log = []
  plans = []
  wires = new Set()

  constructor (time) { this.time = time }

  // What happens to the next statement that fits: 'lose' (done, the connection ends without an answer), 'drop' (the
  // same, not done), 'hang' (done, no answer), an error to throw, or a delay of the answer in ms.
  plan (pattern, what) { this.plans.push({ pattern, what }) }

  sent (pattern) { return this.log.filter(text => pattern.test(text)) }

  dial = events => {
    const wire = { events, channels: new Set(), pid: ++this.pid, prepared: new Set() }
    this.wires.add(wire)
    return {
      connect: async () => {
        this.log.push('connect')
        if (this.down) throw new Error('connection refused')
      },
      pid: () => this.pooled ? 0 : wire.pid,
      query: (text, values, prepares) => this.query(wire, text, values, prepares),
      destroy: async () => { this.wires.delete(wire) }
    }
  }

  cut () {
    for (const wire of [...this.wires]) wire.events.ended(new Error('cut'))
  }

  // What the log has of a statement: of lease_sync, its items.
  shown (text, values, prepares) {
    if (!/lease_sync\(/.test(text)) return text
    const items = itemsOf(values[4]).map(({ action, name, value }) => `${action} ${name}${value === null ? '' : ` ${value}`}`)
    return `lease_sync(${items.join(', ') || 'look'})${prepares ? ' prepared' : ''}${values[5] === null ? ' mailed' : ''}`
  }

  async query (wire, text, values = [], prepares = false) {
    const shown = this.shown(text, values, prepares)
    this.log.push(shown)
    const index = this.plans.findIndex(({ pattern }) => pattern.test(shown))
    const [{ what } = {}] = index >= 0 ? this.plans.splice(index, 1) : []
    if (what instanceof Error) throw what
    if (what === 'drop') {
      wire.events.ended(new Error('cut'))
      return await new Promise(() => {})
    }
    const rows = this.run(wire, text, values)
    if (what === 'lose') wire.events.ended(new Error('cut'))
    if (what === 'lose' || what === 'hang') return await new Promise(() => {})
    if (typeof what === 'number') await new Promise(resolve => this.time.set(resolve, what))
    return rows
  }

  run (wire, text, values) {
    if (/quote_ident/.test(text)) return [[this.schema, this.standby ? 't' : 'f', String(wire.pid), this.notify, 'app']]
    if (/LISTEN/.test(text)) return this.listen(wire, text)
    const [, schema, name] = /\b(le\d*)\.(\w+)\(/.exec(text)
    if (schema !== this.schema) throw fail('3F000', `schema "${schema}" does not exist`)
    return this[name](values)
  }

  listen (wire, text) {
    for (const [, un, channel] of text.matchAll(/(UN)?LISTEN (\w+)/g)) wire.channels[un ? 'delete' : 'add'](channel)
    const [, self] = /NOTIFY (\w+)/.exec(text) ?? []
    if (self !== undefined && this.hears) wire.events.notified(self)
    return []
  }

  channelOf (lease) { return this.notify === 'none' || this.notify === 'elections' ? null : `c_${this.incarnation}_${lease}` }

  expire () {
    for (const [id, lease] of this.leases) {
      if (this.time.now < lease.until) continue
      this.leases.delete(id)
      this.remove(place => place.lease === id)
    }
  }

  // Ends holds and places, and grants what is free then. A reason: it is news of their leases.
  remove (which, reason) {
    const before = this.places.filter(place => this.holds(place))
    const gone = this.places.filter(which)
    this.places = this.places.filter(place => !which(place))
    for (const { lease, token } of reason === undefined ? [] : gone) {
      this.leases.get(lease)?.lost.push({ number: ++this.revision, token, reason })
    }
    for (const place of this.places) {
      if (!this.holds(place) || before.includes(place)) continue
      place.news = ++this.revision
      const channel = this.channelOf(place.lease)
      for (const wire of this.wires) if (this.hears && wire.channels.has(channel)) wire.events.notified(channel)
    }
    return gone.length > 0
  }

  force (name) { return this.remove(place => place.name === name && this.holds(place), 'forced') }

  // Another manager, which knows of no losses; what it forgets was not durable.
  restart (...forgets) {
    this.incarnation++
    this.places = this.places.filter(place => !forgets.includes(place.name))
    for (const lease of this.leases.values()) lease.lost = []
  }

  evict (name) {
    const place = this.places.find(one => one.name === name)
    Object.assign(place, { evicted: true, news: ++this.revision })
  }

  holds (place) { return this.places.find(other => other.name === place.name) === place }

  take (name, owner, lease, kind = 'lock') {
    const place = { name, owner, lease, kind, token: String(++this.revision) }
    place.news = this.revision
    this.places.push(place)
    return place
  }

  grant_lease ([ttl]) {
    const id = String(++this.revision)
    this.leases.set(id, { ttl: parseFloat(ttl), until: this.time.now + parseFloat(ttl), call: 0, lost: [] })
    return [[id]]
  }

  revoke_lease ([ids]) {
    for (const id of ids.replace(/[{}]/g, '').split(',')) {
      this.leases.delete(id)
      this.remove(place => place.lease === id)
    }
    return [['t']]
  }

  current_leader ([election]) {
    const [place] = this.places.filter(one => one.name === election)
    return place === undefined ? [] : [['me', place.token]]
  }

  lease_sync ([id, call, incarnation, seen, array, wait]) {
    this.expire()
    const lease = this.leases.get(id)
    const row = of => ['item', 'event', 'kind', 'name', 'token', 'owner', 'reason', 'code', 'message', 'detail', 'hint',
      'validity', 'incarnation', 'news', 'complete', 'channel'].map(column => of[column] ?? null)
    if (lease === undefined) return [row({ event: 'gone', reason: 'expired' })]
    const known = incarnation === String(this.incarnation)
    const fresh = Number(call) > lease.call && (incarnation === null || known)
    lease.call = Math.max(lease.call, Number(call))
    const results = fresh ? this.carryOut(id, itemsOf(array)) : []
    if (wait === null) return [row({ event: 'lease' }), ...results.map(row)]
    lease.until = this.time.now + lease.ttl
    const head = { event: 'lease', incarnation: String(this.incarnation), channel: this.channelOf(id), news: seen ?? '0' }
    if (!this.durable) {
      const later = results.map(({ token, ...one }) => /granted|queued|proclaimed/.test(one.event) || one.value !== null ? { ...one, event: 'pending' } : one)
      return [row(head), ...later.map(row)]
    }
    const after = known && seen !== null ? Number(seen) : 0
    const told = new Set(results.map(one => one.token))
    const more = this.places.filter(one => one.lease === id && one.news > after && !told.has(one.token))
      .map(one => ({ ...one, event: one.evicted ? 'evicted' : this.holds(one) ? 'granted' : 'queued' }))
    const lost = lease.lost.filter(one => one.number > after).map(one => ({ ...one, event: 'lost' }))
    Object.assign(head, { validity: String(this.validity ?? lease.ttl), news: String(this.revision), complete: after === 0 ? 't' : 'f' })
    return [head, ...results, ...more, ...lost].map(row)
  }

  // All releases first; items of one number are one request for several names.
  carryOut (lease, items) {
    const gives = ({ action }) => /^(release|resign)$/.test(action)
    const asked = new Map()
    const results = items.filter(gives).map(one => this.carryOutOne(lease, one))
    for (const one of items.filter(one => !gives(one))) {
      const other = asked.get(one.item)
      if (other === undefined) asked.set(one.item, one)
      else this.places.push({ ...this.places.at(-1), name: one.name })
      if (other === undefined) results.push(this.carryOutOne(lease, one))
    }
    return results
  }

  carryOutOne (lease, { item, action, name, number, owner, value }) {
    const answer = { item, name, owner, value }
    const error = name === '' ? fail('22023', 'name must not be empty') : this.refused.get(name)?.shift()
    if (error !== undefined) return { ...answer, event: 'error', ...error, message: error.message }
    if (/^(release|resign)$/.test(action)) {
      const released = this.remove(place => place.name === name && place.token === number)
      if (released && value !== null) this.closed.set(name, value)
      return { ...answer, event: released ? 'released' : 'not_held' }
    }
    if (action === 'proclaim') return { ...answer, event: this.places.some(one => one.token === number) ? 'proclaimed' : 'not_held' }
    if (/^try_/.test(action) && this.places.some(place => place.name === name)) return { ...answer, event: 'not_granted' }
    const place = this.take(name, owner, lease, /candidate$/.test(action) ? 'election' : 'lock')
    return { ...answer, event: this.holds(place) ? 'granted' : 'queued', token: place.token }
  }
}

// A session of a TTL of 30 s with a server of its own.
export async function start ({ ttl = 30_000, servers = 1, ...settings } = {}) {
  const time = new FakeTime()
  const all = Array.from({ length: servers }, () => Object.assign(new FakeServer(time), settings))
  const engine = new Engine({ ttl, name: 'test', time, dials: all.map(server => server.dial) })
  const states = []
  engine.onState = state => states.push(state)
  await engine.open()
  return { time, server: all[0], servers: all, engine, session: new LockElection(engine), states }
}

export { fail }
